//! Extended attributes (xattr(7)): no file has any, and none can be given one.
//!
//! As on a Linux file system without them: a list is empty, and what names one of them is refused
//! as not supported, by which programs that copy files know that there is nothing to copy.

#![allow(non_upper_case_globals)]

use linux_raw_sys::general::*;

use super::walk::Last;
use crate::errno::{Answer, Errno};
use crate::process::Process;
use crate::user;

/// Does the call, if it is one of these.
pub fn call(process: &Process, number: u32, words: [u64; 6]) -> Option<Answer> {
    let [first, ..] = words;
    let file = match number {
        __NR_listxattr | __NR_getxattr | __NR_setxattr | __NR_removexattr => {
            named(process, first, Last::Follow)
        }
        __NR_llistxattr | __NR_lgetxattr | __NR_lsetxattr | __NR_lremovexattr => {
            named(process, first, Last::Keep)
        }
        __NR_flistxattr | __NR_fgetxattr | __NR_fsetxattr | __NR_fremovexattr => {
            process.files.get(first as i32).map(|_| ())
        }
        _ => return None,
    };
    let lists = matches!(number, __NR_listxattr | __NR_llistxattr | __NR_flistxattr);
    Some(file.and(if lists { Ok(0) } else { Err(Errno::EOPNOTSUPP) }))
}

/// That there is a file of that name which the process may know of.
fn named(process: &Process, path: u64, last: Last) -> Result<(), Errno> {
    let path = user::read_path(path)?;
    process.files.find(AT_FDCWD, &path, last).map(|_| ())
}
