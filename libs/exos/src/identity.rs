//! Users and groups of a process: what Linux's calls say, and the capabilities that make it so.
//!
//! Three users and three groups stand in the process, as in credentials(7), and each has its slot
//! in the domain's list (`capabilities`). What no id keeps is dropped from there, for all threads
//! at once: so a server that asks the kernel hears what is so, and a process that has given up a
//! user has no way back. A vfork child changes its own ids; it is in its parent's domain, whose
//! capabilities stay, and gets its own with the domain that it executes a program in.

use crate::capabilities::{
    ALL_GROUPS_SLOT, FAMILY_SLOT, GROUP_SLOTS, INHERITED, LOG_SLOT, NETWORK_GROUP, NETWORK_SLOT,
    POWER_SLOT, PRIVATE_SLOT, REAL_SLOT, SAVED_SLOT, SPARE_SLOTS, USER_SLOT, USER_SLOTS,
};
use crate::errno::{Answer, Errno, from_kernel};
use crate::group_list;
use crate::page;
use crate::process::Process;
use crate::user;
use abi::capability::USER_RIGHTS;
use abi::domain::Property;
use abi::id::DomainId;
use unix::set_id::Ids;
use xok::{accounts, call, published};

/// "Leave it as it is" in `setresuid` and its kin.
const KEEP: u32 = u32::MAX;

fn publish(process: &Process) {
    let page = page::own();
    page.user = process.users[0];
    page.effective_user = process.users[1];
    page.group_id = process.groups[0];
    page.effective_group_id = process.groups[1];
    (page.saved_user, page.saved_group_id) = (process.users[2], process.groups[2]);
    [page.file_user, page.file_group_id] = for_files(process);
}

/// The user and group by which it is asked what the process may do to files: the effective ones,
/// unless setfsuid(2) has said others.
#[inline]
pub fn for_files(process: &Process) -> [u32; 2] {
    let [user, group] = process.file_ids;
    [user.unwrap_or(process.users[1]), group.unwrap_or(process.groups[1])]
}

/// `setfsuid`, `setfsgid`: what it was, whether it has changed or not.
pub fn set_for_files(process: &mut Process, kind: Kind, id: u64) -> Answer {
    let (before, id) = (for_files(process)[kind as usize], id as u32);
    let allowed = process.users[1] == 0 || before == id || ids(process, kind).contains(&id);
    if id != KEEP && id != before && allowed {
        let mut next = for_files(process);
        next[kind as usize] = id;
        process.files.seal_for(next);
        let effective = ids(process, kind)[1];
        process.file_ids[kind as usize] = (id != effective).then_some(id);
        take_seals(process);
        set_undumpable(process, true);
        publish(process);
    }
    Ok(before.into())
}

/// What `act` answers while the process's real ids decide over files (access(2)).
pub fn by_real_ids(process: &mut Process, act: impl FnOnce(&mut Process) -> Answer) -> Answer {
    let real = [process.users[0], process.groups[0]].map(Some);
    let before = core::mem::replace(&mut process.file_ids, real);
    let answer = act(process);
    process.file_ids = before;
    answer
}

/// Which of the three ids of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Users.
    User,
    /// Groups.
    Group,
}

fn ids(process: &mut Process, kind: Kind) -> &mut [u32; 3] {
    match kind {
        Kind::User => &mut process.users,
        Kind::Group => &mut process.groups,
    }
}

/// What `setresuid` makes of `ids`.
fn changed(ids: [u32; 3], wanted: [u32; 3], privileged: bool) -> Result<[u32; 3], Errno> {
    let mut new = ids;
    for (place, &want) in new.iter_mut().zip(&wanted) {
        if want == KEEP {
            continue;
        }
        if !privileged && !ids.contains(&want) {
            return Err(Errno::EPERM);
        }
        *place = want;
    }
    Ok(new)
}

/// A capability to be derived: from which slot, extended by the number or as it is.
type Source = (u8, Option<u32>);

/// Where the capability of `id` comes from: the slot of an id that is the same, or one over all of
/// its kind, `all`: that of user 0, or the one over all groups.
fn source(old: [u32; 3], slots: [u8; 3], all: Option<u8>, id: u32) -> Option<Source> {
    let same = old.iter().position(|&known| known == id).map(|at| (slots[at], None));
    same.or_else(|| all.map(|slot| (slot, Some(id))))
}

