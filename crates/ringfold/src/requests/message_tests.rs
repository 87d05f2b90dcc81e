//! Tests of started messages among threads.
#![expect(clippy::cast_possible_truncation, reason = "the numbers are small")]

use std::sync::Barrier;
use std::time::{Duration, Instant};

use crate::{
    ANY_SOURCE, ANY_TAG, Communicator, Config, DataType, Error, FailureCause, Operation, Parts,
    Rank, ReduceOp, Uneven, local, test_all, wait_all, wait_any, wait_some,
};

/// Around an inline message and the eager size of a link.
const LENGTHS: [usize; 5] = [0, 8, 1024, 1025, 3 << 20];

fn neighbours(comm: &Communicator) -> [Rank; 2] {
    let (own, size) = (comm.rank().0, comm.size() as u32);
    [own + size - 1, own + 1].map(|it| Rank(it % size))
}

fn filled(from: Rank, to: Rank, len: usize) -> Vec<u8> {
    vec![(from.0 * 16 + to.0 + 1) as u8; len]
}

#[test]
fn halos_are_exchanged_on_one_rank_and_on_more() {
    for size in [1, 2, 3, 5] {
        local::run(size, |comm| {
            let (own, [left, right]) = (comm.rank(), neighbours(comm));
            for len in LENGTHS {
                // With two ranks, or one, both neighbours are the same: the tag tells them apart.
                let receives = [(left, 1), (right, 2)]
                    .map(|(from, tag)| comm.start_recv(vec![0_u8; len], from, tag).unwrap());
                let sends = [(left, 2), (right, 1)].map(|(to, tag)| {
                    comm.start_send::<u8, _>(filled(own, to, len), to, tag).unwrap()
                });
                let mut sum = [1_u32; 100];
                comm.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
                assert_eq!(sum, [size as u32; 100]);
                for (request, (from, tag)) in receives.into_iter().zip([(left, 1), (right, 2)]) {
                    let received = request.wait().unwrap();
                    assert_eq!(received.buffer, filled(from, own, len));
                    assert_eq!((received.message.peer, received.message.tag), (from, tag));
                    assert_eq!(received.message.bytes, len);
                }
                sends.into_iter().for_each(|it| drop(it.wait().unwrap()));
            }
        })
        .unwrap();
    }
}

#[test]
fn receives_from_any_rank_with_any_tag_get_every_message_once() {
    const EACH: u32 = 50;
    local::run(4, |comm| {
        let (own, size) = (comm.rank(), comm.size() as u32);
        if own != Rank(0) {
            for number in 0..EACH {
                let len = if number % 7 == 3 { 5000 } else { 2 };
                comm.send(&vec![own.0 * 1000 + number; len], Rank(0), number % 3).unwrap();
            }
            return;
        }
        // Some receives name their rank or tag, and messages that nobody wants yet wait.
        let mut last = vec![[None; 3]; size as usize];
        let mut named: Vec<_> = (1..size)
            .map(|from| comm.start_recv(vec![0_u32; 5000], Rank(from), 1).unwrap())
            .collect();
        let mut any = Vec::new();
        for _ in 0..(size - 1) * EACH - named.len() as u32 {
            any.push(comm.start_recv(vec![0_u32; 5000], ANY_SOURCE, ANY_TAG).unwrap());
        }
        let mut ended = Vec::new();
        while !any.is_empty() {
            let at = wait_any(&any.iter().collect::<Vec<_>>()).unwrap();
            ended.push(any.remove(at).wait().unwrap());
        }
        ended.extend(named.drain(..).map(|it| it.wait().unwrap()));
        // The order of the ends is not that of the receives, so only the set is compared here.
        for received in &ended {
            let number = received.buffer[0] % 1000;
            assert_eq!(received.buffer[0] / 1000, received.message.peer.0);
            assert_eq!(number % 3, received.message.tag);
            let seen = &mut last[received.message.peer.index()][received.message.tag as usize];
            *seen = Some(seen.unwrap_or(0) + 1);
        }
        let counts: Vec<u32> = last[1..].iter().flatten().map(|it| it.unwrap()).collect();
        assert_eq!(counts.iter().sum::<u32>(), (size - 1) * EACH);
    })
    .unwrap();
}

