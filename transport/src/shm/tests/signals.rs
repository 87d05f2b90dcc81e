//! Signals: every peer takes every signal once and in order, and a wrong signal is an error.

use std::sync::atomic::Ordering;
use std::time::Duration;

use ringfold_types::Rank;
use ringfold_types::limits::SIGNALS_MAX;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{Shm, connect_all};
use crate::contract::{LinkError, LinkFault, SharedMemory as _, Transport as _};

/// Takes all signals of `peer`.
fn taken(end: &mut Shm, peer: usize) -> Vec<u32> {
    let mut tags = Vec::new();
    while let Some(tag) = end.signalled(Rank::at(peer)).unwrap() {
        tags.push(tag);
        end.take_signal(Rank::at(peer));
    }
    tags
}

#[test]
fn all_take_every_signal_in_order() {
    let mut ends = connect_all(3);
    let mut tag = 0;
    // Beyond several laps and the wrap of the counter.
    let most = u32::try_from(SIGNALS_MAX).unwrap();
    for (round, lead) in (0..40).zip((1..=most).cycle()) {
        if round == 20 {
            for end in &mut ends {
                end.signaller.begin_at(u32::MAX - 5);
                end.peers.iter_mut().for_each(|peer| peer.signals.begin_at(u32::MAX - 5));
            }
        }
        let tags: Vec<u32> = (tag..tag + lead).collect();
        tags.iter().for_each(|tag| ends[1].signal(*tag));
        assert_eq!(taken(&mut ends[0], 1), tags);
        assert_eq!(taken(&mut ends[2], 1), tags);
        assert_eq!(taken(&mut ends[1], 0), [0_u32; 0], "no other rank has signalled");
        tag += lead;
    }
}

#[test]
fn stores_before_a_signal_are_seen_by_its_taker() {
    let mut ends = connect_all(2);
    let (mut second, mut first) = (ends.pop().unwrap(), ends.pop().unwrap());
    let said = std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for turn in 0..20_000 {
                said.store(turn, Ordering::Relaxed);
                first.signal(turn);
                while first.signalled(Rank(1)).unwrap().is_none() {
                    std::hint::spin_loop();
                }
                first.take_signal(Rank(1));
            }
        });
        for turn in 0..20_000 {
            while second.signalled(Rank(0)).unwrap() != Some(turn) {
                std::thread::yield_now();
            }
            second.take_signal(Rank(0));
            assert_eq!(said.load(Ordering::Relaxed), turn);
            second.signal(turn);
        }
    });
}

#[test]
fn a_signal_wakes_a_parked_rank() {
    let mut ends = connect_all(4);
    let rings = |end: &Shm, limit: Duration| {
        let limit = Timespec { tv_sec: 0, tv_nsec: limit.subsec_nanos().into() };
        let wake = end.wake_fd();
        poll(&mut [PollFd::from_borrowed_fd(wake, PollFlags::IN)], Some(&limit)) == Ok(1)
    };
    for tag in 0..3 {
        for sleeper in [1, 3] {
            ends[sleeper].arm();
            assert!(!rings(&ends[sleeper], Duration::ZERO));
        }
        ends[2].signal(tag);
        for sleeper in [1, 3] {
            assert!(rings(&ends[sleeper], Duration::from_millis(900)), "rank {sleeper}, {tag}");
            ends[sleeper].disarm();
            assert_eq!(taken(&mut ends[sleeper], 2), [tag]);
        }
        assert_eq!(taken(&mut ends[0], 2), [tag]);
    }
}

#[test]
fn a_peer_that_is_gone_is_an_error_once_all_its_signals_are_taken() {
    let mut ends = connect_all(3);
    ends[1].signal(7);
    drop(ends.remove(1));
    let end = &mut ends[0];
    end.arm();
    end.disarm();
    assert_eq!(end.signalled(Rank(1)).unwrap(), Some(7));
    end.take_signal(Rank(1));
    let signalled = end.signalled(Rank(1));
    assert!(matches!(signalled, Err(LinkError { fault: LinkFault::Closed, .. })), "{signalled:?}");
}

#[test]
fn a_wrong_signal_is_an_error() {
    for number in [3, 5, 9, u32::MAX, u32::MAX - 8, u32::MAX - 6] {
        let mut ends = connect_all(2);
        ends[0].signal(1);
        assert_eq!(taken(&mut ends[1], 0), [1]);
        ends[0].signaller.write(2, number);
        let signalled = ends[1].signalled(Rank(0));
        let fault = signalled.map_err(|error| error.fault);
        assert!(matches!(fault, Err(LinkFault::Protocol(_))), "{number}: {fault:?}");
    }
    // Ranks that do not exist.
    let ends = connect_all(2);
    assert!(ends[0].signalled(Rank(0)).is_err() && ends[0].signalled(Rank(2)).is_err());
}
