//! `enduser USER`: ends all programs of a user's, those that no process table shows, too.
//!
//! A static Linux program that links the thin library `xok`. User 0 goes on paying for it, so that
//! a user whose account is full is ended, too; it becomes the user only as far as that one's
//! programs, and no others, are what kill(2) reaches. Which of them are left is looked up in the
//! kernel's table of environments, where none can hide.
#![cfg_attr(target_os = "none", no_std)]
#![cfg_attr(target_os = "none", no_main)]
#![deny(unsafe_code)]

#[cfg(not(target_os = "none"))]
fn main() {}

#[cfg(target_os = "none")]
mod linux;
#[cfg(target_os = "none")]
mod users;

/// Nanoseconds between two rounds, and for all of them.
#[cfg(target_os = "none")]
const NAP_NS: u64 = 5_000_000;
/// See [`NAP_NS`].
#[cfg(target_os = "none")]
const PATIENCE_NS: u64 = 10_000_000_000;
/// Rounds one after the other in which none is left: one that is just being made is not there yet.
#[cfg(target_os = "none")]
const QUIET: u32 = 3;
/// The real user: no program is this one's, so that none may signal this program.
#[cfg(target_os = "none")]
const UNUSED: u32 = 0x7fff_fffe;
/// The status where no user is named, or more than one word is given.
#[cfg(target_os = "none")]
const USAGE: u8 = 2;

/// Ends the programs of the user that `argument` names; the status.
#[cfg(target_os = "none")]
fn run(argument: &[u8]) -> u8 {
    use xok::static_program;

    let name = core::str::from_utf8(argument).unwrap_or_default();
    if name.is_empty() {
        static_program::complain("usage: enduser USER\n");
        return USAGE;
    }
    if !linux::is_root() {
        return refuse(&["only user 0 ends others"]);
    }
    let user = match users::find(name) {
        None => return refuse(&[name, ": no such user"]),
        Some(0) => return refuse(&["user 0 is not ended"]),
        Some(user) => user,
    };
    if !linux::set_users([UNUSED, user, 0]) {
        return refuse(&["there are no other users here"]);
    }
    let began = xok::clock::now_ns();
    let mut quiet = 0;
    while quiet < QUIET {
        if xok::clock::now_ns() - began > PATIENCE_NS {
            return refuse(&["some are left"]);
        }
        linux::kill_all();
        quiet = if is_any_left() { 0 } else { quiet + 1 };
        static_program::sleep(NAP_NS);
    }
    static_program::write("ended\n");
    0
}

#[cfg(target_os = "none")]
fn refuse(why: &[&str]) -> u8 {
    let words = ["enduser: "].iter().chain(why).chain(&["\n"]);
    words.for_each(|word| xok::static_program::complain(word));
    1
}

/// Is there an environment that this program may signal, but for its own?
#[cfg(target_os = "none")]
fn is_any_left() -> bool {
    use abi::published::{EnvRecord, EnvState, Table};
    use xok::published;

    let count = published::table(Table::Envs).count as usize;
    let own = linux::own_id();
    (1..count).filter_map(|index| published::record(Table::Envs, index)).any(|one: EnvRecord| {
        let lives = one.id != 0 && one.id != own && one.state != EnvState::Dead as u32;
        lives && linux::may_signal(one.id)
    })
}
