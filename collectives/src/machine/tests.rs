//! One machine at a time, its actions done by hand.

use alloc::vec::Vec;

use ringfold_topology::Layout;
use ringfold_types::limits::POSTED_MAX;
use ringfold_types::{Buffer, Call, Collective, DataType, Rank, ReduceOp, Slice};

use super::{Action, Machine};
use crate::algorithm::Plan;
use crate::schedule::{Builder, Form, Schedule, Source};

const ME: Rank = Rank(0);

fn written(lanes: usize, write: impl Fn(&mut Builder)) -> Schedule {
    let layout = Layout::one_host(64);
    let (collective, data_type, op) = (Collective::AllReduce, DataType::F32, ReduceOp::Sum);
    let call = Call { collective, count: 1000, data_type, op, root: Rank(0) };
    let plan = Plan { call, layout: &layout, rank: ME, chunk: 1, window_bytes: 16 };
    let mut steps = Builder::new(&plan, "by hand", lanes);
    write(&mut steps);
    steps.build()
}

fn started(schedule: &Schedule, overlay: Option<isize>) -> Machine {
    let mut machine = Machine::new();
    machine.start(schedule, overlay);
    machine
}

/// One sweep of lane 0 in which `answer` does the actions; what was asked.
fn sweep<'s>(
    machine: &mut Machine,
    schedule: &'s Schedule,
    answer: impl Fn(&Action<'s>) -> usize,
) -> Vec<Action<'s>> {
    let mut asked = Vec::new();
    machine.sweep(0);
    while let Some(action) = machine.next(schedule, 0) {
        let elements = answer(&action);
        asked.push(action);
        machine.handle(schedule, 0, elements);
    }
    asked
}

const fn input(offset: usize, len: usize) -> Slice {
    Slice::new(Buffer::Input, offset, len)
}

const fn output(offset: usize, len: usize) -> Slice {
    Slice::new(Buffer::Output, offset, len)
}

const fn send(to: u32, src: Slice) -> Action<'static> {
    Action::Send { to: Rank(to), src }
}

const fn recv(from: u32, dst: Slice) -> Action<'static> {
    Action::Recv { from: Rank(from), dst }
}

#[test]
fn a_step_goes_on_where_it_stopped() {
    let sources = [Source::Wire(Rank(1), Form::Element), Source::Local(input(0, 10))];
    let schedule = written(1, |steps| {
        steps.recv(Rank(1), output(10, 10));
        steps.reduce(output(0, 10), &sources);
    });
    let mut machine = started(&schedule, None);
    assert_eq!(sweep(&mut machine, &schedule, |_| 0), [recv(1, output(10, 10))]);
    machine.sweep(0);
    assert_eq!(machine.next(&schedule, 0), Some(recv(1, output(10, 10))));
    machine.handle(&schedule, 0, 4);
    assert_eq!(machine.next(&schedule, 0), Some(recv(1, output(14, 6))));
    machine.handle(&schedule, 0, 0);
    assert_eq!(machine.next(&schedule, 0), None, "blocked until the next sweep");
    machine.sweep(0);
    assert_eq!(machine.next(&schedule, 0), Some(recv(1, output(14, 6))));
    machine.handle(&schedule, 0, 6);
    let reduce = |at| Action::Reduce { dst: output(at, 10 - at), sources: &sources, done: at };
    assert_eq!(machine.next(&schedule, 0), Some(reduce(0)));
    machine.handle(&schedule, 0, 3);
    assert_eq!(machine.next(&schedule, 0), Some(reduce(3)));
    machine.handle(&schedule, 0, 7);
    assert!(!machine.is_done(), "the end of a lane is seen by asking");
    assert_eq!(sweep(&mut machine, &schedule, |_| 0), []);
    assert!(machine.is_done());
}

#[test]
fn a_send_leaves_while_the_lane_goes_on() {
    let schedule = written(1, |steps| {
        steps.send(Rank(1), input(0, 10));
        steps.recv(Rank(2), output(0, 10));
    });
    let mut machine = started(&schedule, None);
    let four = |action: &Action<'_>| match action {
        Action::Send { .. } => 4,
        _ => 0,
    };
    let asked = sweep(&mut machine, &schedule, four);
    assert_eq!(asked, [send(1, input(0, 10)), recv(2, output(0, 10))]);
    let asked = sweep(&mut machine, &schedule, four);
    assert_eq!(asked, [send(1, input(4, 6)), recv(2, output(0, 10))]);
    let asked = sweep(&mut machine, &schedule, |action| match action {
        Action::Send { .. } => 2,
        _ => 10,
    });
    assert_eq!(asked, [send(1, input(8, 2)), recv(2, output(0, 10))]);
    assert!(machine.is_done(), "all has left and all has arrived");
}

