//! Two stacks over a wire that loses, repeats and reorders: what arrives is what was sent.

mod wire;

use std::net::{Ipv4Addr, SocketAddrV4};

use wire::{ADDRESSES, MACS, Pair, Port, Random, Weather, config};
use xio::stack::{Config, Error, ListenerId, Stack, TcpId, TcpState};

const SECOND: u64 = 1_000_000;
const PORT: u16 = 80;

fn server() -> SocketAddrV4 {
    SocketAddrV4::new(ADDRESSES[0], PORT)
}

/// One direction of one connection.
struct Flow {
    bytes: Vec<u8>,
    sent: usize,
    arrived: Vec<u8>,
    ended: bool,
}

impl Flow {
    fn new(random: &mut Random, length: usize) -> Flow {
        Flow { bytes: random.bytes(length), sent: 0, arrived: Vec::new(), ended: false }
    }

    fn pump(&mut self, pair: &mut Pair, from: (usize, TcpId), to: Option<(usize, TcpId)>) {
        if self.sent < self.bytes.len() {
            match pair.stack(from.0).tcp_send(from.1, &self.bytes[self.sent..]) {
                Ok(taken) => self.sent += taken,
                Err(error) => assert_eq!(error, Error::WouldBlock),
            }
            if self.sent == self.bytes.len() {
                pair.stack(from.0).tcp_shutdown(from.1).unwrap();
            }
        }
        let Some(to) = to else { return };
        let mut chunk = [0; 3000];
        while !self.ended {
            match pair.stack(to.0).tcp_receive(to.1, &mut chunk) {
                Ok(0) => self.ended = true,
                Ok(taken) => self.arrived.extend_from_slice(&chunk[..taken]),
                Err(error) => {
                    assert_eq!(error, Error::WouldBlock);
                    break;
                }
            }
        }
    }
}

/// `connections` at once, each way `length` bytes; the simulated time it took.
fn exchange(seed: u64, weather: Weather, connections: usize, length: usize) -> u64 {
    let mut pair = Pair::new(seed, weather);
    let listener = pair.stack(0).tcp_listen(PORT, connections).unwrap();
    let mut random = Random::new(seed + 1);
    let mut clients = Vec::new();
    for n in 0..connections {
        let id = pair.stack(1).tcp_connect(server(), 40_000 + n as u16).unwrap();
        let flows = [Flow::new(&mut random, length), Flow::new(&mut random, length)];
        clients.push((id, None::<TcpId>, flows));
    }
    let started = pair.now_us;
    let done = pair.until(3600 * SECOND, |pair| {
        while let Ok(accepted) = pair.stack(0).tcp_accept(listener) {
            let peer = pair.stack(0).tcp_peer(accepted).unwrap();
            let client = &mut clients[usize::from(peer.port()) - 40_000];
            assert_eq!(client.1.replace(accepted), None);
        }
        for (client, server, [up, down]) in &mut clients {
            up.pump(pair, (1, *client), server.map(|id| (0, id)));
            if let Some(server) = *server {
                down.pump(pair, (0, server), Some((1, *client)));
            }
        }
        clients.iter().all(|(_, _, flows)| flows.iter().all(|flow| flow.ended))
    });
    assert!(done, "seed {seed} did not come to an end by {} s", pair.now_us / SECOND);
    for (client, server, [up, down]) in &clients {
        assert!(up.bytes == up.arrived && down.bytes == down.arrived, "seed {seed}");
        pair.stack(1).tcp_close(*client).unwrap();
        pair.stack(0).tcp_close(server.unwrap()).unwrap();
    }
    let took = pair.now_us - started;
    assert!(pair.until(300 * SECOND, |pair| (0..2).all(|n| pair.stack(n).tcp_counts().0 == 0)));
    took
}

#[test]
fn a_clear_wire_carries_both_ways() {
    let took = exchange(1, Weather::default(), 1, 1_000_000);
    assert!(took < 5 * SECOND, "{took} us");
}

#[test]
fn lossy_repeating_reordering_wires_carry_every_byte() {
    for seed in 0..40 {
        let mut random = Random::new(seed);
        let weather =
            Weather { loss: random.below(15), repeat: random.below(10), delay: random.below(30) };
        exchange(seed, weather, 1 + random.below(4) as usize, 30_000);
    }
}

