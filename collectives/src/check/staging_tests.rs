//! Accesses to staging buffers that are right, and those that are flaws.

use alloc::vec::Vec;

use ringfold_types::limits::{SIGNALS_MAX, STAGING_BYTES, STAGING_HALF_BYTES};
use ringfold_types::{Buffer, Collective, DataType, Rank, Slice};

use super::tests::{COUNT, IN, IN_PLACE, OUT, OUT_OF_PLACE, assert_flaw, pair, written};
use super::{Flaw, check};
use crate::algorithm::Stated;
use crate::schedule::{Builder, Schedule, Source};

/// Each of two ranks combines its half from the other's staging buffer, after the other has copied
/// it there. The results go through staging buffers too. With `receives`, a rank writes them only
/// after a message of the other. With `waits`, each rank waits for the other at the end.
fn staged(receives: bool, waits: bool) -> Vec<Schedule> {
    pair(|other, steps| {
        let (token, heard) = (steps.scratch(1), steps.scratch(1));
        let half = COUNT / 2;
        let (mine, theirs) = if other == Rank(1) { (0, half) } else { (half, 0) };
        let at = |slice: Slice, offset| slice.skip(offset).take(half);
        let stage = Slice::new(Buffer::Staging, 0, half);
        let result = Slice::new(Buffer::Staging, STAGING_HALF_BYTES / DataType::Bf16.bytes(), half);
        steps.copy(at(IN, theirs), stage);
        steps.send(other, token);
        if !receives {
            steps.reduce(result.take(1), &[Source::Local(IN.take(1))]);
        }
        steps.recv(other, heard);
        steps.reduce(result, &[Source::Local(at(IN, mine)), Source::Peer(other, stage)]);
        steps.copy(result, at(OUT, mine));
        steps.send(other, token);
        steps.recv(other, heard);
        steps.get(other, result, at(OUT, theirs));
        // The half that others read now is quiet after the call only if the rank waits for them.
        let again = Slice::new(Buffer::Staging, half, half);
        steps.copy(result, again);
        steps.send(other, token);
        steps.recv(other, heard);
        steps.get(other, again, at(OUT, theirs));
        if waits {
            steps.send(other, token);
            steps.recv(other, heard);
        }
    })
}

#[test]
fn a_right_pair_through_staging_is_right() {
    let steps = 4;
    let cost = Ok(Stated { steps, sent: COUNT + steps });
    assert_eq!(check(&staged(true, true), OUT_OF_PLACE), cost);
    assert_eq!(check(&staged(true, true), IN_PLACE), cost);
}

#[test]
fn writing_where_others_may_still_read_results_of_the_last_call_is_seen() {
    let slice = Slice::new(Buffer::Staging, STAGING_HALF_BYTES / DataType::Bf16.bytes(), 1);
    let race = Flaw::Race { rank: Rank(0), of: Rank(0), slice };
    assert_flaw(&staged(false, true), OUT_OF_PLACE, &race);
}

#[test]
fn leaving_the_quiet_half_in_use_is_seen() {
    let slice = Slice { len: 0, ..OUT };
    let race = Flaw::Race { rank: Rank(0), of: Rank(0), slice };
    assert_flaw(&staged(true, false), OUT_OF_PLACE, &race);
}

/// An all-gather through the half of the staging buffer that the call begins with. The ranks that
/// `flips` selects swap the halves at the end.
fn copied(flips: impl Fn(Rank) -> bool) -> Vec<Schedule> {
    written(Collective::AllGather, 2, 1, |rank, steps| {
        let (rank, other) = (Rank::at(rank), Rank::at(1 - rank));
        let (token, heard) = (steps.scratch(1), steps.scratch(1));
        let stage = Slice::new(Buffer::Staging, 0, COUNT);
        steps.copy(IN, stage);
        let block = |of: Rank| Slice::new(Buffer::Output, of.index() * COUNT, COUNT);
        steps.copy(IN, block(rank));
        steps.send(other, token);
        steps.recv(other, heard);
        steps.get(other, stage, block(other));
        if flips(rank) {
            steps.flip_staging();
        }
    })
}

#[test]
fn halves_flip_where_they_must_and_on_all_ranks() {
    assert!(check(&copied(|_| true), OUT_OF_PLACE).is_ok());
    let slice = Slice { len: 0, ..OUT };
    let in_use = Flaw::Race { rank: Rank(0), of: Rank(0), slice };
    assert_flaw(&copied(|_| false), OUT_OF_PLACE, &in_use);
    for flips in [Rank(0), Rank(1)] {
        let found = check(&copied(|rank| rank == flips), OUT_OF_PLACE);
        assert_eq!(found, Err(Flaw::Swap { rank: Rank(1) }));
    }
}

