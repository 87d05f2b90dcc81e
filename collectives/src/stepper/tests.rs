//! One stepper at a time. The test performs its operations by hand.

use alloc::vec::Vec;

use ringfold_topology::Layout;
use ringfold_types::limits::POSTED_MAX;
use ringfold_types::{Buffer, Call, Collective, DataType, Rank, ReduceOp, Slice, Wire};

use super::{Exchanged, Ports, Progress, Reduction, Stepper};
use crate::algorithm::ScheduleParams;
use crate::program::{Program, Stores, Target, lower};
use crate::schedule::{Builder, Form, Source};

const ME: Rank = Rank(0);

/// The program of an all-reduce whose steps are written by hand.
fn written(lanes: usize, in_place: bool, write: impl Fn(&mut Builder)) -> Program {
    let layout = Layout::one_host(64);
    let (collective, data_type, op) = (Collective::AllReduce, DataType::F32, ReduceOp::Sum);
    let call =
        Call { collective, count: 1000, data_type, op, root: Rank(0), wire: Wire::default() };
    let plan = ScheduleParams { call, layout: &layout, rank: ME, chunk: 1, window_bytes: 16 };
    let mut steps = Builder::new(&plan, "by hand", lanes);
    write(&mut steps);
    lower(&steps.build(), Target { in_place, announces: Some(0), ..Target::default() })
}

fn started(program: &Program) -> Stepper {
    let mut stepper = Stepper::new();
    stepper.start(program);
    stepper
}

/// One request of a stepper.
#[derive(Clone, Debug, PartialEq)]
enum Asked {
    Exchange(Rank),
    Send(Rank, Slice),
    Expect(Rank, usize, Slice),
    Receive(Rank, Slice),
    Copy(Slice, Slice),
    Reduce(Slice, Vec<Source>, usize),
    ReduceToAll(Slice),
    Put(Rank, Slice),
    Get(Rank, Slice, Slice),
    Signal,
    Wait(Rank),
    Swap,
}

/// Ports that record requests, and perform as much of each as `answer` says.
struct Hands<A> {
    asked: Vec<Asked>,
    answer: A,
}

impl<A: Fn(&Asked) -> usize> Hands<A> {
    fn ask(&mut self, asked: Asked) -> Result<usize, ()> {
        let done = (self.answer)(&asked);
        self.asked.push(asked);
        Ok(done)
    }
}

impl<A: Fn(&Asked) -> usize> Ports for Hands<A> {
    type Error = ();

    fn exchange(&mut self, with: Rank, _: Slice, _: Slice) -> Result<Exchanged, ()> {
        let done = self.ask(Asked::Exchange(with))?;
        Ok([Exchanged::Nothing, Exchanged::Sent, Exchanged::Both][done])
    }

    fn send(&mut self, _: usize, to: Rank, src: Slice, _: bool) -> Result<usize, ()> {
        self.ask(Asked::Send(to, src))
    }

    fn expect(&mut self, _: usize, from: Rank, skip: usize, dst: Slice) -> bool {
        // Only the tests of announcements answer these.
        self.ask(Asked::Expect(from, skip, dst)) != Ok(0)
    }

    fn receive(&mut self, _: usize, from: Rank, dst: Slice, _: Stores) -> Result<usize, ()> {
        self.ask(Asked::Receive(from, dst))
    }

    fn copy(&mut self, _: usize, src: Slice, dst: Slice, _: Stores) -> Result<(), ()> {
        self.ask(Asked::Copy(src, dst)).map(drop)
    }

    fn reduce(&mut self, _: usize, reduction: Reduction<'_>) -> Result<usize, ()> {
        let Reduction { dst, sources, done, .. } = reduction;
        self.ask(Asked::Reduce(dst, sources.to_vec(), done))
    }

    fn reduce_to_all(&mut self, _: usize, dst: Slice, _: &[Source], _: Stores) -> Result<(), ()> {
        self.ask(Asked::ReduceToAll(dst)).map(drop)
    }

