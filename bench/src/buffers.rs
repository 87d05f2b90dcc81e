//! The two buffers of timed calls of any type: inputs, the call, the check of the result.

use bytemuck::{cast_slice, cast_slice_mut};
use ringfold::{Buffers, Call, Communicator, Error, Parts, Rank};
use ringfold::{Uneven, Window, Windows};

use crate::oracle::Oracle;
use crate::test::uneven_counts;

/// The contents of an output buffer before a checked call, which is no valid result.
const GARBAGE: u64 = 0xa5a5_a5a5_a5a5_a5a5;

/// The kind of memory of the buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Memory of this process.
    Ordinary,
    /// Made by the communicator, and used as ordinary slices.
    Registered,
    /// Made by the communicator, and used as windows.
    Windows,
}

/// The input and the output buffer. All calls of a run use the same two.
#[derive(Debug)]
pub struct CallBuffers(Memory);

#[derive(Debug)]
enum Memory {
    Ordinary([Vec<u64>; 2]),
    Registered([Window<u64>; 2]),
    Windows([Window<u64>; 2]),
}

impl CallBuffers {
    /// Makes two buffers of zeros with room for `bytes` each. All ranks must do so together.
    ///
    /// # Errors
    /// Those of [`Communicator::alloc`].
    pub fn new(comm: &mut Communicator, kind: Kind, bytes: usize) -> Result<Self, Error> {
        let words = bytes.div_ceil(size_of::<u64>());
        Ok(Self(match kind {
            Kind::Ordinary => Memory::Ordinary([vec![0; words], vec![0; words]]),
            Kind::Registered => Memory::Registered([comm.alloc(words)?, comm.alloc(words)?]),
            Kind::Windows => Memory::Windows([comm.alloc(words)?, comm.alloc(words)?]),
        }))
    }

    /// Returns the output window, for calls in windows.
    pub(crate) const fn window(&self) -> Option<&Window<u64>> {
        match &self.0 {
            Memory::Windows([_, output]) => Some(output),
            _ => None,
        }
    }

    /// Writes inputs of their own for each `seed`, and garbage to the output. Returns the oracle
    /// that knows the result.
    pub fn fill(&mut self, comm: &Communicator, call: &Call, in_place: bool, seed: u64) -> Oracle {
        let (rank, ranks) = (comm.rank(), comm.size());
        let oracle = Oracle::new(*call, ranks, seed);
        let [input, output] = self.words_mut();
        output[..buffer_bytes(call, ranks).div_ceil(size_of::<u64>())].fill(GARBAGE);
        let bytes = call.data_type.bytes();
        // Messages and uneven parts stand in as broadcasts, and have inputs on all ranks.
        let len = call.input_len(ranks) * bytes;
        if in_place {
            let at = call.in_place_at(rank)[0] * bytes;
            oracle.fill_input(rank, &mut cast_slice_mut(output)[at..at + len]);
        } else {
            oracle.fill_input(rank, &mut cast_slice_mut(input)[..len]);
        }
        oracle
    }

    /// Writes zeros to the output of `call`. Repeated sums in place of other values would overflow.
    pub fn clear(&mut self, comm: &Communicator, call: &Call) {
        let [_, output] = self.words_mut();
        output[..buffer_bytes(call, comm.size()).div_ceil(size_of::<u64>())].fill(0);
    }

    /// Returns this rank's result of `call`.
    #[must_use]
    pub fn result(&self, comm: &Communicator, call: &Call, in_place: bool) -> &[u8] {
        let (rank, bytes) = (comm.rank(), call.data_type.bytes());
        let len = call.output_of(rank, comm.size()) * bytes;
        let at = if in_place { call.in_place_at(rank)[1] * bytes } else { 0 };
        let output: &[u64] = match &self.0 {
            Memory::Ordinary([_, output]) => output,
            Memory::Registered([_, output]) | Memory::Windows([_, output]) => output,
        };
        &cast_slice(output)[at..at + len]
    }

    /// Makes `call` on the buffers. Blocks until this rank's part is done.
    ///
    /// # Errors
    /// Those of [`Communicator::perform`] and [`Communicator::perform_in_windows`].
    #[inline]
    pub fn perform(
        &mut self,
        comm: &mut Communicator,
        call: &Call,
        in_place: bool,
    ) -> Result<(), Error> {
        if let Memory::Windows([input, output]) = &mut self.0 {
            let windows = match in_place {
                true => Windows::InPlace(output),
                false => Windows::Apart { input, output },
            };
            return comm.perform_in_windows(call, windows, 0);
        }
        let (ranks, bytes) = (comm.size(), call.data_type.bytes());
        let [input, output] = self.words_mut();
        let output: &mut [u8] = cast_slice_mut(output);
        let buffers = if in_place {
            Buffers::InPlace(&mut output[..call.in_place_of(comm.rank(), ranks) * bytes])
        } else {
            Buffers::Apart {
                input: &cast_slice(input)[..call.input_len(ranks) * bytes],
                output: &mut output[..call.output_len(ranks) * bytes],
            }
        };
        comm.perform(call, buffers)
    }

    /// Sends the input of `call` to rank `to`, and receives the message of rank `from` into the
    /// output. Blocks until both are done.
    ///
    /// # Errors
    /// Those of [`Communicator::send_recv`].
    pub fn send_recv(
        &mut self,
        comm: &mut Communicator,
        call: &Call,
        (to, from): (Rank, Rank),
    ) -> Result<(), Error> {
        let bytes = buffer_bytes(call, comm.size());
        let [input, output] = self.words_mut().map(|words| &mut cast_slice_mut(words)[..bytes]);
        comm.send_recv::<u8, u8>(input, to, output, from, 0)
    }

    /// Exchanges uneven parts of the buffer of `call`. Blocks until this rank's part is done.
    ///
    /// # Errors
    /// Those of [`Communicator::perform_uneven`].
    pub(crate) fn all_to_all_v(
        &mut self,
        comm: &mut Communicator,
        call: &Call,
        in_place: bool,
    ) -> Result<(), Error> {
        let bytes = buffer_bytes(call, comm.size());
        let [input, output] = self.words_mut().map(|words| &mut cast_slice_mut(words)[..bytes]);
        let counts = uneven_counts(comm.rank(), comm.size(), call.count);
        let (send, recv) = (Parts::new(&counts), Parts::new(&counts));
        let buffers =
            if in_place { Buffers::InPlace(output) } else { Buffers::Apart { input, output } };
        comm.perform_uneven(&Uneven::AllToAll { send, recv }, call.data_type, buffers)
    }

    #[inline]
    fn words_mut(&mut self) -> [&mut [u64]; 2] {
        match &mut self.0 {
            Memory::Ordinary(both) => both.each_mut().map(|words| &mut **words),
            Memory::Registered(both) | Memory::Windows(both) => {
                both.each_mut().map(|words| &mut **words)
            }
        }
    }
}

/// Returns the bytes of the larger of the two buffers of `call`, the size in tables.
#[must_use]
pub fn buffer_bytes(call: &Call, ranks: usize) -> usize {
    call.input_len(ranks).max(call.output_len(ranks)) * call.data_type.bytes()
}