#[test]
fn twenty_connections_at_once() {
    exchange(7, Weather { loss: 3, repeat: 2, delay: 10 }, 20, 20_000);
}

fn connected(pair: &mut Pair, port: u16) -> (ListenerId, TcpId, TcpId) {
    let listener = pair.stack(0).tcp_listen(PORT, 4).unwrap();
    let client = pair.stack(1).tcp_connect(server(), port).unwrap();
    let mut accepted = None;
    assert!(pair.until(SECOND, |pair| {
        accepted = accepted.or(pair.stack(0).tcp_accept(listener).ok());
        accepted.is_some() && pair.stack(1).tcp_state(client) == Some(TcpState::Established)
    }));
    (listener, client, accepted.unwrap())
}

#[test]
fn a_port_without_listener_refuses() {
    let mut pair = Pair::new(1, Weather::default());
    let client = pair.stack(1).tcp_connect(server(), 40_000).unwrap();
    assert!(pair.until(SECOND, |pair| pair.stack(1).tcp_failure(client).is_some()));
    assert_eq!(pair.stack(1).tcp_failure(client), Some(Error::Refused));
    assert_eq!(pair.stack(1).tcp_send(client, b"x"), Err(Error::Refused));
    assert_eq!(pair.stack(1).tcp_receive(client, &mut [0]), Err(Error::Refused));
}

#[test]
fn a_silent_peer_times_out() {
    let mut pair = Pair::new(1, Weather { loss: 100, ..Weather::default() });
    let client = pair.stack(1).tcp_connect(server(), 40_000).unwrap();
    assert!(pair.until(200 * SECOND, |pair| pair.stack(1).tcp_failure(client).is_some()));
    assert_eq!(pair.stack(1).tcp_failure(client), Some(Error::TimedOut));
}

#[test]
fn an_idle_connection_lives_on() {
    let mut pair = Pair::new(1, Weather::default());
    let (_, client, accepted) = connected(&mut pair, 40_000);
    pair.now_us += 3 * 3600 * SECOND;
    pair.work();
    assert_eq!(pair.stack(1).tcp_send(client, b"still there?"), Ok(12));
    let mut bytes = [0; 12];
    assert!(pair.until(SECOND, |pair| pair.stack(0).tcp_receive(accepted, &mut bytes) == Ok(12)));
    assert_eq!(&bytes, b"still there?");
}

#[test]
fn a_peer_that_vanishes_is_given_up() {
    let mut pair = Pair::new(1, Weather::default());
    let (_, client, _) = connected(&mut pair, 40_000);
    pair.weather.loss = 100;
    pair.stack(1).tcp_send(client, b"anyone?").unwrap();
    assert!(pair.until(900 * SECOND, |pair| pair.stack(1).tcp_failure(client).is_some()));
    assert_eq!(pair.stack(1).tcp_failure(client), Some(Error::TimedOut));
    pair.stack(1).tcp_close(client).unwrap();
    pair.until(SECOND, |_| false);
    assert_eq!(pair.stack(1).tcp_counts(), (0, 0));
}

#[test]
fn an_abort_is_seen_as_a_reset() {
    let mut pair = Pair::new(1, Weather::default());
    let (_, client, accepted) = connected(&mut pair, 40_000);
    pair.stack(0).tcp_abort(accepted).unwrap();
    assert!(pair.until(SECOND, |pair| pair.stack(1).tcp_failure(client).is_some()));
    assert_eq!(pair.stack(1).tcp_receive(client, &mut [0]), Err(Error::Reset));
    assert_eq!(pair.stack(0).tcp_send(accepted, b"x"), Err(Error::NoSuchSocket));
    assert_eq!(pair.stack(0).tcp_counts(), (0, 0));
}

#[test]
fn closing_with_unread_bytes_is_a_reset() {
    let mut pair = Pair::new(1, Weather::default());
    let (_, client, accepted) = connected(&mut pair, 40_000);
    pair.stack(1).tcp_send(client, b"never read").unwrap();
    assert!(pair.until(SECOND, |pair| pair.stack(0).tcp_readable(accepted)));
    pair.stack(0).tcp_close(accepted).unwrap();
    assert!(pair.until(SECOND, |pair| pair.stack(1).tcp_failure(client).is_some()));
}

