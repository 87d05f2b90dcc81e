//! Random sequences of started and blocking collectives, and messages, over every transport.

use std::collections::VecDeque;
use std::thread;
use std::time::Duration;

use ringfold::{Call, Collective, Communicator, Rank, Received, ReduceOp, Request, Wire};
use ringfold_bench::oracle::Oracle;
use ringfold_harness::Random;

use crate::via::Via;
use crate::{kinds, perform};

/// Steps of a sequence.
const STEPS: usize = 150;

/// Calls that are under way at once, at most.
const AT_ONCE: usize = 12;

/// A started call on an input and an output.
type Started = (Oracle, Call, Request<(Vec<u8>, Vec<u8>)>);

/// A started message of each direction, and the bytes that come.
type Going = (Request<Received<Vec<u8>>>, Request<Vec<u8>>, Vec<u8>);

/// Waits for messages.
fn arrive((receiving, sending, expected): Going) {
    let Received { buffer, message } = receiving.wait().unwrap();
    assert!(buffer[..message.bytes] == expected);
    sending.wait().unwrap();
}

/// The buffers of a call.
fn buffers(oracle: &Oracle, call: &Call, rank: Rank, size: usize) -> (Vec<u8>, Vec<u8>) {
    let bytes = call.data_type.bytes();
    let mut input = vec![0; call.input_of(rank, size) * bytes];
    oracle.fill_input(rank, &mut input);
    (input, vec![0xa5; call.output_of(rank, size) * bytes])
}

/// Waits for a started call, by a wait or by tests.
fn end((oracle, call, request): Started, rank: Rank, by_tests: bool) {
    while by_tests && !request.test() {
        thread::yield_now();
    }
    let (_, output) = request.wait().unwrap();
    assert_eq!(oracle.count_wrong(rank, &output), 0, "{call} on rank {rank}");
}

/// Passes a message around the ring of ranks, either at once or by requests that go on.
fn pass(comm: &mut Communicator, bytes: usize, step: usize, going: &mut VecDeque<Going>) {
    let tag = u32::try_from(step).unwrap();
    let (rank, size) = (comm.rank().index(), comm.size());
    let (next, previous) = (Rank::at((rank + 1) % size), Rank::at((rank + size - 1) % size));
    let mark = |rank: usize| u8::try_from((rank + step) % 251).unwrap();
    if step.is_multiple_of(2) {
        let receiving = comm.start_recv(vec![0; bytes + 1], previous, tag).unwrap();
        let sending = comm.start_send(vec![mark(rank); bytes], next, tag).unwrap();
        return going.push_back((receiving, sending, vec![mark(previous.index()); bytes]));
    }
    let mut got = vec![0; bytes];
    comm.send_recv(&vec![mark(rank); bytes], next, &mut got, previous, tag).unwrap();
    assert_eq!(got, vec![mark(previous.index()); bytes]);
}

fn sequences(via: Via, sizes: &[usize], settings: &[(&str, &str)]) {
    let seed = ringfold_harness::random::seed();
    for &size in sizes {
        via.run(size, settings, |comm| {
            // All ranks share one random stream for the calls. Each has its own for its waits.
            let rank = comm.rank();
            let (mut what, mut how) =
                (Random::new(seed), Random::new(seed + 1 + u64::from(rank.0)));
            let mut started: VecDeque<Started> = VecDeque::new();
            let mut going = VecDeque::new();
            for step in 0..STEPS {
                let collective = Collective::ALL[what.below(Collective::ALL.len())];
                let all = kinds(collective);
                let (data_type, op) = all[what.below(all.len())];
                let count = [0, 1, 17, 1000, 4099, 70_001][what.below(6)];
                let count = if collective == Collective::Barrier { 0 } else { count };
                let root = if collective.has_root() { what.below(size) } else { 0 };
                let (root, wire) = (Rank::at(root), Wire::Element);
                let op = if collective.reduces() { op } else { ReduceOp::Sum };
                let call = Call { collective, count, data_type, op, root, wire };
                let oracle = Oracle::new(call, size, step as u64);
                let call = Call { op: oracle.op(rank), ..call };
                let kind = what.below(8);
                if how.below(6) == 0 {
                    thread::sleep(Duration::from_micros(200));
                }
                if kind == 0 {
                    let (input, mut output) = buffers(&oracle, &call, rank, size);
                    let both = ringfold::Buffers::Apart { input: &input, output: &mut output };
                    perform(comm, &call, both, step as u64);
                    assert_eq!(oracle.count_wrong(rank, &output), 0, "{call} on rank {rank}");
                } else if kind == 1 {
                    pass(comm, [0, 5, 3000, 200_000][what.below(4)], step, &mut going);
                } else {
                    let both = buffers(&oracle, &call, rank, size);
                    let request = comm.start(&call, both, |(input, output)| (Some(input), output));
                    started.push_back((oracle, call, request.unwrap()));
                }
                // Not in the order of their starts.
                while going.len() > how.below(AT_ONCE) {
                    going.swap_remove_back(how.below(going.len())).into_iter().for_each(arrive);
                }
                while started.len() > how.below(AT_ONCE) {
                    let at = if how.below(2) == 0 { 0 } else { how.below(started.len()) };
                    let Some(one) = started.remove(at) else { break };
                    match how.below(6) {
                        0 => drop(one),
                        1 => end(one, rank, true),
                        _ => end(one, rank, false),
                    }
                }
            }
            // The rest is awaited by other threads.
            thread::scope(|scope| {
                scope.spawn(|| going.into_iter().for_each(arrive));
                for one in started {
                    scope.spawn(move || end(one, rank, false));
                }
            });
        });
    }
}

#[test]
fn sequences_of_started_calls_over_local_queues() {
    sequences(Via::Local, &[1, 2, 3, 5], &[]);
}

#[test]
fn sequences_of_started_calls_over_shared_memory() {
    sequences(Via::Shm, &[2, 3, 6], &[("RINGFOLD_CHUNK", "4K")]);
    sequences(Via::ShmAttached, &[3], &[]);
    sequences(Via::ShmTried, &[2], &[]);
}

#[test]
fn sequences_of_started_calls_over_tcp() {
    sequences(Via::Tcp, &[2, 3], &[]);
    sequences(Via::Tcp, &[3], &[("RINGFOLD_CHANNELS", "3"), ("RINGFOLD_CHUNK", "4K")]);
}

#[test]
fn sequences_of_started_calls_between_hosts() {
    sequences(Via::Hosts(2), &[4, 5], &[]);
}

#[test]
fn sequences_of_started_calls_over_rdma() {
    if Via::Rdma.is_there() {
        sequences(Via::Rdma, &[2, 4], &[]);
    }
}
