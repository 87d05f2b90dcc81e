//! Order, content, tags, windows and lanes of links. No test here waits for a descriptor.

use std::time::Duration;

use ringfold_harness::Random;
use ringfold_transport::{EXCHANGE_BYTES, Exchanged, Received, Transport};
use ringfold_types::limits::{FRAGMENT_ALIGN, LINK_BYTES_MIN};

use crate::world::{
    Constructor, Incoming, Outgoing, carry, is_message, link, message, pair, until,
};

/// Bytes of the message that `fill` repeats.
pub(crate) const CHUNK_BYTES: usize = 64 * 1024;

/// Sends until the link accepts nothing more, even after many polls of both ends. Returns the
/// accepted sizes. The receiver consumes nothing.
pub(crate) fn fill(
    a: &mut dyn Transport,
    b: &mut dyn Transport,
    lane: usize,
    tag: u32,
    chunk: &[u8],
) -> usize {
    const ABSURD: usize = 256 << 20;
    let (mut total, mut refusals) = (0, 0);
    while refusals < 200 {
        a.poll().unwrap();
        b.poll().unwrap();
        match a.send(link(1, lane), tag, &chunk[total % chunk.len()..]).unwrap() {
            0 => {
                refusals += 1;
                std::thread::sleep(Duration::from_micros(200));
            }
            accepted => {
                refusals = 0;
                total += accepted;
            }
        }
        assert!(total < ABSURD, "no flow control: {total} bytes accepted, none consumed");
    }
    total
}

/// Whether `end` has an unfinished rendezvous message.
fn is_offering(end: &mut dyn Transport) -> bool {
    end.rendezvous().is_some_and(|by| by.is_offering())
}

/// Checks and consumes the `sent` bytes of `fill`, and the rest of the last message, which the
/// sender must complete.
fn drain(
    a: &mut dyn Transport,
    b: &mut dyn Transport,
    lane: usize,
    tag: u32,
    expected: &[u8],
    mut sent: usize,
) {
    let mut arrived = 0;
    let begun = sent + usize::from(is_offering(a));
    let total = begun.next_multiple_of(expected.len());
    until("all that was accepted arrives", || {
        a.poll().unwrap();
        b.poll().unwrap();
        if sent < total {
            sent += a.send(link(1, lane), tag, &expected[sent % expected.len()..]).unwrap();
        }
        while let Some(fragment) = b.readable(link(0, lane)).unwrap() {
            assert_eq!(fragment.tag, tag);
            for byte in fragment.bytes {
                assert_eq!(*byte, expected[arrived % expected.len()], "at {arrived}");
                arrived += 1;
            }
            let lent = fragment.bytes.len();
            b.consume(link(0, lane), lent);
        }
        (arrived >= total && sent == total).then_some(())
    });
    assert_eq!(arrived, total);
}

pub(crate) fn order_content_tags(make: &Constructor) {
    let (mut a, mut b) = pair(make, 1);
    let sizes = (1..=70).chain([127, 128, 129, 1000, 16_384, 100_003, 3_500_001, 1, 16, 17]);
    for (tag, len) in (0..).zip(sizes) {
        let (mut there, mut arrives) =
            (Outgoing::new(link(1, 0), tag, len), Incoming::new(link(0, 0), tag, len));
        carry(&mut *a, &mut *b, &mut there, &mut arrives);
        let tag = u32::MAX - tag;
        let (mut back, mut arrives) =
            (Outgoing::new(link(0, 0), tag, len), Incoming::new(link(1, 0), tag, len));
        carry(&mut *b, &mut *a, &mut back, &mut arrives);
    }
    assert!(a.readable(link(1, 0)).unwrap().is_none());
    assert!(b.readable(link(0, 0)).unwrap().is_none());
}

