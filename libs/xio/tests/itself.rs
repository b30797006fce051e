//! A station that speaks to itself, by its own address and by the loopback one.

mod wire;

use std::net::{Ipv4Addr, SocketAddrV4};

use wire::{ADDRESSES, MACS, Port, config};
use xio::ethernet::Mac;
use xio::stack::{Error, Stack, TcpState};

/// Lets the stack work until nothing leaves it; what it sends is what it receives.
fn settle(stack: &mut Stack, port: &mut Port, now_us: &mut u64) {
    for _ in 0..20 {
        *now_us += 1000;
        // Nobody else's link address is ever asked for.
        let nobody = |_: Ipv4Addr| -> Option<Mac> { panic!("a packet went out") };
        let (mut rx, mut tx) = port.halves();
        stack.poll(*now_us, &mut rx, &mut tx, &nobody);
        for frame in port.leaving.drain(..) {
            assert_eq!((&frame[..6], &frame[6..12]), (&MACS[0].0[..], &MACS[0].0[..]));
            port.arrived.push_back(frame);
        }
    }
}

#[test]
fn streams_to_both_addresses() {
    for address in [ADDRESSES[0], Ipv4Addr::LOCALHOST] {
        let (mut stack, mut port, mut now_us) = (Stack::new(config(0)), Port::new(), 1_000_000);
        let listener = stack.tcp_listen(80, 4).unwrap();
        let client = stack.tcp_connect(SocketAddrV4::new(address, 80), 40_000).unwrap();
        settle(&mut stack, &mut port, &mut now_us);
        let server = stack.tcp_accept(listener).unwrap();
        assert_eq!(stack.tcp_peer(server), Some(SocketAddrV4::new(address, 40_000)));
        assert_eq!(stack.tcp_local(server), Some(SocketAddrV4::new(address, 80)));
        assert_eq!(stack.tcp_local(client), Some(SocketAddrV4::new(address, 40_000)));
        assert_eq!(stack.tcp_send(client, b"to itself"), Ok(9));
        settle(&mut stack, &mut port, &mut now_us);
        let mut bytes = [0; 20];
        assert_eq!(stack.tcp_receive(server, &mut bytes), Ok(9));
        assert_eq!(&bytes[..9], b"to itself");
    }
}

/// Bytes are written where they wait to be sent, until there is no room; when one was taken in and
/// flushed, others may be written.
#[test]
fn bytes_are_written_in_place_while_there_is_room() {
    let (mut stack, mut port, mut now_us) = (Stack::new(config(0)), Port::new(), 1_000_000);
    let listener = stack.tcp_listen(80, 4).unwrap();
    let to = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 80);
    let client = stack.tcp_connect(to, 40_000).unwrap();
    settle(&mut stack, &mut port, &mut now_us);
    let server = stack.tcp_accept(listener).unwrap();
    let room = stack.tcp_room(client);
    let (mut sent, mut got) = (0, 0);
    let byte = |at: usize| (at % 251) as u8;
    for _ in 0..3 {
        loop {
            let written = stack.tcp_send_with(client, |room| {
                room.iter_mut().enumerate().for_each(|(at, place)| *place = byte(sent + at));
                (room.len(), room.len())
            });
            match written {
                Ok(count) => sent += count,
                Err(error) => break assert_eq!(error, Error::WouldBlock),
            }
        }
        assert_eq!(sent - got, room, "the queue is full, to its last byte");
        while got < sent {
            settle(&mut stack, &mut port, &mut now_us);
            assert!(!stack.is_due(now_us) || stack.tcp_arrived(server) > 0);
            let taken = stack.tcp_receive_with(server, |arrived| {
                assert!(arrived.iter().enumerate().all(|(at, have)| *have == byte(got + at)));
                (arrived.len(), arrived.len())
            });
            got += taken.unwrap_or(0);
        }
        settle(&mut stack, &mut port, &mut now_us);
    }
    stack.tcp_abort(client).unwrap();
    let written = stack.tcp_send_with(client, |room| (room.len(), ()));
    assert_eq!(written, Err(Error::NoSuchSocket));
}

#[test]
fn datagrams_to_both_addresses() {
    for address in [ADDRESSES[0], Ipv4Addr::LOCALHOST] {
        let (mut stack, mut port, mut now_us) = (Stack::new(config(0)), Port::new(), 1_000_000);
        let [one, other] = [53, 54].map(|port| stack.udp_bind(port).unwrap());
        stack.udp_send(one, b"word", SocketAddrV4::new(address, 54)).unwrap();
        settle(&mut stack, &mut port, &mut now_us);
        let mut bytes = [0; 20];
        let received = stack.udp_receive(other, &mut bytes);
        assert_eq!(received, Ok((4, SocketAddrV4::new(address, 53))));
    }
}

#[test]
fn what_nobody_takes_is_refused() {
    let (mut stack, mut port, mut now_us) = (Stack::new(config(0)), Port::new(), 1_000_000);
    let client = stack.tcp_connect(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 81), 40_000).unwrap();
    let (mut rx, mut tx) = port.halves();
    stack.poll(now_us, &mut rx, &mut tx, &|_: Ipv4Addr| None);
    let answer = stack.refusal(&port.leaving.pop_front().unwrap()).unwrap();
    assert_eq!(stack.refusal(&answer), None, "a reset is not answered");
    port.arrived.push_back(answer);
    settle(&mut stack, &mut port, &mut now_us);
    assert_eq!(stack.tcp_state(client), Some(TcpState::Closed));
    assert_eq!(stack.tcp_failure(client), Some(Error::Refused));
}

#[test]
fn the_wire_cannot_speak_for_the_station() {
    for address in [ADDRESSES[0], Ipv4Addr::LOCALHOST] {
        let (mut stack, mut port, mut now_us) = (Stack::new(config(0)), Port::new(), 1_000_000);
        stack.tcp_listen(80, 4).unwrap();
        stack.tcp_connect(SocketAddrV4::new(address, 80), 40_000).unwrap();
        let (mut rx, mut tx) = port.halves();
        stack.poll(now_us, &mut rx, &mut tx, &|_: Ipv4Addr| None);
        let mut forged = port.leaving.pop_front().unwrap();
        forged[6..12].copy_from_slice(&MACS[1].0);
        port.arrived.push_back(forged);
        settle(&mut stack, &mut port, &mut now_us);
        assert_eq!(stack.counters().spoofed, 1);
    }
}
