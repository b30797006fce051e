//! The network is user 0's and its group's.
//!
//! The kernel gives ports to no other user, whatever library that has, and ExOS says so early.

use super::heirs::keepers;
use super::{NOBODY, end, failed, nobody, store};
use crate::peers::regions;
use crate::{Seen, Test, expect, internet, libc};
use abi::call::Call;
use abi::error::Error;
use abi::filter::{COPY, FilterAtom, FilterProgram};
use abi::id::EnvId;
use abi::published::{InterfaceRecord, Table};
use abi::region::WordAt;
use abi::ring::{Piece, RingEntry};
use abi::word::UserAddress;
use std::io::Write;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::atomic::AtomicU64;
use std::time::Duration;

/// What holds.
pub const TESTS: [Test; 6] = [
    ("the_network_is_its_groups", the_network_is_its_groups),
    ("the_kernel_gives_ports_to_the_networks_group", the_kernel_gives_ports_to_the_networks_group),
    ("members_do_not_overhear", members_do_not_overhear),
    ("members_answer_for_no_other_port", members_answer_for_no_other_port),
    ("shared_sockets_end_with_their_users", shared_sockets_end_with_their_users),
    ("keepers_sleep_while_peers_take_nothing", keepers_sleep_while_peers_take_nothing),
];

/// The port that is asked for.
const PORT: u16 = 9000;
/// What user 0 sends to itself.
const SECRET: &[u8] = b"of user 0 for user 0";
/// The group of those that have the network.
const NETWORK_GROUP: u32 = 3003;
/// How long processes and keepers are looked at.
const LOOKED: Duration = Duration::from_millis(500);

/// A user outside of the network's group is told that it has none, by socket(2), and takes no port.
fn the_network_is_its_groups(_: door::Door) -> Seen {
    let attacker = nobody(|| {
        let denied = |error: std::io::Error| error.kind() == std::io::ErrorKind::PermissionDenied;
        let sockets = internet::socket().is_err_and(denied)
            && UdpSocket::bind(("0.0.0.0", PORT)).is_err_and(denied)
            && TcpStream::connect("127.0.0.1:9").is_err_and(denied);
        i32::from(!sockets)
    })?;
    let socket = UdpSocket::bind(("0.0.0.0", PORT)).map_err(failed);
    end(attacker)?;
    socket.map(|_| String::new())
}

/// Datagrams over IPv4 to [`PORT`].
fn filter(ring: u64) -> FilterProgram {
    let atom = |offset, mask, value| FilterAtom { offset, zero: 0, mask, value };
    let mut program = FilterProgram { count: 3, ring, ..FilterProgram::default() };
    program.atoms[0] = atom(12, 0xffff_0000, 0x0800_0000);
    program.atoms[1] = atom(20, 0xff, 17);
    program.atoms[2] = atom(34, 0xffff, PORT.into());
    program
}

/// Which answer a user outside of the network's group gets that claims a port by kernel calls of
/// its own, with any of its capabilities: a bit for each slot in which it is not a refusal.
fn claim(door: door::Door) -> Option<i32> {
    let page = libc::private(2);
    // They are there.
    libc::bytes(page, 8192).fill(1);
    let entry = RingEntry { owner: page, buffer: page + 4096, capacity: 4096, zero: 0 };
    let entries = UserAddress(&raw const entry as u64);
    let ring = libc::kernel(door, Call::RingAlloc { entries, count: 1 }).ok()?;
    let program = filter(ring);
    let insert = Call::FilterInsert { program: UserAddress(&raw const program as u64) };
    let is_refused = |slot: &u8| {
        let answer = libc::kernel_by(door, insert, *slot);
        matches!(answer, Err((Error::NotPermitted | Error::NoSuchCapability, _)))
    };
    let granted = (0..16).filter(|slot| !is_refused(slot));
    Some(granted.fold(0, |all, slot| all | 1 << slot))
}

/// Whatever library it has, a user outside of the network's group takes no port.
fn the_kernel_gives_ports_to_the_networks_group(door: door::Door) -> Seen {
    let status = libc::wait(libc::spawn(|| {
        if !libc::become_user(NOBODY) {
            return 100;
        }
        claim(door).map_or(101, |granted| i32::from(granted != 0))
    }));
    expect(status == 0, || format!("status {status:#x} (0x100: a port was given)"))?;
    let own = claim(door);
    expect(own.is_some_and(|slots| slots != 0), || format!("user 0 gets none: {own:?}"))?;
    Ok(String::new())
}