#[test]
fn equal_tags_never_overtake_each_other() {
    for size in [1, 2] {
        local::run(size, |comm| {
            let (own, peer) = (comm.rank(), Rank(comm.size() as u32 - 1 - comm.rank().0));
            let lens = [5, 2000, 0, 700_000, 9, 1025];
            let sends: Vec<_> = (0_u32..60)
                .map(|number| {
                    let data = vec![number; 1 + lens[number as usize % 6]];
                    comm.start_send(data, peer, number % 2).unwrap()
                })
                .collect();
            // All of one tag before all of the other.
            for number in (1_u32..60).step_by(2).chain((0_u32..60).step_by(2)) {
                let mut into = vec![u32::MAX; 700_001];
                let message = comm.recv_or_start(&mut into, peer, number % 2);
                assert_eq!((into[0], message.0), (number, peer), "rank {own}");
                assert_eq!(message.1, 4 * (1 + lens[number as usize % 6]));
            }
            sends.into_iter().for_each(|it| drop(it.wait().unwrap()));
        })
        .unwrap();
    }
}

impl Communicator {
    /// Receives from any rank, this one included.
    fn recv_or_start(&mut self, into: &mut Vec<u32>, from: Rank, tag: u32) -> (Rank, usize) {
        let request = self.start_recv(std::mem::take(into), from, tag).unwrap();
        let received = request.wait().unwrap();
        *into = received.buffer;
        (received.message.peer, received.message.bytes)
    }
}

#[test]
fn a_start_of_a_message_does_not_wait_for_a_late_rank() {
    let late = Barrier::new(2);
    local::run(2, |comm| {
        let peer = Rank(1 - comm.rank().0);
        if comm.rank() == Rank(1) {
            late.wait();
        }
        // Longer than any link takes at once, in both directions.
        let going: Vec<_> =
            (0..4).map(|tag| comm.start_send(vec![tag; 1 << 20], peer, tag).unwrap()).collect();
        let coming: Vec<_> =
            (0..4).map(|tag| comm.start_recv(vec![9_u32; 1 << 20], peer, tag).unwrap()).collect();
        if comm.rank() == Rank(0) {
            assert!(!coming.iter().any(|it| it.test()));
            late.wait();
        }
        for (tag, coming) in (0..4).zip(coming) {
            assert_eq!(coming.wait().unwrap().buffer, vec![tag; 1 << 20]);
        }
        going.into_iter().for_each(|it| drop(it.wait().unwrap()));
    })
    .unwrap();
}

#[test]
fn messages_that_nobody_wants_wait_and_a_blocking_call_wants_one_behind_them() {
    local::run(2, |comm| {
        if comm.rank() == Rank(0) {
            let long: Vec<_> = (0..3)
                .map(|tag| comm.start_send(vec![tag; 300_000], Rank(1), tag).unwrap())
                .collect();
            comm.send(&[7_u32], Rank(1), 9).unwrap();
            long.into_iter().for_each(|it| drop(it.wait().unwrap()));
            return;
        }
        let mut word = [0_u32];
        comm.recv(&mut word, Rank(0), 9).unwrap();
        assert_eq!(word, [7]);
        // The probe sees those that wait, by tag and in their order.
        assert_eq!(comm.probe(ANY_SOURCE, ANY_TAG).unwrap().map(|it| it.tag), Some(0));
        assert_eq!(comm.probe(Rank(0), 2).unwrap().map(|it| it.bytes), Some(1_200_000));
        assert_eq!(comm.probe(Rank(0), 5).unwrap(), None);
        for tag in [2, 0, 1] {
            let mut into = vec![9_u32; 300_000];
            assert_eq!(comm.recv(&mut into, Rank(0), tag).unwrap().bytes, 1_200_000);
            assert_eq!(into, vec![tag; 300_000]);
        }
    })
    .unwrap();
}

