//! What lies where in a ring, and what the number of a write says.
//!
//! A ring is lines of 64 bytes in the receiver's memory, of which the sender has an image in its
//! own. A fragment takes whole lines, in a row: a header with tag and length, and up to 48 bytes
//! in the same line, or all of them from the next line on. One that does not fit before the end
//! begins at the start, and the lines it skipped are its own too. So the lines of each fragment in
//! turn say where the next begins.
//!
//! A fragment's payload may also lie where the receiver has invited it (`invitation`); then all of
//! its lines but the first hold nothing, and are kept for the case that it must be sent again.
//!
//! Where all that a header says follows from the number, the fragment is *bare*: its payload alone
//! is written, in the ring or elsewhere. So what fills packets needs none more for a header.
//!
//! ```text
//! number of a write   bit 31  27..31  19..27     18  17        0..17
//! a fragment          0       lane    sequence   0   0         lines, skipped ones excluded
//! a bare fragment     0       lane    sequence   1   asks      `Bare`: in the ring or not, lines
//! a credit            1       lane    0          all lines given back so far, modulo 2^19
//! an invitation       1       lane    128+place  likewise
//! ```

#![expect(clippy::cast_possible_truncation, reason = "lanes and lines are few")]

use ringfold_types::limits::{
    LANES_MAX, RDMA_CELLS, RDMA_PIECE_BYTES, RDMA_PLACED_BYTES, RDMA_RING_BYTES, RDMA_STRIPE_BYTES,
};

/// Bytes of a line,
pub(in crate::rdma) const LINE_BYTES: usize = 64;
/// and of the header at the start of a fragment: tag, length, flags, and the last invitations that
/// the sender has seen.
pub(in crate::rdma) const HEADER_BYTES: usize = 16;
/// What parts of a message are multiples of.
const STRIPE_ALIGN: usize = 128;
/// The longest payload that shares its header's line.
pub(in crate::rdma) const SHORT_BYTES: usize = LINE_BYTES - HEADER_BYTES;
/// Lines of a ring.
pub(in crate::rdma) const RING_LINES: u32 = (RDMA_RING_BYTES / LINE_BYTES) as u32;
/// The shortest rest of a ring that is worth a fragment of its own, where the message is longer.
pub(in crate::rdma) const SPLINTER_LINES: u32 = 65;
/// Lines that the receiver may be done with before it says so: fewer than the longest fragment has,
pub(in crate::rdma) const CREDIT_LINES: u32 = RING_LINES / 8 * 3;
/// and fragments.
pub(in crate::rdma) const CREDIT_FRAGMENTS: u32 = (RDMA_CELLS / 4) as u32;

/// Where the flags are,
pub(in crate::rdma) const FLAGS_AT: usize = 8;
/// that the payload is where it was invited,
pub(in crate::rdma) const PLACED: u32 = 1;
/// and that the sender asks where what comes next is wanted, and may wait for that, for a while;
pub(in crate::rdma) const AWAITS: u32 = 2;
/// and where what the sender has seen.
pub(in crate::rdma) const SEEN_AT: usize = 12;

const CREDIT: u32 = 1 << 31;
const INVITATION: u32 = 1 << 26;
const BARE: u32 = 1 << 18;
const ASKS: u32 = 1 << 17;
const IN_RING: u32 = 1 << 16;
const AHEAD_SHIFT: u32 = 12;
const LANE_SHIFT: u32 = 27;
const SEQUENCE_SHIFT: u32 = 19;

const _: () = assert!(RING_LINES < LAPS_LINES / 4 && RING_LINES < IN_RING);
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

/// How many bytes of a message one write takes at most: where they are invited, and by the ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rdma) struct Most {
    pub(in crate::rdma) invited: usize,
    pub(in crate::rdma) by_ring: usize,
}

