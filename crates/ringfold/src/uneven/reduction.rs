//! The reduction of buffers by an operation of the user.

use std::any::Any;
use std::ops::Range;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use ringfold_collectives::Progress;
use ringfold_types::limits::{LINK_BYTES_MIN, UNEVEN_ROUND_BYTES};
use ringfold_types::{DataType, Rank, UnevenCall, UnevenCollective};

use crate::buffers::AlignedBytes;
use crate::error::CallError;
use crate::execute::Work;
use crate::messages::{Exchange, Exchanging};
use crate::router::Router;
use crate::watch::Watch;

/// Bytes of all parts that one rank receives in one round, beyond the least round of
/// `LINK_BYTES_MIN` bytes for each rank.
const UNEVEN_SCRATCH_BYTES: usize = 16 * 1024 * 1024;

/// An operation on elements that are bytes.
pub(super) struct OnBytes {
    pub(super) name: Box<str>,
    /// A hash of the name, of the size of an element and of the number of the operation on its
    /// communicator.
    pub(super) hash: u32,
    /// The bytes of an element.
    pub(super) element: usize,
    pub(super) combine: Box<Combine>,
}

pub(super) type Combine = dyn Fn(&mut [u8], &[u8]) + Send + Sync;

/// A reduction by an operation of the user: the parts of all ranks' buffers are combined, each on
/// its rank, in rank order. In rounds of limited length, ranks exchange their contributions like an
/// all-to-all.
#[derive(Clone)]
pub(crate) struct Reduction {
    pub(crate) call: UnevenCall,
    operation: Arc<OnBytes>,
    /// The bytes of each rank's part.
    ranges: Vec<Range<usize>>,
    /// Bytes of a part in one round.
    most: usize,
    /// Bytes of each part that the rounds before have combined.
    done: usize,
    /// The messages of the round.
    exchange: Exchange,
    /// Whether the round has begun.
    has_begun: bool,
}

/// A reduction in the memory of its call.
pub(crate) struct Reducing<'m> {
    pub(crate) reduction: &'m mut Reduction,
    pub(crate) tag: u32,
    /// This rank, and the number of ranks.
    pub(crate) ranks: (Rank, usize),
    pub(crate) buffer: &'m mut [u8],
    /// The memory of the contributions.
    pub(crate) memory: &'m mut AlignedBytes,
}

impl Reduction {
    /// The reduction of buffers of `len` bytes of `size` ranks.
    pub(super) fn new(len: usize, size: usize, operation: &Arc<OnBytes>) -> Self {
        let element = operation.element;
        // The first parts have one element more if the others leave a rest.
        let (share, rest) = (len / element / size, len / element % size);
        let begin = |part: usize| (share * part + rest.min(part)) * element;
        let ranges: Vec<_> = (0..size).map(|part| begin(part)..begin(part + 1)).collect();
        let most = (UNEVEN_SCRATCH_BYTES / size).clamp(LINK_BYTES_MIN, UNEVEN_ROUND_BYTES);
        let mut reduction = Self {
            call: UnevenCall::new(UnevenCollective::UserReduce, DataType::U8),
            operation: Arc::clone(operation),
            ranges,
            most: most / element * element,
            done: 0,
            exchange: Exchange::default(),
            has_begun: false,
        };
        let call = reduction.call.with_counts(&reduction.counts());
        reduction.call = UnevenCall { counts_hash: call.counts_hash ^ operation.hash, ..call };
        reduction
    }

    pub(super) fn counts(&self) -> Vec<usize> {
        self.ranges.iter().map(Range::len).collect()
    }

    fn is_done(&self) -> bool {
        self.ranges.iter().all(|range| range.len() <= self.done)
    }

    /// The bytes of a rank's part in this round.
    fn in_round(&self, rank: usize) -> Range<usize> {
        let range = &self.ranges[rank];
        let end = range.len().min(self.done + self.most);
        range.start + self.done.min(end)..range.start + end
    }
}

impl Reducing<'_> {
    /// The messages of this round, which begins now if it has not begun.
    fn round(&mut self) -> Exchanging<'_> {
        let Self { reduction, tag, ranks, buffer, memory } = self;
        let bytes = reduction.in_round(ranks.0.index()).len();
        let contributions = memory.exactly(ranks.1 * bytes);
        if !std::mem::replace(&mut reduction.has_begun, true) {
            reduction.exchange.clear();
            for rank in 0..ranks.1 {
                let sent = reduction.in_round(rank);
                reduction.exchange.send(Rank::at(rank), sent);
                reduction.exchange.receive(Rank::at(rank), rank * bytes..(rank + 1) * bytes);
            }
            reduction.exchange.begin(*tag, *ranks, (buffer, &mut *contributions));
        }
        Exchanging { exchange: &mut reduction.exchange, input: buffer, output: contributions }
    }

    /// Combines the contributions of this round, and ends it.
    fn combine(&mut self) -> Result<(), CallError> {
        let Self { reduction, ranks, buffer, memory, .. } = self;
        let part = reduction.in_round(ranks.0.index());
        let contributions = memory.front(ranks.1 * part.len());
        reduction.operation.combine_in_order(&mut buffer[part], contributions)?;
        reduction.done += reduction.most;
        reduction.has_begun = false;
        Ok(())
    }
}

impl Work for Reducing<'_> {
    fn advance(
        &mut self,
        router: &mut Router,
        watch: &Watch,
        budget: usize,
    ) -> Result<Progress, CallError> {
        let mut has_moved = false;
        while !self.reduction.is_done() {
            match self.round().advance(router, watch, budget)? {
                Progress::Done => self.combine()?,
                Progress::Idle if has_moved => return Ok(Progress::Moved),
                progress => return Ok(progress),
            }
            has_moved = true;
        }
        Ok(Progress::Done)
    }

    fn check_peers(&mut self, router: &Router, watch: &Watch) -> Result<(), CallError> {
        if self.reduction.is_done() { Ok(()) } else { self.round().check_peers(router, watch) }
    }
}

impl OnBytes {
    /// Combines contributions that follow each other in `from`.
    fn combine_in_order(&self, into: &mut [u8], from: &[u8]) -> Result<(), CallError> {
        if into.is_empty() {
            return Ok(());
        }
        let mut contributions = from.chunks_exact(into.len());
        if let Some(first) = contributions.next() {
            into.copy_from_slice(first);
        }
        let combined = catch_unwind(AssertUnwindSafe(|| {
            contributions.for_each(|part| (self.combine)(into, part));
        }));
        combined.map_err(|panic| {
            let text = text_of(&*panic);
            CallError::Panicked(format!("the operation {:?} panicked: {text}", self.name))
        })
    }
}

/// The text of a panic.
fn text_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no text")
}
