//! One row for each Linux call: its number, and who does it. Those about files: `fs::table`.

#![allow(non_upper_case_globals)]

use crate::errno::{Answer, Errno};
use crate::identity::{self, Kind};
use crate::memory::calls as memory;
use crate::process::Process;
use crate::signal::{calls as signals, deliver, send};
use crate::{
    children, exec, exit, fork, fs, futex, group_list, groups, machine, page, parts, posix_timers,
    privileges, thread, threads, time,
};
use linux_raw_sys::general::*;
use xok::upcall::Slot;

/// The six argument registers: rdi, rsi, rdx, r10, r8, r9.
pub type Words = [u64; 6];

/// Does the call `number` for `process`, whose registers are in `slot`.
pub fn call(process: &mut Process, slot: &mut Slot, number: u64) -> Answer {
    // What programs do most has the shortest way.
    if number <= u64::from(__NR_write)
        && let Some(answer) = fs::table::read_or_write(process, slot, number as u32)
    {
        return answer;
    }
    // So has the way back from a handler, which has no arguments.
    if number == u64::from(__NR_rt_sigreturn) {
        return Ok(deliver::sigreturn(process, slot));
    }
    let words = [slot.rdi, slot.rsi, slot.rdx, slot.r10, slot.r8, slot.r9];
    let Ok(known) = u32::try_from(number) else { return Err(Errno::ENOSYS) };
    // No number of Linux's is as high: none of its calls is to ask for these first.
    if number >= door::number::FILE
        && let Some(answer) = parts::call(process, number, words)
    {
        return answer;
    }
    let answer = with_context(process, slot, known, words)
        .or_else(|| of_memory_and_time(process, known, words))
        .or_else(|| of_process(process, known, words))
        .unwrap_or_else(|| fs::table::call(process, known, words));
    if matches!(known, __NR_brk | __NR_mmap | __NR_munmap | __NR_mremap) {
        page::own().virtual_bytes = crate::memory::space().areas.bytes();
    }
    if answer == Err(Errno::ENOSYS) {
        page::count_unsupported(number);
    }
    answer
}

/// Calls that look at or change the program's registers.
fn with_context(
    process: &mut Process,
    slot: &mut Slot,
    number: u32,
    words: Words,
) -> Option<Answer> {
    let [first, second, third, ..] = words;
    Some(match number {
        __NR_clone => fork::clone(process, slot, words),
        __NR_clone3 => fork::clone3(process, slot, first, second),
        __NR_fork => fork::clone(process, slot, [u64::from(SIGCHLD), 0, 0, 0, 0, 0]),
        __NR_vfork => {
            let flags = u64::from(CLONE_VM | CLONE_VFORK | SIGCHLD);
            fork::clone(process, slot, [flags, 0, 0, 0, 0, 0])
        }
        __NR_execve => exec::execve(process, slot, words),
        __NR_execveat => exec::execveat(process, slot, words),
        __NR_exit => threads::exit(process, first),
        __NR_exit_group => exit::exit_group(process, first),
        __NR_rt_sigaction => signals::action(process, first, second, third, words[3]),
        __NR_rt_sigprocmask => signals::mask(first, second, third, words[3]),
        __NR_rt_sigpending => signals::pending(process, first, second),
        __NR_rt_sigsuspend => signals::suspend(process, first, second),
        __NR_rt_sigtimedwait => signals::timed_wait(process, words),
        __NR_sigaltstack => signals::alternate(first, second, slot.rsp),
        __NR_pause => signals::pause(process),
        __NR_kill => send::kill(process, first, second),
        __NR_tkill => send::thread_kill(process, first, second),
        __NR_tgkill => send::thread_group_kill(process, first, second, third),
        __NR_rt_sigqueueinfo => send::queue(process, first, second, third),
        __NR_rt_tgsigqueueinfo => send::queue(process, second, third, words[3]),
        _ => return None,
    })
}

