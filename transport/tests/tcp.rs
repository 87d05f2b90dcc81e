//! TCP only: proofs, unauthenticated connections, cut connections, lingering bytes. `conformance`
//! has the tests of the contract.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on says where")]

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use ringfold_transport::tcp::{Config, Listening, Liveness, PeerRoutes, Route, Tcp};
use ringfold_transport::{Link, LinkError, LinkFault, Received, Transport};
use ringfold_types::limits::{FRAME_BYTES_MAX, HANDSHAKES_MAX, LINK_BYTES_MIN};
use ringfold_types::{Lane, Rank};

const KEY: [u8; 32] = [7; 32];

fn listen(rank: u32, size: usize, key: [u8; 32]) -> Listening {
    let bind = vec![IpAddr::V4(Ipv4Addr::LOCALHOST)];
    let liveness = Liveness::default();
    let rank = Rank(rank);
    Tcp::listen(Config { key, rank, size, lanes: 2, bind, ports: None, liveness }).unwrap()
}

/// Two endpoints, of which rank 1 has `key`.
fn pair(key: [u8; 32]) -> (Tcp, Tcp) {
    let (zero, one) = (listen(0, 2, KEY), listen(1, 2, key));
    let peers = vec![(Rank(0), zero.addresses().to_vec()), (Rank(1), one.addresses().to_vec())];
    (zero.connect(peers.clone()).unwrap(), one.connect(peers).unwrap())
}

fn to(peer: u32) -> Link {
    Link { peer: Rank(peer), lane: Lane(0) }
}

/// Polls both endpoints until `done` returns something.
fn until<T>(a: &mut Tcp, b: &mut Tcp, mut done: impl FnMut(&mut Tcp, &mut Tcp) -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        a.poll().unwrap();
        b.poll().unwrap();
        if let Some(result) = done(a, b) {
            return result;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "nothing came of it");
    }
}

/// The error at the end of the stream of `link`; the bytes before it are dropped.
fn reading_ends(end: &mut Tcp, link: Link) -> Option<LinkError> {
    match end.readable(link) {
        Err(error) => Some(error),
        Ok(fragment) => {
            let bytes = fragment.map_or(0, |it| it.bytes.len());
            end.consume(link, bytes);
            None
        }
    }
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|index| u8::try_from(index * 7 % 251).unwrap()).collect()
}

#[test]
fn the_window_is_there_before_the_connection() {
    let (mut zero, mut one) = pair(KEY);
    let data = pattern(LINK_BYTES_MIN);
    assert_eq!(zero.send(to(1), 5, &data).unwrap(), data.len());
    assert!(!zero.is_flushed(), "rank 1 has not answered yet");
    until(&mut zero, &mut one, |zero, _| zero.is_flushed().then_some(()));
    let mut got = vec![0; data.len()];
    let mut at = 0;
    until(&mut zero, &mut one, |_, one| {
        at += one.recv(to(0), 5, &mut got[at..]).unwrap().map_or(0, |received| received.bytes);
        (at == data.len()).then_some(())
    });
    assert_eq!(got, data);
}

#[test]
fn a_message_sent_ahead_waits_for_the_next() {
    let (mut zero, mut one) = pair(KEY);
    let (head, body) = (pattern(16), pattern(5000));
    zero.send(to(1), 1, &head).unwrap();
    until(&mut zero, &mut one, |_, one| one.readable(to(0)).unwrap().map(drop));
    one.consume(to(0), head.len());
    assert!(zero.is_flushed());
    assert_eq!(zero.send_ahead(to(1), 1, &head).unwrap(), head.len());
    assert!(!zero.is_flushed(), "the message left alone");
    assert_eq!(zero.send(to(1), 2, &body).unwrap(), body.len());
    assert!(zero.is_flushed());
    let mut got = Vec::new();
    until(&mut zero, &mut one, |_, one| {
        let fragment = one.readable(to(0)).unwrap()?;
        let bytes = fragment.bytes.to_vec();
        assert_eq!(fragment.tag, if got.len() < head.len() { 1 } else { 2 });
        one.consume(to(0), bytes.len());
        got.extend(bytes);
        (got.len() == head.len() + body.len()).then_some(())
    });
    assert_eq!(got, [head, body].concat());
}

