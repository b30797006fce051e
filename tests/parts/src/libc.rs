//! The few functions of the C library that Rust's own has not.
//!
//! # Safety
//! Declares them as their manual pages have it. Memory that they hand out is fresh; what is loaded
//! and stored by address is memory that the tests mapped.
#![allow(unsafe_code)]

use std::ffi::{CString, c_char, c_int, c_void};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

/// `POLLIN`
pub const POLLIN: i16 = 1;

#[repr(C)]
struct PollFd {
    fd: c_int,
    events: i16,
    found: i16,
}

unsafe extern "C" {
    fn mmap(at: *mut c_void, len: usize, prot: c_int, flags: c_int, fd: c_int, at: i64) -> usize;
    fn fork() -> c_int;
    fn waitpid(pid: c_int, status: *mut c_int, options: c_int) -> c_int;
    fn kill(pid: c_int, signal: c_int) -> c_int;
    fn setgroups(count: usize, list: *const u32) -> c_int;
    fn setgid(group: u32) -> c_int;
    fn setuid(user: u32) -> c_int;
    fn sigaction(number: c_int, action: *const Action, old: *mut Action) -> c_int;
    fn close_range(first: u32, last: u32, flags: c_int) -> c_int;
    fn getauxval(kind: u64) -> u64;
    fn mkfifo(path: *const std::ffi::c_char, mode: u32) -> c_int;
    fn setegid(group: u32) -> c_int;
    fn seteuid(user: u32) -> c_int;
    fn dup2(old: c_int, new: c_int) -> c_int;
    fn getresuid(real: *mut u32, effective: *mut u32, saved: *mut u32) -> c_int;
    fn setrlimit(resource: c_int, limit: *const u64) -> c_int;
    fn sigprocmask(how: c_int, set: *const [u64; 16], old: *mut [u64; 16]) -> c_int;
    fn setitimer(which: c_int, new: *const u64, old: *mut u64) -> c_int;
    fn execve(path: *const c_char, list: *const *const c_char, env: *const *const c_char) -> c_int;
    #[link_name = "close"]
    fn close_call(fd: c_int) -> c_int;
    fn poll(fds: *mut PollFd, count: u64, milliseconds: c_int) -> c_int;
    fn fdopen(fd: c_int, mode: *const c_char) -> *mut c_void;
    fn fgets(line: *mut c_char, bytes: c_int, stream: *mut c_void) -> *mut c_char;
    fn fclose(stream: *mut c_void) -> c_int;
    fn signal(number: c_int, handler: usize) -> usize;
    fn _exit(status: c_int) -> !;
    fn pipe(ends: *mut c_int) -> c_int;
    fn eventfd(count: u32, flags: c_int) -> c_int;
    fn timerfd_create(clock: c_int, flags: c_int) -> c_int;
    fn dup(fd: c_int) -> c_int;
    fn socketpair(family: c_int, kind: c_int, protocol: c_int, ends: *mut c_int) -> c_int;
    #[link_name = "read"]
    fn read_call(fd: c_int, into: *mut c_void, len: usize) -> isize;
    #[link_name = "write"]
    fn write_call(fd: c_int, from: *const c_void, len: usize) -> isize;
    fn fcntl(fd: c_int, command: c_int, argument: c_int) -> c_int;
    fn getsockopt(fd: c_int, level: c_int, name: c_int, to: *mut c_void, len: *mut u32) -> c_int;
    fn setsid() -> c_int;
    fn setpgid(pid: c_int, group: c_int) -> c_int;
    fn getpgrp() -> c_int;
    fn sigtimedwait(set: *const [u64; 16], told: *mut [u32; 32], limit: *const i64) -> c_int;
    fn ioctl(fd: c_int, request: u64, argument: *mut c_void) -> c_int;
    fn __errno_location() -> *mut c_int;
}

/// dup(2): another descriptor, which outlives an `exec`.
pub fn duplicate(fd: i32) -> i32 {
    // SAFETY: touches no memory.
    unsafe { dup(fd) }
}