#[test]
fn the_queue_of_unexpected_messages_holds_senders_up() {
    // 9 messages of 8 MiB are more than the 64 MiB that it takes.
    const MESSAGES: u32 = 9;
    local::run(2, |comm| {
        if comm.rank() == Rank(0) {
            let sends: Vec<_> = (0..MESSAGES)
                .map(|tag| comm.start_send(vec![tag; 2 << 20], Rank(1), tag).unwrap())
                .collect();
            comm.recv(&mut [0_u8], Rank(1), 0).unwrap();
            let open = sends.iter().filter(|it| !it.test()).count();
            assert!(open >= 1, "the queue took all of them");
            comm.send(&[0_u8], Rank(1), 100).unwrap_or_default();
            sends.into_iter().for_each(|it| drop(it.wait().unwrap()));
            return;
        }
        let behind = comm.start_recv(vec![0_u8], Rank(0), 100).unwrap();
        let begin = Instant::now();
        while comm.probe(Rank(0), MESSAGES - 2).unwrap().is_none() {
            assert!(begin.elapsed() < Duration::from_secs(60));
        }
        // The last but one has no room, so nobody sees the last one behind it.
        for _ in 0..1000 {
            assert_eq!(comm.probe(Rank(0), MESSAGES - 1).unwrap(), None);
            std::thread::sleep(Duration::from_micros(200));
        }
        comm.send(&[0_u8], Rank(0), 0).unwrap();
        for tag in 0..MESSAGES {
            let mut into = vec![99_u32; 2 << 20];
            comm.recv(&mut into, Rank(0), tag).unwrap();
            assert_eq!((into[0], into[(2 << 20) - 1]), (tag, tag));
        }
        behind.wait().unwrap();
    })
    .unwrap();
}

#[test]
fn a_message_that_is_too_long_fails_its_request_only() {
    local::run(2, |comm| {
        if comm.rank() == Rank(0) {
            comm.send(&[1_u8; 40], Rank(1), 3).unwrap();
            return comm.barrier().unwrap();
        }
        let short = comm.start_recv(vec![0_u8; 39], ANY_SOURCE, 3).unwrap();
        let error = short.wait().unwrap_err();
        let Error::Truncated { buffer, message, .. } = &error.error else { panic!("{error}") };
        assert_eq!((*buffer, message.bytes, error.buffers.buffer.len()), (39, 40, 39));
        assert_eq!(comm.recv(&mut [0_u8; 64], Rank(0), 3).unwrap().bytes, 40);
        comm.barrier().unwrap();
    })
    .unwrap();
}

#[test]
fn leaving_sends_what_was_started_and_ends_receives() {
    let ends = local::run(2, |comm| {
        let config = Config::from_map(std::collections::BTreeMap::new()).unwrap();
        let one = Communicator::init_with(&config).unwrap();
        let mut comm = std::mem::replace(comm, one);
        if comm.rank() == Rank(1) {
            let mut into = vec![0_u8; 1 << 20];
            comm.recv(&mut into, Rank(0), 1).unwrap();
            assert_eq!(into, vec![5; 1 << 20]);
            comm.leave().unwrap();
            return None;
        }
        // A message to itself that nobody receives does not hold it up.
        let to_itself = comm.start_send(vec![1_u8], Rank(0), 9).unwrap();
        // Both requests are dropped or forgotten: their memory lives until their ends.
        drop(comm.start_send(vec![5_u8; 1 << 20], Rank(1), 1).unwrap());
        let waiting = comm.start_recv(vec![0_u8; 8], ANY_SOURCE, 2).unwrap();
        comm.leave().unwrap();
        assert!(to_itself.wait().is_err());
        Some(waiting.wait().unwrap_err().error)
    });
    let ends = ends.unwrap();
    let Some(Error::Failed(failure)) = &ends[0] else { panic!("{ends:?}") };
    let text = failure.to_string();
    assert!(text.starts_with("recv [8 bytes from any rank, tag 2]"), "{text}");
    assert!(matches!(&*failure.cause, FailureCause::Aborted { .. }), "{text}");
}

