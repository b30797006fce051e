//! What `poll` is told of a local socket.

use linux_raw_sys::general as raw;
use unix::Errno;

use super::{Kind, Peer, UnixSocket};
use crate::fs::pipe::READER;
use crate::fs::poll::{IN_LIKE, OUT_LIKE};
use crate::fs::region;
use crate::wait::Wait;
use abi::predicate::Operator;
use unix::ring::{HEAD, TAIL};

const ERROR: u16 = raw::POLLERR as u16;
const HANG_UP: u16 = raw::POLLHUP as u16;
const PEER_ENDED: u16 = raw::POLLRDHUP as u16;

impl UnixSocket {
    /// What of `asked` holds; if nothing, `wait` gets what to wait for.
    pub fn ready(&self, asked: u16, wait: &mut Wait) -> Result<u16, Errno> {
        // Whose peer has stored nonsense is told that there is an error, and by a read which.
        let or_error = |found: Result<u16, Errno>| match found {
            Err(Errno::EIO) => Ok(ERROR | IN_LIKE),
            other => other,
        };
        let found = match self.kind {
            Kind::Datagrams => or_error(self.datagrams_ready(asked, wait))?,
            _ if self.link.get().is_some() => or_error(self.connection_ready(asked, wait))?,
            _ if self.listens.get() => {
                if let Some(id) = self.port.get() {
                    wait.region_words(id, HEAD, Operator::NotEqual, TAIL).end_term();
                }
                if self.has_offer()? { IN_LIKE } else { 0 }
            }
            _ => OUT_LIKE | HANG_UP,
        };
        Ok(found & asked)
    }

    fn connection_ready(&self, asked: u16, wait: &mut Wait) -> Result<u16, Errno> {
        let Some(end) = self.link.get() else { return Ok(0) };
        let alone = end.is_alone();
        let (read, written) = (end.read(), end.written());
        let (theirs, mine) = (read.half()?, written.half()?);
        let (no_read, no_write) = (alone || theirs.ended, alone || mine.ended);
        let mut found = 0;
        if no_read {
            found |= PEER_ENDED | IN_LIKE;
        }
        if no_read && no_write {
            found |= HANG_UP;
        }
        if theirs.head != theirs.tail {
            found |= IN_LIKE;
        }
        // A stream's writer hears of any room: Linux has more than the whole ring free then, and a
        // peer that reads no more before the rest is written must not be waited for.
        let has_room = match self.kind {
            Kind::Stream => written.used(&mine) < written.ring.capacity,
            _ => written.is_roomy(&mine),
        };
        if has_room {
            found |= OUT_LIKE;
        }
        if self.is_reset()? {
            found |= ERROR;
        }
        if found & asked == 0 {
            if asked & IN_LIKE != 0 {
                read.filled_terms(wait);
            }
            if !theirs.ended {
                read.ended_terms(wait);
            }
            if asked & OUT_LIKE != 0 {
                match self.kind {
                    Kind::Stream => written.read_terms(&mine, wait),
                    _ => written.roomy_terms(&mine, wait),
                }
            }
            if !mine.ended {
                written.ended_terms(wait);
            }
            if !alone {
                end.alone_terms(wait);
            }
        }
        Ok(found)
    }

    fn datagrams_ready(&self, asked: u16, wait: &mut Wait) -> Result<u16, Errno> {
        let mut found = 0;
        if let Some(inbox) = self.inbox() {
            let half = inbox.half()?;
            if half.ended {
                found |= PEER_ENDED | IN_LIKE;
                if self.ended.get() {
                    found |= HANG_UP;
                }
            } else {
                inbox.ended_terms(wait);
            }
            if half.head == half.tail {
                inbox.filled_terms(wait);
            } else {
                found |= IN_LIKE;
            }
        }
        let id = match self.peer.get() {
            None => return Ok(found | OUT_LIKE),
            Some(Peer::Named(inbox)) => {
                let waits = asked & OUT_LIKE != 0;
                let is_full = self.is_full(&inbox, waits.then_some(wait));
                return Ok(if is_full { found } else { found | OUT_LIKE });
            }
            Some(Peer::Paired(id)) => id,
        };
        let outbox = Self::outbox(id);
        let half = outbox.half()?;
        if region::attached(id, READER) == 0 || half.ended || outbox.is_roomy(&half) {
            return Ok(found | OUT_LIKE);
        }
        if asked & OUT_LIKE != 0 {
            outbox.roomy_terms(&half, wait);
            outbox.ended_terms(wait);
            let owners = region::attached_address(id, READER);
            wait.memory(owners, Operator::Equal, 0).end_term();
        }
        Ok(found)
    }
}