/// Memory of so many pages, shared with children (mmap(2)).
pub fn shared(pages: usize) -> u64 {
    // SAFETY: fresh memory.
    unsafe { mmap(std::ptr::null_mut(), pages * 4096, 3, 0x21, -1, 0) as u64 }
}

/// Memory of so many pages, which is there as it is written.
pub fn private(pages: usize) -> u64 {
    // SAFETY: fresh memory.
    unsafe { mmap(std::ptr::null_mut(), pages * 4096, 3, 0x22, -1, 0) as u64 }
}

/// Addresses of so many pages that nothing is behind.
pub fn reserved(pages: usize) -> u64 {
    // SAFETY: fresh addresses.
    unsafe { mmap(std::ptr::null_mut(), pages * 4096, 0, 0x22, -1, 0) as u64 }
}

/// Words of [`shared`] memory.
pub fn words(address: u64, count: usize) -> &'static [AtomicU64] {
    // SAFETY: it was mapped for this, and never goes.
    unsafe { std::slice::from_raw_parts(address as *const AtomicU64, count) }
}

/// Half a word of the page in which the process tells others of itself: its library writes there,
/// and whatever else is in the process may.
pub fn own_page_word(offset: usize) -> &'static std::sync::atomic::AtomicU32 {
    // `exos::layout`: the first thread's area, and the page in it.
    let page = abi::layout::LIBRARY + 0x0806_0000 + 0x1000;
    // SAFETY: mapped as long as the process is.
    unsafe { &*((page as usize + offset) as *const std::sync::atomic::AtomicU32) }
}

/// Bytes of memory that is mapped, or will be when it is touched.
pub fn bytes(address: u64, count: usize) -> &'static mut [u8] {
    // SAFETY: each test has its own.
    unsafe { std::slice::from_raw_parts_mut(address as *mut u8, count) }
}

/// Runs `child` in a child, which ends with its answer; the child.
pub fn spawn(child: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the tests fork while they have one thread.
    match unsafe { fork() } {
        // SAFETY: ends.
        0 => unsafe { _exit(child()) },
        pid => pid,
    }
}

/// The same, if there is room for one more process.
pub fn try_spawn(child: impl FnOnce() -> i32) -> Option<i32> {
    Some(spawn(child)).filter(|&pid| pid > 0)
}

/// The wait status of a child that has ended, or will.
pub fn wait(pid: i32) -> i32 {
    let mut status = -1;
    // SAFETY: a place for the status.
    unsafe { waitpid(pid, &mut status, 0) };
    status
}

/// The same; it is continued until it has ended, should it stop.
pub fn wait_for_end(pid: i32) -> i32 {
    const NOT_YET: c_int = 1;
    let mut status = -1;
    // SAFETY: a place for the status.
    while unsafe { waitpid(pid, &mut status, NOT_YET) } == 0 {
        // A stop that comes together with SIGCONT may be the later one.
        send(pid, 18);
        std::thread::sleep(std::time::Duration::from_millis(2));
    }
    status
}

/// The owner of a descriptor.
pub fn descriptor(fd: i32) -> OwnedFd {
    // SAFETY: just made, or not closed by this owner.
    unsafe { OwnedFd::from_raw_fd(fd) }
}

/// kill(2)
pub fn send(pid: i32, number: i32) {
    // SAFETY: touches no memory.
    unsafe { kill(pid, number) };
}

/// signal(2): `handler` runs for it.
pub fn handle(number: i32, handler: extern "C" fn(i32)) {
    // SAFETY: a function of the right kind.
    unsafe { signal(number, handler as usize) };
}

/// signal(2): what happens for it is what happens in a fresh process.
pub fn default_action(number: i32) {
    // SAFETY: `SIG_DFL`.
    unsafe { signal(number, 0) };
}

/// poll(2) of one descriptor: what was found.
pub fn wait_for(fd: i32, events: i16, milliseconds: i32) -> i16 {
    let mut one = PollFd { fd, events, found: 0 };
    // SAFETY: one descriptor, as is said.
    unsafe { poll(&mut one, 1, milliseconds) };
    one.found
}

