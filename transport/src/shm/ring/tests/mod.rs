//! A ring on the heap: its halves step by step, wrong words of the other half, and two threads.

#[cfg(not(miri))]
mod rendezvous;

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ringfold_types::limits::LINK_BYTES_MIN;

use super::memory::{CELLS, DATA_BYTES, INLINE_BYTES, Owner, PIECE_BYTES, join};
use super::{Broken, Consumer, Producer, RING_BYTES, Ring};

struct Heap(NonNull<u8>);

const LAYOUT: Layout = match Layout::from_size_align(RING_BYTES, 4096) {
    Ok(layout) => layout,
    Err(_) => unreachable!(),
};

impl Heap {
    fn new() -> Arc<Self> {
        // SAFETY: the size is not zero.
        let base = unsafe { alloc_zeroed(LAYOUT) };
        Arc::new(Self(NonNull::new(base).unwrap_or_else(|| handle_alloc_error(LAYOUT))))
    }
}

impl Drop for Heap {
    fn drop(&mut self) {
        // SAFETY: `new` has allocated it with this layout, and every ring over it holds an `Arc`.
        unsafe { dealloc(self.0.as_ptr(), LAYOUT) }
    }
}

impl Owner for Arc<Heap> {
    fn make(&self, _at: NonNull<u8>, _bytes: usize) -> std::io::Result<()> {
        Ok(())
    }
}

// SAFETY: only an address; the rings order the accesses to its memory.
unsafe impl Send for Heap {}
// SAFETY: as above.
unsafe impl Sync for Heap {}

type Halves = (Producer<Arc<Heap>>, Consumer<Arc<Heap>>, Ring<Arc<Heap>>);

/// Both halves of a ring, and a third view that writes wrong words.
fn ring() -> Halves {
    let heap = Heap::new();
    // SAFETY: the heap is zeroed, aligned and as long as a ring, and lives as long as its `Arc`s.
    // The third view is only used for its atomics.
    let view = || unsafe { Ring::new(heap.0, Arc::clone(&heap)) };
    (Producer::new(view()), Consumer::new(view()), view())
}

fn bytes(len: usize, from: usize) -> Vec<u8> {
    (from..from + len).map(|at| (at * 31 % 251).to_le_bytes()[0]).collect()
}

fn take(consumer: &mut Consumer<Arc<Heap>>, len: usize) -> Vec<u8> {
    let lent = consumer.front().unwrap().expect("something is announced").1[..len].to_vec();
    consumer.consume(len);
    lent
}

#[test]
fn messages_pass_in_order_for_many_laps() {
    let (mut producer, mut consumer, _) = ring();
    let lens = [1, 8, INLINE_BYTES, INLINE_BYTES + 1, 64, 65, 1000, 16_384, 16_385, 70_000];
    for round in 0..200 {
        for (tag, len) in (0..).zip(lens) {
            let message = bytes(len, round);
            let mut sent = 0;
            while sent < len {
                let pushed = producer.push(tag, &message[sent..]).unwrap();
                assert!(pushed > 0 && pushed <= PIECE_BYTES as usize);
                let (found, lent) = consumer.front().unwrap().unwrap();
                assert_eq!((found, lent), (tag, &message[sent..sent + pushed]));
                // Consumed in two parts.
                consumer.consume(pushed / 2);
                assert_eq!(take(&mut consumer, pushed - pushed / 2).len(), pushed - pushed / 2);
                sent += pushed;
            }
            assert!(consumer.front().unwrap().is_none());
        }
    }
}

#[test]
fn a_full_window_takes_nothing_and_a_drained_one_takes_again() {
    for len in [1, INLINE_BYTES, 100, 5000, 300_000] {
        let (mut producer, mut consumer, _) = ring();
        let message = bytes(len, 0);
        for _ in 0..50 {
            let mut pushes = Vec::new();
            loop {
                match producer.push(7, &message).unwrap() {
                    0 => break,
                    pushed => pushes.push(pushed),
                }
            }
            assert!(pushes.iter().sum::<usize>() >= LINK_BYTES_MIN, "{len}: {pushes:?}");
            for pushed in pushes {
                producer.flush().unwrap();
                assert_eq!(take(&mut consumer, pushed), message[..pushed]);
            }
            assert!(producer.is_flushed());
            assert!(consumer.front().unwrap().is_none());
        }
    }
}

