//! Tests of started calls among threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use crate::backoff::PARK_MAX;
use crate::config::CallProgress;
use crate::{ANY_TAG, Config, Error, Rank, ReduceOp, local};

/// The longest time that a test waits for an event that should come at once.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn started_calls_end_with_the_results_of_blocking_ones() {
    for size in [1, 2, 3, 5] {
        local::run(size, |comm| {
            let (rank, size) = (comm.rank().0, comm.size());
            for len in [0, 1, 7, 1000, 300_000] {
                let own: Vec<f32> = (0..len).map(|at| (at % 13) as f32 + rank as f32).collect();
                let mut expected = own.clone();
                comm.all_reduce(&mut expected, ReduceOp::Sum).unwrap();
                let request = comm.start_all_reduce(own.clone(), ReduceOp::Sum).unwrap();
                assert_eq!(request.wait().unwrap(), expected);
                // Several at once, some awaited in another order, one by polling.
                let sums: Vec<_> = (0..4)
                    .map(|_| comm.start_all_reduce(own.clone(), ReduceOp::Avg).unwrap())
                    .collect();
                let gathered =
                    comm.start_all_gather_into(own.clone(), vec![0.0; len * size]).unwrap();
                let scattered = comm
                    .start_reduce_scatter_into(
                        vec![1.0_f32; 3 * size],
                        vec![0.0; 3],
                        ReduceOp::pre_mul_sum(2.0),
                    )
                    .unwrap();
                let sent = comm.start_broadcast(vec![rank; 5], Rank(0)).unwrap();
                let begin = Instant::now();
                while !sent.test() {
                    assert!(begin.elapsed() < PATIENCE);
                    std::thread::yield_now();
                }
                assert_eq!(sent.wait().unwrap(), [0; 5]);
                assert_eq!(scattered.wait().unwrap().1, [2.0 * size as f32; 3]);
                let mut all = vec![0.0; len * size];
                comm.all_gather_into(&own, &mut all).unwrap();
                assert_eq!(gathered.wait().unwrap().1, all);
                for sum in sums.into_iter().rev() {
                    let close = |(a, b): (&f32, &f32)| (a * size as f32 - b).abs() < 1e-2;
                    assert!(sum.wait().unwrap().iter().zip(&expected).all(close));
                }
                comm.start_barrier().unwrap().wait().unwrap();
            }
        })
        .unwrap();
    }
}

#[test]
fn a_start_does_not_wait_for_a_late_rank() {
    let may_begin = Barrier::new(2);
    local::run(2, |comm| {
        if comm.rank() == Rank(1) {
            may_begin.wait();
        }
        let request = comm.start_all_reduce(vec![1_u64; 1 << 16], ReduceOp::Sum).unwrap();
        if comm.rank() == Rank(0) {
            assert!(!request.test());
            may_begin.wait();
        }
        assert_eq!(request.wait().unwrap(), vec![2; 1 << 16]);
    })
    .unwrap();
}

#[test]
fn a_wait_ends_after_its_limit() {
    let may_begin = Barrier::new(2);
    local::run(2, |comm| {
        if comm.rank() == Rank(1) {
            may_begin.wait();
        }
        let request = comm.start_all_reduce(vec![1_u64; 9], ReduceOp::Sum).unwrap();
        if comm.rank() == Rank(0) {
            for limit in [0, 1, 20].map(Duration::from_millis) {
                assert!(!request.wait_for(limit));
                assert!(request.take_result().is_none());
            }
            may_begin.wait();
        }
        assert!(request.wait_for(PATIENCE));
        assert!(matches!(request.take_result(), Some(Ok(None))));
        assert!(request.take_result().is_none());
    })
    .unwrap();
}

