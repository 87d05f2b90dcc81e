//! Point-to-point messages over every transport.

use std::collections::BTreeMap;
use std::time::Duration;

use ringfold::{
    ANY_SOURCE, ANY_TAG, Communicator, Config, Error, FailureCause, Operation, Rank, ReduceOp,
};

use crate::via::Via;

/// Lengths in bytes: none, around a header's alignment, around the longest inline message, and more
/// than a link's eager size.
const LENGTHS: [usize; 10] = [0, 1, 15, 16, 17, 1024, 1025, 20_000, 300_001, 3 << 20];

const EVERYWHERE: [Via; 6] =
    [Via::Local, Via::Shm, Via::ShmAttached, Via::Tcp, Via::Hosts(2), Via::Rdma];

/// The bytes of the message number `number` from one rank to another.
pub(crate) fn content(from: Rank, to: Rank, number: usize, len: usize) -> Vec<u8> {
    let seed = from.index() * 31 + to.index() * 7 + number * 101;
    (0..len).map(|i| u8::try_from((seed + i + i / 251) % 256).unwrap()).collect()
}

fn around(comm: &Communicator) -> (Rank, Rank) {
    let (rank, size) = (comm.rank().index(), comm.size());
    (Rank::at((rank + 1) % size), Rank::at((rank + size - 1) % size))
}

pub(crate) fn on_all(
    size: usize,
    settings: &[(&str, &str)],
    test: impl Fn(&mut Communicator) + Sync,
) {
    for via in EVERYWHERE.into_iter().filter(|via| via.is_there()) {
        via.run(size, settings, &test);
    }
}

#[test]
fn a_ring_of_ranks_exchanges_messages_of_all_lengths() {
    for size in [1, 2, 5] {
        on_all(size, &[], |comm| {
            let (own, (next, previous)) = (comm.rank(), around(comm));
            for (number, len) in LENGTHS.into_iter().enumerate() {
                let mut into = vec![0xa5; len];
                let (data, tag) =
                    (content(own, next, number, len), u32::MAX - u32::try_from(number).unwrap());
                comm.send_recv(&data, next, &mut into, previous, tag).unwrap();
                assert!(into == content(previous, own, number, len), "{len} bytes");
            }
        });
    }
}

#[test]
fn messages_of_a_pair_keep_their_order_beside_collectives() {
    on_all(4, &[], |comm| {
        let own = comm.rank();
        for (number, len) in LENGTHS.into_iter().enumerate() {
            let tag = u32::try_from(number).unwrap();
            // Even ranks send to odd ones, and then the reverse.
            let peer = Rank(own.0 ^ 1);
            for is_sender in [own.0 % 2 == 0, own.0 % 2 == 1] {
                for part in 0..3 {
                    if is_sender {
                        comm.send(&content(own, peer, part, len), peer, tag).unwrap();
                    } else {
                        let mut into = vec![0xa5; len];
                        comm.recv(&mut into, peer, tag).unwrap();
                        assert!(into == content(peer, own, part, len), "{len} bytes");
                    }
                }
                let mut sum = [1_u32; 1000];
                comm.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
                assert_eq!(sum, [4; 1000]);
            }
        }
    });
}

#[test]
fn a_probe_sees_messages_of_a_rank_to_itself() {
    on_all(2, &[], |comm| {
        let own = comm.rank();
        assert_eq!(comm.probe(own, ANY_TAG).unwrap(), None);
        let sends = [(vec![1_u8; 3], 1), (vec![2; 9], 2)];
        let sends = sends.map(|(data, tag)| comm.start_send(data, own, tag).unwrap());
        for from in [Some(own), ANY_SOURCE] {
            let found = [1, 2].map(|tag| comm.probe(from, tag).unwrap().unwrap());
            let found = found.map(|it| (it.is_sent, it.peer, it.tag, it.bytes));
            assert_eq!(found, [(false, own, 1, 3), (false, own, 2, 9)]);
            assert_eq!(comm.probe(from, ANY_TAG).unwrap().unwrap().tag, 1);
            assert_eq!(comm.probe(from, 3).unwrap(), None);
        }
        let mut into = [0_u8; 9];
        comm.recv(&mut into, own, 2).unwrap();
        assert_eq!(comm.probe(own, 2).unwrap(), None);
        comm.recv(&mut into, own, ANY_TAG).unwrap();
        assert_eq!((into, comm.probe(own, ANY_TAG).unwrap()), ([1, 1, 1, 2, 2, 2, 2, 2, 2], None));
        for send in sends {
            send.wait().unwrap();
        }
    });
}

