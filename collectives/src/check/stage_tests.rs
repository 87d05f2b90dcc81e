//! What schedules do with stages, and what they may not.

use alloc::vec::Vec;

use ringfold_types::limits::{STAGE_BYTES, STAGE_HALF_BYTES};
use ringfold_types::{Buffer, Collective, DataType, Rank, Slice};

use super::tests::{COUNT, IN, IN_PLACE, OUT, OUT_OF_PLACE, assert_flaw, pair, written};
use super::{Flaw, check};
use crate::algorithm::Stated;
use crate::schedule::{Schedule, Source};

/// Each of two ranks combines its half from the other's stage, where that was copied. The results
/// go through stages too: if `hears`, only once the other is heard of; if `waits`, each waits for
/// the other at the end.
fn staged(hears: bool, waits: bool) -> Vec<Schedule> {
    pair(|other, steps| {
        let (token, heard) = (steps.scratch(1), steps.scratch(1));
        let half = COUNT / 2;
        let (mine, theirs) = if other == Rank(1) { (0, half) } else { (half, 0) };
        let at = |slice: Slice, offset| slice.skip(offset).take(half);
        let stage = Slice::new(Buffer::Stage, 0, half);
        let result = Slice::new(Buffer::Stage, STAGE_HALF_BYTES / DataType::Bf16.bytes(), half);
        steps.copy(at(IN, theirs), stage);
        steps.send(other, token);
        if !hears {
            steps.reduce(result.take(1), &[Source::Local(IN.take(1))]);
        }
        steps.recv(other, heard);
        steps.reduce(result, &[Source::Local(at(IN, mine)), Source::Peer(other, stage)]);
        steps.copy(result, at(OUT, mine));
        steps.send(other, token);
        steps.recv(other, heard);
        steps.get(other, result, at(OUT, theirs));
        // What others read now is quiet after the call only if they are waited for.
        let again = Slice::new(Buffer::Stage, half, half);
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
fn a_right_pair_through_stages_is_right() {
    let steps = 4;
    let cost = Ok(Stated { steps, sent: COUNT + steps });
    assert_eq!(check(&staged(true, true), OUT_OF_PLACE), cost);
    assert_eq!(check(&staged(true, true), IN_PLACE), cost);
}

#[test]
fn writing_where_others_may_still_read_what_the_last_call_left_is_seen() {
    let slice = Slice::new(Buffer::Stage, STAGE_HALF_BYTES / DataType::Bf16.bytes(), 1);
    let race = Flaw::Race { rank: Rank(0), of: Rank(0), slice };
    assert_flaw(&staged(false, true), OUT_OF_PLACE, &race);
}

#[test]
fn leaving_the_quiet_part_of_a_stage_in_use_is_seen() {
    let slice = Slice { len: 0, ..OUT };
    let race = Flaw::Race { rank: Rank(0), of: Rank(0), slice };
    assert_flaw(&staged(true, false), OUT_OF_PLACE, &race);
}

/// An all-gather by the half of the stage that the call begins with; who `turns` lets the halves
/// change places.
fn copied(turns: impl Fn(Rank) -> bool) -> Vec<Schedule> {
    written(Collective::AllGather, 2, 1, |rank, steps| {
        let (rank, other) = (Rank::at(rank), Rank::at(1 - rank));
        let (token, heard) = (steps.scratch(1), steps.scratch(1));
        let stage = Slice::new(Buffer::Stage, 0, COUNT);
        steps.copy(IN, stage);
        let block = |of: Rank| Slice::new(Buffer::Output, of.index() * COUNT, COUNT);
        steps.copy(IN, block(rank));
        steps.send(other, token);
        steps.recv(other, heard);
        steps.get(other, stage, block(other));
        if turns(rank) {
            steps.turn_stage();
        }
    })
}

#[test]
fn halves_of_a_stage_change_places_where_they_must_and_on_all_ranks() {
    assert!(check(&copied(|_| true), OUT_OF_PLACE).is_ok());
    let slice = Slice { len: 0, ..OUT };
    let in_use = Flaw::Race { rank: Rank(0), of: Rank(0), slice };
    assert_flaw(&copied(|_| false), OUT_OF_PLACE, &in_use);
    for turns in [Rank(0), Rank(1)] {
        let found = check(&copied(|rank| rank == turns), OUT_OF_PLACE);
        assert_eq!(found, Err(Flaw::Turn { rank: Rank(1) }));
    }
}

#[test]
fn what_is_in_both_halves_of_a_stage_is_seen() {
    let begin = STAGE_HALF_BYTES / DataType::Bf16.bytes() - 1;
    let slice = Slice::new(Buffer::Stage, begin, COUNT);
    let schedules = pair(|other, steps| steps.get(other, slice, OUT));
    assert_flaw(&schedules, OUT_OF_PLACE, &Flaw::Bounds { rank: Rank(1), slice });
}

#[test]
fn what_is_beyond_a_stage_is_seen() {
    let slice = Slice::new(Buffer::Stage, STAGE_BYTES / DataType::Bf16.bytes(), 1);
    let schedules = pair(|other, steps| steps.get(other, slice, OUT.take(1)));
    assert_flaw(&schedules, OUT_OF_PLACE, &Flaw::Bounds { rank: Rank(1), slice });
}

/// An all-gather of two ranks in two pieces, the second copied to where the first was read once the
/// ranks have traded stages; if `waits`, that is when both have heard of the first. A rank trades
/// as often as `trades` says after each.
fn traded(waits: bool, trades: [fn(Rank) -> usize; 2]) -> Vec<Schedule> {
    written(Collective::AllGather, 2, 1, |rank, steps| {
        let (rank, other) = (Rank::at(rank), Rank::at(1 - rank));
        let (token, heard) = (steps.scratch(1), steps.scratch(1));
        let block = |of: Rank| Slice::new(Buffer::Output, of.index() * COUNT, COUNT);
        let half = COUNT / 2;
        let place = Slice::new(Buffer::Stage, 0, half);
        for (index, trades) in trades.into_iter().enumerate() {
            let part = |whole: Slice| whole.skip(index * half).take(half);
            steps.copy(part(IN), place);
            if waits {
                steps.send(other, token);
                steps.recv(other, heard);
            }
            steps.get(other, place, part(block(other)));
            (0..trades(rank)).for_each(|_| steps.trade_stages());
        }
        steps.copy(IN, block(rank));
    })
}

#[test]
fn two_ranks_that_trade_stages_write_where_they_have_read() {
    for conditions in [OUT_OF_PLACE, IN_PLACE] {
        let cost = Ok(Stated { steps: 2, sent: COUNT + 2 });
        assert_eq!(check(&traded(true, [|_| 1, |_| 1]), conditions), cost);
    }
}

#[test]
fn writing_to_a_stage_that_was_not_traded_is_seen() {
    let slice = Slice::new(Buffer::Stage, 0, COUNT / 2);
    let race = Flaw::Race { rank: Rank(0), of: Rank(1), slice };
    assert_flaw(&traded(true, [|_| 0, |_| 1]), OUT_OF_PLACE, &race);
}

#[test]
fn reading_a_stage_before_it_is_heard_of_is_seen() {
    let slice = Slice::new(Buffer::Stage, 0, COUNT / 2);
    let unwritten = Flaw::Unwritten { rank: Rank(1), slice };
    assert_flaw(&traded(false, [|_| 1, |_| 1]), OUT_OF_PLACE, &unwritten);
}

#[test]
fn a_stage_that_is_traded_back_while_it_is_read_is_seen() {
    let in_use = Flaw::Race { rank: Rank(1), of: Rank(1), slice: Slice { len: 0, ..OUT } };
    assert_flaw(&traded(true, [|_| 1, |_| 2]), OUT_OF_PLACE, &in_use);
}

#[test]
fn stages_are_traded_by_both_of_two_ranks() {
    let differs = check(&traded(true, [|_| 1, |rank| rank.index()]), OUT_OF_PLACE);
    assert_eq!(differs, Err(Flaw::Turn { rank: Rank(1) }));
    let three = written(Collective::AllGather, 3, 1, |_, steps| steps.trade_stages());
    assert_flaw(&three, OUT_OF_PLACE, &Flaw::Turn { rank: Rank(0) });
}
