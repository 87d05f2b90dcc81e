//! Calls: from the arguments of Python to those of ringfold.
#![allow(unsafe_code)]

use std::sync::Arc;

use pyo3::prelude::*;
use ringfold::{
    Call, Collective, Communicator, DataType, Error, Parts, Rank, ReduceOp, Uneven, Wire,
};

use crate::element::{Element, operation};
use crate::fault::raise;
use crate::handle::{Handle, duration, interruptible, wait_or_abort};
use crate::memory::{Memory, Places, keep};
use crate::queue::{Attempt, Fault, Member, Ticket};
use crate::region::{Access, Region};

/// The arguments that all calls take.
pub(crate) struct Common<'a, 'py> {
    /// The type of the elements, if the caller names it.
    pub(crate) dtype: Option<&'a Bound<'py, PyAny>>,
    /// Whether the call runs in the background.
    pub(crate) async_op: bool,
    /// The time in seconds that the call may take, if it has one of its own.
    pub(crate) timeout: Option<f64>,
    /// An object that lives until the call is done.
    pub(crate) keep: Option<Py<PyAny>>,
}

/// The result of a method: a handle for a call in the background, and otherwise `None`.
pub(crate) type Called = PyResult<Option<Handle>>;

/// Runs `work` in this thread, or in the background after all calls before it.
///
/// `work` uses the regions of `memories`, which live until it is done.
#[inline]
pub(crate) fn dispatch<W>(
    py: Python<'_>,
    member: &Arc<Member>,
    memories: impl IntoIterator<Item = Memory>,
    common: Common<'_, '_>,
    work: W,
) -> Called
where
    W: FnOnce(&mut Communicator) -> Result<(), Error> + Send + 'static,
{
    let timeout = common.timeout.map(|seconds| duration(py, "timeout", seconds)).transpose()?;
    let work = if common.async_op {
        work
    } else {
        let (attempt, interrupt) = interruptible(py, || member.try_now(timeout, work));
        if let Some(interrupt) = interrupt {
            return Err(interrupt);
        }
        match attempt {
            Attempt::Ran(Ok(())) => return Ok(None),
            Attempt::Ran(Err(fault)) => return Err(raise(py, fault)),
            Attempt::Busy(work) => work,
        }
    };
    let ticket = Ticket::new(member, Box::new(keep(py, memories, common.keep)?));
    member.submit(timeout, work, &ticket).map_err(|fault| raise(py, fault))?;
    if common.async_op {
        return Ok(Some(Handle::new(ticket)));
    }
    wait_or_abort(py, &ticket)?;
    Ok(None)
}

/// The type of the elements of a call's memory.
pub(crate) fn element_of<'m>(
    dtype: Option<&Bound<'_, PyAny>>,
    memories: impl IntoIterator<Item = &'m Memory>,
) -> PyResult<Result<Element, Fault>> {
    let named = match dtype.map(Element::named).transpose()? {
        Some(Err(fault)) => return Ok(Err(fault)),
        Some(Ok(element)) => Some(element),
        None => None,
    };
    let (mut found, mut has_memory) = (named, false);
    for memory in memories {
        has_memory = true;
        match (found, memory.element) {
            (_, Some(_)) if named.is_some() => {}
            (None, Some(element)) => found = Some(element),
            (Some(one), Some(other)) if one != other => {
                let text = format!("the buffers have different types: {one} and {other}");
                return Ok(Err(Fault::Argument(text)));
            }
            _ => {}
        }
    }
    let without = || Fault::Argument("an address has no type; name it by dtype".to_owned());
    let nothing = Element::Known(DataType::U8);
    Ok(found.or(if has_memory { None } else { Some(nothing) }).ok_or_else(without))
}

/// The elements in `bytes` bytes.
fn elements(bytes: usize, element: Element, name: &str) -> Result<usize, Fault> {
    let size = element.bytes();
    if size == 0 || !bytes.is_multiple_of(size) {
        let text = format!("{name} has {bytes} bytes, which are not elements of {size} bytes");
        return Err(Fault::Argument(text));
    }
    Ok(bytes / size)
}

/// The equal blocks of `count` elements, one for each rank.
fn blocks(count: usize, size: usize) -> Result<usize, Fault> {
    if !count.is_multiple_of(size) {
        return Err(Fault::Argument(format!(
            "{count} elements cannot be cut into {size} equal blocks, one for each rank"
        )));
    }
    Ok(count / size)
}

