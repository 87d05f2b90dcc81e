//! Which schedule performs a call: chosen once, kept for the next time.

use std::collections::HashMap;
use std::time::Duration;

use ringfold_bootstrap::{CallName, Control, Windows};
use ringfold_collectives::select::{
    Constraints, Measurements, chunk_len, select, select_in_windows,
};
use ringfold_collectives::{Algorithm, Form, Plan, Schedule};
use ringfold_reduce::Kernel;
use ringfold_topology::Layout;
use ringfold_types::limits::LINK_BYTES_MIN;
use ringfold_types::{Call, Rank, ReduceOp};

use crate::config::Config;
use crate::contest::Class;
use crate::engine::Task;
use crate::error::Error;
use crate::memory::{Shape, Staging};
use crate::pair::Pair;
use crate::reach::spreads;
use crate::rows::{self, TAKEN_BYTES};
use crate::short::reduces_in_lines;
use crate::watch::Watch;

/// The schedules of a communicator.
#[derive(Debug)]
pub(crate) struct Plans {
    constraints: Constraints,
    measured: Measurements,
    /// Bytes that are passed on at a time, where the user insists.
    chunk_bytes: Option<usize>,
    /// What the buffers of all calls are.
    place: Place,
    /// Whether attached algorithms are tried, and where they were found to be faster or not.
    holds_contests: bool,
    settled: HashMap<Class, bool>,
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
    /// All of it, if it is of the shortest.
    pair: Option<Pair>,
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
    /// The whole call, if it is of the shortest.
    pub(crate) pair: Option<Pair>,
    /// Whether ranks reach into each other's memory, be it that this one's steps do not.
    pub(crate) in_windows: bool,
    /// and whether their results go to all ranks at once.
    pub(crate) spreads: bool,
    /// Whether it passes through stages, be it that this rank's steps do not.
    pub(crate) is_staged: bool,
    /// and what it leaves there lies in rows.
    in_rows: bool,
    /// Whether its messages are offered.
    is_attached: bool,
    /// What is to be tried before it is performed so.
    pub(crate) rival: Option<&'static Algorithm>,
    /// Bytes of an element, and of an element of scratch.
    pub(crate) element_bytes: (usize, usize),
    mark: Mark,
}

/// What tells a call from others.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Mark {
    /// The call in the log, with the algorithm's number among those of its collective.
    name: CallName,
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
            holds_contests: false,
            settled: HashMap::new(),
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
            holds_contests: false,
            settled: HashMap::new(),
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

    /// Tries attached algorithms from now on.
    pub(crate) fn hold_contests(&mut self) {
        self.holds_contests = true;
    }

    /// Tries them no more.
    pub(crate) fn end_contests(&mut self) {
        self.holds_contests = false;
        self.forget();
    }

    /// Performs calls of `class` by the attached algorithm from now on, or by another.
    pub(crate) fn settle(&mut self, class: Class, is_attached: bool) {
        self.settled.insert(class, is_attached);
        self.forget();
    }

    /// `call` by the algorithm that is chosen without a contest, and by its `rival`.
    pub(crate) fn contestants(
        &self,
        call: &Call,
        rival: &Algorithm,
        layout: &Layout,
        rank: Rank,
    ) -> [Entry; 2] {
        let chosen = self.choose(call, layout);
        [chosen, rival].map(|algorithm| self.make(call, algorithm, layout, rank))
    }

    pub(crate) fn forget(&mut self) {
        self.entries.clear();
        self.index.clear();
        self.latest = None;
        self.steps = 0;
    }

    /// Whether `call`, with buffers of such a `shape`, repeats the latest one: then `latest` is how
    /// it is performed, and it needs no checks.
    #[inline]
    pub(crate) fn repeats(&self, call: &Call, shape: Shape) -> bool {
        self.repeated(call, shape).is_some()
    }

    /// All of the latest call, if `call` repeats it and it is of the shortest.
    #[inline]
    pub(crate) fn pair(&self, call: &Call, shape: Shape) -> Option<&Pair> {
        self.repeated(call, shape)?.pair.as_ref()
    }

    #[inline]
    fn repeated(&self, call: &Call, shape: Shape) -> Option<&Latest> {
        self.latest.as_ref().filter(|latest| latest.call == *call && latest.shape == shape)
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
        let entry = &self.entries[at];
        let is_scaled = matches!(given.op, ReduceOp::PreMulSum(_));
        let is_plain = self.place == Place::Ordinary && !is_scaled;
        let pair = entry.pair.filter(|_| is_plain);
        self.latest = Some(Latest { call: *given, shape, at, pair });
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
        let algorithm = self.choose(&call, layout);
        let entry = match self.rival(&call, layout, algorithm) {
            Some((rival, Some(true))) => self.make(&call, rival, layout, rank),
            Some((_, Some(false))) | None => self.make(&call, algorithm, layout, rank),
            Some((rival, None)) => {
                Entry { rival: Some(rival), ..self.make(&call, algorithm, layout, rank) }
            }
        };
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

    /// The algorithm that might be faster than the one that was chosen, and whether it is, where
    /// that is known.
    fn rival(
        &self,
        call: &Call,
        layout: &Layout,
        chosen: &Algorithm,
    ) -> Option<(&'static Algorithm, Option<bool>)> {
        let class = Class::of(call, layout.size()).filter(|_| self.holds_contests)?;
        let mut known = Algorithm::of(call.collective).iter();
        let rival = known.find(|it| it.is_attached() && self.constraints.allow(it))?;
        let rows = self.measured.closest(call, layout);
        let is_measured = rows.iter().any(|row| row.algorithm == rival.name);
        let is_open = !chosen.is_attached() && !is_measured;
        is_open.then(|| (rival, self.settled.get(&class).copied()))
    }

    fn choose(&self, call: &Call, layout: &Layout) -> &'static Algorithm {
        let planned = planned(call);
        let (constraints, measured) = (&self.constraints, &self.measured);
        match self.place {
            Place::Ordinary => select(&planned, layout, constraints, measured),
            Place::Windows { shared: true } => {
                // To go through stages takes a copy, and one turn of all ranks for a short call,
                // where to read windows takes two: a gain where ranks have to take turns.
                let is_staged = layout.shares_memory() && layout.crowd().is_dense();
                let layout = layout.clone().sharing_memory(is_staged);
                select_in_windows(&planned, &layout, constraints, measured)
            }
            Place::Windows { shared: false } => {
                let layout = layout.clone().sharing_memory(false);
                select(&planned, &layout, constraints, measured)
            }
        }
    }

    fn make(&self, call: &Call, algorithm: &Algorithm, layout: &Layout, rank: Rank) -> Entry {
        let planned = planned(call);
        let chunk = match self.chunk_bytes {
            Some(bytes) => (bytes / Form::Accumulator.data_type(&planned).bytes()).max(1),
            None => chunk_len(&planned, layout),
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
        let bytes = |form: Form| form.data_type(&planned).bytes();
        let schedule = (algorithm.schedule)(&plan);
        let kernel = Kernel::new(call.data_type, planned.op, layout.size());
        let mark = Mark { name: CallName::new(call, code), fingerprint };
        Entry {
            call: *call,
            rival: None,
            is_attached: algorithm.is_attached(),
            in_lines: reduces_in_lines(&schedule),
            pair: Pair::of(&schedule, kernel, mark),
            in_windows: algorithm.needs_windows(),
            is_staged: algorithm.needs_stage(),
            // Ranks of one core share its caches.
            in_rows: rows::are_for(&schedule) && !layout.crowd().is_dense(),
            spreads: spreads(&schedule),
            element_bytes: (bytes(Form::Element), bytes(Form::Accumulator)),
            schedule,
            kernel,
            mark,
        }
    }
}