#[test]
fn a_started_receive_has_the_time_of_its_start() {
    local::run(2, |comm| {
        if comm.rank() == Rank(1) {
            return assert!(comm.recv(&mut [0_u8], Rank(0), 5).is_err());
        }
        comm.set_timeout(Duration::from_millis(200));
        let request = comm.start_recv(vec![0_u8; 8], Rank(1), 2).unwrap();
        comm.set_timeout(Duration::from_secs(60));
        let error = request.wait().unwrap_err().to_string();
        assert!(error.contains("recv [8 bytes from rank 1, tag 2] took longer"), "{error}");
    })
    .unwrap();
}

#[test]
fn the_same_cause_ends_messages_and_calls() {
    let started = Barrier::new(3);
    let causes = local::run(3, |comm| {
        if comm.rank() == Rank(2) {
            started.wait();
            comm.abort("on purpose");
            return comm.barrier().unwrap_err().to_string();
        }
        let message = comm.start_recv(vec![0_u8; 8], ANY_SOURCE, 2).unwrap();
        let long = comm.start_send(vec![0_u8; 64 << 20], Rank(2), 4).unwrap();
        let call = comm.start_barrier().unwrap();
        started.wait();
        let error = message.wait().unwrap_err();
        assert_eq!(error.buffers.buffer, [0; 8]);
        assert_eq!(long.wait().unwrap_err().buffers.len(), 64 << 20);
        let Error::Failed(failure) = call.wait().unwrap_err().error else { panic!() };
        assert!(error.to_string().contains(&failure.cause.to_string()));
        failure.cause.to_string()
    });
    let causes = causes.unwrap();
    assert!(causes.iter().all(|it| it.contains("on purpose")), "{causes:?}");
}

#[test]
fn a_scope_ends_after_its_calls() {
    local::run(3, |comm| {
        let (own, [left, right]) = (comm.rank(), neighbours(comm));
        let (edge, mut halo, mut sum) = (vec![own.0; 300_000], vec![9; 300_000], [own.0; 5]);
        let mut gathered = [0_u32; 3];
        comm.scope(|scope| {
            let halo = scope.recv(&mut halo[..], left, 1).unwrap();
            // Requests that are dropped or forgotten go on.
            drop(scope.send(&edge[..], right, 1).unwrap());
            std::mem::forget(scope.all_reduce(&mut sum[..], ReduceOp::Sum).unwrap());
            let (_, all) =
                scope.all_gather_into(&edge[..1], &mut gathered[..]).unwrap().wait().unwrap();
            assert_eq!(all, [0, 1, 2]);
            let received = halo.wait().unwrap();
            assert_eq!((received.message.peer, received.buffer[9]), (left, left.0));
        });
        assert_eq!((halo, sum, gathered), (vec![left.0; 300_000], [3; 5], [0, 1, 2]));
    })
    .unwrap();
}

#[test]
fn a_scope_that_panics_waits_for_its_calls() {
    let late = Barrier::new(2);
    local::run(2, |comm| {
        let mut sum = vec![1_u32; 100_000];
        if comm.rank() == Rank(1) {
            late.wait();
            std::thread::sleep(Duration::from_millis(50));
            return comm.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
        }
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            comm.scope(|scope| {
                drop(scope.all_reduce(&mut sum[..], ReduceOp::Sum).unwrap());
                late.wait();
                panic!("on purpose");
            })
        }));
        assert!(caught.is_err());
        assert_eq!(sum, vec![2; 100_000]);
    })
    .unwrap();
}

