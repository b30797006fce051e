//! What a program asks of the machine: names, amounts, randomness, the end.
//!
//! # Safety
//! Holds the `cpuid` instruction, which touches four registers.
#![allow(unsafe_code)]

use crate::capabilities::POWER_SLOT;
use crate::errno::{Answer, Errno, from_kernel};
use crate::others;
use crate::page::{self, ProcessPage};
use crate::privileges;
use crate::process::Process;
use crate::thread;
use crate::user;
use linux_raw_sys::general as linux;
use xok::{call, clock, published};

/// Bytes of each field of `utsname`.
const NAME_BYTES: usize = 65;

/// `uname(into)`
pub fn uname(into: u64) -> Answer {
    let fields: [&[u8]; 6] = [
        b"Linux",
        b"xok",
        b"6.1.0-xok",
        concat!("#1 Xok/ExOS ", env!("CARGO_PKG_VERSION")).as_bytes(),
        b"x86_64",
        b"(none)",
    ];
    let mut bytes = [0; 6 * NAME_BYTES];
    for (place, field) in bytes.chunks_mut(NAME_BYTES).zip(fields) {
        place[..field.len()].copy_from_slice(field);
    }
    user::write_bytes(into, &bytes)?;
    Ok(0)
}

/// `sysinfo(into)`
pub fn sysinfo(into: u64) -> Answer {
    let directory = published::directory();
    let mut words = [0_u64; 14];
    words[0] = clock::now_ns() / crate::time::SECOND;
    words[4] = directory.frames_usable * 4096;
    words[5] = directory.frames_free * 4096;
    let processes = crate::said::all().filter(|brief| !brief.dead).count() as u64;
    words[10] = processes;
    // mem_unit, after totalhigh and freehigh.
    words[13] = 1;
    user::write_value(into, &words)?;
    Ok(0)
}

