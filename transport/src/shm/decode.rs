//! Decoders of data that another process wrote, callable without that process: for fuzzing. None
//! may panic or read beyond its input.

use std::io;

use rustix::io::pwrite;

use super::address::same_host;
use super::ring::RING_BYTES;
use super::segment::{Layout, Segment};

/// Whether the text is an address.
#[must_use]
pub fn is_address(text: &str) -> bool {
    same_host(text, text)
}

/// Consumes the messages of `ring`, as of a ring that a peer may write to, in steps of `step`
/// bytes. Returns their total length.
///
/// # Errors
/// The system lacks memory for the ring.
pub fn take_all(ring: &[u8], step: usize) -> io::Result<usize> {
    let segment = Segment::create(Layout { ranks: 2, lanes: 1 })?;
    let (_, mut consumer) = segment.link(0, 1, 0)?;
    pwrite(segment.file(), &ring[..ring.len().min(RING_BYTES)], segment.inbound_at(0, 1, 0))?;
    let mut taken = 0;
    while let Ok(Some((_, lent))) = consumer.front() {
        let now = lent.len().min(step.max(1));
        // The bytes are read and not only counted.
        std::hint::black_box(lent.iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte)));
        taken += now;
        consumer.consume(now);
    }
    Ok(taken)
}
