//! Pipes: an inherited or opened end is that end, also by kernel calls of the program's own.

use super::{NOBODY, failed, look, store};
use crate::peers::regions;
use crate::{Seen, Test, expect, libc};
use abi::call::Call;
use abi::id::{DomainId, RegionId};
use abi::limits::REGION_ROLES;
use abi::region::{FIFO_HEAD, FIFO_TAIL, NO_PEER, STEP_IN, Step, WordAt};
use std::fs::{self, File, OpenOptions};
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::OpenOptionsExt;

/// What holds.
pub const TESTS: [Test; 3] = [
    ("inherited_ends_of_pipes_go_one_way", inherited_ends_of_pipes_go_one_way),
    ("named_pipes_go_one_way", named_pipes_go_one_way),
    ("pipes_hold_a_page", pipes_hold_a_page),
];

/// What user 0 has written and read again, and what waits in the pipe.
pub(super) const TAKEN: &[u8] = b"what user 0 has taken";
pub(super) const THERE: &[u8] = b"what waits for user 0";
/// Where the data begin.
const DATA: u64 = 4096;
const PAGES: u64 = 16;
const NONBLOCKING: i32 = 0o4000;

/// A bit for each thing that nobody's program got by an end of the pipe behind `region`: its own is
/// that of this role, if it has any.
pub(super) fn attack(door: door::Door, region: u64, own: Option<u8>) -> i32 {
    let shows = |text: &[u8]| {
        (0..REGION_ROLES as u8).any(|role| {
            let pages = (0..=PAGES).filter_map(|page| look(door, region, role, page * DATA, 4096));
            pages.flatten().collect::<Vec<u8>>().windows(text.len()).any(|part| part == text)
        })
    };
    let stores = [0, 8, DATA, DATA + 24]
        .iter()
        .any(|&offset| store(door, region, WordAt { offset, value: 8 }));
    let attaches = (0..16).any(|slot| {
        (0..REGION_ROLES as u16).filter(|&role| own.map(u16::from) != Some(role)).any(|role| {
            let region = RegionId(region);
            let domain = DomainId::NONE;
            libc::kernel_by(door, Call::RegionAttach { region, role, domain }, slot).is_ok()
        })
    });
    [shows(TAKEN), shows(THERE), stores, steps(door, region, own), attaches]
        .iter()
        .enumerate()
        .map(|(at, &is)| i32::from(is) << at)
        .sum()
}

/// Was any step made that this end may not make?
fn steps(door: door::Door, region: u64, end: Option<u8>) -> bool {
    const LEN: usize = 8;
    let all = (TAKEN.len() + THERE.len()) as u64;
    let froms = [0, 8, TAKEN.len() as u64, all];
    let mut made = false;
    for (role, flags, moves) in (0..2).flat_map(|role| {
        [0, STEP_IN].into_iter().flat_map(move |flags| {
            [FIFO_HEAD, FIFO_TAIL, 2].into_iter().map(move |moves| (role, flags, moves))
        })
    }) {
        // What the end is for: whether bytes that were taken come back is looked at below.
        let reads = role == 1;
        let own = end == Some(role) && (flags == 0) == reads;
        for from in froms {
            let right_place = from == if reads { TAKEN.len() as u64 } else { all };
            for offset in froms.map(|position| DATA + position) {
                if own && right_place && offset == DATA + from {
                    continue;
                }
                let step = Step {
                    region,
                    role,
                    flags,
                    moves,
                    len: LEN as u32,
                    offset: offset as u32,
                    beside: 5,
                    peer: NO_PEER,
                    ..Step::NONE
                };
                let mut bytes = [0_u8; LEN];
                let [which, piece, words] = step.to_words();
                let address = bytes.as_mut_ptr() as u64;
                let call = Call::RegionStep { which, address, piece, words, from, beside: 0 };
                made |= libc::kernel(door, call).is_ok();
                std::hint::black_box(&bytes);
            }
        }
    }
    made
}

pub(super) fn told(status: i32) -> String {
    let means = "0x100: saw what was taken, 0x200 what waits, 0x400 stored, 0x800 stepped, 0x1000 \
                 attached as another";
    format!("{status:#x} ({means})")
}

