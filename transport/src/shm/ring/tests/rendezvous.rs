//! Rendezvous messages: read in parts of all sizes, refused, withdrawn at any time, and with wrong
//! words of the other half. The rings are on the heap, and the messages are in this process.

use std::sync::atomic::Ordering;

use super::{Halves, bytes, ring};
use crate::shm::cma::PeerMemory;
use crate::shm::ring::Consumer;
use crate::shm::ring::memory::{CELLS, join};
use crate::shm::ring::rendezvous::{RENDEZVOUS, Source, State};
use crate::shm::slot::Token;

/// Both halves of a ring whose consumer permits rendezvous messages, and a third view that writes
/// wrong words.
fn open_ring() -> Halves {
    let (producer, mut consumer, lies) = ring();
    let value = [0x5e; 16];
    // Leaked, so it outlives the test.
    let at = Box::leak(Box::new(value)).as_ptr().expose_provenance();
    consumer.permit_rendezvous(PeerMemory::own(Token { at, value }));
    (producer, consumer, lies)
}

/// Another process than the peer.
fn other_process() -> PeerMemory {
    let token = Box::leak(Box::new([0; 16])).as_ptr().expose_provenance();
    PeerMemory::own(Token { at: token, value: [1; 16] })
}

const PAGE_BYTES: usize = 4096;

/// The bytes of `memory` that begin at the same place in a page as the message. No part of it is
/// read ahead for them, as for some other places.
fn straight<'m>(message: &[u8], memory: &'m mut [u8]) -> &'m mut [u8] {
    let apart = message.as_ptr().addr().wrapping_sub(memory.as_ptr().addr());
    &mut memory[apart % PAGE_BYTES..]
}

#[test]
fn a_rendezvous_message_is_read_in_parts_of_all_sizes() {
    for len in [1, 15, 16, 17, 48, 5000, 65_536, 65_537, 300_001] {
        for room in [1, 7, 16, 100, 16_384, 20_001, 70_000, 400_000] {
            if len / room > 2000 {
                continue;
            }
            let (mut producer, mut consumer, _) = open_ring();
            let message = bytes(len, room);
            assert!(producer.send_rendezvous(3, &message).unwrap());
            assert!(consumer.front().unwrap().is_none());
            let (mut arrived, mut accepted, mut turn) = (Vec::new(), 0, 0);
            while arrived.len() < len {
                turn += 1;
                let mut into = vec![0; room.min(len - arrived.len())];
                let lent = consumer.front().unwrap();
                if let Some((tag, lent)) = lent {
                    assert_eq!(tag, 3);
                    let taken = lent.len().min(into.len());
                    arrived.extend_from_slice(&lent[..taken]);
                    consumer.consume(taken);
                } else if turn % 3 == 0 {
                    consumer.pull_ahead().unwrap();
                } else {
                    assert_eq!(consumer.rendezvous_tag(), Some(3));
                    let (taken, _) = consumer.pull(&mut into).unwrap();
                    arrived.extend_from_slice(&into[..taken]);
                }
                let more = producer.accepted(len - accepted).unwrap();
                accepted += more;
                assert!(accepted == len || accepted.is_multiple_of(16), "{accepted} of {len}");
                assert!(accepted >= arrived.len() / 16 * 16, "arrived bytes count as read");
            }
            assert_eq!(arrived, message);
            assert!(
                accepted == len
                    && !producer.has_rendezvous()
                    && consumer.rendezvous_tag().is_none()
            );
            // The stream goes on.
            assert!(producer.push_short(4, b"then"));
            assert_eq!(consumer.front().unwrap(), Some((4, &b"then"[..])));
        }
    }
}