/// A ring of one buffer, in the two pages at `page`: the first one has its entry's word.
fn one_buffer(door: door::Door, page: u64) -> Option<u64> {
    // They are there.
    libc::bytes(page, 8192).fill(1);
    libc::bytes(page, 8).fill(0);
    let entry = RingEntry { owner: page, buffer: page + 4096, capacity: 4096, zero: 0 };
    let entries = UserAddress(&raw const entry as u64);
    libc::kernel(door, Call::RingAlloc { entries, count: 1 }).ok()
}

/// A program with the network gets what is sent to its own ports, and no copies of other packets.
fn members_do_not_overhear(door: door::Door) -> Seen {
    // Of its own: the filter of the test before stays.
    const HEARD: u16 = 5606;
    let receiver = UdpSocket::bind(("127.0.0.1", HEARD)).map_err(failed)?;
    let sender = UdpSocket::bind("127.0.0.1:0").map_err(failed)?;
    let page = libc::private(2);
    let attacker = libc::spawn(|| {
        if !libc::become_user_in(NOBODY, NETWORK_GROUP) {
            return 1;
        }
        let Some(ring) = one_buffer(door, page) else { return 2 };
        let program = FilterProgram { flags: COPY, ring, ..FilterProgram::default() };
        let insert = Call::FilterInsert { program: UserAddress(&raw const program as u64) };
        let has = |slot: &u8| libc::kernel_by(door, insert, *slot).is_ok();
        let listens = (0..16).filter(has).count();
        std::thread::sleep(2 * LOOKED);
        let bytes = libc::bytes(page + 4096, 4096);
        let secret = bytes.windows(SECRET.len()).any(|bytes| bytes == SECRET);
        i32::from(secret) * 4 + i32::from(listens > 0) * 8
    });
    std::thread::sleep(LOOKED);
    sender.send_to(SECRET, ("127.0.0.1", HEARD)).map_err(failed)?;
    let arrived = receiver.recv(&mut [0; 64]).map_err(failed)?;
    let status = libc::wait(attacker);
    expect(arrived == SECRET.len(), || "user 0 is not sent it".into())?;
    expect(status & 0x400 == 0, || "a user reads what user 0 sends to itself".into())?;
    expect(status == 0, || format!("the listener ended with {status:#x}"))?;
    Ok(String::new())
}

/// A datagram of a port of this machine to another one, as it travels.
fn datagram(link: &[u8], ports: [u16; 2], text: &[u8]) -> Vec<u8> {
    const LOOPBACK: [u8; 4] = [127, 0, 0, 1];
    let len = |head: usize| ((head + text.len()) as u16).to_be_bytes();
    let mut packet = [&[0x45, 0], &len(28)[..], &[0, 0, 0, 0, 64, 17, 0, 0]].concat();
    packet.extend([LOOPBACK, LOOPBACK].concat());
    let words = packet.chunks(2).map(|word| u32::from(word[0]) << 8 | u32::from(word[1]));
    let sum: u32 = words.sum();
    let sum = !((sum & 0xffff) + (sum >> 16)) as u16;
    packet[10..12].copy_from_slice(&sum.to_be_bytes());
    // Without a sum of its own.
    let head = [&ports.map(u16::to_be_bytes).concat()[..], &len(8), &[0, 0]].concat();
    [link, link, &[8, 0], &packet, &head, text].concat()
}

/// Sends a frame by the kernel; `None`: it was refused.
fn send_frame(door: door::Door, frame: &[u8]) -> Option<u64> {
    let piece = Piece { address: frame.as_ptr() as u64, len: frame.len() as u64 };
    let pending = AtomicU64::new(1);
    let words = [&raw const piece as u64, &raw const pending as u64];
    let [pieces, pending] = words.map(UserAddress);
    let call = Call::NetTransmit { interface: 0, pieces, count: 1, pending };
    (0..16).find_map(|slot| libc::kernel_by(door, call, slot).ok())
}

/// A program with the network sends nothing from the port of another user's server to a client on
/// the same machine.
fn members_answer_for_no_other_port(door: door::Door) -> Seen {
    const SERVER: u16 = 5607;
    const CLIENT: u16 = 5608;
    let server = UdpSocket::bind(("127.0.0.1", SERVER)).map_err(failed)?;
    let client = UdpSocket::bind(("127.0.0.1", CLIENT)).map_err(failed)?;
    client.connect(("127.0.0.1", SERVER)).map_err(failed)?;
    let attacker = libc::spawn(|| {
        if !libc::become_user_in(NOBODY, NETWORK_GROUP) {
            return 1;
        }
        let mac = xok::published::record::<InterfaceRecord>(Table::Interfaces, 0);
        let Some(mac) = mac.map(|record| record.mac.to_le_bytes()) else { return 2 };
        let frame = datagram(&mac[..6], [SERVER, CLIENT], b"forged");
        i32::from(send_frame(door, &frame).is_none()) * 3
    });
    let status = libc::wait(attacker);
    expect(status == 0, || format!("the sender ended with {status:#x}"))?;
    // What arrives first arrives first.
    server.send_to(SECRET, ("127.0.0.1", CLIENT)).map_err(failed)?;
    let mut bytes = [0; 64];
    let count = client.recv(&mut bytes).map_err(failed)?;
    let answer = &bytes[..count];
    expect(answer == SECRET, || {
        format!("the client reads {:?}", answer.escape_ascii().to_string())
    })?;
    Ok(String::new())
}