/// A collective on these memories. Without an output it is in place.
pub(crate) fn plan(
    member: &Member,
    collective: Collective,
    [input, output]: [Option<&Memory>; 2],
    element: Element,
    op: ReduceOp,
    root: Rank,
) -> Result<(Call, Places), Fault> {
    let (data_type, scale) =
        if collective.reduces() { (element.to_combine(op)?, 1) } else { element.to_move() };
    let count = |memory: Option<&Memory>, name| {
        memory.map(|memory| elements(memory.region.bytes, element, name)).transpose()
    };
    let (from, into) = (count(input, "the input")?, count(output, "the output")?);
    let one = Call { data_type, op, ..shape(collective, root) };
    let Member { rank, size, .. } = *member;
    let has_one = [one.input_of(rank, size), one.output_of(rank, size)].map(|len| len == 1);
    let count = match (from, into) {
        // A buffer of one block states the count, and otherwise one with a block for each rank.
        (Some(from), Some(_)) if has_one[0] => from,
        (Some(_), Some(into)) if has_one[1] => into,
        (Some(both), None) | (None, Some(both)) | (Some(both), Some(_)) => {
            if one.in_place_of(rank, size) == 1 { both } else { blocks(both, size)? }
        }
        (None, None) => 0,
    };
    let count = count * scale;
    let all = count.checked_mul(size).and_then(|all| all.checked_mul(data_type.bytes()));
    if all.is_none() {
        return Err(Fault::Argument(format!("{count} elements exceed the address space")));
    }
    let call = Call { count, ..one };
    let regions = [input, output].map(|memory| memory.map(|memory| memory.region));
    Ok((call, Places::new(&call, (rank, size), regions)?))
}

/// A call that tells which ranks have an input and an output.
const fn shape(collective: Collective, root: Rank) -> Call {
    let (data_type, op, wire) = (DataType::U8, ReduceOp::Sum, Wire::Element);
    Call { collective, count: 1, data_type, op, root, wire }
}

/// The memories of a call on this rank. Without an output the call writes its input, unless this
/// rank has no result. A buffer without a meaning on this rank may be None, or anything.
pub(crate) fn memories(
    member: &Member,
    collective: Collective,
    [input, output]: Given<'_, '_>,
    root: Rank,
) -> PyResult<[Option<Memory>; 2]> {
    let call = shape(collective, root);
    let has_output = call.has_output(member.rank);
    let output = output.filter(|output| !output.is_none() && has_output);
    let has_input = call.has_input(member.rank) || output.is_none();
    let input = input.filter(|input| !input.is_none() && has_input);
    let is_in_place = output.is_none() && has_output;
    let access = if is_in_place { Access::Write } else { Access::Read };
    let input = input.map(|input| Memory::new(input, "the input", access)).transpose()?;
    let output =
        output.map(|output| Memory::new(output, "the output", Access::Write)).transpose()?;
    Ok([input, output])
}

/// The input and the output that a caller gives.
pub(crate) type Given<'a, 'py> = [Option<&'a Bound<'py, PyAny>>; 2];

/// Makes the collective of a method.
#[inline]
pub(crate) fn perform(
    py: Python<'_>,
    member: &Arc<Member>,
    collective: Collective,
    given: Given<'_, '_>,
    (op, root): (Option<&Bound<'_, PyAny>>, u32),
    common: Common<'_, '_>,
) -> Called {
    let (refuse, root) = (|fault| raise(py, fault), Rank(root));
    let memories = memories(member, collective, given, root)?;
    let op = operation(op)?.map_err(refuse)?;
    let element = element_of(common.dtype, memories.iter().flatten())?.map_err(refuse)?;
    let both = memories.each_ref().map(Option::as_ref);
    let (call, places) = plan(member, collective, both, element, op, root).map_err(refuse)?;
    dispatch(py, member, memories.into_iter().flatten(), common, move |communicator| {
        let call = Call { wire: communicator.wire(), ..call };
        // SAFETY: `dispatch` keeps the memory until the call is done. The caller of the binding
        // must not use it meanwhile.
        communicator.perform(&call, unsafe { places.buffers() })
    })
}

/// The lengths of the parts of a buffer, and where they begin, both in elements.
#[derive(Clone, Default)]
pub(crate) struct OwnedParts {
    counts: Vec<usize>,
    displacements: Option<Vec<usize>>,
}

impl OwnedParts {
    /// The parts that a caller means: a sequence of counts, or a tuple of counts and displacements.
    pub(crate) fn new(parts: Option<&Bound<'_, PyAny>>, name: &str) -> PyResult<Self> {
        let Some(parts) = parts.filter(|parts| !parts.is_none()) else {
            return Ok(Self::default());
        };
        if let Ok(counts) = parts.extract() {
            return Ok(Self { counts, displacements: None });
        }
        let (counts, displacements) = parts.extract().map_err(|_| {
            let text = format!(
                "{name} are no parts; pass a sequence of counts in elements, or a tuple of counts \
                 and displacements"
            );
            raise(parts.py(), Fault::Argument(text))
        })?;
        Ok(Self { counts, displacements: Some(displacements) })
    }

    fn scaled(mut self, by: usize) -> Self {
        let all = self.counts.iter_mut().chain(self.displacements.iter_mut().flatten());
        // A product beyond the address space leaves its buffer, which the call refuses.
        all.for_each(|number| *number = number.saturating_mul(by));
        self
    }

    fn borrow(&self) -> Parts<'_> {
        match &self.displacements {
            None => Parts::new(&self.counts),
            Some(displacements) => Parts::at(&self.counts, displacements),
        }
    }
}

