//! The same tests over RDMA, if there are devices. `tests/rdma` runs them in a virtual machine. Its
//! processor may be emulated, so they make some of the calls on few ranks.

use ringfold::{Collective, ReduceOp};
use ringfold_transport::rdma::{Rails, Settings};

use crate::allocations::none_in_repeated_calls;
use crate::bits::same_bits;
use crate::via::Via;
use crate::{barriers, calls, differs_after_repeats, repeats, some_calls, windows, wrong_in};

/// One in `OF` calls is made.
const OF: usize = 5;

fn suite(collective: Collective) {
    if Via::Rdma.is_there() {
        // A collective without a reduction has few types and no operations.
        let of = if collective.reduces() { OF } else { 1 };
        some_calls(Via::Rdma, collective, &[2, 3], of);
    }
}

#[test]
fn allreduce() {
    suite(Collective::AllReduce);
}

#[test]
fn allgather() {
    suite(Collective::AllGather);
}

#[test]
fn reduce_scatter() {
    suite(Collective::ReduceScatter);
}

#[test]
fn broadcast() {
    suite(Collective::Broadcast);
}

#[test]
fn reduce() {
    suite(Collective::Reduce);
}

#[test]
fn barrier() {
    if Via::Rdma.is_there() {
        barriers(Via::Rdma, &[1, 2, 3]);
    }
}

#[test]
fn every_rank_gets_the_same_bits() {
    if Via::Rdma.is_there() {
        same_bits(Via::Rdma, 3);
    }
}

#[test]
fn repeated_calls_allocate_nothing() {
    if Via::Rdma.is_there() {
        for elements in [8, 5_000, 100_000] {
            none_in_repeated_calls(Via::Rdma, 2, elements);
        }
    }
}

#[test]
fn calls_that_repeat() {
    if Via::Rdma.is_there() {
        repeats(Via::Rdma, 2);
    }
}

#[test]
fn a_call_that_differs() {
    if Via::Rdma.is_there() {
        differs_after_repeats(Via::Rdma);
    }
}

/// Devices read and write the communicator's buffers in place. Messages have one piece or several.
#[test]
fn buffers_of_the_communicator() {
    const RANKS: usize = 3;
    const BYTES: usize = 1_000_003 * 4 * RANKS;
    if !Via::Rdma.is_there() {
        return;
    }
    Via::Rdma.run(RANKS, &[], |comm| {
        let mut memory = [comm.alloc::<u8>(BYTES).unwrap(), comm.alloc::<u8>(BYTES).unwrap()];
        for collective in Collective::ALL {
            let calls = calls(collective, RANKS).into_iter().filter(|call| call.count > 1000);
            for (index, call) in calls.step_by(OF).enumerate() {
                let [input, output] = &mut memory;
                let in_place = index % 2 == 0;
                let wrong = wrong_in([input, output], comm, &call, in_place, index as u64);
                assert_eq!(wrong, 0, "{call}, in place {in_place}, rank {}", comm.rank());
            }
        }
    });
}

/// Ordinary memory that is registered for many calls, and memory beside it.
#[test]
fn registered_buffers() {
    const RANKS: usize = 2;
    const ELEMENTS: usize = 300_007;
    if !Via::Rdma.is_there() {
        return;
    }
    let rails = Rails::open(&Settings::default(), None);
    // Devices do not access callers' memory over iWARP.
    let is_registered = rails.is_ok_and(|rails| rails.networks() != "w");
    Via::Rdma.run(RANKS, &[], |comm| {
        let mut all = vec![0_u32; 3 * ELEMENTS];
        let (own, rest) = all.split_at_mut(ELEMENTS);
        let mut kept = comm.register(&mut *own).unwrap();
        assert_eq!(kept.is_registered(), is_registered);
        for round in 0..3 {
            for buffer in [&mut *kept, &mut rest[..ELEMENTS]] {
                buffer.fill(round + comm.rank().0);
                comm.all_reduce(buffer, ReduceOp::Sum).unwrap();
                assert!(buffer.iter().all(|element| *element == 2 * round + 1), "round {round}");
            }
        }
        drop(kept);
        own.fill(comm.rank().0);
        comm.all_reduce(own, ReduceOp::Max).unwrap();
        assert!(own.iter().all(|element| *element == 1));
    });
}

#[test]
fn windows() {
    if Via::Rdma.is_there() {
        windows::some_calls(Via::Rdma, &[2, 3], OF);
        windows::outlive_each_other(Via::Rdma);
        windows::ask_differently(Via::Rdma);
    }
}
