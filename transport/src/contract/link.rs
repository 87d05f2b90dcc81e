//! Links between two ranks, and the bytes that arrive on them.

use ringfold_types::{Lane, Rank};

/// A lane between this rank and a peer: one stream in each direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Link {
    /// The rank at the other end.
    pub peer: Rank,
    /// The lane: one of the parallel streams to that rank.
    pub lane: Lane,
}

/// Bytes that have arrived on a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment<'a> {
    /// The tag that the sender gave to `send`. The receiver compares it with the tag it expects
    /// before it uses the bytes.
    pub tag: u32,
    /// The bytes, never empty. Their number is a multiple of `limits::FRAGMENT_ALIGN`, or they end
    /// where the message ends.
    pub bytes: &'a [u8],
}

/// The result of a `recv` that found a fragment at the front of the incoming stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The tag of that fragment.
    pub tag: u32,
    /// Bytes that were moved to the caller's memory; 0 if the tag differs from the one that the
    /// caller asked for.
    pub bytes: usize,
}
