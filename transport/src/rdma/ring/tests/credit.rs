//! Room in the ring, credit for it, reports of arrivals, and false claims about them.

use ringfold_types::limits::{LINK_BYTES_MIN, RDMA_CELLS, RDMA_PIECE_BYTES};

use super::{by, halves};
use crate::rdma::message::Arrivals;
use crate::rdma::ring::layout::{Immediate, LAPS_LINES, LINE_BYTES, RING_LINES, lap};

/// A peer that has left took all that it wanted, even if its device did not report it.
#[test]
fn memory_lent_to_a_peer_that_has_left_is_given_back() {
    let (mut outbound, _) = halves();
    let bytes = vec![1; 2 * RDMA_PIECE_BYTES];
    let (taken, _) = outbound.push(0, &bytes, by(0), true).unwrap();
    outbound.lent(1);
    assert_eq!((outbound.accept(), outbound.unaccepted_bytes()), (0, taken));
    assert!(outbound.borrowers().eq([0]));
    outbound.all_arrived();
    assert_eq!((outbound.accept(), outbound.unaccepted_bytes()), (taken, 0));
}

/// The peer's report of a path may be old, by more fragments than a number can tell apart.
#[test]
fn old_reports_of_arrivals_are_understood() {
    let (mut outbound, mut inbound) = halves();
    for _ in 0..300 {
        let (_, ready) = outbound.push(0, &[1; 16], by(0), false).unwrap();
        inbound.store(ready.at, outbound.image(ready.at, ready.bytes));
        let Immediate::Fragment { sequence, lines, .. } = ready.number else { panic!("{ready:?}") };
        inbound.arrive(sequence, lines).unwrap();
        inbound.consume(16);
        if inbound.owes() {
            outbound.credit(lap(inbound.total())).unwrap();
            inbound.gave_credit();
        }
    }
    let sent = inbound.state();
    assert_eq!(sent, Arrivals { next: 300, early: 0 });
    outbound.push(0, &[1; 16], by(1), false).unwrap();
    outbound.lose(1, Arrivals { next: 100, early: u64::MAX }).unwrap();
    assert!(outbound.lost().is_some());
    outbound.push(0, &[1; 16], by(2), false).unwrap();
    outbound.lose(2, Arrivals { next: 301, early: 1 }).unwrap();
    let (place, _) = outbound.lost().unwrap();
    outbound.repeated(place, 3);
    assert!(outbound.lost().is_none(), "the other one has arrived");
    assert!(outbound.lose(3, Arrivals { next: 303, early: 0 }).is_err());
}

#[test]
fn a_full_ring_holds_what_was_promised() {
    for length in [1, 48, 49, 1000, RDMA_PIECE_BYTES] {
        let (mut outbound, _) = halves();
        let bytes = vec![1; length];
        let mut held = 0;
        while let Some((taken, _)) = outbound.push(0, &bytes, by(0), false) {
            held += taken;
        }
        assert!(held >= LINK_BYTES_MIN || !outbound.promise_is_kept(), "{length}: {held}");
        assert_eq!(outbound.promise_is_kept(), length >= 1000, "{length}");
    }
}

#[test]
fn false_fragments_are_refused() {
    let header = |tag: u32, bytes: u32| [tag.to_le_bytes(), bytes.to_le_bytes()].concat();
    let told = |sequence: u8, lines: u32, bytes: u32| {
        let (_, mut inbound) = halves();
        inbound.store(0, &header(1, bytes));
        assert!(inbound.arrive(sequence, lines)?);
        Ok::<_, &str>(inbound.front()?.map(|front| front.bytes.len()))
    };
    assert_eq!(told(0, 1, 48), Ok(Some(48)));
    assert_eq!(told(0, 2, 64), Ok(Some(64)));
    assert_eq!(told(1, 1, 48), Ok(None), "it waits for the one before");
    for (sequence, lines, bytes) in [
        (0, 0, 48),
        (0, RING_LINES + 1, 48),
        (0, u32::MAX, 48),
        (0, 1, 0),
        (0, 1, 49),
        (0, 2, 48),
        (0, 2, 65),
        (0, 1, u32::MAX),
        (0, RING_LINES, u32::MAX),
    ] {
        assert!(told(sequence, lines, bytes).is_err(), "{sequence} {lines} {bytes}");
    }
}

#[test]
fn fragments_that_are_not_under_way_change_nothing() {
    let (_, mut inbound) = halves();
    inbound.store(0, &[1, 0, 0, 0, 1, 0, 0, 0]);
    inbound.store(LINE_BYTES, &[1, 0, 0, 0, 1, 0, 0, 0]);
    let far = u8::try_from(RDMA_CELLS).unwrap();
    for (sequence, is_new) in
        [(far, false), (255, false), (1, true), (1, false), (0, true), (0, false), (1, false)]
    {
        let before = inbound.state();
        assert_eq!(inbound.arrive(sequence, 1), Ok(is_new), "{sequence}");
        assert_eq!(inbound.state() != before, is_new, "{sequence}");
    }
    assert_eq!((inbound.state().next, inbound.front().unwrap().unwrap().bytes.len()), (2, 1));
}

#[test]
fn fragments_without_credit_are_refused() {
    let (_, mut inbound) = halves();
    for sequence in 0..u8::try_from(RDMA_CELLS).unwrap() {
        inbound.store(usize::from(sequence) * LINE_BYTES, &[1, 0, 0, 0, 1, 0, 0, 0]);
        inbound.arrive(sequence, 1).unwrap();
    }
    let next = RDMA_CELLS * LINE_BYTES;
    inbound.store(next, &[1, 0, 0, 0, 1, 0, 0, 0]);
    assert!(inbound.arrive(u8::try_from(RDMA_CELLS).unwrap(), 1).is_err());
}

#[test]
fn false_credit_is_refused() {
    for lines in [1, 2, 4, LAPS_LINES / 2] {
        let (mut outbound, _) = halves();
        outbound.push(0, &[0; 100], by(0), false).unwrap();
        assert!(outbound.credit(lines).is_err(), "{lines} lines for one fragment of three");
    }
    let (mut outbound, _) = halves();
    outbound.push(0, &[0; 60], by(0), false).unwrap();
    assert!(outbound.credit(2).is_ok());
    assert!(outbound.credit(2).is_ok(), "told again");
    assert!(outbound.credit(1).is_ok(), "overtaken");
    assert!(outbound.credit(3).is_err());
}
