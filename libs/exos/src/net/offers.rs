//! Connections that a keeper offers at a shared listener, and how one of its users takes one.
//!
//! ```text
//!  offer: rx, tx, this end, the other end, a token (three words), 0
//! ```
//! Offers lie in the listener's ring. A connection's regions have a name of their own as their
//! guard, and the offer its token: so each process that reads the offer may accept, also one that
//! has become another user since it got the listener, and has no other name of its relatives'. The
//! regions let in one of these processes, the first (`ONE_GUEST`): it has the connection, also when
//! another one moves the ring's tail over the offer, which each process does that comes too late.
//! Any user of the listener writes there, too: offers are of regions that the keeper has made.

use abi::capability::{DERIVE, READ, WRITE};
use abi::error::Error;
use abi::id::{DomainId, RegionId};
use core::sync::atomic::{AtomicU32, Ordering};
use unix::Errno;
use xok::call::{self, OWN};
use xok::published;

use super::keeper::ANY_FRAMES;
use super::kept::{Kept, Kind, head, look, pack, pass, reading, unpack};
use crate::capabilities::{FAMILY_SLOT, SPARE_SLOTS};
use crate::errno::from_kernel;
use crate::fs::pipe::RING;
use crate::fs::region::{self, Done};

/// Bytes of an offer: a ring holds a whole number of them.
pub const OFFER: usize = 64;

/// A token of the name that guards an offered connection's regions; zeros where there is none.
pub type Token = [u64; 3];

const _: () = assert!(RING.capacity.is_multiple_of(OFFER as u64));

/// The two regions of a connection that is to be offered, by a name of their own, and its token.
pub fn make_offered() -> Result<(RegionId, RegionId, Token), Errno> {
    static MADE: AtomicU32 = AtomicU32::new(0);
    let number = MADE.fetch_add(1, Ordering::Relaxed);
    let name = [(number >> 16) as u16, number as u16];
    let [slot, _] = SPARE_SLOTS;
    call::capability_derive(OWN, DomainId::NONE, slot.into(), &name, READ | WRITE | DERIVE)
        .map_err(|_| Errno::ENOBUFS)?;
    let (by, token) = match call::capability_token(slot) {
        Ok(token) => (slot, token),
        // Without random numbers relatives alone accept.
        Err(_) => (FAMILY_SLOT, Token::default()),
    };
    let make = || call::one_guest_region_alloc(by, &ANY_FRAMES).map_err(|_| Errno::ENOBUFS);
    let made = make().and_then(|rx| Ok((rx, make()?, token)));
    let _ = call::capability_drop(slot.into());
    made
}

impl Kept {
    /// Takes a connection that is offered, if there is one.
    pub fn accept(&self) -> Result<Option<Kept>, Errno> {
        loop {
            let before = head(self.reader())?;
            let used = RING.used(before.head, before.tail);
            // Another user may have left a part of one there, which who waits would find.
            if (1..OFFER as u64).contains(&used) {
                return Err(Errno::EIO);
            }
            if used == 0 {
                let gone = reading(self.rx).no_writer();
                return if gone { Err(Errno::ECONNABORTED) } else { Ok(None) };
            }
            let mut bytes = [0; OFFER];
            look(self.reader(), before.tail, &mut bytes)?;
            let (kept, token) = self.offered(&bytes);
            // A user first: as long as it has none, the keeper keeps it open.
            match kept.accept_by(token) {
                Ok(taken) => {
                    let passed = pass(self.reader(), before.tail, before.tail + OFFER as u64);
                    if passed == Ok(Done::Yes) {
                        self.ring_bell();
                    }
                    if taken {
                        return Ok(Some(kept));
                    }
                    passed?;
                }
                // It is over, another process has passed it; or it cannot be had at all.
                Err(errno) if head(self.reader())?.tail == before.tail => return Err(errno),
                Err(_) => {}
            }
        }
    }

    fn offered(&self, bytes: &[u8; OFFER]) -> (Kept, Token) {
        let word = |at: usize| {
            let part = bytes[8 * at..].first_chunk::<8>();
            part.map_or(0, |bytes| u64::from_le_bytes(*bytes))
        };
        let kept = Kept {
            kind: Kind::Stream,
            rx: RegionId(word(0)),
            tx: RegionId(word(1)),
            keeper: self.keeper,
            local: unpack(word(2)),
            peer: unpack(word(3)),
        };
        (kept, [word(4), word(5), word(6)])
    }

    /// The bytes by which the keeper offers it.
    pub fn offer(&self, [first, second, seal]: Token) -> [u8; OFFER] {
        let mut bytes = [0; OFFER];
        let (local, peer) = (pack(self.local), pack(self.peer));
        let words = [self.rx.0, self.tx.0, local, peer, first, second, seal];
        for (at, word) in words.into_iter().enumerate() {
            bytes[8 * at..8 * at + 8].copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }

    /// Takes a connection that is offered; `false`: another process has it.
    fn accept_by(&self, token: Token) -> Result<bool, Errno> {
        if !self.is_keepers() {
            return Err(Errno::EIO);
        }
        let [_, _, seal] = token;
        let [slot, _] = SPARE_SLOTS;
        let joined = match seal {
            0 => self.join_by(FAMILY_SLOT),
            _ => call::capability_enter(slot.into(), token).and_then(|_| {
                let joined = self.join_by(slot);
                let _ = call::capability_drop(slot.into());
                joined
            }),
        };
        match joined {
            Ok(()) => Ok(true),
            Err((Error::Taken, _)) => Ok(false),
            Err((error, _)) => Err(from_kernel(error)),
        }
    }

    /// Has the keeper made the connection's regions? Others could be of another socket of ours,
    /// which we would take for a client, and leave.
    fn is_keepers(&self) -> bool {
        let Some(keeper) = published::env_domain(self.keeper) else { return false };
        let made = |id| region::record(id).is_some_and(|record| record.domain == keeper.0);
        made(self.rx) && made(self.tx)
    }
}
