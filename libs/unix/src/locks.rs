//! Advisory locks on files: `flock`'s on whole files, `fcntl`'s on ranges (fcntl(2), flock(2)).
//!
//! The two kinds do not see each other. A lock of the first kind belongs to an open file
//! description, one of the second to a process; who owns what is told by number. No user but user 0
//! may have more locks than it leaves to others.

use crate::Errno;
use alloc::vec::Vec;

/// Locks kept at most.
const LOCKS_MAX: usize = 4096;

/// Whose a lock is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// An open file description (`flock`).
    Description(u64),
    /// A process (`fcntl`): its id, and which environment it is of all that there have been, as ids
    /// come again.
    Process(u32, u64),
}

impl Owner {
    /// Are locks of the two owners of one kind, so that they can conflict?
    fn sees(self, other: Owner) -> bool {
        matches!(self, Owner::Process(..)) == matches!(other, Owner::Process(..))
    }
}

/// A lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lock {
    /// The file.
    pub file: u64,
    /// Whose it is.
    pub owner: Owner,
    /// The user for whom it was taken.
    pub user: u32,
    /// Does it exclude every other, or exclusive ones only?
    pub exclusive: bool,
    /// First byte.
    pub first: u64,
    /// Last byte.
    pub last: u64,
}

/// All of them.
#[derive(Debug, Default)]
pub struct Locks {
    list: Vec<Lock>,
}

impl Locks {
    /// The first lock in the file that `wanted` would have to wait for.
    pub fn conflict(&self, wanted: &Lock) -> Option<Lock> {
        let conflicts = |held: &&Lock| {
            held.file == wanted.file
                && held.owner != wanted.owner
                && held.owner.sees(wanted.owner)
                && (held.exclusive || wanted.exclusive)
                && held.first <= wanted.last
                && wanted.first <= held.last
        };
        self.list.iter().filter(conflicts).min_by_key(|held| held.first).copied()
    }

    /// Gives what the owner holds of the file in `first..=last` back; did it hold anything there?
    pub fn unlock(
        &mut self,
        file: u64,
        owner: Owner,
        first: u64,
        last: u64,
    ) -> Result<bool, Errno> {
        let holds = |held: &&Lock| held.file == file && held.owner == owner;
        let cut = |held: &&Lock| holds(held) && held.first < first && last < held.last;
        // What is cut in the middle becomes two.
        if let Some(cut) = self.list.iter().find(cut) {
            self.room(cut.user, 1)?;
        }
        self.list.try_reserve(1).map_err(|_| Errno::ENOLCK)?;
        Ok(self.give_back(file, owner, first, last))
    }

    /// May there be so many more locks of the user's?
    fn room(&self, user: u32, more: usize) -> Result<(), Errno> {
        let own = self.list.iter().filter(|held| held.user == user).count();
        let all = self.list.len() + more;
        let room = user == 0 || own + more <= LOCKS_MAX.saturating_sub(all);
        if room && all <= LOCKS_MAX { Ok(()) } else { Err(Errno::ENOLCK) }
    }

    /// The same with room for one lock more. An owner's locks do not overlap: two are cut at most.
    fn give_back(&mut self, file: u64, owner: Owner, first: u64, last: u64) -> bool {
        let mut rests = [None; 2];
        let before = self.list.len();
        self.list.retain(|held| {
            let hit = held.file == file
                && held.owner == owner
                && held.first <= last
                && first <= held.last;
            if hit && held.first < first {
                rests[0] = Some(Lock { last: first - 1, ..*held });
            }
            if hit && held.last > last {
                rests[1] = Some(Lock { first: last + 1, ..*held });
            }
            !hit
        });
        let any = self.list.len() != before;
        self.list.extend(rests.into_iter().flatten());
        any
    }

    /// Takes a lock that conflicts with none, in place of what its owner held there; did the owner
    /// give something up by it?
    pub fn lock(&mut self, wanted: Lock) -> Result<bool, Errno> {
        self.room(wanted.user, 2)?;
        self.list.try_reserve(2).map_err(|_| Errno::ENOLCK)?;
        let gave = self.give_back(wanted.file, wanted.owner, wanted.first, wanted.last);
        // Ranges that touch are one lock, as `F_GETLK` shows.
        let mut whole = wanted;
        self.list.retain(|held| {
            let kind = |lock: &Lock| (lock.file, lock.owner, lock.user, lock.exclusive);
            let like = kind(held) == kind(&wanted);
            let below = like && held.last.checked_add(1) == Some(wanted.first);
            let above = like && wanted.last.checked_add(1) == Some(held.first);
            if below {
                whole.first = held.first;
            }
            if above {
                whole.last = held.last;
            }
            !below && !above
        });
        self.list.push(whole);
        Ok(gave)
    }

