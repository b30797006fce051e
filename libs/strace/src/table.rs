//! The one table: a row for each call, with the kinds of its arguments and of its answer.

use linux_raw_sys::general::*;

use crate::kind::Kind::{
    self, By, Choice, Directory, Flags, Hex, In, Int, Late, Long, Mode, Out, Path, Pointer,
    Received, Sent, Size,
};
use crate::text::Text;
use crate::{Call, files, memory, names, processes, signals, sockets, state, times, waiting};

/// A call.
pub struct Row {
    /// Its number.
    pub number: u32,
    /// Its name.
    pub name: &'static str,
    /// Its arguments.
    pub arguments: &'static [Kind],
    /// What it answers.
    pub answer: Answer,
}

/// How an answer is shown.
#[derive(Clone, Copy)]
pub enum Answer {
    /// A number with a sign.
    Int,
    /// An address, or bits.
    Hex,
    /// A file's mode.
    Octal,
    /// It does not come back.
    Never,
    /// Something more is said of it.
    By(fn(&mut Text, &Call<'_>, u64)),
}

impl Answer {
    /// Shows `value`.
    pub fn show(self, text: &mut Text, call: &Call<'_>, value: u64) {
        match self {
            Self::Int => text.put(format_args!("{}", value as i64)),
            Self::Hex => text.put(format_args!("{value:#x}")),
            Self::Octal => files::mode(text, value as u32),
            Self::Never => text.push("?"),
            Self::By(show) => show(text, call, value),
        }
    }
}

/// The row of the call with this number.
pub fn row(number: u64) -> Option<&'static Row> {
    TABLE.iter().find(|row| u64::from(row.number) == number)
}

macro_rules! calls {
    ($($number:ident($($kind:expr),* $(,)?) $(-> $answer:expr)?;)*) => {
        /// Every call that is known by name.
        pub const TABLE: &[Row] = &[$(Row {
            number: $number,
            // Without its `__NR_`.
            name: stringify!($number).split_at(5).1,
            arguments: &[$($kind),*],
            answer: calls!(@ $($answer)?),
        }),*];
    };
    (@ $answer:expr) => { $answer };
    (@) => { Answer::Int };
}

const AT: Kind = Flags(names::AT);
const OPEN: Kind = In(files::open_flags);
const STAT: Kind = Out(files::stat);
const SIGNAL: Kind = In(signals::signal);
const SET: Kind = In(signals::set);
const SET_FILLED: Kind = Out(signals::set);
const CLOCK: Kind = Choice(names::CLOCK);
const TIME: Kind = In(times::spec);
const TIME_FILLED: Kind = Out(times::spec);
const ID_FILLED: Kind = Out(processes::id);
const USAGE: Kind = Out(processes::usage);
const RLIMIT: Kind = Choice(names::RLIMIT);
const ADDRESS: Kind = In(sockets::address);
const ADDRESS_FILLED: Kind = Out(sockets::address_filled);
const LENGTH_FILLED: Kind = Out(sockets::length_filled);

calls! {
    // Reading, writing, waiting.
    __NR_read(Int, Received, Size);
    __NR_write(Int, Sent, Size);
    __NR_readv(Int, Out(files::pieces_received), Int);
    __NR_writev(Int, In(files::pieces_sent), Int);
    __NR_pread64(Int, Received, Size, Long);
    __NR_pwrite64(Int, Sent, Size, Long);
    __NR_preadv(Int, Out(files::pieces_received), Int, Long);
    __NR_pwritev(Int, In(files::pieces_sent), Int, Long);
    __NR_lseek(Int, Long, Choice(names::SEEK));
    __NR_sendfile(Int, Int, In(files::position), Size);
    __NR_splice(Int, In(files::position), Int, In(files::position), Size, Hex);
    __NR_getdents64(Int, Out(files::entries), Size);
    __NR_poll(In(waiting::polled), Int, Int) -> Answer::By(waiting::poll_answer);
    __NR_ppoll(In(waiting::polled), Int, waiting::LIMIT, SET, Size)
        -> Answer::By(waiting::poll_answer);
    __NR_select(Int, In(waiting::set), In(waiting::set), In(waiting::set), In(times::value))
        -> Answer::By(waiting::select_answer);
    __NR_pselect6(Int, In(waiting::set), In(waiting::set), In(waiting::set), waiting::LIMIT,
        In(waiting::mask_and_size)) -> Answer::By(waiting::select_answer);
    __NR_eventfd(Int);
    __NR_eventfd2(Int, Flags(names::EVENTFD));
    __NR_signalfd(Int, SET, Size);
    __NR_signalfd4(Int, SET, Size, Flags(names::SIGNALFD));
    __NR_timerfd_create(CLOCK, Flags(names::TIMERFD));
    __NR_timerfd_settime(Int, Flags(names::TIMERFD_SET), In(times::timer_spec),
        Out(times::timer_spec));
    __NR_timerfd_gettime(Int, Out(times::timer_spec));
    __NR_epoll_create(Int);
    __NR_epoll_create1(Flags(names::EPOLL_MAKE));
    __NR_epoll_ctl(Int, Choice(names::EPOLL_CTL), Int, In(waiting::event));
    __NR_epoll_wait(Int, Out(waiting::events), Int, Int);
    __NR_epoll_pwait(Int, Out(waiting::events), Int, Int, SET, Size);
    __NR_epoll_pwait2(Int, Out(waiting::events), Int, TIME, SET, Size);

    // Names.
    __NR_open(Path, OPEN, By(files::made_mode));
    __NR_openat(Directory, Path, OPEN, By(files::made_mode_at));
    __NR_creat(Path, Mode);
    __NR_mknod(Path, In(files::node_mode), Hex);
    __NR_mknodat(Directory, Path, In(files::node_mode), Hex);
    __NR_mkdir(Path, Mode);
    __NR_mkdirat(Directory, Path, Mode);
    __NR_rmdir(Path);
    __NR_unlink(Path);
    __NR_unlinkat(Directory, Path, AT);
    __NR_rename(Path, Path);
    __NR_renameat(Directory, Path, Directory, Path);
    __NR_renameat2(Directory, Path, Directory, Path, Flags(names::RENAME));
    __NR_link(Path, Path);
    __NR_linkat(Directory, Path, Directory, Path, AT);
    __NR_symlink(Path, Path);
    __NR_symlinkat(Path, Directory, Path);
    __NR_readlink(Path, Out(files::target), Size);
    __NR_readlinkat(Directory, Path, Out(files::target), Size);
    __NR_chdir(Path);
    __NR_fchdir(Int);
    __NR_chroot(Path);
    __NR_getcwd(Out(files::directory_name), Size);
    __NR_access(Path, Flags(names::ACCESS));
    __NR_faccessat(Directory, Path, Flags(names::ACCESS));
    __NR_faccessat2(Directory, Path, Flags(names::ACCESS), Flags(names::AT_ACCESS));
    __NR_stat(Path, STAT);
    __NR_lstat(Path, STAT);
    __NR_newfstatat(Directory, Path, STAT, AT);
    __NR_statx(Directory, Path, Flags(names::STATX_AT), Flags(names::STATX), Out(files::statx));
    __NR_statfs(Path, Out(files::statfs));
    __NR_chmod(Path, Mode);
    __NR_fchmodat(Directory, Path, Mode);
    __NR_chown(Path, Int, Int);
    __NR_lchown(Path, Int, Int);
    __NR_fchownat(Directory, Path, Int, Int, AT);
    __NR_utimensat(Directory, Path, In(times::two_specs), AT);
    __NR_utime(Path, In(times::two_seconds));
    __NR_utimes(Path, In(times::two_values));
    __NR_truncate(Path, Long);

    // Descriptors, and what concerns all files.
    __NR_close(Int);
    __NR_close_range(Int, Int, Flags(names::CLOSE_RANGE));
    __NR_dup(Int);
    __NR_dup2(Int, Int);
    __NR_dup3(Int, Int, Flags(names::DESCRIPTOR));
    __NR_fcntl(Int, Choice(names::FCNTL), By(files::control)) -> Answer::By(files::control_answer);
    __NR_flock(Int, Flags(names::FLOCK));
    __NR_ioctl(Int, Choice(names::IOCTL), By(files::order));
    __NR_pipe(Out(files::two_descriptors));
    __NR_pipe2(Out(files::two_descriptors), Flags(names::DESCRIPTOR));
    __NR_fstat(Int, STAT);
    __NR_fstatfs(Int, Out(files::statfs));
    __NR_fchmod(Int, Mode);
    __NR_fchown(Int, Int, Int);
    __NR_ftruncate(Int, Long);
    __NR_fallocate(Int, Flags(names::FALLOCATE), Long, Long);
    __NR_umask(Mode) -> Answer::Octal;
    __NR_sync();
    __NR_fsync(Int);
    __NR_fdatasync(Int);
    __NR_syncfs(Int);
    __NR_fadvise64(Int, Long, Size, Choice(names::FADVISE));
    __NR_readahead(Int, Long, Size);
    __NR_mount(Path, Path, Kind::String, Flags(names::MOUNT), Pointer);
    __NR_umount2(Path, Hex);
    __NR_pivot_root(Path, Path);

    // Sockets.
    __NR_socket(Choice(names::FAMILY), In(sockets::kind), Choice(names::PROTOCOL));
    __NR_socketpair(Choice(names::FAMILY), In(sockets::kind), Int, Out(files::two_descriptors));
    __NR_bind(Int, ADDRESS, Int);
    __NR_listen(Int, Int);
    __NR_accept(Int, ADDRESS_FILLED, LENGTH_FILLED);
    __NR_accept4(Int, ADDRESS_FILLED, LENGTH_FILLED, In(sockets::accept_flags));
    __NR_connect(Int, ADDRESS, Int);
    __NR_getsockname(Int, ADDRESS_FILLED, LENGTH_FILLED);
    __NR_getpeername(Int, ADDRESS_FILLED, LENGTH_FILLED);
    __NR_setsockopt(Int, Choice(names::LEVEL), In(sockets::option), In(sockets::value), Int);
    __NR_getsockopt(Int, Choice(names::LEVEL), In(sockets::option), Out(sockets::value_filled),
        LENGTH_FILLED);
    __NR_shutdown(Int, Choice(names::SHUTDOWN));
    __NR_sendto(Int, Sent, Size, sockets::FLAGS, ADDRESS, Int);
    __NR_recvfrom(Int, Received, Size, sockets::FLAGS, ADDRESS_FILLED, LENGTH_FILLED);
    __NR_sendmsg(Int, In(sockets::message), sockets::FLAGS);
    __NR_recvmsg(Int, Out(sockets::message_filled), sockets::FLAGS);

    // Memory.
    __NR_brk(Pointer) -> Answer::Hex;
    __NR_mmap(Pointer, Size, Flags(names::PROT), In(memory::map_flags), Int, In(memory::offset))
        -> Answer::Hex;
    __NR_munmap(Pointer, Size);
    __NR_mprotect(Pointer, Size, Flags(names::PROT));
    __NR_mremap(Pointer, Size, Size, Flags(names::MREMAP), By(memory::moved_to)) -> Answer::Hex;
    __NR_madvise(Pointer, Size, Choice(names::MADVISE));
    __NR_mincore(Pointer, Size, Out(memory::residence));
    __NR_msync(Pointer, Size, Flags(names::MSYNC));
    __NR_mlock(Pointer, Size);
    __NR_munlock(Pointer, Size);
    __NR_mlockall(Flags(names::MLOCK));
    __NR_munlockall();

    // Processes and threads.
    __NR_clone(In(processes::clone));
    __NR_clone3(In(processes::clone_record), Size);
    __NR_fork();
    __NR_vfork();
    __NR_execve(Path, In(processes::arguments), In(processes::variables));
    __NR_execveat(Directory, Path, In(processes::arguments), In(processes::variables), AT);
    __NR_exit(Int) -> Answer::Never;
    __NR_exit_group(Int) -> Answer::Never;
    __NR_wait4(Int, Out(processes::status), Flags(names::WAIT), USAGE);
    __NR_waitid(Choice(names::WAIT_FOR), Int, Out(signals::information), Flags(names::WAIT),
        USAGE);
    __NR_futex(Pointer, In(times::futex_operation), Int, By(times::futex_time),
        By(times::futex_second), By(times::futex_value));
    __NR_set_tid_address(Pointer);
    __NR_set_robust_list(Pointer, Size);
    __NR_get_robust_list(Int, Out(processes::pointer_filled), Out(processes::pointer_filled));
    __NR_rseq(Pointer, Hex, Int, Hex);
    __NR_membarrier(Hex, Hex);
    __NR_arch_prctl(Choice(names::ARCH), By(processes::base));
    __NR_prctl(Choice(names::PRCTL), By(processes::control), By(processes::control_rest),
        By(processes::control_rest), By(processes::control_rest));
    __NR_personality(Choice(names::PERSONA));
    __NR_getpriority(Choice(names::PRIO), Int);
    __NR_setpriority(Choice(names::PRIO), Int, Int);
    __NR_sched_yield();
    __NR_sched_getaffinity(Int, Size, Out(processes::processors_filled));
    __NR_sched_setaffinity(Int, Size, In(processes::processors));
    __NR_sched_getscheduler(Int);
    __NR_sched_setscheduler(Int, Choice(names::SCHED), ID_FILLED);
    __NR_sched_getparam(Int, ID_FILLED);

    // Who one is.
    __NR_getpid();
    __NR_gettid();
    __NR_getppid();
    __NR_setpgid(Int, Int);
    __NR_getpgid(Int);
    __NR_getpgrp();
    __NR_getsid(Int);
    __NR_setsid();
    __NR_getuid();
    __NR_geteuid();
    __NR_getgid();
    __NR_getegid();
    __NR_setuid(Int);
    __NR_setgid(Int);
    __NR_setreuid(Int, Int);
    __NR_setregid(Int, Int);
    __NR_setresuid(Int, Int, Int);
    __NR_setresgid(Int, Int, Int);
    __NR_getresuid(ID_FILLED, ID_FILLED, ID_FILLED);
    __NR_getresgid(ID_FILLED, ID_FILLED, ID_FILLED);
    __NR_getgroups(Int, Out(processes::groups_filled));
    __NR_setgroups(Int, In(processes::groups));
    __NR_setfsuid(Int);
    __NR_setfsgid(Int);
    __NR_capget(Pointer, Pointer);
    __NR_capset(Pointer, Pointer);
    __NR_prlimit64(Int, RLIMIT, In(processes::limits_64), Out(processes::limits_64));
    __NR_getrlimit(RLIMIT, Out(processes::limits));
    __NR_setrlimit(RLIMIT, In(processes::limits));
    __NR_getrusage(Choice(names::RUSAGE), USAGE);

    // Signals.
    __NR_rt_sigaction(SIGNAL, In(signals::action), Out(signals::action), Size);
    __NR_rt_sigprocmask(Choice(names::SIGMASK), SET, SET_FILLED, Size);
    __NR_rt_sigpending(SET_FILLED, Size);
    __NR_rt_sigsuspend(SET, Size);
    __NR_rt_sigtimedwait(SET, Out(signals::information), TIME, Size);
    __NR_rt_sigreturn(In(signals::returned));
    __NR_rt_sigqueueinfo(Int, SIGNAL, In(signals::information));
    __NR_rt_tgsigqueueinfo(Int, Int, SIGNAL, In(signals::information));
    __NR_sigaltstack(In(signals::stack), Out(signals::stack));
    __NR_pause();
    __NR_kill(Int, SIGNAL);
    __NR_tkill(Int, SIGNAL);
    __NR_tgkill(Int, Int, SIGNAL);

    // Time.
    __NR_clock_gettime(CLOCK, TIME_FILLED);
    __NR_clock_getres(CLOCK, TIME_FILLED);
    __NR_clock_nanosleep(CLOCK, Flags(names::SLEEP), TIME, Late(times::rest));
    __NR_nanosleep(TIME, Late(times::rest));
    __NR_gettimeofday(Out(times::value), Out(times::zone));
    __NR_time(Out(times::seconds));
    __NR_times(Out(times::process_times));
    __NR_alarm(Int);
    __NR_setitimer(Choice(names::ITIMER), In(times::timer_value), Out(times::timer_value));
    __NR_getitimer(Choice(names::ITIMER), Out(times::timer_value));
    __NR_timer_create(CLOCK, Pointer, ID_FILLED);
    __NR_timer_settime(Int, Flags(names::SLEEP), In(times::timer_spec), Out(times::timer_spec));
    __NR_timer_gettime(Int, Out(times::timer_spec));
    __NR_timer_getoverrun(Int);
    __NR_timer_delete(Int);

    // The system.
    __NR_uname(Out(state::names));
    __NR_sysinfo(Out(state::information));
    __NR_getrandom(Out(state::random), Size, Flags(names::RANDOM));
    __NR_getcpu(ID_FILLED, ID_FILLED, Pointer);
    __NR_reboot(Hex, Hex, Choice(names::REBOOT), Pointer);
}
