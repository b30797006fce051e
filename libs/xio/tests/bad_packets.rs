//! Frames that nobody should send: runts, giants, wrong sums, forged sources, seeded noise.

mod wire;

use wire::{ADDRESSES, MACS, Pair, Random, Weather};
use xio::arp::{Resolver, Table};
use xio::checksum;
use xio::ethernet::{FRAME_MAX, Header, Mac, TYPE_ARP, TYPE_IPV4};
use xio::icmp;
use xio::ipv4::{self, Network};
use xio::stack::Counters;

const SECOND: u64 = 1_000_000;

fn frame(source: std::net::Ipv4Addr, protocol: u8, payload: &[u8]) -> Vec<u8> {
    let link = Header { destination: MACS[0], source: MACS[1], kind: TYPE_IPV4 };
    let ip = ipv4::Header { source, destination: ADDRESSES[0], protocol };
    let mut frame = link.to_bytes().to_vec();
    frame.extend_from_slice(&ip.to_bytes(payload.len() as u16));
    frame.extend_from_slice(payload);
    frame
}

/// A SYN from port 40000 to port 80, its sum right.
fn syn() -> Vec<u8> {
    let mut tcp = [0; 20];
    tcp[0..2].copy_from_slice(&40_000u16.to_be_bytes());
    tcp[3] = 80;
    tcp[12] = 5 << 4;
    tcp[13] = 2;
    tcp[14..16].copy_from_slice(&[0xff, 0xff]);
    let mut sealed = [ADDRESSES[1].octets(), ADDRESSES[0].octets(), [0, 6, 0, 20]].concat();
    sealed.extend_from_slice(&tcp);
    let sum = !checksum::sum(&sealed);
    tcp[16..18].copy_from_slice(&sum.to_be_bytes());
    frame(ADDRESSES[1], ipv4::TCP, &tcp)
}

/// What the first station counts when this frame arrives, and how many frames it answers.
fn counted(frame: Vec<u8>) -> (Counters, usize) {
    let mut pair = Pair::new(1, Weather::default());
    pair.stack(0).tcp_listen(80, 4).unwrap();
    pair.stations[0].port.arrived.push_back(frame);
    let station = &mut pair.stations[0];
    let (mut rx, mut tx) = station.port.halves();
    let lookup = |_| Some(MACS[1]);
    station.stack.poll(SECOND, &mut rx, &mut tx, &lookup);
    let mut counters = station.stack.counters();
    counters.received -= 1;
    counters.sent = 0;
    (counters, station.port.leaving.len())
}

#[test]
fn the_good_frame_is_answered() {
    assert_eq!(counted(syn()), (Counters::default(), 1));
}

#[test]
fn each_wrong_frame_is_dropped_for_its_reason() {
    let wrong = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut frame = syn();
        change(&mut frame);
        counted(frame)
    };
    let fix_ip = |frame: &mut Vec<u8>| {
        frame[24..26].fill(0);
        let sum = !checksum::sum(&frame[14..34]);
        frame[24..26].copy_from_slice(&sum.to_be_bytes());
    };
    let source = |address: [u8; 4]| {
        wrong(&|frame| {
            frame[26..30].copy_from_slice(&address);
            fix_ip(frame);
        })
    };
    let none = Counters::default();
    for len in 0..54 {
        let (counters, answers) = wrong(&|frame| frame.truncate(len));
        assert_eq!((counters, answers), (Counters { bad_size: 1, ..none }, 0), "{len} bytes");
    }
    let cases = [
        (wrong(&|frame| frame.resize(FRAME_MAX + 1, 0)), Counters { bad_size: 1, ..none }),
        (wrong(&|frame| frame[5] ^= 4), Counters { not_ours: 1, ..none }),
        (wrong(&|frame| frame[12] = 0x86), Counters { not_ours: 1, ..none }),
        (wrong(&|frame| frame[..6].fill(0xff)), Counters { not_ours: 1, ..none }),
        (wrong(&|frame| frame[6] |= 1), Counters { spoofed: 1, ..none }),
        (wrong(&|frame| frame[14] = 0x65), Counters { malformed: 1, ..none }),
        (wrong(&|frame| frame[14] = 0x44), Counters { malformed: 1, ..none }),
        (wrong(&|frame| frame[22] ^= 1), Counters { bad_checksum: 1, ..none }),
        (
            wrong(&|frame| {
                frame[20] = 0x20;
                fix_ip(frame);
            }),
            Counters { fragments: 1, ..none },
        ),
        (
            wrong(&|frame| {
                frame[33] = 77;
                fix_ip(frame);
            }),
            Counters { not_ours: 1, ..none },
        ),
        (wrong(&|frame| frame[46] = 4 << 4), Counters { malformed: 1, ..none }),
        (wrong(&|frame| frame[46] = 15 << 4), Counters { malformed: 1, ..none }),
        (source(ADDRESSES[0].octets()), Counters { spoofed: 1, ..none }),
        (source([127, 0, 0, 1]), Counters { spoofed: 1, ..none }),
        (source([224, 0, 0, 1]), Counters { spoofed: 1, ..none }),
        (source([255; 4]), Counters { spoofed: 1, ..none }),
        (source([10, 0, 0, 255]), Counters { spoofed: 1, ..none }),
        (source([0; 4]), Counters { spoofed: 1, ..none }),
        (wrong(&|frame| frame[50] ^= 1), Counters { bad_checksum: 1, ..none }),
    ];
    for (at, (found, expected)) in cases.into_iter().enumerate() {
        assert_eq!(found, (expected, 0), "case {at}");
    }
}

