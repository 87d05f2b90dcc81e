//! Caches compiled calls. The first call of a kind chooses an algorithm and lowers its schedule;
//! later calls of that kind reuse the program.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use ringfold_bootstrap::{CallName, CallWindows};
use ringfold_collectives::cost::price;
use ringfold_collectives::select::{
    Constraints, Measurements, chunk_len, select, select_in_windows, select_uneven, sum_bytes,
};
use ringfold_collectives::{Algorithm, Blocks, Form, Program, ScheduleParams, Target, lower};
use ringfold_innetwork::Reduction;
use ringfold_reduce::Kernel;
use ringfold_topology::{Layout, PeerMemory};
use ringfold_types::limits::{LINK_BYTES_MIN, RDMA_ASK_BYTES};
use ringfold_types::{
    Call, Collective, DataType, Rank, ReduceOp, UnevenCall, UnevenCollective, Wire, mix,
};

use crate::buffers::{Buffers, Memory, Place, runs_in_place};
use crate::config::Config;
use crate::error::Operation;
use crate::parts::Parts;
use crate::watch::Watch;
use ringfold_innetwork::member::LaneReduction;

/// Operations of the programs that a communicator keeps for later calls. They take about ten
/// megabytes.
const PROGRAM_OPS_KEPT: usize = 1 << 18;
/// The same for calls on blocks of different lengths, whose lengths are kept too. New lengths need
/// a new program, so these calls have a share of their own.
const UNEVEN_OPS_KEPT: usize = 1 << 16;

/// The longest buffers of short calls. The stamp and the counts at the end of such a call take a
/// tenth to a third of its time.
const SHORT_BYTES: usize = 4096;

/// The compiled calls of a communicator.
#[derive(Debug)]
pub(crate) struct ScheduleCache {
    constraints: Constraints,
    measured: Measurements,
    /// The chunk size that the user has set.
    chunk_bytes: Option<usize>,
    /// Whether messages arrive in memory that this rank reads without a copy.
    shares_memory: bool,
    even: Programs,
    /// Those on blocks of different lengths.
    uneven: Programs,
    latest: Option<Latest>,
}

/// Compiled calls of one kind.
#[derive(Debug)]
struct Programs {
    compiled: HashMap<Key, Arc<CompiledCall>>,
    /// The number of operations in all programs.
    ops: usize,
    ops_max: usize,
}

/// A call as its caller made it, without any check.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'c> {
    pub(crate) call: &'c Call,
    pub(crate) place: Place,
    /// The blocks in this rank's buffers, if their lengths may differ. Its caller has checked them.
    pub(crate) blocks: Option<&'c Blocks>,
    /// The mark by which ranks compare the call beside its fields, as the numbers of its windows.
    pub(crate) mark: Option<CallWindows>,
}

impl<'c> Request<'c> {
    /// A call on ordinary memory.
    #[inline]
    pub(crate) const fn ordinary(call: &'c Call, buffers: &Buffers<'_>) -> Self {
        Self { call, place: Place::of(buffers), blocks: None, mark: None }
    }

    /// The operation, as call number `seq`.
    pub(crate) fn operation(self, seq: u64) -> Operation {
        match self.blocks {
            Some(blocks) => Operation::Uneven { call: uneven(self.call, blocks), seq },
            None => Operation::Call { call: *self.call, seq },
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    call: Call,
    in_place: bool,
    memory: Memory,
    blocks: Option<Blocks>,
}

/// The latest request. Most calls repeat it.
#[derive(Debug)]
struct Latest {
    call: Call,
    place: Place,
    blocks: Option<Blocks>,
    compiled: Arc<CompiledCall>,
}

/// A call, ready to run.
#[derive(Debug)]
pub(crate) struct CompiledCall {
    /// The call. Its scale, if it has one, is 1.
    pub(crate) call: Call,
    /// The call as ranks compare it, if it is on blocks of different lengths.
    uneven: Option<UnevenCall>,
    pub(crate) program: Program,
    pub(crate) kernel: Kernel,
    /// Whether its buffers are so short that the end of a call without a wait is not worth a stamp.
    pub(crate) is_short: bool,
    /// The bytes of scratch memory that the call needs.
    pub(crate) scratch_bytes: usize,
    pub(crate) means: Means,
    /// The chunks that each lane of this rank hands over; empty if no lane does.
    pub(crate) handed: Vec<Option<LaneReduction>>,
    /// The call in the log, with the algorithm's number among those of its collective.
    name: CallName,
    /// The value on which ranks must agree besides the number of the call.
    fingerprint: u64,
    /// The other rank of the exchange that the program begins with. `None` unless the exchange
    /// works on the caller's buffers.
    pub(crate) exchange_with: Option<Rank>,
}

/// The means by which ranks pass data. They are the same on all ranks, even on one whose own
/// operations need only links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Means {
    /// Messages over links.
    Links,
    /// Ranks use each other's windows.
    Windows,
    /// The call passes through staging buffers.
    Staging,
    /// Receivers copy messages from their senders' memory.
    Rendezvous,
    /// Ranks hand over chunks of the call to a provider.
    Provider,
}

impl Means {
    /// The means of an algorithm on this layout.
    fn of(algorithm: &Algorithm, layout: &Layout) -> Self {
        match algorithm {
            it if it.needs_windows() => Self::Windows,
            it if it.needs_staging() => Self::Staging,
            it if it.is_single_copy() && layout.peer_memory() > PeerMemory::Closed => {
                Self::Rendezvous
            }
            it if it.needs_provider() && layout.aggregation().is_some() => Self::Provider,
            _ => Self::Links,
        }
    }
}

impl ScheduleCache {
    pub(crate) fn new(config: &Config, shares_memory: bool) -> Self {
        Self {
            constraints: config.algorithms.clone(),
            measured: config.plan.clone(),
            chunk_bytes: config.chunk_bytes,
            shares_memory,
            even: Programs::new(PROGRAM_OPS_KEPT),
            uneven: Programs::new(UNEVEN_OPS_KEPT),
            latest: None,
        }
    }

