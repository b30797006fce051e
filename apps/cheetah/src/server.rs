//! The loop: packets in, each connection as far as it can go, sleep.

use alloc::vec::Vec;
use xio::stack::ListenerId;
use xnet::Network;
use xok::call::Refused;
use xok::clock;

use crate::client::Client;
use crate::site::Site;
use crate::{LOG, NETWORK};

/// Connections at one time.
const CLIENTS: usize = 128;
/// Connections that wait for a place, and handshakes: these take no places.
const WAITING: usize = 32;
/// Free pages for what a turn of the loop takes without asking: nodes of TCP's tables, which grow
/// by as many connections as a poll takes in. All else is asked for, packets and buffers too.
pub const TURN_PAGES: usize = 16;
/// Microseconds until memory is asked for again.
const HUNGRY_US: u64 = 10_000;
/// Connections from which on an idle one is closed soon.
const CROWDED: usize = CLIENTS * 3 / 4;

/// The server.
pub struct Server {
    network: Network,
    listener: ListenerId,
    site: Site,
    clients: Vec<Client>,
}

impl Server {
    /// Claims the port and finds the files.
    pub fn open(port: u16) -> Result<Server, Refused> {
        let mut network = Network::with(NETWORK, |config| xio::stack::Config {
            connections: CLIENTS + WAITING,
            receive_bytes: 8 << 10,
            ..config
        })?;
        network.claim_tcp(port)?;
        let taken = (abi::error::Error::Taken, u64::from(port));
        let listener = network.stack.tcp_listen(port, WAITING).map_err(|_| taken)?;
        let site = Site::open()?;
        let mut clients = Vec::new();
        clients.try_reserve_exact(CLIENTS).map_err(|_| (abi::error::Error::Exhausted, 0))?;
        let address = network.local(port);
        xok::log!(LOG, "cheetah: http://{address}/ serves {}", site.root());
        Ok(Server { network, listener, site, clients })
    }

    /// Serves for ever.
    pub fn run(&mut self) -> ! {
        loop {
            // Also where there is so much to do that it never waits.
            xok::beat::beat();
            if xok::heap::provide(TURN_PAGES).is_err() {
                // The ring keeps what arrives meanwhile, or loses it: peers send it again.
                self.network.rest(HUNGRY_US);
                continue;
            }
            let now_us = self.network.poll();
            while self.has_place(now_us)
                && let Ok(id) = self.network.stack.tcp_accept(self.listener)
            {
                self.clients.push(Client::new(id, now_us));
                self.site.counters.connections += 1;
            }
            let date = clock::wall_ns().map(|ns| ns / 1_000_000_000);
            let crowded = self.clients.len() >= CROWDED;
            self.site.counters.open = self.clients.len() as u64;
            let (stack, site) = (&mut self.network.stack, &mut self.site);
            self.clients.retain_mut(|client| client.progress(stack, site, (now_us, date, crowded)));
            self.network.flush();
            let due = self.clients.iter().map(|client| client.deadline(crowded)).min();
            self.network.wait([due, self.place_us()].into_iter().flatten().min());
        }
    }

    /// Which client has had no answer for longest.
    fn stalest(&self) -> Option<usize> {
        (0..self.clients.len()).min_by_key(|&at| self.clients[at].gives_way_us())
    }

    /// When one that waits for a place may have that of the stalest; `None`: none waits.
    fn place_us(&self) -> Option<u64> {
        if self.clients.len() < CLIENTS || !self.network.stack.tcp_acceptable(self.listener) {
            return None;
        }
        self.stalest().map(|at| self.clients[at].gives_way_us())
    }

    /// Is there a place for one more? Who stalls gives its own to one that waits.
    fn has_place(&mut self, now_us: u64) -> bool {
        if self.clients.len() < CLIENTS {
            return true;
        }
        let due = self.place_us().filter(|&due| due <= now_us);
        let Some(at) = due.and_then(|_| self.stalest()) else { return false };
        self.clients.swap_remove(at).drop_now(&mut self.network.stack);
        true
    }
}