/// An uneven collective, with the parts that this rank knows.
pub(crate) enum OwnedUneven {
    AllToAll { send: OwnedParts, recv: OwnedParts },
    Gather { root: Rank, parts: OwnedParts },
    Scatter { root: Rank, parts: OwnedParts },
    AllGather { parts: OwnedParts },
    ReduceScatter { parts: OwnedParts, op: ReduceOp },
}

impl OwnedUneven {
    /// The collective with equal parts, and the root.
    const fn kind(&self) -> (Collective, Rank) {
        match self {
            Self::AllToAll { .. } => (Collective::AllToAll, Rank(0)),
            Self::Gather { root, .. } => (Collective::Gather, *root),
            Self::Scatter { root, .. } => (Collective::Scatter, *root),
            Self::AllGather { .. } => (Collective::AllGather, Rank(0)),
            Self::ReduceScatter { .. } => (Collective::ReduceScatter, Rank(0)),
        }
    }

    fn scaled(self, by: usize) -> Self {
        match self {
            Self::AllToAll { send, recv } => {
                Self::AllToAll { send: send.scaled(by), recv: recv.scaled(by) }
            }
            Self::Gather { root, parts } => Self::Gather { root, parts: parts.scaled(by) },
            Self::Scatter { root, parts } => Self::Scatter { root, parts: parts.scaled(by) },
            Self::AllGather { parts } => Self::AllGather { parts: parts.scaled(by) },
            Self::ReduceScatter { parts, op } => {
                Self::ReduceScatter { parts: parts.scaled(by), op }
            }
        }
    }

    fn borrow(&self) -> Uneven<'_> {
        match self {
            Self::AllToAll { send, recv } => {
                Uneven::AllToAll { send: send.borrow(), recv: recv.borrow() }
            }
            Self::Gather { root, parts } => Uneven::Gather { root: *root, parts: parts.borrow() },
            Self::Scatter { root, parts } => Uneven::Scatter { root: *root, parts: parts.borrow() },
            Self::AllGather { parts } => Uneven::AllGather { parts: parts.borrow() },
            Self::ReduceScatter { parts, op } => {
                Uneven::ReduceScatter { parts: parts.borrow(), op: *op }
            }
        }
    }
}

/// Makes the uneven collective of a method.
pub(crate) fn perform_uneven(
    py: Python<'_>,
    member: &Arc<Member>,
    given: Given<'_, '_>,
    uneven: OwnedUneven,
    common: Common<'_, '_>,
) -> Called {
    let refuse = |fault| raise(py, fault);
    let (collective, root) = uneven.kind();
    let memories = memories(member, collective, given, root)?;
    let element = element_of(common.dtype, memories.iter().flatten())?.map_err(refuse)?;
    let (data_type, scale) = match &uneven {
        OwnedUneven::ReduceScatter { op, .. } => (element.to_combine(*op).map_err(refuse)?, 1),
        _ => element.to_move(),
    };
    for memory in memories.iter().flatten() {
        elements(memory.region.bytes, element, "a buffer").map_err(refuse)?;
    }
    let places = match &memories {
        [Some(input), Some(output)] => {
            Places::apart(input.region, output.region).map_err(refuse)?
        }
        [Some(input), None] if !shape(collective, root).has_output(member.rank) => {
            Places::Apart { input: input.region, output: Region::EMPTY }
        }
        [Some(both), None] | [None, Some(both)] => Places::InPlace(both.region),
        [None, None] => Places::Apart { input: Region::EMPTY, output: Region::EMPTY },
    };
    let uneven = uneven.scaled(scale);
    dispatch(py, member, memories.into_iter().flatten(), common, move |communicator| {
        // SAFETY: `dispatch` keeps the memory until the call is done. The caller of the binding
        // must not use it meanwhile.
        communicator.perform_uneven(&uneven.borrow(), data_type, unsafe { places.buffers() })
    })
}
