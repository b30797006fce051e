//! One connection of the server's: what it waits for, and for how long.

use xio::http::{Connection, Step, Waiting};
use xio::stack::{Error, Stack, TcpId};

use crate::site::{File, Site};

/// Microseconds without a request before an idle connection is closed.
const IDLE_US: u64 = 30_000_000;
/// The same when connections are scarce; where there is no place for another one, microseconds that
/// a connection keeps its own without an answer that is finished.
const CROWDED_US: u64 = 1_000_000;
/// Microseconds for a request to arrive whole.
const REQUEST_US: u64 = 10_000_000;
/// Microseconds in which a peer must take some of an answer.
const ANSWER_US: u64 = 60_000_000;
/// Microseconds that a closed connection waits for its peer to close: a reset before that could
/// overtake the last answer.
const LINGER_US: u64 = 2_000_000;

/// A connection.
pub struct Client {
    id: TcpId,
    http: Connection<File>,
    /// When it last went on.
    moved_us: u64,
    /// Since when it has its place, or when its last answer was finished.
    since_us: u64,
    /// The own stream has ended; what still comes is thrown away.
    lingers: bool,
}

/// Whether the connection is still there.
type Alive = bool;

impl Client {
    /// A connection just accepted.
    pub fn new(id: TcpId, now_us: u64) -> Client {
        Client { id, http: Connection::new(), moved_us: now_us, since_us: now_us, lingers: false }
    }

    /// Goes as far as it can.
    pub fn progress(
        &mut self,
        stack: &mut Stack,
        site: &mut Site,
        (now_us, date, crowded): (u64, Option<u64>, bool),
    ) -> Alive {
        if self.lingers {
            return self.linger(stack, now_us);
        }
        loop {
            if !self.take_input(stack, now_us) {
                return self.drop_now(stack);
            }
            if now_us >= self.deadline(crowded) {
                if self.http.waiting() == Waiting::Peer {
                    return self.drop_now(stack);
                }
                self.http.time_out(date);
                self.moved_us = now_us;
            }
            let (result, count) = match self.http.next(site, date) {
                Step::Send(bytes) => (stack.tcp_send(self.id, bytes), bytes.len()),
                Step::Wait => return true,
                Step::Close => return self.close(stack, now_us),
                Step::Abort => return self.drop_now(stack),
            };
            match result {
                Ok(taken) => {
                    let before = self.http.answers();
                    self.http.sent(taken);
                    self.moved_us = now_us;
                    let finished = self.http.answers() - before;
                    if finished > 0 {
                        self.since_us = now_us;
                    }
                    site.counters.bytes += taken as u64;
                    site.counters.answers += finished;
                    debug_assert!(taken <= count);
                }
                Err(Error::WouldBlock) => return true,
                Err(_) => return self.drop_now(stack),
            }
        }
    }

    /// When its place may be given to one that waits for a place: its last answer is finished for
    /// so long, whatever it has sent or taken since.
    pub fn gives_way_us(&self) -> u64 {
        self.since_us + CROWDED_US
    }

    /// When it must be looked at again, by the clock alone.
    pub fn deadline(&self, crowded: bool) -> u64 {
        let patience = match self.http.waiting() {
            _ if self.lingers => LINGER_US,
            Waiting::Request if crowded => CROWDED_US,
            Waiting::Request => IDLE_US,
            Waiting::Rest => REQUEST_US,
            Waiting::Peer => ANSWER_US,
        };
        self.moved_us + patience
    }

    /// Takes what has arrived, as far as there is room; `false`: the connection is broken.
    fn take_input(&mut self, stack: &mut Stack, now_us: u64) -> Alive {
        let before = self.http.waiting();
        loop {
            let http = &mut self.http;
            let taken = stack.tcp_receive_with(self.id, |bytes| {
                let taken = http.push(bytes);
                (taken, taken)
            });
            match taken {
                Ok(0) | Err(Error::WouldBlock) => return true,
                Ok(_) => {
                    // A request's time runs from its first byte, however slowly the rest comes.
                    if before == Waiting::Request {
                        self.moved_us = now_us;
                    }
                }
                Err(Error::NotConnected) => {
                    self.http.end_input();
                    return true;
                }
                Err(_) => return false,
            }
        }
    }

    fn close(&mut self, stack: &mut Stack, now_us: u64) -> Alive {
        if stack.tcp_shutdown(self.id).is_err() {
            return false;
        }
        self.lingers = true;
        self.moved_us = now_us;
        self.linger(stack, now_us)
    }

    fn linger(&mut self, stack: &mut Stack, now_us: u64) -> Alive {
        loop {
            match stack.tcp_receive_with(self.id, |bytes| (bytes.len(), ())) {
                Ok(()) => {}
                Err(Error::WouldBlock) if now_us < self.moved_us + LINGER_US => return true,
                _ => break,
            }
        }
        // Fails only if it is gone already.
        let _ = stack.tcp_close(self.id);
        false
    }

    /// Ends the connection at once.
    pub fn drop_now(&mut self, stack: &mut Stack) -> Alive {
        // As above.
        let _ = stack.tcp_abort(self.id);
        false
    }
}
