//! Offers: read in parts of all sizes, refused, taken back at any time, and lied about. The rings
//! are on the heap, and the memory that is read is this process's own.

use std::sync::atomic::Ordering;

use super::{Halves, bytes, ring};
use crate::shm::attach::Process;
use crate::shm::ring::Consumer;
use crate::shm::ring::memory::{CELLS, join};
use crate::shm::ring::offer::{OFFER, Offer, State};
use crate::shm::slot::Token;

/// Both halves of a ring whose consumer takes offers, and a third view that lies.
fn open_ring() -> Halves {
    let (producer, mut consumer, lies) = ring();
    let value = [0x5e; 16];
    // As long as the test lives.
    let at = Box::leak(Box::new(value)).as_ptr().expose_provenance();
    consumer.take_offers(Process::own(Token { at, value }));
    (producer, consumer, lies)
}

/// A process that is not the one that was met.
fn stranger() -> Process {
    let token = Box::leak(Box::new([0; 16])).as_ptr().expose_provenance();
    Process::own(Token { at: token, value: [1; 16] })
}

#[test]
fn an_offer_is_read_in_parts_of_all_sizes() {
    for len in [1, 15, 16, 17, 48, 5000, 65_536, 65_537, 300_001] {
        for room in [1, 7, 16, 100, 16_384, 20_001, 70_000, 400_000] {
            if len / room > 2000 {
                continue;
            }
            let (mut producer, mut consumer, _) = open_ring();
            let message = bytes(len, room);
            assert!(producer.offer(3, &message).unwrap());
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
                    assert_eq!(consumer.offered(), Some(3));
                    let (taken, _) = consumer.pull(&mut into).unwrap();
                    arrived.extend_from_slice(&into[..taken]);
                }
                let more = producer.accepted(len - accepted).unwrap();
                accepted += more;
                assert!(accepted == len || accepted.is_multiple_of(16), "{accepted} of {len}");
                assert!(accepted >= arrived.len() / 16 * 16, "what has arrived was read");
            }
            assert_eq!(arrived, message);
            assert!(accepted == len && !producer.is_offering() && consumer.offered().is_none());
            // The stream goes on.
            assert!(producer.push_short(4, b"then"));
            assert_eq!(consumer.front().unwrap(), Some((4, &b"then"[..])));
        }
    }
}

/// A link may learn more than once that it takes the peer's offers.
#[test]
fn an_offer_under_way_is_not_begun_anew() {
    let (mut producer, mut consumer, _) = open_ring();
    let again = |consumer: &mut Consumer<_>| {
        let peer = consumer.pull.peer.expect("it takes offers");
        consumer.take_offers(peer);
    };
    let message = bytes(200_000, 3);
    assert!(producer.offer(1, &message).unwrap());
    assert!(consumer.front().unwrap().is_none());
    let mut into = vec![0; message.len()];
    let (read, _) = consumer.pull(&mut into[..60_000]).unwrap();
    again(&mut consumer);
    assert_eq!(producer.accepted(message.len()).unwrap(), read);
    let (rest, _) = consumer.pull(&mut into[read..]).unwrap();
    assert_eq!(read + rest, message.len());
    again(&mut consumer);
    assert_eq!(producer.accepted(message.len() - read).unwrap(), rest);
    assert!(into == message && !producer.is_offering());
    assert!(producer.offer(2, &message).unwrap());
    producer.withdraw();
    again(&mut consumer);
    assert!(consumer.front().unwrap().is_none());
    assert_eq!(consumer.pull(&mut into).unwrap().0, 0, "what is withdrawn stays withdrawn");
}

#[test]
fn offers_and_pieces_follow_each_other_for_many_laps() {
    let (mut producer, mut consumer, _) = open_ring();
    for round in 0..10 * CELLS as usize {
        let message = bytes(40_000 + round, round);
        if round % 3 == 0 {
            assert_eq!(producer.push(1, &message[..100]).unwrap(), 100);
            assert_eq!(consumer.front().unwrap().unwrap().1, &message[..100]);
            consumer.consume(100);
        }
        assert!(producer.offer(2, &message).unwrap(), "cells come back");
        let mut into = vec![0; message.len()];
        assert!(consumer.front().unwrap().is_none());
        assert_eq!(consumer.pull(&mut into).unwrap().0, message.len());
        assert_eq!(into, message);
        assert_eq!(producer.accepted(message.len()).unwrap(), message.len());
    }
}

#[test]
fn while_something_is_offered_nothing_short_is_sent() {
    let (mut producer, consumer, _) = open_ring();
    let message = bytes(50_000, 1);
    assert!(producer.offer(1, &message).unwrap());
    assert!(!producer.push_short(1, &message[..8]), "it might be the offer's end");
    assert_eq!(producer.accepted(message.len()).unwrap(), 0);
    assert!(consumer.front().unwrap().is_none());
    consumer.pull_ahead().unwrap();
    // A caller that offers less is told of no more.
    assert_eq!(producer.accepted(32).unwrap(), 32);
    assert_eq!(producer.accepted(message.len() - 32).unwrap(), message.len() - 32);
}

