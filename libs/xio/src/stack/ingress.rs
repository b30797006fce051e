//! What becomes of a frame before any protocol state sees it.

use core::net::{Ipv4Addr, SocketAddrV4};

use crate::ethernet::{self, Mac};
use crate::ipv4::{self, Malformed, Network};
use crate::stack::tcp;

const TCP_HEADER: usize = 20;
const FIN: u8 = 1;
const SYN: u8 = 2;
const RST: u8 = 4;
const ACK: u8 = 16;

/// Why a frame is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Drop {
    /// Shorter than its headers say, or longer than a frame can be.
    Size,
    /// Not IPv4, or to another station.
    NotOurs,
    /// A header that can't be.
    Malformed,
    /// The sum of the IP header or the TCP segment is wrong.
    Checksum,
    /// A fragment.
    Fragment,
    /// Its source can't be where it comes from.
    Spoofed,
}

/// The fields of a TCP segment that decide what state sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Who sent it.
    pub peer: SocketAddrV4,
    /// To which of our addresses.
    pub local: Ipv4Addr,
    /// To which of our ports.
    pub port: u16,
    /// Sequence number behind it: its own plus its length, SYN and FIN included.
    pub after: u32,
    /// Acknowledgement number.
    pub acknowledges: u32,
    flags: u8,
}

impl Segment {
    /// Does it ask for a new connection?
    pub fn opens(&self) -> bool {
        self.flags & (SYN | ACK | RST | FIN) == SYN
    }

    /// Does it acknowledge anything?
    pub fn acknowledges_anything(&self) -> bool {
        self.flags & ACK != 0
    }

    /// Is it a reset?
    pub fn resets(&self) -> bool {
        self.flags & RST != 0
    }

    /// Does it end its sender's stream, acknowledging what it got?
    pub fn ends(&self) -> bool {
        self.flags & (SYN | ACK | RST | FIN) == FIN | ACK
    }
}

/// A frame that may pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pass {
    /// A TCP segment to our address.
    Tcp(Segment),
    /// Anything else of IPv4 to us.
    Other,
}

/// Looks at a frame's headers.
pub fn judge(frame: &[u8], own: Mac, network: &Network) -> Result<Pass, Drop> {
    if frame.len() > ethernet::FRAME_MAX {
        return Err(Drop::Size);
    }
    let (link, packet) = ethernet::Header::split(frame).ok_or(Drop::Size)?;
    let to_all = link.destination == Mac::BROADCAST;
    if link.kind != ethernet::TYPE_IPV4 || (link.destination != own && !to_all) {
        return Err(Drop::NotOurs);
    }
    if !link.source.is_unicast() {
        return Err(Drop::Spoofed);
    }
    let (ip, payload) = ipv4::Header::split(packet).map_err(|malformed| match malformed {
        Malformed::Short => Drop::Size,
        Malformed::Version => Drop::Malformed,
        Malformed::Checksum => Drop::Checksum,
        Malformed::Fragment => Drop::Fragment,
    })?;
    // Frames from our own link address come from this machine (the link drops others), and only
    // they are from and to addresses that are not on the wire.
    let looped = link.source == own;
    let believed =
        if looped { network.is_own(ip.source) } else { network.is_believable(ip.source) };
    if !believed {
        return Err(Drop::Spoofed);
    }
    let ours = ip.destination == network.address || looped && network.is_own(ip.destination);
    if ip.protocol != ipv4::TCP {
        let broadcast = network.is_broadcast(ip.destination) && ip.protocol == ipv4::UDP;
        return if ours || broadcast { Ok(Pass::Other) } else { Err(Drop::NotOurs) };
    }
    // TCP speaks to one station (RFC 9293 §3.9.2.3), in the IP header as on the link.
    if !ours || to_all {
        return Err(Drop::NotOurs);
    }
    let segment = segment(ip, payload)?;
    if !tcp::sum_is_right(&ip, payload) {
        return Err(Drop::Checksum);
    }
    Ok(Pass::Tcp(segment))
}

fn segment(ip: ipv4::Header, payload: &[u8]) -> Result<Segment, Drop> {
    let fixed = payload.first_chunk::<TCP_HEADER>().ok_or(Drop::Size)?;
    let header = usize::from(fixed[12] >> 4) * 4;
    if header < TCP_HEADER || header > payload.len() {
        return Err(Drop::Malformed);
    }
    let short = |at: usize| u16::from_be_bytes([fixed[at], fixed[at + 1]]);
    let long = |at: usize| u32::from(short(at)) << 16 | u32::from(short(at + 2));
    let flags = fixed[13];
    let control = u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
    let length = (payload.len() - header) as u32 + control;
    Ok(Segment {
        peer: SocketAddrV4::new(ip.source, short(0)),
        local: ip.destination,
        port: short(2),
        after: long(4).wrapping_add(length),
        acknowledges: long(8),
        flags,
    })
}
