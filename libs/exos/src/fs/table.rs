//! Linux calls about files: one row each.

#![allow(non_upper_case_globals)]

use linux_raw_sys::general::*;

use super::transfer::Memory;
use super::{
    control, epoll, event_counter, extended, locks, names, open, poll, signal_file, status,
    timer_file, transfers,
};
use crate::errno::{Answer, Errno};
use crate::process::Process;
use xok::upcall::Slot;

/// `read` and `write` of a process that does not watch descriptors by edges.
pub fn read_or_write(process: &mut Process, slot: &Slot, number: u32) -> Option<Answer> {
    if process.files.watches {
        return None;
    }
    let fd = slot.rdi as i32;
    let mut memory = match Memory::program(slot.rsi, slot.rdx) {
        Ok(memory) => memory,
        Err(errno) => return Some(Err(errno)),
    };
    match number {
        __NR_read => Some(transfers::read(process, fd, &mut memory)),
        __NR_write => Some(transfers::write(process, fd, &mut memory)),
        _ => None,
    }
}

/// Does the call `number`; `ENOSYS` for one that is not here, nor among those that are last.
pub fn call(process: &mut Process, number: u32, words: [u64; 6]) -> Answer {
    let answer = call_of_family(process, number, words);
    if process.files.watches {
        note_drained(process, number, words, answer);
    }
    answer
}

/// Notes calls that found nothing more to do, for those who watch by edges.
fn note_drained(process: &mut Process, number: u32, words: [u64; 6], answer: Answer) {
    let reads = match number {
        __NR_read | __NR_readv | __NR_recvfrom | __NR_recvmsg | __NR_accept | __NR_accept4 => true,
        __NR_write | __NR_writev | __NR_sendto | __NR_sendmsg | __NR_sendfile | __NR_connect => {
            false
        }
        _ => return,
    };
    let counted = matches!(number, __NR_read | __NR_recvfrom | __NR_write | __NR_sendto);
    let drained = match answer {
        Ok(count) => counted && count < words[2],
        Err(errno) => matches!(errno, Errno::EAGAIN | Errno::EINPROGRESS),
    };
    if drained && let Ok(description) = process.files.get(words[0] as i32) {
        description.note_drained(reads);
        process.look_again();
    }
}

fn call_of_family(process: &mut Process, number: u32, words: [u64; 6]) -> Answer {
    transfer(process, number, words)
        .or_else(|| name(process, number, words))
        .or_else(|| state(process, number, words))
        .or_else(|| crate::unix_sockets::calls::call(process, number, words))
        .or_else(|| crate::net::calls::call(process, number, words))
        .or_else(|| crate::others::call(process, number, words))
        .or_else(|| extended::call(process, number, words))
        .unwrap_or(Err(Errno::ENOSYS))
}

/// Reading, writing, waiting.
fn transfer(process: &mut Process, number: u32, words: [u64; 6]) -> Option<Answer> {
    let [a, b, c, d, ..] = words;
    let fd = a as i32;
    let piece = || Memory::program(b, c);
    let pieces = || Memory::vector(b, c);
    Some(match number {
        __NR_read => piece().and_then(|mut memory| transfers::read(process, fd, &mut memory)),
        __NR_write => piece().and_then(|mut memory| transfers::write(process, fd, &mut memory)),
        __NR_readv => pieces().and_then(|mut memory| transfers::read(process, fd, &mut memory)),
        __NR_writev => pieces().and_then(|mut memory| transfers::write(process, fd, &mut memory)),
        __NR_pread64 => piece().and_then(|memory| transfers::read_at(process, fd, memory, d)),
        __NR_pwrite64 => piece().and_then(|memory| transfers::write_at(process, fd, memory, d)),
        __NR_preadv => pieces().and_then(|memory| transfers::read_at(process, fd, memory, d)),
        __NR_pwritev => pieces().and_then(|memory| transfers::write_at(process, fd, memory, d)),
        __NR_lseek => transfers::lseek(process, fd, b as i64, c as u32),
        __NR_sendfile => transfers::sendfile(process, fd, b as i32, c, d),
        __NR_splice => transfers::splice(process, fd, c as i32),
        __NR_getdents64 => transfers::getdents64(process, fd, b, c),
        __NR_poll => poll::poll(process, a, b, c as i32),
        __NR_ppoll => poll::ppoll(process, words),
        __NR_select => poll::select(process, words, false),
        __NR_pselect6 => poll::select(process, words, true),
        __NR_eventfd => event_counter::make(process, a, 0),
        __NR_eventfd2 => event_counter::make(process, a, b as u32),
        __NR_timerfd_create => timer_file::create(process, a, b as u32),
        __NR_timerfd_settime => timer_file::set(process, fd, b as u32, c, d),
        __NR_timerfd_gettime => timer_file::get(process, fd, b),
        __NR_signalfd => signal_file::signalfd(process, fd, b, c, 0),
        __NR_signalfd4 => signal_file::signalfd(process, fd, b, c, d as u32),
        __NR_epoll_create if a as i32 <= 0 => Err(Errno::EINVAL),
        __NR_epoll_create => epoll::create(process, 0),
        __NR_epoll_create1 => epoll::create(process, a as u32),
        __NR_epoll_ctl => epoll::control(process, fd, b as u32, c as i32, d),
        __NR_epoll_wait => epoll::wait_milliseconds(process, [a, b, c, d, 0, 0]),
        __NR_epoll_pwait => epoll::wait_milliseconds(process, words),
        __NR_epoll_pwait2 => epoll::wait_timespec(process, words),
        _ => return None,
    })
}