#[test]
fn a_slice_in_both_halves_is_seen() {
    let begin = STAGING_HALF_BYTES / DataType::Bf16.bytes() - 1;
    let slice = Slice::new(Buffer::Staging, begin, COUNT);
    let schedules = pair(|other, steps| steps.get(other, slice, OUT));
    assert_flaw(&schedules, OUT_OF_PLACE, &Flaw::Bounds { rank: Rank(1), slice });
}

#[test]
fn a_slice_beyond_a_staging_buffer_is_seen() {
    let slice = Slice::new(Buffer::Staging, STAGING_BYTES / DataType::Bf16.bytes(), 1);
    let schedules = pair(|other, steps| steps.get(other, slice, OUT.take(1)));
    assert_flaw(&schedules, OUT_OF_PLACE, &Flaw::Bounds { rank: Rank(1), slice });
}

/// An all-gather of two ranks in two pieces. After each piece a rank swaps staging buffers as often
/// as `swaps` says, and copies the second piece to where it has read the first. With `waits`, each
/// waits for a message of the other before it reads.
fn swapped(waits: bool, swaps: [fn(Rank) -> usize; 2]) -> Vec<Schedule> {
    written(Collective::AllGather, 2, 1, |rank, steps| {
        let (rank, other) = (Rank::at(rank), Rank::at(1 - rank));
        let (token, heard) = (steps.scratch(1), steps.scratch(1));
        let block = |of: Rank| Slice::new(Buffer::Output, of.index() * COUNT, COUNT);
        let half = COUNT / 2;
        let place = Slice::new(Buffer::Staging, 0, half);
        for (index, swaps) in swaps.into_iter().enumerate() {
            let part = |whole: Slice| whole.skip(index * half).take(half);
            steps.copy(part(IN), place);
            if waits {
                steps.send(other, token);
                steps.recv(other, heard);
            }
            steps.get(other, place, part(block(other)));
            (0..swaps(rank)).for_each(|_| steps.swap_staging());
        }
        steps.copy(IN, block(rank));
    })
}

#[test]
fn two_ranks_that_swap_staging_write_where_they_have_read() {
    for conditions in [OUT_OF_PLACE, IN_PLACE] {
        let cost = Ok(Stated { steps: 2, sent: COUNT + 2 });
        assert_eq!(check(&swapped(true, [|_| 1, |_| 1]), conditions), cost);
    }
}

#[test]
fn writing_to_a_staging_buffer_that_was_not_swapped_is_seen() {
    let slice = Slice::new(Buffer::Staging, 0, COUNT / 2);
    let race = Flaw::Race { rank: Rank(0), of: Rank(1), slice };
    assert_flaw(&swapped(true, [|_| 0, |_| 1]), OUT_OF_PLACE, &race);
}

#[test]
fn reading_a_staging_buffer_before_its_message_is_seen() {
    let slice = Slice::new(Buffer::Staging, 0, COUNT / 2);
    let unwritten = Flaw::Unwritten { rank: Rank(1), slice };
    assert_flaw(&swapped(false, [|_| 1, |_| 1]), OUT_OF_PLACE, &unwritten);
}

#[test]
fn swapping_back_while_a_rank_reads_is_seen() {
    let in_use = Flaw::Race { rank: Rank(1), of: Rank(1), slice: Slice { len: 0, ..OUT } };
    assert_flaw(&swapped(true, [|_| 1, |_| 2]), OUT_OF_PLACE, &in_use);
}

#[test]
fn both_of_two_ranks_swap_staging() {
    let differs = check(&swapped(true, [|_| 1, |rank| rank.index()]), OUT_OF_PLACE);
    assert_eq!(differs, Err(Flaw::Swap { rank: Rank(1) }));
    let three = written(Collective::AllGather, 3, 1, |_, steps| steps.swap_staging());
    assert_flaw(&three, OUT_OF_PLACE, &Flaw::Swap { rank: Rank(0) });
}

/// An all-gather of three ranks through staging buffers. `write` writes the signals and the waits
/// of a rank, given the others.
pub(super) fn signalled(write: impl Fn(Rank, [Rank; 2], &mut Builder)) -> Vec<Schedule> {
    written(Collective::AllGather, 3, 1, |rank, steps| {
        let others = [Rank::at((rank + 1) % 3), Rank::at((rank + 2) % 3)];
        let stage = Slice::new(Buffer::Staging, 0, COUNT);
        let block = |of: Rank| Slice::new(Buffer::Output, of.index() * COUNT, COUNT);
        steps.copy(IN, stage);
        steps.copy(IN, block(Rank::at(rank)));
        write(Rank::at(rank), others, steps);
        others.into_iter().for_each(|other| steps.get(other, stage, block(other)));
        steps.flip_staging();
    })
}

#[test]
fn a_signal_that_all_wait_for_orders_their_accesses() {
    let right = signalled(|_, others, steps| {
        steps.signal();
        others.into_iter().for_each(|other| steps.wait(other));
    });
    for conditions in [OUT_OF_PLACE, IN_PLACE] {
        let cost = Ok(Stated { steps: 1, sent: 2 * COUNT + 1 });
        assert_eq!(check(&right, conditions), cost);
    }
}