/// Short messages that are sent ahead of others arrive whole, before them and under their own tags.
pub(crate) fn short_messages_go_ahead(make: &Constructor) {
    let (mut a, mut b) = pair(make, 1);
    for (tag, len) in (0..).step_by(2).zip([1, 16, 17, 1000, 16_384, 64_516, 129_024, 1_000_003]) {
        for lent in [true, false] {
            let mut there = [(tag, 16), (tag + 1, len)];
            let mut there =
                there.each_mut().map(|(tag, len)| Outgoing::new(link(1, 0), *tag, *len));
            let mut head = Incoming::new(link(0, 0), tag, 16);
            let mut body = Incoming::new(link(0, 0), tag + 1, len);
            let mut landed = vec![0; len];
            until("two messages carried from end to end", || {
                a.poll().unwrap();
                b.poll().unwrap();
                let [short, long] = &mut there;
                if !short.is_done() {
                    let rest = &short.bytes[short.accepted..];
                    short.accepted += a.send_ahead(link(1, 0), tag, rest).unwrap();
                }
                if short.is_done() && !long.is_done() {
                    long.offer(&mut *a).unwrap();
                }
                if !head.is_done() {
                    head.take(&mut *b, |lent| lent).unwrap();
                } else if lent {
                    body.take(&mut *b, |lent| lent).unwrap();
                } else if !body.is_done() {
                    let dst = &mut landed[body.arrived..];
                    if let Some(received) = b.recv(link(0, 0), tag + 1, dst).unwrap() {
                        assert_eq!(received.tag, tag + 1);
                        body.arrived += received.bytes;
                    }
                }
                (long.is_done() && body.is_done()).then_some(())
            });
            assert!(lent || is_message(tag + 1, 0, &landed), "content of {}", tag + 1);
        }
    }
}

/// `send` and `recv` complete each exchange, however far it got.
pub(crate) fn exchanges_mix_with_messages(make: &Constructor) {
    let (mut a, mut b) = pair(make, 1);
    let lens = (1..=64).chain([8; 200]).chain([65, 100, 4096, 1, 8]);
    for (tag, len) in (0..).zip(lens) {
        let mut ends = [(&mut a, 1, tag), (&mut b, 0, !tag)].map(|(end, peer, own)| {
            let mut theirs = vec![0xa5; len.max(EXCHANGE_BYTES)];
            let out = Outgoing::new(link(peer, 0), tag, len);
            let back: Vec<u8> = out.bytes.iter().map(|byte| byte ^ own.to_le_bytes()[0]).collect();
            let front = theirs.first_chunk_mut().unwrap();
            let done = end.exchange(link(peer, 0), tag, &back, front, 0);
            if done != Exchanged::Both {
                assert!(theirs.iter().all(|byte| *byte == 0xa5), "received in part");
            }
            let sent = if done == Exchanged::Nothing { 0 } else { len };
            let arrived = if done == Exchanged::Both { len } else { 0 };
            theirs.truncate(len);
            (end, link(peer, 0), back, theirs, sent, arrived)
        });
        until("an exchange", || {
            for (end, link, own, theirs, sent, arrived) in &mut ends {
                end.poll().unwrap();
                if *sent < len {
                    *sent += end.send(*link, tag, &own[*sent..]).unwrap();
                }
                if *arrived < len {
                    let received = end.recv(*link, tag, &mut theirs[*arrived..]).unwrap();
                    *arrived += received.map_or(0, |received| {
                        assert_eq!(received.tag, tag);
                        received.bytes
                    });
                }
            }
            ends.iter().all(|(.., sent, arrived)| (*sent, *arrived) == (len, len)).then_some(())
        });
        let [(.., a_sent, a_got, _, _), (.., b_sent, b_got, _, _)] = &ends;
        assert!(a_got == b_sent && b_got == a_sent, "content of exchange {tag}");
    }
}

/// Bytes of another tag stay in the stream.
pub(crate) fn an_exchange_takes_only_its_tag(make: &Constructor) {
    let (mut a, mut b) = pair(make, 1);
    let (mut foreign, mut arrives) =
        (Outgoing::new(link(1, 0), 7, 8), Incoming::new(link(0, 0), 7, 8));
    until("a foreign message is sent", || {
        a.poll().unwrap();
        foreign.offer(&mut *a).unwrap();
        foreign.is_done().then_some(())
    });
    until("a foreign message arrives", || {
        a.poll().unwrap();
        b.poll().unwrap();
        b.readable(link(0, 0)).unwrap().map(drop)
    });
    let mut theirs = [0; EXCHANGE_BYTES];
    let done = b.exchange(link(0, 0), 8, &[1; 8], &mut theirs, 10);
    assert_ne!(done, Exchanged::Both);
    assert_eq!(theirs, [0; EXCHANGE_BYTES]);
    carry(&mut *a, &mut *b, &mut foreign, &mut arrives);
}