#[test]
fn many_messages_do_not_hold_collectives_up() {
    // More than a link takes at once.
    const MESSAGES: usize = 2000;
    on_all(2, &[("RINGFOLD_TIMEOUT", "30")], |comm| {
        if comm.rank() == Rank(0) {
            let sends = (0..MESSAGES).map(|it| comm.start_send(vec![it], Rank(1), 1).unwrap());
            let sends: Vec<_> = sends.collect();
            (0..3).for_each(|_| comm.barrier().unwrap());
            (0..2).for_each(|_| comm.start_barrier().unwrap().wait().unwrap());
            sends.into_iter().for_each(|it| drop(it.wait().unwrap()));
            return;
        }
        (0..5).for_each(|_| comm.barrier().unwrap());
        for number in 0..MESSAGES {
            let mut into = [0];
            comm.recv(&mut into, Rank(0), 1).unwrap();
            assert_eq!(into, [number]);
        }
    });
}

#[test]
fn messages_wait_while_collectives_pass_them() {
    on_all(2, &[], |comm| {
        let mut word = [7_u64];
        if comm.rank() == Rank(0) {
            comm.send(&word, Rank(1), 1).unwrap();
        }
        comm.barrier().unwrap();
        comm.all_reduce(&mut word, ReduceOp::Sum).unwrap();
        if comm.rank() == Rank(1) {
            let mut into = [0_u64];
            comm.recv(&mut into, Rank(0), 1).unwrap();
            assert_eq!((into, word), ([7], [14]));
        }
    });
}

/// Rank 0 performs `send` and rank 1 `recv`. Then every rank, also the third one, fails with the
/// cause that has this text.
fn fails(
    settings: &[(&str, &str)],
    send: impl Fn(&mut Communicator) -> Result<(), Error> + Sync,
    recv: impl Fn(&mut Communicator) -> Result<(), Error> + Sync,
    text: &str,
) {
    on_all(3, settings, |comm| {
        // After the barrier, no rank is still joining.
        let result = comm.barrier().and_then(|()| match comm.rank() {
            // The receiver may fail the job before the message has left.
            Rank(0) => send(comm).and_then(|()| comm.barrier()),
            Rank(1) => recv(comm),
            _ => comm.barrier(),
        });
        let Err(Error::Failed(failure)) = result else { panic!("{result:?}") };
        let FailureCause::Message { from, to, cause } = &*failure.cause else {
            panic!("{failure}")
        };
        assert_eq!((from.rank, to.rank), (Rank(1), Rank(0)));
        assert!(cause.contains(text), "{cause}");
        if comm.rank() != Rank(0) {
            let is_message = matches!(failure.operation, Operation::Receive { .. });
            assert_eq!(is_message, comm.rank() == Rank(1), "{failure}");
        }
        // The communicator stays failed.
        let again = comm.send(&[1], Rank((comm.rank().0 + 1) % 3), 0);
        assert!(matches!(again, Err(Error::Failed(_))), "{again:?}");
    });
}

/// A message with a tag of its own: a different length and contents for each number.
fn numbered(from: Rank, to: Rank, number: usize) -> (u32, Vec<u8>) {
    let len = LENGTHS[number % LENGTHS.len()];
    (u32::try_from(number).unwrap(), content(from, to, number, len))
}

