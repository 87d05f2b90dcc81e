//! Which schedule performs a call: chosen once, kept for the next time.

use std::collections::HashMap;

use ringfold_collectives::select::Constraints;
use ringfold_collectives::{Algorithm, Form, Plan, Schedule};
use ringfold_reduce::Kernel;
use ringfold_topology::Layout;
use ringfold_types::limits::LINK_BYTES_MIN;
use ringfold_types::{Call, Rank, ReduceOp};

use crate::error::Error;

/// The schedules of a communicator.
#[derive(Debug)]
pub(crate) struct Plans {
    constraints: Constraints,
    /// Bytes that are passed on at a time, where the user insists.
    chunk_bytes: Option<usize>,
    entries: Vec<Entry>,
    index: HashMap<Call, usize>,
    /// The entry that was asked for last: most calls repeat the one before.
    latest: Option<(Call, usize)>,
    /// Steps in all entries together.
    steps: usize,
}

/// How one call is performed.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) schedule: Schedule,
    pub(crate) kernel: Kernel,
    /// The algorithm's number among those of its collective.
    pub(crate) code: u8,
    /// What the ranks must agree on besides the call's number.
    fingerprint: u64,
}

/// Steps that are kept for later calls; at 40 bytes each, some ten megabytes.
const STEPS_KEPT: usize = 1 << 18;

impl Plans {
    pub(crate) fn new(constraints: Constraints, chunk_bytes: Option<usize>) -> Self {
        Self {
            constraints,
            chunk_bytes,
            entries: Vec::new(),
            index: HashMap::new(),
            latest: None,
            steps: 0,
        }
    }

    /// How `call` is performed.
    pub(crate) fn entry(
        &mut self,
        call: &Call,
        layout: &Layout,
        rank: Rank,
    ) -> Result<&Entry, Error> {
        // The scale is applied before the schedule begins: every scale has the same plan.
        let op = match call.op {
            ReduceOp::PreMulSum(_) => ReduceOp::pre_mul_sum(1.0),
            op => op,
        };
        let call = &Call { op, ..*call };
        let at = match self.latest {
            Some((latest, at)) if latest == *call => at,
            _ => self.find(call, layout, rank)?,
        };
        Ok(&self.entries[at])
    }

    #[cold]
    fn find(&mut self, call: &Call, layout: &Layout, rank: Rank) -> Result<usize, Error> {
        let at = match self.index.get(call) {
            Some(at) => *at,
            None => {
                let entry = self.make(call, layout, rank)?;
                // An entry takes memory even if it has no steps.
                let steps = 16 + entry.schedule.lanes().iter().map(Vec::len).sum::<usize>();
                if self.steps + steps > STEPS_KEPT {
                    self.entries.clear();
                    self.index.clear();
                    self.steps = 0;
                }
                self.steps += steps;
                self.entries.push(entry);
                self.index.insert(*call, self.entries.len() - 1);
                self.entries.len() - 1
            }
        };
        self.latest = Some((*call, at));
        Ok(at)
    }

    fn make(&self, call: &Call, layout: &Layout, rank: Rank) -> Result<Entry, Error> {
        let op = if let ReduceOp::PreMulSum(_) = call.op { ReduceOp::Sum } else { call.op };
        let planned = Call { op, ..*call };
        let algorithm = ringfold_collectives::select::select(&planned, layout, &self.constraints);
        let chunk = match self.chunk_bytes {
            Some(bytes) => (bytes / Form::Accumulator.data_type(&planned).bytes()).max(1),
            None => ringfold_collectives::select::chunk_len(&planned, layout),
        };
        let plan = Plan { call: planned, layout, rank, chunk, window_bytes: LINK_BYTES_MIN };
        let known = Algorithm::of(call.collective);
        let code = known.iter().position(|a| a.name == algorithm.name).unwrap_or(usize::MAX);
        let code = u8::try_from(code).unwrap_or(u8::MAX);
        tracing::debug!("{call}: {algorithm}, chunks of {chunk} elements");
        let [kinds, count, root] = call.to_words();
        let fingerprint = [kinds, count, root, code.into(), chunk as u64]
            .into_iter()
            .fold(0xcbf2_9ce4_8422_2325, |hash, word| mix(hash ^ word));
        Ok(Entry {
            schedule: (algorithm.schedule)(&plan),
            kernel: Kernel::new(call.data_type, op, layout.size()),
            code,
            fingerprint,
        })
    }
}

impl Entry {
    /// The mark of this call's bytes when it is number `seq`.
    pub(crate) fn tag(&self, seq: u64) -> u32 {
        let [a, b, c, d, ..] = mix(self.fingerprint ^ seq).to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }

    /// Bytes of an element, and of an element of scratch.
    pub(crate) fn element_bytes(&self) -> (usize, usize) {
        let bytes = |form: Form| form.data_type(self.schedule.call()).bytes();
        (bytes(Form::Element), bytes(Form::Accumulator))
    }
}

/// Spreads every bit of `word` over all bits of the result (the finalizer of `SplitMix64`).
const fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
