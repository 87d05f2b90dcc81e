//! Ranks as threads: a user's first calls, and the errors of wrong ones.

use std::sync::Barrier;
use std::time::{Duration, Instant};

use ringfold::{
    Buffers, Call, Collective, Communicator, Config, DataType, Error, FailureCause, Rank, ReduceOp,
    UniqueId, Wire, bf16, local,
};

#[test]
fn slices_vectors_arrays_and_windows_are_buffers() {
    local::run(2, |comm| {
        let (mut vector, mut array) = (vec![1_u32; 4], [1_u32; 4]);
        let (mut boxed, mut window) = (array.to_vec().into_boxed_slice(), comm.alloc(4).unwrap());
        window.fill(1_u32);
        comm.all_reduce(&mut vector, ReduceOp::Sum).unwrap();
        comm.all_reduce(&mut array, ReduceOp::Sum).unwrap();
        comm.all_reduce(&mut boxed, ReduceOp::Sum).unwrap();
        comm.all_reduce(&mut window, ReduceOp::Sum).unwrap();
        for result in [&vector[..], &array[..], &boxed[..], &window[..]] {
            assert_eq!(result, [2; 4]);
        }
        comm.all_reduce_into(&window[..2], &mut vector[2..], ReduceOp::Max).unwrap();
        comm.all_reduce_window(&mut window, ..2, ReduceOp::Sum).unwrap();
        assert_eq!((&window[..], &vector[..]), (&[4, 4, 2, 2][..], &[2; 4][..]));
    })
    .unwrap();
}

#[test]
fn wrong_lengths_are_refused_before_anything_moves() {
    local::run(2, |comm| {
        let error = comm.all_reduce_into(&[1_u8, 2], &mut [0], ReduceOp::Sum).unwrap_err();
        assert!(matches!(error, Error::Argument { .. }), "{error}");
        let mut value = [1_i64];
        comm.all_reduce(&mut value, ReduceOp::Sum).unwrap();
        assert_eq!(value, [2], "the communicator remains usable");
    })
    .unwrap();
}

#[test]
fn a_waiting_call_ends_when_another_thread_aborts() {
    let (done, wait) = (Barrier::new(2), Duration::from_millis(100));
    let outcome = local::run(2, |comm| {
        if comm.rank() == Rank(0) {
            let aborter = comm.aborter();
            let thread = std::thread::spawn(move || {
                std::thread::sleep(wait);
                aborter.clone().abort("on purpose");
                aborter.abort("a second abort changes nothing");
            });
            // Rank 1 makes no call before this one has ended.
            let failed = comm.barrier().unwrap_err().to_string();
            thread.join().unwrap();
            done.wait();
            assert!(failed.contains("barrier #1") && failed.ends_with("on purpose"), "{failed}");
        } else {
            done.wait();
        }
        let error = comm.all_reduce(&mut [1.0_f32], ReduceOp::Sum).unwrap_err();
        let Error::Failed(failure) = &error else { panic!("{error}") };
        assert_eq!(failure.cause.culprits(), [Rank(0)], "{error}");
    });
    outcome.unwrap();
}

#[test]
fn a_difference_that_no_call_found_is_found_on_leaving() {
    let both_called = Barrier::new(2);
    let result = local::run(2, |comm| {
        let root = comm.rank();
        comm.broadcast(&mut [root.0; 3], root).unwrap();
        both_called.wait();
    });
    let error = result.unwrap_err();
    assert!(matches!(error, Error::Leave { .. }), "{error}");
    let words = ["#1", "broadcast", "root 0", "root 1"];
    assert!(words.iter().all(|word| error.to_string().contains(word)), "{error}");
}

