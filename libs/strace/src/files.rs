//! Arguments of calls about files: modes, flags of `open`, what `stat` fills, `fcntl`, `ioctl`.

use linux_raw_sys::general as linux;
use linux_raw_sys::ioctl;

use crate::kind::Kind;
use crate::names;
use crate::text::{Record, Text};
use crate::{Call, sockets};

/// `AT_FDCWD`
pub const HERE: i32 = -100;
/// Bits of a mode that say what the file is.
const TYPE: u32 = 0o170_000;

/// A file's mode without its type: at least three digits.
pub fn mode(text: &mut Text, mode: u32) {
    if mode == 0 { text.push("000") } else { text.put(format_args!("0{mode:03o}")) }
}

/// A file's mode with its type.
pub fn whole_mode(text: &mut Text, whole: u32) {
    text.choice(u64::from(whole & TYPE), names::FILE_TYPE);
    text.push("|");
    mode(text, whole & !TYPE);
}

/// The third argument of `mknod`.
pub fn node_mode(text: &mut Text, call: &Call<'_>, at: usize) {
    let whole = call.words[at] as u32;
    if whole & TYPE == 0 { mode(text, whole) } else { whole_mode(text, whole) }
}

/// Flags of `open`.
pub fn open_flags(text: &mut Text, call: &Call<'_>, at: usize) {
    open_words(text, call.words[at] & 0xffff_ffff);
}

/// `O_…` of an open file or for one.
pub fn open_words(text: &mut Text, flags: u64) {
    text.choice(flags & 3, names::OPEN_MODE);
    if flags & !3 != 0 {
        text.push("|");
        text.flags(flags & !3, names::OPEN);
    }
}

/// The mode of `open`, if it makes a file: `open(path, flags, mode)`.
pub fn made_mode(call: &Call<'_>) -> Kind {
    mode_if_made(call.words[1])
}

/// The same of `openat(directory, path, flags, mode)`.
pub fn made_mode_at(call: &Call<'_>) -> Kind {
    mode_if_made(call.words[2])
}

fn mode_if_made(flags: u64) -> Kind {
    let temporary = u64::from(linux::O_TMPFILE);
    let makes = flags & u64::from(linux::O_CREAT) != 0 || flags & temporary == temporary;
    if makes { Kind::Mode } else { Kind::Nothing }
}

/// `struct stat`.
pub fn stat(text: &mut Text, call: &Call<'_>, at: usize) {
    call.with_record(text, call.words[at], |text, stat: &Record<144>| {
        let mode = stat.word(24);
        text.push("{st_mode=");
        whole_mode(text, mode);
        device_or_size(text, "st", mode, device(stat.long(40)), stat.long(48));
    });
}

/// `struct statx`.
pub fn statx(text: &mut Text, call: &Call<'_>, at: usize) {
    call.with_record(text, call.words[at], |text, stat: &Record<256>| {
        let mode = u32::from(stat.half(28));
        text.push("{stx_mask=");
        text.flags(u64::from(stat.word(0)), names::STATX);
        text.put(format_args!(", stx_attributes={:#x}, stx_mode=", stat.long(8)));
        whole_mode(text, mode);
        device_or_size(text, "stx", mode, (stat.word(128), stat.word(132)), stat.long(40));
    });
}

/// What `dev_t` holds: `gnu_dev_major(3)`.
fn device(number: u64) -> (u32, u32) {
    let major = (number >> 8) & 0xfff | (number >> 32) & 0xffff_f000;
    let minor = number & 0xff | (number >> 12) & 0xffff_ff00;
    (major as u32, minor as u32)
}

fn device_or_size(text: &mut Text, prefix: &str, mode: u32, (major, minor): (u32, u32), size: u64) {
    if matches!(mode & TYPE, linux::S_IFCHR | linux::S_IFBLK) {
        text.put(format_args!(", {prefix}_rdev=makedev({major:#x}, {minor:#x}), ...}}"));
    } else {
        text.put(format_args!(", {prefix}_size={size}, ...}}"));
    }
}

