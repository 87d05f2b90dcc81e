//! Caches compiled calls. The first call of a kind chooses an algorithm and lowers its schedule;
//! later calls of that kind reuse the program.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use ringfold_bootstrap::{CallName, Control, Windows};
use ringfold_collectives::select::{
    Constraints, Measurements, chunk_len, select, select_in_windows, select_uneven, sum_bytes,
};
use ringfold_collectives::{Algorithm, Blocks, Form, Program, ScheduleParams, Target, lower};
use ringfold_reduce::Kernel;
use ringfold_topology::{Layout, PeerMemory};
use ringfold_transport::offload::Reduction;
use ringfold_types::limits::{LINK_BYTES_MIN, PROGRAM_OPS_KEPT, UNEVEN_OPS_KEPT};
use ringfold_types::{Call, Collective, Rank, ReduceOp, UnevenCall, Wire};

use crate::buffers::{Buffers, Shape, runs_in_place};
use crate::config::Config;
use crate::digest::mix;
use crate::error::Operation;
use crate::offload::Handed;
use crate::parts::Parts;

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

/// A call on blocks whose lengths may differ. All ranks know the lengths.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Table {
    /// The call as ranks compare it.
    pub(crate) call: UnevenCall,
    /// The blocks in this rank's buffers.
    pub(crate) blocks: Blocks,
}

/// The kind of memory that a call's buffers are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Memory {
    /// Memory of this rank alone.
    Ordinary,
    /// Windows. `shared` says whether all ranks have them mapped.
    Windows { shared: bool },
}

/// A call as its caller made it, without any check.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Request<'c> {
    pub(crate) call: &'c Call,
    pub(crate) shape: Shape,
    pub(crate) memory: Memory,
    /// The blocks, if their lengths may differ.
    pub(crate) table: Option<&'c Table>,
}

impl<'c> Request<'c> {
    /// A call on ordinary memory.
    #[inline]
    pub(crate) const fn ordinary(call: &'c Call, buffers: &Buffers<'_>) -> Self {
        Self { call, shape: Shape::of(buffers), memory: Memory::Ordinary, table: None }
    }

    /// The same request on other buffers of ordinary memory.
    pub(crate) const fn on(self, buffers: &Buffers<'_>) -> Self {
        Self { shape: Shape::of(buffers), memory: Memory::Ordinary, ..self }
    }
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    call: Call,
    in_place: bool,
    memory: Memory,
    table: Option<Table>,
}

/// The latest request. Most calls repeat it.
#[derive(Debug)]
struct Latest {
    call: Call,
    shape: Shape,
    memory: Memory,
    table: Option<Table>,
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
    /// The bytes of scratch memory that the call needs.
    pub(crate) scratch_bytes: usize,
    /// Whether ranks use each other's windows. True even if this rank's own operations do not.
    pub(crate) in_windows: bool,
    /// Whether the call passes through staging buffers. True even if this rank's own operations do
    /// not.
    pub(crate) is_staged: bool,
    /// Whether receivers copy messages from their senders' memory.
    pub(crate) is_rendezvous: bool,
    /// Whether ranks hand over chunks of the call to a provider. True even if this rank does not.
    pub(crate) is_offloaded: bool,
    /// The chunks that each lane of this rank hands over; empty if no lane does.
    pub(crate) handed: Vec<Option<Handed>>,
    /// The call in the log, with the algorithm's number among those of its collective.
    name: CallName,
    /// The value on which ranks must agree besides the number of the call.
    fingerprint: u64,
    /// The other rank of the exchange that the program begins with. `None` unless the exchange
    /// works on the caller's buffers.
    pub(crate) exchange_with: Option<Rank>,
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

    /// Whether the request repeats the latest one. It then needs no checks.
    #[inline]
    pub(crate) fn is_latest(&self, request: Request<'_>) -> bool {
        let Request { call, shape, memory, table } = request;
        self.latest.as_ref().is_some_and(|latest| {
            latest.shape == shape
                && latest.memory == memory
                && latest.call == *call
                && latest.table.as_ref() == table
        })
    }

    /// The table of the latest request, if it was `call` on `parts` of buffers of these lengths.
    /// Then they need no checks.
    pub(crate) fn latest_table(
        &self,
        call: &UnevenCall,
        parts: Parts<'_>,
        shape: Shape,
    ) -> Option<&Table> {
        let latest = self.latest.as_ref().filter(|latest| latest.shape == shape)?;
        latest.table.as_ref().filter(|it| it.call == *call && parts.are(&it.blocks))
    }