#[test]
fn a_short_message_is_accepted_when_the_kernel_takes_no_more() {
    let (mut zero, mut one) = pair(KEY);
    let data = pattern(4000);
    // Fill the kernel's buffers with short messages, which the peer does not read.
    let mut sent = 0;
    until(&mut zero, &mut one, |zero, _| {
        let accepted = zero.send(to(1), 1, &data).unwrap();
        sent += accepted;
        (accepted < data.len()).then_some(())
    });
    assert!(sent >= LINK_BYTES_MIN, "{sent} bytes were accepted");
    let mut got = 0;
    until(&mut zero, &mut one, |_, one| {
        let bytes = one.readable(to(0)).unwrap().map_or(0, |it| it.bytes.len());
        one.consume(to(0), bytes);
        got += bytes;
        (got == sent).then_some(())
    });
}

#[test]
fn long_messages_arrive_by_either_way_of_receiving() {
    let (mut zero, mut one) = pair(KEY);
    let data = pattern(3 * FRAME_BYTES_MAX + 5);
    for lent in [false, true, false] {
        let (mut sent, mut got) = (0, Vec::new());
        let mut buffer = vec![0; data.len()];
        until(&mut zero, &mut one, |zero, one| {
            if sent < data.len() {
                sent += zero.send(to(1), 9, &data[sent..]).unwrap();
            }
            if lent {
                if let Some(fragment) = one.readable(to(0)).unwrap() {
                    let bytes = fragment.bytes.len();
                    got.extend_from_slice(fragment.bytes);
                    one.consume(to(0), bytes);
                }
            } else if let Some(Received { tag, bytes }) = one.recv(to(0), 9, &mut buffer).unwrap() {
                assert_eq!(tag, 9);
                got.extend_from_slice(&buffer[..bytes]);
            }
            (got.len() == data.len()).then_some(())
        });
        assert_eq!(got, data, "lent: {lent}");
    }
}

#[test]
fn bytes_of_another_tag_are_not_written() {
    let (mut zero, mut one) = pair(KEY);
    let data = pattern(8000);
    assert_eq!(zero.send(to(1), 3, &data).unwrap(), data.len());
    let mut buffer = vec![0; 8000];
    let found = until(&mut zero, &mut one, |_, one| one.recv(to(0), 4, &mut buffer).unwrap());
    assert_eq!(found, Received { tag: 3, bytes: 0 });
    assert_eq!(buffer, vec![0; 8000]);
}

#[test]
fn a_rank_without_the_key_is_refused() {
    let (mut zero, mut one) = pair([8; 32]);
    zero.send(to(1), 1, &[1; 16]).unwrap();
    let error = until(&mut zero, &mut one, |zero, _| zero.send(to(1), 1, &[2; 16]).err());
    assert!(matches!(error.fault, LinkFault::Unproven), "{error}");
    assert_eq!(error.link, to(1));
    assert!(zero.is_flushed(), "nothing can be flushed to a broken link");
    assert!(one.readable(to(0)).unwrap().is_none());
}

#[test]
fn hundreds_of_unauthenticated_connections_cost_nothing() {
    let (zero, one) = (listen(0, 2, KEY), listen(1, 2, KEY));
    let door = one.addresses()[0];
    let peers = vec![(Rank(0), zero.addresses().to_vec()), (Rank(1), vec![door])];
    let (mut zero, mut one) = (zero.connect(peers.clone()).unwrap(), one.connect(peers).unwrap());
    let mut connections = Vec::new();
    for index in 0..HANDSHAKES_MAX + 100 {
        let mut stream = TcpStream::connect(door).unwrap();
        match index {
            0..20 => stream.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap(),
            20..40 => stream.write_all(&pattern(500)).unwrap(),
            40..100 => stream.write_all(b"RFtc").unwrap(),
            _ => {}
        }
        connections.push(stream);
    }
    // The legitimate peer comes last, and is accepted.
    zero.send(to(1), 1, &[1; 16]).unwrap();
    until(&mut zero, &mut one, |_, one| one.readable(to(0)).unwrap().map(|_| ()));
    drop(connections);
}