/// Where the capability over all of a kind lies, of a process with these users.
fn over_all(users: [u32; 3], kind: Kind) -> Option<u8> {
    let root = users.iter().position(|&id| id == 0)?;
    Some(match kind {
        Kind::User => USER_SLOTS[root],
        Kind::Group => ALL_GROUPS_SLOT,
    })
}

fn derive(to: DomainId, slot: u8, (from, extend): Source) -> Result<(), Errno> {
    let parts = extend.map(|id| [(id >> 16) as u16, id as u16]);
    let parts = parts.as_ref().map_or(&[][..], |parts| parts);
    match call::capability_derive(from, to, slot.into(), parts, USER_RIGHTS) {
        Ok(_) => Ok(()),
        Err((error, _)) => Err(from_kernel(error)),
    }
}

/// Has the list hold what belongs to the new ids. Nothing has changed if it is refused.
fn hold(process: &Process, kind: Kind, old: [u32; 3], new: [u32; 3]) -> Result<(), Errno> {
    let slots = slots_of(kind);
    let all = over_all(process.users, kind);
    let from = |id| source(old, slots, all, id).ok_or(Errno::EPERM);
    let [first, second, last] = [from(new[0])?, from(new[1])?, from(new[2])?];
    for (spare, source) in SPARE_SLOTS.into_iter().zip([first, second]) {
        derive(DomainId::NONE, spare, source)?;
    }
    // The others lie where no old one does: the last may take the place of its own.
    derive(DomainId::NONE, slots[2], last)?;
    for (spare, slot) in SPARE_SLOTS.into_iter().zip(slots) {
        derive(DomainId::NONE, slot, (spare, None))?;
        drop_slot(spare);
    }
    Ok(())
}

/// Where the name lies that guards what the process makes: who has CONTROL over that enters its
/// children's domains, and looks at its regions.
pub fn guard_slot(process: &Process) -> u8 {
    if process.private { PRIVATE_SLOT } else { guard_of(process.listed.0) }
}

/// Of a process with these users: that of the effective one, if it is the only one. A process that
/// may become another one again is that one's, and of two of them user 0's.
fn guard_of(users: [u32; 3]) -> u8 {
    let [real, effective, _] = users;
    let another = users.iter().rposition(|&id| id != real);
    let at = users.iter().position(|&id| id == 0).or(another);
    at.filter(|_| users != [effective; 3]).map_or(USER_SLOT, |at| USER_SLOTS[at])
}

fn slots_of(kind: Kind) -> [u8; 3] {
    match kind {
        Kind::User => USER_SLOTS,
        Kind::Group => GROUP_SLOTS,
    }
}

fn drop_slot(slot: u8) {
    // An empty slot may be emptied; there is no other refusal.
    let _ = call::capability_drop(slot.into());
}

/// The slots that a process with these ids passes on, a bit each.
fn kept(process: &Process) -> u16 {
    let mut kept = INHERITED;
    if !process.users.contains(&0) {
        kept &= !(1 << ALL_GROUPS_SLOT | 1 << LOG_SLOT | 1 << POWER_SLOT);
    }
    if !has_network(process) {
        kept &= !(1 << NETWORK_SLOT);
    }
    if !stays_private(process) {
        kept &= !(1 << PRIVATE_SLOT);
    }
    if leaves_family(process.listed.0, process.users) {
        kept &= !(1 << FAMILY_SLOT);
    }
    kept
}

/// Does the process still act for more than one user and one group, or run what its user may not
/// read? Else it is its user's like others, and has no right over those that were so with it.
pub fn stays_private(process: &Process) -> bool {
    let is_one = |ids: [u32; 3]| ids == [ids[0]; 3];
    process.private && (process.hidden || !is_one(process.users) || !is_one(process.groups))
}

/// Is one of these ids none of those? What its relatives have open is theirs then, and so is what
/// it has made itself.
fn leaves_family(old: [u32; 3], new: [u32; 3]) -> bool {
    old.iter().any(|id| !new.contains(id))
}

/// May a process with these ids have the network?
pub fn has_network(process: &Process) -> bool {
    process.users.contains(&0)
        || process.groups.contains(&NETWORK_GROUP)
        || group_list::contains(process, NETWORK_GROUP)
}

/// Drops what no id keeps, and says who may signal the process (kill(2): real and saved user).
pub fn settle(process: &Process) {
    let dropped = INHERITED & !kept(process);
    for slot in (0..16).filter(|slot| dropped >> slot & 1 != 0) {
        drop_slot(slot);
    }
    signalled_by(DomainId::NONE);
}

