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
