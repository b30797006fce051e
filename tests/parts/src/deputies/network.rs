//! The network is user 0's and its group's.
//!
//! The kernel gives ports to no other user, whatever library that has, and ExOS says so early.

use super::{end, failed, nobody};
use crate::{Seen, Test, expect, internet, libc};
use abi::call::Call;
use abi::error::Error;
use abi::filter::{FilterAtom, FilterProgram};
use abi::ring::RingEntry;
use abi::word::UserAddress;
use std::net::{TcpStream, UdpSocket};

/// What holds.
pub const TESTS: [Test; 2] = [
    ("the_network_is_its_groups", the_network_is_its_groups),
    ("the_kernel_gives_ports_to_the_networks_group", the_kernel_gives_ports_to_the_networks_group),
];

/// The port that is asked for.
const PORT: u16 = 9000;

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
        if !libc::become_user(super::NOBODY) {
            return 100;
        }
        claim(door).map_or(101, |granted| i32::from(granted != 0))
    }));
    expect(status == 0, || format!("status {status:#x} (0x100: a port was given)"))?;
    let own = claim(door);
    expect(own.is_some_and(|slots| slots != 0), || format!("user 0 gets none: {own:?}"))?;
    Ok(String::new())
}