#[test]
fn reading_a_staging_buffer_before_its_signal_is_seen() {
    let late = signalled(|rank, [next, last], steps| {
        steps.signal();
        steps.wait(next);
        if rank == Rank(0) {
            let stage = Slice::new(Buffer::Staging, 0, COUNT);
            steps.get(last, stage, Slice::new(Buffer::Output, 2 * COUNT, COUNT));
        }
        steps.wait(last);
    });
    let slice = Slice::new(Buffer::Staging, 0, COUNT);
    let race = Flaw::Race { rank: Rank(0), of: Rank(2), slice };
    assert_flaw(&late, OUT_OF_PLACE, &race);
}

#[test]
fn writing_after_the_signal_is_seen() {
    let again = signalled(|_, others, steps| {
        steps.signal();
        steps.copy(IN, Slice::new(Buffer::Staging, 0, COUNT));
        others.into_iter().for_each(|other| steps.wait(other));
    });
    let slice = Slice::new(Buffer::Staging, 0, COUNT);
    assert_flaw(&again, OUT_OF_PLACE, &Flaw::Race { rank: Rank(2), of: Rank(0), slice });
}

#[test]
fn a_signal_that_a_rank_does_not_wait_for_is_seen() {
    let unseeing = signalled(|rank, others, steps| {
        steps.signal();
        others.into_iter().for_each(|other| steps.wait(other));
        if rank == Rank(1) {
            steps.signal();
        }
        if rank == Rank(0) {
            steps.wait(Rank(1));
        }
    });
    let unheard = Flaw::Unreceived { rank: Rank(2), from: Rank(1) };
    assert_flaw(&unseeing, OUT_OF_PLACE, &unheard);
}

#[test]
fn waiting_for_a_signal_that_never_comes_is_seen() {
    let silent = signalled(|rank, others, steps| {
        if rank != Rank(2) {
            steps.signal();
        }
        others.into_iter().for_each(|other| steps.wait(other));
    });
    let found = check(&silent, OUT_OF_PLACE);
    assert!(matches!(found, Err(Flaw::Deadlock { .. })), "{found:?}");
    let own = signalled(|rank, _, steps| steps.wait(rank));
    assert!(matches!(check(&own, OUT_OF_PLACE), Err(Flaw::Bounds { .. })));
}

/// Signals in rounds. In each round every rank sends a number of signals, and then waits for those
/// of all others.
fn hasty(rounds: &[usize]) -> Vec<Schedule> {
    signalled(|_, others, steps| {
        for ahead in rounds.iter().copied() {
            (0..ahead).for_each(|_| steps.signal());
            (0..ahead).for_each(|_| others.into_iter().for_each(|other| steps.wait(other)));
        }
    })
}

#[test]
fn signalling_further_ahead_than_there_is_room_is_seen() {
    let left = SIGNALS_MAX / 2;
    for right in [&[left][..], &[left, left, left], &[1, left], &[1, SIGNALS_MAX - 1, 1]] {
        assert!(check(&hasty(right), OUT_OF_PLACE).is_ok(), "{right:?}");
    }
    // Wrong at first, when as many may be unseen from the call before; later; and in the end.
    for wrong in [&[left + 1, 1][..], &[1, SIGNALS_MAX, 1], &[1, left + 1]] {
        let found = check(&hasty(wrong), OUT_OF_PLACE);
        assert!(matches!(found, Err(Flaw::Signal { .. })), "{wrong:?}: {found:?}");
    }
    // All signals of the call are seen, but their sender does not learn of it.
    let unanswered = signalled(|rank, others, steps| {
        let signals = if rank == Rank(1) { left + 1 } else { 1 };
        (0..signals).for_each(|_| steps.signal());
        for other in others {
            let signals = if other == Rank(1) { left + 1 } else { 1 };
            (0..signals).for_each(|_| steps.wait(other));
        }
    });
    assert_flaw(&unanswered, OUT_OF_PLACE, &Flaw::Signal { rank: Rank(1) });
}

#[test]
fn signals_in_several_lanes_or_without_shared_memory_are_seen() {
    let lanes = written(Collective::AllGather, 3, 2, |rank, steps| {
        let other = Rank::at((rank + 1) % 3);
        steps.lane(1).signal();
        steps.get(other, Slice::new(Buffer::Staging, 0, 1), OUT.take(1));
    });
    assert_flaw(&lanes, OUT_OF_PLACE, &Flaw::Signal { rank: Rank(0) });
    let nothing = written(Collective::AllGather, 3, 1, |_, steps| steps.signal());
    assert_flaw(&nothing, OUT_OF_PLACE, &Flaw::Signal { rank: Rank(0) });
    let waits = written(Collective::AllGather, 3, 1, |_, steps| steps.wait(Rank(1)));
    assert_flaw(&waits, OUT_OF_PLACE, &Flaw::Signal { rank: Rank(0) });
}
