//! Profiles of threads as ranks: which part of a call takes its time.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::time::Duration;

use ringfold::{Communicator, Error, Parts, Profile, Rank, ReduceOp, local};

/// The rank that comes late to each call.
const LATE: usize = 1;

const CALLS: u64 = 4;

/// Performs a collective of a kind that takes several steps.
type Collective = fn(&mut Communicator) -> Result<(), Error>;

const COLLECTIVES: [(&str, Collective); 7] = [
    ("allreduce", |comm| comm.all_reduce(&mut vec![1.0_f32; 1 << 16], ReduceOp::Sum)),
    ("allreduce", |comm| comm.all_reduce(&mut vec![1.0_f32; 1 << 10], ReduceOp::pre_mul_sum(2.0))),
    ("reduce_scatter", |comm| {
        let count = comm.size() << 12;
        comm.reduce_scatter(&mut vec![1_i64; count], ReduceOp::Max)
    }),
    ("allgather", |comm| {
        let count = comm.size() << 14;
        comm.all_gather(&mut vec![7_u8; count])
    }),
    ("allgatherv", |comm| {
        let counts: Vec<usize> = (1..=comm.size()).map(|part| part << 10).collect();
        let mut buffer = vec![7_u8; counts.iter().sum()];
        comm.all_gather_v(&mut buffer, Parts::new(&counts))
    }),
    ("broadcast", |comm| comm.broadcast(&mut vec![7_u8; 1 << 16], Rank::at(LATE))),
    ("barrier", Communicator::barrier),
];

/// The profile of each rank, of calls to which one rank comes late.
fn profiles(size: usize, collective: Collective) -> Vec<Profile> {
    let profiled = local::run(size, |comm| {
        collective(comm).unwrap();
        comm.begin_profile().unwrap();
        for _ in 0..CALLS {
            if comm.rank() == Rank::at(LATE) {
                std::thread::sleep(Duration::from_millis(50));
            }
            collective(comm).unwrap();
        }
        let profile = comm.end_profile().unwrap();
        collective(comm).unwrap();
        assert_eq!(comm.end_profile().unwrap(), Profile::default(), "it has ended");
        profile
    });
    profiled.unwrap()
}

#[test]
fn a_rank_that_comes_late_makes_the_others_wait() {
    for (size, (name, collective)) in
        [2, 3, 4].into_iter().flat_map(|n| COLLECTIVES.map(|it| (n, it)))
    {
        let profiles = profiles(size, collective);
        let of = |rank: usize| {
            assert_eq!(profiles[rank].kinds.len(), 1, "{name}: {}", profiles[rank]);
            profiles[rank].kinds[0]
        };
        for rank in 0..size {
            let (own, late) = (of(rank), of(LATE));
            let shown =
                format!("{name} of {size}, rank {rank}: {}{}", profiles[rank], profiles[LATE]);
            assert_eq!((own.operation, own.calls), (name, CALLS), "{shown}");
            assert_eq!(own.waiting + own.moving() + own.combining, own.time, "{shown}");
            if rank != LATE {
                assert!(own.waiting > 3 * (own.moving() + own.combining), "{shown}");
                assert!(own.waiting > 3 * late.waiting, "{shown}");
            }
        }
    }
}

#[test]
fn only_reductions_combine() {
    for (name, collective) in COLLECTIVES {
        let profiles = profiles(3, collective);
        let combines = profiles.iter().any(|it| it.kinds[0].combining > Duration::ZERO);
        assert_eq!(combines, name.contains("reduce"), "{name}: {}", profiles[0]);
    }
}

#[test]
fn calls_of_different_kinds_have_lines_of_their_own() {
    let profiles = local::run(2, |comm| {
        comm.begin_profile().unwrap();
        for elements in [1 << 10, 1 << 16, 1000] {
            comm.all_reduce(&mut vec![1.0_f32; elements], ReduceOp::Sum).unwrap();
        }
        comm.broadcast(&mut vec![1_u8; 4096], Rank(0)).unwrap();
        comm.end_profile().unwrap()
    });
    for profile in profiles.unwrap() {
        let kinds: Vec<_> =
            profile.kinds.iter().map(|it| (it.operation, it.calls, it.bytes)).collect();
        let wanted = [("allreduce", 2, 8096), ("allreduce", 1, 4 << 16), ("broadcast", 1, 4096)];
        assert_eq!(kinds, wanted, "{profile}");
        assert!(profile.kinds.iter().all(|it| it.expected.is_some()), "{profile}");
        let lines = profile.to_string();
        assert_eq!(lines.lines().count(), 2 + kinds.len(), "{lines}");
    }
}

#[test]
fn a_started_call_leaves_none_after_it_out() {
    let profiles = local::run(2, |comm| {
        comm.begin_profile().unwrap();
        for _ in 0..2 {
            let started = comm.start_all_reduce(vec![1.0_f32; 1000], ReduceOp::Sum);
            let sums = started.unwrap().wait().unwrap();
            for _ in 0..2 {
                comm.all_reduce(&mut sums.clone(), ReduceOp::Sum).unwrap();
            }
        }
        comm.end_profile().unwrap()
    });
    for profile in profiles.unwrap() {
        assert_eq!(profile.kinds[0].calls, 4, "{profile}");
    }
}