/// Nor is a peer that sends to a closed connection left to wait for room (RFC 1122 §4.2.2.13).
#[test]
fn bytes_behind_a_close_are_a_reset() {
    let mut pair = Pair::new(1, Weather::default());
    let (_, client, accepted) = connected(&mut pair, 40_000);
    pair.stack(0).tcp_close(accepted).unwrap();
    assert!(pair.until(SECOND, |pair| pair.stack(1).tcp_receive(client, &mut [0]) == Ok(0)));
    pair.stack(1).tcp_send(client, b"too late").unwrap();
    assert!(pair.until(SECOND, |pair| pair.stack(1).tcp_failure(client).is_some()));
    assert_eq!(pair.stack(1).tcp_failure(client), Some(Error::Reset));
    assert_eq!(pair.stack(0).tcp_counts(), (0, 0));
}

/// A client that has gone without a word may be followed by one at its port: the server asks what
/// the new handshake is about, and the old connection ends (RFC 5961 §4).
#[test]
fn ports_of_the_dead_are_no_dead_ends() {
    for closes_first in [false, true] {
        let mut pair = Pair::new(1, Weather::default());
        let (listener, _, accepted) = connected(&mut pair, 40_000);
        pair.stack(0).tcp_send(accepted, b"taken").unwrap();
        pair.until(SECOND, |_| false);
        *pair.stack(1) = Stack::new(Config { seed: 7, ..config(1) });
        let next = pair.stack(1).tcp_connect(server(), 40_000).unwrap();
        assert!(pair.until(SECOND, |pair| pair.stack(0).tcp_failure(accepted).is_some()));
        assert_eq!(pair.stack(0).tcp_failure(accepted), Some(Error::Reset));
        if closes_first {
            pair.stack(0).tcp_close(accepted).unwrap();
        }
        let mut follower = None;
        assert!(pair.until(3 * SECOND, |pair| {
            follower = follower.or(pair.stack(0).tcp_accept(listener).ok());
            follower.is_some()
        }));
        if !closes_first {
            pair.stack(0).tcp_close(accepted).unwrap();
        }
        // What has ended takes nothing of its follower's along.
        pair.stack(1).tcp_send(next, b"more").unwrap();
        let mut bytes = [0; 4];
        assert!(pair.until(SECOND, |pair| {
            pair.stack(0).tcp_receive(follower.unwrap(), &mut bytes) == Ok(4)
        }));
        assert_eq!(pair.stack(0).tcp_counts().0, 1);
    }
}

/// What begins a connection from `port`, as another station writes it that has our address.
fn forged(port: u16) -> Vec<u8> {
    let mut stack = Stack::new(Config { seed: 7, ..config(1) });
    stack.tcp_connect(server(), port).unwrap();
    let mut sender = Port::new();
    let (mut rx, mut tx) = sender.halves();
    stack.poll(0, &mut rx, &mut tx, &|_: Ipv4Addr| Some(MACS[0]));
    sender.leaving.pop_front().unwrap()
}

/// A handshake that is forged ends no connection: the peer, which is asked, says nothing of one.
#[test]
fn forged_handshakes_end_no_connection() {
    let mut pair = Pair::new(1, Weather::default());
    let (_, client, accepted) = connected(&mut pair, 40_000);
    for _ in 0..3 {
        pair.launch(0, forged(40_000));
        pair.until(2 * SECOND, |_| false);
    }
    pair.stack(0).tcp_send(accepted, b"answer").unwrap();
    let mut bytes = [0; 6];
    assert!(pair.until(SECOND, |pair| pair.stack(1).tcp_receive(client, &mut bytes) == Ok(6)));
    assert_eq!(&bytes, b"answer");
}

