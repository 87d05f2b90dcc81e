//! Every call that only moves data takes types that no call reduces.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
#![expect(clippy::cast_possible_truncation, reason = "the numbers of the tests are small")]

use std::fmt::Debug;

use ringfold::{Communicator, Parts, Pod, Rank, Zeroable, local};

#[derive(Clone, Copy, Debug, PartialEq, Pod, Zeroable)]
#[repr(C)]
#[bytemuck(crate = "ringfold::bytemuck")]
struct Record {
    at: u64,
    from: u16,
    bytes: [u8; 6],
}

const RANKS: usize = 3;

/// Moves values by every call. `value` makes one of a small number.
fn moves<T: Pod + Debug + PartialEq>(comm: &mut Communicator, value: impl Fn(usize) -> T) {
    let rank = comm.rank().index();
    let all: Vec<T> = (0..RANKS).map(&value).collect();
    let own = [value(rank)];

    let mut buffer = own;
    comm.broadcast(&mut buffer, Rank(1)).unwrap();
    assert_eq!(buffer, [value(1)]);
    let mut output = [T::zeroed()];
    comm.broadcast_into(&own, &mut output, Rank(2)).unwrap();
    assert_eq!(output, [value(2)]);
    let mut gathered = vec![T::zeroed(); RANKS];
    comm.all_gather_into(&own, &mut gathered).unwrap();
    assert_eq!(gathered, all);
    let mut gathered = vec![T::zeroed(); RANKS];
    gathered[rank] = own[0];
    comm.all_gather(&mut gathered).unwrap();
    assert_eq!(gathered, all);

    let block = |from: usize, to: usize| value(RANKS * from + to);
    let row: Vec<T> = (0..RANKS).map(|to| block(rank, to)).collect();
    let column: Vec<T> = (0..RANKS).map(|from| block(from, rank)).collect();
    let mut buffer = row.clone();
    comm.all_to_all(&mut buffer).unwrap();
    assert_eq!(buffer, column);
    let mut buffer = vec![T::zeroed(); RANKS];
    comm.all_to_all_into(&row, &mut buffer).unwrap();
    assert_eq!(buffer, column);
    let mut gathered = vec![T::zeroed(); RANKS];
    comm.gather_into(&own, &mut gathered, Rank(0)).unwrap();
    assert!(rank > 0 || gathered == all);
    comm.scatter_into(&gathered, &mut output, Rank(0)).unwrap();
    assert_eq!(output, own);

    let counts: Vec<usize> = (0..RANKS).collect();
    let parts = Parts::new(&counts);
    let mine = vec![value(rank); rank];
    let wanted = [value(1), value(2), value(2)];
    let mut uneven = [T::zeroed(); 3];
    comm.all_gather_v_into(&mine, &mut uneven, parts).unwrap();
    assert_eq!(uneven, wanted);
    let mut uneven = [T::zeroed(); 3];
    comm.gather_v_into(&mine, &mut uneven, Parts::at(&counts, &[9, 2, 0]), Rank(0)).unwrap();
    assert!(rank > 0 || uneven == [value(2), value(2), value(1)]);
    let mut own_part = vec![T::zeroed(); rank];
    comm.scatter_v_into(&wanted, parts, &mut own_part, Rank(1)).unwrap();
    assert_eq!(own_part, mine);
    let mut swapped = [T::zeroed(); 3];
    let send = vec![value(rank); RANKS * rank];
    let ranks = [rank; RANKS];
    comm.all_to_all_v_into(&send, Parts::new(&ranks), &mut swapped, parts).unwrap();
    assert_eq!(swapped, wanted);

    let [after, before] = [(rank + 1) % RANKS, (rank + RANKS - 1) % RANKS];
    let [to, from] = [after, before].map(|it| Rank(it as u32));
    comm.send_recv(&own, to, &mut output, from, 5).unwrap();
    assert_eq!(output, [value(before)]);
    let mut word = [T::zeroed()];
    let mut shared = own;
    comm.group(|group| {
        group.send(&own, to, 1);
        group.recv(&mut word, from, 1);
        group.broadcast(&mut shared, Rank(2));
    })
    .unwrap();
    assert_eq!((word, shared), ([value(before)], [value(2)]));
    match rank {
        0 => comm.send(&own, Rank(1), 7).unwrap(),
        1 => drop(comm.recv(&mut output, Rank(0), 7).unwrap()),
        _ => output = [value(0)],
    }
    assert!(rank == 0 || output == [value(0)]);
}

#[test]
fn every_plain_type_moves() {
    local::run(RANKS, |comm| {
        moves(comm, |it| -(it as i16));
        moves(comm, |it| it as u16 + 60_000);
        moves(comm, |it| it);
        moves(comm, |it| it as isize - 4);
        moves(comm, |it| u128::MAX - it as u128);
        moves(comm, |it| [it as u8; 3]);
        moves(comm, |it| it as f32);
        moves(comm, |it| Record { at: it as u64, from: 7, bytes: [it as u8; 6] });
    })
    .unwrap();
}

#[test]
fn a_part_beyond_the_buffer_is_refused() {
    local::run(1, |comm| {
        let mut buffer = [0_u16; 4];
        for count in [5, usize::MAX, usize::MAX / 2 + 1] {
            let error = comm.all_gather_v(&mut buffer, Parts::new(&[count])).unwrap_err();
            assert!(error.to_string().contains("leaves the buffer"), "{error}");
        }
    })
    .unwrap();
}
