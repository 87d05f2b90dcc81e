//! The end of a link: the delivery of bytes that were sent before it, and the waits at drop.

use std::time::{Duration, Instant};

use ringfold_transport::LinkFault;
use ringfold_types::limits::{HANDSHAKE_MS, LINK_BYTES_MIN};

use crate::bodies::{CHUNK_BYTES, fill};
use crate::world::{Constructor, Incoming, Outgoing, carry, link, message, pair, until};

/// The bytes that a peer sent before its end arrive. Ranks that expect nothing more of it are not
/// disturbed.
pub(crate) fn closed_after_the_rest(make: &Constructor) {
    let mut ends = make(3, 1);
    let (mut c, mut b, mut a) = (ends.pop().unwrap(), ends.pop().unwrap(), ends.pop().unwrap());
    let lens = [5, 3000, 48];
    for (tag, len) in (0..).zip(lens) {
        let mut out = Outgoing::new(link(1, 0), tag, len);
        until("sent", || {
            a.poll().unwrap();
            b.poll().unwrap();
            c.poll().unwrap();
            out.offer(&mut *a).unwrap();
            out.is_done().then_some(())
        });
    }
    until("flushed", || {
        a.poll().unwrap();
        b.poll().unwrap();
        a.is_flushed().then_some(())
    });
    drop(a);
    for (tag, len) in (0..).zip(lens) {
        let mut arrives = Incoming::new(link(0, 0), tag, len);
        until("the rest arrives", || {
            b.poll().unwrap();
            arrives.take(&mut *b, |lent| lent.min(16)).unwrap();
            arrives.is_done().then_some(())
        });
    }
    for _ in 0..2 {
        let error = until("the end is noticed", || {
            b.poll().unwrap();
            b.readable(link(0, 0)).map(|fragment| assert!(fragment.is_none())).err()
        });
        assert!(matches!(error.fault, LinkFault::Closed), "{error}");
        assert_eq!(error.link.peer, link(0, 0).peer);
    }
    let error = until("sending fails", || {
        b.poll().unwrap();
        b.send(link(0, 0), 1, &[1; 16]).err()
    });
    assert!(matches!(error.fault, LinkFault::Closed | LinkFault::Io(_)), "{error}");
    // The other ranks continue.
    let (mut out, mut arrives) =
        (Outgoing::new(link(2, 0), 5, 5000), Incoming::new(link(1, 0), 5, 5000));
    carry(&mut *b, &mut *c, &mut out, &mut arrives);
}

/// Once `is_flushed` is true, delivery does not depend on the sender.
pub(crate) fn flushed_bytes_survive_their_sender(make: &Constructor) {
    for len in [1, 48, 49, LINK_BYTES_MIN] {
        let (mut a, mut b) = pair(make, 1);
        let mut out = Outgoing::new(link(1, 0), 3, len);
        until("accepted and flushed", || {
            a.poll().unwrap();
            b.poll().unwrap();
            if !out.is_done() {
                out.offer(&mut *a).unwrap();
            }
            (out.is_done() && a.is_flushed()).then_some(())
        });
        drop(a);
        let mut arrives = Incoming::new(link(0, 0), 3, len);
        until("all of it arrives", || {
            b.poll().unwrap();
            arrives.take(&mut *b, |lent| lent).unwrap();
            arrives.is_done().then_some(())
        });
    }
}

/// A sender that leaves loses no bytes that a slow receiver has not read yet, even if that receiver
/// sends something meanwhile.
pub(crate) fn accepted_bytes_survive_a_late_answer(make: &Constructor) {
    let (mut a, mut b) = pair(make, 1);
    let (mut first, mut arrives) =
        (Outgoing::new(link(1, 0), 1, 8), Incoming::new(link(0, 0), 1, 8));
    carry(&mut *a, &mut *b, &mut first, &mut arrives);
    let mut out = Outgoing::new(link(1, 0), 2, 32 * 1024 * 1024);
    let mut vain = 0;
    while vain < 100 && !out.is_done() {
        a.poll().unwrap();
        vain = if out.offer(&mut *a).unwrap() > 0 { 0 } else { vain + 1 };
    }
    assert!(!out.is_done(), "a link has no end");
    std::thread::scope(|scope| {
        scope.spawn(move || drop(a));
        for _ in 0..20 {
            b.poll().unwrap();
            // The peer will not receive it.
            b.send(link(0, 0), 3, &[1; 16]).ok();
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut arrives = Incoming::new(link(0, 0), 2, out.accepted);
        until("what was accepted arrives", || {
            b.poll().unwrap();
            arrives.take(&mut *b, |lent| lent).unwrap();
            arrives.is_done().then_some(())
        });
    });
}

/// A sender with bytes for a dead peer does not wait for their delivery.
pub(crate) fn bytes_for_a_dead_peer_delay_no_drop(make: &Constructor) {
    let (mut a, mut b) = pair(make, 1);
    fill(&mut *a, &mut *b, 0, 1, &message(1, CHUNK_BYTES));
    drop(b);
    let began = Instant::now();
    drop(a);
    let took = began.elapsed();
    assert!(took < Duration::from_millis(HANDSHAKE_MS), "{took:?}");
}

/// After `withdraw` a sender does not wait for a peer that reads nothing.
pub(crate) fn a_withdrawn_endpoint_drops_at_once(make: &Constructor) {
    let (mut a, mut b) = pair(make, 1);
    let (mut first, mut arrives) =
        (Outgoing::new(link(1, 0), 1, 8), Incoming::new(link(0, 0), 1, 8));
    carry(&mut *a, &mut *b, &mut first, &mut arrives);
    // Short messages, of which the transport holds some itself.
    fill(&mut *a, &mut *b, 0, 2, &message(2, 256));
    a.withdraw();
    let began = Instant::now();
    drop(a);
    let took = began.elapsed();
    assert!(took < Duration::from_millis(HANDSHAKE_MS), "{took:?}");
}