#[test]
fn uneven_calls_can_be_started() {
    for size in [1, 2, 3, 5] {
        local::run(size, |comm| {
            let own = comm.rank().index();
            let counts: Vec<usize> = (0..size).map(|rank| rank * 400 + 1).collect();
            let total: usize = counts.iter().sum();
            let equal = vec![counts[own]; size];
            let parts = || Parts::new(&counts);
            let root = Rank::at(size - 1);
            let is_root = comm.rank() == root;
            let whole = if is_root { total } else { 0 };
            let bytes = |len: usize| vec![own as u8; len];
            type Both = (Vec<u8>, Vec<u8>);
            fn both((input, output): &mut Both) -> (Option<&[u8]>, &mut [u8]) {
                (Some(input), output)
            }
            for _ in 0..3 {
                let to_all = Uneven::AllToAll { send: Parts::new(&equal), recv: parts() };
                let all = Uneven::AllGather { parts: parts() };
                let sums = Uneven::ReduceScatter { parts: parts(), op: ReduceOp::Sum };
                let gather = Uneven::Gather { root, parts: parts() };
                let scatter = Uneven::Scatter { root, parts: parts() };
                let calls = [
                    (&to_all, counts[own] * size, total),
                    (&all, counts[own], total),
                    (&sums, total, counts[own]),
                    (&gather, counts[own], whole),
                    (&scatter, whole, counts[own]),
                ];
                let requests = calls.map(|(uneven, from, to)| {
                    let buffers: Both = (bytes(from), vec![99; to]);
                    comm.start_uneven(uneven, DataType::U8, buffers, both).unwrap()
                });
                let message = comm.start_send(vec![own], Rank(0), 5).unwrap();
                let in_order: Vec<u8> =
                    (0..size).flat_map(|rank| vec![rank as u8; counts[rank]]).collect();
                let expected = [
                    in_order.clone(),
                    in_order.clone(),
                    vec![(size * (size - 1) / 2) as u8; counts[own]],
                    if is_root { in_order } else { Vec::new() },
                    vec![size as u8 - 1; counts[own]],
                ];
                for (request, expected) in requests.into_iter().zip(expected) {
                    assert!(request.wait().unwrap().1 == expected, "rank {own} of {size}");
                }
                for _ in 0..if own == 0 { size } else { 0 } {
                    let from =
                        comm.start_recv(vec![0_usize], ANY_SOURCE, 5).unwrap().wait().unwrap();
                    assert_eq!(from.buffer[0], from.message.peer.index());
                }
                message.wait().unwrap();
            }
            let short = Uneven::AllGather { parts: parts() };
            let failed = comm.start_uneven(&short, DataType::U8, (bytes(0), bytes(1)), both);
            let failed = failed.unwrap_err();
            assert!(matches!(failed.error, Error::Argument { .. }));
            assert_eq!(failed.buffers.1, bytes(1));
        })
        .unwrap();
    }
}

#[test]
fn a_probe_leaves_messages_to_the_receives_before_it() {
    local::run(2, |comm| {
        for round in 0_u8..50 {
            if comm.rank() == Rank(0) {
                comm.recv(&mut [0_u8], Rank(1), 0).unwrap();
                comm.send(&[round; 3000], Rank(1), 1).unwrap();
                comm.send(&[round], Rank(1), 1).unwrap();
                comm.send(&[round], Rank(1), 2).unwrap();
                continue;
            }
            let first = comm.start_recv(vec![99_u8; 3000], Rank(0), 1).unwrap();
            comm.send(&[0_u8], Rank(0), 0).unwrap();
            while comm.probe(Rank(0), 2).unwrap().is_none() {}
            assert_eq!(first.wait().unwrap().message.bytes, 3000);
            let mut byte = [99_u8];
            assert_eq!(comm.recv(&mut byte, Rank(0), 1).unwrap().bytes, 1);
            assert_eq!(comm.recv(&mut byte, Rank(0), 2).unwrap().bytes, 1);
        }
    })
    .unwrap();
}

