//! The prover refuses schedules: each one here is written by hand and has one flaw.

use alloc::vec::Vec;

use ringfold_topology::Layout;
use ringfold_types::{Buffer, Call, Collective, DataType, Rank, ReduceOp, Slice, Wire};

use super::{Conditions, Flaw, check};
use crate::algorithm::{ScheduleParams, Stated};
use crate::schedule::{Builder, Form, Schedule, Source};

pub(super) const COUNT: usize = 8;

pub(super) const OUT_OF_PLACE: Conditions =
    Conditions { in_place: false, window_bytes: 1024, offers: false };

pub(super) const IN_PLACE: Conditions =
    Conditions { in_place: true, window_bytes: 1024, offers: false };

/// Elements of the inputs and outputs of `pair`.
pub(super) const IN: Slice = Slice::new(Buffer::Input, 0, COUNT);
pub(super) const OUT: Slice = Slice::new(Buffer::Output, 0, COUNT);

/// Schedules for `size` ranks. `write` writes the steps of each.
pub(super) fn written(
    collective: Collective,
    size: usize,
    lanes: usize,
    write: impl Fn(usize, &mut Builder),
) -> Vec<Schedule> {
    let layout = Layout::one_host(size);
    let (data_type, op) = (DataType::Bf16, ReduceOp::Sum);
    let call =
        Call { collective, count: COUNT, data_type, op, root: Rank(0), wire: Wire::default() };
    let one = |rank| {
        let plan = ScheduleParams {
            call,
            layout: &layout,
            rank: Rank::at(rank),
            chunk: COUNT,
            window_bytes: 1024,
        };
        let mut steps = Builder::new(&plan, "by hand", lanes);
        write(rank, &mut steps);
        steps.build()
    };
    (0..size).map(one).collect()
}

/// An all-reduce of two ranks that exchange their inputs. `write` gets the other rank.
pub(super) fn pair(write: impl Fn(Rank, &mut Builder)) -> Vec<Schedule> {
    written(Collective::AllReduce, 2, 1, |rank, steps| write(Rank::at(1 - rank), steps))
}

const fn wire(from: Rank) -> Source {
    Source::Wire(from, Form::Element)
}

#[track_caller]
pub(super) fn assert_flaw(schedules: &[Schedule], conditions: Conditions, expected: &Flaw) {
    assert_eq!(check(schedules, conditions).as_ref(), Err(expected), "{expected}");
}

#[test]
fn a_right_pair_is_right() {
    let schedules = pair(|other, steps| {
        steps.send(other, IN);
        steps.reduce(OUT, &[Source::Local(IN), wire(other)]);
    });
    let cost = Ok(Stated { steps: 1, sent: COUNT });
    assert_eq!(check(&schedules, OUT_OF_PLACE), cost);
    assert_eq!(check(&schedules, IN_PLACE), cost);
}

#[test]
fn a_missing_receive_is_seen() {
    let schedules = pair(|other, steps| {
        steps.send(other, IN);
        steps.reduce(OUT, &[Source::Local(IN), wire(other)]);
        if other == Rank(0) {
            steps.send(other, OUT);
        }
    });
    assert_flaw(&schedules, IN_PLACE, &Flaw::Unreceived { rank: Rank(0), from: Rank(1) });
}

#[test]
fn a_receive_without_a_send_waits_for_ever() {
    let schedules = pair(|other, steps| {
        steps.send(other, IN.take(COUNT - 1));
        steps.reduce(OUT, &[Source::Local(IN), wire(other)]);
    });
    let waiting = [(Rank(0), 0, 1), (Rank(1), 0, 1)].into();
    assert_flaw(&schedules, OUT_OF_PLACE, &Flaw::Deadlock { waiting });
}

#[test]
fn ranks_that_wait_for_each_other_are_seen() {
    let schedules = pair(|other, steps| {
        steps.reduce(OUT, &[Source::Local(IN), wire(other)]);
        steps.send(other, IN);
    });
    let waiting = [(Rank(0), 0, 0), (Rank(1), 0, 0)].into();
    assert_flaw(&schedules, OUT_OF_PLACE, &Flaw::Deadlock { waiting });
}

#[test]
fn a_message_beyond_the_window_cannot_be_overwritten_by_both() {
    let schedules = pair(|other, steps| {
        steps.send(other, IN);
        steps.reduce(OUT, &[Source::Local(IN), wire(other)]);
    });
    let bytes = COUNT * DataType::Bf16.bytes();
    let narrow = |in_place| Conditions { in_place, window_bytes: bytes - 1, offers: false };
    // The sum is the third operation: the lane first tries an exchange of both.
    let waiting = [(Rank(0), 0, 2), (Rank(1), 0, 2)].into();
    assert_flaw(&schedules, narrow(true), &Flaw::Deadlock { waiting });
    assert!(check(&schedules, narrow(false)).is_ok(), "nothing is overwritten");
    let wide = Conditions { in_place: true, window_bytes: bytes, offers: false };
    assert!(check(&schedules, wide).is_ok());
}