#[test]
fn the_end_waits_for_sends() {
    let schedule = written(1, |steps| steps.send(Rank(1), input(0, 10)));
    let mut machine = started(&schedule, None);
    assert_eq!(sweep(&mut machine, &schedule, |_| 9), [send(1, input(0, 10))]);
    assert!(!machine.is_done());
    let waiting: Vec<_> = machine.waiting().map(|w| (w.lane, w.step, w.sending_to)).collect();
    assert_eq!(waiting, [(0, 1, Some(Rank(1)))]);
    assert_eq!(sweep(&mut machine, &schedule, |_| 1), [send(1, input(9, 1))]);
    assert!(machine.is_done());
    assert_eq!(machine.waiting().count(), 0);
}

#[test]
fn nothing_overwrites_what_has_not_left() {
    let schedule = written(1, |steps| {
        steps.send(Rank(1), input(0, 10));
        steps.recv(Rank(2), output(6, 8));
    });
    let nothing = |_: &Action<'_>| 0;
    let apart = &mut started(&schedule, None);
    assert_eq!(sweep(apart, &schedule, nothing).len(), 2, "other memory");
    let beside = &mut started(&schedule, Some(4));
    assert_eq!(sweep(beside, &schedule, nothing).len(), 2, "output 6 is input 10");
    let machine = &mut started(&schedule, Some(3));
    assert_eq!(sweep(machine, &schedule, |_| 9), [send(1, input(0, 10))]);
    assert_eq!(sweep(machine, &schedule, nothing), [send(1, input(9, 1))]);
    let asked = sweep(machine, &schedule, |action| match action {
        Action::Send { .. } => 1,
        _ => 0,
    });
    assert_eq!(asked, [send(1, input(9, 1)), recv(2, output(6, 8))]);
}

#[test]
fn a_result_is_not_overwritten_either() {
    let schedule = written(1, |steps| {
        steps.recv(Rank(2), output(0, 8));
        steps.send(Rank(1), output(0, 4));
        steps.recv(Rank(2), output(2, 4));
    });
    let mut machine = started(&schedule, None);
    let asked = sweep(&mut machine, &schedule, |action| match action {
        Action::Recv { dst, .. } => dst.len,
        _ => 1,
    });
    assert_eq!(asked, [recv(2, output(0, 8)), send(1, output(0, 4))]);
    assert_eq!(sweep(&mut machine, &schedule, |_| 1), [send(1, output(1, 3))]);
    let asked = sweep(&mut machine, &schedule, |_| 2);
    assert_eq!(asked[..2], [send(1, output(2, 2)), recv(2, output(2, 4))]);
}

#[test]
fn sends_to_one_rank_stay_in_order() {
    let schedule = written(1, |steps| {
        steps.send(Rank(1), input(0, 4));
        steps.send(Rank(2), input(4, 4));
        steps.send(Rank(1), input(8, 4));
    });
    let mut machine = started(&schedule, None);
    let to_two = |action: &Action<'_>| match action {
        Action::Send { to: Rank(2), src } => src.len,
        _ => 0,
    };
    let asked = sweep(&mut machine, &schedule, to_two);
    assert_eq!(asked, [send(1, input(0, 4)), send(2, input(4, 4))]);
    assert_eq!(sweep(&mut machine, &schedule, to_two), [send(1, input(0, 4))]);
    let asked = sweep(&mut machine, &schedule, |_| 4);
    assert_eq!(asked, [send(1, input(0, 4)), send(1, input(8, 4))]);
    assert!(machine.is_done());
}

#[test]
fn only_so_many_sends_are_posted() {
    let schedule = written(1, |steps| {
        for rank in 1..=POSTED_MAX + 2 {
            steps.send(Rank::at(rank), input(0, 1));
        }
        steps.recv(Rank(1), output(0, 1));
    });
    let mut machine = started(&schedule, None);
    assert_eq!(sweep(&mut machine, &schedule, |_| 0).len(), POSTED_MAX);
    assert_eq!(sweep(&mut machine, &schedule, |_| 0).len(), POSTED_MAX);
    // The first two leave, so two more can be posted, and then the lane goes on.
    let asked = sweep(&mut machine, &schedule, |action| {
        usize::from(matches!(action, Action::Send { to: Rank(..=2), .. }))
    });
    assert_eq!(asked.len(), POSTED_MAX + 3);
    assert_eq!(asked.last(), Some(&recv(1, output(0, 1))));
}