/// The lines of a descriptor, as C's streams read them; closes it.
pub fn lines(fd: i32) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = [0_u8; 64];
    // SAFETY: the stream is open until it is closed; the line has the room that is said.
    unsafe {
        let stream = fdopen(fd, c"r".as_ptr());
        while !fgets(line.as_mut_ptr().cast(), line.len() as c_int, stream).is_null() {
            let end = line.iter().position(|&byte| byte == 0).unwrap_or(0);
            lines.push(String::from_utf8_lossy(&line[..end]).trim_end().to_string());
        }
        fclose(stream);
    }
    lines
}

/// read(2), with a pattern in a vector register that Linux keeps: how many bytes, was it kept?
pub fn read_keeping(fd: i32, into: &mut [u8]) -> (i64, bool) {
    let pattern: u64 = 0x5a5a_1234_8765_a5a5;
    let (answer, after): (i64, u64);
    // SAFETY: a buffer with the length that is said; registers are named.
    unsafe {
        std::arch::asm!(
            "movq xmm9, {pattern}",
            "syscall",
            "movq {after}, xmm9",
            pattern = in(reg) pattern,
            after = out(reg) after,
            inlateout("rax") 0_i64 => answer,
            in("rdi") i64::from(fd), in("rsi") into.as_mut_ptr(), in("rdx") into.len(),
            out("rcx") _, out("r11") _, out("xmm9") _,
        );
    }
    (answer, after == pattern)
}

/// Puts something else into that register, as any function may.
pub fn spoil_register() {
    // SAFETY: a register that functions need not keep.
    unsafe { std::arch::asm!("pxor xmm9, xmm9", out("xmm9") _) };
}

/// A function's view of the bytes that a transfer names.
pub fn transferred(at: *mut u8, len: usize) -> &'static mut [u8] {
    // SAFETY: ExOS calls the program's functions with what the program's read or write has named.
    unsafe { std::slice::from_raw_parts_mut(at, len) }
}

/// What two ends are made by.
#[derive(Clone, Copy)]
pub enum Pair {
    /// pipe(2), the reader first
    Pipe = 0,
    /// socketpair(2) of `SOCK_STREAM`
    Stream = 1,
    /// of `SOCK_DGRAM`
    Datagrams = 2,
    /// of `SOCK_SEQPACKET`
    Packets = 5,
    /// eventfd(2), both ends the same
    Counter = 100,
    /// timerfd_create(2), both ends the same
    Timer = 101,
}