/// What is planned for `call`: its scale is applied before.
fn planned(call: &Call) -> Call {
    let op = if let ReduceOp::PreMulSum(_) = call.op { ReduceOp::Sum } else { call.op };
    Call { op, ..*call }
}

impl Entry {
    /// How so many ranks use stages in it, whose halves may have changed places.
    pub(crate) const fn staging(&self, is_turned: bool, ranks: usize) -> Staging {
        Staging { is_turned, in_rows: self.in_rows, ranks }
    }

    /// Bytes of scratch that it needs.
    pub(crate) fn scratch_bytes(&self) -> usize {
        let bytes = self.schedule.scratch_len() * self.element_bytes.1;
        // A line does not begin in the middle of another.
        if self.in_rows { bytes.next_multiple_of(64) + TAKEN_BYTES } else { bytes }
    }

    /// Begins the call as number `seq`, in `windows` if it is in some. Returns the tag of its
    /// bytes.
    pub(crate) fn begin(&self, control: &Control, seq: u64, windows: Option<Windows>) -> u32 {
        tracing::trace!("{} #{seq} by {}", self.call, self.schedule.algorithm());
        self.mark.begin(control, seq, windows)
    }

    /// The call, begun with that `tag`, ready to run.
    pub(crate) fn task<'a>(&'a self, watch: &'a Watch, tag: u32, timeout: Duration) -> Task<'a> {
        let Self { schedule, kernel, in_lines, is_attached, .. } = self;
        let (in_lines, offers) = (*in_lines, *is_attached);
        Task { schedule, kernel, in_lines, offers, tag, timeout, watch }
    }
}

impl Mark {
    /// Enters a call as number `seq`, in `windows` if it is in some. Returns the tag of its bytes.
    #[inline]
    pub(crate) fn begin(&self, control: &Control, seq: u64, windows: Option<Windows>) -> u32 {
        let seal = match windows {
            None => {
                control.entered(seq, &self.name);
                0
            }
            Some(windows) => {
                control.entered(seq, &self.name.in_windows(windows));
                let Windows { input, output, begin } = windows;
                let words = [input.into(), output.into(), begin];
                words.into_iter().fold(0, |seal, word: u64| mix(seal ^ word))
            }
        };
        // Any two fingerprints differ in half of all bits, and any two seals; consecutive
        // numbers are spread by the golden ratio.
        let word = self.fingerprint ^ seal ^ seq.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (word >> 32) as u32
    }
}

/// Spreads every bit of `word` over all bits of the result (the finalizer of `SplitMix64`).
#[inline]
pub(crate) const fn mix(word: u64) -> u64 {
    let word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    word ^ (word >> 31)
}
