//! Which schedule performs a call: chosen once, kept for the next time.

use std::collections::HashMap;
use std::time::Duration;

use ringfold_bootstrap::Control;
use ringfold_bootstrap::IN_WINDOWS;
use ringfold_collectives::select::{
    Constraints, Measurements, chunk_len, select, select_in_windows,
};
use ringfold_collectives::{Algorithm, Form, Plan, Schedule};
use ringfold_reduce::Kernel;
use ringfold_topology::Layout;
use ringfold_types::limits::LINK_BYTES_MIN;
use ringfold_types::{Call, Rank, ReduceOp};

use crate::config::Config;
use crate::engine::Task;
use crate::error::Error;
use crate::memory::Shape;
use crate::reach::spreads;
use crate::short::reduces_in_lines;

/// The schedules of a communicator.
#[derive(Debug)]
pub(crate) struct Plans {
    constraints: Constraints,
    measured: Measurements,
    /// Bytes that are passed on at a time, where the user insists.
    chunk_bytes: Option<usize>,
    /// What the buffers of all calls are.
    place: Place,
    entries: Vec<Entry>,
    index: HashMap<Call, usize>,
    latest: Option<Latest>,
    /// Steps in all entries together.
    steps: usize,
}

/// What the buffers of calls are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// Any memory of their rank's.
    Ordinary,
    /// Windows; whether everyone has mapped them.
    Windows { shared: bool },
}

/// The call that was made last, as its caller made it: most calls repeat the one before.
#[derive(Debug)]
struct Latest {
    call: Call,
    shape: Shape,
    at: usize,
}

/// How one call is performed.
#[derive(Debug)]
pub(crate) struct Entry {
    /// The call; its scale, if it has one, is 1.
    pub(crate) call: Call,
    pub(crate) schedule: Schedule,
    pub(crate) kernel: Kernel,
    /// Whether its reductions are short,
    pub(crate) in_lines: bool,
    /// Whether ranks reach into each other's memory, be it that this one's steps do not.
    pub(crate) in_windows: bool,
    /// and whether their results go to all ranks at once.
    pub(crate) spreads: bool,
    /// The algorithm's number among those of its collective, and whether the buffers are windows.
    pub(crate) code: u8,
    /// Bytes of an element, and of an element of scratch.
    pub(crate) element_bytes: (usize, usize),
    /// What the ranks must agree on besides the call's number.
    fingerprint: u64,
}

/// Steps that are kept for later calls; at 40 bytes each, some ten megabytes.
const STEPS_KEPT: usize = 1 << 18;

