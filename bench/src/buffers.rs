//! The two buffers of timed calls of any type: inputs, the call, the check of the result.

use bytemuck::{cast_slice, cast_slice_mut};
use ringfold::{Buffers, Call, Communicator, Error, Parts, Uneven, Window, Windows};

use crate::oracle::Oracle;
use crate::test::{Expected, Test, neighbours};

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
pub struct CallBuffers {
    memory: Memory,
    /// The latest uneven call, and the parts of its buffer.
    parts: Option<(Test, Call, Vec<usize>)>,
}

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
        let memory = match kind {
            Kind::Ordinary => Memory::Ordinary([vec![0; words], vec![0; words]]),
            Kind::Registered => Memory::Registered([comm.alloc(words)?, comm.alloc(words)?]),
            Kind::Windows => Memory::Windows([comm.alloc(words)?, comm.alloc(words)?]),
        };
        Ok(Self { memory, parts: None })
    }

    /// Returns the output window, for calls in windows.
    pub(crate) const fn window(&self) -> Option<&Window<u64>> {
        match &self.memory {
            Memory::Windows([_, output]) => Some(output),
            _ => None,
        }
    }

    /// Writes inputs of their own for each `seed`, and garbage to the output. Returns the oracle
    /// that knows the result.
    pub fn fill(&mut self, comm: &Communicator, call: &Call, in_place: bool, seed: u64) -> Oracle {
        let (rank, ranks) = (comm.rank(), comm.size());
        let oracle = Oracle::new(*call, ranks, seed);
        let [input, output] = self.memory.words_mut();
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
        let [_, output] = self.memory.words_mut();
        output[..buffer_bytes(call, comm.size()).div_ceil(size_of::<u64>())].fill(0);
    }

    /// Counts the wrong elements of this rank's result of `call`. [`fill`](Self::fill) returned the
    /// oracle.
    #[must_use]
    pub fn count_wrong(
        &self,
        comm: &Communicator,
        (test, call): (Test, &Call),
        in_place: bool,
        oracle: &Oracle,
    ) -> usize {
        let (rank, bytes) = (comm.rank(), call.data_type.bytes());
        let output: &[u64] = match &self.memory {
            Memory::Ordinary([_, output]) => output,
            Memory::Registered([_, output]) | Memory::Windows([_, output]) => output,
        };
        let output: &[u8] = cast_slice(output);
        if let Test::Collective(_) = test {
            let len = call.output_of(rank, comm.size()) * bytes;
            let at = if in_place { call.in_place_at(rank)[1] * bytes } else { 0 };
            return oracle.count_wrong(rank, &output[at..at + len]);
        }
        let wrong = |Expected { output: at, from, first }: Expected| {
            oracle.count_wrong_part(from, first, &output[at.start * bytes..at.end * bytes])
        };
        test.expected(call, comm).into_iter().map(wrong).sum()
    }

    /// Makes `call` on the buffers, or what the test makes in its place. Blocks until this rank's
    /// part is done.
    ///
    /// # Errors
    /// Those of [`Communicator::perform`], [`Communicator::perform_in_windows`],
    /// [`Communicator::perform_uneven`] and [`Communicator::send_recv`].
    #[inline]
    pub fn perform(
        &mut self,
        comm: &mut Communicator,
        (test, call): (Test, &Call),
        in_place: bool,
    ) -> Result<(), Error> {
        match test {
            Test::Collective(_) => {}
            Test::SendRecv => return self.send_recv(comm, call),
            _ => return self.perform_uneven(comm, test, call, in_place),
        }
        if let Memory::Windows([input, output]) = &mut self.memory {
            let windows = match in_place {
                true => Windows::InPlace(output),
                false => Windows::Apart { input, output },
            };
            return comm.perform_in_windows(call, windows, 0);
        }
        let (ranks, bytes) = (comm.size(), call.data_type.bytes());
        let [input, output] = self.memory.words_mut();
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

    /// Sends the input to the next rank, and receives the output from the previous one.
    fn send_recv(&mut self, comm: &mut Communicator, call: &Call) -> Result<(), Error> {
        let bytes = buffer_bytes(call, comm.size());
        let (to, from) = neighbours(comm);
        let [input, output] = self.memory.bytes_mut(bytes);
        comm.send_recv::<u8, u8>(input, to, output, from, 0)
    }

    /// Makes an uneven call. A rank with one part of a buffer has it where it lies in the whole.
    fn perform_uneven(
        &mut self,
        comm: &mut Communicator,
        test: Test,
        call: &Call,
        in_place: bool,
    ) -> Result<(), Error> {
        let (rank, root, width) = (comm.rank(), call.root, call.data_type.bytes());
        let latest = self.parts.take().filter(|(of, latest, _)| (of, latest) == (&test, call));
        let make = || (test, *call, test.counts(rank, comm.size(), call.count));
        let (.., counts) = self.parts.insert(latest.unwrap_or_else(make));
        let parts = Parts::new(counts);
        let begin = counts[..rank.index()].iter().sum::<usize>() * width;
        let (whole, own) = (0..call.count * width, begin..begin + counts[rank.index()] * width);
        let (uneven, has_input, has_output) = match test {
            Test::GatherV => (Uneven::Gather { root, parts }, false, rank == root),
            Test::ScatterV => (Uneven::Scatter { root, parts }, rank == root, false),
            Test::AllGatherV => (Uneven::AllGather { parts }, false, true),
            Test::ReduceScatterV => (Uneven::ReduceScatter { parts, op: call.op }, true, false),
            _ => (Uneven::AllToAll { send: parts, recv: parts }, true, true),
        };
        let of = |is_whole| if is_whole { whole.clone() } else { own.clone() };
        let [input, output] = self.memory.bytes_mut(whole.end);
        let buffers = if in_place {
            Buffers::InPlace(&mut output[of(has_input || has_output)])
        } else {
            Buffers::Apart { input: &input[of(has_input)], output: &mut output[of(has_output)] }
        };
        comm.perform_uneven(&uneven, call.data_type, buffers)
    }
}

impl Memory {
    /// Returns the first `bytes` of both buffers.
    fn bytes_mut(&mut self, bytes: usize) -> [&mut [u8]; 2] {
        self.words_mut().map(|words| &mut cast_slice_mut(words)[..bytes])
    }

    #[inline]
    fn words_mut(&mut self) -> [&mut [u64]; 2] {
        match self {
            Self::Ordinary(both) => both.each_mut().map(|words| &mut **words),
            Self::Registered(both) | Self::Windows(both) => {
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