/// A socket that processes share ends with the last of them, whatever one of another user's has
/// left there: less than the head of a datagram, which is none.
fn shared_sockets_end_with_their_users(door: door::Door) -> Seen {
    const SHARED: u16 = 5604;
    let status = libc::wait(libc::spawn(|| {
        let before = regions();
        let Ok(shared) = UdpSocket::bind(("0.0.0.0", SHARED)) else { return 1 };
        let Ok(listener) = TcpListener::bind(("0.0.0.0", SHARED)) else { return 1 };
        let attacker = libc::wait(libc::spawn(|| {
            if !libc::become_user(NOBODY) {
                return 1;
            }
            let fresh: Vec<u64> = regions().difference(&before).copied().collect();
            let head = WordAt { offset: unix::ring::HEAD, value: 4 };
            let stored = fresh.iter().filter(|&&region| store(door, region, head));
            if stored.count() == 0 { 2 } else { 0 }
        }));
        if attacker != 0 {
            return 2;
        }
        // What is wrong with either is an error, and no wait.
        let is_error = |error: std::io::Error| error.raw_os_error() == Some(5);
        let readers = [
            libc::spawn(|| i32::from(!shared.recv(&mut [0; 8]).is_err_and(is_error))),
            libc::spawn(|| i32::from(!listener.accept().is_err_and(is_error))),
        ];
        std::thread::sleep(LOOKED);
        readers.iter().for_each(|&reader| libc::send(reader, 9));
        let [datagrams, offers] = readers.map(libc::wait);
        if datagrams != 0 || offers != 0 {
            return 4 + i32::from(datagrams != 0) + 2 * i32::from(offers != 0);
        }
        drop((shared, listener));
        i32::from(UdpSocket::bind(("0.0.0.0", SHARED)).is_err()) * 3
    }));
    expect(status != 0x300, || "user 0's port is taken for ever".into())?;
    let waits = |bit: i32| status & (0x400 | bit) == 0x400 | bit;
    expect(!waits(0x100), || "user 0 waits for a part of a datagram for ever".into())?;
    expect(!waits(0x200), || "user 0 waits for a part of an offer for ever".into())?;
    expect(status == 0, || format!("user 0's process ended with {status:#x}"))?;
    Ok(String::new())
}

/// Nanoseconds that keepers of sockets have run.
fn run_by(known: &[EnvId]) -> u64 {
    let fresh = keepers().filter(|keeper| !known.contains(keeper));
    fresh.filter_map(xok::published::env).map(|record| record.run_ns).sum()
}

/// What has no user any more and waits for a peer that takes nothing costs no time meanwhile.
fn keepers_sleep_while_peers_take_nothing(_: door::Door) -> Seen {
    const SERVER: (&str, u16) = ("127.0.0.1", 5605);
    let known: Vec<EnvId> = keepers().collect();
    let listener = TcpListener::bind(SERVER).map_err(failed)?;
    let client = libc::spawn(|| {
        let Ok(_held) = TcpStream::connect(SERVER) else { return 1 };
        std::thread::sleep(Duration::from_secs(60));
        0
    });
    let (connection, _) = listener.accept().map_err(failed)?;
    let server = libc::spawn(|| {
        // More than the keeper, the stacks and the client have room for.
        let piece = [0; 4096];
        i32::from((0..1024).all(|_| (&connection).write_all(&piece).is_ok()))
    });
    drop((listener, connection));
    std::thread::sleep(LOOKED);
    let stalls = libc::is_alive(server);
    libc::send(server, 9);
    libc::wait(server);
    std::thread::sleep(LOOKED);
    let before = run_by(&known);
    std::thread::sleep(LOOKED);
    let ran = Duration::from_nanos(run_by(&known).saturating_sub(before));
    let kept = keepers().any(|keeper| !known.contains(&keeper));
    libc::send(client, 9);
    libc::wait(client);
    expect(stalls && kept, || format!("no keeper waits: {stalls} {kept}"))?;
    expect(ran < LOOKED / 5, || format!("its keeper has run for {ran:?} of {LOOKED:?}"))?;
    Ok(String::new())
}