#[test]
fn lanes_go_on_by_themselves() {
    let schedule = written(2, |steps| {
        steps.lane(0).recv(Rank(1), output(0, 1));
        steps.lane(1).recv(Rank(1), output(1, 1));
    });
    let mut machine = started(&schedule, None);
    assert_eq!(sweep(&mut machine, &schedule, |_| 0).len(), 1);
    machine.sweep(1);
    assert_eq!(machine.next(&schedule, 1), Some(recv(1, output(1, 1))));
    machine.handle(&schedule, 1, 1);
    assert_eq!(machine.next(&schedule, 1), None);
    assert!(!machine.is_done());
    assert_eq!(machine.waiting().map(|w| w.lane).collect::<Vec<_>>(), [0]);
    assert_eq!(sweep(&mut machine, &schedule, |_| 1).len(), 1);
    assert!(machine.is_done());
}

#[test]
fn a_machine_serves_call_after_call() {
    let two = written(2, |steps| {
        for lane in 0..2 {
            steps.lane(lane).recv(Rank(1), output(lane, 1));
        }
    });
    let one = written(1, |steps| steps.send(Rank(1), input(0, 10)));
    let mut machine = started(&two, None);
    assert_eq!(sweep(&mut machine, &two, |_| 0).len(), 1, "left in the middle, as by an error");
    machine.start(&one, None);
    assert_eq!(sweep(&mut machine, &one, |_| 10), [send(1, input(0, 10))]);
    assert!(machine.is_done());
    assert_eq!(machine.waiting().count(), 0, "lanes of the call before do not count");
    let empty = written(1, |_| ());
    machine.start(&empty, None);
    assert_eq!(sweep(&mut machine, &empty, |_| 0), []);
    assert!(machine.is_done());
}

#[test]
#[should_panic(expected = "more done than asked")]
fn more_than_asked_is_refused() {
    let schedule = written(1, |steps| steps.recv(Rank(1), output(0, 4)));
    drop(sweep(&mut started(&schedule, None), &schedule, |_| 5));
}

#[test]
fn a_machine_that_rests_before_its_first_start_has_nothing_to_do() {
    let schedule = written(1, |steps| steps.send(Rank(1), input(0, 10)));
    let mut machine = Machine::new();
    machine.rest();
    assert!(sweep(&mut machine, &schedule, |_| 10).is_empty() && machine.is_done());
}

#[test]
fn what_was_done_without_the_machine_is_not_done_again() {
    let schedule = written(1, |steps| {
        steps.send(Rank(1), input(0, 10));
        steps.send(Rank(2), input(0, 10));
        steps.recv(Rank(2), output(0, 10));
    });
    let mut machine = started(&schedule, None);
    machine.skip_to(1, 4);
    let two = |action: &Action<'_>| match action {
        Action::Send { .. } => 2,
        _ => 0,
    };
    let asked = sweep(&mut machine, &schedule, two);
    assert_eq!(asked, [send(2, input(4, 6)), recv(2, output(0, 10))]);
    let asked = sweep(&mut machine, &schedule, |_| 0);
    assert_eq!(asked, [send(2, input(6, 4)), recv(2, output(0, 10))], "the rest of the send");
    let all = |action: &Action<'_>| match action {
        Action::Send { src, .. } => src.len,
        Action::Recv { dst, .. } => dst.len,
        _ => 0,
    };
    sweep(&mut machine, &schedule, all);
    sweep(&mut machine, &schedule, all);
    assert!(machine.is_done());
}

#[test]
fn telling_is_done_at_once_and_hearing_is_waited_for() {
    let schedule = written(1, |steps| {
        steps.tell();
        steps.hear(Rank(1));
        steps.copy(input(0, 1), output(0, 1));
    });
    assert_eq!(schedule.peers(), [Rank(1)]);
    let mut machine = started(&schedule, None);
    let hear = || Action::Hear { from: Rank(1) };
    let silent = |action: &Action<'_>| usize::from(*action == Action::Tell);
    assert_eq!(sweep(&mut machine, &schedule, silent), [Action::Tell, hear()]);
    assert_eq!(sweep(&mut machine, &schedule, silent), [hear()], "told once");
    let copy = Action::Copy { src: input(0, 1), dst: output(0, 1) };
    assert_eq!(sweep(&mut machine, &schedule, |_| 1), [hear(), copy]);
    assert!(machine.is_done());
}