/// A rank takes a message in two parts. Both ranks would wait until the other has taken the second.
#[test]
fn overwriting_a_message_before_it_is_taken_is_seen() {
    const HALF: usize = COUNT / 2;
    let schedules = pair(|other, steps| {
        let first = steps.scratch(HALF);
        steps.send(other, IN);
        steps.reduce(first, &[wire(other)]);
        steps.reduce(OUT.skip(HALF), &[Source::Local(IN.skip(HALF)), wire(other)]);
        steps.reduce(OUT.take(HALF), &[Source::Local(IN.take(HALF)), Source::Local(first)]);
    });
    let window_bytes = HALF * DataType::Bf16.bytes();
    let narrow = |in_place, offers| Conditions { in_place, window_bytes, offers };
    assert!(check(&schedules, narrow(true, false)).is_ok(), "the window moves on");
    assert!(check(&schedules, narrow(false, true)).is_ok(), "nothing is overwritten");
    let waiting = [(Rank(0), 0, 2), (Rank(1), 0, 2)].into();
    assert_flaw(&schedules, narrow(true, true), &Flaw::Deadlock { waiting });
}

#[test]
fn another_form_than_was_sent_is_seen() {
    let schedules = pair(|other, steps| {
        steps.send(other, IN);
        let other = Source::Wire(other, Form::Accumulator);
        steps.reduce(OUT, &[Source::Local(IN), other]);
    });
    assert_flaw(&schedules, OUT_OF_PLACE, &Flaw::Form { rank: Rank(1), from: Rank(0) });

    let schedules = pair(|other, steps| {
        steps.send(other, IN);
        let scratch = steps.scratch(COUNT);
        steps.recv(other, scratch);
    });
    assert_flaw(&schedules, OUT_OF_PLACE, &Flaw::Form { rank: Rank(1), from: Rank(0) });
}

#[test]
fn counting_an_input_twice_is_seen() {
    let schedules = pair(|other, steps| {
        steps.send(other, IN);
        steps.reduce(OUT, &[Source::Local(IN), wire(other), Source::Local(IN)]);
    });
    assert_flaw(&schedules, OUT_OF_PLACE, &Flaw::Twice { rank: Rank(1), slice: OUT });
}

#[test]
fn one_wire_as_two_sources_is_seen() {
    let schedules = pair(|other, steps| {
        steps.send(other, IN);
        steps.reduce(OUT, &[Source::Local(IN), wire(other), wire(other)]);
    });
    assert_flaw(&schedules, OUT_OF_PLACE, &Flaw::Twice { rank: Rank(1), slice: OUT });
}

#[test]
fn leaving_an_input_out_is_seen() {
    let half = COUNT / 2;
    let schedules = pair(|other, steps| {
        steps.send(other, IN.take(half));
        steps.reduce(OUT.take(half), &[Source::Local(IN.take(half)), wire(other)]);
        steps.reduce(OUT.skip(half), &[Source::Local(IN.skip(half))]);
    });
    assert_flaw(&schedules, IN_PLACE, &Flaw::Result { rank: Rank(0), index: half });
}

#[test]
fn a_result_that_is_not_written_is_seen() {
    let schedules = pair(|other, steps| {
        let part = IN.take(COUNT - 1);
        steps.send(other, part);
        steps.reduce(OUT.take(COUNT - 1), &[Source::Local(part), wire(other)]);
    });
    let missing = Flaw::Result { rank: Rank(0), index: COUNT - 1 };
    assert_flaw(&schedules, OUT_OF_PLACE, &missing);
    assert_flaw(&schedules, IN_PLACE, &missing);
}

#[test]
fn an_unfinished_result_is_seen() {
    // The result contains all inputs, but it was never divided or rounded.
    let schedules = written(Collective::AllReduce, 1, 1, |_, steps| steps.copy(IN, OUT));
    assert_flaw(&schedules, OUT_OF_PLACE, &Flaw::Result { rank: Rank(0), index: 0 });
}

#[test]
fn combining_finished_results_is_seen() {
    let schedules = pair(|other, steps| {
        steps.reduce(OUT, &[Source::Local(IN)]);
        steps.send(other, OUT);
        steps.reduce(OUT, &[Source::Local(OUT), wire(other)]);
    });
    assert_flaw(&schedules, OUT_OF_PLACE, &Flaw::Mixed { rank: Rank(1), slice: OUT });
}