#[test]
fn a_proof_cannot_be_borrowed_for_another_lane_or_replayed() {
    // A replayed handshake gets another challenge.
    let (zero, mut one) = {
        let (zero, one) = (listen(0, 2, KEY), listen(1, 2, KEY));
        let door = one.addresses()[0];
        ((zero, door), one.connect(Vec::new()).unwrap())
    };
    let (zero, door) = zero;
    let proxy = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut zero = zero.connect([(Rank(1), vec![proxy.local_addr().unwrap()])]).unwrap();
    zero.send(to(1), 1, &[1; 16]).unwrap();
    let (mut near, _) = proxy.accept().unwrap();
    let mut far = TcpStream::connect(door).unwrap();
    let timeout = Some(Duration::from_millis(5));
    near.set_read_timeout(timeout).unwrap();
    far.set_read_timeout(timeout).unwrap();
    let mut said = Vec::new();
    until(&mut zero, &mut one, |_, one| {
        let mut buffer = [0; 4096];
        if let Ok(bytes) = near.read(&mut buffer) {
            far.write_all(&buffer[..bytes]).unwrap();
            said.extend_from_slice(&buffer[..bytes]);
        }
        if let Ok(bytes) = far.read(&mut buffer) {
            near.write_all(&buffer[..bytes]).unwrap();
        }
        one.readable(to(0)).unwrap().map(|_| ())
    });
    // The same bytes on a new connection, for a lane that is still free.
    said[16] = 1;
    let mut replay = TcpStream::connect(door).unwrap();
    replay.write_all(&said).unwrap();
    replay.set_read_timeout(timeout).unwrap();
    let refused = until(&mut zero, &mut one, |_, _| match replay.read(&mut [0; 256]) {
        Ok(0) => Some(true),
        Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => Some(true),
        _ => None,
    });
    assert!(refused);
    assert!(one.readable(Link { peer: Rank(0), lane: Lane(1) }).unwrap().is_none());
}

#[test]
fn bytes_before_the_end_are_read_first() {
    let (mut zero, mut one) = pair(KEY);
    let data = pattern(300_000);
    let mut sent = 0;
    until(&mut zero, &mut one, |zero, _| {
        sent += zero.send(to(1), 1, &data[sent..]).unwrap();
        (sent == data.len()).then_some(())
    });
    drop(zero);
    let mut got = Vec::new();
    let start = Instant::now();
    let error = loop {
        one.poll().unwrap();
        match one.readable(to(0)) {
            Ok(Some(fragment)) => {
                let bytes = fragment.bytes.len().min(10_000);
                got.extend_from_slice(&fragment.bytes[..bytes]);
                one.consume(to(0), bytes);
            }
            Ok(None) => assert!(start.elapsed() < Duration::from_secs(20)),
            Err(error) => break error,
        }
    };
    assert_eq!(got, data);
    assert!(matches!(error.fault, LinkFault::Closed), "{error}");
    assert_eq!(error.link, to(0));
}

#[test]
fn leaving_early_still_delivers() {
    let (mut zero, mut one) = pair(KEY);
    zero.send(to(1), 1, &[1; 16]).unwrap();
    assert!(!zero.is_flushed());
    let leaver = std::thread::spawn(move || drop(zero));
    let mut got = [0; 16];
    let start = Instant::now();
    while one.recv(to(0), 1, &mut got).unwrap().is_none() {
        one.poll().unwrap();
        assert!(start.elapsed() < Duration::from_secs(20));
    }
    assert_eq!(got, [1; 16]);
    leaver.join().unwrap();
}

