//! Calls: from the arguments of Python to those of ringfold.
#![allow(unsafe_code)]

use std::sync::Arc;

use pyo3::prelude::*;
use ringfold::{Call, Collective, Communicator, DataType, Error, Rank, ReduceOp, Wire};
use ringfold_foreign::Places;

use crate::element::{Element, operation};
use crate::fault::raise;
use crate::handle::{Handle, duration, interruptible, settle, wait_or_abort};
use crate::memory::{Memory, keep};
use crate::prepared::{self, Begin, is_preparing};
use crate::queue::{Attempt, CallQueue, Fault, Ticket};
use crate::region::{Access, overlap};

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

/// Runs `work`, which blocks, after all calls before it: in this thread, or by a worker thread
/// while another one has the communicator.
///
/// `work` uses the regions of `memories`, which live until it is done.
#[inline]
pub(crate) fn dispatch<W>(
    py: Python<'_>,
    queue: &Arc<CallQueue>,
    memories: impl IntoIterator<Item = Memory>,
    common: Common<'_, '_>,
    work: W,
) -> Called
where
    W: FnOnce(&mut Communicator) -> Result<(), Error> + Send + 'static,
{
    let timeout = common.timeout.map(|seconds| duration(py, "timeout", seconds)).transpose()?;
    let (attempt, interrupt) = interruptible(py, || queue.try_now(timeout, work));
    if let Some(interrupt) = interrupt {
        return Err(interrupt);
    }
    settle(py, queue)?;
    let work = match attempt {
        Attempt::Ran(Ok(())) => return Ok(None),
        Attempt::Ran(Err(fault)) => return Err(raise(py, fault)),
        Attempt::Busy(work) => work,
    };
    let ticket = Ticket::new(queue);
    ticket.keep(Box::new(keep(py, memories, common.keep)?));
    queue.submit(timeout, work, &ticket).map_err(|fault| raise(py, fault))?;
    wait_or_abort(py, &ticket)?;
    Ok(None)
}

/// The type of the elements of a call's memory.
pub(crate) fn element_of<'m>(
    py: Python<'_>,
    dtype: Option<&Bound<'_, PyAny>>,
    memories: impl IntoIterator<Item = &'m Memory>,
) -> PyResult<Element> {
    let refuse = |text| raise(py, Fault::Argument(text));
    let named = dtype.map(Element::named).transpose()?;
    let (mut found, mut has_memory) = (named, false);
    for memory in memories {
        has_memory = true;
        match (found, memory.element) {
            (_, Some(_)) if named.is_some() => {}
            (None, Some(element)) => found = Some(element),
            (Some(one), Some(other)) if one != other => {
                return Err(refuse(format!("the buffers have different types: {one} and {other}")));
            }
            _ => {}
        }
    }
    let nothing = Element::Known(DataType::U8);
    let without = || refuse("an address has no type; name it by dtype".to_owned());
    found.or(if has_memory { None } else { Some(nothing) }).ok_or_else(without)
}

