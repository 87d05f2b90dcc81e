//! The two buffers of timed calls of any type: inputs, the call, the check of the result.

use bytemuck::{cast_slice, cast_slice_mut};
use ringfold::{
    Buffers, Call, Communicator, Error, Parts, Rank, Registration, Uneven, Window, Windows,
};

use crate::oracle::Oracle;
use crate::test::{Expected, Test, neighbours};

/// The contents of an output buffer before a checked call, which is no valid result.
const GARBAGE: u8 = 0xa5;

/// The most bytes of an element.
const WIDTH_MAX: usize = size_of::<u64>();

/// The kind of memory of the buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Memory of this process.
    Ordinary,
    /// Memory of this process that is registered with RDMA devices for all calls.
    Registered,
    /// Made by the communicator, and used as windows.
    Windows,
}

/// The input and the output buffer. All calls of a run use the same two, except that each call of a
/// group has an output of its own.
#[derive(Debug)]
pub struct CallBuffers {
    memory: Memory,
    /// Elements before the first of each buffer.
    unalign: usize,
    /// Calls of a group.
    calls: usize,
    /// Bytes from the output of one call of a group to that of the next.
    stride: usize,
    /// The latest uneven call, and the parts of its buffer.
    parts: Option<(Test, Call, Vec<usize>)>,
}

#[derive(Debug)]
enum Memory {
    /// Of this process, maybe registered. The registrations end before the memory does.
    Slices {
        _kept: [Option<Registration>; 2],
        both: [Vec<u64>; 2],
    },
    Windows([Window<u64>; 2]),
}

impl CallBuffers {
    /// Makes two buffers of zeros with room for `bytes` each. All ranks must do so together.
    ///
    /// # Errors
    /// Those of [`Communicator::alloc`] and [`Communicator::register`].
    pub fn new(comm: &mut Communicator, kind: Kind, bytes: usize) -> Result<Self, Error> {
        Self::for_groups(comm, kind, bytes, 1, 0)
    }

    /// Makes the buffers of groups of `calls` calls, which begin `unalign` elements into their
    /// memory. All ranks must do so together.
    ///
    /// # Errors
    /// Those of [`Communicator::alloc`] and [`Communicator::register`].
    pub(crate) fn for_groups(
        comm: &mut Communicator,
        kind: Kind,
        bytes: usize,
        calls: usize,
        unalign: usize,
    ) -> Result<Self, Error> {
        let stride = bytes.next_multiple_of(WIDTH_MAX);
        let [input, output] = [1, calls].map(|calls| calls * (stride / WIDTH_MAX) + unalign);
        let memory = if kind == Kind::Windows {
            Memory::Windows([comm.alloc(input)?, comm.alloc(output)?])
        } else {
            let (mut kept, mut both) = ([None, None], [vec![0; input], vec![0; output]]);
            if kind == Kind::Registered {
                for (kept, buffer) in kept.iter_mut().zip(&mut both) {
                    *kept = comm.register(buffer)?.into_registration();
                }
            }
            Memory::Slices { _kept: kept, both }
        };
        Ok(Self { memory, unalign, calls, stride, parts: None })
    }

    /// Returns the output window, for calls in windows.
    pub(crate) const fn window(&self) -> Option<&Window<u64>> {
        match &self.memory {
            Memory::Windows([_, output]) => Some(output),
            Memory::Slices { .. } => None,
        }
    }

    /// Writes inputs of their own for each `seed`, and garbage to the outputs of all calls of a
    /// group. Returns the oracle that knows the result.
    pub fn fill(&mut self, comm: &Communicator, call: &Call, in_place: bool, seed: u64) -> Oracle {
        let (rank, ranks) = (comm.rank(), comm.size());
        let oracle = Oracle::new(*call, ranks, seed);
        let bytes = call.data_type.bytes();
        // Messages and uneven parts stand in as broadcasts, and have inputs on all ranks.
        let len = call.input_len(ranks) * bytes;
        let (input, outputs) = self.input_and_outputs(call, ranks);
        if !in_place {
            oracle.fill_input(rank, &mut input[..len]);
        }
        for output in outputs {
            output.fill(GARBAGE);
            if in_place {
                let at = call.in_place_at(rank)[0] * bytes;
                oracle.fill_input(rank, &mut output[at..at + len]);
            }
        }
        oracle
    }