#[test]
fn a_stream_can_end_in_one_direction_only() {
    let mut pair = Pair::new(1, Weather::default());
    let (_, client, accepted) = connected(&mut pair, 40_000);
    pair.stack(1).tcp_shutdown(client).unwrap();
    assert!(pair.until(SECOND, |pair| pair.stack(0).tcp_receive(accepted, &mut [0]) == Ok(0)));
    assert_eq!(pair.stack(0).tcp_send(accepted, b"answer"), Ok(6));
    let mut bytes = [0; 6];
    assert!(pair.until(SECOND, |pair| pair.stack(1).tcp_receive(client, &mut bytes) == Ok(6)));
    assert_eq!(pair.stack(1).tcp_send(client, b"more"), Err(Error::NotConnected));
}

#[test]
fn the_backlog_bounds_what_waits_and_later_ones_get_in() {
    let mut pair = Pair::new(1, Weather::default());
    let listener = pair.stack(0).tcp_listen(PORT, 3).unwrap();
    let clients: Vec<_> =
        (0..5).map(|n| pair.stack(1).tcp_connect(server(), 40_000 + n).unwrap()).collect();
    pair.until(500_000, |_| false);
    assert_eq!(pair.stack(0).tcp_counts().0, 3);
    assert!(pair.stack(0).counters().backlog_full > 0);
    let mut accepted = 0;
    assert!(pair.until(30 * SECOND, |pair| {
        while pair.stack(0).tcp_accept(listener).is_ok() {
            accepted += 1;
        }
        accepted == 5
    }));
    for client in clients {
        assert_eq!(pair.stack(1).tcp_state(client), Some(TcpState::Established));
    }
}

#[test]
fn names_and_ports_are_checked() {
    let mut pair = Pair::new(1, Weather::default());
    let (listener, client, _) = connected(&mut pair, 40_000);
    assert_eq!(pair.stack(0).tcp_listen(PORT, 1), Err(Error::PortTaken));
    assert_eq!(pair.stack(0).tcp_listen(0, 1), Err(Error::BadAddress));
    assert_eq!(pair.stack(1).tcp_connect(server(), 40_000), Err(Error::PortTaken));
    for nobody in ["0.0.0.0:80", "10.0.0.255:80", "224.0.0.1:80", "127.0.0.2:80", "9.9.9.9:80"] {
        let nobody = nobody.parse().unwrap();
        assert_eq!(pair.stack(1).tcp_connect(nobody, 5), Err(Error::BadAddress), "{nobody}");
    }
    pair.stack(1).tcp_close(client).unwrap();
    assert_eq!(pair.stack(1).tcp_close(client), Err(Error::NoSuchSocket));
    pair.stack(0).tcp_unlisten(listener).unwrap();
    assert_eq!(pair.stack(0).tcp_accept(listener), Err(Error::NoSuchSocket));
    assert!(pair.stack(0).tcp_listen(PORT, 1).is_ok());
}

#[test]
fn time_wait_is_small_and_answers_a_repeated_fin() {
    let mut pair = Pair::new(1, Weather::default());
    let (listener, client, accepted) = connected(&mut pair, 40_000);
    // The server ends first, the client follows, and the server's last acknowledgement is lost.
    pair.stack(0).tcp_close(accepted).unwrap();
    assert!(pair.until(SECOND, |pair| pair.stack(1).tcp_receive(client, &mut [0]) == Ok(0)));
    pair.guard = Some(|frame| frame[26..30] != ADDRESSES[0].octets());
    pair.stack(1).tcp_close(client).unwrap();
    pair.until(500_000, |_| false);
    assert_eq!(pair.stack(0).tcp_counts(), (0, 1));
    assert_eq!(pair.stack(1).tcp_counts(), (1, 0));
    pair.guard = None;
    assert!(pair.until(10 * SECOND, |pair| pair.stack(1).tcp_counts() == (0, 0)));

    // The same pair of ports may be used again at once.
    let again = pair.stack(1).tcp_connect(server(), 40_000).unwrap();
    assert!(pair.until(SECOND, |pair| pair.stack(0).tcp_accept(listener).is_ok()));
    assert_eq!(pair.stack(1).tcp_state(again), Some(TcpState::Established));
}