    /// The constraints of calls.
    pub(crate) const fn constraints(&self) -> &Constraints {
        &self.constraints
    }

    /// Applies `constraints` to all later calls.
    pub(crate) fn constrain(&mut self, constraints: Constraints) {
        self.constraints = constraints;
        self.forget();
    }

    pub(crate) fn forget(&mut self) {
        self.even.clear();
        self.uneven.clear();
        self.latest = None;
    }

    /// Forgets which request was the latest, but no compiled call.
    pub(crate) fn forget_latest(&mut self) {
        self.latest = None;
    }

    /// The time of the latest call by the prices of `layout`; `None` if they do not tell it.
    pub(crate) fn expected(&self, layout: &Layout) -> Option<Duration> {
        let CompiledCall { call, uneven, program, .. } = self.latest();
        let call = &unscaled(call);
        let known = Algorithm::of(call.collective).iter();
        let algorithm = known
            .filter(|_| uneven.is_none())
            .find(|it| it.name == program.algorithm() && it.has_estimate(layout))?;
        Some(price(algorithm, call, layout, self.chunk(call, layout)))
    }

    /// The elements of a chunk of a call.
    fn chunk(&self, call: &Call, layout: &Layout) -> usize {
        match self.chunk_bytes {
            Some(bytes) => (bytes / sum_bytes(call, layout)).max(1),
            None => chunk_len(call, layout),
        }
    }

    /// Whether the request repeats the latest one. It then needs no checks.
    #[inline]
    pub(crate) fn is_latest(&self, request: Request<'_>) -> bool {
        let Request { call, place, blocks, .. } = request;
        let Some(latest) = &self.latest else { return false };
        latest.place == place && latest.call == *call && latest.blocks.as_ref() == blocks
    }

    /// The blocks of the latest request, if it moved these `parts` of buffers in this place. Then
    /// they need no checks.
    pub(crate) fn latest_blocks(
        &self,
        kind: (Collective, DataType),
        parts: Parts<'_>,
        place: Place,
    ) -> Option<&Blocks> {
        let latest = self.latest.as_ref().filter(|latest| latest.place == place)?;
        let is_alike = (latest.call.collective, latest.call.data_type) == kind;
        latest.blocks.as_ref().filter(|blocks| is_alike && parts.are(blocks))
    }

    /// The latest call.
    ///
    /// # Panics
    /// If there is none.
    #[inline]
    pub(crate) fn latest(&self) -> &CompiledCall {
        let Some(latest) = &self.latest else { unreachable!("a call is compiled before it runs") };
        &latest.compiled
    }

    /// Compiles a valid request, checked as `call`, and makes it the latest.
    #[cold]
    pub(crate) fn enter(&mut self, request: Request<'_>, call: &Call, layout: &Layout, rank: Rank) {
        let Request { place, blocks, .. } = request;
        let (in_place, memory) = (runs_in_place(call, place), place.memory);
        let blocks = blocks.cloned();
        let key = Key { call: wired(call), in_place, memory, blocks: blocks.clone() };
        let compiled = self.find(key, layout, rank);
        self.latest = Some(Latest { call: *request.call, place, blocks, compiled });
    }

    /// Compiles the latest call again, for another `layout`, and forgets all others.
    pub(crate) fn renew(&mut self, layout: &Layout, rank: Rank) {
        let Some(Latest { call, place, blocks, compiled }) = self.latest.take() else { return };
        self.forget();
        let request = Request { call: &call, place, blocks: blocks.as_ref(), mark: None };
        self.enter(request, &compiled.call, layout, rank);
    }

