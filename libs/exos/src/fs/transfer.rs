//! Both ends of reading and writing: program memory in pieces, or a buffer of ExOS.

use abi::layout::PAGE_SIZE;
use alloc::vec::Vec;
use unix::Errno;

use crate::user;

/// Pieces of one `readv` or `writev` at most (`UIO_MAXIOV`).
const PIECES_MAX: u64 = 1024;
/// Bytes of one transfer at most (read(2)).
pub const TRANSFER_MAX: u64 = 0x7fff_f000;

/// Where bytes go to or come from.
#[derive(Debug)]
pub enum Memory<'a> {
    /// Program memory: address and length of each piece, and how far the first one is done.
    Program {
        /// The pieces.
        pieces: Pieces,
    },
    /// A buffer that is read from the beginning, or filled.
    Buffer {
        /// The bytes.
        bytes: &'a mut [u8],
        /// How many are done.
        done: usize,
    },
}

/// Pieces of program memory, not yet transferred.
#[derive(Debug, Default)]
pub struct Pieces {
    list: Vec<(u64, u64)>,
    first: (u64, u64),
    at: usize,
}

impl Pieces {
    fn current(&mut self) -> Option<(u64, u64)> {
        while self.first.1 == 0 {
            self.first = *self.list.get(self.at)?;
            self.at += 1;
        }
        Some(self.first)
    }

    #[inline]
    fn left(&self) -> u64 {
        if self.list.is_empty() {
            return self.first.1;
        }
        self.first.1 + self.list.iter().skip(self.at).map(|piece| piece.1).sum::<u64>()
    }
}

/// Copies to the program as far as its memory goes; answers how many bytes went.
fn put_pages(address: u64, from: &[u8]) -> usize {
    if user::write_bytes(address, from).is_ok() {
        return from.len();
    }
    let mut done = 0;
    while done < from.len() {
        let at = address + done as u64;
        let count = (PAGE_SIZE - at % PAGE_SIZE).min((from.len() - done) as u64) as usize;
        if user::write_bytes(at, &from[done..done + count]).is_err() {
            break;
        }
        done += count;
    }
    done
}