#[test]
fn a_thousand_connections_leave_no_buffers_behind() {
    let mut pair = Pair::new(1, Weather::default());
    let listener = pair.stack(0).tcp_listen(PORT, 8).unwrap();
    for n in 0..1000 {
        let client = pair.stack(1).tcp_connect(server(), 20_000 + n).unwrap();
        let mut accepted = None;
        assert!(pair.until(SECOND, |pair| {
            accepted = accepted.or(pair.stack(0).tcp_accept(listener).ok());
            accepted.is_some()
        }));
        pair.stack(0).tcp_close(accepted.unwrap()).unwrap();
        assert!(pair.until(SECOND, |pair| pair.stack(1).tcp_receive(client, &mut [0]) == Ok(0)));
        pair.stack(1).tcp_close(client).unwrap();
    }
    pair.until(SECOND, |_| false);
    assert_eq!(pair.stack(0).tcp_counts().0, 0);
    assert!(pair.stack(0).tcp_counts().1 > 900);
}

#[test]
fn connections_that_have_ended_keep_nobody_out() {
    let mut few = config(0);
    few.connections = 4;
    let mut pair = Pair::with(1, Weather::default(), [few, config(1)]);
    let listener = pair.stack(0).tcp_listen(PORT, 8).unwrap();
    for n in 0..40 {
        let client = pair.stack(1).tcp_connect(server(), 20_000 + n).unwrap();
        let mut accepted = None;
        // A SYN that is dropped comes again after a second.
        let came = pair.until(SECOND / 2, |pair| {
            accepted = accepted.or(pair.stack(0).tcp_accept(listener).ok());
            accepted.is_some()
        });
        assert!(came, "connection {n}");
        pair.stack(0).tcp_close(accepted.unwrap()).unwrap();
        assert!(pair.until(SECOND, |pair| pair.stack(1).tcp_receive(client, &mut [0]) == Ok(0)));
        pair.stack(1).tcp_close(client).unwrap();
    }
}

/// Nor do those whose peers are not heard of any more when they are closed.
#[test]
fn connections_that_are_given_up_keep_nobody_out() {
    const FEW: u16 = 4;
    const FIRST: u16 = 20_000;
    let few = xio::stack::Config { connections: FEW.into(), ..config(0) };
    let mut pair = Pair::with(1, Weather::default(), [few, config(1)]);
    let listener = pair.stack(0).tcp_listen(PORT, 8).unwrap();
    for port in FIRST..FIRST + FEW {
        pair.stack(1).tcp_connect(server(), port).unwrap();
    }
    let mut accepted = Vec::new();
    assert!(pair.until(SECOND, |pair| {
        while let Ok(connection) = pair.stack(0).tcp_accept(listener) {
            accepted.push(connection);
        }
        accepted.len() == usize::from(FEW)
    }));
    pair.guard = Some(|frame| {
        let port = u16::from_be_bytes([frame[34], frame[35]]);
        !(FIRST..FIRST + FEW).contains(&port)
    });
    for connection in accepted {
        pair.stack(0).tcp_send(connection, b"answer").unwrap();
        pair.stack(0).tcp_close(connection).unwrap();
    }
    pair.until(9 * SECOND, |_| false);
    assert_eq!(pair.stack(0).tcp_counts().0, usize::from(FEW));
    pair.stack(1).tcp_connect(server(), 40_000).unwrap();
    assert!(pair.until(5 * SECOND, |pair| pair.stack(0).tcp_accept(listener).is_ok()));
}

/// How many packets the server sends on a connection before anything is acknowledged.
fn first_flight(pair: &mut Pair, id: TcpId) -> usize {
    pair.stack(0).tcp_send(id, &[7; 60_000]).unwrap();
    let (now_us, station) = (pair.now_us, &mut pair.stations[0]);
    station.port.room = usize::MAX;
    let (mut rx, mut tx) = station.port.halves();
    station.stack.poll(now_us, &mut rx, &mut tx, &|_: Ipv4Addr| Some(MACS[1]));
    let frames: Vec<_> = station.port.leaving.drain(..).collect();
    let count = frames.len();
    frames.into_iter().for_each(|frame| pair.launch(1, frame));
    count
}