    /// The name of the algorithm that performs `call` in such memory.
    pub(crate) fn algorithm(&self, call: &Call, memory: Memory, layout: &Layout) -> &'static str {
        self.choose(&unscaled(&wired(call)), memory, layout).name
    }

    fn find(&mut self, key: Key, layout: &Layout, rank: Rank) -> Arc<CompiledCall> {
        // Calls of every scale share one program: the scale is applied before it begins.
        let op = match key.call.op {
            ReduceOp::PreMulSum(_) => ReduceOp::pre_mul_sum(1.0),
            op => op,
        };
        let key = Key { call: Call { op, ..key.call }, ..key };
        if let Some(compiled) = self.programs(&key).compiled.get(&key) {
            return Arc::clone(compiled);
        }
        let compiled = Arc::new(self.compile(&key, layout, rank));
        self.programs(&key).keep(key, &compiled);
        compiled
    }

    const fn programs(&mut self, key: &Key) -> &mut Programs {
        if key.blocks.is_none() { &mut self.even } else { &mut self.uneven }
    }

    fn choose(&self, call: &Call, memory: Memory, layout: &Layout) -> &'static Algorithm {
        let (constraints, measured) = (&self.constraints, &self.measured);
        match memory {
            Memory::Ordinary => select(call, layout, constraints, measured),
            Memory::Windows { shared: true } => {
                // On shared cores each wait for all ranks is slow. Windows need two such waits;
                // staging buffers need one, and a copy.
                let is_staged = layout.shares_memory() && layout.occupancy().is_oversubscribed();
                let layout = layout.clone().sharing_memory(is_staged);
                select_in_windows(call, &layout, constraints, measured)
            }
            Memory::Windows { shared: false } => {
                let layout = layout.clone().sharing_memory(false);
                select(call, &layout, constraints, measured)
            }
        }
    }

    fn compile(&self, key: &Key, layout: &Layout, rank: Rank) -> CompiledCall {
        let call = unscaled(&key.call);
        let blocks = key.blocks.as_ref().map(|blocks| {
            (select_uneven(&call, blocks, layout, &self.constraints, &self.measured), blocks)
        });
        let algorithm = match blocks {
            Some((choice, _)) => choice.algorithm,
            None => self.choose(&call, key.memory, layout),
        };
        let means = Means::of(algorithm, layout);
        let chunk = self.chunk(&call, layout);
        tracing::debug!("{}: {algorithm}, chunks of {chunk} elements", key.call);
        let plan = ScheduleParams { call, layout, rank, chunk, window_bytes: LINK_BYTES_MIN };
        let target = Target {
            in_place: key.in_place,
            rendezvous: means == Means::Rendezvous,
            shares_memory: self.shares_memory,
            announces: (!self.shares_memory).then_some(RDMA_ASK_BYTES),
        };
        let known = Algorithm::of(call.collective);
        let code = known.iter().position(|a| a.name == algorithm.name).unwrap_or(usize::MAX);
        let code = u8::try_from(code).unwrap_or(u8::MAX);
        let [kinds, count, root] = key.call.to_words();
        let seal = fingerprint([kinds, count, root, code.into(), chunk as u64]);
        let (uneven, schedule) = match blocks {
            Some((choice, blocks)) => {
                (Some(uneven(&key.call, blocks)), choice.schedule(&plan, blocks))
            }
            None => (None, (algorithm.schedule)(&plan)),
        };
        let words = uneven.map(|call| call.to_words());
        let fingerprint = words.into_iter().flatten().fold(seal, |it, word| mix(it ^ word));
        let program = lower(&schedule, target);
        let scratch_bytes = (program.scratch_len() << program.shift(Form::Accumulator))
            + (program.rounded_len() << program.shift(Form::Element));
        let handed = (0..program.lanes().len()).map(|lane| handed(&program, lane, &call)).collect();
        // An average is that of as many inputs. The kernel of a rank without any is not used.
        let summands = call.summands(rank, layout.size()).len().max(1);
        let is_plain = key.memory == Memory::Ordinary && key.call.op == call.op;
        let is_plain = is_plain && uneven.is_none();
        let name =
            uneven.map_or_else(|| CallName::new(&key.call, code), |call| CallName::uneven(&call));
        CompiledCall {
            call: key.call,
            uneven,
            exchange_with: program.exchange().map(|(with, ..)| with).filter(|_| is_plain),
            program,
            kernel: Kernel::new(call.data_type, call.op, summands),
            is_short: is_short(&call, layout.size()),
            scratch_bytes,
            means,
            handed,
            name,
            fingerprint,
        }
    }
}

