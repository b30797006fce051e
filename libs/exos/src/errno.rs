//! What a Linux call answers, and the answers that only the way out understands.

pub use unix::Errno;

/// What a Linux call answers.
pub type Answer = Result<u64, Errno>;

/// A signal ended the wait: the call restarts if the handler says so, else EINTR (Linux's
/// ERESTARTSYS).
pub const RESTART: Errno = Errno(512);
/// The call was undone and restarts after any handler (ERESTARTNOINTR: fork).
pub const RESTART_ALWAYS: Errno = Errno(513);
/// As `RESTART`, but with a handler always EINTR (ERESTARTNOHAND: pause, select, nanosleep).
pub const RESTART_UNLESS_HANDLED: Errno = Errno(514);

/// A function of the program's answers: the way out enters it (`crate::parts`). Linux has no such
/// answer; the number is the next behind its own of this kind.
pub const CALLED: Errno = Errno(517);

/// What a Linux program is told when the kernel refused.
pub fn from_kernel(error: abi::error::Error) -> Errno {
    use abi::error::Error;
    match error {
        Error::NotPermitted | Error::NoSuchCapability => Errno::EPERM,
        Error::NoSuchEnv | Error::Dead => Errno::ESRCH,
        Error::BadAddress => Errno::EFAULT,
        Error::Exhausted | Error::OverQuota => Errno::ENOMEM,
        Error::WouldBlock | Error::Busy => Errno::EAGAIN,
        Error::TimedOut => Errno::ETIMEDOUT,
        _ => Errno::EINVAL,
    }
}
