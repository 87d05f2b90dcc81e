//! Reductions by operations of the user, over every transport.

use ringfold::{Communicator, Error, FailureCause, Parts, ReduceOp};

use crate::messages::on_all;

/// The product of residues, and the largest second number: commutative, with elements of 12 bytes.
fn combine(into: &mut [[u32; 3]], from: &[[u32; 3]]) {
    assert_eq!(into.len(), from.len());
    for (into, from) in into.iter_mut().zip(from) {
        *into = [into[0] * from[0] % 251, into[1].max(from[1]), into[2] ^ from[2]];
    }
}

fn element(rank: usize, at: usize) -> [u32; 3] {
    let at = u32::try_from(rank * 7 + at * 13).unwrap();
    [1 + at % 250, at % 1009, at.wrapping_mul(0x9e37_79b9)]
}

#[test]
fn every_rank_gets_the_combination_of_all_elements() {
    for size in [1, 2, 3, 5, 8] {
        on_all(size, &[], |comm| {
            let op = comm.register_op("residues", combine).unwrap();
            assert_eq!(op.name(), "residues");
            for len in [0, 1, 3, 1000, 100_003] {
                let own = comm.rank().index();
                let mut buffer: Vec<_> = (0..len).map(|at| element(own, at)).collect();
                comm.all_reduce_by(&mut buffer, &op).unwrap();
                for (at, got) in buffer.iter().enumerate() {
                    let mut wanted = [element(0, at)];
                    (1..size).for_each(|rank| combine(&mut wanted, &[element(rank, at)]));
                    assert_eq!([*got], wanted, "element {at} of {len}, {size} ranks");
                }
                let mut sum = [1_u8];
                comm.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
                assert_eq!(usize::from(sum[0]), size);
            }
        });
    }
}

#[test]
fn a_panic_fails_all_ranks_with_its_text() {
    on_all(3, &[("RINGFOLD_TIMEOUT", "60")], |comm| {
        let own = comm.rank().index();
        let op = comm
            .register_op("brittle", move |_: &mut [u64], from: &[u64]| {
                assert!(own != 1 || from.is_empty(), "element {} is too brittle", from[0]);
            })
            .unwrap();
        let result = comm.all_reduce_by(&mut [7; 30], &op).and_then(|()| comm.barrier());
        let Err(Error::Failed(failure)) = result else { panic!("{result:?}") };
        let FailureCause::Aborted { who, reason } = &*failure.cause else { panic!("{failure}") };
        let text = "the operation \"brittle\" panicked: element 7 is too brittle";
        assert_eq!((who.rank.0, &**reason), (1, text));
    });
}

#[test]
fn different_registrations_are_refused_on_all_ranks() {
    fn refused(comm: &mut Communicator, name: &str) -> Option<String> {
        match comm.register_op(name, |_: &mut [u32], _: &[u32]| ()) {
            Err(Error::Argument { what, .. }) => Some(what),
            _ => None,
        }
    }
    on_all(3, &[], |comm| {
        let is_odd = comm.rank().0 == 1;
        let what = refused(comm, if is_odd { "one" } else { "other" }).unwrap();
        let both = "rank 0 registers \"other\" with elements of 4 bytes, and rank 1 \"one\"";
        assert!(what.contains(both), "{what}");
        assert!(refused(comm, "").unwrap().contains("0 bytes"));
        assert!(refused(comm, &"x".repeat(65)).unwrap().contains("65 bytes"));
        assert_eq!(refused(comm, &"x".repeat(64)), None);
        // The communicator works on.
        comm.all_gather_v(&mut [1_u8; 3], Parts::new(&[1; 3])).unwrap();
    });
}

#[test]
fn different_operations_in_one_call_are_a_mismatch() {
    on_all(3, &[("RINGFOLD_TIMEOUT", "60")], |comm| {
        // A rank may learn of the failure while it registers an operation.
        let call = |comm: &mut Communicator| {
            let (one, other) =
                (comm.register_op("one", combine)?, comm.register_op("other", combine)?);
            let op = if comm.rank().0 == 1 { one } else { other };
            comm.all_reduce_by(&mut [[1; 3]; 9], &op)?;
            comm.barrier()
        };
        let result = call(comm);
        let Err(Error::Failed(failure)) = result else { panic!("{result:?}") };
        assert!(matches!(&*failure.cause, FailureCause::Mismatch { .. }), "{failure}");
    });
}
