//! The layout of a ring, and the immediates of writes.
//!
//! A ring is lines of 64 bytes in the receiver's memory, and the sender has an image of it in its
//! own. A fragment takes consecutive lines: a header with tag and length, and a payload. A payload
//! of up to 48 bytes shares the header's line, and a longer one begins at the next line. A fragment
//! that does not fit before the end of the ring begins at its start, and the lines that it skipped
//! belong to it too. So the lines of each fragment tell where the next begins.
//!
//! A payload may also go directly to the receiver's memory (`rtr`). Then the fragment's lines after
//! the first hold nothing, and are reserved for a repetition by the ring.
//!
//! ```text
//! immediate                bit 31  27..31  19..27   0..19
//! a fragment               0       lane    sequence lines, without skipped ones
//! a credit                 1       lane    0        all lines given back so far, modulo 2^19
//! a ready-to-receive       1       lane    128+slot likewise
//! ```

#![expect(clippy::cast_possible_truncation, reason = "lanes and lines are few")]

use ringfold_types::limits::{
    LANES_MAX, RDMA_CELLS, RDMA_PIECE_BYTES, RDMA_PLACED_BYTES, RDMA_RING_BYTES,
};

/// Least bytes of a path's share of a message, if a message is divided between several paths.
pub(in crate::rdma) const RDMA_STRIPE_BYTES: usize = 64 * 1024;

/// Bytes of a line.
pub(in crate::rdma) const LINE_BYTES: usize = 64;
/// Bytes of the header at the start of a fragment. It holds the tag, the length, the flags, and the
/// last ready-to-receive messages that the sender has seen.
pub(in crate::rdma) const HEADER_BYTES: usize = 16;
/// The parts of a message are multiples of so many bytes.
const STRIPE_ALIGN: usize = 128;
/// The longest payload that shares its header's line.
pub(in crate::rdma) const SHORT_BYTES: usize = LINE_BYTES - HEADER_BYTES;
/// Lines of a ring.
pub(in crate::rdma) const RING_LINES: u32 = (RDMA_RING_BYTES / LINE_BYTES) as u32;
/// The shortest rest of a ring that is worth a fragment of its own, where the message is longer.
pub(in crate::rdma) const SPLINTER_LINES: u32 = 65;
/// Lines that the receiver may consume before it gives credit: fewer than the longest fragment has.
/// A sender that waits for an answer puts no more than that into the ring.
pub(in crate::rdma) const CREDIT_LINES: u32 = RING_LINES / 4;
/// Fragments that the receiver may consume before it gives credit.
pub(in crate::rdma) const CREDIT_FRAGMENTS: u32 = (RDMA_CELLS / 4) as u32;

/// The byte of the header at which the flags begin.
pub(in crate::rdma) const FLAGS_AT: usize = 8;
/// The flag of a fragment whose payload went directly to the receiver's memory.
pub(in crate::rdma) const PLACED: u32 = 1;
/// The flag of a fragment whose sender asks for a ready-to-receive message, and may wait for it for
/// a while.
pub(in crate::rdma) const WANTS_RTR: u32 = 2;
/// The byte of the header that tells the last ready-to-receive messages that the sender has seen.
pub(in crate::rdma) const SEEN_AT: usize = 12;

const CREDIT: u32 = 1 << 31;
const RTR: u32 = 1 << 26;
const LANE_SHIFT: u32 = 27;
const SEQUENCE_SHIFT: u32 = 19;

const _: () = assert!(RING_LINES < LAPS_LINES / 4);
const _: () = assert!(LANES_MAX <= 1 << (31 - LANE_SHIFT));
const _: () = assert!(RDMA_RING_BYTES.is_multiple_of(LINE_BYTES));
const _: () = assert!(lines(RDMA_PIECE_BYTES) <= CREDIT_LINES);
const _: () = assert!(CREDIT_LINES < lines(RDMA_PLACED_BYTES));
const _: () = assert!(2 * lines(RDMA_PLACED_BYTES) <= RING_LINES);

/// Lines of a fragment with a payload of `bytes`.
pub(in crate::rdma) const fn lines(bytes: usize) -> u32 {
    debug_assert!(bytes <= RDMA_RING_BYTES);
    let rest = if bytes <= SHORT_BYTES { 0 } else { bytes.div_ceil(LINE_BYTES) };
    1 + rest as u32
}

/// The longest payload of a fragment of `lines` lines.
pub(in crate::rdma) const fn capacity(lines: u32) -> usize {
    match lines {
        0 => 0,
        1 => SHORT_BYTES,
        lines => (lines as usize - 1) * LINE_BYTES,
    }
}

/// The most bytes of a message that one write takes: directly to the receiver's memory, and by the
/// ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rdma) struct Most {
    pub(in crate::rdma) direct: usize,
    pub(in crate::rdma) by_ring: usize,
}

impl Most {
    /// Returns the limits for a message of `bytes` bytes by a path with `weight` of the `sum` of
    /// the weights of all paths (not 0). Each path gets its share in whole pairs of cache lines,
    /// unless a share is too small for a write of its own.
    pub(in crate::rdma) fn of(bytes: usize, (weight, sum): (u64, u64)) -> Self {
        let part = |bytes: usize, round: u128| {
            if weight >= sum {
                return bytes;
            }
            let part = (bytes as u128 * u128::from(weight) + round) / u128::from(sum);
            usize::try_from(part).unwrap_or(bytes)
        };
        let up = part(bytes, u128::from(sum) - 1);
        let even = up.next_multiple_of(STRIPE_ALIGN).max(RDMA_STRIPE_BYTES);
        let share = part(RDMA_PLACED_BYTES, 0) / STRIPE_ALIGN * STRIPE_ALIGN;
        let (direct, by_ring) = (share.max(RDMA_PIECE_BYTES), RDMA_PIECE_BYTES);
        Self { direct: even.min(direct), by_ring: even.min(by_ring) }
    }
}