impl Plans {
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            constraints: config.algorithms.clone(),
            measured: config.plan.clone(),
            chunk_bytes: config.chunk_bytes,
            place: Place::Ordinary,
            entries: Vec::new(),
            index: HashMap::new(),
            latest: None,
            steps: 0,
        }
    }

    /// Plans by the same settings for calls on other buffers.
    pub(crate) fn for_place(&self, place: Place) -> Self {
        Self {
            constraints: self.constraints.clone(),
            measured: self.measured.clone(),
            chunk_bytes: self.chunk_bytes,
            place,
            entries: Vec::new(),
            index: HashMap::new(),
            latest: None,
            steps: 0,
        }
    }

    /// Chooses among `constraints` from now on.
    pub(crate) fn constrain(&mut self, constraints: Constraints) {
        self.constraints = constraints;
        self.forget();
    }

    fn forget(&mut self) {
        self.entries.clear();
        self.index.clear();
        self.latest = None;
        self.steps = 0;
    }

    /// Whether `call`, with buffers of such a `shape`, repeats the latest one: then `latest` is how
    /// it is performed, and it needs no checks.
    #[inline]
    pub(crate) fn repeats(&self, call: &Call, shape: Shape) -> bool {
        self.latest.as_ref().is_some_and(|latest| latest.call == *call && latest.shape == shape)
    }

    /// How the latest call is performed.
    #[inline]
    pub(crate) fn latest(&self) -> &Entry {
        let at = self.latest.as_ref().map_or(0, |latest| latest.at);
        &self.entries[at]
    }

    /// Makes a call the latest that its caller put as `given`, with buffers of such a `shape`, and
    /// that was found to be good as `call`.
    #[cold]
    pub(crate) fn enter(
        &mut self,
        (given, shape): (&Call, Shape),
        call: &Call,
        layout: &Layout,
        rank: Rank,
    ) -> Result<(), Error> {
        let at = self.find(call, layout, rank)?;
        self.latest = Some(Latest { call: *given, shape, at });
        Ok(())
    }

    /// How `call` is performed.
    pub(crate) fn entry(
        &mut self,
        call: &Call,
        layout: &Layout,
        rank: Rank,
    ) -> Result<&Entry, Error> {
        self.find(call, layout, rank).map(|at| &self.entries[at])
    }

    fn find(&mut self, call: &Call, layout: &Layout, rank: Rank) -> Result<usize, Error> {
        // The scale is applied before the schedule begins: every scale has the same plan.
        let op = match call.op {
            ReduceOp::PreMulSum(_) => ReduceOp::pre_mul_sum(1.0),
            op => op,
        };
        let call = Call { op, ..*call };
        if let Some(at) = self.index.get(&call) {
            return Ok(*at);
        }
        let entry = self.make(&call, layout, rank)?;
        // An entry takes memory even if it has no steps.
        let steps = 16 + entry.schedule.lanes().iter().map(Vec::len).sum::<usize>();
        if self.steps + steps > STEPS_KEPT {
            self.forget();
        }
        self.steps += steps;
        self.entries.push(entry);
        self.index.insert(call, self.entries.len() - 1);
        Ok(self.entries.len() - 1)
    }

    fn make(&self, call: &Call, layout: &Layout, rank: Rank) -> Result<Entry, Error> {
        let op = if let ReduceOp::PreMulSum(_) = call.op { ReduceOp::Sum } else { call.op };
        let planned = Call { op, ..*call };
        let select = match self.place {
            Place::Windows { shared: true } => select_in_windows,
            Place::Windows { shared: false } | Place::Ordinary => select,
        };
        let algorithm = select(&planned, layout, &self.constraints, &self.measured);
        let chunk = match self.chunk_bytes {
            Some(bytes) => (bytes / Form::Accumulator.data_type(&planned).bytes()).max(1),
            None => chunk_len(&planned, layout),
        };
        let plan = Plan { call: planned, layout, rank, chunk, window_bytes: LINK_BYTES_MIN };
        let known = Algorithm::of(call.collective);
        let code = known.iter().position(|a| a.name == algorithm.name).unwrap_or(usize::MAX);
        let code = u8::try_from(code).unwrap_or(u8::MAX);
        // To take a window is to call something else, whatever runs.
        let code = if self.place == Place::Ordinary { code } else { code | IN_WINDOWS };
        tracing::debug!("{call}: {algorithm}, chunks of {chunk} elements");
        let [kinds, count, root] = call.to_words();
        let fingerprint = [kinds, count, root, code.into(), chunk as u64]
            .into_iter()
            .fold(0xcbf2_9ce4_8422_2325, |hash, word| mix(hash ^ word));
        let bytes = |form: Form| form.data_type(&planned).bytes();
        let schedule = (algorithm.schedule)(&plan);
        Ok(Entry {
            call: *call,
            in_lines: reduces_in_lines(&schedule),
            in_windows: algorithm.needs_windows(),
            spreads: spreads(&schedule),
            element_bytes: (bytes(Form::Element), bytes(Form::Accumulator)),
            schedule,
            kernel: Kernel::new(call.data_type, op, layout.size()),
            code,
            fingerprint,
        })
    }
}

impl Entry {
    /// Begins the call as number `seq`; `mark` is what the ranks must agree on besides.
    #[inline]
    pub(crate) fn begin<'a>(
        &'a self,
        control: &'a Control,
        seq: u64,
        mark: u64,
        timeout: Duration,
    ) -> Task<'a> {
        control.entered(seq, &self.call, self.code);
        tracing::trace!("{} #{seq} by {}", self.call, self.schedule.algorithm());
        Task {
            schedule: &self.schedule,
            kernel: &self.kernel,
            in_lines: self.in_lines,
            tag: self.tag(seq ^ mark),
            timeout,
            control,
        }
    }

    /// The mark of this call's bytes when it is number `seq`.
    fn tag(&self, seq: u64) -> u32 {
        let [a, b, c, d, ..] = mix(self.fingerprint ^ seq).to_le_bytes();
        u32::from_le_bytes([a, b, c, d])
    }
}

/// Spreads every bit of `word` over all bits of the result (the finalizer of `SplitMix64`).
pub(crate) const fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