    /// Forgets the locks of owners that are no more; were there any?
    pub fn sweep(&mut self, alive: impl Fn(Owner) -> bool) -> bool {
        let before = self.list.len();
        self.list.retain(|held| alive(held.owner));
        self.list.len() != before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(owner: Owner, exclusive: bool, first: u64, last: u64) -> Lock {
        Lock { file: 7, owner, user: 0, exclusive, first, last }
    }

    #[test]
    fn shared_locks_share_and_exclusive_ones_do_not() {
        let mut locks = Locks::default();
        let (one, two) = (Owner::Description(1), Owner::Description(2));
        locks.lock(lock(one, false, 0, u64::MAX)).unwrap();
        assert_eq!(locks.conflict(&lock(two, false, 0, u64::MAX)), None);
        assert!(locks.conflict(&lock(two, true, 0, u64::MAX)).is_some());
        assert_eq!(locks.conflict(&lock(one, true, 0, u64::MAX)), None);
        assert_eq!(locks.conflict(&lock(Owner::Process(2, 0), true, 0, 9)), None);
        let elsewhere = Lock { file: 8, ..lock(two, true, 0, 9) };
        assert_eq!(locks.conflict(&elsewhere), None);
    }

    #[test]
    fn ranges_split_and_are_replaced() {
        let mut locks = Locks::default();
        let (one, two) = (Owner::Process(1, 0), Owner::Process(2, 0));
        locks.lock(lock(one, true, 0, 99)).unwrap();
        assert_eq!(locks.unlock(7, one, 40, 59), Ok(true));
        assert_eq!(locks.conflict(&lock(two, true, 40, 59)), None);
        assert_eq!(locks.conflict(&lock(two, true, 59, 60)), Some(lock(one, true, 60, 99)));
        assert_eq!(locks.lock(lock(one, false, 30, 69)), Ok(true));
        assert_eq!(locks.conflict(&lock(two, false, 30, 69)), None);
        assert!(locks.conflict(&lock(two, false, 20, 69)).is_some());
        locks.lock(lock(one, true, 30, 69)).unwrap();
        assert_eq!(locks.conflict(&lock(two, true, 50, 50)), Some(lock(one, true, 0, 99)));
        assert_eq!(locks.unlock(7, two, 0, u64::MAX), Ok(false));
        assert!(locks.sweep(|owner| owner != one));
        assert_eq!(locks.conflict(&lock(two, true, 0, u64::MAX)), None);
    }

    #[test]
    fn the_first_in_the_way_is_told() {
        let mut locks = Locks::default();
        let (one, two) = (Owner::Process(1, 0), Owner::Process(2, 0));
        for first in [50, 20, 80, 5] {
            locks.lock(lock(one, first != 20, first, first + 4)).unwrap();
        }
        let told = |exclusive, first| {
            locks.conflict(&lock(two, exclusive, first, u64::MAX)).map(|held| held.first)
        };
        assert_eq!(told(true, 0), Some(5));
        assert_eq!(told(true, 10), Some(20));
        assert_eq!(told(false, 10), Some(50));
        assert_eq!(told(true, 90), None);
    }

    #[test]
    fn there_is_an_end_to_them() {
        let mut locks = Locks::default();
        for at in 0..LOCKS_MAX as u64 - 1 {
            locks.lock(lock(Owner::Process(1, 0), true, 2 * at, 2 * at)).unwrap();
        }
        let more = lock(Owner::Process(1, 0), true, u64::MAX, u64::MAX);
        assert_eq!(locks.lock(more), Err(Errno::ENOLCK));
    }

    /// No more than are left, whether they are taken or become two by what is given back: half of
    /// them, half of the other half, and so on.
    #[test]
    fn a_user_leaves_as_many_to_others() {
        let mut locks = Locks::default();
        let anns = |at| Lock { user: 1000, ..lock(Owner::Process(1, 0), true, at, at) };
        assert_eq!((0..9999).take_while(|&at| locks.lock(anns(2 * at)).is_ok()).count(), 2047);
        let bobs = Lock { user: 1001, file: 8, ..lock(Owner::Process(2, 0), true, 0, u64::MAX) };
        locks.lock(bobs).unwrap();
        let mut gives = |at: u64| locks.unlock(8, Owner::Process(2, 0), 2 * at + 1, 2 * at + 1);
        assert_eq!((0..9999).take_while(|&at| gives(at).is_ok()).count(), 1023);
        assert_eq!(locks.unlock(8, Owner::Process(2, 0), 0, 0), Ok(true), "which cuts nothing");
        let carols = Lock { user: 1002, ..lock(Owner::Process(4, 0), true, 1, 1) };
        locks.lock(carols).unwrap();
        locks.lock(lock(Owner::Process(3, 0), true, 3, 3)).unwrap();
    }
}