#[test]
fn a_peer_that_left_is_an_error_only_where_something_is_expected() {
    let (mut zero, mut one) = pair(KEY);
    zero.send(to(1), 1, &[1; 16]).unwrap();
    until(&mut zero, &mut one, |_, one| one.readable(to(0)).unwrap().map(|_| ()));
    drop(one);
    // `poll` succeeds; `send` fails once the end was noticed.
    let start = Instant::now();
    let error = loop {
        zero.poll().unwrap();
        if let Err(error) = zero.send(to(1), 1, &[1; 16]) {
            break error;
        }
        assert!(start.elapsed() < Duration::from_secs(20));
    };
    assert!(matches!(error.fault, LinkFault::Closed), "{error}");
    // The peer has never sent anything, and never will.
    let error = loop {
        zero.poll().unwrap();
        match zero.readable(to(1)) {
            Err(error) => break error,
            Ok(fragment) => assert_eq!(fragment, None),
        }
        assert!(start.elapsed() < Duration::from_secs(20));
    };
    assert!(matches!(error.fault, LinkFault::Closed), "{error}");
}

#[test]
fn a_closed_port_is_unreachable() {
    let nobody = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap();
    let mut zero = listen(0, 2, KEY).connect([(Rank(1), vec![nobody])]).unwrap();
    let start = Instant::now();
    let error = loop {
        if let Err(error) = zero.send(to(1), 1, &[1; 16]) {
            break error;
        }
        zero.poll().unwrap();
        assert!(start.elapsed() < Duration::from_secs(20));
    };
    assert!(matches!(error.fault, LinkFault::Unreachable(_)), "{error}");
}

#[test]
fn a_cut_connection_is_a_typed_error() {
    let one = listen(1, 2, KEY);
    let door = one.addresses()[0];
    let proxy = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let between: SocketAddr = proxy.local_addr().unwrap();
    let mut one = one.connect(Vec::new()).unwrap();
    let mut zero = listen(0, 2, KEY).connect([(Rank(1), vec![between])]).unwrap();
    zero.send(to(1), 1, &[1; 16]).unwrap();
    let (near, _) = proxy.accept().unwrap();
    let far = TcpStream::connect(door).unwrap();
    let carry = |mut from: TcpStream, mut to: TcpStream| {
        std::thread::spawn(move || std::io::copy(&mut from, &mut to))
    };
    let carriers = [
        carry(near.try_clone().unwrap(), far.try_clone().unwrap()),
        carry(far.try_clone().unwrap(), near.try_clone().unwrap()),
    ];
    until(&mut zero, &mut one, |_, one| one.readable(to(0)).unwrap().map(|_| ()));
    near.shutdown(Shutdown::Both).unwrap();
    far.shutdown(Shutdown::Both).unwrap();
    let error = until(&mut zero, &mut one, |zero, _| zero.send(to(1), 1, &[1; 16]).err());
    assert!(matches!(error.fault, LinkFault::Closed), "{error}");
    let error = until(&mut zero, &mut one, |_, one| reading_ends(one, to(0)));
    assert!(matches!(error.fault, LinkFault::Closed), "{error}");
    for carrier in carriers {
        carrier.join().unwrap().ok();
    }
}

/// The address of a rank on a rail. All addresses of 127.0.0.0/8 belong to this host.
fn on_rail(rank: u8, rail: u8) -> IpAddr {
    IpAddr::V4(Ipv4Addr::new(127, 19, 1 + rail, 1 + rank))
}

/// Listens on one address per rail.
fn listen_on(rank: u8, rails: u8) -> Listening {
    let bind = (0..rails).map(|rail| on_rail(rank, rail)).collect();
    let (liveness, rank) = (Liveness::default(), Rank(rank.into()));
    Tcp::listen(Config { key: KEY, rank, size: 2, lanes: 4, bind, ports: None, liveness }).unwrap()
}

