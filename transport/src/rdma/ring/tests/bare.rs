//! Fragments without a header, and lies about them.

use ringfold_types::limits::{RAILS_MAX, RDMA_LEND_BYTES, RDMA_PIECE_BYTES};

use super::{by, halves};
use crate::rdma::message::Grant;
use crate::rdma::ring::geometry::{Bare, Number, RING_LINES, lines};
use crate::rdma::ring::inbound::Inbound;
use crate::rdma::ring::invitation::{Invitation, place_of};
use crate::rdma::ring::outbound::{By, Outbound};

/// Brings a fragment to the other end; its tag there, and whether it was bare.
fn bring(outbound: &mut Outbound, inbound: &mut Inbound, tag: u32, bytes: usize) -> (u32, bool) {
    let by = By { bare_most: usize::MAX, ..by(0) };
    let (taken, ready) = outbound.push(tag, &vec![1; bytes], by, false).unwrap();
    assert_eq!(taken, bytes);
    let is_bare = match ready.number {
        Number::Bare { sequence, bare, .. } => {
            inbound.arrive_bare(sequence, bare).unwrap();
            true
        }
        Number::Fragment { sequence, lines, .. } => {
            inbound.load(ready.at, outbound.image(ready.at, ready.bytes));
            inbound.arrive(sequence, lines).unwrap();
            false
        }
        number => panic!("{number:?}"),
    };
    let front = inbound.front().unwrap().unwrap();
    let (tag, length) = (front.tag, front.bytes.len());
    assert_eq!(length, bytes);
    inbound.consume(length);
    (tag, is_bare)
}

/// A tag that is a little higher than the last one needs no header, nor do whole lines.
#[test]
fn headers_are_written_where_they_say_something() {
    let (mut outbound, mut inbound) = halves();
    for (tag, bytes, is_bare) in [
        (0, 64, true),
        (15, 4096, true),
        (31, 4096, false),
        (31, 65_536, true),
        (32, 4095, false),
        (33, 4160, true),
        (32, 4096, false),
        (u32::MAX, 4096, false),
        (3, RDMA_PIECE_BYTES, true),
        (4, 48, false),
        (5, 64, true),
    ] {
        let brought = bring(&mut outbound, &mut inbound, tag, bytes);
        assert_eq!(brought, (tag, is_bare), "{bytes} under {tag}");
    }
}

/// A header tells once of invitations that the sender has seen.
#[test]
fn what_was_seen_is_told() {
    let (mut outbound, mut inbound) = halves();
    let to = Grant { address: 1 << 20, keys: [1; RAILS_MAX] };
    let is_bare = |outbound: &mut Outbound, inbound: &mut Inbound| {
        let (tag, is_bare) = bring(outbound, inbound, 7, 64);
        assert_eq!(tag, 7);
        is_bare
    };
    for _ in 0..3 {
        assert!(is_bare(&mut outbound, &mut inbound));
        let (first, place) = inbound.invite(8, 64, to, 0).unwrap();
        assert!(is_bare(&mut outbound, &mut inbound), "it is on its way");
        let (second, other) = inbound.invite(8, 64, to, 0).unwrap();
        outbound.invite(second, other).unwrap();
        assert!(!is_bare(&mut outbound, &mut inbound));
        assert!(is_bare(&mut outbound, &mut inbound), "once");
        assert!(inbound.invite(8, 64, to, 0).is_none(), "the first lies where it would");
        outbound.invite(first, place).unwrap();
        assert!(!is_bare(&mut outbound, &mut inbound));
    }
}

/// A bare fragment where it was invited says that all invitations were seen.
#[test]
fn who_has_not_seen_all_invitations_writes_headers() {
    let by = By { bare_most: usize::MAX, ..by(0) };
    let bytes = vec![1; RDMA_LEND_BYTES];
    let to = Grant { address: 1 << 20, keys: [1; RAILS_MAX] };
    let is_bare = |seen: &[u32]| {
        let (mut outbound, _) = halves();
        for number in seen {
            let it = Invitation { number: *number, tag: 3, from: 0, bytes: 1 << 20, to };
            outbound.invite(it, place_of(*number)).unwrap();
        }
        // The second one too: the first header has told of those that were seen, but not of all.
        let bare = [0, 1].map(|_| {
            let (_, ready) = outbound.push(3, &bytes, by, true).unwrap();
            assert!(ready.placed.is_some());
            matches!(ready.number, Number::Bare { bare: Bare { ahead: None, .. }, .. })
        });
        assert_eq!(bare[0], bare[1]);
        bare[0]
    };
    assert!(is_bare(&[1]) && is_bare(&[1, 2]) && is_bare(&[2, 1]) && is_bare(&[1, 2, 3]));
    assert!(!is_bare(&[2]) && !is_bare(&[1, 3]), "one is on its way, or lost");
    assert!(is_bare(&[1, 3, 4]), "and overtaken by others");
    assert!(!is_bare(&[3]) && !is_bare(&[u32::MAX]));
}

/// A bare fragment where nothing was invited, or beyond that, or of no lines.
#[test]
fn lies_without_a_header_are_seen() {
    let told = |lines: u32, ahead: Option<u32>, invited: usize| {
        let (_, mut inbound) = halves();
        let to = Grant { address: 1 << 20, ..Grant::default() };
        if invited > 0 {
            inbound.invite(3, invited, to, 0).unwrap();
        }
        inbound.arrive_bare(0, Bare { lines, asks: false, ahead })
    };
    assert_eq!(told(626, None, 40_000), Ok(()));
    assert!(told(627, None, 40_000).is_err(), "beyond its end");
    assert!(told(626, None, 0).is_err());
    assert_eq!(told(2, Some(15), 0), Ok(()));
    for lines in [0, 1, RING_LINES + 1, u32::MAX] {
        assert!(told(lines, Some(0), 0).is_err() && told(lines, None, 1 << 30).is_err(), "{lines}");
    }
}

/// Where it lies, its tag, whether it asks for more, and that it frees the mailbox.
#[test]
fn bare_fragments_are_all_that_a_header_would_say() {
    let (_, mut inbound) = halves();
    let memory = vec![0_u8; 2 * RDMA_LEND_BYTES];
    let to = Grant { address: memory.as_ptr().addr() as u64, ..Grant::default() };
    let half = Bare { lines: lines(RDMA_LEND_BYTES), asks: true, ahead: None };
    inbound.arrive_bare(0, Bare { lines: 2, asks: true, ahead: Some(9) }).unwrap();
    inbound.consume(64);
    for round in 0..4_u8 {
        assert!(inbound.may_invite(), "{round}");
        inbound.invite(30, memory.len(), to, 0).unwrap();
        inbound.arrive_bare(1 + 2 * round, half).unwrap();
        inbound.arrive_bare(2 + 2 * round, half).unwrap();
        for part in memory.chunks(RDMA_LEND_BYTES) {
            assert_eq!(inbound.placed(30, part), Ok(Some((30, RDMA_LEND_BYTES))));
            inbound.consume(RDMA_LEND_BYTES);
        }
        assert_eq!(inbound.placed(30, &memory), Ok(None));
    }
    inbound.arrive_bare(9, Bare { lines: 2, asks: false, ahead: Some(1) }).unwrap();
    assert_eq!(inbound.front().unwrap().unwrap().tag, 31, "after those that were invited");
    inbound.consume(64);
    assert!(!inbound.may_invite(), "it has not asked");
}