#[test]
fn tags_are_received_in_any_order() {
    on_all(3, &[], |comm| {
        let own = comm.rank();
        if own != Rank(0) {
            let all = (0..12).map(|number| numbered(own, Rank(0), number));
            let sent = all.map(|(tag, data)| comm.start_send(data, Rank(0), tag).unwrap());
            sent.collect::<Vec<_>>().into_iter().for_each(|it| drop(it.wait().unwrap()));
            return comm.barrier().unwrap();
        }
        // In reverse order from one rank, and from the other mixed with it.
        for number in (0..12).rev() {
            let (tag, expected) = numbered(Rank(1), own, number);
            let mut into = vec![0xa5; expected.len() + 3];
            let message = comm.recv(&mut into, Rank(1), tag).unwrap();
            assert_eq!((message.peer, message.tag), (Rank(1), tag));
            assert!(into[..message.bytes] == expected && into[message.bytes..] == [0xa5; 3]);
            let (tag, expected) = numbered(Rank(2), own, number * 5 % 12);
            let mut into = vec![0xa5; expected.len()];
            comm.recv(&mut into, Rank(2), tag).unwrap();
            assert!(into == expected);
        }
        comm.barrier().unwrap();
    });
}

#[test]
fn another_type_fails_all_ranks() {
    for len in [3, 1000] {
        let bytes = 4 * len;
        let text = format!(
            "recv [{bytes} bytes from rank 0, tag 5] of f32 met a message of {bytes} bytes of u32 \
             with tag 5"
        );
        let send = |comm: &mut Communicator| comm.send(&vec![1_u32; len], Rank(1), 5);
        let recv =
            |comm: &mut Communicator| comm.recv(&mut vec![0.0_f32; len], Rank(0), 5).map(drop);
        fails(&[], send, recv, &text);
    }
}

#[test]
fn bytes_fit_every_type() {
    on_all(2, &[], |comm| {
        let peer = Rank(comm.rank().0 ^ 1);
        let (mut words, mut bytes) = ([0_u32; 2], [0_u8; 8]);
        comm.send_recv(&[1_u8; 8], peer, &mut words, peer, 0).unwrap();
        comm.send_recv(&words, peer, &mut bytes, peer, 0).unwrap();
        assert_eq!((words, bytes), ([0x0101_0101; 2], [1; 8]));
    });
}

#[test]
fn a_message_of_a_rank_to_itself_has_one_type() {
    on_all(1, &[], |comm| {
        let error = comm.send_recv(&[1_u32], Rank(0), &mut [0.0_f32], Rank(0), 0).unwrap_err();
        let Error::Argument { what, .. } = &error else { panic!("{error}") };
        assert!(what.contains("of u32 to itself does not match"), "{what}");
        assert!(what.contains("of f32"), "{what}");
    });
}

#[test]
fn a_receive_may_be_longer_than_its_message_but_not_shorter() {
    on_all(2, &[], |comm| {
        for (number, len) in [0, 1, 16, 1023, 1024, 1025, 70_000].into_iter().enumerate() {
            let tag = u32::try_from(number).unwrap();
            if comm.rank() == Rank(0) {
                comm.send(&content(Rank(0), Rank(1), number, len), Rank(1), tag).unwrap();
                continue;
            }
            let expected = content(Rank(0), Rank(1), number, len);
            for short in [0, len / 2, len.saturating_sub(1)].into_iter().filter(|it| *it < len) {
                let error = comm.recv(&mut vec![0_u8; short], Rank(0), tag).unwrap_err();
                let Error::Truncated { buffer, message, .. } = &error else { panic!("{error}") };
                assert_eq!((*buffer, message.bytes, message.tag), (short, len, tag));
                let text = format!("buffer of {short} bytes is too short for the message of {len}");
                assert!(error.to_string().contains(&text), "{error}");
            }
            // The message is still there.
            let mut into = vec![0xa5; len + 1];
            assert_eq!(comm.recv(&mut into, ANY_SOURCE, ANY_TAG).unwrap().bytes, len);
            assert!(into[..len] == expected && into[len] == 0xa5);
        }
        comm.barrier().unwrap();
    });
}

