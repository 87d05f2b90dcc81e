//! Flaws that show only in some orders of events: lanes that share memory, and rendezvous sends
//! whose elements change before the receiver takes them. Each schedule here gives the right results
//! in the order in which a proof happens to run it. So only the clocks, or the memory at the time
//! of the copy, can reveal the flaw.

use alloc::vec::Vec;

use ringfold_types::{Buffer, Collective, Rank, Slice};

use super::provider::Offloading;
use super::tests::{COUNT, IN, IN_PLACE, OUT, OUT_OF_PLACE, assert_flaw, written};
use super::world::World;
use super::{Conditions, Flaw, check};
use crate::schedule::{Builder, Form, Schedule, Source};

const HALF: usize = COUNT / 2;

/// Links that accept less than a message of `COUNT` elements.
const OFFERS: Conditions = Conditions { in_place: false, window_bytes: COUNT, offers: true };

/// Delays the current lane of two ranks by `times` messages there and back.
fn delay(steps: &mut Builder, token: Slice, other: Rank, begins: bool, times: usize) {
    for _ in 0..times {
        if begins {
            steps.send(other, token);
            steps.recv(other, token);
        } else {
            steps.recv(other, token);
            steps.send(other, token);
        }
    }
}

/// An all-gather of three ranks, in which rank 1 takes the block of rank 0 late. If rank 0
/// `meddles`, another lane of it overwrites the block in the meantime, and restores it later.
fn offered(meddles: bool) -> Vec<Schedule> {
    let block = |of: usize| Slice::new(Buffer::Output, of * COUNT, COUNT);
    written(Collective::AllGather, 3, 3, |rank, steps| {
        let tokens = [steps.scratch(1), steps.scratch(1)];
        for (lane, token) in tokens.into_iter().enumerate() {
            steps.lane(lane).copy(IN.take(1), token);
        }
        // Lane 2 does everything that is not between ranks 0 and 1.
        let apart = |from: usize, to: usize| (from, to) != (0, 1) && from != to;
        steps.lane(2);
        (0..3).filter(|to| apart(rank, *to)).for_each(|to| steps.send(Rank::at(to), IN));
        if rank == 0 {
            steps.lane(0).copy(IN, block(0));
            steps.send(Rank(1), block(0));
            steps.lane(1).recv(Rank(1), tokens[1]);
            if meddles {
                steps.copy(IN.skip(HALF), block(0).take(HALF));
            }
            steps.recv(Rank(1), tokens[1]);
            if meddles {
                steps.copy(IN.take(HALF), block(0).take(HALF));
            }
        } else {
            steps.copy(IN, block(rank));
            let (other, begins) = (Rank::at(3 - rank), rank == 1);
            delay(steps.lane(0), tokens[0], other, begins, 4);
            if rank == 1 {
                steps.recv(Rank(0), block(0));
                steps.lane(1).send(Rank(0), tokens[1]);
            }
            delay(steps.lane(1), tokens[1], other, begins, 12);
            if rank == 1 {
                steps.send(Rank(0), tokens[1]);
            }
        }
        steps.lane(2);
        let from = (0..3).filter(|from| apart(*from, rank));
        from.for_each(|from| steps.recv(Rank::at(from), block(from)));
    })
}

#[test]
fn an_offer_that_stays_as_it_is_is_right() {
    for offers in [false, true] {
        assert_eq!(check(&offered(false), Conditions { offers, ..OFFERS }).map(drop), Ok(()));
    }
}

#[test]
fn an_offer_is_read_when_it_is_taken() {
    let schedules = offered(true);
    // The memory alone reveals it, without clocks.
    let mut world = World::new(&schedules, OFFERS, Offloading::Always);
    world.lanes.iter_mut().for_each(|races| *races = None);
    assert_eq!(world.run().err(), Some(Flaw::Result { rank: Rank(1), index: 0 }));
    // A link with room for the message has taken it before it changes.
    let mut world = World::new(&schedules, OUT_OF_PLACE, Offloading::Always);
    world.lanes.iter_mut().for_each(|races| *races = None);
    assert!(world.run().is_ok());
}