    fn put(&mut self, _: usize, to: Rank, src: Slice) -> Result<(), ()> {
        self.ask(Asked::Put(to, src)).map(drop)
    }

    fn get(&mut self, _: usize, from: Rank, src: Slice, dst: Slice, _: Stores) -> Result<(), ()> {
        self.ask(Asked::Get(from, src, dst)).map(drop)
    }

    fn signal(&mut self, _: usize) -> Result<(), ()> {
        self.ask(Asked::Signal).map(drop)
    }

    fn wait(&mut self, _: usize, from: Rank) -> Result<bool, ()> {
        Ok(self.ask(Asked::Wait(from))? == 1)
    }

    fn swap(&mut self) -> Result<(), ()> {
        self.ask(Asked::Swap).map(drop)
    }
}

/// Advances as far as `answer` allows, and returns all requests.
fn advance(
    stepper: &mut Stepper,
    program: &Program,
    answer: impl Fn(&Asked) -> usize,
) -> Vec<Asked> {
    let mut hands = Hands { asked: Vec::new(), answer };
    let progress = stepper.advance(program, &mut hands, usize::MAX).unwrap();
    assert_eq!(progress == Progress::Done, stepper.is_done());
    hands.asked.retain(|asked| !matches!(asked, Asked::Expect(..)));
    hands.asked
}

/// Advances as `advance` does, and returns the announcements.
fn announcements(
    stepper: &mut Stepper,
    program: &Program,
    answer: impl Fn(&Asked) -> usize,
) -> Vec<Asked> {
    let mut hands = Hands { asked: Vec::new(), answer };
    stepper.advance(program, &mut hands, usize::MAX).unwrap();
    hands.asked.retain(|asked| matches!(asked, Asked::Expect(..)));
    hands.asked
}

const fn input(offset: usize, len: usize) -> Slice {
    Slice::new(Buffer::Input, offset, len)
}

const fn output(offset: usize, len: usize) -> Slice {
    Slice::new(Buffer::Output, offset, len)
}

const fn send(to: u32, src: Slice) -> Asked {
    Asked::Send(Rank(to), src)
}

const fn recv(from: u32, dst: Slice) -> Asked {
    Asked::Receive(Rank(from), dst)
}

#[test]
fn an_operation_goes_on_where_it_stopped() {
    let sources = [Source::Wire(Rank(1), Form::Element), Source::Local(input(0, 10))];
    let program = written(1, false, |steps| {
        steps.recv(Rank(1), output(10, 10));
        steps.reduce(output(0, 10), &sources);
    });
    let mut stepper = started(&program);
    assert_eq!(advance(&mut stepper, &program, |_| 0), [recv(1, output(10, 10))]);
    let four_of_ten = |asked: &Asked| match asked {
        Asked::Receive(_, dst) if dst.len == 10 => 4,
        _ => 0,
    };
    let asked = advance(&mut stepper, &program, four_of_ten);
    assert_eq!(asked, [recv(1, output(10, 10)), recv(1, output(14, 6))]);
    let reduce = |at| Asked::Reduce(output(at, 10 - at), sources.to_vec(), at);
    let asked = advance(&mut stepper, &program, |asked| match asked {
        Asked::Receive(..) => 6,
        Asked::Reduce(.., 0) => 3,
        _ => 0,
    });
    assert_eq!(asked, [recv(1, output(14, 6)), reduce(0), reduce(3)]);
    assert_eq!(advance(&mut stepper, &program, |_| 7), [reduce(3)]);
    assert!(stepper.is_done());
    assert_eq!(advance(&mut stepper, &program, |_| 7), []);
}

#[test]
fn a_budget_ends_an_advance() {
    let program = written(1, false, |steps| {
        for at in 0..3 {
            steps.copy(input(at, 1), output(at, 1));
        }
    });
    let mut stepper = started(&program);
    let mut hands = Hands { asked: Vec::new(), answer: |_: &Asked| 0 };
    assert_eq!(stepper.advance(&program, &mut hands, 2), Ok(Progress::Moved));
    assert_eq!(hands.asked.len(), 2);
    assert_eq!(stepper.advance(&program, &mut hands, 2), Ok(Progress::Done));
    assert_eq!(hands.asked.len(), 3);
}