#[test]
fn a_rank_leaves_after_it_took_a_message_from_the_queue() {
    local::run(2, |comm| {
        if comm.rank() == Rank(0) {
            comm.send(&[1_u8; 10], Rank(1), 1).unwrap();
            comm.send(&[2_u8; 10], Rank(1), 2).unwrap();
            return;
        }
        while comm.probe(Rank(0), 2).unwrap().is_none() {}
        let mut into = [0_u8; 10];
        comm.recv(&mut into, Rank(0), 1).unwrap();
        assert_eq!(into, [1; 10]);
        assert!(comm.is_at_rest());
        comm.recv(&mut into, Rank(0), 2).unwrap();
    })
    .unwrap();
}

#[test]
fn a_receive_of_another_type_ends_with_the_failure_also_from_the_queue() {
    local::run(2, |comm| {
        if comm.rank() == Rank(0) {
            comm.send(&[1_i32; 10], Rank(1), 1).unwrap();
            comm.send(&[2_u8; 10], Rank(1), 2).unwrap();
            return assert!(comm.barrier().is_err());
        }
        while comm.probe(Rank(0), 2).unwrap().is_none() {}
        let request = comm.start_recv(vec![0.0_f32; 10], Rank(0), 1).unwrap();
        let error = request.wait().unwrap_err();
        assert!(error.to_string().contains("of f32 met a message of 40 bytes of i32"), "{error}");
        let mut again = [0.0_f32; 10];
        assert!(matches!(comm.recv(&mut again, Rank(0), 1), Err(Error::Failed(_))));
    })
    .unwrap();
}

#[test]
fn receives_of_any_rank_and_of_one_take_messages_in_their_order() {
    local::run(2, |comm| {
        if comm.rank() == Rank(0) {
            comm.recv(&mut [0_u8], Rank(1), 0).unwrap();
            (1_u8..=6).for_each(|number| comm.send(&[number], Rank(1), 7).unwrap());
            return;
        }
        let sources = [None, Some(Rank(0)), Some(Rank(0)), None, Some(Rank(0)), None];
        let tags = [Some(7), Some(7), ANY_TAG, ANY_TAG, Some(7), Some(7)];
        let receives = sources
            .into_iter()
            .zip(tags)
            .map(|(from, tag)| comm.start_recv(vec![0_u8], from, tag).unwrap());
        let receives: Vec<_> = receives.collect();
        comm.send(&[0_u8], Rank(0), 0).unwrap();
        for (number, receive) in (1_u8..).zip(receives) {
            assert_eq!(receive.wait().unwrap().buffer, [number]);
        }
    })
    .unwrap();
}

#[test]
fn a_message_on_its_link_does_not_overtake_those_in_the_queue() {
    local::run(2, |comm| {
        if comm.rank() == Rank(0) {
            return (1_u32..=4).for_each(|tag| comm.send(&[tag], Rank(1), tag).unwrap());
        }
        let mut word = [0_u32];
        comm.recv(&mut word, Rank(0), 3).unwrap();
        while comm.probe(Rank(0), 4).unwrap().is_none() {}
        for tag in [1, 2, 4] {
            let message = comm.recv(&mut word, Rank(0), ANY_TAG).unwrap();
            assert_eq!((message.tag, word), (tag, [tag]));
        }
    })
    .unwrap();
}

#[test]
fn several_requests_are_awaited_together() {
    local::run(2, |comm| {
        let peer = Rank(1 - comm.rank().0);
        let mut receives: Vec<_> =
            (0..4).map(|tag| comm.start_recv(vec![9_u32], peer, tag).unwrap()).collect();
        comm.barrier().unwrap();
        assert!(!test_all(&receives.iter().collect::<Vec<_>>()), "nothing was sent");
        comm.barrier().unwrap();
        // One by one, so that some have ended before others.
        for tag in [2, 0] {
            comm.send(&[tag], peer, tag).unwrap();
        }
        while !test_all(&[&receives[0], &receives[2]]) {}
        assert_eq!(wait_some(&receives.iter().collect::<Vec<_>>()), [0, 2]);
        comm.barrier().unwrap();
        for tag in [1, 3] {
            comm.send(&[tag], peer, tag).unwrap();
        }
        while !test_all(&receives.iter().collect::<Vec<_>>()) {}
        let short = comm.start_recv(Vec::<u32>::new(), peer, 5).unwrap();
        comm.send(&[5_u32], peer, 5).unwrap();
        let all = wait_all(receives.drain(..2)).unwrap();
        assert_eq!([all[0].buffer[0], all[1].buffer[0]], [0, 1]);
        let failed = wait_all([short].into_iter().chain(receives)).unwrap_err();
        assert!(matches!(failed.error, Error::Truncated { .. }));
        assert_eq!(failed.buffers.len(), 3);
        assert_eq!([failed.buffers[1].buffer[0], failed.buffers[2].buffer[0]], [2, 3]);
        comm.recv(&mut [0_u32], peer, 5).unwrap();
    })
    .unwrap();
}