impl<'a> Memory<'a> {
    /// One piece of program memory.
    pub fn program(address: u64, len: u64) -> Result<Memory<'static>, Errno> {
        let len = len.min(TRANSFER_MAX);
        if len > 0 && !user::in_program(address, len) {
            return Err(Errno::EFAULT);
        }
        let pieces = Pieces { first: (address, len), ..Pieces::default() };
        Ok(Memory::Program { pieces })
    }

    /// The pieces of an `iovec` array.
    pub fn vector(address: u64, count: u64) -> Result<Memory<'static>, Errno> {
        if count > PIECES_MAX {
            return Err(Errno::EINVAL);
        }
        let mut list = Vec::with_capacity(count as usize);
        let mut total = 0;
        for at in 0..count {
            let [base, len]: [u64; 2] = user::read_value(address + 16 * at)?;
            if len > i64::MAX as u64 {
                return Err(Errno::EINVAL);
            }
            let len = len.min(TRANSFER_MAX - total);
            if len > 0 && !user::in_program(base, len) {
                return Err(Errno::EFAULT);
            }
            total += len;
            list.push((base, len));
        }
        Ok(Memory::Program { pieces: Pieces { list, ..Pieces::default() } })
    }

    /// A buffer of ExOS.
    pub fn buffer(bytes: &'a mut [u8]) -> Memory<'a> {
        Memory::Buffer { bytes, done: 0 }
    }

    /// The first piece of program memory, if there is one.
    pub fn piece(&mut self) -> Option<(u64, u64)> {
        match self {
            Memory::Program { pieces } => Some(pieces.current().unwrap_or_default()),
            Memory::Buffer { .. } => None,
        }
    }

    /// Bytes still to be transferred.
    #[inline]
    pub fn left(&self) -> u64 {
        match self {
            Memory::Program { pieces } => pieces.left(),
            Memory::Buffer { bytes, done } => (bytes.len() - done) as u64,
        }
    }

    /// Puts bytes in; answers how many went before the room ended. `EFAULT` only if none did.
    pub fn put(&mut self, from: &[u8]) -> Result<usize, Errno> {
        match self {
            Memory::Buffer { bytes, done } => {
                let count = from.len().min(bytes.len() - *done);
                bytes[*done..*done + count].copy_from_slice(&from[..count]);
                *done += count;
                Ok(count)
            }
            Memory::Program { pieces } => {
                let mut put = 0;
                while put < from.len() {
                    let Some((address, len)) = pieces.current() else { break };
                    let count = len.min((from.len() - put) as u64);
                    let part = &from[put..put + count as usize];
                    let fitted = put_pages(address, part);
                    pieces.first = (address + fitted as u64, len - fitted as u64);
                    put += fitted;
                    if fitted < part.len() {
                        return if put == 0 { Err(Errno::EFAULT) } else { Ok(put) };
                    }
                }
                Ok(put)
            }
        }
    }

    /// Puts zeros in, up to `count`.
    pub fn put_zeros(&mut self, count: u64) -> Result<u64, Errno> {
        let zeros = [0; 4096];
        let mut done = 0;
        while done < count {
            let part = (count - done).min(zeros.len() as u64) as usize;
            let put = match self.put(&zeros[..part]) {
                Err(errno) if done == 0 => return Err(errno),
                other => other.unwrap_or(0),
            };
            done += put as u64;
            if put < part {
                break;
            }
        }
        Ok(done)
    }

    /// Where the next `len` bytes are, if they lie in one piece and are all present (and private,
    /// if they are to be written), so that the kernel may copy them.
    pub fn in_one_piece(&mut self, len: u64, write: bool) -> Option<u64> {
        match self {
            Memory::Buffer { bytes, done } => {
                let rest = &mut bytes[*done..];
                (rest.len() as u64 >= len).then_some(rest.as_mut_ptr() as u64)
            }
            Memory::Program { pieces } => {
                let (address, there) = pieces.current()?;
                (there >= len && user::probe(address, len, write).is_ok()).then_some(address)
            }
        }
    }

    /// Where the next bytes are, and how many lie there in one piece: for native calls that answer
    /// `BadAddress` if there is no memory.
    pub fn next_piece(&mut self) -> Option<(u64, u64)> {
        match self {
            Memory::Buffer { bytes, done } => {
                let rest = &mut bytes[*done..];
                Some((rest.as_mut_ptr() as u64, rest.len() as u64))
            }
            Memory::Program { pieces } => pieces.current(),
        }
    }

    /// How many of the next `most` bytes there is memory for, which is made present; in pieces
    /// maybe fewer than there are.
    pub fn room(&mut self, most: u64) -> u64 {
        match self {
            Memory::Buffer { bytes, done } => most.min((bytes.len() - *done) as u64),
            Memory::Program { pieces } => {
                let Some((address, there)) = pieces.current() else { return 0 };
                let most = most.min(there);
                let mut room = 0;
                while room < most {
                    let part = (PAGE_SIZE - (address + room) % PAGE_SIZE).min(most - room);
                    if user::probe(address + room, part, true).is_err() {
                        break;
                    }
                    room += part;
                }
                room
            }
        }
    }

    /// Copies `len` bytes of what a server shows at `from` to where the next bytes go, without
    /// taking them; `false` if they lie in pieces, or not all of it is there.
    pub fn copy_shown(&mut self, from: u64, len: u64) -> bool {
        match self {
            Memory::Buffer { bytes, done } => bytes
                .get_mut(*done..*done + len as usize)
                .is_some_and(|part| user::read_shown(from, part).is_ok()),
            Memory::Program { pieces } => {
                let Some((address, there)) = pieces.current() else { return false };
                there >= len && user::copy_shown(from, address, len).is_ok()
            }
        }
    }

    /// Copies the next bytes into `into` without taking them; answers how many there were.
    pub fn peek(&mut self, into: &mut [u8]) -> Result<usize, Errno> {
        match self {
            Memory::Buffer { bytes, done } => {
                let count = into.len().min(bytes.len() - *done);
                into[..count].copy_from_slice(&bytes[*done..*done + count]);
                Ok(count)
            }
            Memory::Program { pieces } => {
                pieces.current();
                let mut got = 0;
                let rest = pieces.list.iter().skip(pieces.at);
                for &(address, len) in core::iter::once(&pieces.first).chain(rest) {
                    let count = len.min((into.len() - got) as u64) as usize;
                    if count == 0 {
                        continue;
                    }
                    if let Err(errno) = user::read_bytes(address, &mut into[got..got + count]) {
                        return if got == 0 { Err(errno) } else { Ok(got) };
                    }
                    got += count;
                    if got == into.len() {
                        break;
                    }
                }
                Ok(got)
            }
        }
    }

    /// Takes `count` bytes that were peeked at.
    pub fn advance(&mut self, count: u64) {
        match self {
            Memory::Buffer { bytes, done } => *done = (*done + count as usize).min(bytes.len()),
            Memory::Program { pieces } => {
                let mut left = count;
                while left > 0 {
                    let Some((address, len)) = pieces.current() else { return };
                    let part = len.min(left);
                    pieces.first = (address + part, len - part);
                    left -= part;
                }
            }
        }
    }
}