#[test]
fn combining_other_places_is_seen() {
    let half = COUNT / 2;
    let schedules = pair(|other, steps| {
        steps.send(other, IN.take(half));
        steps.reduce(OUT.skip(half), &[Source::Local(IN.skip(half)), wire(other)]);
    });
    assert_flaw(&schedules, OUT_OF_PLACE, &Flaw::Mixed { rank: Rank(1), slice: OUT.skip(half) });
}

#[test]
fn a_block_in_the_wrong_place_is_seen() {
    // Both ranks put their own block first.
    let schedules = written(Collective::AllGather, 2, 1, |rank, steps| {
        let other = Rank::at(1 - rank);
        steps.send(other, IN);
        steps.copy(IN, OUT);
        steps.recv(other, Slice { offset: COUNT, ..OUT });
    });
    assert_flaw(&schedules, OUT_OF_PLACE, &Flaw::Result { rank: Rank(1), index: 0 });
}

#[test]
fn an_input_that_was_overwritten_is_seen_in_place() {
    let schedules = pair(|other, steps| {
        if other == Rank(1) {
            steps.reduce(OUT, &[Source::Local(IN), wire(other)]);
            steps.send(other, IN);
        } else {
            steps.send(other, IN);
            steps.reduce(OUT, &[Source::Local(IN), wire(other)]);
        }
    });
    assert!(check(&schedules, OUT_OF_PLACE).is_ok());
    assert_flaw(&schedules, IN_PLACE, &Flaw::Unwritten { rank: Rank(0), slice: IN });
}

#[test]
fn reading_unwritten_elements_is_seen() {
    let schedules = pair(|other, steps| {
        let scratch = steps.scratch(COUNT);
        steps.reduce(scratch.take(COUNT - 1), &[Source::Local(IN.take(COUNT - 1))]);
        steps.send(other, scratch);
    });
    let slice = Slice::new(Buffer::Scratch, 0, COUNT);
    assert_flaw(&schedules, OUT_OF_PLACE, &Flaw::Unwritten { rank: Rank(0), slice });
}

#[test]
fn a_source_that_overlaps_its_destination_in_part_is_seen() {
    let schedules = pair(|_, steps| {
        let sums = steps.scratch(COUNT + 1);
        steps.reduce(sums.take(COUNT), &[Source::Local(IN)]);
        steps.reduce(sums.skip(1), &[Source::Local(sums.take(COUNT))]);
    });
    let slice = Slice::new(Buffer::Scratch, 0, COUNT);
    assert_flaw(&schedules, OUT_OF_PLACE, &Flaw::Bounds { rank: Rank(0), slice });
}

#[test]
fn slices_beyond_their_buffers_are_seen() {
    let beyond = Slice::new(Buffer::Scratch, 0, COUNT);
    let schedules = pair(|_, steps| steps.reduce(beyond, &[Source::Local(IN)]));
    assert_flaw(&schedules, OUT_OF_PLACE, &Flaw::Bounds { rank: Rank(0), slice: beyond });

    let schedules = written(Collective::Broadcast, 2, 1, |rank, steps| {
        steps.send(Rank::at(1 - rank), IN);
    });
    let others_input = Flaw::Bounds { rank: Rank(1), slice: IN };
    assert_flaw(&schedules, OUT_OF_PLACE, &others_input);
}

#[test]
fn sending_to_oneself_or_to_nobody_is_seen() {
    for to in [Rank(0), Rank(2)] {
        let schedules = pair(|_, steps| steps.send(to, IN));
        assert_flaw(&schedules, OUT_OF_PLACE, &Flaw::Bounds { rank: Rank(0), slice: IN });
    }
}

#[test]
fn lanes_that_depend_on_each_other_are_seen() {
    let schedules = written(Collective::AllReduce, 1, 2, |_, steps| {
        let scratch = steps.scratch(COUNT);
        steps.lane(0).reduce(scratch, &[Source::Local(IN)]);
        steps.lane(1).reduce(OUT, &[Source::Local(scratch)]);
    });
    let slice = Slice::new(Buffer::Scratch, 0, COUNT);
    assert_flaw(&schedules, OUT_OF_PLACE, &Flaw::Race { rank: Rank(0), of: Rank(0), slice });
}

#[test]
fn leaving_a_barrier_too_early_is_seen() {
    let schedules = written(Collective::Barrier, 3, 1, |rank, steps| {
        let word = steps.scratch(1);
        steps.send(Rank::at((rank + 1) % 3), word);
        steps.recv(Rank::at((rank + 2) % 3), word);
    });
    assert_flaw(&schedules, OUT_OF_PLACE, &Flaw::Result { rank: Rank(0), index: 0 });
}

