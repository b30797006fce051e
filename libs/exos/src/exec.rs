//! `execve`: the next program in the space of this one, or in a domain of its own.
//!
//! A process that is alone in its space keeps it, and the library in it: only the program goes
//! (`replace`, docs/decisions/0020-exec-in-place.md). Where threads or a vfork parent are in there,
//! too, or the library has grown, a new domain gets a fresh library slot, and the environment moves
//! there; the program is loaded by the next life itself (`start`), in its own space. Whatever can
//! fail is looked at before either.

use crate::errno::{Answer, Errno, from_kernel};
use crate::fork;
use crate::fs::{self, Program};
use crate::layout::{IMAGE, LARGE_BLOCK_BYTES, PROGRAM, PROGRAM_END};
use crate::library;
use crate::process::{NextLife, Process};
use crate::start_block::{self, Command};
use crate::{
    group_list, groups, identity, lock, page, replace, set_id, start, thread, threads, user,
};
use alloc::string::String;
use alloc::vec::Vec;
use image::elf::{ElfError, Plan};
use linux_raw_sys::general as linux;
use xok::call::{self, OWN};
use xok::upcall::Slot;

/// Bytes of arguments and environment, pointers included: a quarter of what the stack may have,
/// but so many at least and at most (execve(2)).
const LISTS_MIN: u64 = 128 << 10;
/// The most.
const LISTS_MAX: u64 = 6 << 20;
/// Bytes of one of them, without its NUL (Linux's `MAX_ARG_STRLEN`).
const STRING_BYTES_MAX: usize = 32 * 4096 - 1;
/// Interpreters of interpreters followed.
const SCRIPTS_MAX: usize = 4;
/// Bytes of a script's first line looked at.
const LINE_MAX: usize = 255;

/// `execve(path, arguments, environment)`
pub fn execve(process: &mut Process, slot: &mut Slot, words: [u64; 6]) -> Answer {
    let [path, arguments, environment, ..] = words;
    execveat(process, slot, [linux::AT_FDCWD as u64, path, arguments, environment, 0, 0])
}

/// `execveat(directory, path, arguments, environment, flags)`
pub fn execveat(process: &mut Process, slot: &mut Slot, words: [u64; 6]) -> Answer {
    let [directory, path, arguments, environment, flags, _] = words;
    groups::follow(process);
    let named = user::read_path(path)?;
    let mut room = (process.limit(linux::RLIMIT_STACK) / 4).clamp(LISTS_MIN, LISTS_MAX);
    let mut arguments = read_list(arguments, &mut room)?;
    if arguments.is_empty() {
        // Programs that begin with their second argument must find the end of the list there.
        arguments.push(Vec::new());
    }
    let environment = read_list(environment, &mut room)?;
    // Flags are about the path given; interpreters are ordinary absolute paths.
    let mut flags = Some(flags as u32);
    let find = |path: &[u8]| match flags.take() {
        Some(flags) => process.files.program(directory as i32, path, flags),
        None => process.files.program(linux::AT_FDCWD, path, 0),
    };
    match resolve(find, named.to_vec(), arguments, environment) {
        Ok((command, plan)) => {
            drop(named);
            if let Some(file) = set_id::applies(process, &command, plan.is_none()) {
                return set_id::execute(process, command, file);
            }
            match plan.filter(|_| replace::is_possible(process, &command)) {
                Some(plan) => replace::begin(process, slot, &command, &plan),
                None => go(process, command),
            }
        }
        Err(errno) => {
            if errno == Errno::ENOENT {
                let program = process.files.program(directory as i32, &named, words[4] as u32);
                program.iter().for_each(|program| name_interpreter(process, program));
            }
            Err(errno)
        }
    }
}

/// Says on standard error what a dynamic program lacks: of `ENOENT` alone a shell makes "not
/// found", of a file that is plainly there.
fn name_interpreter(process: &mut Process, program: &Program) {
    let bytes = bytes_of(program);
    let Err(ElfError::NeedsInterpreter { offset, size }) = Plan::parse(bytes) else { return };
    let name = bytes.get(offset as usize..(offset + size) as usize).unwrap_or(&[]);
    let text = alloc::format!(
        "{}: dynamic, it needs {}, and only static programs run here so far\n",
        program.path,
        String::from_utf8_lossy(name),
    );
    fs::remark(process, text.into_bytes());
}