#[test]
fn a_message_to_oneself_without_another_end_is_refused_beside_others() {
    local::run(2, |comm| {
        let (own, peer) = (comm.rank(), Rank(1 - comm.rank().0));
        let is_refused = |it: Result<(), Error>| matches!(it, Err(Error::Argument { .. }));
        let pending = comm.start_recv(vec![0_u8; 4], peer, 1).unwrap();
        assert!(is_refused(comm.send(&[1_u8], own, 7)));
        assert!(is_refused(comm.recv(&mut [0_u8], own, 7).map(drop)));
        let coming = comm.start_recv(vec![0_u8; 4], own, 7).unwrap();
        assert!(is_refused(comm.send(&[1_u8], own, 8)));
        comm.send(&[1_u8; 4], own, 7).unwrap();
        assert_eq!(coming.wait().unwrap().buffer, [1; 4]);
        let going = comm.start_send(vec![2_u8; 4], own, 9).unwrap();
        let mut got = [0; 4];
        assert!(is_refused(comm.recv(&mut got, own, 8).map(drop)));
        comm.recv(&mut got, own, ANY_TAG).unwrap();
        assert_eq!((got, going.wait().unwrap()), ([2; 4], vec![2; 4]));
        comm.send_recv(&[3_u8; 4], own, &mut got, own, 2).unwrap();
        assert_eq!(got, [3; 4]);
        comm.send(&got, peer, 1).unwrap();
        assert_eq!(pending.wait().unwrap().buffer, got);
    })
    .unwrap();
}

/// The operation that the barrier of rank 0 says has failed, beside a receive of rank 0.
fn failed_beside_a_barrier(limit: Duration, other: impl Fn(&mut Communicator) + Sync) -> Operation {
    let operations = local::run(2, |comm| {
        if comm.rank() == Rank(1) {
            other(comm);
            while comm.probe(Rank(0), 1).is_ok() {
                std::thread::yield_now();
            }
            return None;
        }
        let usual = comm.timeout();
        comm.set_timeout(limit);
        let coming = comm.start_recv(vec![0_u32; 2], Rank(1), 5).unwrap();
        comm.set_timeout(usual);
        let Err(Error::Failed(failure)) = comm.barrier() else { panic!("it has to fail") };
        coming.wait().unwrap_err();
        Some(failure.operation)
    });
    operations.unwrap().into_iter().flatten().next().unwrap()
}

#[test]
fn a_message_that_fails_beside_a_blocking_call_is_named() {
    let of_another_type = failed_beside_a_barrier(Duration::from_secs(60), |comm| {
        // Rank 0 is in the barrier by then, or at least has started its receive.
        std::thread::sleep(Duration::from_millis(100));
        // The receiver may fail the job before the send returns.
        drop(comm.send(&[1.0_f64], Rank(0), 5));
    });
    let is_receive = |it: &Operation| matches!(it, Operation::Receive { tag: Some(5), .. });
    assert!(is_receive(&of_another_type), "{of_another_type}");
    let overdue = failed_beside_a_barrier(Duration::from_millis(50), |_| ());
    assert!(is_receive(&overdue), "{overdue}");
}
