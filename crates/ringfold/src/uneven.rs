//! Uneven collectives: their parts may differ in length. They consist of messages.
//!
//! A rank that sends a part and a rank that receives it each know its length, and the receiver
//! compares both. So ranks that disagree about a part fail by name, and an empty part is a message
//! too. Where all ranks know all counts, a hash of the counts is a part of the call.

use std::ops::Range;

use ringfold_reduce::{Form, Kernel, Operand, scale, scale_fits};
use ringfold_types::limits::{
    FRAGMENT_ALIGN, LINK_BYTES_MIN, SOURCES_MAX, UNEVEN_ROUND_BYTES, UNEVEN_SCRATCH_BYTES,
};
use ringfold_types::{DataType, Rank, ReduceOp, UnevenCall, UnevenCollective};

use crate::buffers::{AlignedBytes, Buffers};
use crate::communicator::{Communicator, Doing};
use crate::error::{Error, Operation};
use crate::messages::{Incoming, Messages, Outgoing, Track};
use crate::parts::{Parts, split};

/// An uneven collective and the parts that this rank knows.
#[derive(Clone, Copy, Debug)]
pub enum Uneven<'p> {
    /// Part r of the input goes to rank r, and its part for this rank becomes part r of the output.
    /// In place only `recv` counts, for both.
    AllToAll {
        /// The parts of the input.
        send: Parts<'p>,
        /// The parts of the output.
        recv: Parts<'p>,
    },
    /// The whole input of rank r becomes part r of the root's output. In place the root's own part
    /// is in its buffer already.
    Gather {
        /// The rank that receives.
        root: Rank,
        /// The parts of the root's output; without meaning on other ranks.
        parts: Parts<'p>,
    },
    /// Part r of the root's input becomes the whole output of rank r. In place the root's own part
    /// stays in its buffer.
    Scatter {
        /// The rank that sends.
        root: Rank,
        /// The parts of the root's input; without meaning on other ranks.
        parts: Parts<'p>,
    },
    /// The whole input of rank r becomes part r of every output. In place the input is this rank's
    /// part of the buffer.
    AllGather {
        /// The parts of the output. All ranks give the same counts.
        parts: Parts<'p>,
    },
    /// The reduction of part r of all inputs becomes the whole output of rank r. In place the
    /// output is this rank's part of the buffer.
    ReduceScatter {
        /// The parts of the input. All ranks give the same counts.
        parts: Parts<'p>,
        /// The reduction operation.
        op: ReduceOp,
    },
}

impl Uneven<'_> {
    /// The call on which all ranks must agree.
    fn call(&self, data_type: DataType) -> UnevenCall {
        use UnevenCollective::{AllGatherV, AllToAllV, GatherV, ReduceScatterV, ScatterV};
        let new = |collective| UnevenCall::new(collective, data_type);
        match *self {
            Self::AllToAll { .. } => new(AllToAllV),
            Self::Gather { root, .. } => UnevenCall { root, ..new(GatherV) },
            Self::Scatter { root, .. } => UnevenCall { root, ..new(ScatterV) },
            Self::AllGather { parts } => new(AllGatherV).with_counts(parts.counts()),
            Self::ReduceScatter { parts, op } => {
                UnevenCall { op, ..new(ReduceScatterV).with_counts(parts.counts()) }
            }
        }
    }
}

/// A part of this rank's buffers.
type Bytes = Range<usize>;