#[test]
fn the_helper_ends_calls_that_nobody_waits_for() {
    let done = AtomicBool::new(false);
    local::run(2, |comm| {
        let request = comm.start_all_reduce(vec![1.0_f64; 1 << 18], ReduceOp::Sum).unwrap();
        let second = comm.start_all_reduce(vec![1.0_f64; 10], ReduceOp::Sum).unwrap();
        drop(second);
        let begin = Instant::now();
        // Only rank 1 waits. Rank 0's helper must do its part.
        if comm.rank() == Rank(1) {
            request.wait().unwrap();
            done.store(true, Ordering::Release);
        } else {
            while !done.load(Ordering::Acquire) {
                assert!(begin.elapsed() < PATIENCE, "the helper does not advance the call");
                std::thread::sleep(Duration::from_millis(1));
            }
        }
    })
    .unwrap();
}

#[test]
fn the_helper_ends_calls_at_their_time_limit() {
    let [may_begin, is_over] = [2, 2].map(Barrier::new);
    local::run(2, |comm| {
        if comm.rank() == Rank(1) {
            may_begin.wait();
        }
        let first = comm.start_all_reduce(vec![1_u64; 9], ReduceOp::Sum).unwrap();
        if comm.rank() == Rank(0) {
            may_begin.wait();
            first.wait().unwrap();
            // Long enough for a helper without calls to sleep without a limit.
            std::thread::sleep(3 * PARK_MAX);
            comm.set_timeout(3 * PARK_MAX);
            let request = comm.start_all_reduce(vec![1_u64; 9], ReduceOp::Sum).unwrap();
            let ended = request.descriptor().unwrap();
            let limit = Timespec { tv_sec: PATIENCE.as_secs().cast_signed(), tv_nsec: 0 };
            let found = poll(&mut [PollFd::new(&ended, PollFlags::IN)], Some(&limit));
            is_over.wait();
            assert_eq!(found, Ok(1), "the call does not end");
            assert!(request.wait().is_err());
        } else {
            first.wait().unwrap();
            is_over.wait();
        }
    })
    .unwrap_err();
}

#[test]
fn communicators_may_start_in_opposite_orders() {
    local::run(2, |comm| {
        let mut other = comm.duplicate().unwrap();
        let both = if comm.rank() == Rank(0) {
            let first = comm.start_all_reduce(vec![1; 5000], ReduceOp::Sum).unwrap();
            (first, other.start_all_reduce(vec![2; 5000], ReduceOp::Sum).unwrap())
        } else {
            let first = other.start_all_reduce(vec![2; 5000], ReduceOp::Sum).unwrap();
            (comm.start_all_reduce(vec![1; 5000], ReduceOp::Sum).unwrap(), first)
        };
        assert_eq!(both.0.wait().unwrap(), [2; 5000]);
        assert_eq!(both.1.wait().unwrap(), [4; 5000]);
    })
    .unwrap();
}

#[test]
fn waits_advance_all_communicators_where_there_is_no_helper() {
    let (progress, timeout) = (CallProgress::Caller, PATIENCE);
    let config = Config { progress, timeout, ..Config::default() };
    let is_started = Barrier::new(2);
    local::run_with(&config, 2, |comm| {
        let mut other = comm.duplicate().unwrap();
        let (own, data) = (comm.rank(), || vec![1; 100_000]);
        if own == Rank(0) {
            let first = comm.start_all_reduce(data(), ReduceOp::Sum).unwrap();
            let second = other.start_all_reduce(data(), ReduceOp::Sum).unwrap();
            assert!(comm.slot().look(|engine| engine.watched_by).is_none());
            is_started.wait();
            // This wait advances the other call too, without which rank 1 does not begin the first.
            assert_eq!(first.wait().unwrap(), vec![2; 100_000]);
            assert_eq!(second.wait().unwrap(), vec![2; 100_000]);
        } else {
            is_started.wait();
            let second = other.start_all_reduce(data(), ReduceOp::Sum).unwrap();
            assert_eq!(second.wait().unwrap(), vec![2; 100_000]);
            let first = comm.start_all_reduce(data(), ReduceOp::Sum).unwrap();
            assert_eq!(first.wait().unwrap(), vec![2; 100_000]);
        }
    })
    .unwrap();
}

