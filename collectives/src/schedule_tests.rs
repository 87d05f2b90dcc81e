//! The steps that a builder writes.

use alloc::vec::Vec;

use ringfold_topology::Layout;
use ringfold_types::limits::LINK_BYTES_MIN;
use ringfold_types::{Buffer, Call, Collective, DataType, Rank, ReduceOp, Slice, Wire};

use crate::algorithm::{Algorithm, ScheduleParams};
use crate::schedule::{Builder, Step};

#[test]
fn only_adjacent_messages_are_merged() {
    let (collective, data_type, op) = (Collective::Broadcast, DataType::F32, ReduceOp::Sum);
    let call = Call { collective, count: 100, data_type, op, root: Rank(0), wire: Wire::default() };
    let (layout, window_bytes) = (Layout::one_host(3), LINK_BYTES_MIN);
    let plan = ScheduleParams { call, layout: &layout, rank: Rank(0), chunk: 10, window_bytes };
    let mut steps = Builder::new(&plan, "none", 2);
    let slice = |buffer, offset| Slice::new(buffer, offset, 10);
    let (input, output) = (|at| slice(Buffer::Input, at), |at| slice(Buffer::Output, at));
    steps.send(Rank(1), input(0));
    steps.send(Rank(1), input(10));
    steps.send(Rank(2), input(20));
    steps.send(Rank(1), input(30));
    steps.send(Rank(1), output(40));
    steps.send(Rank(1), output(60));
    steps.send(Rank(1), output(50));
    steps.recv(Rank(1), output(60));
    steps.recv(Rank(1), output(70));
    steps.recv(Rank(2), output(80));
    steps.lane(1).recv(Rank(2), output(90));
    let long = |buffer, offset| Slice::new(buffer, offset, 20);
    let send = |to, src| Step::Send { to: Rank(to), src };
    let recv = |from, dst| Step::Recv { from: Rank(from), dst };
    let expected = [
        send(1, long(Buffer::Input, 0)),
        send(2, input(20)),
        send(1, input(30)),
        send(1, output(40)),
        send(1, output(60)),
        send(1, output(50)),
        recv(1, long(Buffer::Output, 60)),
        recv(2, output(80)),
    ];
    assert_eq!(steps.build().lanes(), [expected.to_vec(), [recv(2, output(90))].to_vec()]);
}

/// A transport that takes a long message at once gets it at once.
#[test]
fn two_ranks_exchange_whole_buffers() {
    let layout = Layout::apart(2);
    let mut all = Algorithm::of(Collective::AllReduce).iter();
    let algorithm = all.find(|it| it.name == "recursive_doubling").unwrap();
    for (rank, other) in [(Rank(0), Rank(1)), (Rank(1), Rank(0))] {
        for count in [1, LINK_BYTES_MIN / 4, LINK_BYTES_MIN / 4 + 1, 1 << 20] {
            let (collective, data_type, op) = (Collective::AllReduce, DataType::F32, ReduceOp::Sum);
            let (root, wire) = (Rank(0), Wire::default());
            let call = Call { collective, count, data_type, op, root, wire };
            let (chunk, window_bytes) = (16 << 10, LINK_BYTES_MIN);
            let plan = ScheduleParams { call, layout: &layout, rank, chunk, window_bytes };
            let schedule = (algorithm.schedule)(&plan);
            let is_send = |step: &&Step| matches!(step, Step::Send { .. });
            let sends: Vec<&Step> = schedule.lanes().iter().flatten().filter(is_send).collect();
            let whole = Step::Send { to: other, src: Slice::new(Buffer::Input, 0, count) };
            assert_eq!(sends, [&whole]);
            let landing = schedule.rounded_len() * data_type.bytes();
            assert_eq!(landing > 0, count * data_type.bytes() > LINK_BYTES_MIN, "{count}");
            assert!(landing < 2 * chunk * data_type.bytes(), "{count}");
        }
    }
}
