//! The readers of everything that a peer writes, without that peer and without a device, for
//! fuzzing. None of them may panic, or read beyond its input.

use std::io;

use ringfold_types::Rank;
use ringfold_types::limits::RDMA_RING_BYTES;

use super::message::{self, Context, Grant, Message};
use super::ring::inbound::Inbound;
use super::ring::layout::Immediate;
use super::ring::rtr::{self, Rtr};
use super::sys::Inbox;
use crate::proof::JobKey;

/// Bytes of a message.
pub const MESSAGE_BYTES: usize = message::MESSAGE_BYTES;

/// Bytes of a ready-to-receive message.
pub const INVITATION_BYTES: usize = rtr::SLOT_BYTES;

/// Bytes that `take_all` opens to the peer.
const OPEN_BYTES: usize = 4096;
/// The tag of these bytes.
const TAG: u32 = 7;

/// Reads a message after giving it a valid proof. Returns whether it is one. A message is written
/// and read again, and a fragment is stored in a ring.
///
/// # Errors
/// There is no memory for a ring.
///
/// # Panics
/// The message changed when it was written and read again.
pub fn message(mut bytes: [u8; MESSAGE_BYTES]) -> io::Result<bool> {
    let key = JobKey::new([0; 32]);
    let context = Context { key: &key, from: Rank(0), to: Rank(1), count: 0 };
    context.prove(&mut bytes);
    let Ok(message) = Message::decode(&bytes, context) else { return Ok(false) };
    let again = Message::decode(&message.encode(context), context);
    assert_eq!(again.as_ref(), Ok(&message));
    if let Message::TcpFragment(fragment) = message {
        let mut inbound = inbound()?;
        inbound.store(fragment.at, &vec![1; fragment.bytes]);
    }
    Ok(true)
}

/// Reads a ready-to-receive message, and again what it writes. Returns the distance of byte `at` of
/// a stream from its first byte, if the message covers it.
///
/// # Panics
/// The message changed when it was written and read again.
#[must_use]
pub fn invitation(bytes: &[u8; INVITATION_BYTES], at: u64) -> Option<u64> {
    let rtr = Rtr::decode(bytes);
    assert_eq!(Rtr::decode(&rtr.encode()), rtr);
    rtr.reaches(at)
}

/// Takes the fragments that the immediates in `numbers` announce in `ring`, as a receiver does: up
/// to `step` bytes after each, with credit. Under one tag fragments may be written directly, too.
/// Returns the number of bytes.
///
/// # Errors
/// There is no memory for a ring.
pub fn take_all(ring: &[u8], numbers: &[u32], step: usize) -> io::Result<usize> {
    let mut inbound = inbound()?;
    inbound.store(0, &ring[..ring.len().min(RDMA_RING_BYTES)]);
    let place = vec![0_u8; OPEN_BYTES];
    let to = Grant { address: place.as_ptr().addr() as u64, ..Grant::default() };
    inbound.make_rtr(TAG, (0, OPEN_BYTES), to, 0);
    let mut taken = 0;
    for number in numbers {
        let arrived = match Immediate::decode(*number) {
            Immediate::Fragment { sequence, lines, .. } => inbound.arrive(sequence, lines),
            Immediate::Credit { .. } | Immediate::Rtr { .. } => continue,
        };
        if arrived != Ok(true) {
            break;
        }
        let now = match inbound.placed(TAG, &place[taken.min(OPEN_BYTES)..]) {
            Err(_) => break,
            Ok(Some((_, placed))) => placed.min(step),
            Ok(None) => match inbound.front() {
                Err(_) => break,
                Ok(None) => continue,
                Ok(Some(front)) => {
                    // The bytes are read, not only counted.
                    let sum = front.bytes.iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte));
                    std::hint::black_box(sum);
                    front.bytes.len().min(step)
                }
            },
        };
        if inbound.consume(now) {
            inbound.gave_credit();
        }
        taken += now;
    }
    std::hint::black_box((inbound.state(), inbound.has_open_rtr(), inbound.may_send_rtr()));
    Ok(taken)
}

fn inbound() -> io::Result<Inbound> {
    Ok(Inbound::new(Inbox::new(RDMA_RING_BYTES)?, Vec::new(), Grant::default()))
}

#[cfg(test)]
mod tests {
    use super::super::ring::layout::LINE_BYTES;
    use super::*;
    use crate::rdma::ring::layout::PLACED;

    #[test]
    fn valid_messages_are_read() {
        let mut bytes = [0; MESSAGE_BYTES];
        assert!(!message(bytes).unwrap(), "no kind");
        bytes[0] = 3;
        assert!(message(bytes).unwrap());
        let mut line = [0; INVITATION_BYTES];
        (line[8], line[16]) = (100, 50);
        assert_eq!(invitation(&line, 149), Some(49));
        assert_eq!(invitation(&line, 150), None);
    }

    #[test]
    fn fragments_are_taken_in_the_ring_and_directly() {
        let mut ring = [0; 4 * LINE_BYTES];
        // The first fragment was written directly, the second in the ring.
        let second = LINE_BYTES * 3;
        (ring[0], ring[4], ring[8]) = (7, 100, PLACED.to_le_bytes()[0]);
        (ring[second], ring[second + 4]) = (9, 40);
        let number = |sequence, lines| Immediate::Fragment { lane: 0, sequence, lines }.encode();
        assert_eq!(take_all(&ring, &[number(0, 3), number(1, 1)], 1000).unwrap(), 140);
        assert_eq!(take_all(&ring, &[number(0, 3), number(1, 1)], 30).unwrap(), 60);
        assert_eq!(take_all(&ring, &[number(1, 1), number(0, 3)], 1000).unwrap(), 100);
        assert_eq!(take_all(&ring, &[number(0, 2)], 1000).unwrap(), 0, "another length");
    }
}