impl Communicator {
    /// Performs an uneven collective on bytes, for bindings and tools. Every rank must make the
    /// same call. Blocks until this rank's part is done.
    ///
    /// # Errors
    /// [`Error::Argument`] if the parts do not fit the buffers; [`Error::Failed`] if ranks disagree
    /// about the length of a part, or the job has failed; [`Error::Forked`] in a child process.
    pub fn perform_uneven(
        &mut self,
        uneven: &Uneven<'_>,
        data_type: DataType,
        buffers: Buffers<'_>,
    ) -> Result<(), Error> {
        self.check_process()?;
        self.check_failed()?;
        let call = uneven.call(data_type);
        let rank = self.rank();
        let refuse = |what| Error::Argument { rank, call: call.collective.name(), what };
        self.check_uneven(&call).map_err(refuse)?;
        let element = data_type.bytes();
        let ranges = |parts: &Parts<'_>, len| parts.ranges(element, len, self.size());
        match (*uneven, buffers) {
            (Uneven::AllToAll { send, recv }, Buffers::Apart { input, output }) => {
                let send = ranges(&send, input.len()).map_err(refuse)?;
                let recv = ranges(&recv, output.len()).map_err(refuse)?;
                let output = split(output, &recv).map_err(refuse)?;
                check_len("output's own part", &output[rank.index()], send[rank.index()].len())
                    .map_err(refuse)?;
                self.exchange_parts(&call, &parts_of(input, &send), output)
            }
            (Uneven::AllToAll { recv, .. }, Buffers::InPlace(both)) => {
                let recv = ranges(&recv, both.len()).map_err(refuse)?;
                let mut memory = std::mem::take(&mut self.packed);
                let input = memory.exactly(both.len());
                input.copy_from_slice(both);
                let outcome = match split(both, &recv).map_err(refuse) {
                    Ok(output) => self.exchange_parts(&call, &parts_of(input, &recv), output),
                    Err(error) => Err(error),
                };
                self.packed = memory;
                outcome
            }
            (Uneven::Gather { root, parts }, buffers) if rank == root => {
                let (input, output) = match buffers {
                    Buffers::Apart { input, output } => (Some(input), output),
                    Buffers::InPlace(both) => (None, both),
                };
                let recv = ranges(&parts, output.len()).map_err(refuse)?;
                let mut output = split(output, &recv).map_err(refuse)?;
                if let Some(input) = input {
                    check_len("input", input, recv[rank.index()].len()).map_err(refuse)?;
                    output[rank.index()].copy_from_slice(input);
                }
                self.exchange_parts(&call, &[], output)
            }
            (Uneven::Gather { root, .. }, buffers) => {
                let input: &[u8] = match buffers {
                    Buffers::Apart { input, .. } => input,
                    Buffers::InPlace(both) => both,
                };
                let mut outgoing = [Outgoing::new(input, root, 0)];
                self.perform_messages(&call, &mut outgoing, &mut [])
            }
            (Uneven::Scatter { root, parts }, buffers) if rank == root => {
                let (input, output): (&[u8], _) = match buffers {
                    Buffers::Apart { input, output } => (input, Some(output)),
                    Buffers::InPlace(both) => (both, None),
                };
                let send = ranges(&parts, input.len()).map_err(refuse)?;
                if let Some(output) = output {
                    check_len("output", output, send[rank.index()].len()).map_err(refuse)?;
                    output.copy_from_slice(&input[send[rank.index()].clone()]);
                }
                self.exchange_parts(&call, &parts_of(input, &send), Vec::new())
            }
            (Uneven::Scatter { root, .. }, buffers) => {
                let output = match buffers {
                    Buffers::Apart { output, .. } => output,
                    Buffers::InPlace(both) => both,
                };
                let mut incoming = [Incoming::new(output, root, 0)];
                self.perform_messages(&call, &mut [], &mut incoming)
            }
            (Uneven::AllGather { parts }, buffers) => {
                let (input, output) = match buffers {
                    Buffers::Apart { input, output } => (Some(input), output),
                    Buffers::InPlace(both) => (None, both),
                };
                let recv = ranges(&parts, output.len()).map_err(refuse)?;
                let mut output = split(output, &recv).map_err(refuse)?;
                if let Some(input) = input {
                    check_len("input", input, recv[rank.index()].len()).map_err(refuse)?;
                    output[rank.index()].copy_from_slice(input);
                }
                self.gather_parts(&call, output)
            }
            (Uneven::ReduceScatter { parts, .. }, buffers) => {
                let whole = match &buffers {
                    Buffers::Apart { input, .. } => input.len(),
                    Buffers::InPlace(both) => both.len(),
                };
                let ranges = ranges(&parts, whole).map_err(refuse)?;
                let own = ranges[rank.index()].clone();
                if let Buffers::Apart { output, .. } = &buffers {
                    check_len("output", output, own.len()).map_err(refuse)?;
                }
                if matches!(buffers, Buffers::InPlace(_)) && is_overlapped(&own, &ranges) {
                    return Err(refuse("the own part of the buffer overlaps others".to_owned()));
                }
                self.reduce_parts(&call, &ranges, buffers)
            }
        }
    }

    /// Checks the root and the operation of a call.
    fn check_uneven(&self, call: &UnevenCall) -> Result<(), String> {
        let size = self.size();
        if call.root.index() >= size {
            return Err(format!(
                "root {} is not one of the {size} ranks, which are 0 to {}",
                call.root,
                size - 1
            ));
        }
        match call.op {
            ReduceOp::PreMulSum(factor) if !scale_fits(call.data_type, factor.factor()) => {
                Err(format!("scale {} has no value in {}", factor.factor(), call.data_type))
            }
            _ => Ok(()),
        }
    }