/// A connection begins as slowly as the first one, whatever buffers it is given.
#[test]
fn nobody_begins_with_the_window_of_another_one() {
    let mut pair = Pair::new(1, Weather::default());
    let (listener, client, accepted) = connected(&mut pair, 40_000);
    let first = first_flight(&mut pair, accepted);
    let mut arrived = 0;
    assert!(pair.until(60 * SECOND, |pair| {
        arrived += pair.stack(1).tcp_receive(client, &mut [0; 60_000]).unwrap_or(0);
        arrived == 60_000
    }));
    pair.stack(1).tcp_close(client).unwrap();
    pair.stack(0).tcp_close(accepted).unwrap();
    assert!(pair.until(60 * SECOND, |pair| pair.stack(0).tcp_counts().0 == 0));
    pair.stack(1).tcp_connect(server(), 40_001).unwrap();
    let mut accepted = None;
    assert!(pair.until(SECOND, |pair| {
        accepted = accepted.or(pair.stack(0).tcp_accept(listener).ok());
        accepted.is_some()
    }));
    assert_eq!(first_flight(&mut pair, accepted.unwrap()), first);
}

/// The window of a handshake can't be scaled: no more is offered than it can say.
#[test]
fn buffers_beyond_a_window_are_not_offered() {
    let large = Config { receive_bytes: 1 << 20, ..config(0) };
    let mut pair = Pair::with(1, Weather::default(), [large, config(1)]);
    let (_, client, accepted) = connected(&mut pair, 40_000);
    pair.until(20 * SECOND, |pair| {
        let sent = pair.stack(1).tcp_send(client, &[7; 3000]);
        assert!(sent.is_ok() || sent == Err(Error::WouldBlock));
        false
    });
    assert_eq!(pair.stack(0).tcp_arrived(accepted), 65_535);
}

#[test]
fn an_unknown_neighbour_is_asked_for_and_then_reached() {
    let mut pair = Pair::new(1, Weather::default());
    pair.stations[1].neighbours.clear();
    let listener = pair.stack(0).tcp_listen(PORT, 1).unwrap();
    pair.stack(1).tcp_connect(server(), 40_000).unwrap();
    pair.work();
    assert_eq!(pair.stack(1).unresolved().collect::<Vec<_>>(), [ADDRESSES[0]]);
    pair.stations[1].neighbours.insert(ADDRESSES[0], wire::MACS[0]);
    assert!(pair.until(100_000, |pair| pair.stack(0).tcp_acceptable(listener)));
    assert_eq!(pair.stack(1).unresolved().count(), 0);
}

#[test]
fn beyond_the_link_packets_go_to_the_gateway() {
    let mut far = config(1);
    far.network.gateway = Some(ADDRESSES[0]);
    let mut pair = Pair::with(1, Weather::default(), [config(0), far]);
    pair.stack(1).tcp_connect("9.9.9.9:80".parse().unwrap(), 40_000).unwrap();
    pair.work();
    pair.until(10_000, |_| false);
    // It reached the gateway's link address, which isn't the IP address it is for.
    assert!(pair.stack(0).counters().not_ours > 0);
}

#[test]
fn datagrams_arrive_whole_and_a_closed_port_takes_none() {
    let mut pair = Pair::new(1, Weather::default());
    let here = pair.stack(0).udp_bind(53).unwrap();
    let there = pair.stack(1).udp_bind(5353).unwrap();
    assert_eq!(pair.stack(0).udp_bind(53), Err(Error::PortTaken));
    let to = SocketAddrV4::new(ADDRESSES[0], 53);
    let long = vec![7; 1472];
    pair.stack(1).udp_send(there, b"question", to).unwrap();
    pair.stack(1).udp_send(there, &long, to).unwrap();
    assert_eq!(pair.stack(1).udp_send(there, &[0; 1473], to), Err(Error::TooLarge));
    pair.until(10_000, |_| false);
    let mut bytes = [0; 100];
    let from = SocketAddrV4::new(ADDRESSES[1], 5353);
    assert_eq!(pair.stack(0).udp_receive(here, &mut bytes), Ok((8, from)));
    assert_eq!(&bytes[..8], b"question");
    assert_eq!(pair.stack(0).udp_receive(here, &mut bytes), Ok((1472, from)));
    assert_eq!(pair.stack(0).udp_receive(here, &mut bytes), Err(Error::WouldBlock));
    pair.stack(0).udp_close(here).unwrap();
    assert!(!pair.stack(0).udp_readable(here));
}
