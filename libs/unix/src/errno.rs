//! Linux's error numbers as a type.

use linux_raw_sys::errno as raw;

/// What a Linux call answers when it does not do what was asked; the caller sees its negative.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct Errno(pub u16);

macro_rules! errnos {
    ($($name:ident)+) => {
        #[allow(missing_docs)]
        impl Errno { $( pub const $name: Errno = Errno(raw::$name as u16); )+ }

        impl core::fmt::Debug for Errno {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match *self {
                    $( Errno::$name => f.write_str(stringify!($name)), )+
                    Errno(number) => write!(f, "errno {number}"),
                }
            }
        }
    };
}

errnos! {
    EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT
    ENOTBLK EBUSY EEXIST EXDEV ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG
    ENOSPC ESPIPE EROFS EMLINK EPIPE EDOM ERANGE EDEADLK ENAMETOOLONG ENOLCK ENOSYS ENOTEMPTY
    ELOOP ENODATA ETIME EOVERFLOW EILSEQ ENOTSOCK EDESTADDRREQ EMSGSIZE EPROTOTYPE ENOPROTOOPT
    EPROTONOSUPPORT ESOCKTNOSUPPORT EOPNOTSUPP EPFNOSUPPORT EAFNOSUPPORT EADDRINUSE
    EADDRNOTAVAIL ENETDOWN ENETUNREACH ECONNABORTED ECONNRESET ENOBUFS EISCONN ENOTCONN ETIMEDOUT
    ECONNREFUSED EHOSTUNREACH EALREADY EINPROGRESS ESTALE
}

impl Errno {
    /// As `rax` carries it back to the program.
    pub const fn to_register(self) -> u64 {
        (self.0 as i64).wrapping_neg() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_register_holds_the_negative() {
        assert_eq!(Errno::ENOENT.to_register() as i64, -2);
        assert_eq!(std::format!("{:?}", Errno::ENOTTY), "ENOTTY");
    }
}
