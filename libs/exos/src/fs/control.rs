//! Descriptors themselves: `dup`, `close`, `fcntl`, `ioctl`.

use alloc::rc::Rc;
use linux_raw_sys::general as raw;
use linux_raw_sys::ioctl;

use super::open_file::OpenFile;
use super::terminal::Tty;
use super::terminal_control;
use crate::errno::{Answer, Errno};
use crate::process::Process;
use crate::user;

/// `dup(fd)`
pub fn dup(process: &mut Process, fd: i32) -> Answer {
    duplicate(process, fd, 0, false)
}

fn duplicate(process: &mut Process, fd: i32, least: u64, close_on_exec: bool) -> Answer {
    let description = process.files.any(fd)?;
    let limit = process.limit(raw::RLIMIT_NOFILE);
    if least >= limit {
        return Err(Errno::EINVAL);
    }
    process.files.enter(description, close_on_exec, least as usize, limit)
}

/// `dup2(fd, to)`
pub fn dup2(process: &mut Process, fd: i32, to: i32) -> Answer {
    if fd == to {
        process.files.any(fd)?;
        return Ok(to as u64);
    }
    dup3(process, fd, to, 0)
}

/// `dup3(fd, to, flags)`
pub fn dup3(process: &mut Process, fd: i32, to: i32, flags: u32) -> Answer {
    if flags & !raw::O_CLOEXEC != 0 || fd == to {
        return Err(Errno::EINVAL);
    }
    let description = process.files.any(fd)?;
    let limit = process.limit(raw::RLIMIT_NOFILE);
    let at = u64::try_from(to).ok().filter(|&at| at < limit).ok_or(Errno::EBADF)?;
    process.files.put(at as usize, description, flags & raw::O_CLOEXEC != 0);
    Ok(at)
}

/// `close(fd)`
pub fn close(process: &mut Process, fd: i32) -> Answer {
    let description = process.files.close(fd)?;
    match &description.file {
        OpenFile::Own(file) if Rc::strong_count(&description) == 1 => file.close(),
        _ => Ok(0),
    }
}

/// `close_range(first, last, flags)`
pub fn close_range(process: &mut Process, first: u64, last: u64, flags: u64) -> Answer {
    const CLOSE_ON_EXEC: u64 = 4;
    if first > last || flags & !CLOSE_ON_EXEC != 0 {
        return Err(Errno::EINVAL);
    }
    let within = |fd: &u32| (first..=last).contains(&u64::from(*fd));
    let numbers: alloc::vec::Vec<u32> = process.files.open_numbers().filter(within).collect();
    for fd in numbers {
        if flags & CLOSE_ON_EXEC != 0 {
            process.files.set_close_on_exec(fd as i32, true)?;
        } else {
            process.files.close(fd as i32)?;
        }
    }
    Ok(0)
}

/// That a file was read is hidden by its owner alone (`O_NOATIME`).
fn check_hiding(process: &Process, file: &OpenFile) -> Result<(), Errno> {
    let (owner, who) = (file.attributes(&process.files)?.uid, process.files.who().uid);
    if who == 0 || who == owner { Ok(()) } else { Err(Errno::EPERM) }
}

/// `fcntl(fd, command, argument)`
pub fn fcntl(process: &mut Process, fd: i32, command: u32, argument: u64) -> Answer {
    let description = match command {
        raw::F_DUPFD | raw::F_DUPFD_CLOEXEC | raw::F_GETFD | raw::F_SETFD | raw::F_GETFL => {
            process.files.any(fd)?
        }
        _ => process.files.get(fd)?,
    };
    match command {
        raw::F_DUPFD => duplicate(process, fd, argument, false),
        raw::F_DUPFD_CLOEXEC => duplicate(process, fd, argument, true),
        raw::F_GETFD => process.files.closes_on_exec(fd).map(u64::from),
        raw::F_SETFD => {
            let close = argument & u64::from(raw::FD_CLOEXEC) != 0;
            process.files.set_close_on_exec(fd, close).map(|()| 0)
        }
        raw::F_GETFL => description.flags().map(u64::from),
        raw::F_SETFL => {
            let fresh = argument as u32 & !description.flags()?;
            if fresh & raw::O_NOATIME != 0 {
                check_hiding(process, &description.file)?;
            }
            description.set_flags(argument as u32).map(|()| 0)
        }
        raw::F_GETLK | raw::F_SETLK | raw::F_SETLKW => {
            super::locks::fcntl(process, fd, command, argument)
        }
        raw::F_GETPIPE_SZ | raw::F_SETPIPE_SZ => match &description.file {
            OpenFile::Pipe(pipe) if command == raw::F_SETPIPE_SZ => pipe.set_capacity(argument),
            OpenFile::Pipe(pipe) => Ok(pipe.level()?.capacity),
            _ => Err(Errno::EBADF),
        },
        _ => Err(Errno::EINVAL),
    }
}

/// `ioctl(fd, request, argument)`
pub fn ioctl(process: &mut Process, fd: i32, request: u32, argument: u64) -> Answer {
    let description = process.files.get(fd)?;
    match request {
        ioctl::FIOCLEX => process.files.set_close_on_exec(fd, true).map(|()| 0),
        ioctl::FIONCLEX => process.files.set_close_on_exec(fd, false).map(|()| 0),
        ioctl::FIONBIO => {
            let on: u32 = user::read_value(argument)?;
            let flags = description.flags()?;
            let bit = raw::O_NONBLOCK;
            let flags = if on != 0 { flags | bit } else { flags & !bit };
            description.set_flags(flags).map(|()| 0)
        }
        _ => match &description.file {
            OpenFile::Terminal(tty) => {
                terminal_control::control_call(process, tty, request, argument)
            }
            OpenFile::Master(master) => master.control(process, request, argument),
            OpenFile::Pipe(pipe) if request == ioctl::FIONREAD => {
                user::write_value(argument, &(pipe.waiting()? as u32))?;
                Ok(0)
            }
            OpenFile::Socket(socket) if request == ioctl::FIONREAD => {
                crate::net::tend(process);
                user::write_value(argument, &socket.waiting()?)?;
                Ok(0)
            }
            OpenFile::UnixSocket(socket) if request == ioctl::FIONREAD => {
                user::write_value(argument, &socket.waiting()?)?;
                Ok(0)
            }
            OpenFile::Stream(0) if request == ioctl::FIONREAD => {
                user::write_value(argument, &(Tty::console()?.readable()? as u32))?;
                Ok(0)
            }
            OpenFile::Node(_) | OpenFile::Text(..) if request == ioctl::FIONREAD => {
                let size = description.file.attributes(&process.files)?.size;
                let left = size.saturating_sub(description.offset()?).min(i32::MAX as u64);
                user::write_value(argument, &(left as u32))?;
                Ok(0)
            }
            _ => Err(Errno::ENOTTY),
        },
    }
}