/// Reads a list of strings; `room` is what is left of the bytes that there may be.
fn read_list(address: u64, room: &mut u64) -> Result<Vec<Vec<u8>>, Errno> {
    let mut list = Vec::new();
    if address == 0 {
        return Ok(list);
    }
    loop {
        let at: u64 = user::read_value(address + 8 * list.len() as u64)?;
        if at == 0 {
            return Ok(list);
        }
        let text = user::read_string(at, STRING_BYTES_MAX)
            .map_err(|errno| if errno == Errno::ENAMETOOLONG { Errno::E2BIG } else { errno })?;
        *room = room.checked_sub(text.len() as u64 + 1 + 8).ok_or(Errno::E2BIG)?;
        list.push(text);
    }
}

/// The bytes of a program.
pub fn bytes_of(program: &Program) -> &[u8] {
    match program.image {
        Some((offset, size)) => start::image_bytes(IMAGE + offset, size),
        None => &program.bytes,
    }
}

/// Finds what is asked for, follows `#!` lines, and makes sure that what comes out can be loaded.
/// `find` answers what a path names, if it may be executed. How to load it comes along, unless it
/// is hidden from who asks.
pub fn resolve(
    mut find: impl FnMut(&[u8]) -> Result<Program, Errno>,
    asked: Vec<u8>,
    mut arguments: Vec<Vec<u8>>,
    environment: Vec<Vec<u8>>,
) -> Result<(Command, Option<Plan>), Errno> {
    let mut name = asked.clone();
    for _ in 0..SCRIPTS_MAX {
        let program = find(&name)?;
        let Some((interpreter, argument)) = script_line(bytes_of(&program)) else {
            let plan = match program.hidden {
                true => None,
                false => Some(check(bytes_of(&program))?),
            };
            let command = Command {
                image: program.image,
                bytes: program.bytes,
                origin: program.origin,
                handed_over: 0,
                path: program.path,
                asked,
                arguments,
                environment,
            };
            return Ok((command, plan));
        };
        let mut list = alloc::vec![interpreter.clone()];
        list.extend(argument);
        list.push(name);
        list.extend(arguments.into_iter().skip(1));
        arguments = list;
        name = interpreter;
    }
    Err(Errno::ELOOP)
}

/// The interpreter and its argument, if the file begins with `#!`.
fn script_line(bytes: &[u8]) -> Option<(Vec<u8>, Option<Vec<u8>>)> {
    let rest = bytes.strip_prefix(b"#!")?;
    let rest = rest.get(..LINE_MAX).unwrap_or(rest);
    let end = rest.iter().position(|&byte| byte == b'\n').unwrap_or(rest.len());
    let line = rest.get(..end)?.trim_ascii();
    let split = line.iter().position(u8::is_ascii_whitespace).unwrap_or(line.len());
    let (interpreter, argument) = line.split_at(split);
    let argument = argument.trim_ascii();
    if interpreter.is_empty() {
        return None;
    }
    Some((interpreter.to_vec(), (!argument.is_empty()).then(|| argument.to_vec())))
}

fn check(bytes: &[u8]) -> Result<Plan, Errno> {
    match Plan::parse(bytes) {
        Ok(plan) => Ok(plan),
        // A dynamic program without its loader is "not found" on Linux, too.
        Err(ElfError::NeedsInterpreter { .. }) => Err(Errno::ENOENT),
        Err(_) => Err(Errno::ENOEXEC),
    }
}

/// The page of the process in its next life.
pub fn fill_page(page: &mut page::ProcessPage, command: &Command) {
    let joined: Vec<u8> =
        command.arguments.iter().flat_map(|text| text.iter().copied().chain([0])).collect();
    page::fill_command(page, command.path.as_bytes(), &command.asked, &joined);
    page.executed = 1;
    page.environment = 0;
    page.environment_len = 0;
}

