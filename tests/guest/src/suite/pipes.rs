//! Pipes in shared pages: carried without the kernel, waited for by yields to the other end.

use super::roles;
use super::roles::stream;
use super::sched::{counter, until};
use crate::assistant;
use crate::expect;
use crate::judge::{Failure, Ground, SCRATCH};
use abi::call::{TABLE, number};
use abi::id::EnvId;
use abi::layout::PAGE_SIZE;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use xok::call::{self, OWN, Refused};
use xok::clock::now_ns;
use xok::memory::{DATA, Space};
use xok::pipe::{Broken, RING, Reader, Writer};
use xok::published;
use xok::spawn::Spawned;

/// The judge.
const OURSELVES: EnvId = EnvId(1);
/// Round trips of one measurement.
const ROUNDS: u64 = 500;

fn refused(why: Refused) -> Failure {
    format!("{why:?}")
}

/// Starts the other end of two pipes; ours: what it writes, and what it reads.
fn start(ground: &Ground, role: u64, word: u64) -> Result<(Spawned, Reader, Writer), Failure> {
    let words = [OURSELVES.0.into(), SCRATCH, word, 0, 0, 0];
    let other = assistant::spawn(ground.image, role, words, &[])?;
    Space::own().allocate_zeroed(SCRATCH, 2, DATA).map_err(refused)?;
    let mut theirs = Space::of(other.domain, OWN);
    for page in [SCRATCH, SCRATCH + PAGE_SIZE] {
        let frame = xok::own::frame(page).ok_or("no frame")?;
        theirs.map(page, frame, 1, DATA).map_err(refused)?;
    }
    assistant::start(other)?;
    let (reader, writer) = stream::ends(other.env, SCRATCH + PAGE_SIZE, SCRATCH);
    Ok((other, reader, writer))
}

/// Calls made, by number. What the fast path has done is noted when the lock is taken the next
/// time: here, by a yield to one whom there is not.
fn calls() -> Vec<u64> {
    let _ = call::yield_to(EnvId(0x3fff_ffff));
    TABLE.iter().map(|row| published::call_record(row.number.into()).count).collect()
}

/// A word there and back, by the library's functions or by its code as part of the caller.
#[inline(always)]
fn round(
    (reader, writer): (&mut Reader, &mut Writer),
    word: u64,
    inlined: bool,
) -> Result<u64, Failure> {
    let mut back = [0; 8];
    let word = word.to_le_bytes();
    let whole = if inlined {
        writer.write_inlined(&word).and_then(|()| reader.read_inlined(&mut back))
    } else {
        writer.write(&word).and_then(|()| reader.read(&mut back))
    };
    match whole {
        Ok(8) => Ok(u64::from_le_bytes(back)),
        other => Err(format!("a word came as {other:?}")),
    }
}

/// aegis95 T31: of all calls only `Yield` is made, to the other end by name, while words go there
/// and back.
pub fn only_yields(ground: &Ground) -> Result<String, Failure> {
    let (other, mut reader, mut writer) = start(ground, stream::ECHO, 0)?;
    let third = assistant::spawn(ground.image, roles::COUNT_AND_YIELD, [1, 0, 0, 0, 0, 0], &[])?;
    assistant::start(third)?;
    until(|| counter(other.env) == 1 && counter(third.env) > 0, "both to run")?;
    let (before, third_before) = (calls(), counter(third.env));
    let mut wrong = 0;
    for word in 1..=ROUNDS {
        wrong += u64::from(round((&mut reader, &mut writer), word, word % 2 == 0)? != word);
    }
    let (after, third_ran) = (calls(), counter(third.env) - third_before);
    call::env_destroy(OWN, third.env, 0).map_err(refused)?;
    assistant::wait(third.env)?;
    round((&mut reader, &mut writer), 0, true)?;
    assistant::wait(other.env)?;
    Space::own().unmap(SCRATCH, 2).map_err(refused)?;
    expect!(wrong == 0, "{wrong} of {ROUNDS} words came back otherwise");
    let made = |at: usize| after[at] - before[at];
    let others: Vec<_> = (0..TABLE.len())
        .filter(|&at| TABLE[at].number != number::Yield && made(at) != 0)
        .map(|at| (TABLE[at].name, made(at)))
        .collect();
    let yields = made(usize::from(number::Yield));
    // The third one's own yields are among them: it ran when a slice had ended.
    expect!(others.is_empty(), "calls beside Yield: {others:?}");
    expect!(yields > 2 * ROUNDS, "{yields} yields for {ROUNDS} round trips");
    expect!(third_ran * 10 <= ROUNDS, "who is not named ran {third_ran} times");
    Ok(format!("({yields} yields for {ROUNDS} round trips)"))
}