#[test]
fn an_exchange_does_what_follows_it() {
    let program = {
        let layout = Layout::one_host(2);
        let (collective, data_type, op) = (Collective::AllReduce, DataType::F32, ReduceOp::Sum);
        let call =
            Call { collective, count: 4, data_type, op, root: Rank(0), wire: Wire::default() };
        let plan = ScheduleParams { call, layout: &layout, rank: ME, chunk: 1, window_bytes: 16 };
        let mut steps = Builder::new(&plan, "by hand", 1);
        steps.send(Rank(1), input(0, 4));
        let theirs = Source::Wire(Rank(1), Form::Element);
        steps.reduce(output(0, 4), &[Source::Local(input(0, 4)), theirs]);
        lower(&steps.build(), Target::default())
    };
    assert_eq!(program.exchange(), Some((Rank(1), input(0, 4), output(0, 4))));
    let kinds = |asked: &[Asked]| {
        asked
            .iter()
            .map(|it| match it {
                Asked::Exchange(_) => 'x',
                Asked::Send(..) => 's',
                _ => 'r',
            })
            .collect::<alloc::string::String>()
    };
    for (done, all, rest) in [(0, "xsr", "sr"), (1, "xr", "r"), (2, "x", "")] {
        let answer = |asked: &Asked| if matches!(asked, Asked::Exchange(_)) { done } else { 4 };
        let mut stepper = started(&program);
        assert_eq!(kinds(&advance(&mut stepper, &program, answer)), all);
        assert!(stepper.is_done());
        stepper.start(&program);
        stepper.exchanged([Exchanged::Nothing, Exchanged::Sent, Exchanged::Both][done]);
        assert_eq!(kinds(&advance(&mut stepper, &program, answer)), rest);
        assert!(stepper.is_done());
    }
}

#[test]
fn a_send_leaves_while_the_lane_goes_on() {
    let program = written(1, false, |steps| {
        steps.send(Rank(1), input(0, 10));
        steps.recv(Rank(2), output(0, 10));
    });
    let mut stepper = started(&program);
    let four = |asked: &Asked| match asked {
        Asked::Send(..) => 4,
        _ => 0,
    };
    let asked = advance(&mut stepper, &program, four);
    assert_eq!(asked, [send(1, input(0, 10)), recv(2, output(0, 10))]);
    let asked = advance(&mut stepper, &program, four);
    assert_eq!(asked, [send(1, input(4, 6)), recv(2, output(0, 10))]);
    let asked = advance(&mut stepper, &program, |asked| match asked {
        Asked::Send(..) => 2,
        _ => 10,
    });
    assert_eq!(asked, [send(1, input(8, 2)), recv(2, output(0, 10))]);
    assert!(stepper.is_done(), "all has left and all has arrived");
}

#[test]
fn the_end_waits_for_sends() {
    let program = written(1, false, |steps| steps.send(Rank(1), input(0, 10)));
    let mut stepper = started(&program);
    assert_eq!(advance(&mut stepper, &program, |_| 9), [send(1, input(0, 10))]);
    assert!(!stepper.is_done());
    let waiting: Vec<_> = stepper.waiting().map(|w| (w.lane, w.at, w.sending_to)).collect();
    assert_eq!(waiting, [(0, 1, Some(Rank(1)))]);
    assert_eq!(advance(&mut stepper, &program, |_| 1), [send(1, input(9, 1))]);
    assert!(stepper.is_done());
    assert_eq!(stepper.waiting().count(), 0);
}