#[test]
fn a_message_with_another_tag_is_named_when_the_receive_is_overdue() {
    let text = "recv [40 bytes from rank 0, tag 5] took longer than 300ms, while a message of 40 \
                bytes from rank 0 with tag 7 waited";
    let send = |comm: &mut Communicator| comm.send(&[1_u64; 5], Rank(1), 7);
    let recv = |comm: &mut Communicator| {
        comm.set_timeout(Duration::from_millis(300));
        comm.recv(&mut [0_u64; 5], Rank(0), 5).map(drop)
    };
    fails(&[("RINGFOLD_TIMEOUT", "60")], send, recv, text);
}

#[test]
fn a_message_that_never_comes_is_overdue() {
    let text = "recv [1 bytes from rank 0, tag 0] took longer than";
    let recv = |comm: &mut Communicator| {
        comm.set_timeout(Duration::from_millis(300));
        comm.recv(&mut [0_u8], Rank(0), 0).map(drop)
    };
    fails(&[("RINGFOLD_TIMEOUT", "60")], |_| Ok(()), recv, text);
}

/// Leaves the group, and puts a group of one in its place. The others fail the job before they
/// leave, so the outcome has no meaning.
fn leave(comm: &mut Communicator) {
    let settings = Config::from_map(BTreeMap::new()).unwrap();
    drop(std::mem::replace(comm, Communicator::init_with(&settings).unwrap()));
}

#[test]
fn a_rank_that_has_left_ends_the_wait_for_its_messages() {
    // Also rank 0, which has the control plane.
    for gone in [2, 0].map(Rank) {
        let [waiting, third] = if gone == Rank(2) { [0, 1].map(Rank) } else { [1, 2].map(Rank) };
        for len in [8, 1 << 20] {
            on_all(3, &[("RINGFOLD_TIMEOUT", "60")], |comm| {
                let mut into = vec![0xa5; len];
                if comm.rank() == gone {
                    // Its last message still arrives.
                    comm.send(&content(gone, waiting, 0, len), waiting, 1).unwrap();
                    return leave(comm);
                }
                let result = if comm.rank() == waiting {
                    comm.recv(&mut into, gone, 1).unwrap();
                    assert!(into == content(gone, waiting, 0, len));
                    comm.recv(&mut into, gone, 2)
                } else {
                    comm.recv(&mut into, waiting, 3)
                };
                let Err(Error::Failed(failure)) = result else { panic!("{result:?}") };
                let FailureCause::Link { from, to, cause } = &*failure.cause else {
                    panic!("{failure}")
                };
                assert_eq!((from.rank, to.rank), (waiting, gone));
                assert_eq!(cause, "the rank has left the job");
                assert!([waiting, third].contains(&comm.rank()));
            });
        }
    }
}

#[test]
fn a_message_to_a_rank_that_has_left_is_an_error() {
    on_all(2, &[("RINGFOLD_TIMEOUT", "60")], |comm| {
        if comm.rank() == Rank(1) {
            return leave(comm);
        }
        let result = comm.send(&vec![1_u8; 64 << 20], Rank(1), 0);
        let Err(Error::Failed(failure)) = result else { panic!("{result:?}") };
        let text = failure.cause.to_string();
        assert!(text.contains("the rank has left the job"), "{text}");
    });
}