/// Messages of one tag are one stream; their boundaries are not visible to the receiver.
pub(crate) fn equal_tags_concatenate(make: &Constructor) {
    let (mut a, mut b) = pair(make, 1);
    let mut random = Random::seeded();
    let stream = message(9, 60_000);
    let (mut sent, mut arrived, mut part_end) = (0, 0, 0);
    until("a stream in parts", || {
        a.poll().unwrap();
        b.poll().unwrap();
        if sent == part_end {
            part_end = (part_end + 1 + random.below(900)).min(stream.len());
        }
        if sent < part_end {
            sent += a.send(link(1, 0), 9, &stream[sent..part_end]).unwrap();
        }
        if let Some(fragment) = b.readable(link(0, 0)).unwrap() {
            assert!(is_message(9, arrived, fragment.bytes), "content after {arrived} bytes");
            let taken = 1 + random.below(fragment.bytes.len());
            b.consume(link(0, 0), taken);
            arrived += taken;
        }
        (arrived == stream.len()).then_some(())
    });
}

/// The promise counts bytes, not messages, so every split must fit: schedules rely on that.
pub(crate) fn link_bytes_min(make: &Constructor) {
    for cut in [LINK_BYTES_MIN, 4096, 100, 48, 16, 1] {
        let (mut a, mut b) = pair(make, 1);
        // A second round tests the promise from the state that the first one left.
        for round in 0..2 {
            let mut sent = Vec::new();
            let mut left = LINK_BYTES_MIN;
            while left > 0 {
                let tag = u32::try_from(sent.len()).unwrap() + round;
                let mut out = Outgoing::new(link(1, 0), tag, cut.min(left));
                left -= out.bytes.len();
                sent.push(out.bytes.len());
                until("LINK_BYTES_MIN is accepted before anything is consumed", || {
                    a.poll().unwrap();
                    b.poll().unwrap();
                    out.offer(&mut *a).unwrap();
                    out.is_done().then_some(())
                });
            }
            for (tag, len) in (round..).zip(sent) {
                let mut arrives = Incoming::new(link(0, 0), tag, len);
                until("what was accepted arrives", || {
                    a.poll().unwrap();
                    b.poll().unwrap();
                    arrives.take(&mut *b, |lent| lent).unwrap();
                    arrives.is_done().then_some(())
                });
            }
        }
    }
}

pub(crate) fn flow_control(make: &Constructor) {
    let (mut a, mut b) = pair(make, 1);
    for tag in 0..3 {
        let chunk = message(tag, CHUNK_BYTES);
        let total = fill(&mut *a, &mut *b, 0, tag, &chunk);
        // A rendezvous message is accepted as it is read; a layer may have sent some bytes before
        // it.
        assert!(total >= LINK_BYTES_MIN || is_offering(&mut *a), "{total}");
        drain(&mut *a, &mut *b, 0, tag, &chunk, total);
    }
}

pub(crate) fn readable_is_stable(make: &Constructor) {
    let (mut a, mut b) = pair(make, 1);
    for (tag, len) in [(1, 5), (2, 48), (3, 40_000)] {
        let mut out = Outgoing::new(link(1, 0), tag, len);
        let mut arrived = 0;
        while arrived < len {
            let first = until("something is readable", || {
                a.poll().unwrap();
                b.poll().unwrap();
                if !out.is_done() {
                    out.offer(&mut *a).unwrap();
                }
                b.readable(link(0, 0)).unwrap().map(|fragment| fragment.bytes.to_vec())
            });
            for _ in 0..3 {
                b.poll().unwrap();
                let again = b.readable(link(0, 0)).unwrap().expect("still readable");
                assert_eq!(again.tag, tag);
                assert!(again.bytes.starts_with(&first), "readable took something back");
            }
            // In parts: the rest must keep its place in the stream.
            let part = first.len().div_ceil(2);
            b.consume(link(0, 0), part);
            arrived += part;
            if let Some(rest) = b.readable(link(0, 0)).unwrap() {
                assert!(is_message(tag, arrived, rest.bytes));
            }
            b.consume(link(0, 0), 0);
        }
    }
}

