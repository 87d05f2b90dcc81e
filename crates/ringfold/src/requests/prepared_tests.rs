//! Tests of prepared calls among threads.

use std::sync::Barrier;
use std::time::Duration;

use crate::{
    ANY_SOURCE, Call, Collective, Communicator, DataType, Error, Parts, Rank, ReduceOp, Uneven,
    local, wait_any,
};

fn small(number: usize) -> u8 {
    number.try_into().unwrap()
}

/// The text of the refusal of an argument.
fn refusal<R>(result: Result<R, Error>) -> String {
    match result {
        Err(error @ Error::Argument { .. }) => error.to_string(),
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("it was not refused"),
    }
}

#[test]
fn a_prepared_call_is_started_many_times() {
    for size in [1, 2, 3] {
        local::run(size, |comm| {
            let (rank, n) = (u64::from(comm.rank().0), comm.size() as u64);
            let call = Call {
                collective: Collective::AllToAll,
                count: 2,
                data_type: DataType::U8,
                op: ReduceOp::Sum,
                root: Rank(0),
                wire: comm.wire(),
            };
            let both =
                (vec![small(comm.rank().index()); 2 * comm.size()], vec![9_u8; 2 * comm.size()]);
            // Ranks prepare in different orders.
            let mut of_sum = None;
            if rank == 0 {
                of_sum = comm.prepare(|it| it.start_all_reduce(vec![0; 9], ReduceOp::Sum)).ok();
            }
            let mut all = comm.prepare(|it| it.start(&call, both, |(i, o)| (Some(i), o))).unwrap();
            let mut sum = match of_sum {
                Some(sum) => sum,
                None => comm.prepare(|it| it.start_all_reduce(vec![0; 9], ReduceOp::Sum)).unwrap(),
            };
            assert!(sum.test() && all.wait_for(Duration::ZERO), "calls without a start have ended");
            assert_eq!(sum.wait().unwrap(), &[0; 9]);
            for round in 0..50_u64 {
                sum.buffers().unwrap().fill(round + rank);
                sum.start(comm).unwrap();
                all.start(comm).unwrap();
                assert!(sum.buffers().is_none());
                // Some ranks make the call without a preparation.
                let mut plain = vec![round; 9];
                if rank == 1 {
                    comm.all_reduce(&mut plain, ReduceOp::Sum).unwrap();
                } else {
                    plain = comm.start_all_reduce(plain, ReduceOp::Sum).unwrap().wait().unwrap();
                }
                assert_eq!(plain, [n * round; 9]);
                let expected: Vec<u8> =
                    (0..comm.size()).flat_map(|peer| [small(peer); 2]).collect();
                assert_eq!(all.wait().unwrap().1, expected);
                assert_eq!(sum.wait().unwrap(), &[n * round + n * (n - 1) / 2; 9]);
                assert_eq!(sum.wait().unwrap().len(), 9, "a wait without a start returns");
            }
            assert_eq!(sum.into_buffers().unwrap(), [n * 49 + n * (n - 1) / 2; 9]);
        })
        .unwrap();
    }
}

#[test]
fn parts_and_messages_are_prepared_too() {
    local::run(2, |comm| {
        let (rank, peer) = (small(comm.rank().index()), Rank(1 - comm.rank().0));
        let (send, recv) = ([2, 1], [[2, 2], [1, 1]][usize::from(rank)]);
        let uneven = Uneven::AllToAll { send: Parts::new(&send), recv: Parts::new(&recv) };
        let both = (vec![rank; 3], vec![9_u8; recv.iter().sum()]);
        let mut parts = comm
            .prepare(|it| it.start_uneven(&uneven, DataType::U8, both, |(i, o)| (Some(i), o)))
            .unwrap();
        let mut coming = comm.prepare(|it| it.start_recv(vec![0_u64; 4], ANY_SOURCE, 7)).unwrap();
        let mut going = comm.prepare(|it| it.start_send(vec![0_u64; 3], peer, 7)).unwrap();
        for round in 1..20 {
            going.buffers().unwrap().fill(round);
            coming.start(comm).unwrap();
            going.start(comm).unwrap();
            parts.start(comm).unwrap();
            let received = coming.wait().unwrap();
            assert_eq!((received.message.peer, received.message.bytes), (peer, 24));
            assert_eq!(received.buffer, [round, round, round, 0]);
            going.wait().unwrap();
            let (_, output) = parts.wait().unwrap();
            let expected: &[u8] = if rank == 0 { &[0, 0, 1, 1] } else { &[0, 1] };
            assert_eq!(output, expected);
            output.fill(9);
        }
    })
    .unwrap();
}