/// `struct statfs`.
pub fn statfs(text: &mut Text, call: &Call<'_>, at: usize) {
    call.with_record(text, call.words[at], |text, stat: &Record<120>| {
        text.push("{f_type=");
        let types = &[
            (0x0102_1994, "TMPFS_MAGIC"),
            (0x9fa0, "PROC_SUPER_MAGIC"),
            (0xef53, "EXT2_SUPER_MAGIC"),
        ];
        text.choice(stat.long(0), types);
        let [size, blocks, free, available] = [8, 16, 24, 32].map(|offset| stat.long(offset));
        text.put(format_args!(", f_bsize={size}, f_blocks={blocks}, f_bfree={free}, "));
        text.put(format_args!("f_bavail={available}, ...}}"));
    });
}

/// The list that `getdents64` filled: how many names.
pub fn entries(text: &mut Text, call: &Call<'_>, at: usize) {
    let (start, bytes) = (call.words[at], call.value());
    let (mut offset, mut count) = (0, 0);
    // `d_reclen` is at 16; a record that says nothing ends the list.
    while offset < bytes {
        let Some(entry) = call.record::<18>(start + offset) else { break };
        let length = u64::from(entry.half(16));
        if length == 0 {
            break;
        }
        offset += length;
        count += 1;
    }
    text.pointer(start);
    text.put(format_args!(" /* {count} entries */"));
}

/// The name that `getcwd` filled.
pub fn directory_name(text: &mut Text, call: &Call<'_>, at: usize) {
    call.path(text, call.words[at]);
}

/// The target that `readlink` filled: a whole path.
pub fn target(text: &mut Text, call: &Call<'_>, at: usize) {
    call.bytes(text, call.words[at], call.value());
}

/// Two descriptors.
pub fn two_descriptors(text: &mut Text, call: &Call<'_>, at: usize) {
    call.with_record(text, call.words[at], |text, pair: &Record<8>| {
        text.put(format_args!("[{}, {}]", pair.word(0) as i32, pair.word(4) as i32));
    });
}

/// The list of pieces that `writev` is given.
pub fn pieces_sent(text: &mut Text, call: &Call<'_>, at: usize) {
    pieces(text, call, call.words[at], call.words[at + 1], u64::MAX);
}

/// The list of pieces that `readv` has filled.
pub fn pieces_received(text: &mut Text, call: &Call<'_>, at: usize) {
    pieces(text, call, call.words[at], call.words[at + 1], call.value());
}

/// `count` pieces at `address`, of which `bytes` hold something.
pub fn pieces(text: &mut Text, call: &Call<'_>, address: u64, count: u64, bytes: u64) {
    if call.record::<16>(address).is_none() {
        return text.pointer(address);
    }
    let mut left = bytes;
    text.list(count, |text, place| {
        call.with_record(text, address + 16 * place, |text, piece: &Record<16>| {
            let (base, length) = (piece.long(0), piece.long(8));
            text.push("{iov_base=");
            call.bytes(text, base, length.min(left));
            left = left.saturating_sub(length);
            text.put(format_args!(", iov_len={length}}}"));
        });
    });
}

/// The position that `sendfile` is given.
pub fn position(text: &mut Text, call: &Call<'_>, at: usize) {
    call.with_record(text, call.words[at], |text, position: &Record<8>| {
        text.put(format_args!("[{}]", position.long(0)));
    });
}

/// The third argument of `fcntl`.
pub fn control(call: &Call<'_>) -> Kind {
    match call.words[1] as u32 {
        linux::F_GETFD | linux::F_GETFL | linux::F_GETOWN | linux::F_GETSIG => Kind::Nothing,
        linux::F_GETPIPE_SZ | linux::F_GET_SEALS => Kind::Nothing,
        linux::F_SETFD => Kind::Flags(names::FD),
        linux::F_SETFL => Kind::In(open_flags),
        linux::F_GETLK | linux::F_OFD_GETLK => Kind::Out(lock),
        linux::F_SETLK | linux::F_SETLKW | linux::F_OFD_SETLK | linux::F_OFD_SETLKW => {
            Kind::In(lock)
        }
        linux::F_DUPFD | linux::F_DUPFD_CLOEXEC | linux::F_SETPIPE_SZ | linux::F_SETOWN => {
            Kind::Int
        }
        _ => Kind::Hex,
    }
}

