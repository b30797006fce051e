//! Users and groups of a process. Root may become anybody; nobody gets more by asking.

use crate::errno::{Answer, Errno};
use crate::page;
use crate::process::Process;
use crate::user;

/// "Leave it as it is" in `setresuid` and its kin.
const KEEP: u32 = u32::MAX;

fn publish(process: &Process) {
    let page = page::own();
    page.user = process.users[0];
    page.effective_user = process.users[1];
    page.group_id = process.groups[0];
    page.effective_group_id = process.groups[1];
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

/// `setresuid`, `setresgid`
pub fn set_all(process: &mut Process, kind: Kind, wanted: [u64; 3]) -> Answer {
    let privileged = process.users[1] == 0;
    let place = ids(process, kind);
    *place = changed(*place, wanted.map(|id| id as u32), privileged)?;
    publish(process);
    Ok(0)
}

/// `setuid`, `setgid`
pub fn set(process: &mut Process, kind: Kind, id: u64) -> Answer {
    let wanted =
        if process.users[1] == 0 { [id; 3] } else { [u64::from(KEEP), id, u64::from(KEEP)] };
    set_all(process, kind, wanted)
}

/// `setreuid`, `setregid`
pub fn set_two(process: &mut Process, kind: Kind, real: u64, effective: u64) -> Answer {
    let saved = if real as u32 != KEEP { effective } else { u64::from(KEEP) };
    set_all(process, kind, [real, effective, saved])
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
    fn only_root_becomes_somebody_else() {
        assert_eq!(changed([0; 3], [5, 5, 5], true), Ok([5; 3]));
        assert_eq!(changed([5, 0, 5], [KEEP, 5, KEEP], false), Ok([5, 5, 5]));
        assert_eq!(changed([5; 3], [0, KEEP, KEEP], false), Err(Errno::EPERM));
    }
}