/// The form of partial results is a part of the call, where it makes a difference.
#[test]
fn ranks_with_different_wires_learn_it() {
    let causes = local::run(3, |comm| {
        if comm.rank() == Rank(2) {
            comm.set_wire(Wire::Accumulator);
        }
        let error = comm.all_reduce(&mut [bf16::ONE; 5], ReduceOp::Sum).unwrap_err();
        let Error::Failed(failure) = &error else { panic!("{error}") };
        assert!(matches!(&*failure.cause, FailureCause::Mismatch { .. }), "{error}");
        assert!(error.to_string().contains("wire accumulator"), "{error}");
        failure.cause.culprits()
    });
    assert_eq!(causes.unwrap(), [[Rank(2)], [Rank(2)], [Rank(2)]]);
    let others = local::run(3, |comm| {
        if comm.rank() == Rank(2) {
            comm.set_wire(Wire::Accumulator);
        }
        comm.all_reduce(&mut [1.0_f32; 5], ReduceOp::Sum).unwrap();
        comm.broadcast(&mut [bf16::ONE; 5], Rank(0)).unwrap();
    });
    others.unwrap();
}

#[test]
fn a_difference_in_an_earlier_call_is_found_by_the_next() {
    let causes = local::run(2, |comm| {
        // Each rank only sends, so each call returns.
        let root = comm.rank();
        comm.broadcast(&mut [root.0; 3], root).unwrap();
        let error = comm.all_reduce(&mut [1.0_f32; 3], ReduceOp::Sum).unwrap_err();
        let Error::Failed(failure) = &error else { panic!("{error}") };
        failure.cause.to_string()
    });
    for cause in causes.unwrap() {
        let words = ["#1", "broadcast", "root 0", "root 1"];
        assert!(words.iter().all(|word| cause.contains(word)), "{cause}");
    }
}

#[test]
fn a_rank_that_panics_fails_the_others() {
    let rank_main = |comm: &mut Communicator| {
        assert!(comm.rank() != Rank(1), "this rank gives up");
        let error = comm.all_reduce(&mut [1.0_f32], ReduceOp::Sum).unwrap_err();
        assert!(error.to_string().contains("rank 1"), "{error}");
    };
    let panic = std::panic::catch_unwind(|| local::run(3, rank_main)).unwrap_err();
    let text = panic.downcast_ref::<&str>().copied().unwrap_or_default();
    assert!(text.contains("gives up"), "{text}");
}

#[test]
fn an_operation_without_meaning_makes_no_difference() {
    let call = |collective, count| Call {
        collective,
        count,
        data_type: DataType::U8,
        op: ReduceOp::pre_mul_sum(2.5),
        root: Rank(0),
        wire: Wire::default(),
    };
    local::run(2, |comm| {
        let mut one = [7];
        comm.perform(&call(Collective::Broadcast, 1), Buffers::InPlace(&mut one)).unwrap();
        let mut both = [3; 2];
        comm.perform(&call(Collective::AllGather, 1), Buffers::InPlace(&mut both)).unwrap();
        assert_eq!((one, both), ([7], [3; 2]));
    })
    .unwrap();
}

#[test]
fn a_count_beyond_the_address_space_is_refused() {
    local::run(2, |comm| {
        let collective = Collective::AllGather;
        let (data_type, op, root) = (DataType::F64, ReduceOp::Sum, Rank(0));
        let call =
            Call { collective, count: usize::MAX, data_type, op, root, wire: Wire::default() };
        let error = comm.perform(&call, Buffers::InPlace(&mut [0; 16])).unwrap_err();
        assert!(matches!(error, Error::Argument { .. }), "{error}");
    })
    .unwrap();
}

#[test]
fn threads_meet_by_a_unique_id() {
    let config = Config::default();
    let id = UniqueId::new(&config).unwrap();
    std::thread::scope(|scope| {
        let ranks = [2, 0, 1].map(|rank| {
            let id: UniqueId = id.to_string().parse().unwrap();
            let config = &config;
            scope.spawn(move || {
                let mut comm = Communicator::init_with_id(config, &id, Rank(rank), 3).unwrap();
                let mut sum = [rank + 1];
                comm.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
                comm.leave().unwrap();
                sum[0]
            })
        });
        assert_eq!(ranks.map(|rank| rank.join().unwrap()), [6; 3]);
    });
}