/// A link may permit the peer's rendezvous messages more than once.
#[test]
fn a_second_permission_does_not_restart_a_message() {
    let (mut producer, mut consumer, _) = open_ring();
    let again = |consumer: &mut Consumer<_>| {
        let peer = consumer.pull.peer.expect("it permits rendezvous messages");
        consumer.permit_rendezvous(peer);
    };
    let message = bytes(200_000, 3);
    assert!(producer.send_rendezvous(1, &message).unwrap());
    assert!(consumer.front().unwrap().is_none());
    let mut memory = vec![0; message.len() + PAGE_BYTES];
    let into = &mut straight(&message, &mut memory)[..message.len()];
    let (read, _) = consumer.pull(&mut into[..60_000]).unwrap();
    again(&mut consumer);
    assert_eq!(producer.accepted(message.len()).unwrap(), read);
    let (rest, _) = consumer.pull(&mut into[read..]).unwrap();
    assert_eq!(read + rest, message.len());
    again(&mut consumer);
    assert_eq!(producer.accepted(message.len() - read).unwrap(), rest);
    assert!(into == message && !producer.has_rendezvous());
    assert!(producer.send_rendezvous(2, &message).unwrap());
    producer.withdraw();
    again(&mut consumer);
    assert!(consumer.front().unwrap().is_none());
    assert_eq!(consumer.pull(into).unwrap().0, 0, "a withdrawn message stays withdrawn");
}

#[test]
fn rendezvous_messages_and_pieces_alternate_for_many_laps() {
    let (mut producer, mut consumer, _) = open_ring();
    for round in 0..10 * CELLS as usize {
        let message = bytes(40_000 + round, round);
        if round % 3 == 0 {
            assert_eq!(producer.push(1, &message[..100]).unwrap(), 100);
            assert_eq!(consumer.front().unwrap().unwrap().1, &message[..100]);
            consumer.consume(100);
        }
        assert!(producer.send_rendezvous(2, &message).unwrap(), "cells come back");
        let mut into = vec![0; message.len()];
        assert!(consumer.front().unwrap().is_none());
        assert_eq!(consumer.pull(&mut into).unwrap().0, message.len());
        assert_eq!(into, message);
        assert_eq!(producer.accepted(message.len()).unwrap(), message.len());
    }
}

#[test]
fn an_unfinished_rendezvous_message_blocks_short_ones() {
    let (mut producer, consumer, _) = open_ring();
    let message = bytes(50_000, 1);
    assert!(producer.send_rendezvous(1, &message).unwrap());
    assert!(!producer.push_short(1, &message[..8]), "it might be the end of that message");
    assert_eq!(producer.accepted(message.len()).unwrap(), 0);
    assert!(consumer.front().unwrap().is_none());
    consumer.pull_ahead().unwrap();
    // A caller that asks for fewer bytes gets no more.
    assert_eq!(producer.accepted(32).unwrap(), 32);
    assert_eq!(producer.accepted(message.len() - 32).unwrap(), message.len() - 32);
}

#[test]
fn a_consumer_that_cannot_read_refuses_and_the_rest_goes_by_cells() {
    let (mut producer, mut consumer, _) = open_ring();
    let message = bytes(100_000, 5);
    assert!(producer.send_rendezvous(1, &message).unwrap());
    let mut memory = vec![0; 30_000];
    let into = straight(&message, &mut memory);
    assert!(consumer.front().unwrap().is_none());
    let (read, _) = consumer.pull(into).unwrap();
    assert_eq!(into[..read], message[..read]);
    consumer.pull.peer = Some(other_process());
    let (none, is_told) = consumer.pull(into).unwrap();
    assert!(none == 0 && is_told && consumer.rendezvous_tag().is_none());
    let accepted = producer.accepted(message.len()).unwrap();
    assert!(accepted == read && !producer.has_rendezvous());
    assert!(!producer.send_rendezvous(1, &message[accepted..]).unwrap(), "never again");
    let pushed = producer.push(1, &message[accepted..]).unwrap();
    let lent = consumer.front().unwrap().unwrap();
    assert_eq!(lent, (1, &message[accepted..accepted + pushed]));
}

#[test]
fn a_consumer_without_permission_gets_no_rendezvous_message() {
    let (mut producer, _, _) = ring();
    assert!(!producer.send_rendezvous(1, &[0; 50_000]).unwrap());
}