/// Whether a call moves at most `SHORT_BYTES` of a rank.
fn is_short(call: &Call, ranks: usize) -> bool {
    let longest = call.input_len(ranks).max(call.output_len(ranks));
    longest.saturating_mul(call.data_type.bytes()) <= SHORT_BYTES
}

/// The chunks that a lane hands over.
fn handed(program: &Program, lane: usize, call: &Call) -> Option<LaneReduction> {
    let group = program.group(lane)?;
    let collective = match call.collective {
        // Each member keeps the results of an all-reduce, for a root that lacks some when the
        // provider fails. The other members may have left the call by then.
        Collective::Reduce => Collective::AllReduce,
        collective => collective,
    };
    let form = match group.form {
        Form::Element => Wire::Element,
        Form::Accumulator => Wire::Accumulator,
    };
    let Call { data_type, op, .. } = *call;
    let reduction = Reduction { collective, data_type, op, root: 0, form };
    Some(LaneReduction { group: group.number, reduction })
}

/// The call on `blocks` as ranks compare it.
fn uneven(call: &Call, blocks: &Blocks) -> UnevenCall {
    let collective = match call.collective {
        Collective::ReduceScatter => UnevenCollective::ReduceScatterV,
        _ => UnevenCollective::AllGatherV,
    };
    let lens: Vec<usize> = blocks.lens().collect();
    UnevenCall { op: call.op, ..UnevenCall::new(collective, call.data_type).with_counts(&lens) }
}

/// The call, with the default form of partial results where the form makes no difference.
fn wired(call: &Call) -> Call {
    Call { wire: if call.has_wire() { call.wire } else { Wire::default() }, ..*call }
}

/// The call to compile for `call`, whose scale is applied before its program begins.
fn unscaled(call: &Call) -> Call {
    let op = if let ReduceOp::PreMulSum(_) = call.op { ReduceOp::Sum } else { call.op };
    Call { op, ..*call }
}

impl Programs {
    fn new(ops_max: usize) -> Self {
        Self { compiled: HashMap::new(), ops: 0, ops_max }
    }

    fn clear(&mut self) {
        self.compiled.clear();
        self.ops = 0;
    }

    /// Keeps a compiled call, in place of all others if there would be too many operations.
    fn keep(&mut self, key: Key, compiled: &Arc<CompiledCall>) {
        // A program without operations takes memory too.
        let lens = key.blocks.as_ref().map_or(0, Blocks::size);
        let ops = 16 + lens + compiled.program.lanes().iter().map(Vec::len).sum::<usize>();
        if self.ops + ops > self.ops_max {
            self.clear();
        }
        self.ops += ops;
        self.compiled.insert(key, Arc::clone(compiled));
    }
}

impl CompiledCall {
    /// The operation, as call number `seq`.
    pub(crate) const fn operation(&self, seq: u64) -> Operation {
        match self.uneven {
            Some(call) => Operation::Uneven { call, seq },
            None => Operation::Call { call: self.call, seq },
        }
    }

    /// The name of the collective, as in `allgatherv`.
    pub(crate) const fn collective(&self) -> &'static str {
        match &self.uneven {
            Some(call) => call.collective.name(),
            None => self.call.collective.name(),
        }
    }

    /// Has the calls from number `seq` on count as calls of this kind.
    #[cold]
    pub(crate) fn begins_kind(&self, watch: &Watch, seq: u64) {
        watch.begins_kind(seq, &self.name);
    }

    /// Logs the call as number `seq`, with its mark. Returns the tag of its messages and signals.
    #[expect(clippy::inline_always, reason = "a part of the shortest calls")]
    #[inline(always)]
    pub(crate) fn begin(&self, watch: &Watch, seq: u64, mark: Option<CallWindows>) -> u32 {
        let seal = match mark {
            None => {
                watch.entered(seq, &self.name);
                0
            }
            Some(windows) => {
                watch.entered(seq, &self.name.in_windows(windows));
                let CallWindows { input, output, begin } = windows;
                let words = [input.into(), output.into(), begin];
                words.into_iter().fold(0, |seal, word: u64| mix(seal ^ word))
            }
        };
        tag(self.fingerprint ^ seal, seq)
    }
}

/// The tag of the messages of a call that has these words and no program.
pub(crate) fn tag_of(words: [u64; 4], seq: u64) -> u32 {
    tag(fingerprint(words), seq)
}

/// The tag of call number `seq`. Two fingerprints, and two seals, differ in about half of their
/// bits. The golden ratio spreads consecutive numbers.
#[inline]
const fn tag(fingerprint: u64, seq: u64) -> u32 {
    ((fingerprint ^ seq.wrapping_mul(0x9e37_79b9_7f4a_7c15)) >> 32) as u32
}

/// A hash of the words on which ranks must agree.
fn fingerprint<const N: usize>(words: [u64; N]) -> u64 {
    words.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, word| mix(hash ^ word))
}