impl Most {
    /// Of a message of so many bytes, for so many paths (not 0): as much by each, in whole pairs of
    /// cache lines, unless that is not worth a write of its own.
    pub(in crate::rdma) fn of(bytes: usize, paths: usize) -> Self {
        let even = bytes.div_ceil(paths).next_multiple_of(STRIPE_ALIGN).max(RDMA_STRIPE_BYTES);
        let share = RDMA_PLACED_BYTES / paths / STRIPE_ALIGN * STRIPE_ALIGN;
        let (invited, by_ring) = (share.max(RDMA_PIECE_BYTES), RDMA_PIECE_BYTES);
        Self { invited: even.min(invited), by_ring: even.min(by_ring) }
    }
}

/// Where the payload begins within the fragment.
pub(in crate::rdma) const fn payload_at(bytes: usize) -> usize {
    if bytes <= SHORT_BYTES { HEADER_BYTES } else { LINE_BYTES }
}

/// What a write is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rdma) enum Number {
    /// It brings a fragment.
    Fragment { lane: usize, sequence: u8, lines: u32 },
    /// It brings one that is bare.
    Bare { lane: usize, sequence: u8, bare: Bare },
    /// It brings nothing: so many lines were given back in all, modulo `LAPS_LINES`. Whichever
    /// credit arrives last, or again, or not at all, the furthest one counts.
    Credit { lane: usize, total: u32 },
    /// It brings credit likewise, and an invitation lies in that place of the lane's.
    Invitation { lane: usize, place: usize, total: u32 },
}

/// A fragment without a header, of which the payload fills all lines but the first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::rdma) struct Bare {
    pub(in crate::rdma) lines: u32,
    pub(in crate::rdma) asks: bool,
    /// It is in the ring, under a tag that is so much higher than that of the one before; or else
    /// where it was invited last, as is its tag.
    pub(in crate::rdma) ahead: Option<u32>,
}

impl Bare {
    /// Whether there is a number for it: where it was invited, 16 bits are for the lines; in the
    /// ring 12, and 4 for how much higher the tag is.
    pub(in crate::rdma) fn has_number(self) -> bool {
        self.lines > 1 && Self::decode(self.encode()) == self
    }

    const fn encode(self) -> u32 {
        let marks = if self.asks { BARE | ASKS } else { BARE };
        match self.ahead {
            Some(ahead) => marks | IN_RING | ahead << AHEAD_SHIFT | self.lines,
            None => marks | self.lines,
        }
    }

    const fn decode(bits: u32) -> Self {
        let (asks, place) = (bits & ASKS != 0, bits % IN_RING);
        if bits & IN_RING == 0 {
            return Self { lines: place, asks, ahead: None };
        }
        Self { lines: place % (1 << AHEAD_SHIFT), asks, ahead: Some(place >> AHEAD_SHIFT) }
    }
}

/// What totals of lines are counted modulo of: many laps of a ring.
pub(in crate::rdma) const LAPS_LINES: u32 = 1 << SEQUENCE_SHIFT;

/// A total of lines as numbers say it.
pub(in crate::rdma) const fn lap(total: u64) -> u32 {
    (total % LAPS_LINES as u64) as u32
}

impl Number {
    pub(in crate::rdma) const fn encode(self) -> u32 {
        match self {
            Self::Fragment { lane, sequence, lines } => {
                (lane as u32) << LANE_SHIFT | (sequence as u32) << SEQUENCE_SHIFT | lines
            }
            Self::Bare { lane, sequence, bare } => {
                Self::Fragment { lane, sequence, lines: bare.encode() }.encode()
            }
            Self::Credit { lane, total } => {
                CREDIT | (lane as u32) << LANE_SHIFT | (total % LAPS_LINES)
            }
            Self::Invitation { lane, place, total } => {
                let place = (place as u32) << SEQUENCE_SHIFT;
                INVITATION | place | Self::Credit { lane, total }.encode()
            }
        }
    }

    /// The number of a fragment that is bare no more.
    pub(in crate::rdma) const fn with_header(self) -> Self {
        match self {
            Self::Bare { lane, sequence, bare: Bare { lines, .. } } => {
                Self::Fragment { lane, sequence, lines }
            }
            number => number,
        }
    }

