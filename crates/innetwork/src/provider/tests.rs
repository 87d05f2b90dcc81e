//! The client against a scripted aggregator with one child, over loopback.

use std::io::Write as _;
use std::net::TcpListener;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ringfold_types::{DataType, ReduceOp, Wire, limits};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::*;
use crate::contract::{Awaited, Chunk};
use crate::wire::end::End;
use crate::wire::header::{Header, Kind, VERSION};
use crate::wire::links::Endpoints;

const KEY: [u8; 32] = [7; 32];
const REDUCTION: Reduction = Reduction {
    collective: Collective::AllReduce,
    data_type: DataType::U8,
    op: ReduceOp::Sum,
    root: 0,
    form: Wire::Element,
};

/// The aggregator's end of the link.
struct Child(End);

impl Child {
    fn receive(&mut self) -> (Header, Vec<u8>) {
        self.0.receive().unwrap()
    }

    fn send(&mut self, header: &Header, payload: &[u8]) {
        self.0.send_message(header, payload).unwrap();
    }

    fn welcome(&mut self) {
        assert_eq!(self.receive().0.kind, Kind::Hello);
        self.send(&Header::plain(Kind::Welcome, 0), &[]);
    }
}

/// Runs `script` as the aggregator, and returns a group that connects to it.
fn with(
    key: [u8; 32],
    script: impl FnOnce(&mut Child) + Send + 'static,
) -> (Box<dyn Group>, JoinHandle<()>) {
    let (end, at) = End::listen(KEY, 1).unwrap();
    let aggregator = thread::spawn(move || script(&mut Child(end)));
    (connect(at, key).unwrap(), aggregator)
}

/// Connects member 1 of two.
fn connect(at: Endpoints, key: [u8; 32]) -> Result<Box<dyn Group>, OffloadError> {
    let leaves = vec![Leaf { first: 0, children: 2, at }];
    let tree = Tree { name: "tree".into(), key, leaves };
    Aggregators::new(vec![tree], (2, 1 << 20), None).connect(0, 1)
}

/// Polls, and parks while nothing moves, until `done` or an error.
fn until(
    group: &mut Box<dyn Group>,
    mut done: impl FnMut(&mut Box<dyn Group>) -> Result<bool, OffloadError>,
) -> Result<(), OffloadError> {
    let began = Instant::now();
    while !done(group)? {
        assert!(began.elapsed() < Duration::from_secs(60), "the test hangs");
        if group.poll()? {
            continue;
        }
        group.arm();
        if !group.poll()? {
            let limit = Timespec { tv_sec: 60, tv_nsec: 0 };
            poll(&mut [PollFd::new(&group.wake_fd(), PollFlags::IN)], Some(&limit)).unwrap();
        }
        group.disarm();
    }
    Ok(())
}

fn chunk(number: u64, count: usize) -> Chunk {
    Chunk { number, tag: 3, reduction: REDUCTION, count }
}

#[test]
fn chunks_of_all_lengths_return_in_order() {
    let lengths = [1, 8, 4095, 4096, 70_000, 1 << 20];
    let (mut group, aggregator) = with(KEY, move |child| {
        child.welcome();
        for number in 0..lengths.len() {
            let (header, mut payload) = child.receive();
            assert_eq!(header.chunk, number as u64);
            assert_eq!((header.kind, header.tag), (Kind::AllReduce, 3));
            payload.iter_mut().for_each(|byte| *byte += 1);
            child.send(&Header { kind: Kind::Result, ..header }, &payload);
        }
        assert_eq!(child.receive().0.kind, Kind::Leave);
    });
    let byte = |number: u64, at: usize| (at % 200) as u8 + number as u8;
    let (mut next, mut taken) = (0, 0);
    until(&mut group, |group| {
        while let Some(outcome) = group.result() {
            assert_eq!((outcome.number, outcome.tag), (taken, 3));
            let is_right = |(at, b): (usize, &u8)| *b == byte(taken, at) + 1;
            assert!(outcome.bytes.iter().enumerate().all(is_right), "chunk {taken}");
            assert_eq!(outcome.bytes.len(), lengths[taken as usize]);
            group.take();
            taken += 1;
        }
        while let Some(length) = lengths.get(next as usize) {
            let bytes: Vec<_> = (0..*length).map(|at| byte(next, at)).collect();
            if !group.post(&chunk(next, *length), &bytes)? {
                break;
            }
            next += 1;
        }
        Ok(taken as usize == lengths.len())
    })
    .unwrap();
    assert_eq!(group.retained(5).unwrap().bytes.len(), 1 << 20);
    assert_eq!(group.retained(3), None);
    drop(group);
    aggregator.join().unwrap();
}

/// Posts a chunk to an aggregator that then follows `script`, and returns the error.
fn fault(script: impl FnOnce(&mut Child, Header) + Send + 'static) -> OffloadError {
    let (mut group, aggregator) = with(KEY, |child| {
        child.welcome();
        let (header, _) = child.receive();
        script(child, header);
    });
    let mut posted = false;
    let error = until(&mut group, |group| {
        posted = posted || group.post(&chunk(0, 4), &[1; 4])?;
        Ok(false)
    });
    let error = error.unwrap_err();
    assert!(group.poll().is_err(), "the error stays");
    drop(group);
    aggregator.join().unwrap();
    error
}

