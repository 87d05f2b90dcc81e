//! Collectives whose parts may differ in length.
#![allow(unsafe_code)]

use std::ffi::c_void;

use ringfold::{Communicator, DataType, Parts, Rank, Uneven};
use ringfold_foreign::{Places, Region};

use crate::collective::element;
use crate::comm::with;
use crate::fault::{Fault, reported};
use crate::memory::{self, apart, elements, elements_from};
use crate::operation::operation;
use crate::types::{RawType, ringfold_comm_t, ringfold_op_t, ringfold_result};

/// Counts and displacements of the caller.
type RawParts = (*const usize, *const usize);

/// A buffer with a part for each rank. It begins with the first part that is not empty, and ends
/// with the last one.
struct Long<'a> {
    region: Region,
    counts: &'a [usize],
    /// The element of the region with which each part begins.
    begins: Option<Vec<usize>>,
    /// This rank's part.
    own: Region,
}

impl<'a> Long<'a> {
    /// Checks the parts of the buffer at `start`.
    ///
    /// # Safety
    /// Counts and displacements are NULL, or one for each rank, which nobody writes meanwhile.
    unsafe fn new(
        start: *const c_void,
        (counts, displacements): RawParts,
        (rank, size): (Rank, usize),
        data_type: DataType,
        name: &str,
    ) -> Result<Self, Fault> {
        // SAFETY: the contract.
        let counts = unsafe { memory::slice(counts, size, &format!("the counts of {name}")) }?;
        let displacements = if displacements.is_null() {
            None
        } else {
            // SAFETY: the contract.
            Some(unsafe { memory::slice(displacements, size, "the displacements") }?)
        };
        let mut ends = Vec::with_capacity(size);
        for (part, &count) in counts.iter().enumerate() {
            let after_last = || ends.last().copied().unwrap_or(0);
            let begin = displacements.map_or_else(after_last, |all| all[part]);
            let end = begin.checked_add(count);
            ends.push(end.ok_or_else(|| {
                Fault::argument(format!(
                    "part {part} of {name}, {count} elements from element {begin}, exceeds the \
                     address space"
                ))
            })?);
        }
        let used = || counts.iter().zip(&ends).filter(|(count, _)| **count > 0);
        let first = used().map(|(count, end)| end - count).min().unwrap_or(0);
        let last = used().map(|(_, end)| *end).max().unwrap_or(0);
        let begin_of = |part: usize| match counts[part] {
            0 => 0,
            count => ends[part] - count - first,
        };
        let region = elements_from(start, first, (last - first, data_type), name)?;
        let own = [begin_of(rank.index()), counts[rank.index()]].map(|it| it * data_type.bytes());
        let own = region.part(own[0], own[1]);
        let begins = displacements.map(|_| (0..size).map(begin_of).collect());
        Ok(Self { region, counts, begins, own })
    }

    fn parts(&self) -> Parts<'_> {
        match &self.begins {
            Some(begins) => Parts::at(self.counts, begins),
            None => Parts::new(self.counts),
        }
    }

    /// The memory of a call whose other buffer is this `short` one. In place they are this rank's
    /// part of the long buffer.
    fn beside(&self, short: Region, is_input: bool, call: &str) -> Result<Places, Fault> {
        if short.addresses() == self.own.addresses() {
            return Ok(Places::InPlace(self.region));
        }
        let (input, output) = if is_input { (short, self.region) } else { (self.region, short) };
        apart(input, output, call)
    }
}

/// A call in which one buffer has a part for each rank, and the other is this rank's part.
struct Arguments {
    call: &'static str,
    data_type: DataType,
    input: *const c_void,
    output: *mut c_void,
    /// Whether the output is the long one.
    gathers: bool,
    parts: RawParts,
    /// The elements of the short buffer; `None` if they are those of this rank's part.
    short: Option<usize>,
}