pub(crate) fn recv_moves_only_its_tag(make: &Constructor) {
    let (mut a, mut b) = pair(make, 1);
    for (tag, len) in [(10, 8), (11, 48), (12, 300), (13, 70_000)] {
        let mut out = Outgoing::new(link(1, 0), tag, len);
        let mut dst = vec![0xee; len];
        let mut foreign = until("a fragment", || {
            a.poll().unwrap();
            b.poll().unwrap();
            if !out.is_done() {
                out.offer(&mut *a).unwrap();
            }
            b.recv(link(0, 0), tag + 1000, &mut dst).unwrap()
        });
        for _ in 0..2 {
            assert_eq!(foreign, Received { tag, bytes: 0 });
            assert!(dst.iter().all(|byte| *byte == 0xee), "a foreign message's bytes were moved");
            foreign = b.recv(link(0, 0), tag + 1000, &mut dst).unwrap().expect("still there");
        }
        let mut arrived = 0;
        until("the message", || {
            a.poll().unwrap();
            b.poll().unwrap();
            if !out.is_done() {
                out.offer(&mut *a).unwrap();
            }
            // A short destination must not lose the rest of the arrived bytes.
            let end = len.min(arrived + 7 * FRAGMENT_ALIGN);
            if let Some(received) = b.recv(link(0, 0), tag, &mut dst[arrived..end]).unwrap() {
                let Received { tag: found, bytes } = received;
                assert_eq!(found, tag);
                assert!(bytes > 0 && bytes <= end - arrived, "{bytes} bytes");
                arrived += bytes;
            }
            (arrived == len).then_some(())
        });
        assert!(is_message(tag, 0, &dst));
        assert!(b.recv(link(0, 0), tag, &mut [0; 4]).unwrap().is_none());
    }
}

pub(crate) fn lanes_are_independent(make: &Constructor) {
    const LANES: usize = 3;
    let (mut a, mut b) = pair(make, LANES);
    let chunk = message(77, CHUNK_BYTES);
    let filled = fill(&mut *a, &mut *b, 0, 77, &chunk);
    for lane in (1..LANES).chain(1..LANES) {
        let tag = u32::try_from(lane).unwrap();
        let mut out = Outgoing::new(link(1, lane), tag, 200_000);
        let mut arrives = Incoming::new(link(0, lane), tag, 200_000);
        carry(&mut *a, &mut *b, &mut out, &mut arrives);
        // And in the other direction, in which lane 0 is idle.
        let mut out = Outgoing::new(link(0, lane), tag, 33);
        let mut arrives = Incoming::new(link(1, lane), tag, 33);
        carry(&mut *b, &mut *a, &mut out, &mut arrives);
    }
    drain(&mut *a, &mut *b, 0, 77, &chunk, filled);
}

/// Every rank sends to every rank on every lane, each in its own thread.
pub(crate) fn many_peers(make: &Constructor) {
    const RANKS: usize = 6;
    const LANES: usize = 2;
    const LENS: [usize; 5] = [1, 60, 3000, 50_001, 8];
    let tag =
        |from: usize, lane: usize, at: usize| u32::try_from(from * 1000 + lane * 100 + at).unwrap();
    let done = std::sync::Barrier::new(RANKS);
    std::thread::scope(|scope| {
        for (rank, mut end) in make(RANKS, LANES).into_iter().enumerate() {
            let done = &done;
            scope.spawn(move || {
                let links: Vec<_> = (0..RANKS)
                    .filter(|peer| *peer != rank)
                    .flat_map(|peer| (0..LANES).map(move |lane| (peer, lane)))
                    .collect();
                for (at, len) in LENS.into_iter().enumerate() {
                    let mut out: Vec<_> = links
                        .iter()
                        .map(|&(peer, lane)| {
                            Outgoing::new(link(peer, lane), tag(rank, lane, at), len)
                        })
                        .collect();
                    let mut into: Vec<_> = links
                        .iter()
                        .map(|&(peer, lane)| {
                            Incoming::new(link(peer, lane), tag(peer, lane, at), len)
                        })
                        .collect();
                    until("everyone to everyone", || {
                        end.poll().unwrap();
                        for out in out.iter_mut().filter(|out| !out.is_done()) {
                            out.offer(&mut *end).unwrap();
                        }
                        for into in into.iter_mut().filter(|into| !into.is_done()) {
                            into.take(&mut *end, |lent| lent).unwrap();
                        }
                        let sent = out.iter().all(Outgoing::is_done);
                        (sent && into.iter().all(Incoming::is_done)).then_some(())
                    });
                }
                until("flushed", || {
                    end.poll().unwrap();
                    end.is_flushed().then_some(())
                });
                // A rank must not leave while another may need its polls.
                done.wait();
            });
        }
    });
}
