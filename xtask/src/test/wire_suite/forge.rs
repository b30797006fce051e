//! Frames that are wrong, each for one reason, and right ones to begin with.

use std::net::Ipv4Addr;

use xio::arp::{Operation, Packet};
use xio::checksum;
use xio::ethernet::{Header, Mac, TYPE_IPV4};
use xio::ipv4;

use super::wire::{GUEST, HOST, MAC, Random};

/// Where the IP header, and behind it the segment, begin.
const IP: usize = 14;
const SEGMENT: usize = 34;

fn packet(guest: Mac, source: Ipv4Addr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let link = Header { destination: guest, source: MAC, kind: TYPE_IPV4 };
    let ip = ipv4::Header { source, destination: GUEST, protocol };
    let mut frame = link.to_bytes().to_vec();
    frame.extend_from_slice(&ip.to_bytes(payload.len() as u16));
    frame.extend_from_slice(payload);
    frame
}

/// A SYN to Cheetah, from `source` and a port of its own.
pub fn syn(guest: Mac, source: Ipv4Addr, number: u32) -> Vec<u8> {
    let mut tcp = [0; 20];
    tcp[0..2].copy_from_slice(&(1024 + (number % 60_000) as u16).to_be_bytes());
    tcp[3] = 80;
    tcp[4..8].copy_from_slice(&number.to_be_bytes());
    tcp[12] = 5 << 4;
    tcp[13] = 2;
    tcp[14..16].copy_from_slice(&[0xff, 0xff]);
    let mut frame = packet(guest, source, ipv4::TCP, &tcp);
    fix(&mut frame);
    frame
}

/// A ping.
pub fn ping(guest: Mac, payload: usize) -> Vec<u8> {
    let mut message = vec![8, 0, 0, 0, 1, 2, 0, 1];
    message.resize(8 + payload, 0x55);
    let sum = !checksum::sum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    packet(guest, HOST, ipv4::ICMP, &message)
}

/// Puts both sums right, where there are any.
fn fix(frame: &mut [u8]) {
    if frame.len() < SEGMENT + 20 {
        return;
    }
    let header = usize::from(frame[IP] & 15) * 4;
    let total = usize::from(u16::from_be_bytes([frame[IP + 2], frame[IP + 3]]));
    let end = (IP + total).min(frame.len());
    let at = IP + header;
    if header < 20 || end < at + 20 {
        return;
    }
    frame[IP + 10..IP + 12].fill(0);
    let sum = !checksum::sum(&frame[IP..at]);
    frame[IP + 10..IP + 12].copy_from_slice(&sum.to_be_bytes());
    if frame[IP + 9] == ipv4::TCP {
        let mut sealed = frame[IP + 12..IP + 20].to_vec();
        sealed.extend_from_slice(&[0, ipv4::TCP]);
        sealed.extend_from_slice(&((end - at) as u16).to_be_bytes());
        frame[at + 16..at + 18].fill(0);
        sealed.extend_from_slice(&frame[at..end]);
        let sum = !checksum::sum(&sealed);
        frame[at + 16..at + 18].copy_from_slice(&sum.to_be_bytes());
    }
}