/// The consumer returns credit late, but a drained ring has room for any message.
#[test]
fn a_drained_ring_is_never_full() {
    let (mut producer, mut consumer, _) = ring();
    for round in 0..20_000 {
        let len = [1, 49, 16_384, 3000, 12_345, 63][round % 6] + round % 7;
        let pushed = producer.push(0, &bytes(len, 0)).unwrap();
        assert!(pushed > 0, "round {round}");
        assert!(producer.is_flushed());
        take(&mut consumer, pushed);
    }
}

#[test]
fn wrong_cells_break_the_link() {
    let announce = |bytes: u32, place: u32| {
        let (_, consumer, lies) = ring();
        lies.cell(0).note.store(join(1, place), Ordering::Relaxed);
        lies.cell(0).mark.store(join(1, bytes), Ordering::Release);
        consumer.front().map(|front| front.map(|(_, lent)| lent.len()))
    };
    assert_eq!(announce(8, u32::MAX), Ok(Some(8)), "place has no meaning in a cell");
    assert_eq!(announce(64, DATA_BYTES - 64), Ok(Some(64)));
    for (bytes, place) in [
        (0, 0),
        (65, DATA_BYTES - 64),
        (64, DATA_BYTES),
        (64, u32::MAX - 63),
        (64, 32),
        (PIECE_BYTES + 1, 0),
        (u32::MAX, 0),
    ] {
        assert!(announce(bytes, place).is_err(), "{bytes} at {place}");
    }
    let (_, consumer, lies) = ring();
    lies.cell(0).mark.store(join(2, 8), Ordering::Release);
    assert!(consumer.front().is_err());
    lies.cell(0).mark.store(join(1, 8), Ordering::Release);
    assert!(consumer.front().is_err(), "a broken link stays broken");
}

/// An announcement is not read again after its check, so a producer cannot change it.
#[test]
fn an_announcement_is_read_once() {
    let (mut producer, mut consumer, lies) = ring();
    producer.push(5, &[1; 20]).unwrap();
    assert_eq!(consumer.front().unwrap().unwrap().1.len(), 20);
    lies.cell(0).mark.store(join(1, u32::MAX), Ordering::Release);
    lies.cell(0).note.store(join(6, u32::MAX), Ordering::Release);
    assert_eq!(consumer.front().unwrap(), Some((5, &[1; 20][..])));
    consumer.consume(20);
}

#[test]
fn wrong_credit_breaks_the_link() {
    for credit in [CELLS + 1, u32::MAX, 1 << 31] {
        let (mut producer, _consumer, lies) = ring();
        lies.credit().store(credit, Ordering::Release);
        let outcome = (0..2 * CELLS).try_for_each(|_| producer.push(1, &[0; 1000]).map(drop));
        assert!(outcome.is_err(), "credit {credit}");
        assert!(producer.push(1, &[0; 8]).is_err(), "a broken link stays broken");
    }
}

#[test]
#[should_panic(expected = "consumed 9 bytes of 8")]
fn consuming_more_than_was_lent_panics() {
    let (mut producer, mut consumer, _) = ring();
    producer.push(0, &[0; 8]).unwrap();
    assert!(consumer.front().unwrap().is_some());
    consumer.consume(9);
}