/// The elements in `bytes` bytes.
pub(crate) fn elements(bytes: usize, element: Element, name: &str) -> Result<usize, Fault> {
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
#[inline]
fn plan(
    queue: &CallQueue,
    collective: Collective,
    [input, output]: [Option<&Memory>; 2],
    element: Element,
    op: ReduceOp,
    root: Rank,
) -> Result<(Call, Places), Fault> {
    let (data_type, scale) =
        if collective.reduces() { (element.to_combine(op)?, 1) } else { element.to_move() };
    let count = |memory: Option<&Memory>, name| {
        memory.map(|memory| elements(memory.region.bytes(), element, name)).transpose()
    };
    let (from, into) = (count(input, "the input")?, count(output, "the output")?);
    let one = Call { data_type, op, ..shape(collective, root) };
    let CallQueue { rank, size, .. } = *queue;
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
    let both = |input, output| Places::of_both(&call, (rank, size), input, output);
    let places = Places::new(regions, call.has_output(rank), both);
    Ok((call, places.ok_or_else(overlap)?))
}

/// A call that tells which ranks have an input and an output.
pub(crate) const fn shape(collective: Collective, root: Rank) -> Call {
    let (data_type, op, wire) = (DataType::U8, ReduceOp::Sum, Wire::Element);
    Call { collective, count: 1, data_type, op, root, wire }
}

/// The memories of a call on this rank. Without an output the call writes its input, unless this
/// rank has no result. A buffer without a meaning on this rank may be None, or anything.
pub(crate) fn memories(
    queue: &CallQueue,
    collective: Collective,
    [input, output]: Given<'_, '_>,
    root: Rank,
) -> PyResult<[Option<Memory>; 2]> {
    let call = shape(collective, root);
    let has_output = call.has_output(queue.rank);
    let output = output.filter(|output| !output.is_none() && has_output);
    let has_input = call.has_input(queue.rank) || output.is_none();
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

/// The arguments that only some collectives take.
#[derive(Clone, Copy, Default)]
pub(crate) struct Arguments<'a, 'py> {
    pub(crate) op: Option<&'a Bound<'py, PyAny>>,
    pub(crate) root: u32,
    /// The parts of uneven collectives; an all-to-all has two lists.
    pub(crate) parts: Option<&'a Bound<'py, PyAny>>,
    pub(crate) send: Option<&'a Bound<'py, PyAny>>,
    pub(crate) recv: Option<&'a Bound<'py, PyAny>>,
}

/// A collective on the memory of the caller, which the memories keep.
#[inline]
pub(crate) fn prepare(
    py: Python<'_>,
    queue: &CallQueue,
    collective: Collective,
    given: Given<'_, '_>,
    Arguments { op, root, .. }: Arguments<'_, '_>,
    dtype: Option<&Bound<'_, PyAny>>,
) -> PyResult<(Call, Places, [Option<Memory>; 2])> {
    let root = Rank(root);
    let memories = memories(queue, collective, given, root)?;
    let op = operation(op)?;
    let element = element_of(py, dtype, memories.iter().flatten())?;
    let both = memories.each_ref().map(Option::as_ref);
    let planned = plan(queue, collective, both, element, op, root);
    let (call, places) = planned.map_err(|fault| raise(py, fault))?;
    Ok((call, places, memories))
}

/// Makes the collective of a method.
#[inline]
pub(crate) fn perform(
    py: Python<'_>,
    queue: &Arc<CallQueue>,
    collective: Collective,
    given: Given<'_, '_>,
    arguments: Arguments<'_, '_>,
    common: Common<'_, '_>,
) -> Called {
    let (call, places, memories) = prepare(py, queue, collective, given, arguments, common.dtype)?;
    perform_call(py, queue, (call, places), memories.into_iter().flatten(), common)
}

/// Makes a collective in this thread, or starts it.
#[inline]
pub(crate) fn perform_call(
    py: Python<'_>,
    queue: &Arc<CallQueue>,
    (call, places): (Call, Places),
    memories: impl IntoIterator<Item = Memory>,
    common: Common<'_, '_>,
) -> Called {
    let of = move |ranks: &Communicator| Call { wire: ranks.wire(), ..call };
    if common.async_op {
        let handle = start(py, queue, memories, common, move |ranks, requests| {
            // SAFETY: `start` keeps the memory until the call is done. The caller of the binding
            // must not use it meanwhile.
            requests.push(ranks.start(&of(ranks), (), move |()| unsafe { places.bytes() })?);
            Ok(())
        });
        return handle.map(Some);
    }
    dispatch(py, queue, memories, common, move |ranks| {
        // SAFETY: `dispatch` keeps the memory until the call is done. The caller of the binding
        // must not use it meanwhile.
        ranks.perform(&of(ranks), unsafe { places.buffers() })
    })
}

/// Starts a call after all calls before it, or keeps it for the `prepare` of this thread.
///
/// `begin` uses the regions of `memories`, which live until the call is done.
#[inline]
pub(crate) fn start<S>(
    py: Python<'_>,
    queue: &Arc<CallQueue>,
    memories: impl IntoIterator<Item = Memory>,
    common: Common<'_, '_>,
    begin: S,
) -> PyResult<Handle>
where
    S: Begin,
{
    let timeout = common.timeout.map(|seconds| duration(py, "timeout", seconds)).transpose()?;
    let (kept, ticket) = (keep(py, memories, common.keep)?, Ticket::new(queue));
    if is_preparing() {
        prepared::put(queue, begin, timeout, kept).map_err(|fault| raise(py, fault))?;
        return Ok(Handle::new(ticket));
    }
    let started = py.detach(|| queue.start(timeout, &ticket, begin));
    started.map_err(|fault| raise(py, fault))?;
    drop(ticket.keep(Box::new(kept)));
    Ok(Handle::new(ticket))
}
