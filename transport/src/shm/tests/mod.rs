//! Setup: any order, missing and lying peers, unauthenticated connections. `tests/conformance` has
//! the tests of connected endpoints, `ring/tests` those of rings.

mod signals;
mod windows;

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use ringfold_types::limits::{LANES_MAX, LINK_BYTES_MIN};
use ringfold_types::{Chain, Lane, Rank};
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{
    AddressFamily, SendFlags, SocketFlags, SocketType, connect, send, socket_with, socketpair,
};

use super::address::Address;
use super::handshake::{PROTOCOL, is_not_yet};
use super::segment::{Layout, Segment};
use super::{Config, ConnectError, Pending, Shm, SingleCopy};
use crate::contract::{Link, LinkFault, Received, Rendezvous, SharedMemory as _, Transport};
use crate::proof::{CHALLENGE_BYTES, Hello, JobKey};
use crate::sys::{NamedWaker, WakerAddress, sealed_memory, transmit};

const KEY: [u8; 32] = [5; 32];

fn listen(rank: usize, key: [u8; 32], lanes: usize) -> Pending {
    Shm::listen(Config { key, rank: Rank::at(rank), lanes, offers: SingleCopy::Never }).unwrap()
}

/// Two connected endpoints with these rendezvous settings.
fn pair(offers: [SingleCopy; 2]) -> [Shm; 2] {
    let listen = |(rank, offers)| {
        Shm::listen(Config { key: KEY, rank: Rank::at(rank), lanes: 1, offers }).unwrap()
    };
    let ends = connect_late(offers.into_iter().enumerate().map(listen).collect(), 2);
    let ends: Vec<Shm> = ends.into_iter().map(Result::unwrap).collect();
    ends.try_into().unwrap()
}

fn to(peer: usize) -> Link {
    Link { peer: Rank::at(peer), lane: Lane(0) }
}

fn soon() -> Instant {
    Instant::now() + Duration::from_secs(30)
}

fn addresses(pending: &[Pending]) -> Vec<(Rank, String)> {
    pending.iter().enumerate().map(|(rank, end)| (Rank::at(rank), end.address())).collect()
}

/// The address of the waker of rank 0.
fn door(pending: &Pending) -> WakerAddress {
    Address::parse(&pending.address()).unwrap().waker(&JobKey::new(KEY), Rank(0)).unwrap()
}

/// A waker that no rank has.
fn foreign_waker() -> NamedWaker {
    let address = Address::fresh().unwrap().waker(&JobKey::new([9; 32]), Rank(9));
    NamedWaker::new(&address.unwrap()).unwrap()
}

