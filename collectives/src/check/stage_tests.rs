//! What schedules do with stages, and what they may not.

use alloc::vec::Vec;

use ringfold_types::limits::{STAGE_BYTES, STAGE_HALF_BYTES, TELLS_MAX};
use ringfold_types::{Buffer, Collective, DataType, Rank, Slice};

use super::tests::{COUNT, IN, IN_PLACE, OUT, OUT_OF_PLACE, assert_flaw, pair, written};
use super::{Flaw, check};
use crate::algorithm::Stated;
use crate::schedule::{Builder, Schedule, Source};

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

/// An all-gather of three ranks, of which each tells all that its part is in its stage; `write`
/// does the telling and hearing, given the others.
fn told(write: impl Fn(Rank, [Rank; 2], &mut Builder)) -> Vec<Schedule> {
    written(Collective::AllGather, 3, 1, |rank, steps| {
        let others = [Rank::at((rank + 1) % 3), Rank::at((rank + 2) % 3)];
        let stage = Slice::new(Buffer::Stage, 0, COUNT);
        let block = |of: Rank| Slice::new(Buffer::Output, of.index() * COUNT, COUNT);
        steps.copy(IN, stage);
        steps.copy(IN, block(Rank::at(rank)));
        write(Rank::at(rank), others, steps);
        others.into_iter().for_each(|other| steps.get(other, stage, block(other)));
        steps.turn_stage();
    })
}

#[test]
fn a_tell_that_all_hear_orders_what_they_do() {
    let right = told(|_, others, steps| {
        steps.tell();
        others.into_iter().for_each(|other| steps.hear(other));
    });
    for conditions in [OUT_OF_PLACE, IN_PLACE] {
        let cost = Ok(Stated { steps: 1, sent: 2 * COUNT + 1 });
        assert_eq!(check(&right, conditions), cost);
    }
}

#[test]
fn reading_a_stage_before_its_rank_is_heard_is_seen() {
    let late = told(|rank, [next, last], steps| {
        steps.tell();
        steps.hear(next);
        if rank == Rank(0) {
            let stage = Slice::new(Buffer::Stage, 0, COUNT);
            steps.get(last, stage, Slice::new(Buffer::Output, 2 * COUNT, COUNT));
        }
        steps.hear(last);
    });
    let slice = Slice::new(Buffer::Stage, 0, COUNT);
    let race = Flaw::Race { rank: Rank(0), of: Rank(2), slice };
    assert_flaw(&late, OUT_OF_PLACE, &race);
}

#[test]
fn writing_what_was_told_of_is_seen() {
    let again = told(|_, others, steps| {
        steps.tell();
        steps.copy(IN, Slice::new(Buffer::Stage, 0, COUNT));
        others.into_iter().for_each(|other| steps.hear(other));
    });
    let slice = Slice::new(Buffer::Stage, 0, COUNT);
    assert_flaw(&again, OUT_OF_PLACE, &Flaw::Race { rank: Rank(2), of: Rank(0), slice });
}

#[test]
fn a_tell_that_somebody_does_not_hear_is_seen() {
    let deaf = told(|rank, others, steps| {
        steps.tell();
        others.into_iter().for_each(|other| steps.hear(other));
        if rank == Rank(1) {
            steps.tell();
        }
        if rank == Rank(0) {
            steps.hear(Rank(1));
        }
    });
    let unheard = Flaw::Unreceived { rank: Rank(2), from: Rank(1) };
    assert_flaw(&deaf, OUT_OF_PLACE, &unheard);
}

#[test]
fn waiting_for_what_nobody_tells_is_seen() {
    let silent = told(|rank, others, steps| {
        if rank != Rank(2) {
            steps.tell();
        }
        others.into_iter().for_each(|other| steps.hear(other));
    });
    let found = check(&silent, OUT_OF_PLACE);
    assert!(matches!(found, Err(Flaw::Deadlock { .. })), "{found:?}");
    let own = told(|rank, _, steps| steps.hear(rank));
    assert!(matches!(check(&own, OUT_OF_PLACE), Err(Flaw::Bounds { .. })));
}

/// In each round every rank tells so many times before it hears any of it, and then hears all.
fn hasty(rounds: &[usize]) -> Vec<Schedule> {
    told(|_, others, steps| {
        for ahead in rounds.iter().copied() {
            (0..ahead).for_each(|_| steps.tell());
            (0..ahead).for_each(|_| others.into_iter().for_each(|other| steps.hear(other)));
        }
    })
}

#[test]
fn telling_further_ahead_than_there_is_room_is_seen() {
    let left = TELLS_MAX / 2;
    for right in [&[left][..], &[left, left, left], &[1, left], &[1, TELLS_MAX - 1, 1]] {
        assert!(check(&hasty(right), OUT_OF_PLACE).is_ok(), "{right:?}");
    }
    // At first, as many may be unheard from before the call; later; in the end.
    for wrong in [&[left + 1, 1][..], &[1, TELLS_MAX, 1], &[1, left + 1]] {
        let found = check(&hasty(wrong), OUT_OF_PLACE);
        assert!(matches!(found, Err(Flaw::Tell { .. })), "{wrong:?}: {found:?}");
    }
    // All of a call is heard, but who tells does not come to know it.
    let dumb = told(|rank, others, steps| {
        let tells = if rank == Rank(1) { left + 1 } else { 1 };
        (0..tells).for_each(|_| steps.tell());
        for other in others {
            let tells = if other == Rank(1) { left + 1 } else { 1 };
            (0..tells).for_each(|_| steps.hear(other));
        }
    });
    assert_flaw(&dumb, OUT_OF_PLACE, &Flaw::Tell { rank: Rank(1) });
}

#[test]
fn telling_in_one_of_several_lanes_or_of_no_shared_memory_is_seen() {
    let lanes = written(Collective::AllGather, 3, 2, |rank, steps| {
        let other = Rank::at((rank + 1) % 3);
        steps.lane(1).tell();
        steps.get(other, Slice::new(Buffer::Stage, 0, 1), OUT.take(1));
    });
    assert_flaw(&lanes, OUT_OF_PLACE, &Flaw::Tell { rank: Rank(0) });
    let nothing = written(Collective::AllGather, 3, 1, |_, steps| steps.tell());
    assert_flaw(&nothing, OUT_OF_PLACE, &Flaw::Tell { rank: Rank(0) });
    let hears = written(Collective::AllGather, 3, 1, |_, steps| steps.hear(Rank(1)));
    assert_flaw(&hears, OUT_OF_PLACE, &Flaw::Tell { rank: Rank(0) });
}