fn signalled_by(domain: DomainId) {
    let slots = u64::from(REAL_SLOT) | u64::from(SAVED_SLOT) << 8;
    // The slots are ours, and so is the domain: nothing can be refused.
    let _ = call::domain_set(crate::capabilities::USER_SLOT, domain, Property::Signals, slots);
}

/// The process's payer pays for the domain from now on. It has been asked whether it can; if others
/// have taken the room meanwhile the former one goes on paying.
fn join(domain: DomainId, process: &Process) {
    accounts::join(domain, process.payer);
}

fn own_domain(process: &Process) -> DomainId {
    published::env(process.id).map_or(DomainId::NONE, |own| DomainId(own.domain))
}

/// Gives a domain that is being built what belongs to the ids of `process`.
pub fn pass(process: &Process, domain: DomainId) -> Result<(), Errno> {
    let slots = kept(process);
    call::capability_pass(call::OWN, domain, slots).map_err(|(error, _)| from_kernel(error))?;
    if !process.borrows_space {
        return Ok(());
    }
    // Ours is the list of the parent that lends its space: with its ids, not with ours.
    let (users, groups) = process.listed;
    for (kind, old, new) in
        [(Kind::User, users, process.users), (Kind::Group, groups, process.groups)]
    {
        let all = over_all(users, kind);
        for (slot, id) in slots_of(kind).into_iter().zip(new) {
            let from = source(old, slots_of(kind), all, id).ok_or(Errno::EPERM)?;
            derive(domain, slot, from)?;
        }
    }
    signalled_by(domain);
    if users != process.users {
        join(domain, process);
    }
    Ok(())
}

/// A program has been executed: the saved ids are the effective ones (credentials(7)).
pub fn executed(process: &mut Process) -> Answer {
    // Its last life's, which are over (setfsuid(2)).
    let for_files = [page::own().file_user, page::own().file_group_id];
    let changed = for_files != [process.users[1], process.groups[1]];
    for kind in [Kind::User, Kind::Group] {
        let [real, effective, _] = *ids(process, kind);
        become_these(process, kind, [real, effective, effective])?;
    }
    // Another program runs: one that is not hidden is no reason any more, nor is an id that is
    // given up by that.
    let stays = stays_private(process);
    let was_private = core::mem::replace(&mut process.private, stays);
    let was_closed = process.closed;
    process.closed &= !is_open_after_exec(process);
    if !stays && (was_private || was_closed && !process.closed) {
        // In fresh memory: what is taken from now on is its user's.
        let _ = call::domain_set(call::OWN, DomainId::NONE, Property::Secret, 0);
    }
    if was_private && !stays {
        drop_slot(PRIVATE_SLOT);
    }
    publish(process);
    set_undumpable(process, is_secure(process) || process.hidden || changed);
    process.keeps_capabilities = false;
    Ok(0)
}

/// Sets whether others of its user are refused a look at the process: the process table says so.
pub fn set_undumpable(process: &mut Process, is: bool) {
    process.undumpable = is;
    page::own().undumpable = is.into();
}

/// Must its starter not lead the program astray (`AT_SECURE`)?
pub fn is_secure(process: &Process) -> bool {
    Ids { users: process.users, groups: process.groups }.are_secure()
}

/// Has the process be these, which it may be.
fn become_these(process: &mut Process, kind: Kind, new: [u32; 3]) -> Answer {
    let old = *ids(process, kind);
    if new == old {
        if process.file_ids[kind as usize].is_some() {
            process.files.seal_for(next_for_files(process, kind, new));
            process.file_ids[kind as usize] = None;
            take_seals(process);
            publish(process);
        }
        return Ok(0);
    }
    let payer = match kind {
        Kind::User => Ids { users: new, ..Ids::default() }.payer(process.payer),
        Kind::Group => process.payer,
    };
    if kind == Kind::User && !new.into_iter().all(accounts::takes) {
        return Err(Errno::EPERM);
    }
    let another = payer != process.payer;
    // As setuid(2) has it, of one that may have no more processes.
    if another && !accounts::prepare(payer) {
        return Err(Errno::EAGAIN);
    }
    process.files.seal_for(next_for_files(process, kind, new));
    if !process.borrows_space {
        if kind == Kind::User && leaves_family(old, new) {
            // They are shared from here on, with the one that it has been.
            crate::net::hand_over::share(process).map_err(|_| Errno::EAGAIN)?;
        }
        if gives_up(kind, old, new) {
            let another = call::domain_set(call::OWN, DomainId::NONE, Property::OwnName, 0);
            another.map_err(|_| Errno::EAGAIN)?;
        }
        hold(process, kind, old, new)?;
    }
    *ids(process, kind) = new;
    if gives_up(kind, old, new) {
        close(process);
    }
    process.payer = payer;
    process.file_ids[kind as usize] = None;
    set_undumpable(process, process.undumpable || new[1] != old[1]);
    if !process.borrows_space {
        // By the list as it was: it is settled what is dropped of it.
        process.private = stays_private(process);
        settle(process);
        process.listed = (process.users, process.groups);
        if kind == Kind::User {
            process.files.leave_console();
        }
        if another {
            join(own_domain(process), process);
        }
    }
    take_seals(process);
    if leaves_family(old, new) {
        process.files.forget();
    }
    publish(process);
    Ok(0)
}