#[test]
fn every_end_of_an_aggregator_has_its_error() {
    let refused = fault(|child, _| child.send(&Header::plain(Kind::Refused, 3), b"why"));
    assert!(matches!(refused, OffloadError::Refused { reason } if reason == "why"));
    assert!(matches!(fault(|_, _| {}), OffloadError::Closed));
    let newer = fault(|child, header| {
        let mut bytes = Header { kind: Kind::Result, ..header }.encode();
        bytes[1] = 9;
        child.0.send(&bytes).unwrap();
    });
    assert!(matches!(newer, OffloadError::Version { ours: VERSION, theirs: 9 }));
    // The end of the link shows that the child gave the aggregator up.
    let silent = fault(|child, _| assert!(child.0.receive().is_err()));
    assert!(matches!(silent, OffloadError::Silent { millis: 500..5_000 }), "{silent}");
}

/// Whether the group's descriptor is readable now.
fn is_readable(group: &dyn Group) -> bool {
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut [PollFd::new(&group.wake_fd(), PollFlags::IN)], Some(&now)).unwrap() > 0
}

#[test]
fn a_group_that_is_given_up_wakes_nobody() {
    let (mut group, aggregator) = with(KEY, Child::welcome);
    let error = until(&mut group, |_| Ok(false)).unwrap_err();
    assert!(matches!(error, OffloadError::Closed), "{error}");
    group.give_up();
    group.disarm();
    assert!(!is_readable(&*group), "the aggregator is gone");
    assert!(matches!(group.poll(), Err(OffloadError::Closed)), "the error stays");
    drop(group);
    aggregator.join().unwrap();
}

#[test]
fn a_handshake_has_one_deadline() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let at = Endpoints { tcp: listener.local_addr().unwrap(), rdma_port: 0 };
    let aggregator = thread::spawn(move || {
        let mut stream = listener.accept().unwrap().0;
        while stream.write_all(&[0]).is_ok() {
            thread::sleep(BEAT * 3);
        }
    });
    let mut group = connect(at, KEY).unwrap();
    let began = Instant::now();
    let error = until(&mut group, |group| Ok(group.is_ready())).unwrap_err();
    assert!(matches!(error, OffloadError::Silent { .. }), "{error}");
    assert!(began.elapsed() < 2 * Duration::from_millis(limits::HANDSHAKE_MS), "{began:?}");
    drop(group);
    aggregator.join().unwrap();
}

#[test]
fn a_false_result_breaks_the_group() {
    let change: [fn(&mut Header); 3] =
        [|header| header.chunk += 1, |header| header.tag += 1, |header| header.bytes += 1];
    for (at, change) in change.into_iter().enumerate() {
        let error = fault(move |child, header| {
            let mut header = Header { kind: Kind::Result, ..header };
            change(&mut header);
            child.send(&header, &[0; 4]);
        });
        assert!(matches!(error, OffloadError::Protocol(_)), "change {at}: {error}");
    }
}

#[test]
fn heartbeats_name_the_late_children_and_keep_the_group() {
    let (mut group, aggregator) = with(KEY, |child| {
        child.welcome();
        let (header, payload) = child.receive();
        for _ in 0..8 {
            let beat = Header::plain(Kind::Beat, 16);
            let masks = [0b101_u64.to_le_bytes(), 0b10_u64.to_le_bytes()].concat();
            child.send(&beat, &masks);
            thread::sleep(BEAT);
        }
        child.send(&Header { kind: Kind::Result, ..header }, &payload);
    });
    let (mut posted, mut awaited) = (false, Awaited::default());
    until(&mut group, |group| {
        posted = posted || group.post(&chunk(0, 4), &[1; 4])?;
        if group.awaited() != Awaited::default() {
            awaited = group.awaited();
        }
        Ok(group.result().is_some())
    })
    .unwrap();
    assert_eq!(awaited, Awaited { children: 0b101, above: 0b10 });
    assert_eq!(group.awaited(), Awaited::default());
    aggregator.join().unwrap();
}

#[test]
fn an_aggregator_without_the_key_is_refused() {
    let (end, at) = End::listen([8; 32], 1).unwrap();
    let aggregator = thread::spawn(move || Child(end).0.receive().map(drop));
    let mut group = connect(at, KEY).unwrap();
    let error = until(&mut group, |group| Ok(group.is_ready())).unwrap_err();
    assert!(matches!(error, OffloadError::Unproven), "{error}");
    assert!(!aggregator.is_finished(), "the child says nothing");
}

#[test]
fn nobody_at_the_address_is_an_error_that_names_it() {
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let connected = connect(Endpoints { tcp: nobody, rdma_port: 0 }, KEY);
    let error = connected
        .and_then(|mut group| until(&mut group, |group| Ok(group.is_ready())))
        .unwrap_err();
    assert!(matches!(error, OffloadError::Unreachable { at, .. } if at == nobody.to_string()));
}

const BEAT: Duration = Duration::from_millis(limits::OFFLOAD_BEAT_MS);