/// The first byte of the payload within the fragment.
pub(in crate::rdma) const fn payload_at(bytes: usize) -> usize {
    if bytes <= SHORT_BYTES { HEADER_BYTES } else { LINE_BYTES }
}

/// The purpose of a write, which its immediate tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rdma) enum Immediate {
    /// The write brings a fragment.
    Fragment { lane: usize, sequence: u8, lines: u32 },
    /// The write brings credit alone: `total` lines were given back in all, modulo `LAPS_LINES`.
    /// Credits may be late, repeated or lost, and the furthest one counts.
    Credit { lane: usize, total: u32 },
    /// The write brings credit too, and a ready-to-receive message lies in that slot of the lane.
    Rtr { lane: usize, slot: usize, total: u32 },
}

/// The modulus of totals of lines, which is many laps of a ring.
pub(in crate::rdma) const LAPS_LINES: u32 = 1 << SEQUENCE_SHIFT;

/// Returns a total of lines as immediates carry it.
pub(in crate::rdma) const fn lap(total: u64) -> u32 {
    (total % LAPS_LINES as u64) as u32
}

impl Immediate {
    pub(in crate::rdma) const fn encode(self) -> u32 {
        match self {
            Self::Fragment { lane, sequence, lines } => {
                (lane as u32) << LANE_SHIFT | (sequence as u32) << SEQUENCE_SHIFT | lines
            }
            Self::Credit { lane, total } => {
                CREDIT | (lane as u32) << LANE_SHIFT | (total % LAPS_LINES)
            }
            Self::Rtr { lane, slot, total } => {
                let slot = (slot as u32) << SEQUENCE_SHIFT;
                RTR | slot | Self::Credit { lane, total }.encode()
            }
        }
    }

    pub(in crate::rdma) const fn decode(bits: u32) -> Self {
        let lane = (bits >> LANE_SHIFT & 0xf) as usize;
        let total = bits % LAPS_LINES;
        if bits & (CREDIT | RTR) == CREDIT | RTR {
            let slot = (bits >> SEQUENCE_SHIFT & 0x7f) as usize;
            return Self::Rtr { lane, slot, total };
        }
        if bits & CREDIT != 0 {
            return Self::Credit { lane, total };
        }
        let [sequence, ..] = (bits >> SEQUENCE_SHIFT).to_le_bytes();
        Self::Fragment { lane, sequence, lines: total }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_travel() {
        for number in [
            Immediate::Fragment { lane: 0, sequence: 0, lines: 1 },
            Immediate::Fragment { lane: 7, sequence: 255, lines: RING_LINES },
            Immediate::Credit { lane: 5, total: LAPS_LINES - 1 },
            Immediate::Rtr { lane: LANES_MAX - 1, slot: 1, total: LAPS_LINES - 1 },
            Immediate::Rtr { lane: 0, slot: 0, total: 0 },
        ] {
            assert_eq!(Immediate::decode(number.encode()), number);
        }
    }

    #[test]
    fn long_messages_go_by_all_paths() {
        let parts = |bytes: usize, paths| {
            let Most { direct, by_ring } = Most::of(bytes, (3, 3 * paths as u64));
            assert_eq!((direct % 128, by_ring % 128), (0, 0), "{bytes} by {paths}");
            (bytes.div_ceil(direct), bytes.div_ceil(by_ring))
        };
        for paths in 1..5 {
            assert_eq!(parts(1, paths), (1, 1));
            assert_eq!(parts(RDMA_STRIPE_BYTES, paths), (1, 1));
            let most = paths.max(2);
            assert_eq!(parts(4 * RDMA_STRIPE_BYTES, paths), (paths, most));
            assert_eq!(parts(4 * RDMA_STRIPE_BYTES - 1, paths), (paths, most));
            assert!(parts(4 * RDMA_STRIPE_BYTES + 64 * paths, paths).0 <= paths);
            // Each path has one write under way, and room for the next.
            let longest = Most::of(2 * RDMA_PLACED_BYTES, (3, 3 * paths as u64));
            assert!(longest.direct * paths <= RDMA_PLACED_BYTES, "{paths} paths");
            assert!((longest.direct + 128) * paths > RDMA_PLACED_BYTES, "{paths} paths");
            assert_eq!(longest.by_ring, RDMA_PIECE_BYTES);
        }
        assert_eq!(parts(2 * RDMA_STRIPE_BYTES, 8), (2, 2));
        let [fast, slow] = [15, 1].map(|weight| Most::of(RDMA_PLACED_BYTES, (weight, 16)).direct);
        assert_eq!((fast, slow), (15 * RDMA_STRIPE_BYTES, RDMA_STRIPE_BYTES));
        let huge = Most::of(usize::MAX / 2, (u64::MAX / 2, u64::MAX)).direct;
        assert!(huge <= RDMA_PLACED_BYTES / 2, "{huge}");
    }

    #[test]
    fn lines_hold_what_they_must() {
        for bytes in [1, 48, 49, 64, 65, 4096, RDMA_PIECE_BYTES] {
            assert!(capacity(lines(bytes)) >= bytes);
            assert!(payload_at(bytes) + bytes <= lines(bytes) as usize * LINE_BYTES);
        }
        assert_eq!((capacity(1), lines(48), lines(49), lines(64)), (48, 1, 2, 2));
    }
}
