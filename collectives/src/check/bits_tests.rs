//! Results that contain the right inputs, and may still differ in their bits.

use alloc::vec::Vec;

use ringfold_types::{Collective, Rank};

use super::tests::{COUNT, IN, IN_PLACE, OUT, OUT_OF_PLACE, assert_flaw, pair, written};
use super::{Flaw, check};
use crate::schedule::{Form, Schedule, Source};

/// An all-reduce of three ranks. Each sends its input to the others, and combines all three inputs
/// from `first` on.
fn in_order(first: impl Fn(usize) -> usize) -> Vec<Schedule> {
    written(Collective::AllReduce, 3, 1, |rank, steps| {
        let others = [1, 2].map(|distance| Rank::at((rank + distance) % 3));
        others.into_iter().for_each(|other| steps.send(other, IN));
        let source = |from| match from {
            _ if from == rank => Source::Local(IN),
            _ => Source::Wire(Rank::at(from), Form::Element),
        };
        let sources: Vec<Source> = (0..3).map(|place| source((first(rank) + place) % 3)).collect();
        steps.reduce(OUT, &sources);
    })
}

#[test]
fn ranks_that_combine_in_different_orders_are_seen() {
    for conditions in [OUT_OF_PLACE, IN_PLACE] {
        for same in 0..3 {
            assert!(check(&in_order(|_| same), conditions).is_ok());
        }
        let differs = Flaw::Bits { rank: Rank(1), index: 0 };
        assert_flaw(&in_order(|rank| rank), conditions, &differs);
        let differs = Flaw::Bits { rank: Rank(2), index: 0 };
        assert_flaw(&in_order(|rank| rank / 2), conditions, &differs);
    }
}

#[test]
fn the_first_element_that_differs_is_named() {
    // Rank 1 combines the second half in an order of its own.
    let schedules = written(Collective::AllReduce, 3, 1, |rank, steps| {
        let others = [1, 2].map(|distance| Rank::at((rank + distance) % 3));
        for half in [0, COUNT / 2] {
            let [own, result] = [IN, OUT].map(|whole| whole.skip(half).take(COUNT / 2));
            others.into_iter().for_each(|other| steps.send(other, own));
            let first = if rank == 1 && half > 0 { 1 } else { 0 };
            let source = |from| match from {
                _ if from == rank => Source::Local(own),
                _ => Source::Wire(Rank::at(from), Form::Element),
            };
            let sources: Vec<Source> = (0..3).map(|place| source((first + place) % 3)).collect();
            steps.reduce(result, &sources);
        }
    });
    let differs = Flaw::Bits { rank: Rank(1), index: COUNT / 2 };
    assert_flaw(&schedules, OUT_OF_PLACE, &differs);
}

/// Two ranks exchange sums that one of them rounds before it combines them.
#[test]
fn a_rank_that_rounds_alone_is_seen() {
    let schedules = |rounds: fn(usize) -> bool| {
        written(Collective::AllReduce, 2, 1, move |rank, steps| {
            let other = Rank::at(1 - rank);
            let [sent, kept] =
                [Form::Element, Form::Accumulator].map(|form| steps.sums(COUNT, form));
            steps.reduce(sent, &[Source::Local(IN)]);
            steps.reduce(kept, &[Source::Local(IN)]);
            steps.send(other, sent);
            let own = Source::Local(if rounds(rank) { sent } else { kept });
            steps.reduce(OUT, &[own, Source::Wire(other, Form::Element)]);
        })
    };
    for conditions in [OUT_OF_PLACE, IN_PLACE] {
        assert!(check(&schedules(|_| true), conditions).is_ok());
        for rounds in [|_| false, |rank| rank == 0] {
            let differs = Flaw::Bits { rank: Rank(1), index: 0 };
            assert_flaw(&schedules(rounds), conditions, &differs);
        }
    }
}

/// An all-reduce of four ranks. Each combines the four inputs one after the other, or, where
/// `in_pairs` says so, in pairs in scratch.
#[test]
fn a_tree_and_a_chain_differ_and_two_operands_do_not() {
    let schedules = |in_pairs: fn(usize) -> bool| {
        written(Collective::AllReduce, 4, 1, move |rank, steps| {
            for distance in 1..4 {
                steps.send(Rank::at((rank + distance) % 4), IN);
            }
            let source = |from| match from {
                _ if from == rank => Source::Local(IN),
                _ => Source::Wire(Rank::at(from), Form::Element),
            };
            if in_pairs(rank) {
                let sums = [steps.scratch(COUNT), steps.scratch(COUNT)];
                // The order of two operands does not matter.
                steps.reduce(sums[0], &[source(1), source(0)]);
                steps.reduce(sums[1], &[source(2), source(3)]);
                let mut sources = sums.map(Source::Local);
                sources.rotate_left(rank % 2);
                steps.reduce(OUT, &sources);
            } else {
                steps.reduce(OUT, &[0, 1, 2, 3].map(source));
            }
        })
    };
    for conditions in [OUT_OF_PLACE, IN_PLACE] {
        assert!(check(&schedules(|_| true), conditions).is_ok());
        assert!(check(&schedules(|_| false), conditions).is_ok());
        let differs = Flaw::Bits { rank: Rank(3), index: 0 };
        assert_flaw(&schedules(|rank| rank == 3), conditions, &differs);
    }
}

/// Values in scratch are as wide as the accumulator. Copying them does not change their form.
#[test]
fn copying_to_another_form_is_seen() {
    let schedules = pair(|other, steps| {
        let kept = steps.scratch(COUNT);
        steps.send(other, IN);
        steps.reduce(OUT, &[Source::Local(IN), Source::Wire(other, Form::Element)]);
        steps.copy(OUT, kept);
        steps.copy(kept, OUT);
    });
    assert_flaw(&schedules, OUT_OF_PLACE, &Flaw::Form { rank: Rank(1), from: Rank(1) });
}

#[test]
fn combining_where_nothing_is_to_be_combined_is_seen() {
    let schedules = written(Collective::AllGather, 1, 1, |_, steps| {
        steps.reduce(OUT, &[Source::Local(IN)]);
    });
    assert_flaw(&schedules, OUT_OF_PLACE, &Flaw::Result { rank: Rank(0), index: 0 });
}