/// A pipe with what was taken and what waits, and its region.
fn filled() -> Result<(PipeReader, PipeWriter, u64), String> {
    let before = regions();
    let (mut reader, mut writer) = std::io::pipe().map_err(failed)?;
    let region = regions().difference(&before).copied().next().ok_or("no region")?;
    writer.write_all(TAKEN).map_err(failed)?;
    reader.read_exact(&mut [0; TAKEN.len()]).map_err(failed)?;
    writer.write_all(THERE).map_err(failed)?;
    Ok((reader, writer, region))
}

/// What is in the pipe is what was.
fn is_left(mut reader: impl Read, status: i32) -> Result<(), String> {
    let mut rest = Vec::new();
    let read = reader.read_to_end(&mut rest);
    expect(status == 0 && read.is_ok() && rest == THERE, || {
        format!("attacker {}; then {read:?}: {:?}", told(status), String::from_utf8_lossy(&rest))
    })
}

fn inherited_ends_of_pipes_go_one_way(door: door::Door) -> Seen {
    for reads in [false, true] {
        let (reader, writer, region) = filled()?;
        let status = libc::wait(libc::spawn(|| {
            libc::close(if reads { writer.as_raw_fd() } else { reader.as_raw_fd() });
            if !libc::become_user(NOBODY) {
                return 1 << 6;
            }
            attack(door, region, Some(u8::from(reads)))
        }));
        drop(writer);
        is_left(reader, status).map_err(|why| format!("reads: {reads}: {why}"))?;
    }
    Ok(String::new())
}

fn named_pipes_go_one_way(door: door::Door) -> Seen {
    const PLACE: &str = "/tmp/deputies-fifo";
    for (reads, mode) in [(false, 0o622), (true, 0o644)] {
        let _ = fs::remove_file(PLACE);
        expect(libc::make_pipe(PLACE), || "mkfifo".into())?;
        libc::set_mode(PLACE, mode);
        let before = regions();
        let open = |options: &mut OpenOptions| options.custom_flags(NONBLOCKING).open(PLACE);
        let mut reader = open(File::options().read(true)).map_err(failed)?;
        let mut writer = open(File::options().write(true)).map_err(failed)?;
        let region = regions().difference(&before).copied().next().ok_or("no region")?;
        writer.write_all(TAKEN).map_err(failed)?;
        reader.read_exact(&mut [0; TAKEN.len()]).map_err(failed)?;
        writer.write_all(THERE).map_err(failed)?;
        let status = libc::wait(libc::spawn(|| {
            libc::close(writer.as_raw_fd());
            libc::close(reader.as_raw_fd());
            if !libc::become_user(NOBODY) {
                return 1 << 6;
            }
            let options = &mut File::options();
            let Ok(_end) = open(if reads { options.read(true) } else { options.write(true) })
            else {
                return 1 << 5;
            };
            attack(door, region, Some(u8::from(reads)))
        }));
        drop(writer);
        let left = is_left(reader, status);
        fs::remove_file(PLACE).map_err(failed)?;
        left.map_err(|why| format!("mode {mode:o}: {why}"))?;
    }
    Ok(String::new())
}

/// An empty pipe takes what goes in whole, whatever limit a program of another user's stores there
/// that has one of its ends.
fn pipes_hold_a_page(door: door::Door) -> Seen {
    const LIMIT: u64 = 40;
    let before = regions();
    let (mut reader, writer) = std::io::pipe().map_err(failed)?;
    let region = regions().difference(&before).copied().next().ok_or("no region")?;
    let status = libc::wait(libc::spawn(|| {
        libc::close(reader.as_raw_fd());
        if !libc::become_user(NOBODY) {
            return 1;
        }
        // The kernel may refuse it.
        store(door, region, WordAt { offset: LIMIT, value: 1 });
        0
    }));
    expect(status == 0, || format!("the attacker ended with {status:#x}"))?;
    libc::set_waits(writer.as_raw_fd(), false);
    let written = libc::write(writer.as_raw_fd(), THERE);
    expect(written == THERE.len() as i64, || {
        format!("there is never room for user 0's {} bytes: {written}", THERE.len())
    })?;
    let mut all = [0; THERE.len()];
    reader.read_exact(&mut all).map_err(failed)?;
    expect(all == THERE, || "other bytes".into())?;
    Ok(String::new())
}