/// Memory and time.
fn of_memory_and_time(process: &mut Process, number: u32, words: Words) -> Option<Answer> {
    let [first, second, third, ..] = words;
    Some(match number {
        __NR_brk => memory::brk(first),
        __NR_mmap => memory::mmap(process, words),
        __NR_munmap => memory::munmap(first, second),
        __NR_mprotect => memory::mprotect(first, second, third),
        __NR_mremap => memory::mremap(words),
        __NR_madvise => memory::madvise(first, second, third),
        __NR_mincore => memory::mincore(first, second, third),
        __NR_msync | __NR_mlock | __NR_munlock | __NR_mlockall | __NR_munlockall => Ok(0),
        __NR_clock_gettime => time::gettime(process, first, second),
        __NR_clock_getres => time::getres(process, first, second),
        __NR_clock_nanosleep => time::clock_nanosleep(process, words),
        __NR_nanosleep => time::nanosleep(process, first, second),
        __NR_gettimeofday => time::gettimeofday(first, second),
        __NR_time => time::time(first),
        __NR_times => time::times(process, first),
        __NR_alarm => time::alarm(process, first),
        __NR_setitimer => time::setitimer(process, first, second, third),
        __NR_getitimer => time::getitimer(process, first, second),
        __NR_timer_create => posix_timers::create(process, first, second, third),
        __NR_timer_settime => posix_timers::set(process, first, second as u32, third, words[3]),
        __NR_timer_gettime => posix_timers::get(process, first, second),
        __NR_timer_getoverrun => posix_timers::overrun(process, first),
        __NR_timer_delete => posix_timers::delete(process, first),
        __NR_getrusage => time::getrusage(process, first, second),
        __NR_futex => futex::futex(process, words),
        __NR_uname => machine::uname(first),
        __NR_sysinfo => machine::sysinfo(first),
        __NR_getrandom => machine::getrandom(first, second, third),
        __NR_getcpu => machine::getcpu(first, second),
        __NR_reboot => machine::reboot(process, words),
        __NR_sched_yield => parts::give_way(process),
        _ => return None,
    })
}

/// Who the process is, its family, its limits.
fn of_process(process: &mut Process, number: u32, words: Words) -> Option<Answer> {
    let [first, second, third, ..] = words;
    Some(match number {
        __NR_getpid => Ok(u64::from(process.id.0)),
        __NR_gettid => Ok(u64::from(thread::own().id.0)),
        __NR_getppid => Ok(u64::from(children::parent(process))),
        __NR_wait4 => children::wait4(process, first, second, third, words[3]),
        __NR_waitid => children::waitid(process, words),
        __NR_setpgid => groups::setpgid(process, first, second),
        __NR_getpgid => groups::getpgid(process, first),
        __NR_getpgrp => groups::getpgid(process, 0),
        __NR_getsid => groups::getsid(process, first),
        __NR_setsid => groups::setsid(process),
        __NR_getuid => Ok(u64::from(process.users[0])),
        __NR_geteuid => Ok(u64::from(process.users[1])),
        __NR_getgid => Ok(u64::from(process.groups[0])),
        __NR_getegid => Ok(u64::from(process.groups[1])),
        __NR_setuid => identity::set(process, Kind::User, first),
        __NR_setgid => identity::set(process, Kind::Group, first),
        __NR_setreuid => identity::set_two(process, Kind::User, first, second),
        __NR_setregid => identity::set_two(process, Kind::Group, first, second),
        __NR_setresuid => identity::set_all(process, Kind::User, [first, second, third]),
        __NR_setresgid => identity::set_all(process, Kind::Group, [first, second, third]),
        __NR_getresuid => identity::get_all(process, Kind::User, [first, second, third]),
        __NR_getresgid => identity::get_all(process, Kind::Group, [first, second, third]),
        __NR_getgroups => group_list::get(process, first, second),
        __NR_setgroups => group_list::set(process, first, second),
        __NR_setfsuid => identity::set_for_files(process, Kind::User, first),
        __NR_setfsgid => identity::set_for_files(process, Kind::Group, first),
        __NR_arch_prctl => machine::arch_prctl(first, second),
        __NR_prctl => machine::prctl(words),
        __NR_personality => Ok(0),
        __NR_set_tid_address => {
            thread::own().clear_tid = first;
            Ok(u64::from(thread::own().id.0))
        }
        __NR_set_robust_list if second != futex::HEAD_BYTES => Err(Errno::EINVAL),
        __NR_set_robust_list => {
            thread::own().robust = first;
            Ok(0)
        }
        __NR_get_robust_list => futex::robust_list(process, first, second, third),
        __NR_capget => privileges::get(process, first, second),
        __NR_capset => privileges::set(process, first, second),
        _ => return None,
    })
}