    /// The latest call.
    #[inline]
    pub(crate) fn latest(&self) -> Option<&CompiledCall> {
        self.latest.as_ref().map(|latest| &*latest.compiled)
    }

    /// Compiles a valid request, checked as `call`, and makes it the latest.
    #[cold]
    pub(crate) fn enter(&mut self, request: Request<'_>, call: &Call, layout: &Layout, rank: Rank) {
        let Request { shape, memory, table, .. } = request;
        let (in_place, table) = (runs_in_place(call, shape), table.cloned());
        let key = Key { call: wired(call), in_place, memory, table: table.clone() };
        let compiled = self.find(key, layout, rank);
        self.latest = Some(Latest { call: *request.call, shape, memory, table, compiled });
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
        if key.table.is_none() { &mut self.even } else { &mut self.uneven }
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
        let uneven = key.table.as_ref().map(|Table { blocks, .. }| {
            (select_uneven(&call, blocks, layout, &self.constraints, &self.measured), blocks)
        });
        let algorithm = match uneven {
            Some((uneven, _)) => uneven.algorithm,
            None => self.choose(&call, key.memory, layout),
        };
        let chunk = match self.chunk_bytes {
            Some(bytes) => (bytes / sum_bytes(&call, layout)).max(1),
            None => chunk_len(&call, layout),
        };
        tracing::debug!("{}: {algorithm}, chunks of {chunk} elements", key.call);
        let plan = ScheduleParams { call, layout, rank, chunk, window_bytes: LINK_BYTES_MIN };
        let target = Target {
            in_place: key.in_place,
            rendezvous: algorithm.is_single_copy() && layout.peer_memory() > PeerMemory::Closed,
            shares_memory: self.shares_memory,
        };
        let known = Algorithm::of(call.collective);
        let code = known.iter().position(|a| a.name == algorithm.name).unwrap_or(usize::MAX);
        let code = u8::try_from(code).unwrap_or(u8::MAX);
        let [kinds, count, root] = key.call.to_words();
        let seal = fingerprint([kinds, count, root, code.into(), chunk as u64]);
        let fingerprint = match &key.table {
            Some(table) => table.call.to_words().into_iter().fold(seal, |it, word| mix(it ^ word)),
            None => seal,
        };
        let schedule = match uneven {
            Some((uneven, blocks)) => uneven.schedule(&plan, blocks),
            None => (algorithm.schedule)(&plan),
        };
        let program = lower(&schedule, target);
        let scratch_bytes = (program.scratch_len() << program.shift(Form::Accumulator))
            + (program.rounded_len() << program.shift(Form::Element));
        let handed = (0..program.lanes().len()).map(|lane| handed(&program, lane, &call)).collect();
        // An average is that of as many inputs. The kernel of a rank without any is not used.
        let summands = call.summands(rank, layout.size()).len().max(1);
        let is_plain = key.memory == Memory::Ordinary && key.call.op == call.op;
        let is_plain = is_plain && key.table.is_none();
        let name = match &key.table {
            Some(table) => CallName::uneven(&table.call),
            None => CallName::new(&key.call, code),
        };
        CompiledCall {
            call: key.call,
            uneven: key.table.as_ref().map(|table| table.call),
            exchange_with: program.exchange().map(|(with, ..)| with).filter(|_| is_plain),
            program,
            kernel: Kernel::new(call.data_type, call.op, summands),
            scratch_bytes,
            in_windows: algorithm.needs_windows(),
            is_staged: algorithm.needs_staging(),
            is_rendezvous: target.rendezvous,
            is_offloaded: algorithm.needs_provider() && layout.aggregation().is_some(),
            handed,
            name,
            fingerprint,
        }
    }
}

/// The chunks that a lane hands over.
fn handed(program: &Program, lane: usize, call: &Call) -> Option<Handed> {
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
    Some(Handed { group: group.number, reduction })
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
        let lens = key.table.as_ref().map_or(0, |table| table.blocks.size());
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

    /// Logs the call as number `seq`, in `windows` if there are any. Returns the tag of its
    /// messages and signals.
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

impl fmt::Display for CompiledCall {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.uneven {
            Some(call) => write!(f, "{call} by {}", self.program.algorithm()),
            None => write!(f, "{} by {}", self.call, self.program.algorithm()),
        }
    }
}
