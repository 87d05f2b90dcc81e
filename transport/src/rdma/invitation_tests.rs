//! What both halves of a ring make of invitations, and of peers that lie about them.

use ringfold_types::limits::{RAILS_MAX, RDMA_ASK_BYTES, RDMA_LEND_BYTES, RDMA_PIECE_BYTES};

use super::geometry::{AWAITS, Bare, FLAGS_AT, Number, RING_LINES, lap, lines};
use super::inbound::Inbound;
use super::invitation::{Invitation, place_of};
use super::message::Grant;
use super::outbound::{By, Outbound};
use super::ring_tests::{by, halves};

/// What the peer says it has written where it was invited.
#[test]
fn lies_about_invitations_are_seen() {
    let told = |invited: Option<(u32, usize)>, tag: u32, bytes: usize, placed: u8| {
        let (mut outbound, mut inbound) = halves();
        let to = Grant { address: 1 << 20, ..Grant::default() };
        if let Some((tag, bytes)) = invited {
            inbound.invite(tag, bytes, to, 0).unwrap();
        }
        let (taken, ready) = outbound.push(tag, &vec![1; bytes], by(0), false).unwrap();
        assert_eq!(taken, bytes);
        inbound.load(ready.at, outbound.image(ready.at, ready.bytes));
        inbound.load(ready.at + FLAGS_AT, &[placed]);
        let Number::Fragment { sequence, lines, .. } = ready.number else { panic!("{ready:?}") };
        inbound.arrive(sequence, lines)
    };
    assert_eq!(told(Some((3, 40_000)), 3, 40_000, 1), Ok(()));
    assert_eq!(told(Some((3, 40_000)), 3, 40_000, 0), Ok(()), "it need not");
    assert!(told(None, 3, 40_000, 1).is_err());
    assert!(told(Some((3, 40_000)), 4, 40_000, 1).is_err(), "another message");
    assert!(told(Some((3, 39_999)), 3, 40_000, 1).is_err(), "beyond its end");
    assert_eq!(told(Some((3, 40_000)), 3, 40_000, 3), Ok(()), "and wait for more");
    assert!(told(Some((3, 40_000)), 3, 40_000, 4).is_err());

    let (mut outbound, _) = halves();
    let to = Grant { address: u64::MAX, keys: [1; RAILS_MAX] };
    let it = |from, bytes| Invitation { number: 1, tag: 0, from, bytes, to };
    assert!(outbound.invite(it(1, 10), 0).is_err(), "bytes that were never sent");
    outbound.invite(it(0, u64::MAX), 0).unwrap();
    let (taken, ready) = outbound.push(0, &[0; RDMA_LEND_BYTES], by(0), true).unwrap();
    assert_eq!((taken, ready.placed), (RDMA_LEND_BYTES, Some((u64::MAX, 1))), "its own harm");
    let (_, ready) = outbound.push(0, &[0; RDMA_LEND_BYTES], by(0), true).unwrap();
    assert_eq!(ready.placed, Some((RDMA_LEND_BYTES as u64 - 1, 1)));
}

/// One at a time for each message, and two that the peer has not seen.
#[test]
fn invitations_do_not_overrun_the_mailbox() {
    let (mut outbound, mut inbound) = halves();
    let to = Grant { address: 1 << 20, keys: [1; RAILS_MAX] };
    let pass = |outbound: &mut Outbound, inbound: &mut Inbound, bytes: usize| {
        let (taken, ready) = outbound.push(0, &vec![1; bytes], by(0), false).unwrap();
        inbound.load(ready.at, outbound.image(ready.at, ready.bytes));
        inbound.load(ready.at + FLAGS_AT, &AWAITS.to_le_bytes());
        let Number::Fragment { sequence, lines, .. } = ready.number else { panic!("{ready:?}") };
        inbound.arrive(sequence, lines).unwrap();
        assert!(!inbound.may_invite(), "it has not been received");
        inbound.consume(taken);
    };
    assert!(!inbound.may_invite(), "nobody awaits that");
    pass(&mut outbound, &mut inbound, 100);
    let mut unseen = Vec::new();
    for path in 0..2 {
        assert!(inbound.may_invite());
        unseen.push(inbound.invite(0, 100, to, path).unwrap());
        assert!(!inbound.may_invite(), "it waits for what it has invited");
        pass(&mut outbound, &mut inbound, 100);
    }
    assert!(!inbound.may_invite(), "the mailbox is full");
    pass(&mut outbound, &mut inbound, 100);
    assert!(!inbound.may_invite(), "none was seen");
    let (late, place) = unseen.remove(0);
    outbound.invite(late, place).unwrap();
    pass(&mut outbound, &mut inbound, 100);
    assert!(inbound.may_invite(), "the first was");
    inbound.invite(0, 100, to, 0).unwrap();
    pass(&mut outbound, &mut inbound, 100);
    assert!(!inbound.may_invite());
    inbound.forget(1);
    assert!(inbound.may_invite(), "the second went by a path that is lost");
}