/// Is something given up that cannot be taken back? User 0 is all users: what it has been for a
/// time (`seteuid`) it may be again.
fn gives_up(kind: Kind, old: [u32; 3], new: [u32; 3]) -> bool {
    let is_root = matches!(kind, Kind::User) && new.contains(&0);
    leaves_family(old, new) && !is_root
}

/// Closes what the process has been until now to the other processes of the user that it is from
/// now on: its children are guarded as it is itself, and its frames are cleared whoever gets them.
/// By the name of its own that it had it would reach what it has made before, also children that
/// stay what it was: it has got another.
fn close(process: &mut Process) {
    process.closed = true;
    if !process.borrows_space {
        // The domain is ours: nothing can be refused.
        let _ = call::domain_set(call::OWN, DomainId::NONE, Property::Secret, 1);
    }
}

/// Is the program that the process executes its user's like others, so that its domain may be, too?
pub fn is_open_after_exec(process: &Process) -> bool {
    let is_one = |ids: [u32; 3]| ids == [ids[0]; 3];
    is_one(process.users) && is_one(process.groups)
}

/// For whom its files are asked after `new` have taken the place of its ids of this kind.
fn next_for_files(process: &Process, kind: Kind, new: [u32; 3]) -> [u32; 2] {
    let mut next = for_files(process);
    next[kind as usize] = new[1];
    next
}

/// What is open goes on for those for whom its files are asked now. A vfork child's descriptions
/// are its parent's.
fn take_seals(process: &Process) {
    if !process.borrows_space {
        process.files.adopt(for_files(process));
    }
}

/// Does the process give an id up that nothing but its saved one keeps, when it executes a program?
pub fn gives_up_by_exec(process: &Process) -> bool {
    let saved = |[real, effective, saved]: [u32; 3]| saved != real && saved != effective;
    saved(process.users) || saved(process.groups)
}

/// `setresuid`, `setresgid`
pub fn set_all(process: &mut Process, kind: Kind, wanted: [u64; 3]) -> Answer {
    let privileged = process.users[1] == 0;
    let new = changed(*ids(process, kind), wanted.map(|id| id as u32), privileged)?;
    become_these(process, kind, new)
}

/// What `setuid` makes of `ids`: of one without privilege it takes the real and the saved one.
fn changed_one(ids: [u32; 3], id: u32, privileged: bool) -> Result<[u32; 3], Errno> {
    match ids {
        _ if id == KEEP => Err(Errno::EINVAL),
        _ if privileged => Ok([id; 3]),
        [real, _, saved] if id == real || id == saved => Ok([real, id, saved]),
        _ => Err(Errno::EPERM),
    }
}

/// `setuid`, `setgid`
pub fn set(process: &mut Process, kind: Kind, id: u64) -> Answer {
    let privileged = process.users[1] == 0;
    let new = changed_one(*ids(process, kind), id as u32, privileged)?;
    become_these(process, kind, new)
}

/// What `setreuid` makes of `ids`: the saved one follows the effective one if the real one is set,
/// or the effective one to something else than the real one was.
fn changed_two(
    ids: [u32; 3],
    [real, effective]: [u32; 2],
    privileged: bool,
) -> Result<[u32; 3], Errno> {
    let permitted = |want: u32, among: &[u32]| privileged || want == KEEP || among.contains(&want);
    if !permitted(real, &ids[..2]) || !permitted(effective, &ids) {
        return Err(Errno::EPERM);
    }
    let or = |want: u32, kept: u32| if want == KEEP { kept } else { want };
    let (new_real, new_effective) = (or(real, ids[0]), or(effective, ids[1]));
    let follows = real != KEEP || effective != KEEP && effective != ids[0];
    Ok([new_real, new_effective, if follows { new_effective } else { ids[2] }])
}

