//! A stream between two ranks, and what arrives by it.

use ringfold_types::{Lane, Rank};

/// One stream each way between this rank and a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Link {
    /// The rank at the other end.
    pub peer: Rank,
    /// Which of the parallel streams to it.
    pub lane: Lane,
}

/// Bytes that have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment<'a> {
    /// What the sender said the bytes belong to. The receiver compares it with what it expects
    /// before it uses the bytes.
    pub tag: u32,
    /// Never empty. A multiple of `limits::FRAGMENT_ALIGN` long, or up to the end of what one
    /// `send` sequence offered.
    pub bytes: &'a [u8],
}

/// What `recv` found at the front of the incoming stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    /// The tag of the fragment that lay there.
    pub tag: u32,
    /// Bytes that were moved; 0 if the tag is not the one that the receiver asked for.
    pub bytes: usize,
}