    /// Writes zeros to the output of `call`. Repeated sums in place of other values would overflow.
    pub fn clear(&mut self, comm: &Communicator, call: &Call) {
        let [_, output] = self.bytes_mut(call);
        output[..buffer_bytes(call, comm.size())].fill(0);
    }

    /// Counts the wrong elements of this rank's results of all calls of a group.
    /// [`fill`](Self::fill) returned the oracle.
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
            Memory::Slices { both: [_, output], .. } => output,
            Memory::Windows([_, output]) => output,
        };
        let all = &cast_slice::<_, u8>(output)[self.unalign * bytes..];
        let wrong_of = |output: &[u8]| -> usize {
            if let Test::Collective(_) = test {
                let len = call.output_of(rank, comm.size()) * bytes;
                let at = if in_place { call.in_place_at(rank)[1] * bytes } else { 0 };
                return oracle.count_wrong(rank, &output[at..at + len]);
            }
            let wrong = |Expected { output: at, from, first }: Expected| {
                oracle.count_wrong_part(from, first, &output[at.start * bytes..at.end * bytes])
            };
            test.expected(call, comm).into_iter().map(wrong).sum()
        };
        (0..self.calls).map(|at| wrong_of(&all[at * self.stride..])).sum()
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
            return comm.perform_in_windows(call, windows, self.unalign * call.data_type.bytes());
        }
        let (rank, ranks) = (comm.rank(), comm.size());
        let [input, output] = self.bytes_mut(call);
        comm.perform(call, buffers(call, rank, ranks, in_place, input, output))
    }

    /// Makes such calls as one group. Blocks until this rank's part is done.
    ///
    /// # Errors
    /// Those of [`Communicator::group`].
    pub(crate) fn perform_group(
        &mut self,
        comm: &mut Communicator,
        (test, call): (Test, &Call),
        in_place: bool,
    ) -> Result<(), Error> {
        let (rank, ranks) = (comm.rank(), comm.size());
        let (to, from) = neighbours(comm);
        let (input, outputs) = self.input_and_outputs(call, ranks);
        let input = &*input;
        comm.group(|group| {
            for output in outputs {
                if test == Test::SendRecv {
                    group.send(input, to, 0);
                    group.recv(output, from, 0);
                } else {
                    group.perform(call, buffers(call, rank, ranks, in_place, input, output));
                }
            }
        })
    }

    /// Returns the memory of both buffers from where those of `call` begin.
    #[inline]
    fn bytes_mut(&mut self, call: &Call) -> [&mut [u8]; 2] {
        let first = self.unalign * call.data_type.bytes();
        self.memory.bytes_mut().map(|all| &mut all[first..])
    }

    /// Returns the input of `call`, and the output of each call of a group.
    fn input_and_outputs(
        &mut self,
        call: &Call,
        ranks: usize,
    ) -> (&mut [u8], impl Iterator<Item = &mut [u8]>) {
        let (bytes, calls, stride) = (buffer_bytes(call, ranks), self.calls, self.stride);
        let [input, mut rest] = self.bytes_mut(call);
        let outputs = (0..calls).map(move |_| {
            let (output, others) = std::mem::take(&mut rest).split_at_mut(stride);
            rest = others;
            &mut output[..bytes]
        });
        (&mut input[..bytes], outputs)
    }

    /// Sends the input to the next rank, and receives the output from the previous one.
    fn send_recv(&mut self, comm: &mut Communicator, call: &Call) -> Result<(), Error> {
        let bytes = buffer_bytes(call, comm.size());
        let (to, from) = neighbours(comm);
        let [input, output] = self.bytes_mut(call).map(|all| &mut all[..bytes]);
        comm.send_recv::<u8, u8>(input, to, output, from, 0).map(drop)
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
        let at = self.unalign * width..self.unalign * width + call.count * width;
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
        let [input, output] = self.memory.bytes_mut().map(|bytes| &mut bytes[at.clone()]);
        let buffers = if in_place {
            Buffers::InPlace(&mut output[of(has_input || has_output)])
        } else {
            Buffers::Apart { input: &input[of(has_input)], output: &mut output[of(has_output)] }
        };
        comm.perform_uneven(&uneven, call.data_type, buffers)
    }
}