/// Frames that must not be answered, each with what is wrong.
pub fn wrong_frames(guest: Mac) -> Vec<(&'static str, Vec<u8>)> {
    let good = syn(guest, HOST, 1);
    let changed = |change: &dyn Fn(&mut Vec<u8>), sums: bool| {
        let mut frame = good.clone();
        change(&mut frame);
        if sums {
            fix(&mut frame);
        }
        frame
    };
    let from = |source: [u8; 4]| syn(guest, Ipv4Addr::from(source), 2);
    let mut frames = vec![
        ("sum of the IP header", changed(&|frame| frame[24] ^= 1, false)),
        ("sum of the segment", changed(&|frame| frame[50] ^= 1, false)),
        ("header of four words", changed(&|frame| frame[14] = 0x44, true)),
        ("version 6", changed(&|frame| frame[14] = 0x65, true)),
        ("options", options(&good)),
        ("fragment", changed(&|frame| frame[20] = 0x20, true)),
        ("last fragment", changed(&|frame| frame[21] = 3, true)),
        ("longer than the frame", changed(&|frame| frame[16] = 5, true)),
        ("segment header too long", changed(&|frame| frame[46] = 15 << 4, true)),
        ("segment header too short", changed(&|frame| frame[46] = 4 << 4, true)),
        ("another station's link address", changed(&|frame| frame[5] ^= 0x40, true)),
        ("to everyone", changed(&|frame| frame[..6].fill(0xff), true)),
        ("from a group", changed(&|frame| frame[6] |= 1, true)),
        ("another type", changed(&|frame| frame[12..14].fill(0x86), true)),
        ("another address", changed(&|frame| frame[33] = 99, true)),
        ("from the guest itself", from(GUEST.octets())),
        ("from loopback", from([127, 0, 0, 1])),
        ("from everyone", from([255; 4])),
        ("from all of the network", from([10, 2, 0, 255])),
        ("from a group's address", from([224, 0, 0, 1])),
        ("from nobody", from([0; 4])),
        ("ping with a wrong sum", {
            let mut frame = ping(guest, 32);
            frame[40] ^= 1;
            frame
        }),
        ("longer than a frame may be", {
            let mut frame = ping(guest, 1472);
            frame.resize(1600, 0);
            frame[16..18].copy_from_slice(&1586_u16.to_be_bytes());
            frame[IP + 10..IP + 12].fill(0);
            let sum = !checksum::sum(&frame[IP..SEGMENT]);
            frame[IP + 10..IP + 12].copy_from_slice(&sum.to_be_bytes());
            frame
        }),
        ("much longer than a frame may be", vec![0xff; 4000]),
    ];
    frames.extend((1..54).step_by(3).map(|len| ("cut short", good[..len].to_vec())));
    frames.extend(wrong_arp(guest));
    frames
}

/// With one word of options, everything else right.
fn options(good: &[u8]) -> Vec<u8> {
    let mut frame = good[..SEGMENT].to_vec();
    frame.extend_from_slice(&[1, 1, 1, 0]);
    frame.extend_from_slice(&good[SEGMENT..]);
    frame[14] = 0x46;
    frame[17] += 4;
    fix(&mut frame);
    frame
}

fn wrong_arp(guest: Mac) -> Vec<(&'static str, Vec<u8>)> {
    let good = Packet {
        operation: Operation::Request,
        sender_mac: MAC,
        sender: HOST,
        target_mac: Mac::UNKNOWN,
        target: GUEST,
    };
    let frame = |packet: Packet| packet.to_frame(guest).to_vec();
    let changed = |at: usize, value: u8| {
        let mut frame = frame(good);
        frame[at] = value;
        frame
    };
    vec![
        ("ARP for another hardware", changed(15, 6)),
        ("ARP for another protocol", changed(16, 0x86)),
        ("ARP with long addresses", changed(18, 8)),
        ("ARP of an unknown operation", changed(21, 9)),
        ("ARP cut short", frame(good)[..41].to_vec()),
        ("ARP from another link address", changed(11, 0x99)),
        ("ARP that claims the guest's address", frame(Packet { sender: GUEST, ..good })),
        ("ARP from beyond", frame(Packet { sender: Ipv4Addr::new(9, 9, 9, 9), ..good })),
        ("ARP from a group", frame(Packet { sender_mac: Mac::BROADCAST, ..good })),
    ]
}

/// A frame that is right.
pub fn any_right_frame(guest: Mac, random: &mut Random) -> Vec<u8> {
    match random.below(4) {
        0 => ping(guest, random.below(1400) as usize),
        1 => Packet::request(MAC, HOST, GUEST).to_vec(),
        2 => packet(guest, HOST, ipv4::UDP, &[0x40, 0, 0x23, 0x28, 0, 12, 0, 0, 1, 2, 3, 4]),
        _ => syn(guest, HOST, random.next() as u32),
    }
}

/// Changes some bytes, or the length; half of the frames get right sums again. The sender's own
/// addresses stay, so that nobody else's are learned by it.
pub fn mutate(frame: &mut Vec<u8>, random: &mut Random) {
    for _ in 0..1 + random.below(4) {
        let at = random.below(frame.len() as u64) as usize;
        frame[at] = random.next() as u8;
    }
    match random.below(10) {
        0 => frame.truncate(random.below(80) as usize),
        1 => frame.resize(frame.len() + random.below(60) as usize, 0),
        _ => {}
    }
    if random.below(2) == 0 {
        fix(frame);
    }
    if frame.len() >= 42 && frame[12..14] == [8, 6] {
        frame[6..12].copy_from_slice(&MAC.0);
        frame[22..28].copy_from_slice(&MAC.0);
    }
}
