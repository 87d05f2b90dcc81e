//! Everything that reads what another process wrote, without that process: for fuzzing. None may
//! panic, nor read beyond what it was given.

use std::io;

use rustix::io::pwrite;

use super::address::same_host;
use super::ring::RING_BYTES;
use super::segment::{Geometry, Segment};

/// Whether the text is an address.
#[must_use]
pub fn is_address(text: &str) -> bool {
    same_host(text, text)
}

/// Takes what `ring` announces, as a ring that a peer may write to, in steps of `step` bytes. How
/// many bytes that was.
///
/// # Errors
/// There is no memory to lay it in.
pub fn take_all(ring: &[u8], step: usize) -> io::Result<usize> {
    let segment = Segment::create(Geometry { ranks: 2, lanes: 1 })?;
    let (_, mut consumer) = segment.link(0, 1, 0)?;
    pwrite(segment.file(), &ring[..ring.len().min(RING_BYTES)], segment.inbound_at(0, 1, 0))?;
    let mut taken = 0;
    while let Ok(Some((_, lent))) = consumer.front() {
        let now = lent.len().min(step.max(1));
        // Read, not only counted.
        std::hint::black_box(lent.iter().fold(0, |sum: u8, byte| sum.wrapping_add(*byte)));
        taken += now;
        consumer.consume(now);
    }
    Ok(taken)
}