/// Timeouts of any length are taken, in settings, in joins and later.
#[test]
fn extreme_timeouts_neither_panic_nor_hang() {
    let config = |timeout, join_timeout| {
        let mut config = Config::default();
        (config.timeout, config.join_timeout) = (timeout, join_timeout);
        config
    };
    let (zero, forever) = (Duration::ZERO, Duration::MAX);
    let late = |comm: &mut Communicator| {
        if comm.rank() == Rank(1) {
            std::thread::sleep(Duration::from_millis(200));
        }
        comm.barrier().map_err(|error| error.to_string())
    };
    let waited = local::run_with(&config(forever, forever), 2, |comm| {
        late(comm)?;
        comm.set_timeout(Duration::from_secs(60));
        comm.set_timeout(forever);
        late(comm)
    });
    assert_eq!(waited.unwrap(), [Ok(()), Ok(())]);
    // Rank 1 makes no call before that of rank 0 has ended.
    let ended = |comm: &mut Communicator, done: &Barrier| {
        let is_first = comm.rank() == Rank(0);
        if !is_first {
            done.wait();
        }
        let error = comm.barrier().unwrap_err().to_string();
        if is_first {
            done.wait();
        }
        error
    };
    for (timeout, later) in [(zero, None), (Duration::from_nanos(1), None), (forever, Some(zero))] {
        let done = Barrier::new(2);
        let began = Instant::now();
        let ran = local::run_with(&config(timeout, zero), 2, |comm| {
            if let Some(later) = later {
                comm.set_timeout(later);
            }
            let error = ended(comm, &done);
            assert!(error.contains("rank 1 has made no call yet"), "{error}");
        });
        ran.unwrap();
        assert!(began.elapsed() < Duration::from_secs(30));
    }
    let joined = |config: &Config| {
        let id = UniqueId::new(config).unwrap();
        std::thread::scope(|scope| {
            let ranks = [1, 0].map(|rank| {
                let id = &id;
                scope.spawn(move || -> Result<(), Error> {
                    let mut comm = Communicator::init_with_id(config, id, Rank(rank), 2)?;
                    let mut group = comm.duplicate()?;
                    group.barrier()?;
                    comm.barrier()
                })
            });
            ranks.map(|rank| rank.join().unwrap().map_err(|error| error.to_string()))
        })
    };
    assert_eq!(joined(&config(forever, forever)), [Ok(()), Ok(())]);
    let began = Instant::now();
    let config = config(forever, zero);
    let id = UniqueId::new(&config).unwrap();
    let alone = Communicator::init_with_id(&config, &id, Rank(0), 2).unwrap_err().to_string();
    assert!(began.elapsed() < Duration::from_secs(30));
    assert!(alone.starts_with("1 of 2 ranks joined within 1ms; missing: rank 1"), "{alone}");
}

#[test]
fn an_id_of_another_process_has_no_port_for_rank_0() {
    let config = Config::default();
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let id: UniqueId = format!("ringfold-id-1/{address}/{}", "a5".repeat(32)).parse().unwrap();
    let error = Communicator::init_with_id(&config, &id, Rank(0), 2).unwrap_err().to_string();
    let expected = format!("rank 0 cannot listen on {address}, the port of the unique id; make an");
    assert!(error.starts_with(&expected), "{error}");
}

#[test]
fn a_rank_beyond_the_size_is_refused() {
    let config = Config::default();
    let id = UniqueId::new(&config).unwrap();
    for (rank, size) in [(1, 1), (0, 0), (3, 2)] {
        let error = Communicator::init_with_id(&config, &id, Rank(rank), size).unwrap_err();
        assert!(error.to_string().contains(&format!("rank {rank} of {size}")), "{error}");
    }
    assert_eq!(Communicator::init_with_id(&config, &id, Rank(0), 1).unwrap().size(), 1);
}