/// aegis95 T31, by instructions: as part of the program it is faster than by the library's
/// functions.
pub fn inlined_is_faster(ground: &Ground) -> Result<String, Failure> {
    let (other, mut reader, mut writer) = start(ground, stream::ECHO, 0)?;
    let mut took = [0; 2];
    // The first time warms up.
    for _ in 0..2 {
        for (inlined, took) in took.iter_mut().enumerate() {
            let begun = now_ns();
            for word in 1..=ROUNDS {
                round((&mut reader, &mut writer), word, inlined == 1)?;
            }
            *took = (now_ns() - begun) / ROUNDS;
        }
    }
    round((&mut reader, &mut writer), 0, true)?;
    assistant::wait(other.env)?;
    Space::own().unmap(SCRATCH, 2).map_err(refused)?;
    let [called, inlined] = took;
    expect!(inlined < called, "pipe' takes {inlined} instructions, pipe {called}");
    Ok(format!("(instructions a round trip, one end inlined or not: {inlined}, {called})"))
}

/// aegis95 T31: a full pipe yields to its reader; all bytes arrive, and its end is heard of.
pub fn full_and_empty(ground: &Ground) -> Result<String, Failure> {
    let bytes: Vec<u8> = (0..3 * RING as u32 + 77).map(|at| (at % 251) as u8).collect();
    let (other, mut reader, mut writer) = start(ground, stream::SUM, bytes.len() as u64)?;
    let before = calls()[usize::from(number::Yield)];
    writer.write(&bytes).map_err(|why| format!("{why:?}"))?;
    let yields = calls()[usize::from(number::Yield)] - before;
    let sum: u64 = bytes.iter().map(|&byte| u64::from(byte)).sum();
    let read = assistant::wait(other.env)?;
    let end = reader.read(&mut [0; 1]);
    let refusal = (0..=RING).find_map(|_| writer.write(&[1]).err());
    Space::own().unmap(SCRATCH, 2).map_err(refused)?;
    expect!(read == sum, "the bytes' sum is {sum}, the reader's {read}");
    expect!(yields > 3, "{yields} yields for {} bytes", bytes.len());
    expect!(end == Ok(0), "read from the dead: {end:?}");
    expect!(refusal == Some(Broken::NoReader), "written to the dead: {refusal:?}");
    Ok(format!("({yields} yields for {} bytes)", bytes.len()))
}

/// xok97 T40: an end that stores garbage gets garbage: the other one has an error, wrong bytes or
/// an end, and goes on; nothing hangs.
pub fn garbage(ground: &Ground) -> Result<String, Failure> {
    const STORES: u64 = 2000;
    let (other, mut reader, mut writer) = start(ground, stream::GARBAGE, STORES)?;
    let deadline = now_ns() + 20_000_000_000;
    let (mut errors, mut bytes, mut ended) = (0, 0, false);
    while !ended {
        let mut buffer = [0; 256];
        // Each tries anew, as a victim would that was told to go on.
        let read = reader.read(&mut buffer);
        let written = writer.write(&buffer[..64]);
        errors += u64::from(read.is_err()) + u64::from(written == Err(Broken::Garbage));
        bytes += read.unwrap_or(0);
        ended = !published::env_lives(other.env);
        if now_ns() > deadline {
            return Err(format!("{errors} errors, {bytes} bytes, and it does not end"));
        }
        if read.is_err() {
            let _ = call::yield_to(other.env);
        }
    }
    assistant::wait(other.env)?;
    Space::own().unmap(SCRATCH, 2).map_err(refused)?;
    expect!(errors > 0, "no garbage was seen");
    Ok(format!("({errors} errors, {bytes} bytes of garbage)"))
}
