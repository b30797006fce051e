//! Ports of one process: a filter each, for as long as a socket or a closing connection needs it.

use abi::error::Error;
use abi::id::FilterId;
use alloc::vec;
use alloc::vec::Vec;
use core::net::{Ipv4Addr, SocketAddrV4};
use unix::Errno;
use xio::filter::Filter;
use xio::stack::Stack;
use xnet::Network;

/// Ports that are given to sockets that ask for none (ip_local_port_range).
const EPHEMERAL: core::ops::Range<u16> = 32768..61000;
/// Ports tried.
const TRIES: usize = 64;

struct Port {
    stream: bool,
    number: u16,
    /// Address it is for: both of ours, if unspecified.
    address: Ipv4Addr,
    filters: Vec<FilterId>,
    users: u32,
}

/// The ports.
#[derive(Default)]
pub struct Ports(Vec<Port>);

impl Ports {
    fn find(&mut self, stream: bool, number: u16) -> Option<&mut Port> {
        self.0.iter_mut().find(|port| port.stream == stream && port.number == number)
    }

    /// Claims a port, any if `number` is 0. `EADDRINUSE`: another process has it, or another
    /// socket, unless it is a stream's and the caller `shares` it.
    pub fn claim(
        &mut self,
        network: &Network,
        stream: bool,
        local: SocketAddrV4,
        shares: bool,
    ) -> Result<u16, Errno> {
        let number = local.port();
        if number != 0 {
            return self.claim_one(network, stream, local, shares).map(|()| number);
        }
        let count = u64::from(EPHEMERAL.end - EPHEMERAL.start);
        for _ in 0..TRIES {
            // Random: the connections of the process before may still be in the peers' memory.
            let random = xok::call::entropy().unwrap_or_else(|_| xok::clock::tsc());
            let number = EPHEMERAL.start + (random % count) as u16;
            let tried = SocketAddrV4::new(*local.ip(), number);
            match self.claim_one(network, stream, tried, false) {
                Err(Errno::EADDRINUSE) => {}
                other => return other.map(|()| number),
            }
        }
        Err(Errno::EADDRINUSE)
    }

    fn claim_one(
        &mut self,
        network: &Network,
        stream: bool,
        local: SocketAddrV4,
        shares: bool,
    ) -> Result<(), Errno> {
        let (address, number) = (*local.ip(), local.port());
        if let Some(port) = self.find(stream, number) {
            // One filter set for each port: its address is the first socket's.
            if port.users > 0 && !(stream && shares) || port.address != address {
                return Err(Errno::EADDRINUSE);
            }
            port.users += 1;
            return Ok(());
        }
        let filter = if stream { Filter::tcp_listen } else { Filter::udp };
        let claimed = match (address.is_unspecified(), stream) {
            (true, true) => network.claim_tcp(number).map(Vec::from),
            (true, false) => network.claim_udp(number).map(Vec::from),
            (false, _) => network.port.claim(&filter(local)).map(|one| vec![one]),
        };
        let filters = claimed.map_err(|(error, _)| match error {
            Error::Overlap => Errno::EADDRINUSE,
            Error::NotPermitted => Errno::EACCES,
            _ => Errno::ENOBUFS,
        })?;
        self.0.push(Port { stream, number, address, filters, users: 1 });
        Ok(())
    }

    /// One more socket uses a stream port: an accepted connection.
    pub fn share(&mut self, number: u16) {
        if let Some(port) = self.find(true, number) {
            port.users += 1;
        }
    }

    /// A socket needs the port no more.
    pub fn release(&mut self, stream: bool, number: u16) {
        if let Some(port) = self.find(stream, number) {
            port.users = port.users.saturating_sub(1);
        }
    }

    /// The filters.
    pub fn filters(&self) -> Vec<FilterId> {
        self.0.iter().flat_map(|port| port.filters.iter().copied()).collect()
    }

    /// Gives up all filters: those that others refer to stay theirs.
    pub fn drop_all(self) {
        for filter in self.filters() {
            // In a fork child they are not ours to drop.
            let _ = xok::call::filter_drop(filter);
        }
    }

    /// Gives up the filters that no socket and, as the stack says, no closing connection needs.
    pub fn drop_unused(&mut self, stack: &Stack) {
        self.0.retain(|port| {
            let needed = port.users > 0 || port.stream && stack.tcp_uses(port.number);
            if !needed {
                for filter in &port.filters {
                    // Ours, and there since it was claimed.
                    let _ = xok::call::filter_drop(*filter);
                }
            }
            needed
        });
    }
}
