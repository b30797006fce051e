//! What `poll` is told of a socket.

use linux_raw_sys::general as raw;
use unix::Errno;
use xio::stack::TcpState;

use super::socket::{Socket, State};
use super::transfers::drop_strangers;

const IN: u16 = (raw::POLLIN | raw::POLLRDNORM) as u16;
const OUT: u16 = (raw::POLLOUT | raw::POLLWRNORM) as u16;
const ERROR: u16 = raw::POLLERR as u16;
const HANG_UP: u16 = raw::POLLHUP as u16;
const PEER_ENDED: u16 = raw::POLLRDHUP as u16;

impl Socket {
    /// `POLL…` bits that hold now; the stack has been tended.
    pub fn ready(&self) -> u16 {
        if let Some(kept) = self.kept() {
            return kept.ready(self.told.get()).map_or(ERROR, |found| found as u16);
        }
        let (no_read, no_write) = self.shut.get();
        let found = self.operate(|inner, state| {
            let stack = &mut inner.network.stack;
            if let State::Datagrams(_, id, peer) = *state {
                drop_strangers(stack, id, peer);
            }
            Ok(match *state {
                State::New(_) if !self.stream => OUT,
                State::New(_) | State::Bound(_) | State::Kept(_) => OUT | HANG_UP,
                State::Listening(_, id) if stack.tcp_acceptable(id) => IN,
                State::Listening(..) => 0,
                State::Datagrams(_, id, _) => {
                    let reads = if stack.udp_readable(id) { IN } else { 0 };
                    reads | if stack.udp_writable(id) { OUT } else { 0 }
                }
                State::Stream(_, id, _) => {
                    let now = stack.tcp_state(id);
                    let mut found = if stack.tcp_readable(id) { IN } else { 0 };
                    if stack.tcp_writable(id) {
                        found |= OUT;
                    }
                    if matches!(now, Some(TcpState::CloseWait | TcpState::LastAck)) {
                        found |= PEER_ENDED;
                    }
                    if Self::is_over(now) {
                        found |= IN | OUT | PEER_ENDED | HANG_UP;
                    }
                    if stack.tcp_failure(id).is_some() && !self.told.get() {
                        found |= ERROR;
                    }
                    found
                }
            })
        });
        let shut = if no_read { IN | PEER_ENDED } else { 0 };
        let both = if no_read && no_write { HANG_UP } else { 0 };
        match found {
            Ok(found) => found | shut | both,
            // Inherited: nothing will ever come.
            Err(Errno::ENOTCONN) => OUT | HANG_UP,
            Err(_) => ERROR,
        }
    }
}