/// Connects the ranks, of which rank `late` begins later than the others. Returns all outcomes.
fn connect_late(mut ends: Vec<Pending>, late: usize) -> Vec<Result<Shm, ConnectError>> {
    let peers = addresses(&ends);
    std::thread::scope(|scope| {
        let ends = ends.drain(..).enumerate();
        let threads: Vec<_> = ends
            .map(|(rank, end)| {
                let peers = &peers;
                scope.spawn(move || {
                    if rank == late {
                        std::thread::sleep(Duration::from_millis(50));
                    }
                    end.connect(peers, Instant::now() + Duration::from_millis(1500))
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    })
}

/// Makes `ranks` connected endpoints.
fn connect_all(ranks: usize) -> Vec<Shm> {
    let ends = (0..ranks).map(|rank| listen(rank, KEY, 1)).collect();
    connect_late(ends, ranks).into_iter().map(Result::unwrap).collect()
}

#[test]
fn setup_works_in_any_order() {
    for late in 0..4 {
        let ends = (0..4).map(|rank| listen(rank, KEY, 2)).collect();
        for (rank, end) in connect_late(ends, late).into_iter().enumerate() {
            let end = end.unwrap();
            for peer in 0..5 {
                assert_eq!(end.reaches(Rank::at(peer)), peer != rank && peer < 4);
            }
        }
    }
}

#[test]
fn a_rank_alone_needs_nobody() {
    let mut alone = listen(0, KEY, 1).connect(&[], Instant::now()).unwrap();
    let link = Link { peer: Rank(7), lane: Lane(0) };
    assert!(matches!(alone.send(link, 0, &[1]).unwrap_err().fault, LinkFault::Unreachable(_)));
    assert!(matches!(alone.readable(link).unwrap_err().fault, LinkFault::Unreachable(_)));
}

#[test]
fn lanes_beyond_the_agreed_are_errors() {
    let ends = connect_late((0..2).map(|rank| listen(rank, KEY, 2)).collect(), 0);
    let mut end = ends.into_iter().next().unwrap().unwrap();
    let link = Link { peer: Rank(1), lane: Lane(2) };
    assert!(end.send(link, 0, &[1]).is_err() && end.readable(link).is_err());
    for lanes in [0, LANES_MAX + 1] {
        assert!(
            Shm::listen(Config { key: KEY, rank: Rank(0), lanes, offers: SingleCopy::Never })
                .is_err()
        );
    }
}

#[test]
fn the_chain_of_an_error_names_each_cause_once() {
    let cause = || io::Error::other("the cause");
    let unreachable = ConnectError::Unreachable { peer: Rank(1), source: cause() };
    for error in [unreachable, ConnectError::Io(cause())] {
        let text = Chain(&error).to_string();
        assert_eq!(text.matches("the cause").count(), 1, "{text}");
        assert_ne!(text, error.to_string());
    }
}

#[test]
fn a_missing_peer_is_named() {
    let ends: Vec<_> = (0..3).map(|rank| listen(rank, KEY, 1)).collect();
    let peers = addresses(&ends);
    let first = ends.into_iter().next().unwrap();
    let error = first.connect(&peers, Instant::now() + Duration::from_millis(50)).unwrap_err();
    assert!(matches!(&error, ConnectError::Deadline { missing } if *missing == [Rank(1), Rank(2)]));
    assert!(error.to_string().contains("rank 1, 2"), "{error}");
    // The first rank has gone, and nobody says why.
    let late = Instant::now() + Duration::from_millis(50);
    let error = listen(1, KEY, 1).connect(&peers, late).unwrap_err();
    assert!(matches!(&error, ConnectError::Deadline { missing } if *missing == [Rank(0)]));
    // The reason comes while the rank waits.
    let waker = crate::sys::Waker::new().unwrap();
    let end = listen(1, KEY, 1).until_readable(waker.as_fd().try_clone_to_owned().unwrap());
    let stopped = std::thread::scope(|scope| {
        let waits = scope.spawn(|| (end.connect(&peers, soon()).is_err(), Instant::now()));
        std::thread::sleep(Duration::from_millis(50));
        waker.wake();
        let woken = Instant::now();
        let (failed, at) = waits.join().unwrap();
        failed && at.saturating_duration_since(woken) < Duration::from_secs(10)
    });
    assert!(stopped);
    let error = listen(1, KEY, 1).connect(&[(Rank(0), "x".into())], soon()).unwrap_err();
    assert!(matches!(error, ConnectError::Address { peer: Rank(0), .. }), "{error}");
}

#[test]
fn a_rank_without_the_key_is_refused() {
    let outcome = connect_late(vec![listen(0, KEY, 1), listen(1, [6; 32], 1)], 2);
    // Without the key it knows no token either, so the lowest rank never hears of it.
    for (rank, end) in outcome.into_iter().enumerate() {
        let peer = Rank::at(1 - rank);
        assert!(
            matches!(end.unwrap_err(), ConnectError::Deadline { missing } if missing == [peer])
        );
    }
}

#[test]
fn a_lowest_rank_without_the_key_is_refused() {
    let address = Address::fresh().unwrap();
    let door = address.waker(&JobKey::new(KEY), Rank(0)).unwrap();
    let impostor = NamedWaker::new(&door).unwrap();
    std::thread::scope(|scope| {
        let peers = [(Rank(0), address.to_string())];
        let joiner = scope.spawn(move || listen(1, KEY, 1).connect(&peers, soon()));
        let until = soon();
        let socket = loop {
            assert!(Instant::now() < until, "no rank comes");
            if let Ok(socket) = impostor.receive() {
                break socket;
            }
            std::thread::yield_now();
        };
        transmit(&socket, None, &[7; CHALLENGE_BYTES], &[]).unwrap();
        let error = joiner.join().unwrap().unwrap_err();
        assert!(matches!(error, ConnectError::Unproven { peer: Rank(0) }), "{error}");
    });
}

/// Counts the mappings that `/proc/self` lists.
fn mappings() -> usize {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines().filter(|line| line.contains("memfd:ringfold ")).count()
}

#[test]
fn a_link_costs_nothing_before_it_is_used() {
    const RANKS: usize = 48;
    let mut ends = connect_all(RANKS);
    assert!(ends.iter().all(|end| end.ends.is_empty()));
    // Other tests share memory in this process, but less than all pairs of these ranks would.
    let before = mappings();
    assert!(before < RANKS * RANKS / 4, "{before} mappings before the first message");
    for rank in 0..RANKS {
        let next = (rank + 1) % RANKS;
        assert_eq!(ends[rank].send(to(next), 7, b"hello").unwrap(), 5);
        ends[next].poll().unwrap();
        assert_eq!(
            ends[next].recv(to(rank), 7, &mut [0; 5]).unwrap(),
            Some(Received { tag: 7, bytes: 5 })
        );
        // A signal needs no link.
        ends[rank].signal(3);
        assert_eq!(ends[next].signalled(Rank::at(rank)).unwrap(), Some(3));
    }
    assert!(ends.iter().all(|end| end.ends.len() == 2), "one to each neighbour");
}

#[test]
fn both_may_begin_to_use_a_link_at_once() {
    for _ in 0..20 {
        let mut ends = connect_all(2);
        let mut second = ends.pop().unwrap();
        let mut first = ends.pop().unwrap();
        let carry = |end: &mut Shm, peer| {
            assert_eq!(end.send(to(peer), 5, b"both").unwrap(), 4);
            let until = soon();
            while end.recv(to(peer), 5, &mut [0; 4]).unwrap().is_none() {
                assert!(Instant::now() < until, "nothing arrives");
                end.poll().unwrap();
            }
        };
        std::thread::scope(|scope| {
            scope.spawn(|| carry(&mut first, 1));
            carry(&mut second, 0);
        });
        assert!(first.ends.len() == 1 && second.ends.len() == 1);
    }
}

/// A lowest rank that sends a file that is no segment.
#[test]
fn other_files_are_refused() {
    let layout = Layout { ranks: 2, lanes: 1 };
    let short = sealed_memory(c"ringfold-test", 1 << 20).unwrap();
    assert!(Segment::open(short, layout).is_err());
    let open = memfd_create(c"ringfold-test", MemfdFlags::ALLOW_SEALING).unwrap();
    ftruncate(&open, 1 << 40).unwrap();
    assert!(Segment::open(open, layout).is_err(), "it can be shrunk");
}

#[test]
fn other_lanes_are_refused() {
    let outcome = connect_late(vec![listen(0, KEY, 1), listen(1, KEY, 2)], 2);
    assert!(outcome.into_iter().all(|end| end.is_err()));
}

/// Without the token, a process can neither fill the queue of a rank nor wake it.
#[test]
fn foreign_processes_do_not_get_in() {
    let ends = vec![listen(0, KEY, 1), listen(1, KEY, 1)];
    let WakerAddress { name, token } = door(&ends[0]);
    for kind in [SocketType::STREAM, SocketType::SEQPACKET] {
        let socket = socket_with(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None).unwrap();
        assert!(connect(&socket, &name).is_err(), "nothing listens");
    }
    let (near, far) = ({ token[7] ^ 1 }, [9; 8]);
    let near = [&token[..7], &[near]].concat();
    let socket = socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None);
    let socket = socket.unwrap();
    for _ in 0..1000 {
        for words in [&[][..], &token[..7], &near, &far, &[9; 5000]] {
            let descriptor = [socket.as_fd()];
            transmit(&socket, Some(&name), words, &descriptor).unwrap();
        }
    }
    // A full queue would refuse this one.
    assert!(foreign_waker().wake(&door(&ends[0])), "the kernel has dropped the others");
    for end in connect_late(ends, 2) {
        end.unwrap();
    }
}

/// Setup ends at once on every rank when it is stopped.
#[test]
fn setup_can_be_stopped() {
    let ends: Vec<_> = (0..2).map(|rank| listen(rank, KEY, 1)).collect();
    let peers = addresses(&ends);
    for (rank, end) in ends.into_iter().enumerate().rev() {
        let waker = crate::sys::Waker::new().unwrap();
        waker.wake();
        let begun = Instant::now();
        let end = end.until_readable(waker.as_fd().try_clone_to_owned().unwrap());
        let error = end.connect(&peers, soon()).unwrap_err();
        let peer = Rank::at(1 - rank);
        assert!(matches!(error, ConnectError::Deadline { missing } if missing == [peer]));
        assert!(begun.elapsed() < Duration::from_secs(10));
    }
}

/// Silence, garbage, half a handshake and stolen hellos of processes that know the token do not
/// disturb the setup. Neither does a datagram without a socket.
#[test]
fn unauthenticated_peers_cost_nothing() {
    let ends = vec![listen(0, KEY, 1), listen(1, KEY, 1)];
    let door = door(&ends[0]);
    let hello = |from, to| Hello::new(PROTOCOL, Rank(from), Rank(to), [1, 2]).unwrap();
    let words: Vec<Vec<u8>> = vec![
        vec![],
        vec![0xff; 1],
        vec![0xff; 60_000],
        hello(1, 0).encode().to_vec(),
        hello(0, 0).encode().to_vec(),
        hello(9, 0).encode().to_vec(),
        hello(1, 3).encode().to_vec(),
    ];
    let connect = |waker: &NamedWaker, at: usize| {
        let flags = SocketFlags::CLOEXEC;
        let (own, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
        for word in [&words[at % words.len()], &words[at / words.len() % words.len()]] {
            if !word.is_empty() {
                send(&own, word, SendFlags::NOSIGNAL).unwrap();
            }
        }
        let until = soon();
        while waker.pass(&door, theirs.as_fd()).is_err_and(|error| is_not_yet(&error)) {
            assert!(Instant::now() < until, "the queue stays full");
            std::thread::yield_now();
        }
        own
    };
    std::thread::scope(|scope| {
        // The first datagrams come before the ranks do.
        let waker = foreign_waker();
        assert!(waker.wake(&door));
        let file = sealed_memory(c"ringfold-test", 4096).unwrap();
        waker.pass(&door, file.as_fd()).unwrap();
        let mut sockets: Vec<OwnedFd> = (0..6).map(|at| connect(&waker, at)).collect();
        let others = scope.spawn(|| {
            let waker = foreign_waker();
            (6..140).map(|at| connect(&waker, at)).collect::<Vec<_>>()
        });
        for end in connect_late(ends, 2) {
            end.unwrap();
        }
        sockets.extend(others.join().unwrap());
    });
}

/// Makes both endpoints map the link between them and read each other's memory.
fn introduce(ends: &mut [Shm; 2]) {
    let [from, into] = ends;
    assert_eq!(from.send(to(1), 1, b"first").unwrap(), 5);
    assert!(into.readable(to(0)).unwrap().is_none(), "a rank learns of a link when it polls");
    assert!(into.poll().unwrap());
    assert_eq!(into.recv(to(0), 1, &mut [0; 5]).unwrap(), Some(Received { tag: 1, bytes: 5 }));
    from.poll().unwrap();
}

/// Sends a whole message, by `offer` if it is `asked` to. Returns whether the link accepted no
/// bytes before the receiver had read some.
fn carry([from, into]: &mut [Shm; 2], bytes: usize, asked: bool) -> bool {
    let message: Vec<u8> = (0..bytes).map(|at| (at * 7 % 251).to_le_bytes()[0]).collect();
    let (mut received, mut sent, mut arrived) = (vec![0; bytes], 0, 0);
    let first = if asked { Shm::offer } else { Shm::send }(from, to(1), 9, &message).unwrap();
    sent += first;
    while sent < bytes || arrived < bytes {
        if sent < bytes {
            sent += from.send(to(1), 9, &message[sent..]).unwrap();
        }
        if let Some(Received { tag, bytes: now }) =
            into.recv(to(0), 9, &mut received[arrived..]).unwrap()
        {
            assert_eq!(tag, 9);
            arrived += now;
        }
    }
    assert_eq!(received, message);
    assert!(first == 0 || first >= LINK_BYTES_MIN, "{first}");
    first == 0
}

#[test]
fn messages_go_by_rendezvous_if_both_ranks_permit_it() {
    let from = SingleCopy::From;
    // Whether messages go by rendezvous: those of `send`, and those of `offer`.
    for (wishes, by_rendezvous) in [
        ([from(50_000), from(1 << 30)], [true, true]),
        ([from(50_000), SingleCopy::Never], [false, false]),
        ([from(50_000), SingleCopy::Asked], [true, true]),
        ([SingleCopy::Never, from(50_000)], [false, false]),
        ([SingleCopy::Asked, from(1)], [false, true]),
        ([from(100_001), from(1)], [false, true]),
    ] {
        let mut ends = pair(wishes);
        introduce(&mut ends);
        for _ in 0..3 {
            for asked in [false, true] {
                let is_rendezvous = by_rendezvous[usize::from(asked)];
                assert_eq!(carry(&mut ends, 100_000, asked), is_rendezvous, "{wishes:?}");
            }
        }
        assert!(!carry(&mut ends, 40_000, false));
        assert!(!carry(&mut ends, LINK_BYTES_MIN, true), "so much is accepted whatever happens");
        let takes = ends.each_mut().map(Rendezvous::can_single_copy);
        assert_eq!(takes, wishes.map(|wish| wish != SingleCopy::Never), "{wishes:?}");
    }
}

#[test]
fn a_rendezvous_message_ends_with_its_sender() {
    for is_dropped in [false, true] {
        let mut ends = pair([SingleCopy::From(0), SingleCopy::From(0)]);
        introduce(&mut ends);
        let [mut from, mut into] = ends;
        let mut message = vec![0x11; 700_000];
        let mut sent = from.send(to(1), 9, &message).unwrap();
        assert_eq!(from.send(to(1), 9, &message[sent..]).unwrap(), 0);
        let (mut received, mut arrived) = (vec![0; 700_000], 0);
        while arrived < 200_000 {
            let now = into.recv(to(0), 9, &mut received[arrived..]).unwrap();
            arrived += now.map_or(0, |received| received.bytes);
        }
        sent += from.send(to(1), 9, &message[sent..]).unwrap();
        assert_eq!(sent, arrived);
        // The engine withdraws when a call fails; a communicator is dropped without that.
        let kept = if is_dropped {
            drop(from);
            None
        } else {
            from.withdraw();
            Some(from)
        };
        message.fill(0xee);
        for _ in 0..10 {
            into.arm();
            into.disarm();
            match into.recv(to(0), 9, &mut received[arrived..]) {
                Ok(None) => assert!(!is_dropped, "its end shows"),
                Err(error) => assert!(is_dropped && matches!(error.fault, LinkFault::Closed)),
                Ok(Some(some)) => panic!("{some:?} of a withdrawn message"),
            }
        }
        assert!(received[..arrived].iter().all(|byte| *byte == 0x11));
        drop(kept);
    }
}