#[test]
fn nothing_overwrites_what_has_not_left() {
    let written = |in_place, at| {
        written(1, in_place, |steps| {
            steps.send(Rank(1), input(0, 10));
            steps.recv(Rank(2), output(at, 8));
        })
    };
    let nothing = |_: &Asked| 0;
    for (in_place, at) in [(false, 9), (true, 10)] {
        let program = written(in_place, at);
        let asked = advance(&mut started(&program), &program, nothing);
        assert_eq!(asked.len(), 2, "other memory");
    }
    let program = written(true, 9);
    let stepper = &mut started(&program);
    assert_eq!(advance(stepper, &program, |_| 9), [send(1, input(0, 10))]);
    assert_eq!(advance(stepper, &program, nothing), [send(1, input(9, 1))]);
    let asked = advance(stepper, &program, |asked| match asked {
        Asked::Send(..) => 1,
        _ => 0,
    });
    assert_eq!(asked, [send(1, input(9, 1)), recv(2, output(9, 8))]);
}

#[test]
fn a_result_is_not_overwritten_either() {
    let program = written(1, false, |steps| {
        steps.recv(Rank(2), output(0, 8));
        steps.send(Rank(1), output(0, 4));
        steps.recv(Rank(2), output(2, 4));
    });
    let mut stepper = started(&program);
    let asked = advance(&mut stepper, &program, |asked| match asked {
        Asked::Receive(_, dst) => dst.len,
        _ => 1,
    });
    assert_eq!(asked, [recv(2, output(0, 8)), send(1, output(0, 4))]);
    assert_eq!(advance(&mut stepper, &program, |_| 1), [send(1, output(1, 3))]);
    let asked = advance(&mut stepper, &program, |_| 2);
    assert_eq!(asked[..2], [send(1, output(2, 2)), recv(2, output(2, 4))]);
}

#[test]
fn sends_to_one_rank_stay_in_order() {
    let program = written(1, false, |steps| {
        steps.send(Rank(1), input(0, 4));
        steps.send(Rank(2), input(4, 4));
        steps.send(Rank(1), input(8, 4));
    });
    let mut stepper = started(&program);
    let to_two = |asked: &Asked| match asked {
        Asked::Send(Rank(2), src) => src.len,
        _ => 0,
    };
    let asked = advance(&mut stepper, &program, to_two);
    assert_eq!(asked, [send(1, input(0, 4)), send(2, input(4, 4))]);
    assert_eq!(advance(&mut stepper, &program, to_two), [send(1, input(0, 4))]);
    let asked = advance(&mut stepper, &program, |_| 4);
    assert_eq!(asked, [send(1, input(0, 4)), send(1, input(8, 4))]);
    assert!(stepper.is_done());
}

#[test]
fn only_so_many_sends_are_posted() {
    let program = written(1, false, |steps| {
        for rank in 1..=POSTED_MAX + 2 {
            steps.send(Rank::at(rank), input(0, 1));
        }
        steps.recv(Rank(1), output(0, 1));
    });
    let mut stepper = started(&program);
    assert_eq!(advance(&mut stepper, &program, |_| 0).len(), POSTED_MAX);
    assert_eq!(advance(&mut stepper, &program, |_| 0).len(), POSTED_MAX);
    // The first two leave. So two more can be posted, and then the lane goes on.
    let asked = advance(&mut stepper, &program, |asked| {
        usize::from(matches!(asked, Asked::Send(Rank(..=2), _)))
    });
    assert_eq!(asked.len(), POSTED_MAX + 3);
    assert_eq!(asked.last(), Some(&recv(1, output(0, 1))));
}

#[test]
fn lanes_go_on_by_themselves() {
    let program = written(2, false, |steps| {
        steps.lane(0).recv(Rank(1), output(0, 1));
        steps.lane(1).recv(Rank(1), output(1, 1));
    });
    let mut stepper = started(&program);
    let only = |at: usize| move |asked: &Asked| usize::from(*asked == recv(1, output(at, 1)));
    assert_eq!(advance(&mut stepper, &program, only(1)).len(), 2);
    assert!(!stepper.is_done());
    assert_eq!(stepper.waiting().map(|w| w.lane).collect::<Vec<_>>(), [0]);
    assert_eq!(advance(&mut stepper, &program, |_| 1).len(), 1);
    assert!(stepper.is_done());
}

