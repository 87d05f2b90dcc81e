//! Uneven collectives: their parts may differ in length.
//!
//! Where all ranks know all counts (`blocks`), the call is a schedule of blocks of these lengths,
//! and a hash of the counts is a part of the call. Elsewhere only the sender and the receiver of a
//! part know its length. Such a call consists of messages (`lists`), and the receiver compares both
//! lengths. So ranks that disagree about a part fail by name, and an empty part is a message too.

mod blocks;
mod lists;
mod reduction;
mod user;

pub(crate) use self::reduction::{Reducing, Reduction};
pub use self::user::UserOp;

use ringfold_lend::lend;
use ringfold_types::{DataType, Rank, ReduceOp, UnevenCall, UnevenCollective};

use crate::arguments::{check_op, check_root};
use crate::buffers::{AlignedBytes, Buffers};
use crate::communicator::Communicator;
use crate::core::{Core, StartedCall};
use crate::error::{CallError, Error, Operation};
use crate::messages::{Exchange, Exchanging};
use crate::parts::{Parts, ScaledParts};
use crate::requests::Started;
use crate::watch::Watch;

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
    /// The same call on elements that are as many times as short as `by` says.
    pub(crate) fn scaled<'m>(
        &self,
        by: usize,
        [first, second]: &'m mut [ScaledParts; 2],
    ) -> Uneven<'m> {
        match *self {
            Self::AllToAll { send, recv } => {
                Uneven::AllToAll { send: send.scaled(by, first), recv: recv.scaled(by, second) }
            }
            Self::Gather { root, parts } => Uneven::Gather { root, parts: parts.scaled(by, first) },
            Self::Scatter { root, parts } => {
                Uneven::Scatter { root, parts: parts.scaled(by, first) }
            }
            Self::AllGather { parts } => Uneven::AllGather { parts: parts.scaled(by, first) },
            Self::ReduceScatter { parts, op } => {
                Uneven::ReduceScatter { parts: parts.scaled(by, first), op }
            }
        }
    }

    /// The call on which all ranks must agree, without its counts.
    fn call(&self, data_type: DataType) -> UnevenCall {
        use UnevenCollective::{AllGatherV, AllToAllV, GatherV, ReduceScatterV, ScatterV};
        let new = |collective| UnevenCall::new(collective, data_type);
        match *self {
            Self::AllToAll { .. } => new(AllToAllV),
            Self::Gather { root, .. } => UnevenCall { root, ..new(GatherV) },
            Self::Scatter { root, .. } => UnevenCall { root, ..new(ScatterV) },
            Self::AllGather { .. } => new(AllGatherV),
            Self::ReduceScatter { op, .. } => UnevenCall { op, ..new(ReduceScatterV) },
        }
    }
}

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
        self.engine()?.health.check()?;
        let call = self.checked(uneven, data_type)?;
        let rank = self.rank();
        if let Uneven::AllGather { parts } | Uneven::ReduceScatter { parts, .. } = *uneven {
            return self.perform_known(&call, parts, buffers);
        }
        let mut buffers = buffers;
        let is_in_place = matches!(buffers, Buffers::InPlace(_));
        let (mut copy, mut exchange) = {
            let core = &mut self.engine()?.core;
            (std::mem::take(&mut core.packed), std::mem::take(&mut core.exchange))
        };
        let (input, output) = uneven.sides(rank).of(&mut buffers, &mut copy, true);
        let (element, ranks) = (data_type.bytes(), (rank, self.size()));
        let filled = exchange.fill(uneven, element, (input, output), is_in_place, ranks);
        let outcome = match filled {
            Ok(()) => self.perform_rounds(&call, |core, watch, tag| {
                core.round(&mut exchange, (input, output), watch, tag)
            }),
            Err(what) => Err(self.refusal(&call)(what)),
        };
        let core = &mut self.engine()?.core;
        (core.exchange, core.packed) = (exchange, copy);
        outcome
    }

    /// Starts [`perform_uneven`](Self::perform_uneven) on the bytes that `view` shows of `buffers`.
    /// They are its input and its output. Without an input the call is in place.
    ///
    /// # Errors
    /// As for [`start_all_reduce`](Self::start_all_reduce).
    ///
    /// ```
    /// use ringfold::{Communicator, DataType, Parts, Uneven, local};
    ///
    /// let gathered = local::run(3, |comm| {
    ///     let own = comm.rank().index();
    ///     // Rank r contributes r + 1 bytes.
    ///     let uneven = Uneven::AllGather { parts: Parts::new(&[1, 2, 3]) };
    ///     let buffers = (vec![own as u8; own + 1], vec![9_u8; 6]);
    ///     let request = comm.start_uneven(&uneven, DataType::U8, buffers, |(input, output)| {
    ///         (Some(input), output)
    ///     });
    ///     request.unwrap().wait().unwrap().1
    /// })?;
    /// assert_eq!(gathered, [[0, 1, 1, 2, 2, 2]; 3]);
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn start_uneven<B: Send + 'static, V>(
        &mut self,
        uneven: &Uneven<'_>,
        data_type: DataType,
        buffers: B,
        view: V,
    ) -> Started<B>
    where
        V: for<'b> Fn(&'b mut B) -> (Option<&'b [u8]>, &'b mut [u8]) + Send + Sync + 'static,
    {
        self.start_lent(lend(buffers, view), |comm, buffers| {
            let call = comm.checked(uneven, data_type)?;
            let (rank, size) = (comm.rank(), comm.size());
            if let Uneven::AllGather { parts } | Uneven::ReduceScatter { parts, .. } = *uneven {
                let (call, blocks) = comm.known(&call, parts, buffers)?;
                return Ok(StartedCall::Scheduled { call, blocks: Some(blocks), mark: None });
            }
            let (sides, mut exchange) = (uneven.sides(rank), Box::<Exchange>::default());
            let is_in_place = matches!(buffers, Buffers::InPlace(_));
            let mut copy = AlignedBytes::default();
            let memory = sides.of(buffers, &mut copy, true);
            exchange
                .fill(uneven, data_type.bytes(), memory, is_in_place, (rank, size))
                .map_err(comm.refusal(&call))?;
            Ok(StartedCall::Messages { call, sides, exchange })
        })
    }

    /// The call on which all ranks must agree, without its counts.
    ///
    /// # Errors
    /// The root or the operation is invalid.
    fn checked(&self, uneven: &Uneven<'_>, data_type: DataType) -> Result<UnevenCall, Error> {
        let call = uneven.call(data_type);
        check_root(call.root, self.size())
            .and_then(|()| check_op(call.op, data_type))
            .map_err(self.refusal(&call))?;
        Ok(call)
    }

    /// The error of an invalid argument.
    fn refusal(&self, call: &UnevenCall) -> impl Fn(String) -> Error + use<> {
        let (rank, call) = (self.rank(), call.collective.name());
        move |what| Error::Argument { rank, call, what }
    }

    /// Performs a call as rounds of messages. They have the tag that `rounds` gets.
    fn perform_rounds(
        &mut self,
        call: &UnevenCall,
        rounds: impl FnOnce(&mut Core, &Watch, u32) -> Result<(), CallError>,
    ) -> Result<(), Error> {
        self.engine()?.attempt(
            |seq| Operation::Uneven { call: *call, seq },
            |core, watch| {
                let tag = core.begin_messages(call, watch);
                rounds(core, watch, tag)?;
                watch.finished(core.seq, false);
                Ok(())
            },
        )
    }
}

impl Core {
    /// Performs one round of a call. Blocks.
    fn round(
        &mut self,
        exchange: &mut Exchange,
        (input, output): (&[u8], &mut [u8]),
        watch: &Watch,
        tag: u32,
    ) -> Result<(), CallError> {
        exchange.begin(tag, (self.rank, self.layout.size()), (input, &mut *output));
        self.block_on(&mut Exchanging { exchange, input, output }, watch)
    }
}

/// Checks the length of a part.
fn check_len(name: &str, len: usize, wanted: usize) -> Result<(), String> {
    if len == wanted {
        return Ok(());
    }
    Err(format!("the {name} has {len} bytes and needs {wanted}"))
}