#[test]
fn messages_pass_started_calls() {
    local::run(2, |comm| {
        let peer = Rank(1 - comm.rank().0);
        let mut got = vec![0_u8; 1 << 20];
        if comm.rank() == Rank(0) {
            let request = comm.start_all_reduce(vec![1_i64; 1 << 17], ReduceOp::Sum).unwrap();
            // Rank 1 begins its part only after this message.
            comm.send(&vec![7_u8; 1 << 20], peer, 3).unwrap();
            comm.recv(&mut got, peer, 4).unwrap();
            assert_eq!(request.wait().unwrap(), vec![2; 1 << 17]);
        } else {
            comm.recv(&mut got, peer, 3).unwrap();
            comm.send(&got, peer, 4).unwrap();
            comm.all_reduce(&mut vec![1_i64; 1 << 17], ReduceOp::Sum).unwrap();
        }
        assert_eq!(got, vec![7; 1 << 20]);
    })
    .unwrap();
}

/// A thread that waits for a call gives way to a message, without which the call never ends.
#[test]
fn messages_pass_a_thread_that_waits() {
    local::run(2, |comm| {
        let peer = Rank(1 - comm.rank().0);
        let mut got = [0_u8; 9];
        if comm.rank() == Rank(0) {
            let request = comm.start_all_reduce(vec![1_i64; 1 << 17], ReduceOp::Sum).unwrap();
            std::thread::scope(|scope| {
                let waiting = scope.spawn(|| request.wait().unwrap());
                std::thread::sleep(Duration::from_millis(50));
                assert!(comm.probe(peer, ANY_TAG).unwrap().is_none());
                comm.send(&[7_u8; 9], peer, 3).unwrap();
                comm.recv(&mut got, peer, 4).unwrap();
                assert_eq!(waiting.join().unwrap(), vec![2; 1 << 17]);
            });
        } else {
            comm.recv(&mut got, peer, 3).unwrap();
            comm.send(&got, peer, 4).unwrap();
            comm.all_reduce(&mut vec![1_i64; 1 << 17], ReduceOp::Sum).unwrap();
        }
        assert_eq!(got, [7; 9]);
    })
    .unwrap();
}

