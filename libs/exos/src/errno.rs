//! Linux error numbers, and the answers that only the way out understands.

use linux_raw_sys::errno as raw;

/// Why a Linux call fails: a positive error number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Errno(pub u32);

/// What a Linux call answers.
pub type Answer = Result<u64, Errno>;

macro_rules! numbers {
    ($($name:ident)+) => {
        #[allow(missing_docs)]
        impl Errno { $( pub const $name: Errno = Errno(raw::$name); )+ }
    };
}

numbers! {
    EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT
    EBUSY EEXIST EXDEV ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG ENOSPC
    ESPIPE EROFS EMLINK EPIPE EDOM ERANGE ENAMETOOLONG ENOSYS ENOTEMPTY ELOOP EOVERFLOW
    EAFNOSUPPORT EOPNOTSUPP EPROTONOSUPPORT ENOTSOCK EADDRNOTAVAIL ECONNREFUSED ETIMEDOUT
    ENODATA ENOTCONN ENOPROTOOPT EPROTOTYPE EADDRINUSE EISCONN EDESTADDRREQ EMSGSIZE
    EINPROGRESS EALREADY ENETUNREACH ECONNRESET ENOBUFS ESOCKTNOSUPPORT
}

impl Errno {
    /// A signal ended the wait: restart the call if the handler says so, else EINTR
    /// (Linux's ERESTARTSYS).
    pub const RESTART: Errno = Errno(512);
    /// As `RESTART`, but with a handler always EINTR (ERESTARTNOHAND: pause, select, nanosleep).
    pub const RESTART_UNLESS_HANDLED: Errno = Errno(514);

    /// Refused by the kernel for want of something.
    pub fn from_refused(error: abi::error::Error) -> Errno {
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
}
