//! Uneven collectives: their parts may differ in length. They consist of messages.
//!
//! A rank that sends a part and a rank that receives it each know its length, and the receiver
//! compares both. So ranks that disagree about a part fail by name, and an empty part is a message
//! too. Where all ranks know all counts, a hash of the counts is a part of the call.

mod gather;
mod reduce;
mod user;

pub use self::user::UserOp;

use std::ops::Range;

use ringfold_types::{DataType, Rank, ReduceOp, UnevenCall, UnevenCollective};

use crate::arguments::check_op;
use crate::buffers::Buffers;
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
        self.check_uneven(&call).map_err(self.refusal(&call))?;
        match *uneven {
            Uneven::AllToAll { send, recv } => {
                let mut buffers = buffers;
                let send = if matches!(buffers, Buffers::InPlace(_)) { recv } else { send };
                let mut memory = std::mem::take(&mut self.packed);
                let apart = buffers.apart(&mut memory);
                let outcome = self.all_to_all_parts(&call, send, recv, apart);
                self.packed = memory;
                outcome
            }
            Uneven::Gather { root, parts } if rank == root => {
                let output = self.with_own(&call, parts, buffers)?;
                self.exchange_parts(&call, &[], output)
            }
            Uneven::Gather { root, .. } => {
                let input: &[u8] = match buffers {
                    Buffers::Apart { input, .. } => input,
                    Buffers::InPlace(both) => both,
                };
                self.perform_messages(&call, &mut [Outgoing::new(input, root, 0)], &mut [])
            }
            Uneven::Scatter { root, parts } if rank == root => {
                self.scatter_parts(&call, parts, buffers)
            }
            Uneven::Scatter { root, .. } => {
                let (Buffers::Apart { output, .. } | Buffers::InPlace(output)) = buffers;
                self.perform_messages(&call, &mut [], &mut [Incoming::new(output, root, 0)])
            }
            Uneven::AllGather { parts } => {
                let output = self.with_own(&call, parts, buffers)?;
                self.gather_parts(&call, output)
            }
            Uneven::ReduceScatter { parts, .. } => self.reduce_parts(&call, parts, buffers),
        }
    }

    /// The error of an invalid argument.
    fn refusal(&self, call: &UnevenCall) -> impl Fn(String) -> Error + use<> {
        let (rank, call) = (self.rank(), call.collective.name());
        move |what| Error::Argument { rank, call, what }
    }

    /// The bytes of the parts of a buffer of `len` bytes.
    fn ranges(&self, call: &UnevenCall, parts: Parts<'_>, len: usize) -> Result<Vec<Bytes>, Error> {
        parts.ranges(call.data_type.bytes(), len, self.size()).map_err(self.refusal(call))
    }

    fn all_to_all_parts(
        &mut self,
        call: &UnevenCall,
        send: Parts<'_>,
        recv: Parts<'_>,
        buffers: Buffers<'_>,
    ) -> Result<(), Error> {
        let (own, refuse) = (self.rank().index(), self.refusal(call));
        let Buffers::Apart { input, output } = buffers else { unreachable!("a copy is apart") };
        let send = self.ranges(call, send, input.len())?;
        let recv = self.ranges(call, recv, output.len())?;
        let output = split(output, &recv).map_err(&refuse)?;
        check_len("own part of the output", output[own], send[own].len()).map_err(refuse)?;
        self.exchange_parts(call, &parts_of(input, &send), output)
    }

    fn scatter_parts(
        &mut self,
        call: &UnevenCall,
        parts: Parts<'_>,
        buffers: Buffers<'_>,
    ) -> Result<(), Error> {
        let (input, output): (&[u8], _) = match buffers {
            Buffers::Apart { input, output } => (input, Some(output)),
            Buffers::InPlace(both) => (both, None),
        };
        let send = self.ranges(call, parts, input.len())?;
        let own = send[self.rank().index()].clone();
        if let Some(output) = output {
            check_len("output", output, own.len()).map_err(self.refusal(call))?;
            output.copy_from_slice(&input[own]);
        }
        self.exchange_parts(call, &parts_of(input, &send), Vec::new())
    }

    /// The parts of an output, of which this rank's own has its input.
    fn with_own<'b>(
        &self,
        call: &UnevenCall,
        parts: Parts<'_>,
        buffers: Buffers<'b>,
    ) -> Result<Vec<&'b mut [u8]>, Error> {
        let (own, refuse) = (self.rank().index(), self.refusal(call));
        let (input, output) = match buffers {
            Buffers::Apart { input, output } => (Some(input), output),
            Buffers::InPlace(both) => (None, both),
        };
        let ranges = self.ranges(call, parts, output.len())?;
        let mut output = split(output, &ranges).map_err(&refuse)?;
        if let Some(input) = input {
            check_len("input", input, output[own].len()).map_err(refuse)?;
            output[own].copy_from_slice(input);
        }
        Ok(output)
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
        check_op(call.op, call.data_type)
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
}

fn parts_of<'b>(whole: &'b [u8], ranges: &[Bytes]) -> Vec<&'b [u8]> {
    ranges.iter().map(|range| &whole[range.clone()]).collect()
}

/// Checks the length of a part.
fn check_len(name: &str, part: &[u8], wanted: usize) -> Result<(), String> {
    if part.len() == wanted {
        return Ok(());
    }
    Err(format!("the {name} has {} bytes and needs {wanted}", part.len()))
}
