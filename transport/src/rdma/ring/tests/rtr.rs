//! Ready-to-receive messages in both halves of a ring, and false claims about them.

use ringfold_types::limits::{RAILS_MAX, RDMA_ASK_BYTES, RDMA_LEND_BYTES, RDMA_PIECE_BYTES};

use super::{by, halves};
use crate::rdma::message::Grant;
use crate::rdma::ring::inbound::Inbound;
use crate::rdma::ring::layout::{FLAGS_AT, Immediate, LINE_BYTES, WANTS_RTR, lap};
use crate::rdma::ring::outbound::Outbound;
use crate::rdma::ring::rtr::Rtr;

/// False claims of a peer about direct writes are refused.
#[test]
fn false_direct_writes_are_refused() {
    let told = |open: Option<(u32, usize)>, tag: u32, bytes: usize, placed: u8| {
        let (mut outbound, mut inbound) = halves();
        let to = Grant { address: 1 << 20, ..Grant::default() };
        if let Some((tag, bytes)) = open {
            inbound.make_rtr(tag, (0, bytes), to, 0).unwrap();
        }
        let (taken, ready) = outbound.push(tag, &vec![1; bytes], by(0), false).unwrap();
        assert_eq!(taken, bytes);
        inbound.store(ready.at, outbound.image(ready.at, ready.bytes));
        inbound.store(ready.at + FLAGS_AT, &[placed]);
        let Immediate::Fragment { sequence, lines, .. } = ready.number else { panic!("{ready:?}") };
        inbound.arrive(sequence, lines)
    };
    assert_eq!(told(Some((3, 40_000)), 3, 40_000, 1), Ok(true));
    assert_eq!(told(Some((3, 40_000)), 3, 40_000, 0), Ok(true), "it need not");
    assert!(told(None, 3, 40_000, 1).is_err());
    assert!(told(Some((3, 40_000)), 4, 40_000, 1).is_err(), "another message");
    assert!(told(Some((3, 39_999)), 3, 40_000, 1).is_err(), "beyond its end");
    assert_eq!(told(Some((3, 40_000)), 3, 40_000, 3), Ok(true), "and wait for more");
    assert!(told(Some((3, 40_000)), 3, 40_000, 4).is_err());

    let (mut outbound, _) = halves();
    let to = Grant { address: u64::MAX, keys: [1; RAILS_MAX] };
    let it = |number, from, bytes| Rtr { number, tag: 0, from, bytes, to };
    outbound.take_rtr(it(1, 1, u64::MAX), 0);
    let (taken, ready) = outbound.push(0, &[0; 1], by(0), true).unwrap();
    assert_eq!((taken, ready.placed), (1, None), "that is for later bytes");
    outbound.take_rtr(it(2, 1, u64::MAX), usize::MAX);
    let (taken, ready) = outbound.push(0, &[0; RDMA_LEND_BYTES], by(0), true).unwrap();
    assert_eq!((taken, ready.placed), (RDMA_LEND_BYTES, Some((u64::MAX, 1))), "its own harm");
    let (_, ready) = outbound.push(0, &[0; RDMA_LEND_BYTES], by(0), true).unwrap();
    assert_eq!(ready.placed, Some((RDMA_LEND_BYTES as u64 - 1, 1)));
}

/// At most two messages are open, and at most two are unseen by the peer.
#[test]
fn ready_to_receive_messages_do_not_overrun_the_mailbox() {
    let (mut outbound, mut inbound) = halves();
    let to = Grant { address: 1 << 20, keys: [1; RAILS_MAX] };
    let pass = |outbound: &mut Outbound, inbound: &mut Inbound| {
        let (taken, ready) = outbound.push(0, &[1; 100], by(0), false).unwrap();
        inbound.store(ready.at, outbound.image(ready.at, ready.bytes));
        inbound.store(ready.at + FLAGS_AT, &WANTS_RTR.to_le_bytes());
        let Immediate::Fragment { sequence, lines, .. } = ready.number else { panic!("{ready:?}") };
        inbound.arrive(sequence, lines).unwrap();
        assert!(!inbound.is_asked(1), "another message has arrived");
        inbound.consume(taken);
    };
    assert!(!inbound.is_asked(0), "nobody awaits that");
    pass(&mut outbound, &mut inbound);
    assert!(inbound.is_asked(0));
    let mut unseen = Vec::new();
    for path in 0..2 {
        assert!(inbound.may_send_rtr());
        assert_eq!(inbound.known_after(0), path * 100);
        unseen.push(inbound.make_rtr(0, (path * 100, 100), to, path).unwrap());
        assert!(!inbound.is_asked(0), "it waits for the bytes of its message");
    }
    assert_eq!([0, 150, 250].map(|skip| inbound.known_after(skip)), [200, 50, 0]);
    assert!(!inbound.may_send_rtr(), "two are open");
    pass(&mut outbound, &mut inbound);
    pass(&mut outbound, &mut inbound);
    assert!(!inbound.has_open_rtr() && !inbound.may_send_rtr(), "none was seen");
    let (late, slot) = unseen.remove(0);
    outbound.take_rtr(late, slot);
    pass(&mut outbound, &mut inbound);
    assert!(inbound.may_send_rtr(), "the first was");
    inbound.make_rtr(0, (0, 100), to, 0).unwrap();
    pass(&mut outbound, &mut inbound);
    assert!(!inbound.may_send_rtr());
    inbound.forget(1);
    assert!(inbound.may_send_rtr(), "the second went by a path that is lost");
}