/// `setreuid`, `setregid`
pub fn set_two(process: &mut Process, kind: Kind, real: u64, effective: u64) -> Answer {
    let privileged = process.users[1] == 0;
    let new = changed_two(*ids(process, kind), [real as u32, effective as u32], privileged)?;
    become_these(process, kind, new)
}

/// `getresuid`, `getresgid`
pub fn get_all(process: &mut Process, kind: Kind, places: [u64; 3]) -> Answer {
    let ids = *ids(process, kind);
    for (place, id) in places.iter().zip(ids) {
        user::write_value(*place, &id)?;
    }
    Ok(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_becomes_another_user() {
        assert_eq!(changed([0; 3], [5, 5, 5], true), Ok([5; 3]));
        assert_eq!(changed([5, 0, 5], [KEEP, 5, KEEP], false), Ok([5, 5, 5]));
        assert_eq!(changed([5; 3], [0, KEEP, KEEP], false), Err(Errno::EPERM));
    }

    #[test]
    fn one_without_privilege_becomes_its_real_or_saved_user() {
        assert_eq!(changed_one([0, 0, 0], 5, true), Ok([5; 3]));
        assert_eq!(changed_one([5, 6, 7], 7, false), Ok([5, 7, 7]));
        assert_eq!(changed_one([5, 6, 7], 5, false), Ok([5, 5, 7]));
        assert_eq!(changed_one([5, 6, 7], 6, false), Err(Errno::EPERM));
        assert_eq!(changed_one([0, 0, 0], KEEP, true), Err(Errno::EINVAL));
    }

    #[test]
    fn the_saved_id_follows_as_setreuid_2_has_it() {
        assert_eq!(changed_two([0, 0, 0], [KEEP, 5], true), Ok([0, 5, 5]));
        assert_eq!(changed_two([0, 5, 5], [KEEP, 0], false), Ok([0, 0, 5]));
        assert_eq!(changed_two([5, 6, 7], [6, 5], false), Ok([6, 5, 5]));
        assert_eq!(changed_two([5, 6, 7], [7, KEEP], false), Err(Errno::EPERM));
        assert_eq!(changed_two([5, 6, 7], [KEEP, 7], false), Ok([5, 7, 7]));
        assert_eq!(changed_two([5, 6, 7], [KEEP, KEEP], false), Ok([5, 6, 7]));
    }

    #[test]
    fn what_a_process_makes_is_guarded_by_the_most_that_it_may_become() {
        for (users, slot) in [
            ([5, 5, 5], USER_SLOT),
            ([0, 0, 0], USER_SLOT),
            ([0, 5, 0], REAL_SLOT),
            ([5, 0, 0], USER_SLOT),
            ([5, 5, 0], SAVED_SLOT),
            ([5, 5, 7], SAVED_SLOT),
            ([5, 7, 7], SAVED_SLOT),
            ([5, 7, 5], USER_SLOT),
        ] {
            assert_eq!(guard_of(users), slot, "{users:?}");
        }
    }

    #[test]
    fn a_capability_comes_from_the_same_id_or_from_above_all() {
        let slots = USER_SLOTS;
        assert_eq!(source([5, 6, 7], slots, None, 7), Some((slots[2], None)));
        assert_eq!(source([5, 0, 7], slots, Some(slots[1]), 9), Some((slots[1], Some(9))));
        assert_eq!(source([5, 0, 7], slots, Some(slots[1]), 0), Some((slots[1], None)));
        assert_eq!(source([5, 6, 7], slots, None, 9), None);
        // Group 0 is a group like others: it gives no other one.
        assert_eq!(source([5, 0, 7], GROUP_SLOTS, None, 9), None);
        for id in [0, 9] {
            let all = Some(ALL_GROUPS_SLOT);
            assert_eq!(source([5, 6, 7], GROUP_SLOTS, all, id), Some((ALL_GROUPS_SLOT, Some(id))));
        }
        assert_eq!(over_all([5, 0, 7], Kind::User), Some(slots[1]));
        assert_eq!(over_all([5, 7, 0], Kind::Group), Some(ALL_GROUPS_SLOT));
        assert_eq!(over_all([5, 6, 7], Kind::Group), None);
    }
}