fn routes(from: &Listening, to: &Listening) -> Vec<Route> {
    let ways = from.addresses().iter().zip(to.addresses());
    ways.map(|(from, to)| Route { from: Some(from.ip()), to: *to }).collect()
}

const fn by_rail(rails: Vec<Route>) -> PeerRoutes {
    PeerRoutes { rails, others: Vec::new() }
}

/// Sends on each lane, and waits until everything has arrived.
fn send_on_lanes(zero: &mut Tcp, one: &mut Tcp, lanes: u8) {
    for lane in (0..lanes).map(Lane) {
        let data = [lane.0; 100];
        assert_eq!(zero.send(Link { peer: Rank(1), lane }, 5, &data).unwrap(), data.len());
        let mut got = [0; 100];
        let link = Link { peer: Rank(0), lane };
        until(zero, one, |_, one| one.recv(link, 5, &mut got).unwrap());
        assert_eq!(got, data);
    }
}

/// The remote addresses of the connections that were accepted at `listener`.
fn accepted_at(listener: SocketAddr) -> Vec<IpAddr> {
    let address = |text: &str| {
        let (address, port) = text.split_once(':').unwrap();
        let address = u32::from_str_radix(address, 16).unwrap().to_le_bytes();
        SocketAddr::from((address, u16::from_str_radix(port, 16).unwrap()))
    };
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let lines = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let open = lines.filter(|fields| fields[3] == "01" && address(fields[1]) == listener);
    open.map(|fields| address(fields[2]).ip()).collect()
}

#[test]
fn lanes_take_the_rails_of_both_ranks() {
    let (zero, one) = (listen_on(0, 2), listen_on(1, 2));
    let doors = one.addresses().to_vec();
    let [there, back] = [routes(&zero, &one), routes(&one, &zero)];
    let mut zero = zero.connect_by_rail([(Rank(1), by_rail(there))]).unwrap();
    let mut one = one.connect_by_rail([(Rank(0), by_rail(back))]).unwrap();
    send_on_lanes(&mut zero, &mut one, 4);
    for rail in 0..2 {
        let from = accepted_at(doors[usize::from(rail)]);
        assert_eq!(from, [on_rail(0, rail); 2], "rail {rail}");
    }
}

/// No rail works: this host has lost one address, nothing listens at another, and a third accepts
/// no connections.
#[test]
fn a_lane_takes_another_route_if_its_own_fails() {
    let (zero, one) = (listen_on(0, 4), listen_on(1, 4));
    let mut ways = routes(&zero, &one);
    ways[0].from = Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)));
    let refusing = TcpListener::bind((on_rail(1, 1), 0)).unwrap();
    ways[1].to = refusing.local_addr().unwrap();
    drop(refusing);
    let full = full_listener(on_rail(1, 2));
    ways[2].to = full.0.local_addr().unwrap().as_socket().unwrap();
    let back = routes(&one, &zero);
    ways.truncate(3);
    let last = Route { from: None, to: one.addresses()[3] };
    let mut zero =
        zero.connect_by_rail([(Rank(1), PeerRoutes { rails: ways, others: vec![last] })]).unwrap();
    let mut one = one.connect_by_rail([(Rank(0), by_rail(back))]).unwrap();
    send_on_lanes(&mut zero, &mut one, 4);
    assert_eq!(accepted_at(last.to).len(), 4);
}

/// A listener with a full queue: further connections get no answer.
fn full_listener(address: IpAddr) -> (socket2::Socket, Vec<socket2::Socket>) {
    let socket =
        || socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    let listener = socket();
    listener.bind(&SocketAddr::new(address, 0).into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap();
    let fill = |_| {
        let waiting = socket();
        waiting.set_nonblocking(true).unwrap();
        waiting.connect(&address).ok();
        waiting
    };
    let waiting = (0..4).map(fill).collect();
    (listener, waiting)
}