/// The sender writes to the memory of both messages, one after the other, and never beyond.
#[test]
fn two_messages_are_open_at_once() {
    let (mut outbound, mut inbound) = halves();
    let bytes = RDMA_PIECE_BYTES;
    let memory = vec![0_u8; 3 * bytes];
    let grant =
        |at: usize| Grant { address: memory[at..].as_ptr().addr() as u64, keys: [1; RAILS_MAX] };
    // The second message of the stream goes to the end of the memory, and the third to the front.
    for (skip, at) in [(bytes, 2 * bytes), (2 * bytes, 0)] {
        let (it, slot) = inbound.make_rtr(0, (skip, bytes), grant(at), 0).unwrap();
        outbound.take_rtr(it, slot);
    }
    let mut places = Vec::new();
    for _ in 0..4 {
        let (taken, ready) = outbound.push(0, &memory[..bytes], by(0), true).unwrap();
        assert_eq!(taken, bytes);
        inbound.store(ready.at, outbound.image(ready.at, LINE_BYTES));
        let Immediate::Fragment { sequence, lines, .. } = ready.number else { panic!("{ready:?}") };
        inbound.arrive(sequence, lines).unwrap();
        places.push(ready.placed.map(|(address, _)| address - grant(0).address));
    }
    assert_eq!(places, [None, Some(2 * bytes as u64), Some(0), None]);
    inbound.consume(bytes);
    for at in [2 * bytes, 0] {
        assert!(inbound.has_open_rtr());
        assert_eq!(inbound.placed(0, &memory[at..]), Ok(Some((0, bytes))));
        inbound.consume(bytes);
    }
    assert!(!inbound.has_open_rtr());
}

/// A receiver that consumes the front of a message without an answer wants it in the ring.
#[test]
fn a_message_to_ordinary_memory_is_not_kept_back_to_its_end() {
    let (mut outbound, _) = halves();
    let bytes = vec![1; 32 * RDMA_PIECE_BYTES];
    let (mut sent, mut given, mut is_kept_back) = (0, 0, Vec::new());
    while sent < bytes.len() {
        // The receiver consumes all that arrives at once.
        let (taken, ready) = outbound.push(0, &bytes[sent..], by(0), true).unwrap();
        is_kept_back.push(outbound.is_kept_back(0, Some(0)));
        sent += taken;
        let Immediate::Fragment { lines, .. } = ready.number else { panic!("{ready:?}") };
        given += u64::from(lines);
        outbound.credit(lap(given)).unwrap();
        outbound.accept();
    }
    outbound.end_message();
    assert_eq!(is_kept_back.iter().filter(|it| **it).count(), 1, "{is_kept_back:?}");
}