#[test]
fn two_threads() {
    const MESSAGES: usize = 20_000;
    let (mut producer, mut consumer, _) = ring();
    let len = |at: usize| [3, 48, 49, 700, 20_000][at * 7 % 5] + at % 11;
    std::thread::scope(|scope| {
        scope.spawn(move || {
            for at in 0..MESSAGES {
                let message = bytes(len(at), at);
                let mut sent = 0;
                while sent < message.len() {
                    sent += producer.push(1, &message[sent..]).unwrap();
                    std::hint::spin_loop();
                }
            }
            while !producer.is_flushed() {
                producer.flush().unwrap();
            }
        });
        for at in 0..MESSAGES {
            let message = bytes(len(at), at);
            let mut arrived = 0;
            while arrived < message.len() {
                let Some((_, lent)) = consumer.front().unwrap() else {
                    std::thread::yield_now();
                    continue;
                };
                let lent = lent.len();
                assert_eq!(take(&mut consumer, lent), message[arrived..arrived + lent]);
                arrived += lent;
            }
        }
    });
}

#[test]
fn only_a_whole_short_message_of_its_tag_is_taken() {
    let (mut producer, mut consumer, _) = ring();
    let mut into = [0; 8];
    assert!(!consumer.take_short(1, &mut into, 3), "nothing is announced");
    assert!(producer.push_short(1, &bytes(8, 0)));
    assert!(!consumer.take_short(2, &mut into, 3), "another tag");
    assert!(!consumer.take_short(1, &mut into[..7], 3), "a shorter message");
    assert!(!consumer.take_short(1, &mut [0; 9], 3), "a longer message");
    assert!(!consumer.take_short(1, &mut [0; INLINE_BYTES + 1], 3), "beyond a cell");
    assert_eq!(into, [0; 8]);
    // `front` and failed attempts leave the message there. A partly consumed message is not taken.
    assert_eq!(consumer.front().unwrap().unwrap().1.len(), 8);
    assert!(consumer.take_short(1, &mut into, 0));
    assert_eq!(into[..], bytes(8, 0));
    assert!(consumer.front().unwrap().is_none());
    assert!(producer.push_short(1, &bytes(8, 8)));
    assert_eq!(take(&mut consumer, 3), bytes(3, 8));
    assert!(!consumer.take_short(1, &mut into, 3), "its beginning is gone");
    assert_eq!(take(&mut consumer, 5), bytes(5, 11));
}

#[test]
fn taking_gives_credit_as_consuming_does() {
    let (mut producer, mut consumer, _) = ring();
    for number in 0..10 * CELLS {
        let sent = bytes(1 + number as usize % INLINE_BYTES, number as usize);
        assert!(producer.push(number, &sent).unwrap() == sent.len());
        let mut into = vec![0; sent.len()];
        assert!(consumer.take_short(number, &mut into, 0));
        assert_eq!(into, sent);
    }
}

/// An owner with pages for the head of a ring and for some of its data.
struct Poor {
    _heap: Arc<Heap>,
    left: AtomicUsize,
}

impl Owner for Arc<Poor> {
    fn make(&self, _at: NonNull<u8>, bytes: usize) -> std::io::Result<()> {
        let take = |left: usize| left.checked_sub(bytes);
        let taken = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
        taken.map(drop).map_err(|_| std::io::ErrorKind::OutOfMemory.into())
    }
}

#[test]
fn lack_of_memory_is_an_error() {
    let heap = Heap::new();
    let (base, left) = (heap.0, AtomicUsize::new(32 * 1024));
    let poor = Arc::new(Poor { _heap: heap, left });
    // SAFETY: as in `ring`.
    let mut producer = Producer::new(unsafe { Ring::new(base, poor) });
    let mut sent = 0;
    let broken = loop {
        match producer.push(1, &[7; 1000]) {
            Ok(pushed) => {
                assert!(pushed > 0, "a full ring after {sent} bytes");
                sent += pushed;
            }
            Err(broken) => break broken,
        }
    };
    assert_eq!(broken, Broken::Memory);
    assert!((15_000..=32 * 1024).contains(&sent), "{sent}");
    assert_eq!(producer.push(1, &[7; 8]), Err(Broken::Memory), "the link stays broken");
}
