//! The server as `xok::server` drives it.

use abi::capability::{NAME_GROUP, NAME_USER};
use abi::error::Error;
use abi::id::{DomainId, EnvId};
use abi::published::EnvRecord;
use core::net::Ipv4Addr;
use xio::arp::{Outcome, Resolver};
use xio::ethernet::{FRAME_MAX, Header, TYPE_ARP};
use xio::filter::Filter;
use xio::icmp;
use xio::ipv4::Network;
use xio::pace::Pace;
use xio::stack::{Receive, Transmit};
use xnet::addresses::{ASKING, NOT_ASKING, RESOLVE, own_table};
use xnet::{NETWORK_GROUP, Port, settings};
use xok::call::{self, Message, Refused};
use xok::server::Serve;
use xok::services::{self, Service};
use xok::{clock, published};

use crate::NETWORK;

/// In place of an account: what the server wants to know itself.
const OWN_WISHES: u64 = 0;

/// Port, table, and what is being asked for.
pub struct Server {
    port: Port,
    network: Network,
    resolver: Resolver<'static>,
    pace: Pace,
}

/// May it use the network: as user 0, as a member of the network's group, or as a program that init
/// pays for, as for this one?
fn has_network(caller: &EnvRecord) -> bool {
    let domain = DomainId(caller.domain);
    let holds = |kind, number| call::domain_holds(domain, kind, number).is_ok();
    let own = EnvId(services::get(Service::Addresses) as u32);
    let own = published::env(own).map(|record| record.user);
    own == Some(caller.user) || holds(NAME_USER, 0) || holds(NAME_GROUP, NETWORK_GROUP)
}

fn now_us() -> u64 {
    clock::now_ns() / 1000
}

impl Server {
    /// Opens the interface and claims ARP and pings.
    pub fn open() -> Result<Server, Refused> {
        let network = settings::network().ok_or((Error::NotPresent, 0))?;
        let port = Port::open(NETWORK, 0)?;
        port.claim(&Filter::arp())?;
        port.claim(&Filter::echo_request(network.address))?;
        let mut resolver = Resolver::new(network, port.mac, own_table().create());
        if let Some(gateway) = network.gateway {
            // Most packets will go there: its address is worth knowing before the first.
            resolver.want(gateway, OWN_WISHES, now_us());
        }
        Ok(Server { port, network, resolver, pace: Pace::default() })
    }

    /// Takes what has arrived, so much in a while; answers go out at once, or not at all when the
    /// queue is full.
    fn receive(&mut self) {
        while let Some(frame) = self.port.ring.peek()
            && self.pace.takes(clock::now_ns())
        {
            if Header::split(frame).is_some_and(|(link, _)| link.kind == TYPE_ARP) {
                if let Outcome::Reply(reply) = self.resolver.handle(frame, now_us()) {
                    self.port.transmitter.send(&reply);
                }
            } else if let Some(out) = self.port.transmitter.buffer()
                && let Some(len) =
                    icmp::reply_to_echo(&self.network, self.port.mac, frame, &mut out[..FRAME_MAX])
            {
                self.port.transmitter.commit(len);
            }
            self.port.ring.release();
        }
    }

    /// Has an address found out for a caller that has the network.
    fn want(&mut self, address: Ipv4Addr, caller: EnvId) -> bool {
        let Some(record) = published::env(caller) else { return false };
        has_network(&record) && self.resolver.want(address, record.user, now_us())
    }

    /// Sends the requests that are due.
    fn ask(&mut self) {
        let now = now_us();
        while let Some(request) = self.resolver.poll(now) {
            if !self.port.transmitter.send(&request) {
                return;
            }
        }
    }
}

impl Serve for Server {
    fn request(&mut self, caller: EnvId, message: &mut Message) {
        let [what, address, ..] = *message;
        let wanted = u32::try_from(address).ok().filter(|_| what == RESOLVE);
        let asking = wanted.is_some_and(|bits| self.want(Ipv4Addr::from_bits(bits), caller));
        self.ask();
        *message = [if asking { ASKING } else { NOT_ASKING }, 0, 0, 0, 0, 0];
    }

    fn events(&mut self) -> u64 {
        // Before looking, so that what arrives from now on ends the next sleep.
        xok::upcall::take_events();
        xok::upcall::take_pending();
        self.receive();
        self.ask();
        let deadline = self.resolver.next_deadline().map_or(0, |at| at.saturating_mul(1000));
        match self.pace.resumes(clock::now_ns()) {
            Some(at) => clock::earlier(deadline, at),
            None if self.port.ring.peek().is_some() => 1,
            None => deadline,
        }
    }

    fn awaits(&self) -> u64 {
        // What arrives meanwhile is taken when the while has ended.
        if self.pace.resumes(clock::now_ns()).is_some() { 0 } else { u64::MAX }
    }
}