impl Arguments {
    /// Makes the call.
    ///
    /// # Safety
    /// Pointers point to the memory that the header asks for. Nobody else accesses it meanwhile.
    unsafe fn perform(
        &self,
        comm: &mut Communicator,
        uneven: impl FnOnce(Parts<'_>) -> Uneven<'_>,
    ) -> Result<(), Fault> {
        let Self { call, data_type, input, output, gathers, parts, short } = *self;
        let in_place = input.is_null();
        let (long, name) = if gathers || in_place {
            (output.cast_const(), "the output")
        } else {
            (input, "the input")
        };
        let ranks = (comm.rank(), comm.size());
        // SAFETY: the contract.
        let long = unsafe { Long::new(long, parts, ranks, data_type, name) }?;
        let places = if in_place {
            Places::InPlace(long.region)
        } else {
            let count = short.unwrap_or_else(|| long.counts[ranks.0.index()]);
            let (short, name) =
                if gathers { (input, "the input") } else { (output.cast_const(), "the output") };
            long.beside(elements(short, (count, data_type), name)?, gathers, call)?
        };
        // SAFETY: the contract.
        let buffers = unsafe { places.buffers() };
        Ok(comm.perform_uneven(&uneven(long.parts()), data_type, buffers)?)
    }
}

/// Writes part r of this rank's input to part `rank` of the output of rank r. There is a count and
/// a displacement for each rank, in elements. If displacements are NULL, each part begins where the
/// one before it ends. An empty part may begin anywhere. In place: the input and its counts are
/// NULL, and the parts of the output are those of both.
///
/// A rank that sends a part and the rank that receives it must give it the same length, or the job
/// fails. Parts of an output must not overlap each other. An input and an output overlap only in a
/// call in place. Between its first and its last part a buffer belongs to the call. This and all
/// other calls with parts block until this rank's part is done, and have no part in groups of
/// calls.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_all_to_all_v(
    input: *const c_void,
    input_counts: *const usize,
    input_displacements: *const usize,
    output: *mut c_void,
    output_counts: *const usize,
    output_displacements: *const usize,
    r#type: RawType,
    comm: ringfold_comm_t,
) -> ringfold_result {
    let (sent, received) =
        ((input_counts, input_displacements), (output_counts, output_displacements));
    perform(r#type, comm, |comm, data_type| {
        let ranks = (comm.rank(), comm.size());
        // SAFETY: the caller gives the counts and displacements that the header asks for.
        let received = unsafe { Long::new(output, received, ranks, data_type, "the output") }?;
        let mut places = Places::InPlace(received.region);
        // A rank without a part to send has counts, and perhaps no input.
        let sent = if input.is_null() && input_counts.is_null() {
            None
        } else {
            // SAFETY: as above.
            let sent = unsafe { Long::new(input, sent, ranks, data_type, "the input") }?;
            places = apart(sent.region, received.region, "alltoallv")?;
            Some(sent)
        };
        let recv = received.parts();
        let uneven = Uneven::AllToAll { send: sent.as_ref().map_or(recv, Long::parts), recv };
        // SAFETY: the caller gives the memory that the header asks for.
        Ok(comm.perform_uneven(&uneven, data_type, unsafe { places.buffers() })?)
    })
}

/// Writes the `input_count` elements of each rank r to part r of the output of `root`. Parts are
/// those of ringfold_all_to_all_v. They and the output have a meaning on the root only, and may be
/// NULL elsewhere. In place on the root: `input` is NULL, and `input_count` is not read; or `input`
/// is part `root` of `output`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_gather_v(
    input: *const c_void,
    input_count: usize,
    output: *mut c_void,
    counts: *const usize,
    displacements: *const usize,
    r#type: RawType,
    root: u32,
    comm: ringfold_comm_t,
) -> ringfold_result {
    let (call, root, parts) = ("gatherv", Rank(root), (counts, displacements));
    perform(r#type, comm, |comm, data_type| {
        let (gathers, short) = (true, Some(input_count));
        if comm.rank() == root {
            let call = Arguments { call, data_type, input, output, gathers, parts, short };
            // SAFETY: the caller gives the memory that the header asks for.
            return unsafe { call.perform(comm, |parts| Uneven::Gather { root, parts }) };
        }
        let uneven = Uneven::Gather { root, parts: Parts::default() };
        let input = elements(input, (input_count, data_type), "the input")?;
        let places = Places::Apart { input, output: Region::EMPTY };
        // SAFETY: as above.
        Ok(comm.perform_uneven(&uneven, data_type, unsafe { places.buffers() })?)
    })
}