/// As long as that is of use to the receiver; else ever more rarely.
#[test]
fn messages_are_kept_back_where_that_is_worth_it() {
    let (mut outbound, _) = halves();
    let bytes = vec![1; 2 * RDMA_PIECE_BYTES];
    let to = Grant { address: 1 << 20, keys: [1; RAILS_MAX] };
    let (mut number, mut sent, mut given) = (0, 0, 0);
    let mut send = |is_invited: bool| {
        let (first, ready) = outbound.push(0, &bytes, by(0), true).unwrap();
        let is_kept_back = outbound.is_kept_back(0, Some(0));
        if is_invited {
            number += 1;
            let (from, left) = (sent + first as u64, (bytes.len() - first) as u64);
            outbound.invite(Invitation { number, tag: 0, from, bytes: left, to }, 0).unwrap();
            assert!(!outbound.is_kept_back(0, Some(0)), "it knows where to");
        }
        let (_, second) = outbound.push(0, &bytes[first..], by(0), true).unwrap();
        outbound.end_message();
        sent += bytes.len() as u64;
        outbound.all_arrived();
        outbound.accept();
        for ready in [ready, second] {
            let Number::Fragment { lines, .. } = ready.number else { panic!("{ready:?}") };
            given += u64::from(lines);
        }
        outbound.credit(lap(given)).unwrap();
        is_kept_back
    };
    assert!((0..5).all(|_| send(true)));
    let kept: Vec<_> = (0..12).map(|_| send(false)).collect();
    assert_eq!(kept, [1, 0, 1, 0, 0, 1, 0, 0, 0, 0, 1, 0].map(|kept| kept == 1));
}

/// Whoever lends a message is told where the next one is wanted, and a short one between changes
/// nothing; whoever does not lend a long one is not told any more.
#[test]
fn the_next_message_is_invited_before_it_begins() {
    let (mut outbound, mut inbound) = halves();
    let memory = vec![0_u8; RDMA_PIECE_BYTES + 4096];
    let to = Grant { address: memory.as_ptr().addr() as u64, keys: [1; RAILS_MAX] };
    let pass = |outbound: &mut Outbound, inbound: &mut Inbound, bytes: usize, is_lent| {
        let (mut sent, mut is_placed) = (0, true);
        while sent < bytes {
            let (taken, ready) = outbound.push(0, &memory[sent..bytes], by(0), is_lent).unwrap();
            inbound.load(ready.at, outbound.image(ready.at, ready.bytes));
            let Number::Fragment { sequence, lines, .. } = ready.number else { panic!() };
            inbound.arrive(sequence, lines).unwrap();
            inbound.consume(taken);
            sent += taken;
            is_placed &= ready.placed.is_some();
        }
        if is_lent {
            outbound.end_message();
        }
        outbound.all_arrived();
        outbound.accept();
        is_placed
    };
    assert!(!pass(&mut outbound, &mut inbound, memory.len(), true));
    for _ in 0..3 {
        assert!(!pass(&mut outbound, &mut inbound, 8, false));
        assert!(inbound.may_invite() && outbound.is_asking());
        assert!(outbound.waits_for_answer(0, Some(0), true));
        assert!(!outbound.waits_for_answer(0, None, true), "no device could write there");
        let (it, place) = inbound.invite(0, memory.len(), to, 0).unwrap();
        outbound.invite(it, place).unwrap();
        assert!(outbound.waits_for_answer(1, Some(0), true), "that is for another message");
        assert!(!outbound.waits_for_answer(0, Some(0), true), "it knows where to");
        assert!(pass(&mut outbound, &mut inbound, memory.len(), true));
    }
    assert!(!pass(&mut outbound, &mut inbound, RDMA_ASK_BYTES - 1, true));
    assert!(!inbound.may_invite() && !outbound.is_asking(), "a short one is copied");
    assert!(!pass(&mut outbound, &mut inbound, memory.len(), true));
    assert!(inbound.may_invite() && outbound.is_asking());
    assert!(!pass(&mut outbound, &mut inbound, memory.len(), false));
    assert!(!inbound.may_invite() && !outbound.is_asking());
}

/// A peer that splits elements makes the receiver come back for others than those that are there.
#[test]
fn bytes_are_not_taken_for_others() {
    let (mut outbound, mut inbound) = halves();
    let memory = vec![0_u8; 2 * RDMA_LEND_BYTES];
    let to = Grant { address: memory.as_ptr().addr() as u64, keys: [1; RAILS_MAX] };
    let (it, place) = inbound.invite(0, memory.len(), to, 0).unwrap();
    let mut pass = |inbound: &mut Inbound, bytes: usize| {
        let (_, ready) = outbound.push(0, &memory[..bytes], by(0), true).unwrap();
        inbound.load(ready.at, outbound.image(ready.at, ready.bytes));
        let Number::Fragment { sequence, lines, .. } = ready.number else { panic!("{ready:?}") };
        inbound.arrive(sequence, lines).unwrap();
        outbound.invite(it, place).unwrap();
    };
    pass(&mut inbound, 3);
    inbound.consume(3);
    pass(&mut inbound, RDMA_LEND_BYTES);
    assert!(inbound.is_inviting());
    assert_eq!(inbound.placed(0, &memory[3..]), Ok(Some((0, RDMA_LEND_BYTES))));
    assert_eq!(inbound.placed(1, &memory[3..]), Ok(Some((0, 0))), "another message");
    assert!(inbound.placed(0, &memory).is_err());
    assert!(inbound.front().is_err());
}

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

/// What a sender has seen of invitations it says by a header, once.
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
        // The second one too: what was seen is told by then, but not that all was.
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
