//! Sequences of calls that are right, and those with a flaw that only a later call meets.

use alloc::vec::Vec;

use ringfold_types::{Buffer, Collective, Rank, Slice};

use super::staging_tests::signalled;
use super::tests::{COUNT, IN, IN_PLACE, OUT, OUT_OF_PLACE, pair, written};
use super::{Conditions, Flaw, check, check_sequence};
use crate::schedule::{Builder, Form, Schedule, Source};

/// An all-reduce of two ranks, after which rank 1 sends `left` elements more.
fn reduced(left: usize) -> Vec<Schedule> {
    pair(|other, steps| {
        steps.send(other, IN);
        steps.reduce(OUT, &[Source::Local(IN), Source::Wire(other, Form::Element)]);
        if other == Rank(0) && left > 0 {
            steps.send(other, OUT.take(left));
        }
    })
}

/// An all-gather of three ranks through staging buffers, which they flip. Rank `hasty` signals once
/// more than the others wait for.
fn gathered(hasty: Option<Rank>) -> Vec<Schedule> {
    signalled(|rank, others, steps| {
        steps.signal();
        others.into_iter().for_each(|other| steps.wait(other));
        if hasty == Some(rank) {
            steps.signal();
        }
    })
}

/// The same, through the same half as the call before.
fn gathered_there() -> Vec<Schedule> {
    let gathered = |rank, steps: &mut Builder| {
        let stage = Slice::new(Buffer::Staging, 0, COUNT);
        let others = (0..3).filter(|other| *other != rank).map(Rank::at);
        let block = |of: Rank| Slice::new(Buffer::Output, of.index() * COUNT, COUNT);
        [stage, block(Rank::at(rank))].into_iter().for_each(|to| steps.copy(IN, to));
        steps.signal();
        others.clone().for_each(|other| steps.wait(other));
        others.for_each(|other| steps.get(other, stage, block(other)));
    };
    written(Collective::AllGather, 3, 1, gathered)
}

/// A broadcast of three ranks by messages.
fn sent() -> Vec<Schedule> {
    written(Collective::Broadcast, 3, 1, |rank, steps: &mut Builder| {
        if rank == 0 {
            steps.send(Rank(1), IN);
            steps.send(Rank(2), IN);
            steps.copy(IN, OUT);
        } else {
            steps.recv(Rank(0), OUT);
        }
    })
}

#[test]
fn right_calls_in_sequence_are_right() {
    let pairs = [reduced(0), reduced(0), reduced(0), reduced(0)];
    // Room for one call, two calls, and many.
    for window_bytes in [16, 32, 1024] {
        for (in_place, offers) in [(false, false), (true, false), (false, true), (true, true)] {
            let conditions = Conditions { in_place, window_bytes, offers };
            assert_eq!(check_sequence(&pairs, conditions), Ok(()), "{conditions:?}");
        }
    }
    let all = || gathered(None);
    for calls in [[all(), all(), all(), all()], [all(), sent(), sent(), all()]] {
        assert_eq!(check_sequence(&calls, OUT_OF_PLACE), Ok(()));
        assert_eq!(check_sequence(&calls, IN_PLACE), Ok(()));
    }
    assert_eq!(check_sequence(&[], IN_PLACE), Ok(()));
}

#[test]
fn a_staging_buffer_that_is_not_flipped_is_seen() {
    // The next call writes where a rank of this one may still read.
    let calls = [gathered(None), gathered_there(), gathered(None)];
    let found = check_sequence(&calls, OUT_OF_PLACE);
    assert!(matches!(found, Err(Flaw::Race { slice, .. }) if slice.len == COUNT), "{found:?}");
}

#[test]
fn bytes_and_signals_that_a_call_leaves_are_seen_by_the_next() {
    let foreign = Err(Flaw::Foreign { rank: Rank(0), from: Rank(1) });
    assert_eq!(check_sequence(&[reduced(1), reduced(0)], OUT_OF_PLACE), foreign);
    let unreceived = Err(Flaw::Unreceived { rank: Rank(0), from: Rank(1) });
    assert_eq!(check_sequence(&[reduced(0), reduced(1)], OUT_OF_PLACE), unreceived);
    let calls = [gathered(Some(Rank(1))), gathered(None)];
    let found = check_sequence(&calls, OUT_OF_PLACE);
    assert!(matches!(found, Err(Flaw::Foreign { from: Rank(1), .. })), "{found:?}");
}

#[test]
fn a_rank_that_skips_a_call_is_seen() {
    let barrier = |skips| {
        written(Collective::Barrier, 3, 1, move |rank, steps: &mut Builder| {
            let token = steps.scratch(1);
            if !(skips && rank == 0) {
                steps.send(Rank::at((rank + 1) % 3), token);
            }
            steps.recv(Rank::at((rank + 2) % 3), token);
        })
    };
    // Rank 1 waits for rank 0, and gets the token of its next call.
    let next = written(Collective::Broadcast, 3, 1, |rank, steps: &mut Builder| {
        if rank == 0 {
            steps.send(Rank(1), IN);
            steps.copy(IN, OUT);
        } else {
            steps.recv(Rank::at(rank - 1), OUT);
            if rank == 1 {
                steps.send(Rank(2), OUT);
            }
        }
    });
    assert!(check(&barrier(false), OUT_OF_PLACE).is_err(), "one round reaches not all");
    let foreign = Err(Flaw::Foreign { rank: Rank(1), from: Rank(0) });
    assert_eq!(check_sequence(&[barrier(true), next], OUT_OF_PLACE), foreign);
}

/// The elements of a call belong to its user again when it ends, independent of later calls.
#[test]
fn a_buffer_that_a_peer_reads_after_the_call_is_seen() {
    let windowed = |waits: bool| {
        pair(move |other, steps| {
            let (token, heard) = (steps.scratch(1), steps.scratch(1));
            steps.send(other, token);
            steps.recv(other, heard);
            steps.reduce(OUT, &[Source::Local(IN), Source::Peer(other, IN)]);
            if waits {
                steps.send(other, token);
                steps.recv(other, heard);
            }
        })
    };
    let windows = Conditions { in_place: false, ..OUT_OF_PLACE };
    assert_eq!(check_sequence(&[windowed(true), windowed(true)], windows), Ok(()));
    for calls in [[windowed(false), windowed(true)], [windowed(true), windowed(false)]] {
        let found = check_sequence(&calls, windows);
        assert!(matches!(found, Err(Flaw::Race { slice, .. }) if slice.len == 0), "{found:?}");
    }
}