#[test]
fn who_cannot_read_refuses_and_the_rest_goes_by_the_ring() {
    let (mut producer, mut consumer, _) = open_ring();
    let message = bytes(100_000, 5);
    assert!(producer.offer(1, &message).unwrap());
    let mut into = vec![0; 30_000];
    assert!(consumer.front().unwrap().is_none());
    let (read, _) = consumer.pull(&mut into).unwrap();
    assert_eq!(into[..read], message[..read]);
    consumer.pull.peer = Some(stranger());
    let (none, is_told) = consumer.pull(&mut into).unwrap();
    assert!(none == 0 && is_told && consumer.offered().is_none());
    let accepted = producer.accepted(message.len()).unwrap();
    assert!(accepted == read && !producer.is_offering());
    assert!(!producer.offer(1, &message[accepted..]).unwrap(), "never again");
    let pushed = producer.push(1, &message[accepted..]).unwrap();
    let lent = consumer.front().unwrap().unwrap();
    assert_eq!(lent, (1, &message[accepted..accepted + pushed]));
}

#[test]
fn who_takes_no_offers_gets_none() {
    let (mut producer, _, _) = ring();
    assert!(!producer.offer(1, &[0; 50_000]).unwrap());
}

#[test]
fn what_is_taken_back_never_arrives() {
    let (mut producer, mut consumer, _) = open_ring();
    let mut message = bytes(200_000, 2);
    let mut into = vec![0; 60_000];
    assert!(producer.offer(1, &message).unwrap());
    assert!(consumer.front().unwrap().is_none());
    let (read, _) = consumer.pull(&mut into).unwrap();
    assert_eq!(into[..read], message[..read]);
    producer.withdraw();
    message.fill(0xa5);
    for _ in 0..3 {
        assert_eq!(consumer.pull(&mut into).unwrap(), (0, false));
        assert!(!consumer.pull_ahead().unwrap());
        assert_eq!(consumer.front().unwrap(), None);
    }
    assert!(!producer.is_offering() && !producer.offer(1, &message).unwrap());
}

/// However a reader and one who takes back meet: what counts is what was offered.
#[test]
fn taking_back_races_with_reading() {
    const BYTES: usize = 150_000;
    for round in 0..300_u32 {
        let (mut producer, mut consumer, _) = open_ring();
        let mut message = vec![0x11_u8; BYTES];
        assert!(producer.offer(1, &message).unwrap());
        std::thread::scope(|scope| {
            let reader = scope.spawn(move || {
                let (mut into, mut arrived) = (vec![0; 70_000], 0);
                for _ in 0..50 {
                    if consumer.front().unwrap().is_some() || consumer.offered().is_none() {
                        break;
                    }
                    let (read, _) = consumer.pull(&mut into).unwrap();
                    assert!(into[..read].iter().all(|byte| *byte == 0x11), "rubbish counted");
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
fn lies_in_an_offer_cost_the_link_and_no_more() {
    let announce = |at: usize, bytes: usize, takes: bool| {
        let (_, mut consumer, lies) = if takes { open_ring() } else { ring() };
        let cell = lies.cell(0);
        let offer = Offer { at, bytes }.encode();
        // SAFETY: a cell has room for it, and nobody else uses this ring.
        unsafe { cell.payload.cast::<[u8; 16]>().write(offer) };
        cell.note.store(join(1, 0), Ordering::Relaxed);
        cell.mark.store(join(1, OFFER), Ordering::Release);
        let front = consumer.front().map(|front| front.is_none());
        front.and_then(|_| consumer.pull(&mut [0; 100]))
    };
    let here = bytes(100, 0);
    let at = here.as_ptr().expose_provenance();
    assert_eq!(announce(at, 100, true).map(|(read, _)| read), Ok(100));
    assert!(announce(at, 100, false).is_err(), "nobody asked for offers");
    for (at, bytes) in [(at, 0), (at, usize::MAX), (usize::MAX - 10, 100), (at, 1 << 62)] {
        assert!(announce(at, bytes, true).is_err(), "{bytes} at {at:x}");
    }
    // Nothing can be read there: refused, as memory would be that only a device can read.
    assert_eq!(announce(8, 100, true), Ok((0, true)));
    assert_eq!(announce(1 << 55, 100, true), Ok((0, true)));
}

#[test]
fn lies_about_how_far_an_offer_was_read_break_the_link() {
    let message = bytes(1000, 0);
    for lie in [State::Shut, State::Open(1001), State::Open(17), State::Withdrawn] {
        let (mut producer, consumer, lies) = open_ring();
        assert!(producer.offer(1, &message).unwrap());
        assert!(consumer.front().unwrap().is_none());
        lies.offer().store(lie.word(), Ordering::Release);
        assert!(producer.accepted(1000).is_err(), "{lie:?}");
        assert!(producer.accepted(1000).is_err(), "a broken link stays broken");
        if lie != State::Withdrawn {
            assert!(consumer.pull_ahead().is_err(), "{lie:?}");
            assert!(consumer.pull_ahead().is_err(), "a broken link stays broken");
        }
    }
    let (mut producer, _consumer, lies) = open_ring();
    assert!(producer.offer(1, &message).unwrap());
    lies.offer().store(State::Open(160).word(), Ordering::Release);
    assert_eq!(producer.accepted(1000), Ok(160));
    lies.offer().store(State::Open(32).word(), Ordering::Release);
    assert!(producer.accepted(840).is_err(), "what was read is read");
}