impl Memory {
    #[inline]
    fn bytes_mut(&mut self) -> [&mut [u8]; 2] {
        match self {
            Self::Slices { both, .. } => both.each_mut().map(|words| cast_slice_mut(words)),
            Self::Windows(both) => both.each_mut().map(|words| cast_slice_mut(words)),
        }
    }
}

/// Returns the buffers of `call` in memory with room for the larger of its two.
#[inline]
fn buffers<'b>(
    call: &Call,
    rank: Rank,
    ranks: usize,
    in_place: bool,
    input: &'b [u8],
    output: &'b mut [u8],
) -> Buffers<'b> {
    let bytes = call.data_type.bytes();
    if in_place {
        return Buffers::InPlace(&mut output[..call.in_place_of(rank, ranks) * bytes]);
    }
    Buffers::Apart {
        input: &input[..call.input_len(ranks) * bytes],
        output: &mut output[..call.output_len(ranks) * bytes],
    }
}

/// Returns the bytes of the larger of the two buffers of `call`, the size in tables.
#[must_use]
pub fn buffer_bytes(call: &Call, ranks: usize) -> usize {
    call.input_len(ranks).max(call.output_len(ranks)) * call.data_type.bytes()
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use ringfold::{Collective, DataType, ReduceOp, Wire, local};

    use super::*;

    fn call(collective: Collective, count: usize) -> (Test, Call) {
        let (data_type, op, root, wire) = (DataType::F32, ReduceOp::Sum, Rank(0), Wire::Element);
        let call = Call { collective, count, data_type, op, root, wire };
        (Test::Collective(collective), call)
    }

    #[test]
    fn each_call_of_a_group_is_checked() {
        let (test, call) = call(Collective::AllReduce, 24);
        let wrong = local::run(2, |comm| {
            let mut buffers = CallBuffers::for_groups(comm, Kind::Ordinary, 100, 3, 1).unwrap();
            let mut is_wrong = Vec::new();
            for in_place in [false, true] {
                let oracle = buffers.fill(comm, &call, in_place, 1);
                // A plain call leaves two outputs of the group as they are.
                buffers.perform(comm, (test, &call), in_place).unwrap();
                is_wrong.push(buffers.count_wrong(comm, (test, &call), in_place, &oracle) > 0);
                let oracle = buffers.fill(comm, &call, in_place, 2);
                buffers.perform_group(comm, (test, &call), in_place).unwrap();
                is_wrong.push(buffers.count_wrong(comm, (test, &call), in_place, &oracle) > 0);
            }
            is_wrong
        });
        assert_eq!(wrong.unwrap(), [[true, false, true, false]; 2]);
    }

    #[test]
    fn a_group_without_bytes_makes_its_calls() {
        let (test, call) = call(Collective::Barrier, 0);
        let times = local::run(2, |comm| {
            let mut buffers = CallBuffers::for_groups(comm, Kind::Ordinary, 0, 2, 0).unwrap();
            if comm.rank() == Rank(1) {
                std::thread::sleep(Duration::from_millis(100));
            }
            let begin = Instant::now();
            buffers.perform_group(comm, (test, &call), false).unwrap();
            (begin, Instant::now())
        });
        let [(_, end), (begin, _)] = times.unwrap()[..] else { unreachable!("two ranks") };
        assert!(end >= begin, "a barrier waits for the other rank");
    }
}