/// A SYN from this address, which answers nothing.
fn forged_syn(forged: std::net::Ipv4Addr) -> Vec<u8> {
    let mut frame = syn();
    let ip = ipv4::Header { source: forged, destination: ADDRESSES[0], protocol: 6 };
    frame[14..34].copy_from_slice(&ip.to_bytes(20));
    let mut sealed = [forged.octets(), ADDRESSES[0].octets(), [0, 6, 0, 20]].concat();
    frame[50..52].fill(0);
    sealed.extend_from_slice(&frame[34..54]);
    let sum = !checksum::sum(&sealed);
    frame[50..52].copy_from_slice(&sum.to_be_bytes());
    frame
}

#[test]
fn a_flood_of_handshakes_is_bounded_and_passes() {
    let mut pair = Pair::new(1, Weather::default());
    let listener = pair.stack(0).tcp_listen(80, 4).unwrap();
    for round in 0..2000u32 {
        let frame = forged_syn(std::net::Ipv4Addr::from_bits(0x0b00_0000 + round));
        pair.stations[0].port.arrived.push_back(frame);
        pair.now_us += 1000;
        pair.work();
        assert!(pair.stack(0).tcp_counts().0 <= 4);
    }
    let server = std::net::SocketAddrV4::new(ADDRESSES[0], 80);
    pair.stack(1).tcp_connect(server, 40_000).unwrap();
    assert!(pair.until(30 * SECOND, |pair| pair.stack(0).tcp_accept(listener).is_ok()));
}

/// Also where the table is full of handshakes before the listener's queue is, as other connections
/// are there; and while two of them a second go on coming.
#[test]
fn a_flood_of_handshakes_keeps_nobody_out() {
    let few = xio::stack::Config { connections: 8, ..wire::config(0) };
    let mut pair = Pair::with(1, Weather::default(), [few, wire::config(1)]);
    let listener = pair.stack(0).tcp_listen(80, 8).unwrap();
    let server = std::net::SocketAddrV4::new(ADDRESSES[0], 80);
    pair.stack(1).tcp_connect(server, 40_000).unwrap();
    assert!(pair.until(SECOND, |pair| pair.stack(0).tcp_accept(listener).is_ok()));
    let mut round = 0;
    let mut flood = |pair: &mut Pair| {
        round += 1;
        let frame = forged_syn(std::net::Ipv4Addr::from_bits(0x0b00_0000 + round));
        pair.stations[0].port.arrived.push_back(frame);
        pair.work();
    };
    (0..100).for_each(|_| flood(&mut pair));
    pair.stack(1).tcp_connect(server, 40_001).unwrap();
    let came = (0..20).any(|_| {
        flood(&mut pair);
        pair.until(SECOND / 2, |pair| pair.stack(0).tcp_accept(listener).is_ok())
    });
    assert!(came, "{:?}", pair.stack(0).counters());
}

