//! `capget`, `capset` and what `prctl` tells of capabilities(7).
//!
//! They follow from the users (`unix::privileges`). None can be dropped alone, and nobody is told
//! that it was: a change is EPERM.

use crate::errno::{Answer, Errno};
use crate::process::Process;
use crate::{identity, others, user};
use linux_raw_sys::prctl;
use unix::privileges::{ALL, COUNT, Sets};

/// The versions of the header (linux/capability.h): one word a set, and two of two.
const ONE_WORD: u32 = 0x1998_0330;
const TWO_WORDS: [u32; 2] = [0x2007_1026, 0x2008_0522];

/// How many words a set has, and whose are meant. An unknown version is answered with the newest.
fn header(address: u64) -> Result<Option<(usize, i32)>, Errno> {
    let [version, pid]: [u32; 2] = user::read_value(address)?;
    match version {
        ONE_WORD => Ok(Some((1, pid as i32))),
        _ if TWO_WORDS.contains(&version) => Ok(Some((2, pid as i32))),
        _ => user::write_value(address, &TWO_WORDS[1]).map(|()| None),
    }
}

fn own(process: &Process) -> Sets {
    Sets::of(process.users, identity::for_files(process)[0])
}

/// Effective, permitted, inheritable, of word `at`.
fn words(sets: &Sets, at: usize) -> [u32; 3] {
    [sets.effective, sets.permitted, 0].map(|set| (set >> (32 * at)) as u32)
}

/// `capget(header, data)`
pub fn get(process: &Process, head: u64, data: u64) -> Answer {
    let Some((count, pid)) = header(head)? else {
        return if data == 0 { Ok(0) } else { Err(Errno::EINVAL) };
    };
    if pid < 0 {
        return Err(Errno::EINVAL);
    }
    let sets = match others::other(process, pid as u32)? {
        None => own(process),
        Some(page) => Sets::of([page.user, page.effective_user, page.saved_user], page.file_user),
    };
    if data != 0 {
        for at in 0..count {
            user::write_value(data + 12 * at as u64, &words(&sets, at))?;
        }
    }
    Ok(0)
}

/// `capset(header, data)`: what they are already can be asked for.
pub fn set(process: &Process, head: u64, data: u64) -> Answer {
    let Some((count, pid)) = header(head)? else { return Err(Errno::EINVAL) };
    if pid != 0 && pid as u32 != process.id.0 {
        return Err(Errno::EPERM);
    }
    for at in 0..2 {
        let asked: [u32; 3] = match at < count {
            true => user::read_value(data + 12 * at as u64)?,
            false => [0; 3],
        };
        // Numbers that no capability has are nobody's.
        let asked = asked.map(|set| set & (ALL >> (32 * at)) as u32);
        if asked != words(&own(process), at) {
            return Err(Errno::EPERM);
        }
    }
    Ok(0)
}

/// What `prctl` is asked about them, if it is.
pub fn control([option, first, second, ..]: [u64; 6]) -> Option<Answer> {
    let known = |number: u64| number < u64::from(COUNT);
    Some(match option as u32 {
        prctl::PR_CAPBSET_READ if known(first) => Ok(1),
        prctl::PR_CAPBSET_READ => Err(Errno::EINVAL),
        prctl::PR_CAPBSET_DROP => Err(Errno::EPERM),
        prctl::PR_CAP_AMBIENT => match first as u32 {
            prctl::PR_CAP_AMBIENT_CLEAR_ALL if second == 0 => Ok(0),
            prctl::PR_CAP_AMBIENT_IS_SET | prctl::PR_CAP_AMBIENT_LOWER if known(second) => Ok(0),
            prctl::PR_CAP_AMBIENT_RAISE if known(second) => Err(Errno::EPERM),
            _ => Err(Errno::EINVAL),
        },
        _ => return None,
    })
}