/// Goes on in a new domain. Not part of `execveat`: what is moved there takes pages of the stack
/// that the other way never touches.
#[inline(never)]
fn go(process: &mut Process, command: Command) -> Answer {
    let mut next = next_of(process);
    if next.files.has_sockets() {
        crate::net::hand_over::share(process)?;
        next.net.clone_from(&process.net);
    }
    next.closed &= !identity::is_open_after_exec(&next);
    // A vfork child that is one user alone by now does not take its parent's private name along.
    next.private = identity::stays_private(&next);
    let domain = fork::new_domain(&next, [next.users[1], next.groups[1]], None)?;
    // Attaching comes first: it moves offsets to where the block then says they are.
    let block = start_block::write(&next, thread::own().blocked, &command);
    let too_large = command.bytes.len() as u64 > PROGRAM_END - PROGRAM;
    if too_large || block.len() as u64 > LARGE_BLOCK_BYTES {
        let _ = call::domain_destroy(OWN, domain);
        return Err(Errno::E2BIG);
    }
    let mut page = *page::own();
    // What goes along has a region by now; the rest is closed.
    page.held = [0; page::HELD];
    fill_page(&mut page, &command);
    let built = library::build_fresh(domain, page::bytes_of(&page), &block)
        .and_then(|()| library::hand_over(domain, PROGRAM, &command.bytes));
    if let Err((error, _)) = built {
        let _ = call::domain_destroy(OWN, domain);
        return Err(from_kernel(error));
    }
    let (setup, fields) = library::fresh_setup(start::entry(), block.len());
    drop((command, block));
    leave(process, next, &NextLife { domain, setup, fields })
}

/// What `exec` leaves of a process.
pub fn next_of(process: &Process) -> Process {
    let mut next = process.clone();
    next.files.without_close_on_exec();
    next.signals.for_exec();
    // One thread is left, so what waits for it waits for the process.
    for &(signal, info) in thread::own().directed.list() {
        next.signals.pending.put(signal, info);
    }
    next
}

/// Leaves for a life that is ready. `next` is what was written of it; whatever else its maker had
/// on the heap it has given back, as that may be a vfork parent's, and nobody comes back here.
pub fn leave(process: &mut Process, mut next: Process, life: &NextLife) -> Answer {
    if process.borrows_space {
        // The lender's descriptions would otherwise stay open in here for ever.
        group_list::leave(process);
        process.files.detach();
        next.files.detach();
    } else if process.net.is_some() {
        // Connections do not come along: what was written to them is sent first.
        next.files.detach();
        crate::net::finish(process);
    }
    drop(next);
    threads::stop_others(process);
    threads::leave_futexes(thread::own());
    if !thread::own().is_first() {
        // The pid is the first thread's environment: that goes, and we end with the old life.
        process.orders.next_life = Some(*life);
        let _ = call::env_release(OWN, process.id);
        threads::order(process);
        threads::await_the_end(process);
    }
    Err(move_on(process, life))
}

/// Moves to the next life; comes back if the kernel refuses.
pub fn move_on(process: &mut Process, life: &NextLife) -> Errno {
    threads::stop_others(process);
    lock::leave_if_ours();
    let (error, _) = call::env_move(OWN, life.domain, life.fields, &life.setup);
    let _ = call::domain_destroy(OWN, life.domain);
    from_kernel(error)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_line_names_the_interpreter() {
        let line = |text: &[u8]| script_line(text);
        assert_eq!(line(b"#!/bin/sh\necho"), Some((b"/bin/sh".to_vec(), None)));
        let with = Some((b"/bin/awk".to_vec(), Some(b"-f x".to_vec())));
        assert_eq!(line(b"#! /bin/awk  -f x \n"), with);
        assert_eq!(line(b"#!\n"), None);
        assert_eq!(line(b"\x7fELF"), None);
        assert_eq!(line(b"#!/bin/sh"), Some((b"/bin/sh".to_vec(), None)));
    }
}