/// A message waits in vain, after the call beside it has ended.
#[test]
fn a_message_beside_a_call_has_its_timeout() {
    let config = Config { timeout: Duration::from_millis(300), ..Config::default() };
    local::run_with(&config, 2, |comm| {
        if comm.rank() == Rank(1) {
            // Rank 0 is in its receive.
            std::thread::sleep(Duration::from_millis(50));
        }
        let request = comm.start_barrier().unwrap();
        let begin = Instant::now();
        if comm.rank() == Rank(0) {
            let error = comm.recv(&mut [0_u8; 9], Rank(1), 3).unwrap_err();
            assert!(error.to_string().contains("took longer than 300ms"), "{error}");
            request.wait().unwrap();
        } else {
            request.wait().unwrap();
            while comm.probe(Rank(0), ANY_TAG).is_ok() {
                assert!(begin.elapsed() < PATIENCE);
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        assert!(begin.elapsed() < PATIENCE);
    })
    .unwrap();
}

#[test]
fn invalid_arguments_give_the_buffers_back() {
    local::run(2, |comm| {
        let failed = comm.start_broadcast(vec![1_u8, 2], Rank(9)).unwrap_err();
        assert_eq!(failed.buffers, [1, 2]);
        assert!(failed.to_string().contains("root 9 is not one of the 2 ranks"), "{failed}");
        let failed = comm.start_all_gather_into(vec![1_u8], vec![0; 3]).unwrap_err();
        assert_eq!(failed.buffers, (vec![1], vec![0; 3]));
        comm.barrier().unwrap();
    })
    .unwrap();
}

#[test]
fn a_failure_ends_all_requests_with_one_cause() {
    let config = Config { timeout: Duration::from_millis(300), ..Config::default() };
    let failures = local::run_with(&config, 2, |comm| {
        if comm.rank() == Rank(0) {
            let first = comm.start_all_reduce(vec![1_u32; 1000], ReduceOp::Sum).unwrap();
            let second = comm.start_all_reduce(vec![3_u32; 7], ReduceOp::Sum).unwrap();
            let (first, second) = (first.wait().unwrap_err(), second.wait().unwrap_err());
            assert_eq!((first.buffers.len(), second.buffers), (1000, vec![3; 7]));
            let third = comm.start_all_reduce(vec![3_u32; 7], ReduceOp::Sum).unwrap_err();
            [first.error, second.error, third.error].map(cause)
        } else {
            let begin = Instant::now();
            while comm.probe(Rank(0), ANY_TAG).is_ok() {
                assert!(begin.elapsed() < PATIENCE);
                std::thread::sleep(Duration::from_millis(5));
            }
            [1, 2, 3].map(|_| cause(comm.barrier().unwrap_err()))
        }
    });
    let failures = failures.unwrap();
    assert_eq!(failures[0], failures[1]);
    assert!(failures[0].windows(2).all(|two| two[0] == two[1]), "{failures:?}");
    assert!(failures[0][0].contains("u32 x 1000"), "{failures:?}");
}

fn cause(error: Error) -> String {
    match error {
        Error::Failed(failure) => failure.cause.to_string(),
        other => panic!("{other}"),
    }
}

#[test]
fn an_abort_ends_requests() {
    local::run(2, |comm| {
        let request = comm.start_all_reduce(vec![1_u32; 1 << 18], ReduceOp::Sum).unwrap();
        let aborter = comm.aborter();
        if comm.rank() == Rank(1) {
            aborter.abort("on purpose");
        }
        // Rank 1 may have ended the call before.
        if let Err(failed) = request.wait() {
            assert!(failed.to_string().contains("on purpose"), "{failed}");
        }
        let text = comm.barrier().unwrap_err().to_string();
        assert!(text.contains("on purpose"), "{text}");
    })
    .unwrap();
}

#[test]
fn dropping_requests_frees_their_buffers() {
    let counted = Arc::new(());
    struct Counted(Vec<u32>, #[expect(dead_code, reason = "counted")] Arc<()>);
    impl AsMut<[u32]> for Counted {
        fn as_mut(&mut self) -> &mut [u32] {
            &mut self.0
        }
    }
    local::run(3, |comm| {
        for len in [1, 100, 100_000] {
            for _ in 0..20 {
                let buffer = Counted(vec![1; len], Arc::clone(&counted));
                drop(comm.start_all_reduce(buffer, ReduceOp::Sum).unwrap());
            }
        }
        comm.barrier().unwrap();
        let last = Counted(vec![1; 9], Arc::clone(&counted));
        std::mem::forget(comm.start_all_reduce(last, ReduceOp::Sum).unwrap());
    })
    .unwrap();
    assert_eq!(Arc::strong_count(&counted), 1 + 3, "only forgotten ones are left");
}

#[test]
fn requests_are_futures() {
    use std::task::{Context, Poll, Wake, Waker};
    struct Unpark(std::thread::Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    local::run(2, |comm| {
        let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
        let mut requests: Vec<_> = (0..100_u32)
            .map(|at| comm.start_all_reduce(vec![at; 3000], ReduceOp::Sum).unwrap())
            .collect();
        let begin = Instant::now();
        for (at, request) in (0..).zip(&mut requests) {
            let mut request = std::pin::Pin::new(request);
            let sums = loop {
                match request.as_mut().poll(&mut Context::from_waker(&waker)) {
                    Poll::Ready(sums) => break sums.unwrap(),
                    Poll::Pending => std::thread::park_timeout(Duration::from_secs(1)),
                }
                assert!(begin.elapsed() < PATIENCE);
            };
            assert_eq!(sums, [2 * at; 3000]);
        }
    })
    .unwrap();
}