#[test]
fn a_lane_that_overwrites_what_another_offers_is_seen() {
    let slice = Slice::new(Buffer::Output, 0, HALF);
    let race = Flaw::Race { rank: Rank(0), of: Rank(0), slice };
    for conditions in [OFFERS, OUT_OF_PLACE] {
        assert_flaw(&offered(true), conditions, &race);
    }
}

/// An all-reduce of two ranks in lane 0, after a delay. Lane 1 has prepared the inputs at once: in
/// memory `apart`, or in the memory that lane 0 reads.
fn handed_over(apart: bool) -> Vec<Schedule> {
    written(Collective::AllReduce, 2, 2, |rank, steps| {
        let other = Rank::at(1 - rank);
        let (shared, token) = (steps.scratch(COUNT), steps.scratch(1));
        let own = if apart { steps.scratch(COUNT) } else { shared };
        steps.lane(1).reduce(shared, &[Source::Local(IN)]);
        if apart {
            steps.lane(0).reduce(own, &[Source::Local(IN)]);
        }
        steps.lane(0).reduce(token, &[Source::Local(IN.take(1))]);
        delay(steps, token, other, rank == 0, 3);
        steps.send(other, IN);
        let theirs = Source::Wire(other, Form::Element);
        steps.reduce(OUT, &[Source::Local(own), theirs]);
    })
}

#[test]
fn lanes_that_share_scratch_are_seen_whichever_comes_first() {
    let slice = Slice::new(Buffer::Scratch, 0, COUNT);
    let race = Flaw::Race { rank: Rank(0), of: Rank(0), slice };
    assert!(check(&handed_over(true), OUT_OF_PLACE).is_ok());
    assert_flaw(&handed_over(false), OUT_OF_PLACE, &race);
}

/// A broadcast of two ranks in halves, with a lane for each half. The root also copies each half,
/// in the lane of that half or in the `other` one. In place, the copy is the half itself.
fn copied(other: bool) -> Vec<Schedule> {
    written(Collective::Broadcast, 2, 2, |rank, steps| {
        for lane in 0..2 {
            let half = |whole: Slice| whole.skip(lane * HALF).take(HALF);
            if rank == 0 {
                steps.lane(lane).send(Rank(1), half(IN));
                let lane = if other { 1 - lane } else { lane };
                steps.lane(lane).copy(half(IN), half(OUT));
            } else {
                steps.lane(lane).recv(Rank(0), half(OUT));
            }
        }
    })
}

#[test]
fn input_and_output_are_one_memory_in_place() {
    for conditions in [OUT_OF_PLACE, IN_PLACE] {
        assert!(check(&copied(false), conditions).is_ok());
    }
    assert!(check(&copied(true), OUT_OF_PLACE).is_ok(), "both lanes only read the input");
    let found = check(&copied(true), IN_PLACE);
    assert!(matches!(found, Err(Flaw::Race { rank: Rank(0), .. })), "{found:?}");
}

#[test]
fn lanes_may_read_the_same_memory() {
    let schedules = written(Collective::AllReduce, 2, 2, |rank, steps| {
        let other = Rank::at(1 - rank);
        let scratch = steps.scratch(COUNT);
        steps.lane(0).send(other, IN);
        steps.reduce(OUT, &[Source::Local(IN), Source::Wire(other, Form::Element)]);
        steps.lane(1).reduce(scratch, &[Source::Local(IN)]);
    });
    assert!(check(&schedules, OUT_OF_PLACE).is_ok());
    let found = check(&schedules, IN_PLACE);
    assert!(matches!(found, Err(Flaw::Race { .. })), "in place it is overwritten: {found:?}");
}