/// Writes part r of the input of `root` to the `output_count` elements of rank r. Parts are those
/// of ringfold_all_to_all_v. They and the input have a meaning on the root only, and may be NULL
/// elsewhere. In place on the root: `output` is part `root` of `input`; or `input` is NULL,
/// `output` is the long buffer, and `output_count` is not read.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_scatter_v(
    input: *const c_void,
    counts: *const usize,
    displacements: *const usize,
    output: *mut c_void,
    output_count: usize,
    r#type: RawType,
    root: u32,
    comm: ringfold_comm_t,
) -> ringfold_result {
    let (call, root, parts) = ("scatterv", Rank(root), (counts, displacements));
    perform(r#type, comm, |comm, data_type| {
        let (gathers, short) = (false, Some(output_count));
        if comm.rank() == root {
            let call = Arguments { call, data_type, input, output, gathers, parts, short };
            // SAFETY: the caller gives the memory that the header asks for.
            return unsafe { call.perform(comm, |parts| Uneven::Scatter { root, parts }) };
        }
        let uneven = Uneven::Scatter { root, parts: Parts::default() };
        let output = elements(output, (output_count, data_type), "the output")?;
        let places = Places::Apart { input: Region::EMPTY, output };
        // SAFETY: as above.
        Ok(comm.perform_uneven(&uneven, data_type, unsafe { places.buffers() })?)
    })
}

/// Writes the `input_count` elements of each rank r to part r of every rank's output. Parts are
/// those of ringfold_all_to_all_v, with the same counts on all ranks. In place: `input` is NULL,
/// and `input_count` is not read; or `input` is part `rank` of `output`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_all_gather_v(
    input: *const c_void,
    input_count: usize,
    output: *mut c_void,
    counts: *const usize,
    displacements: *const usize,
    r#type: RawType,
    comm: ringfold_comm_t,
) -> ringfold_result {
    let (call, parts) = ("allgatherv", (counts, displacements));
    perform(r#type, comm, |comm, data_type| {
        let (gathers, short) = (true, Some(input_count));
        let call = Arguments { call, data_type, input, output, gathers, parts, short };
        // SAFETY: the caller gives the memory that the header asks for.
        unsafe { call.perform(comm, |parts| Uneven::AllGather { parts }) }
    })
}

/// Reduces all ranks' inputs and writes part `rank` of the result to this rank's output, which has
/// the count of that part. Parts are those of ringfold_all_to_all_v, with the same counts on all
/// ranks. Inputs are combined in rank order, and sums of short floats are rounded once. In place:
/// `output` is part `rank` of `input`; or `input` is NULL, and `output` is the long buffer. The
/// rest of the buffer of a call in place stays as it was.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_reduce_scatter_v(
    input: *const c_void,
    output: *mut c_void,
    counts: *const usize,
    displacements: *const usize,
    r#type: RawType,
    op: ringfold_op_t,
    comm: ringfold_comm_t,
) -> ringfold_result {
    let (call, parts) = ("reduce_scatterv", (counts, displacements));
    perform(r#type, comm, |comm, data_type| {
        let (op, gathers, short) = (operation(op)?, false, None);
        let call = Arguments { call, data_type, input, output, gathers, parts, short };
        // SAFETY: the caller gives the memory that the header asks for.
        unsafe { call.perform(comm, |parts| Uneven::ReduceScatter { parts, op }) }
    })
}

/// Makes a call on elements of a type.
fn perform(
    data_type: RawType,
    comm: ringfold_comm_t,
    work: impl FnOnce(&mut Communicator, DataType) -> Result<(), Fault>,
) -> ringfold_result {
    reported(|| with(comm, |comm| work(comm, element(data_type)?)))
}