/// Messages wait while that is of use to the receiver, and ever more rarely otherwise.
#[test]
fn messages_are_kept_back_where_that_is_worth_it() {
    let (mut outbound, _) = halves();
    let bytes = vec![1; 2 * RDMA_PIECE_BYTES];
    let to = Grant { address: 1 << 20, keys: [1; RAILS_MAX] };
    let (mut number, mut sent, mut given) = (0, 0, 0);
    let mut send = |has_rtr: bool| {
        let (first, ready) = outbound.push(0, &bytes, by(0), true).unwrap();
        let is_kept_back = outbound.is_kept_back(0, Some(0));
        if has_rtr {
            number += 1;
            let (from, left) = (sent + first as u64, (bytes.len() - first) as u64);
            outbound.take_rtr(Rtr { number, tag: 0, from, bytes: left, to }, 0);
            assert!(!outbound.is_kept_back(0, Some(0)), "it knows where to");
        }
        let (_, second) = outbound.push(0, &bytes[first..], by(0), true).unwrap();
        outbound.end_message();
        sent += bytes.len() as u64;
        outbound.all_arrived();
        outbound.accept();
        for ready in [ready, second] {
            let Immediate::Fragment { lines, .. } = ready.number else { panic!("{ready:?}") };
            given += u64::from(lines);
        }
        outbound.credit(lap(given)).unwrap();
        is_kept_back
    };
    assert!((0..5).all(|_| send(true)));
    let kept: Vec<_> = (0..12).map(|_| send(false)).collect();
    assert_eq!(kept, [1, 0, 1, 0, 0, 1, 0, 0, 0, 0, 1, 0].map(|kept| kept == 1));
}

/// A sender of zero-copy messages learns early where the next one is wanted, and a short message
/// between changes nothing. A sender that copies a long message learns it no more.
#[test]
fn the_receiver_opens_the_next_message_before_it_begins() {
    let (mut outbound, mut inbound) = halves();
    let memory = vec![0_u8; RDMA_PIECE_BYTES + 4096];
    let to = Grant { address: memory.as_ptr().addr() as u64, keys: [1; RAILS_MAX] };
    let pass = |outbound: &mut Outbound, inbound: &mut Inbound, bytes: usize, is_lent| {
        let (mut sent, mut is_placed) = (0, true);
        while sent < bytes {
            let (taken, ready) = outbound.push(0, &memory[sent..bytes], by(0), is_lent).unwrap();
            inbound.store(ready.at, outbound.image(ready.at, ready.bytes));
            let Immediate::Fragment { sequence, lines, .. } = ready.number else { panic!() };
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
        assert!(inbound.is_asked(0) && outbound.is_asking());
        assert!(outbound.waits_for_answer(0, Some(0), true));
        assert!(!outbound.waits_for_answer(0, None, true), "no device could write there");
        let (it, slot) = inbound.make_rtr(0, (0, memory.len()), to, 0).unwrap();
        outbound.take_rtr(it, slot);
        assert!(outbound.waits_for_answer(1, Some(0), true), "that is for another message");
        assert!(!outbound.waits_for_answer(0, Some(0), true), "it knows where to");
        assert!(pass(&mut outbound, &mut inbound, memory.len(), true));
    }
    assert!(!pass(&mut outbound, &mut inbound, RDMA_ASK_BYTES - 1, true));
    assert!(!inbound.is_asked(0) && !outbound.is_asking(), "a short one is copied");
    assert!(!pass(&mut outbound, &mut inbound, memory.len(), true));
    assert!(inbound.is_asked(0) && outbound.is_asking());
    assert!(!pass(&mut outbound, &mut inbound, memory.len(), false));
    assert!(!inbound.is_asked(0) && !outbound.is_asking());
}

/// A peer that splits elements makes the receiver ask for other bytes than have arrived.
#[test]
fn bytes_are_not_taken_for_others() {
    let (mut outbound, mut inbound) = halves();
    let memory = vec![0_u8; 2 * RDMA_LEND_BYTES];
    let to = Grant { address: memory.as_ptr().addr() as u64, keys: [1; RAILS_MAX] };
    let (it, slot) = inbound.make_rtr(0, (0, memory.len()), to, 0).unwrap();
    let mut pass = |inbound: &mut Inbound, bytes: usize| {
        let (_, ready) = outbound.push(0, &memory[..bytes], by(0), true).unwrap();
        inbound.store(ready.at, outbound.image(ready.at, ready.bytes));
        let Immediate::Fragment { sequence, lines, .. } = ready.number else { panic!("{ready:?}") };
        inbound.arrive(sequence, lines).unwrap();
        outbound.take_rtr(it, slot);
    };
    pass(&mut inbound, 3);
    inbound.consume(3);
    pass(&mut inbound, RDMA_LEND_BYTES);
    assert!(inbound.has_open_rtr());
    assert_eq!(inbound.placed(0, &memory[3..]), Ok(Some((0, RDMA_LEND_BYTES))));
    assert_eq!(inbound.placed(1, &memory[3..]), Ok(Some((0, 0))), "another message");
    assert!(inbound.placed(0, &memory).is_err());
    assert!(inbound.front().is_err());
}