/// A word nobody can guess, as far as the machine has any.
pub fn random_word() -> u64 {
    match call::entropy() {
        Ok(word) => word,
        Err(_) => {
            // No source: said at boot. The counter is at least different each time.
            let mut word = clock::tsc() ^ clock::now_ns().rotate_left(32);
            word = (word ^ word >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            word = (word ^ word >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            word ^ word >> 31
        }
    }
}

/// `getrandom(into, len, flags)`
pub fn getrandom(into: u64, len: u64, flags: u64) -> Answer {
    if flags & !7 != 0 {
        return Err(Errno::EINVAL);
    }
    let len = len.min(1 << 25);
    let mut done = 0;
    while done < len {
        let word = random_word().to_le_bytes();
        let part = (len - done).min(8) as usize;
        user::write_bytes(into + done, word.get(..part).unwrap_or(&word))?;
        done += part as u64;
    }
    Ok(len)
}

/// `AT_HWCAP`: CPUID 1, EDX.
pub fn hardware_capabilities() -> u64 {
    u64::from(core::arch::x86_64::__cpuid(1).edx)
}

/// `reboot(magic, magic2, command)`
pub fn reboot(process: &Process, words: [u64; 6]) -> Answer {
    const MAGIC: u64 = 0xfee1_dead;
    const MAGICS: [u64; 4] = [672_274_793, 85_072_278, 369_367_448, 537_993_216];
    const RESTART: u64 = 0x0123_4567;
    const HALT: u64 = 0xcdef_0123;
    const POWER_OFF: u64 = 0x4321_fedc;
    let [magic, magic2, command, ..] = words.map(|word| word & 0xffff_ffff);
    if process.users[1] != 0 {
        return Err(Errno::EPERM);
    }
    if magic != MAGIC || !MAGICS.contains(&magic2) {
        return Err(Errno::EINVAL);
    }
    let how = match command {
        RESTART => 1,
        HALT | POWER_OFF => 0,
        // Ctrl-Alt-Del on or off: there is none.
        0 | 0x89ab_cdef => return Ok(0),
        _ => return Err(Errno::EINVAL),
    };
    end(how)
}

/// Nanoseconds that the terminal is given to show what was written last.
const SHOW_NS: u64 = 20_000_000;

/// Ends the machine: 0 power off, 1 reset.
pub fn end(how: u16) -> Answer {
    // A deadline is an answer, too.
    let _ = call::sleep(clock::now_ns() + SHOW_NS, 0, 0, 0);
    call::machine_end(POWER_SLOT, how, 0).map_err(|(error, _)| from_kernel(error))
}

/// `sched_getaffinity(pid, size, mask)`
pub fn affinity(size: u64, mask: u64) -> Answer {
    if size < 8 {
        return Err(Errno::EINVAL);
    }
    user::write_value(mask, &processors())?;
    Ok(8)
}

/// The machine's processors, a bit each.
pub fn processors() -> u64 {
    let cpus = u64::from(published::directory().cpus);
    if cpus >= 64 { u64::MAX } else { (1 << cpus) - 1 }
}

/// `getcpu(cpu, node)`: of the thread that asks.
pub fn getcpu(cpu: u64, node: u64) -> Answer {
    let number = published::env(thread::own().id).map_or(0, |record| record.cpu);
    if cpu != 0 {
        user::write_value(cpu, &number)?;
    }
    if node != 0 {
        user::write_value(node, &0_u32)?;
    }
    Ok(0)
}

/// Shows the process's limits in its page: others may read them (proc(5)).
pub fn show_limits(process: &Process) {
    page::own().limits = process.limits.0.map(|(soft, hard)| [soft, hard]);
}

/// May the process ask for the limits of another one (prlimit(2))? That is the superuser, and who
/// is by all ids what the process is by its real ones.
fn may_ask(process: &Process, page: &ProcessPage) -> bool {
    let (user, group) = (process.users[0], process.groups[0]);
    let users = [page.user, page.effective_user, page.saved_user];
    let groups = [page.group_id, page.effective_group_id, page.saved_group_id];
    process.users[1] == 0 || users == [user; 3] && groups == [group; 3]
}

/// Descriptors that a process may allow itself, the superuser's too (proc(5), `nr_open`).
const DESCRIPTORS_MOST: u64 = 1 << 20;

/// `prlimit64(pid, resource, new, old)`; a process sets its own limits alone.
pub fn prlimit(process: &mut Process, words: [u64; 6]) -> Answer {
    let [pid, resource, new, old, ..] = words;
    let root = process.users[1] == 0;
    let wanted: Option<[u64; 2]> = if new == 0 { None } else { Some(user::read_value(new)?) };
    if let Some(page) = others::other(process, pid as u32)? {
        if !may_ask(process, &page) {
            return Err(Errno::EPERM);
        }
        let limit = page.limits.get(resource as usize).ok_or(Errno::EINVAL)?;
        if wanted.is_some() {
            return Err(Errno::EPERM);
        }
        if old != 0 {
            user::write_value(old, limit)?;
        }
        return Ok(0);
    }
    let limit = process.limits.0.get_mut(resource as usize).ok_or(Errno::EINVAL)?;
    let before = *limit;
    if let Some([soft, hard]) = wanted {
        if soft > hard {
            return Err(Errno::EINVAL);
        }
        let descriptors = resource == u64::from(linux::RLIMIT_NOFILE);
        if hard > before.1 && !root || descriptors && hard > DESCRIPTORS_MOST {
            return Err(Errno::EPERM);
        }
        *limit = (soft, hard);
        show_limits(process);
    }
    if old != 0 {
        user::write_value(old, &[before.0, before.1])?;
    }
    Ok(0)
}

/// `arch_prctl`'s code for reading FS base (asm/prctl.h).
const ARCH_GET_FS: u32 = 0x1003;

/// `arch_prctl(code, address)`
pub fn arch_prctl(code: u64, address: u64) -> Answer {
    match code as u32 {
        linux::ARCH_SET_FS => {
            if address >= abi::layout::PROGRAM_END {
                return Err(Errno::EPERM);
            }
            set_fs_base(address)?;
            Ok(0)
        }
        ARCH_GET_FS => {
            let base = if crate::thread::has_fsgsbase() {
                crate::thread::fs_base()
            } else {
                crate::thread::own().fs_base
            };
            user::write_value(address, &base)?;
            Ok(0)
        }
        // GS is ExOS's own (decisions 5); CET is not offered.
        _ => Err(Errno::EINVAL),
    }
}

/// Sets the FS base of the running thread.
pub fn set_fs_base(base: u64) -> Result<(), Errno> {
    crate::thread::own().fs_base = base;
    if crate::thread::has_fsgsbase() {
        crate::thread::set_fs_base(base);
        return Ok(());
    }
    let setup = abi::setup::EnvSetup { fs_base: base, ..abi::setup::EnvSetup::default() };
    let fields = abi::setup::field::FS_BASE;
    call::env_set(call::OWN, abi::id::EnvId::NONE, fields, &setup)
        .map(|_| ())
        .map_err(|(error, _)| from_kernel(error))
}

/// `prctl(option, …)`
pub fn prctl(words: [u64; 6]) -> Answer {
    let [option, address, ..] = words;
    match option as u32 {
        linux_raw_sys::prctl::PR_SET_NAME => {
            let mut name = [0; 16];
            // At most 15 bytes count; the string may end before the end of its page.
            for (at, place) in name.iter_mut().enumerate().take(15) {
                *place = user::read_value(address + at as u64)?;
                if *place == 0 {
                    break;
                }
            }
            let len = name.iter().position(|&byte| byte == 0).unwrap_or(15);
            crate::page::set_name(&name[..len]);
            Ok(0)
        }
        linux_raw_sys::prctl::PR_GET_NAME => {
            user::write_bytes(address, &crate::page::own().name)?;
            Ok(0)
        }
        linux_raw_sys::prctl::PR_SET_PDEATHSIG => Ok(0),
        linux_raw_sys::prctl::PR_SET_KEEPCAPS if address > 1 => Err(Errno::EINVAL),
        linux_raw_sys::prctl::PR_SET_KEEPCAPS => {
            thread::process().keeps_capabilities = address != 0;
            Ok(0)
        }
        linux_raw_sys::prctl::PR_GET_KEEPCAPS => {
            Ok(u64::from(thread::process().keeps_capabilities))
        }
        // What cannot be had is off: no signal at the parent's end, no filter of calls, no bits of
        // capabilities, no taking over of orphans, no clock but the usual.
        linux_raw_sys::prctl::PR_GET_NO_NEW_PRIVS if words[1..5] != [0; 4] => Err(Errno::EINVAL),
        linux_raw_sys::prctl::PR_GET_NO_NEW_PRIVS
        | linux_raw_sys::prctl::PR_GET_SECCOMP
        | linux_raw_sys::prctl::PR_GET_SECUREBITS
        | linux_raw_sys::prctl::PR_GET_TIMING => Ok(0),
        linux_raw_sys::prctl::PR_GET_PDEATHSIG | linux_raw_sys::prctl::PR_GET_CHILD_SUBREAPER => {
            user::write_value(address, &0_u32).map(|()| 0)
        }
        // `rdtsc` is everybody's.
        linux_raw_sys::prctl::PR_GET_TSC => {
            user::write_value(address, &linux_raw_sys::prctl::PR_TSC_ENABLE).map(|()| 0)
        }
        linux_raw_sys::prctl::PR_SET_DUMPABLE if address > 1 => Err(Errno::EINVAL),
        linux_raw_sys::prctl::PR_SET_DUMPABLE => {
            crate::identity::set_undumpable(thread::process(), address == 0);
            Ok(0)
        }
        linux_raw_sys::prctl::PR_GET_DUMPABLE => Ok(u64::from(!thread::process().undumpable)),
        _ => privileges::control(words).unwrap_or(Err(Errno::EINVAL)),
    }
}
