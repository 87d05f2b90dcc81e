//! Point-to-point messages over every transport.

use std::collections::BTreeMap;
use std::time::Duration;

use ringfold::{Communicator, Config, Error, FailureCause, Operation, Rank, ReduceOp};

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
        let result = match comm.rank() {
            // The receiver may fail the job before the message has left.
            Rank(0) => send(comm).and_then(|()| comm.barrier()),
            Rank(1) => recv(comm),
            _ => comm.barrier(),
        };
        let Err(Error::Failed(failure)) = result else { panic!("{result:?}") };
        let FailureCause::Message { from, to, cause } = &*failure.cause else {
            panic!("{failure}")
        };
        assert_eq!((from.rank, to.rank), (Rank(1), Rank(0)));
        assert!(cause.contains(text), "{cause}");
        if comm.rank() != Rank(0) {
            let is_message = matches!(failure.operation, Operation::Message(_));
            assert_eq!(is_message, comm.rank() == Rank(1), "{failure}");
        }
        // The communicator stays failed.
        let again = comm.send(&[1], Rank((comm.rank().0 + 1) % 3), 0);
        assert!(matches!(again, Err(Error::Failed(_))), "{again:?}");
    });
}

#[test]
fn another_tag_fails_all_ranks() {
    let text = "recv [40 bytes from rank 0, tag 5] met a message of 40 bytes with tag 7";
    let send = |comm: &mut Communicator| comm.send(&[1_u64; 5], Rank(1), 7);
    fails(&[], send, |comm| comm.recv(&mut [0_u64; 5], Rank(0), 5), text);
}

#[test]
fn another_length_fails_all_ranks() {
    for (sent, received) in [(5, 6), (1024, 1025), (4000, 3999), (0, 1), (1, 0)] {
        let text = format!("recv [{received} bytes from rank 0, tag 5] met a message of {sent} ");
        let send = |comm: &mut Communicator| comm.send(&vec![1_u8; sent], Rank(1), 5);
        fails(&[], send, |comm| comm.recv(&mut vec![0_u8; received], Rank(0), 5), &text);
    }
}

#[test]
fn a_message_that_never_comes_is_overdue() {
    let text = "recv [1 bytes from rank 0, tag 0] took longer than";
    let recv = |comm: &mut Communicator| {
        comm.set_timeout(Duration::from_millis(300));
        comm.recv(&mut [0_u8], Rank(0), 0)
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
            comm.recv(&mut [1], Rank(9), 0),
            comm.send(&[1], own, 0),
            comm.recv(&mut [1], own, 0),
            comm.send_recv(&[1_u8], own, &mut [0_u32], own, 0),
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