/// Names.
fn name(process: &mut Process, number: u32, words: [u64; 6]) -> Option<Answer> {
    let [a, b, c, d, e, _] = words;
    let here = AT_FDCWD;
    let directory = a as i32;
    let make = O_CREAT | O_WRONLY | O_TRUNC;
    Some(match number {
        __NR_open => open::openat(process, here, a, b as u32, c as u32),
        __NR_openat => open::openat(process, directory, b, c as u32, d as u32),
        __NR_creat => open::openat(process, here, a, make, b as u32),
        __NR_mknod => open::mknodat(process, here, a, b as u32),
        __NR_mknodat => open::mknodat(process, directory, b, c as u32),
        __NR_mkdir => names::mkdirat(process, here, a, b as u32),
        __NR_mkdirat => names::mkdirat(process, directory, b, c as u32),
        __NR_rmdir => names::unlinkat(process, here, a, AT_REMOVEDIR),
        __NR_unlink => names::unlinkat(process, here, a, 0),
        __NR_unlinkat => names::unlinkat(process, directory, b, c as u32),
        __NR_rename => names::renameat2(process, (here, a), (here, b), 0),
        __NR_renameat => names::renameat2(process, (directory, b), (c as i32, d), 0),
        __NR_renameat2 => names::renameat2(process, (directory, b), (c as i32, d), e as u32),
        __NR_link => names::linkat(process, (here, a), (here, b), 0),
        __NR_linkat => names::linkat(process, (directory, b), (c as i32, d), e as u32),
        __NR_symlink => names::symlinkat(process, a, here, b),
        __NR_symlinkat => names::symlinkat(process, a, b as i32, c),
        __NR_readlink => names::readlinkat(process, here, a, (b, c)),
        __NR_readlinkat => names::readlinkat(process, directory, b, (c, d)),
        __NR_chdir => names::chdir(process, a),
        __NR_fchdir => names::fchdir(process, directory),
        __NR_chroot => names::chroot(process, a),
        __NR_getcwd => names::getcwd(process, a, b),
        __NR_access => status::faccessat(process, here, a, b as u32, 0),
        __NR_faccessat => status::faccessat(process, directory, b, c as u32, 0),
        __NR_faccessat2 => status::faccessat(process, directory, b, c as u32, d as u32),
        __NR_stat => status::fstatat(process, here, a, b, 0),
        __NR_lstat => status::fstatat(process, here, a, b, AT_SYMLINK_NOFOLLOW),
        __NR_newfstatat => status::fstatat(process, directory, b, c, d as u32),
        __NR_statx => status::statx(process, words),
        __NR_statfs => status::statfs(process, a, b),
        __NR_chmod => status::fchmodat(process, here, a, b as u32),
        __NR_fchmodat => status::fchmodat(process, directory, b, c as u32),
        __NR_chown => status::fchownat(process, [here as u64, a, b, c, 0, 0]),
        __NR_lchown => {
            let flags = u64::from(AT_SYMLINK_NOFOLLOW);
            status::fchownat(process, [here as u64, a, b, c, flags, 0])
        }
        __NR_fchownat => status::fchownat(process, words),
        __NR_utimensat => status::utimensat(process, directory, b, c, d as u32),
        __NR_utime => status::utime(process, a, b),
        __NR_utimes => status::utimes(process, a, b),
        __NR_truncate => status::truncate(process, a, b),
        _ => return None,
    })
}

/// Descriptors, and what concerns all files.
fn state(process: &mut Process, number: u32, words: [u64; 6]) -> Option<Answer> {
    let [a, b, c, ..] = words;
    let fd = a as i32;
    Some(match number {
        __NR_close => control::close(process, fd),
        __NR_close_range => control::close_range(process, a, b, c),
        __NR_dup => control::dup(process, fd),
        __NR_dup2 => control::dup2(process, fd, b as i32),
        __NR_dup3 => control::dup3(process, fd, b as i32, c as u32),
        __NR_fcntl => control::fcntl(process, fd, b as u32, c),
        __NR_flock => locks::flock(process, fd, b as u32),
        __NR_ioctl => control::ioctl(process, fd, b as u32, c),
        __NR_pipe => open::pipe2(process, a, 0),
        __NR_pipe2 => open::pipe2(process, a, b as u32),
        __NR_fstat => status::fstat(process, fd, b),
        __NR_fstatfs => status::fstatfs(process, fd, b),
        __NR_fchmod => status::fchmod(process, fd, b as u32),
        __NR_fchown => status::fchown(process, fd, b as u32, c as u32),
        __NR_ftruncate => status::ftruncate(process, fd, b),
        __NR_fallocate => status::fallocate(process, words),
        __NR_umask => {
            let old = core::mem::replace(&mut process.files.umask, a as u32 & 0o777);
            crate::page::own().umask = process.files.umask;
            Ok(u64::from(old))
        }
        // Nothing is kept anywhere but in memory, so it is as safe as it will ever be.
        __NR_sync => Ok(0),
        __NR_fsync | __NR_fdatasync | __NR_syncfs => process.files.get(fd).map(|_| 0),
        // Advice.
        __NR_fadvise64 | __NR_readahead => process.files.get(fd).map(|_| 0),
        __NR_mount => status::mount(process, b, words[3]),
        __NR_umount2 | __NR_pivot_root => Err(Errno::EPERM),
        _ => return None,
    })
}