fn lock(text: &mut Text, call: &Call<'_>, at: usize) {
    call.with_record(text, call.words[at], |text, lock: &Record<32>| {
        text.push("{l_type=");
        text.choice(u64::from(lock.half(0)), names::LOCK);
        text.push(", l_whence=");
        text.choice(u64::from(lock.half(2)), names::SEEK);
        text.put(format_args!(", l_start={}, l_len={}", lock.long(8), lock.long(16)));
        if matches!(call.words[1] as u32, linux::F_GETLK | linux::F_OFD_GETLK) {
            text.put(format_args!(", l_pid={}", lock.word(24) as i32));
        }
        text.push("}");
    });
}

/// What `fcntl` answers.
pub fn control_answer(text: &mut Text, call: &Call<'_>, value: u64) {
    match call.words[1] as u32 {
        linux::F_GETFL => {
            text.put(format_args!("{value:#x} (flags "));
            open_words(text, value);
            text.push(")");
        }
        linux::F_GETFD if value != 0 => {
            text.put(format_args!("{value:#x} (flags "));
            text.flags(value, names::FD);
            text.push(")");
        }
        _ => text.put(format_args!("{}", value as i64)),
    }
}

/// The third argument of `ioctl`.
pub fn order(call: &Call<'_>) -> Kind {
    match call.words[1] as u32 {
        ioctl::TCGETS => Kind::Out(terminal),
        ioctl::TCSETS | ioctl::TCSETSW | ioctl::TCSETSF => Kind::In(terminal),
        ioctl::TIOCGWINSZ => Kind::Out(window_size),
        ioctl::TIOCSWINSZ => Kind::In(window_size),
        ioctl::TIOCGPGRP
        | ioctl::TIOCGSID
        | ioctl::FIONREAD
        | ioctl::TIOCOUTQ
        | ioctl::TIOCGPTN => Kind::Out(sockets::number),
        ioctl::TIOCSPGRP | ioctl::FIONBIO | ioctl::TIOCSPTLCK => Kind::In(sockets::number),
        ioctl::FIOCLEX | ioctl::FIONCLEX | ioctl::TIOCNOTTY => Kind::Nothing,
        ioctl::TIOCSCTTY | ioctl::TCSBRK | ioctl::TCXONC | ioctl::TCFLSH => Kind::Int,
        _ => Kind::Hex,
    }
}

/// `struct termios`, as much as strace shows of it.
fn terminal(text: &mut Text, call: &Call<'_>, at: usize) {
    const SPEEDS: [&str; 16] = [
        "B0", "B50", "B75", "B110", "B134", "B150", "B200", "B300", "B600", "B1200", "B1800",
        "B2400", "B4800", "B9600", "B19200", "B38400",
    ];
    call.with_record(text, call.words[at], |text, terminal: &Record<36>| {
        let [_, output, control, local] = [0, 4, 8, 12].map(|offset| terminal.word(offset));
        let speed = control & 0o17;
        let name = SPEEDS.get(speed as usize).filter(|_| control & linux::CBAUDEX == 0);
        text.put(format_args!("{{{} ", name.unwrap_or(&"B115200")));
        let bits = [
            (output & linux::OPOST, "opost "),
            (local & linux::ISIG, "isig "),
            (local & linux::ICANON, "icanon "),
            (local & linux::ECHO, "echo ...}"),
        ];
        for (bit, name) in bits {
            text.push(if bit == 0 { "-" } else { "" });
            text.push(name);
        }
    });
}

fn window_size(text: &mut Text, call: &Call<'_>, at: usize) {
    call.with_record(text, call.words[at], |text, size: &Record<8>| {
        let [rows, columns, x, y] = [0, 2, 4, 6].map(|offset| size.half(offset));
        text.put(format_args!("{{ws_row={rows}, ws_col={columns}, "));
        text.put(format_args!("ws_xpixel={x}, ws_ypixel={y}}}"));
    });
}