#[test]
fn a_withdrawn_message_never_arrives() {
    let (mut producer, mut consumer, _) = open_ring();
    let mut message = bytes(200_000, 2);
    let mut memory = vec![0; 60_000];
    let into = straight(&message, &mut memory);
    assert!(producer.send_rendezvous(1, &message).unwrap());
    assert!(consumer.front().unwrap().is_none());
    let (read, _) = consumer.pull(into).unwrap();
    assert_eq!(into[..read], message[..read]);
    producer.withdraw();
    message.fill(0xa5);
    for _ in 0..3 {
        assert_eq!(consumer.pull(into).unwrap(), (0, false));
        assert!(!consumer.pull_ahead().unwrap());
        assert_eq!(consumer.front().unwrap(), None);
    }
    assert!(!producer.has_rendezvous() && !producer.send_rendezvous(1, &message).unwrap());
}

/// A read that races with a withdrawal counts only if it has read the message's own bytes.
#[test]
fn a_withdrawal_races_with_reads() {
    const BYTES: usize = 150_000;
    for round in 0..300_u32 {
        let (mut producer, mut consumer, _) = open_ring();
        let mut message = vec![0x11_u8; BYTES];
        assert!(producer.send_rendezvous(1, &message).unwrap());
        std::thread::scope(|scope| {
            let reader = scope.spawn(move || {
                let (mut into, mut arrived) = (vec![0; 70_000], 0);
                for _ in 0..50 {
                    if consumer.front().unwrap().is_some() || consumer.rendezvous_tag().is_none() {
                        break;
                    }
                    let (read, _) = consumer.pull(&mut into).unwrap();
                    assert!(into[..read].iter().all(|byte| *byte == 0x11), "other bytes counted");
                    arrived += read;
                }
                arrived
            });
            (0..round * 100).for_each(|_| std::hint::spin_loop());
            producer.withdraw();
            message.fill(0xee);
            assert!(reader.join().unwrap() <= BYTES);
        });
    }
}

#[test]
fn a_wrong_address_breaks_the_link_and_no_more() {
    let announce = |at: usize, bytes: usize, takes: bool| {
        let (_, mut consumer, lies) = if takes { open_ring() } else { ring() };
        let cell = lies.cell(0);
        let source = Source { at, bytes }.encode();
        // SAFETY: a cell has room for it, and no other thread uses this ring.
        unsafe { cell.payload.cast::<[u8; 16]>().write(source) };
        cell.note.store(join(1, 0), Ordering::Relaxed);
        cell.mark.store(join(1, RENDEZVOUS), Ordering::Release);
        let front = consumer.front().map(|front| front.is_none());
        front.and_then(|_| consumer.pull(&mut [0; 100]))
    };
    let here = bytes(100, 0);
    let at = here.as_ptr().expose_provenance();
    assert_eq!(announce(at, 100, true).map(|(read, _)| read), Ok(100));
    assert!(announce(at, 100, false).is_err(), "rendezvous is not permitted");
    for (at, bytes) in [(at, 0), (at, usize::MAX), (usize::MAX - 10, 100), (at, 1 << 62)] {
        assert!(announce(at, bytes, true).is_err(), "{bytes} at {at:x}");
    }
    // Unreadable addresses are refused, like memory that only a device can read.
    assert_eq!(announce(8, 100, true), Ok((0, true)));
    assert_eq!(announce(1 << 55, 100, true), Ok((0, true)));
}

#[test]
fn a_wrong_rendezvous_word_breaks_the_link() {
    let message = bytes(1000, 0);
    for lie in [State::Shut, State::Open(1001), State::Open(17), State::Withdrawn] {
        let (mut producer, consumer, lies) = open_ring();
        assert!(producer.send_rendezvous(1, &message).unwrap());
        assert!(consumer.front().unwrap().is_none());
        lies.rendezvous().store(lie.word(), Ordering::Release);
        assert!(producer.accepted(1000).is_err(), "{lie:?}");
        assert!(producer.accepted(1000).is_err(), "a broken link stays broken");
        if lie != State::Withdrawn {
            assert!(consumer.pull_ahead().is_err(), "{lie:?}");
            assert!(consumer.pull_ahead().is_err(), "a broken link stays broken");
        }
    }
    let (mut producer, _consumer, lies) = open_ring();
    assert!(producer.send_rendezvous(1, &message).unwrap());
    lies.rendezvous().store(State::Open(160).word(), Ordering::Release);
    assert_eq!(producer.accepted(1000), Ok(160));
    lies.rendezvous().store(State::Open(32).word(), Ordering::Release);
    assert!(producer.accepted(840).is_err(), "progress never goes back");
}