#[test]
fn arguments_are_checked_before_anything_is_sent() {
    on_all(2, &[], |comm| {
        let own = comm.rank();
        let texts = [
            comm.send(&[1], Rank(2), 0),
            comm.recv(&mut [1], Rank(9), 0).map(drop),
            comm.send(&[1], own, 0),
            comm.recv(&mut [1], own, 0).map(drop),
            comm.probe(Rank(2), ANY_TAG).map(drop),
            comm.send_recv(&[1_u8; 8], own, &mut [0_u32], own, 0).map(drop),
        ];
        for result in &texts {
            assert!(matches!(result, Err(Error::Argument { .. })), "{result:?}");
        }
        let peer = Rank(1 - own.0);
        let mut into = [0];
        comm.send_recv(&[own.0], peer, &mut into, peer, 3).unwrap();
        assert_eq!(into, [peer.0]);
    });
}

#[test]
fn a_message_of_any_rank_arrives_in_the_order_of_its_pair() {
    for size in [2, 5] {
        on_all(size, &[], |comm| {
            let own = comm.rank();
            for (number, len) in LENGTHS.into_iter().enumerate() {
                let tag = u32::try_from(number).unwrap();
                if own != Rank(0) {
                    comm.send(&content(own, Rank(0), number, len), Rank(0), tag).unwrap();
                    continue;
                }
                let mut senders = Vec::new();
                for _ in 1..size {
                    let mut into = vec![0xa5; len];
                    let from = comm.recv(&mut into, ANY_SOURCE, tag).unwrap().peer;
                    assert!(into == content(from, own, number, len), "{len} bytes from {from}");
                    senders.push(from);
                }
                senders.sort_unstable();
                assert_eq!(senders, (1..size).map(Rank::at).collect::<Vec<_>>());
            }
            comm.barrier().unwrap();
        });
    }
}

#[test]
fn a_receive_from_any_rank_passes_over_other_tags() {
    on_all(3, &[], |comm| {
        let mut into = [0_u64];
        match comm.rank() {
            Rank(0) => {
                comm.recv(&mut into, Rank(1), 1).unwrap();
                assert_eq!(comm.recv(&mut into, ANY_SOURCE, 9).unwrap().peer, Rank(2));
                assert_eq!(comm.recv(&mut into, ANY_SOURCE, 2).unwrap().peer, Rank(1));
                assert_eq!(into, [12]);
            }
            Rank(1) => {
                comm.send(&[11_u64], Rank(0), 1).unwrap();
                comm.send(&[12_u64], Rank(0), 2).unwrap();
                comm.send(&[13_u64], Rank(2), 3).unwrap();
            }
            _ => {
                // By now the other tag is on its way.
                comm.recv(&mut into, Rank(1), 3).unwrap();
                comm.send(&[29_u64], Rank(0), 9).unwrap();
            }
        }
        comm.barrier().unwrap();
    });
}

/// Waits until the next message of `from` has begun to arrive. Returns its tag and length.
fn next(comm: &mut Communicator, from: Rank) -> (u32, usize) {
    loop {
        if let Some(message) = comm.probe(from, ANY_TAG).unwrap() {
            assert_eq!((message.peer, message.is_sent), (from, false));
            return (message.tag, message.bytes);
        }
    }
}

#[test]
fn a_receive_from_any_rank_takes_the_senders_in_turn() {
    on_all(3, &[], |comm| {
        let own = comm.rank();
        if own == Rank(0) {
            let mut senders = Vec::new();
            for _ in 0..20 {
                // Both have a message.
                assert_eq!([1, 2].map(|from| next(comm, Rank(from))), [(4, 8); 2]);
                let mut into = [0_u64];
                let from = comm.recv(&mut into, ANY_SOURCE, 4).unwrap().peer;
                assert_eq!(into, [u64::from(from.0)]);
                senders.push(from);
            }
            assert!(senders.windows(2).all(|both| both[0] != both[1]), "{senders:?}");
            (0..4).for_each(|_| assert!(comm.recv(&mut [0_u64], ANY_SOURCE, 4).is_ok()));
            assert_eq!([1, 2].map(|from| comm.probe(Rank(from), ANY_TAG).unwrap()), [None; 2]);
        } else {
            (0..12).for_each(|_| comm.send(&[u64::from(own.0)], Rank(0), 4).unwrap());
        }
        comm.barrier().unwrap();
    });
}