/// Two ends.
pub fn pair(kind: Pair) -> Option<(OwnedFd, OwnedFd)> {
    let mut ends = [-1; 2];
    // SAFETY: a place for two numbers; what is made is nobody else's.
    unsafe {
        let answer = match kind {
            Pair::Pipe => pipe(ends.as_mut_ptr()),
            Pair::Counter => twice(&mut ends, eventfd(0, 0)),
            Pair::Timer => twice(&mut ends, timerfd_create(1, 0)),
            _ => socketpair(1, kind as c_int, 0, ends.as_mut_ptr()),
        };
        (answer == 0).then(|| (OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}

/// A descriptor and another of the same; as pipe(2) answers.
fn twice(ends: &mut [c_int; 2], fd: c_int) -> c_int {
    // SAFETY: touches no memory.
    *ends = [fd, unsafe { dup(fd) }];
    ends.iter().copied().min().unwrap_or(-1).min(0)
}

/// read(2); an error is negative.
pub fn read(fd: i32, into: &mut [u8]) -> i64 {
    // SAFETY: a buffer with the length that is said.
    or_error(unsafe { read_call(fd, into.as_mut_ptr().cast(), into.len()) })
}

/// write(2); an error is negative.
pub fn write(fd: i32, from: &[u8]) -> i64 {
    // SAFETY: a buffer with the length that is said.
    or_error(unsafe { write_call(fd, from.as_ptr().cast(), from.len()) })
}

/// Do calls wait for the descriptor's data and room (`O_NONBLOCK`)?
pub fn set_waits(fd: i32, waits: bool) {
    const SET_FLAGS: c_int = 4;
    const NONBLOCK: c_int = 0o4000;
    // SAFETY: touches no memory.
    unsafe { fcntl(fd, SET_FLAGS, if waits { 0 } else { NONBLOCK }) };
}

fn or_error(answer: isize) -> i64 {
    // SAFETY: errno(3), this thread's own.
    if answer < 0 { -i64::from(unsafe { *__errno_location() }) } else { answer as i64 }
}

/// Is that an error after which one tries again (EINTR, EAGAIN), or a message of no bytes?
pub fn is_passing(answer: i64) -> bool {
    [-4, -11].contains(&answer)
}

/// A handler that does nothing.
pub extern "C" fn nothing(_: i32) {}

/// Makes a kernel call through the door, by the capability in a slot.
pub fn kernel_by(
    door: door::Door,
    call: abi::call::Call,
    slot: u8,
) -> Result<u64, (abi::error::Error, u64)> {
    // SAFETY: the calls made by it are to be refused; what they name is others'.
    unsafe { door.make(call, slot) }
}

/// The same, without further groups.
pub fn become_user(user: u32) -> bool {
    become_user_of(user, &[])
}

/// setegid(2), seteuid(2): the former user can be taken back.
pub fn act_for(user: u32) -> bool {
    // SAFETY: they touch no memory.
    unsafe { setegid(user) == 0 && seteuid(user) == 0 }
}

/// seteuid(2) alone: the groups stay.
pub fn act_by(user: u32) -> bool {
    // SAFETY: it touches no memory.
    unsafe { seteuid(user) == 0 }
}

/// Makes a kernel call through the door.
pub fn kernel(door: door::Door, call: abi::call::Call) -> Result<u64, (abi::error::Error, u64)> {
    // SAFETY: the tests allocate pages where they have reserved addresses, and else change nothing.
    unsafe { door.make(call, 0) }
}

/// The address of the door's stub, for [`raw_call`].
pub fn door_address() -> Option<u64> {
    // SAFETY: touches no memory.
    let address = unsafe { getauxval(door::AUXILIARY) };
    (address != 0).then_some(address)
}

/// A kernel call of any words; its error and its number. A transfer leaves nothing in the registers
/// as it was, but what is kept on the stack here.
pub fn raw_call(door: u64, words: [u64; 7]) -> (u64, u64) {
    let (error, value): (u64, u64);
    // SAFETY: who makes such calls is a process of its own, that may break by them: then it ends.
    unsafe {
        std::arch::asm!(
            "push rbx", "push rbp", "call r11", "pop rbp", "pop rbx",
            in("r11") door,
            inlateout("rax") words[0] => error,
            inlateout("rdi") words[1] => _, inlateout("rsi") words[2] => _,
            inlateout("rdx") words[3] => value,
            inlateout("r10") words[4] => _, inlateout("r8") words[5] => _,
            inlateout("r9") words[6] => _,
            lateout("r12") _, lateout("r13") _, lateout("r14") _, lateout("r15") _,
            clobber_abi("C"),
        );
    }
    (error, value)
}

/// Has a kernel call whose words lead to no memory go on behind it, as if it had been refused.
pub fn skip_faults() {
    const SEGV: c_int = 11;
    const BUS: c_int = 7;
    /// `SA_SIGINFO | SA_NODEFER`
    const FLAGS: c_int = 0x4000_0004;
    let action = Action { function: skip, mask: [0; 16], flags: FLAGS, restorer: 0 };
    for number in [SEGV, BUS] {
        // SAFETY: a structure as sigaction(2) has it, and a function of the right kind.
        unsafe { sigaction(number, &action, std::ptr::null_mut()) };
    }
}

/// sigaction(2)'s structure in the C library.
#[repr(C)]
struct Action {
    function: extern "C" fn(c_int, *const c_void, *mut u64),
    mask: [u64; 16],
    flags: c_int,
    restorer: usize,
}

/// Steps over the `syscall` instruction that met the fault; with any other instruction it ends.
extern "C" fn skip(_: c_int, _: *const c_void, context: *mut u64) {
    const RAX: usize = 18;
    const RIP: usize = 21;
    const SYSCALL: [u8; 2] = [0x0f, 0x05];
    // SAFETY: the kernel's `ucontext`, whose registers follow 40 bytes; rip is where code is.
    unsafe {
        let rip = *context.add(RIP) as *const [u8; 2];
        if rip.read_unaligned() != SYSCALL {
            _exit(3);
        }
        *context.add(RIP) += 2;
        *context.add(RAX) = u64::MAX;
    }
}

/// Closes all descriptors (close_range(2)).
pub fn silence() {
    // SAFETY: nobody uses them in this process any more.
    unsafe { close_range(0, u32::MAX, 0) };
}

/// Has a child not ended yet? One that has is waited for by this.
pub fn is_alive(pid: i32) -> bool {
    const NOHANG: c_int = 1;
    let mut status = 0;
    // SAFETY: a place for the status.
    unsafe { waitpid(pid, &mut status, NOHANG) == 0 }
}

/// setgroups(2), setgid(2), setuid(2): nothing is left of another user.
pub fn become_user_of(user: u32, groups: &[u32]) -> bool {
    // SAFETY: a list with the length that is said.
    unsafe {
        setgroups(groups.len(), groups.as_ptr()) == 0 && setgid(user) == 0 && setuid(user) == 0
    }
}

/// The same, with another group than its own.
pub fn become_user_in(user: u32, group: u32) -> bool {
    // SAFETY: an empty list; the others touch no memory.
    unsafe { setgroups(0, std::ptr::null()) == 0 && setgid(group) == 0 && setuid(user) == 0 }
}

/// Asks a server of the system's.
pub fn transfer(
    door: door::Door,
    server: abi::id::EnvId,
    words: [u64; 6],
) -> Result<[u64; 6], (abi::error::Error, u64)> {
    // SAFETY: those of the boot image keep the registers (`xok::server`).
    unsafe { door.transfer(server, words) }
}

/// getresuid(2)
pub fn users() -> [u32; 3] {
    let [mut real, mut effective, mut saved] = [0; 3];
    // SAFETY: places for three numbers.
    unsafe { getresuid(&mut real, &mut effective, &mut saved) };
    [real, effective, saved]
}

/// Does a process without rights become user 0, or a member of its group?
pub fn try_root() -> bool {
    // SAFETY: they touch no memory.
    unsafe { setuid(0) == 0 || seteuid(0) == 0 || setgid(0) == 0 }
}

/// chmod(2)
pub fn set_mode(path: &str, mode: u32) {
    use std::os::unix::fs::PermissionsExt;
    // What could not be set is seen by what depends on it.
    let _ = std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode));
}

/// mkfifo(3)
pub fn make_pipe(path: &str) -> bool {
    let Ok(path) = std::ffi::CString::new(path) else { return false };
    // SAFETY: the path ends with a zero.
    unsafe { mkfifo(path.as_ptr(), 0o600) == 0 }
}

/// dup2(2): what is written to the standard output goes there.
pub fn set_output(to: &OwnedFd) -> bool {
    // SAFETY: both are open; whoever owned the old one writes to the new one.
    unsafe { dup2(to.as_raw_fd(), 1) == 1 }
}

/// close(2)
pub fn close(fd: i32) {
    // SAFETY: nobody owns it: the process is about to execute another program.
    unsafe { close_call(fd) };
}

/// Limits, masks, ignored signals and a timer as `choice` has them; the timer in microseconds.
pub fn hostile_state(choice: u64, microseconds: u64) {
    const SIGNALS: [c_int; 6] = [1, 2, 10, 12, 15, 17];
    let limit = [choice >> 8 & 15, choice >> 8 & 15];
    let stack = [(choice >> 12 & 0xff) << 12, u64::MAX];
    let timer = [0, 0, 0, microseconds];
    let blocked = choice >> 20;
    // SAFETY: the structures are as the calls have them: pairs of words, a set of a word.
    unsafe {
        for (at, number) in SIGNALS.into_iter().enumerate() {
            if choice >> (40 + at) & 1 != 0 {
                signal(number, 1);
            }
        }
        if choice & 1 != 0 {
            setrlimit(7, limit.as_ptr());
        }
        if choice & 2 != 0 {
            setrlimit(3, stack.as_ptr());
        }
        if choice & 4 != 0 {
            sigprocmask(2, &[blocked; 16], std::ptr::null_mut());
        }
        if choice & 8 != 0 {
            setitimer(0, timer.as_ptr(), std::ptr::null_mut());
        }
    }
}

/// execve(2); comes back if it was refused.
pub fn execute(path: &str, arguments: &[String], environment: &[String]) {
    let owned = |list: &[String]| -> Vec<CString> {
        list.iter().filter_map(|text| CString::new(text.as_bytes()).ok()).collect()
    };
    let pointers = |list: &[CString]| -> Vec<*const c_char> {
        list.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
    };
    let (path, arguments, environment) =
        (owned(&[path.into()]), owned(arguments), owned(environment));
    let Some(path) = path.first() else { return };
    let (arguments, environment) = (pointers(&arguments), pointers(&environment));
    // SAFETY: lists that end with a null pointer, of strings that end with a NUL.
    unsafe { execve(path.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
}

/// One step of a word that only the tests use.
pub fn count(word: &AtomicU64) -> u64 {
    word.fetch_add(1, Ordering::Relaxed)
}

/// Pid, user and group at the other end of a local socket (`SO_PEERCRED`).
pub fn peer_of(fd: i32) -> Option<[u32; 3]> {
    let mut told = [0; 3];
    let mut len = 12;
    // SAFETY: `told` has room for that.
    let answer = unsafe { getsockopt(fd, 1, 17, (&raw mut told).cast(), &raw mut len) };
    (answer == 0 && len == 12).then_some(told)
}

/// setsid(2): a session of one's own, without a terminal.
pub fn lead_session() -> bool {
    // SAFETY: no memory.
    unsafe { setsid() >= 0 }
}

/// What the child that executes a command does before.
pub fn before_exec(
    command: &mut std::process::Command,
    act: impl FnMut() -> std::io::Result<()> + Send + Sync + 'static,
) {
    use std::os::unix::process::CommandExt;
    // SAFETY: the callers' acts store a word; they take no lock and allocate nothing.
    unsafe { command.pre_exec(act) };
}

/// setpgid(2)
pub fn set_group(pid: i32, group: i32) -> bool {
    // SAFETY: no memory.
    unsafe { setpgid(pid, group) == 0 }
}

/// getpgrp(2)
pub fn group() -> i32 {
    // SAFETY: no memory.
    unsafe { getpgrp() }
}

/// ioctl(2) of an integer: what is left there, if it was done.
pub fn control(fd: i32, request: u64, value: i32) -> Option<i32> {
    let mut value = value;
    // SAFETY: the callers' requests read or write one integer.
    let done = unsafe { ioctl(fd, request, (&raw mut value).cast()) } >= 0;
    done.then_some(value)
}

/// `TIOCSWINSZ`: so many lines.
pub fn set_rows(fd: i32, rows: u16) -> bool {
    let mut size = [rows, 80, 0, 0];
    // SAFETY: reads the size.
    unsafe { ioctl(fd, 0x5414, size.as_mut_ptr().cast()) == 0 }
}

/// sigprocmask(2): this signal waits until it is asked for.
pub fn block(number: i32) {
    let set = only(number);
    // SAFETY: reads the set.
    unsafe { sigprocmask(0, &raw const set, std::ptr::null_mut()) };
}

/// sigtimedwait(2), of one that is blocked: pid and user of its sender, or `None` after 20 s.
pub fn await_signal(number: i32) -> Option<[u32; 2]> {
    let (set, limit, mut told) = (only(number), [20_i64, 0], [0; 32]);
    // SAFETY: reads the set and the limit, and writes a `siginfo`, which has 128 bytes.
    let got = unsafe { sigtimedwait(&raw const set, &raw mut told, limit.as_ptr()) };
    (got == number).then_some([told[4], told[5]])
}

fn only(number: i32) -> [u64; 16] {
    let mut set = [0; 16];
    set[0] = 1 << (number - 1);
    set
}