/// Changes some bytes, the length, or nothing but the sums.
fn mutate(random: &mut Random, frame: &mut Vec<u8>) {
    for _ in 0..random.below(4) {
        if !frame.is_empty() {
            let at = random.below(frame.len() as u64) as usize;
            frame[at] = match random.below(4) {
                0 => 0,
                1 => 0xff,
                2 => frame[at] ^ 1 << random.below(8),
                _ => random.next() as u8,
            };
        }
    }
    match random.below(12) {
        0 => frame.truncate(random.below(80) as usize),
        1 => frame.extend(random.bytes(40)),
        _ => {}
    }
    // Half of them get past the sums, to reach what lies behind.
    if random.chance(50) && frame.len() >= 54 && frame[12..14] == [8, 0] {
        let header = usize::from(frame[14] & 15) * 4;
        let end = (14 + usize::from(u16::from_be_bytes([frame[16], frame[17]]))).min(frame.len());
        if (20..=end.saturating_sub(34)).contains(&header) {
            frame[24..26].fill(0);
            let sum = !checksum::sum(&frame[14..14 + header]);
            frame[24..26].copy_from_slice(&sum.to_be_bytes());
            let at = 14 + header;
            let mut sealed = frame[26..34].to_vec();
            sealed.extend_from_slice(&[0, frame[23]]);
            sealed.extend_from_slice(&((end - at) as u16).to_be_bytes());
            if end >= at + 20 {
                frame[at + 16..at + 18].fill(0);
                sealed.extend_from_slice(&frame[at..end]);
                let sum = !checksum::sum(&sealed);
                frame[at + 16..at + 18].copy_from_slice(&sum.to_be_bytes());
            }
        }
    }
}

#[test]
fn mutated_frames_never_panic_and_live_connections_go_on_ending() {
    for seed in 0..30 {
        let mut random = Random::new(seed);
        let mut pair = Pair::new(seed, Weather::default());
        let listener = pair.stack(0).tcp_listen(80, 8).unwrap();
        pair.stack(0).udp_bind(53).unwrap();
        let udp = pair.stack(1).udp_bind(54).unwrap();
        let server = std::net::SocketAddrV4::new(ADDRESSES[0], 80);
        let dns = std::net::SocketAddrV4::new(ADDRESSES[0], 53);
        let mut seen: Vec<Vec<u8>> = vec![syn()];
        let mut clients = Vec::new();
        for round in 0..400 {
            if round % 40 == 0
                && let Ok(client) = pair.stack(1).tcp_connect(server, 30_000 + round)
            {
                clients.push(client);
            }
            for client in &clients {
                let _ = pair.stack(1).tcp_send(*client, &random.bytes(500));
            }
            let _ = pair.stack(1).udp_send(udp, &random.bytes(50), dns);
            while let Ok(accepted) = pair.stack(0).tcp_accept(listener) {
                if random.chance(30) {
                    let _ = pair.stack(0).tcp_close(accepted);
                }
            }
            for which in 0..2 {
                for _ in 0..4 {
                    let pick = random.below(seen.len() as u64) as usize;
                    let mut frame = seen[pick].clone();
                    mutate(&mut random, &mut frame);
                    pair.stations[which].port.arrived.push_back(frame);
                }
                seen.extend(pair.stations[which].port.arrived.iter().take(8).cloned());
            }
            if seen.len() > 200 {
                seen.drain(1..100);
            }
            pair.advance();
        }
        // Whatever happened, new connections are served.
        pair.until(5 * SECOND, |_| false);
        while pair.stack(0).tcp_accept(listener).is_ok() {}
        let client = pair.stack(1).tcp_connect(server, 39_999).unwrap();
        let mut accepted = None;
        let served = pair.until(60 * SECOND, |pair| {
            while let Ok(id) = pair.stack(0).tcp_accept(listener) {
                accepted = Some(id);
            }
            accepted.is_some_and(|id| {
                pair.stack(0).tcp_peer(id).is_some_and(|peer| peer.port() == 39_999)
            })
        });
        assert!(served, "seed {seed}");
        let _ = pair.stack(1).tcp_send(client, b"alive");
    }
}

#[test]
fn noise_never_panics_the_small_responders() {
    let words: Vec<_> = (0..512).map(|_| std::sync::atomic::AtomicU64::new(0)).collect();
    let network = Network { address: ADDRESSES[0], prefix: 24, gateway: None };
    let mut resolver = Resolver::new(network, MACS[0], Table::over(&words).create());
    let mut random = Random::new(9);
    let mut out = [0; FRAME_MAX];
    for round in 0..100_000u64 {
        let mut frame = if random.chance(50) {
            syn()
        } else {
            let asked = xio::arp::Packet::request(MACS[1], ADDRESSES[1], ADDRESSES[0]);
            assert_eq!(Header::split(&asked).unwrap().0.kind, TYPE_ARP);
            asked.to_vec()
        };
        mutate(&mut random, &mut frame);
        resolver.handle(&frame, round);
        icmp::reply_to_echo(&network, MACS[0], &frame, &mut out);
    }
    let reader = Table::over(&words).open().unwrap();
    for place in 0..reader.places() {
        let Some(entry) = reader.place(place) else { continue };
        assert!(network.is_local(entry.address) && network.is_believable(entry.address));
        assert!(entry.mac.is_unicast() && entry.mac != Mac::UNKNOWN);
    }
}