/// Rank 0 fails in a receive from any rank. The others do something before they wait for it.
fn any_fails(
    others: impl Fn(&mut Communicator) -> Result<(), Error> + Sync,
    is_expected: impl Fn(&FailureCause) -> bool + Sync,
) {
    on_all(3, &[("RINGFOLD_TIMEOUT", "60")], |comm| {
        let own = comm.rank();
        // After the barrier, no rank is still joining.
        let result = comm.barrier().and_then(|()| match own {
            Rank(0) => comm.recv(&mut [0_u32; 5], ANY_SOURCE, 3).map(drop),
            _ => others(comm),
        });
        let Err(error) = result else {
            return assert!(own != Rank(0), "rank 0 received a message");
        };
        let Error::Failed(failure) = error else { panic!("{error:?}") };
        assert!(is_expected(&failure.cause), "{failure}");
    });
}

#[test]
fn a_receive_from_any_rank_fails_with_the_job() {
    let abort = |comm: &mut Communicator| {
        if comm.rank() == Rank(2) {
            comm.abort("on purpose");
        }
        comm.barrier()
    };
    any_fails(abort, |cause| matches!(cause, FailureCause::Aborted { who, .. } if who.rank.0 == 2));
    let other_type = |comm: &mut Communicator| {
        if comm.rank() == Rank(1) {
            comm.send(&[0.0_f32], Rank(0), 3)?;
        }
        comm.barrier()
    };
    any_fails(other_type, |cause| {
        let text = "recv [20 bytes from any rank, tag 3] of u32 met a message of 4 bytes of f32";
        matches!(cause, FailureCause::Message { cause, .. } if cause.contains(text))
    });
    on_all(2, &[("RINGFOLD_TIMEOUT", "60")], |comm| {
        let result = if comm.rank() == Rank(0) {
            comm.set_timeout(Duration::from_millis(300));
            comm.recv(&mut [0_u8; 5], ANY_SOURCE, 3).map(drop)
        } else {
            comm.barrier()
        };
        let text = format!("{:?}", result.unwrap_err());
        assert!(text.contains("recv [5 bytes from any rank, tag 3] took longer than"), "{text}");
    });
}

#[test]
fn a_receive_from_any_rank_waits_for_the_last_rank_that_has_not_left() {
    let leave_one_after_the_other = |comm: &mut Communicator| {
        if comm.rank() == Rank(2) {
            // Rank 0 passes it over until the end.
            comm.send(&[7_u8; 5], Rank(0), 8)?;
            leave(comm);
        } else {
            while comm.aborter().left_since(Rank(2)).is_none_or(|since| since.as_millis() < 700) {
                std::thread::yield_now();
            }
            leave(comm);
        }
        Ok(())
    };
    let has_left = |cause: &FailureCause| {
        let text = "the rank has left the job, while a message of 5 bytes from rank 2 with tag 8";
        matches!(cause, FailureCause::Message { from, cause, .. }
            if from.rank == Rank(0) && cause.contains(text))
    };
    any_fails(leave_one_after_the_other, has_left);
}

#[test]
fn a_message_of_the_last_rank_arrives_after_others_have_left() {
    on_all(3, &[("RINGFOLD_TIMEOUT", "60")], |comm| {
        let mut into = [0_u8; 5];
        match comm.rank() {
            Rank(0) => assert_eq!(comm.recv(&mut into, ANY_SOURCE, 3).unwrap().peer, Rank(1)),
            Rank(1) => {
                // Longer than rank 0 takes to find a link unusable.
                while comm.aborter().left_since(Rank(2)).is_none_or(|it| it.as_millis() < 900) {
                    std::thread::yield_now();
                }
                comm.send(&into, Rank(0), 3).unwrap();
            }
            _ => leave(comm),
        }
    });
}
