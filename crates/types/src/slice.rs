//! Buffers of a call, and parts of them counted in elements.

use core::fmt;

/// The buffers of one call on one rank. The buffer determines the form of the elements in it:
///
/// * `Input` holds the user's elements in the call's data type, and is never written;
/// * `Output` holds final results in the call's data type (averages divided, wide accumulators
///   rounded);
/// * `Scratch` holds partial results in the data type's accumulator (`DataType::accumulator`);
/// * `Rounded` holds partial results in the call's data type, on their way to another host;
/// * `Staging` holds inputs and final results in the call's data type, in the rank's staging
///   buffer, where the other ranks of the host read them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Buffer {
    /// The user's elements; read-only.
    Input,
    /// Final results.
    Output,
    /// Partial results, one accumulator per element.
    Scratch,
    /// Partial results, rounded to the call's data type.
    Rounded,
    /// The rank's staging buffer, which peers read; `limits::STAGING_BYTES` long on every rank.
    Staging,
}

impl fmt::Display for Buffer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Input => "in",
            Self::Output => "out",
            Self::Scratch => "scratch",
            Self::Rounded => "rounded",
            Self::Staging => "staging",
        })
    }
}

/// `len` elements of `buffer` from element `offset` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Slice {
    /// Which buffer.
    pub buffer: Buffer,
    /// First element.
    pub offset: usize,
    /// Number of elements.
    pub len: usize,
}

impl Slice {
    /// `len` elements of `buffer` from `offset` on.
    #[must_use]
    pub const fn new(buffer: Buffer, offset: usize, len: usize) -> Self {
        Self { buffer, offset, len }
    }

    /// One past the last element.
    #[must_use]
    pub const fn end(&self) -> usize {
        self.offset + self.len
    }

    /// The part of `self` that starts `from` elements in.
    #[must_use]
    pub const fn skip(&self, from: usize) -> Self {
        Self { buffer: self.buffer, offset: self.offset + from, len: self.len - from }
    }

    /// The first `len` elements of `self`, or all of it if it is shorter.
    #[must_use]
    pub const fn take(&self, len: usize) -> Self {
        let len = if len < self.len { len } else { self.len };
        Self { buffer: self.buffer, offset: self.offset, len }
    }
}

impl fmt::Display for Slice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}..{}]", self.buffer, self.offset, self.end())
    }
}