    pub(in crate::rdma) const fn decode(bits: u32) -> Self {
        let lane = (bits >> LANE_SHIFT & 0xf) as usize;
        let total = bits % LAPS_LINES;
        if bits & (CREDIT | INVITATION) == CREDIT | INVITATION {
            let place = (bits >> SEQUENCE_SHIFT & 0x7f) as usize;
            return Self::Invitation { lane, place, total };
        }
        if bits & CREDIT != 0 {
            return Self::Credit { lane, total };
        }
        let [sequence, ..] = (bits >> SEQUENCE_SHIFT).to_le_bytes();
        if bits & BARE != 0 {
            return Self::Bare { lane, sequence, bare: Bare::decode(bits) };
        }
        Self::Fragment { lane, sequence, lines: total }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_travel() {
        let bare = |lane, sequence, bare| Number::Bare { lane, sequence, bare };
        for number in [
            Number::Fragment { lane: 0, sequence: 0, lines: 1 },
            Number::Fragment { lane: 7, sequence: 255, lines: RING_LINES },
            Number::Credit { lane: 5, total: LAPS_LINES - 1 },
            bare(LANES_MAX - 1, 255, Bare { lines: RING_LINES, asks: false, ahead: None }),
            bare(0, 0, Bare { lines: 2, asks: true, ahead: None }),
            bare(LANES_MAX - 1, 255, Bare { lines: 4095, asks: true, ahead: Some(15) }),
            bare(0, 0, Bare { lines: 2, asks: false, ahead: Some(0) }),
            Number::Invitation { lane: LANES_MAX - 1, place: 1, total: LAPS_LINES - 1 },
            Number::Invitation { lane: 0, place: 0, total: 0 },
        ] {
            assert_eq!(Number::decode(number.encode()), number);
        }
    }

    #[test]
    fn not_every_bare_fragment_has_a_number() {
        let has_number = |lines, ahead| Bare { lines, asks: false, ahead }.has_number();
        assert!(has_number(RING_LINES, None) && has_number(2, Some(15)));
        assert!(has_number(lines(RDMA_PIECE_BYTES), Some(0)), "what goes by the ring");
        assert!(!has_number(1, None), "a header is there anyway");
        assert!(!has_number(RING_LINES, Some(0)) && !has_number(2, Some(16)));
        assert!(!has_number(2, Some(u32::MAX)), "an earlier tag");
    }

    #[test]
    fn long_messages_go_by_all_paths() {
        let parts = |bytes: usize, paths| {
            let Most { invited, by_ring } = Most::of(bytes, paths);
            assert_eq!((invited % 128, by_ring % 128), (0, 0), "{bytes} by {paths}");
            (bytes.div_ceil(invited), bytes.div_ceil(by_ring))
        };
        for paths in 1..5 {
            assert_eq!(parts(1, paths), (1, 1));
            assert_eq!(parts(RDMA_STRIPE_BYTES, paths), (1, 1));
            let most = paths.max(2);
            assert_eq!(parts(4 * RDMA_STRIPE_BYTES, paths), (paths, most));
            assert_eq!(parts(4 * RDMA_STRIPE_BYTES - 1, paths), (paths, most));
            assert!(parts(4 * RDMA_STRIPE_BYTES + 64 * paths, paths).0 <= paths);
            // One write under way by each path, and room for the next.
            let longest = Most::of(2 * RDMA_PLACED_BYTES, paths);
            assert!(longest.invited * paths <= RDMA_PLACED_BYTES, "{paths} paths");
            assert!((longest.invited + 128) * paths > RDMA_PLACED_BYTES, "{paths} paths");
            assert_eq!(longest.by_ring, RDMA_PIECE_BYTES);
        }
        assert_eq!(parts(2 * RDMA_STRIPE_BYTES, 8), (2, 2));
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