#[test]
fn a_stepper_serves_call_after_call() {
    let two = written(2, false, |steps| {
        for lane in 0..2 {
            steps.lane(lane).recv(Rank(1), output(lane, 1));
        }
    });
    let one = written(1, false, |steps| steps.send(Rank(1), input(0, 10)));
    let mut stepper = started(&two);
    assert_eq!(
        advance(&mut stepper, &two, |_| 0).len(),
        2,
        "abandoned in the middle, as after an error"
    );
    stepper.start(&one);
    assert_eq!(advance(&mut stepper, &one, |_| 10), [send(1, input(0, 10))]);
    assert!(stepper.is_done());
    assert_eq!(stepper.waiting().count(), 0, "lanes of the call before do not count");
    let empty = written(1, false, |_| ());
    stepper.start(&empty);
    assert_eq!(advance(&mut stepper, &empty, |_| 0), []);
    assert!(stepper.is_done());
}

#[test]
#[should_panic(expected = "more done than asked")]
fn more_than_asked_is_refused() {
    let program = written(1, false, |steps| steps.recv(Rank(1), output(0, 4)));
    drop(advance(&mut started(&program), &program, |_| 5));
}

#[test]
fn a_signal_is_given_at_once_and_waited_for() {
    let program = written(1, false, |steps| {
        steps.signal();
        steps.wait(Rank(1));
        steps.copy(input(0, 1), output(0, 1));
    });
    let mut stepper = started(&program);
    let wait = || Asked::Wait(Rank(1));
    assert_eq!(advance(&mut stepper, &program, |_| 0), [Asked::Signal, wait()]);
    assert_eq!(advance(&mut stepper, &program, |_| 0), [wait()], "signalled once");
    let copy = Asked::Copy(input(0, 1), output(0, 1));
    assert_eq!(advance(&mut stepper, &program, |_| 1), [wait(), copy]);
    assert!(stepper.is_done());
}

#[test]
fn receives_in_a_row_are_announced_when_nothing_else_uses_their_place() {
    let program = written(1, false, |steps| {
        steps.recv(Rank(1), output(0, 4));
        steps.reduce(output(20, 2), &[Source::Wire(Rank(1), Form::Element)]);
        steps.recv(Rank(1), output(4, 4));
        steps.recv(Rank(1), output(8, 4));
        steps.send(Rank(2), output(0, 12));
        steps.recv(Rank(1), output(0, 12));
    });
    let expect = |skip, dst| Asked::Expect(Rank(1), skip, dst);
    let first = [expect(0, output(0, 4)), expect(24, output(4, 8))];
    let mut stepper = started(&program);
    let of_expect = |asked: &Asked| usize::from(matches!(asked, Asked::Expect(..)));
    assert_eq!(announcements(&mut stepper, &program, of_expect), first);
    assert_eq!(announcements(&mut stepper, &program, of_expect), [], "once each");
    let all_arrives = |asked: &Asked| match asked {
        Asked::Receive(_, dst) if dst.len < 12 => dst.len,
        Asked::Reduce(dst, ..) => dst.len,
        _ => 0,
    };
    assert_eq!(announcements(&mut stepper, &program, all_arrives), [], "the send is posted");
    let sent = |asked: &Asked| if matches!(asked, Asked::Receive(..)) { 0 } else { 12 };
    assert_eq!(announcements(&mut stepper, &program, sent), [expect(0, output(0, 12))]);

    // A refused announcement is repeated, for the elements that have not arrived.
    let mut stepper = started(&program);
    assert_eq!(announcements(&mut stepper, &program, |_| 0), first[..1]);
    let three = |asked: &Asked| match asked {
        Asked::Receive(_, Slice { offset: 0, len: 4, .. }) => 3,
        _ => 0,
    };
    let rest = expect(0, output(3, 1));
    assert_eq!(announcements(&mut stepper, &program, three), [first[0].clone(), rest.clone()]);
    let asked = announcements(&mut stepper, &program, of_expect);
    assert_eq!(asked, [rest, expect(12, output(4, 8))]);
}
