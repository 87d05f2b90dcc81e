//! Uneven collectives: their parts may differ in length.
//!
//! Where all ranks know all counts (`blocks`), the call is a schedule of blocks of these lengths,
//! and a hash of the counts is a part of the call. Elsewhere only the sender and the receiver of a
//! part know its length. Such a call consists of messages in the order of `Pairs`, and the receiver
//! compares both lengths. So ranks that disagree about a part fail by name, and an empty part is a
//! message too.

mod blocks;
mod user;

pub use self::user::UserOp;

use std::ops::Range;

use ringfold_collectives::pairs::Pairs;
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
                self.perform_pairs(&call, Pairs::Gather { root }, |_| &[], each_of(output))
            }
            Uneven::Gather { root, .. } => {
                let input: &[u8] = match buffers {
                    Buffers::Apart { input, .. } => input,
                    Buffers::InPlace(both) => both,
                };
                self.perform_pairs(&call, Pairs::Gather { root }, |_| input, |_| &mut [])
            }
            Uneven::Scatter { root, parts } if rank == root => {
                self.scatter_parts(&call, parts, root, buffers)
            }
            Uneven::Scatter { root, .. } => {
                let (Buffers::Apart { mut output, .. } | Buffers::InPlace(mut output)) = buffers;
                let output = |_| std::mem::take(&mut output);
                self.perform_pairs(&call, Pairs::Scatter { root }, |_| &[], output)
            }
            Uneven::AllGather { parts } => self.all_gather_parts(&call, parts, buffers),
            Uneven::ReduceScatter { parts, .. } => self.reduce_scatter_parts(&call, parts, buffers),
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
        self.perform_pairs(call, Pairs::AllToAll, part_of(input, &send), each_of(output))
    }

    fn scatter_parts(
        &mut self,
        call: &UnevenCall,
        parts: Parts<'_>,
        root: Rank,
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
        self.perform_pairs(call, Pairs::Scatter { root }, part_of(input, &send), |_| &mut [])
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

    /// Performs a call whose messages are those of `pairs`. `send` gives the part for a rank, and
    /// `recv` the place for the part of a rank.
    fn perform_pairs<'b>(
        &mut self,
        call: &UnevenCall,
        pairs: Pairs,
        send: impl Fn(Rank) -> &'b [u8],
        recv: impl FnMut(Rank) -> &'b mut [u8],
    ) -> Result<(), Error> {
        self.perform_rounds(call, |it, tag| it.round(call, tag, pairs, send, recv))
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
        pairs: Pairs,
        send: impl Fn(Rank) -> &'b [u8],
        mut recv: impl FnMut(Rank) -> &'b mut [u8],
    ) -> Result<(), Error> {
        let ranks @ (own, size) = (self.rank(), self.size());
        let sent = |to| Outgoing::new(send(to), to, 0);
        let mut outgoing: Vec<_> = pairs.receivers(own, size).into_iter().map(sent).collect();
        let received = |from| Incoming::new(recv(from), from, 0);
        let mut incoming: Vec<_> = pairs.senders(own, size).into_iter().map(received).collect();
        let mut messages = Messages::new(Track::of_call(tag), &mut outgoing, &mut incoming, ranks);
        self.block_on(&mut messages).map_err(|error| {
            let operation = Operation::Uneven { call: *call, seq: self.seq() };
            self.fail_in(operation, error)
        })
    }
}

/// Gives each rank its part of an input.
fn part_of<'b>(whole: &'b [u8], ranges: &[Bytes]) -> impl Fn(Rank) -> &'b [u8] {
    move |rank| &whole[ranges[rank.index()].clone()]
}

/// Gives out the parts of an output, each once.
fn each_of<'b>(mut parts: Vec<&'b mut [u8]>) -> impl FnMut(Rank) -> &'b mut [u8] {
    move |rank| std::mem::take(&mut parts[rank.index()])
}

/// Checks the length of a part.
fn check_len(name: &str, part: &[u8], wanted: usize) -> Result<(), String> {
    if part.len() == wanted {
        return Ok(());
    }
    Err(format!("the {name} has {} bytes and needs {wanted}", part.len()))
}
