//! A socket of the engine in a set of its own.
//!
//! The engine goes through a whole set at each step: one set for all would make every packet cost a
//! look at every connection.

use alloc::vec::Vec;

use smoltcp::iface::{SocketHandle, SocketSet};
use smoltcp::socket::tcp::Socket;

/// One socket.
pub struct Alone {
    /// The set, for the engine.
    pub set: SocketSet<'static>,
    handle: SocketHandle,
}

impl Alone {
    pub fn new(socket: Socket<'static>) -> Alone {
        let mut set = SocketSet::new(Vec::with_capacity(1));
        let handle = set.add(socket);
        Alone { set, handle }
    }

    pub fn socket(&self) -> &Socket<'static> {
        self.set.get(self.handle)
    }

    pub fn socket_mut(&mut self) -> &mut Socket<'static> {
        self.set.get_mut(self.handle)
    }
}