/// A pair in windows. Each rank reads the other's input in place and stores half of the result. The
/// flags say whether the ranks exchange tokens `before` and `after`.
fn windows(before: bool, after: bool) -> Vec<Schedule> {
    pair(move |other, steps| {
        let (token, heard) = (steps.scratch(1), steps.scratch(1));
        let exchange = |steps: &mut Builder| {
            steps.send(other, token);
            steps.recv(other, heard);
        };
        let at = COUNT / 2 * (1 - other.index());
        let of = |slice: Slice| slice.skip(at).take(COUNT / 2);
        if before {
            exchange(steps);
        }
        steps.reduce(of(OUT), &[Source::Local(of(IN)), Source::Peer(other, of(IN))]);
        steps.put(other, of(OUT));
        if after {
            exchange(steps);
        }
    })
}

#[test]
fn a_right_pair_in_windows_is_right() {
    let cost = Ok(Stated { steps: 2, sent: COUNT / 2 + 2 });
    assert_eq!(check(&windows(true, true), OUT_OF_PLACE), cost);
    assert_eq!(check(&windows(true, true), IN_PLACE), cost);
}

#[test]
fn accessing_a_window_without_a_token_is_seen() {
    let slice = IN.take(COUNT / 2);
    let race = Flaw::Race { rank: Rank(0), of: Rank(1), slice };
    for conditions in [OUT_OF_PLACE, IN_PLACE] {
        assert_flaw(&windows(false, true), conditions, &race);
    }
}

#[test]
fn leaving_while_others_use_the_window_is_seen() {
    let slice = Slice { len: 0, ..OUT };
    let race = Flaw::Race { rank: Rank(0), of: Rank(0), slice };
    for conditions in [OUT_OF_PLACE, IN_PLACE] {
        assert_flaw(&windows(true, false), conditions, &race);
    }
    // One of two tokens is not enough, even if it happens to be in time.
    let schedules = pair(|other, steps| {
        let (token, heard) = (steps.scratch(1), steps.scratch(1));
        steps.send(other, token);
        steps.recv(other, heard);
        let half = COUNT / 2;
        let (a, b) = if other == Rank(1) { (0, half) } else { (half, half) };
        let of = |slice: Slice| slice.skip(a).take(b);
        steps.reduce(of(OUT), &[Source::Local(of(IN)), Source::Peer(other, of(IN))]);
        steps.put(other, of(OUT));
        if other == Rank(1) {
            steps.send(other, token);
        } else {
            steps.recv(other, heard);
        }
    });
    assert_flaw(&schedules, IN_PLACE, &race);
}

#[test]
fn a_token_that_could_wait_is_seen() {
    let schedules = pair(|other, steps| {
        steps.send(other, IN);
        steps.reduce(OUT, &[Source::Local(IN), wire(other)]);
        steps.put(other, OUT);
    });
    assert_flaw(&schedules, OUT_OF_PLACE, &Flaw::Token { rank: Rank(0), slice: IN });
    let tokens = Slice::new(Buffer::Scratch, 0, 8);
    let schedules = pair(|other, steps| {
        let token = steps.scratch(tokens.len);
        steps.send(other, token);
        steps.reduce(OUT, &[Source::Local(IN), Source::Peer(other, IN)]);
    });
    let narrow = Conditions { in_place: false, window_bytes: 16, offers: false };
    assert_flaw(&schedules, narrow, &Flaw::Token { rank: Rank(0), slice: tokens });
}

#[test]
fn a_token_that_is_taken_for_a_value_is_seen() {
    let schedules = pair(|other, steps| {
        let token = steps.scratch(1);
        steps.send(other, token);
        let source = [Source::Wire(other, Form::Accumulator), Source::Local(IN.take(1))];
        steps.reduce(OUT.take(1), &source);
        steps.put(other, OUT.take(1));
    });
    let slice = OUT.take(1);
    assert_flaw(&schedules, OUT_OF_PLACE, &Flaw::Mixed { rank: Rank(1), slice });
}

#[test]
fn accessing_memory_that_is_no_window_of_another_is_seen() {
    let (scratch, input) = (Slice::new(Buffer::Scratch, 0, 1), IN.take(1));
    let cases: [(Rank, Slice); 3] = [(Rank(1), scratch), (Rank(0), input), (Rank(2), input)];
    for (of, slice) in cases {
        let schedules = written(Collective::AllReduce, 2, 1, |rank, steps| {
            if rank == 0 {
                steps.reduce(OUT.take(1), &[Source::Peer(of, slice)]);
            }
        });
        assert_flaw(&schedules, OUT_OF_PLACE, &Flaw::Bounds { rank: Rank(0), slice });
    }
    let schedules = pair(|other, steps| steps.put(other, IN));
    assert_flaw(&schedules, OUT_OF_PLACE, &Flaw::Bounds { rank: Rank(0), slice: IN });
}