    /// Sends a part to every rank and receives a part of every rank, or does only one of both.
    fn exchange_parts(
        &mut self,
        call: &UnevenCall,
        send: &[&[u8]],
        recv: Vec<&mut [u8]>,
    ) -> Result<(), Error> {
        let own = self.rank();
        // A rank that only sends, or only receives, has done its own part.
        let is_one_way = send.is_empty() || recv.is_empty();
        let is_message = |rank: &Rank| !(is_one_way && *rank == own);
        let sent = send.iter().enumerate().map(|(to, part)| (Rank::at(to), part));
        let sent = sent.filter(|(to, _)| is_message(to));
        let mut outgoing: Vec<_> = sent.map(|(to, part)| Outgoing::new(part, to, 0)).collect();
        let received = recv.into_iter().enumerate().map(|(from, part)| (Rank::at(from), part));
        let received = received.filter(|(from, _)| is_message(from));
        let mut incoming: Vec<_> =
            received.map(|(from, part)| Incoming::new(part, from, 0)).collect();
        self.perform_messages(call, &mut outgoing, &mut incoming)
    }

    /// Performs a call that consists of these messages.
    fn perform_messages<'b>(
        &mut self,
        call: &UnevenCall,
        outgoing: &mut [Outgoing<'b>],
        incoming: &mut [Incoming<'b>],
    ) -> Result<(), Error> {
        self.perform_rounds(call, |it, tag| it.round(call, tag, outgoing, incoming))
    }

    /// Performs a call as rounds of messages. Its messages have the tag that `rounds` gets.
    fn perform_rounds(
        &mut self,
        call: &UnevenCall,
        rounds: impl FnOnce(&mut Self, u32) -> Result<(), Error>,
    ) -> Result<(), Error> {
        self.guarded_in(Doing::Uneven(call), |it| {
            let tag = it.begin_uneven(call);
            rounds(it, tag)?;
            it.end_uneven();
            Ok(())
        })
    }

    /// Performs one round of a call. Blocks.
    fn round<'b>(
        &mut self,
        call: &UnevenCall,
        tag: u32,
        outgoing: &mut [Outgoing<'b>],
        incoming: &mut [Incoming<'b>],
    ) -> Result<(), Error> {
        let ranks = (self.rank(), self.size());
        let mut messages = Messages::new(Track::of_call(tag), outgoing, incoming, ranks);
        self.block_on(&mut messages).map_err(|error| {
            let operation = Operation::Uneven { call: *call, seq: self.seq() };
            self.fail_in(operation, error)
        })
    }

    /// Gives every rank all parts. This rank's own part is in place. Among the ranks of one host
    /// each sends its part to all others. Between hosts a ring takes each part over each link once.
    fn gather_parts(&mut self, call: &UnevenCall, mut parts: Vec<&mut [u8]>) -> Result<(), Error> {
        let (own, size) = (self.rank().index(), self.size());
        if self.layout().hosts() == 1 {
            let own_part = std::mem::take(&mut parts[own]);
            let others = || (0..size).filter(|rank| *rank != own).map(Rank::at);
            let mut outgoing: Vec<_> = others().map(|to| Outgoing::new(own_part, to, 0)).collect();
            let received = parts.into_iter().enumerate().filter(|(from, _)| *from != own);
            let mut incoming: Vec<_> =
                received.map(|(from, part)| Incoming::new(part, Rank::at(from), 0)).collect();
            return self.perform_messages(call, &mut outgoing, &mut incoming);
        }
        let (next, previous) = (Rank::at((own + 1) % size), Rank::at((own + size - 1) % size));
        self.perform_rounds(call, |it, tag| {
            for round in 0..size - 1 {
                let sent = (own + size - round) % size;
                let received = (own + size - round - 1) % size;
                let Ok([sent, received]) = parts.get_disjoint_mut([sent, received]) else {
                    unreachable!("more than one rank")
                };
                let mut outgoing = [Outgoing::new(sent, next, 0)];
                let mut incoming = [Incoming::new(received, previous, 0)];
                it.round(call, tag, &mut outgoing, &mut incoming)?;
            }
            Ok(())
        })
    }

    /// Reduces each part of all inputs on its rank, in rank order and in rounds of limited length.
    fn reduce_parts(
        &mut self,
        call: &UnevenCall,
        ranges: &[Bytes],
        mut buffers: Buffers<'_>,
    ) -> Result<(), Error> {
        let mut memory = std::mem::take(&mut self.packed);
        let mut copy = std::mem::take(&mut self.scaled);
        let scaled = match call.op {
            ReduceOp::PreMulSum(factor) => {
                let input: &[u8] = match &buffers {
                    Buffers::Apart { input, .. } => input,
                    Buffers::InPlace(both) => both,
                };
                let scaled = copy.exactly(input.len());
                scale(call.data_type, scaled, Some(input), factor.factor());
                Some(&*scaled)
            }
            _ => None,
        };
        let outcome = self.perform_rounds(call, |it, tag| {
            it.reduce_rounds((call, tag), ranges, &mut buffers, scaled, &mut memory)
        });
        (self.packed, self.scaled) = (memory, copy);
        outcome
    }

    fn reduce_rounds(
        &mut self,
        (call, tag): (&UnevenCall, u32),
        ranges: &[Bytes],
        buffers: &mut Buffers<'_>,
        scaled: Option<&[u8]>,
        memory: &mut AlignedBytes,
    ) -> Result<(), Error> {
        let (own, size) = (self.rank().index(), self.size());
        let kernel = Kernel::new(call.data_type, call.op, size);
        let most = (UNEVEN_SCRATCH_BYTES / size).clamp(LINK_BYTES_MIN, UNEVEN_ROUND_BYTES);
        let most = most / FRAGMENT_ALIGN * FRAGMENT_ALIGN;
        let longest = ranges.iter().map(Bytes::len).max().unwrap_or(0);
        // The rounds of a part that is shorter are empty.
        for begin in (0..longest).step_by(most) {
            let of_round = |range: &Bytes| {
                let end = range.len().min(begin + most);
                range.start + begin.min(end)..range.start + end
            };
            let bytes = of_round(&ranges[own]).len();
            let count = bytes / call.data_type.bytes();
            let sums = count * Form::Accumulator.bytes(call.data_type);
            let (contributions, sums) =
                memory.exactly(size * bytes + sums).split_at_mut(size * bytes);
            let input: &[u8] = match (&*buffers, scaled) {
                (_, Some(scaled)) => scaled,
                (Buffers::Apart { input, .. }, None) => input,
                (Buffers::InPlace(both), None) => both,
            };
            let sent = ranges.iter().map(of_round).enumerate().filter(|(_, part)| !part.is_empty());
            let mut outgoing: Vec<_> =
                sent.map(|(to, part)| Outgoing::new(&input[part], Rank::at(to), 0)).collect();
            let mut incoming = Vec::new();
            if bytes > 0 {
                let received = contributions.chunks_exact_mut(bytes).enumerate();
                incoming.extend(received.map(|(from, it)| Incoming::new(it, Rank::at(from), 0)));
            }
            self.round(call, tag, &mut outgoing, &mut incoming)?;
            if bytes == 0 {
                continue;
            }
            let output = match buffers {
                Buffers::Apart { output, .. } => &mut output[begin..begin + bytes],
                Buffers::InPlace(both) => &mut both[of_round(&ranges[own])],
            };
            let operands: Vec<_> =
                contributions.chunks_exact(bytes).map(Operand::elements).collect();
            combine(&kernel, output, sums, &operands);
        }
        Ok(())
    }
}

/// Writes the combination of the operands to `output`, in their order. `sums` has room for as many
/// accumulators.
fn combine(kernel: &Kernel, output: &mut [u8], sums: &mut [u8], operands: &[Operand<'_>]) {
    let (mut rest, mut has_sums) = (operands, false);
    while rest.len() + usize::from(has_sums) > SOURCES_MAX {
        let (front, back) = rest.split_at(SOURCES_MAX - usize::from(has_sums));
        if has_sums {
            let mut operands = vec![Operand::Destination];
            operands.extend_from_slice(front);
            kernel.combine(sums, Form::Accumulator, &operands);
        } else {
            kernel.combine(sums, Form::Accumulator, front);
        }
        (rest, has_sums) = (back, true);
    }
    if has_sums {
        let mut operands = vec![Operand::accumulators(sums)];
        operands.extend_from_slice(rest);
        kernel.combine(output, Form::Element, &operands);
    } else {
        kernel.combine(output, Form::Element, rest);
    }
}

fn parts_of<'b>(whole: &'b [u8], ranges: &[Bytes]) -> Vec<&'b [u8]> {
    ranges.iter().map(|range| &whole[range.clone()]).collect()
}

fn check_len(name: &str, part: &[u8], wanted: usize) -> Result<(), String> {
    if part.len() == wanted {
        return Ok(());
    }
    Err(format!("the {name} has {} bytes and needs {wanted}", part.len()))
}

/// Whether a part other than `own` shares bytes with it.
fn is_overlapped(own: &Bytes, ranges: &[Bytes]) -> bool {
    let shares = |it: &&Bytes| !it.is_empty() && it.start < own.end && own.start < it.end;
    !own.is_empty() && ranges.iter().filter(shares).count() > 1
}