#[test]
fn an_active_call_is_not_started_again() {
    let may_begin = Barrier::new(2);
    local::run(2, |comm| {
        let prepare = |comm: &mut Communicator| {
            comm.prepare(|it| it.start_all_reduce(vec![1_u32; 3], ReduceOp::Sum)).unwrap()
        };
        let (mut first, mut second) = (prepare(comm), prepare(comm));
        let mut other = comm.duplicate().unwrap();
        assert!(refusal(first.start(&mut other)).contains("another communicator"));
        if comm.rank() == Rank(0) {
            first.start(comm).unwrap();
            assert!(!first.test() && first.buffers().is_none());
            assert!(refusal(first.start(comm)).contains("is active"));
            second.start(comm).unwrap();
            may_begin.wait();
        } else {
            may_begin.wait();
            first.start(comm).unwrap();
            second.start(comm).unwrap();
        }
        // A call that has ended stays active until its wait.
        second.wait().unwrap();
        assert!(first.test() && wait_any(&[&first]) == Some(0));
        assert!(refusal(first.start(comm)).contains("is active"));
        assert_eq!(first.wait().unwrap(), &[2; 3]);
        first.buffers().unwrap().push(7);
        assert!(refusal(first.start(comm)).contains("other lengths"));
        assert_eq!(first.buffers().unwrap().pop(), Some(7));
        first.start(comm).unwrap();
        assert_eq!(first.wait().unwrap(), &[4; 3]);
    })
    .unwrap();
}

#[test]
fn a_preparation_starts_only_what_it_does_not_return() {
    local::run(2, |comm| {
        let mut other = comm.duplicate().unwrap();
        let mut second = None;
        let first = comm.prepare(|comm| {
            let first = comm.start_all_reduce(vec![1_u32], ReduceOp::Sum);
            second = comm.start_all_reduce(vec![3_u32], ReduceOp::Sum).ok();
            first
        });
        assert_eq!(second.unwrap().wait().unwrap(), [6]);
        let mut first = first.unwrap();
        assert_eq!(first.buffers(), Some(&mut vec![1]));
        let foreign = comm.prepare(|_| other.start_all_reduce(vec![1_u32], ReduceOp::Sum));
        let failed = foreign.unwrap_err();
        assert!(failed.to_string().contains("another communicator"), "{failed}");
        assert_eq!(failed.buffers, [2]);
        let refused = comm.prepare(|it| it.start_broadcast(vec![1_u8], Rank(9)));
        assert_eq!(refused.unwrap_err().buffers, [1]);
        // A panic leaves a communicator that starts calls.
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            comm.prepare(|_| -> crate::Started<()> { std::panic::resume_unwind(Box::new(())) })
        }))
        .unwrap_err();
        // A scope in a preparation ends its calls.
        let mut kept = [1_u8];
        let scoped = comm.prepare(|comm| {
            comm.scope(|scope| scope.all_reduce(&mut kept[..], ReduceOp::Sum).map(drop)).unwrap();
            comm.start_barrier()
        });
        assert_eq!((kept, scoped.is_err()), ([2], true));
        assert_eq!(comm.start_all_reduce(vec![1], ReduceOp::Sum).unwrap().wait().unwrap(), [2]);
    })
    .unwrap();
}

#[test]
fn a_failure_ends_a_prepared_call_and_returns_its_buffers() {
    local::run(2, |comm| {
        let mut sum =
            comm.prepare(|it| it.start_all_reduce(vec![1_u32; 3], ReduceOp::Sum)).unwrap();
        sum.start(comm).unwrap();
        if comm.rank() == Rank(1) {
            comm.abort("on purpose");
        }
        // Rank 1 may have taken part before.
        while sum.wait().is_ok() {
            if let Err(error) = sum.start(comm) {
                assert!(matches!(error, Error::Failed(_)), "{error}");
                break;
            }
        }
        assert!(matches!(sum.start(comm), Err(Error::Failed(_))));
        assert_eq!(sum.into_buffers().unwrap().len(), 3);
    })
    .unwrap();
}
