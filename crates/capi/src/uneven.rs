//! Collectives whose parts may differ in length, blocking and started.
#![allow(unsafe_code)]

use std::ffi::c_void;
use std::ptr::null;

use ringfold::{Collective, Communicator, DataType, Parts, Rank, Uneven};
use ringfold_foreign::{Places, Region};

use crate::collective::{NO_OP, element};
use crate::comm::with;
use crate::fault::{Fault, reported};
use crate::kept::keep;
use crate::memory::{self, apart, elements, elements_from};
use crate::operation::operation;
use crate::types::{RawType, ringfold_comm_t, ringfold_op_t, ringfold_request_t, ringfold_result};

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

/// A call with parts, as C makes it.
struct Arguments {
    collective: Collective,
    input: *const c_void,
    output: *mut c_void,
    /// The parts of the long buffer, or of the output of an all-to-all.
    parts: RawParts,
    /// The parts of the input of an all-to-all.
    sent: RawParts,
    /// The elements of the short buffer; `None` if they are those of this rank's part.
    short: Option<usize>,
    data_type: RawType,
    op: ringfold_op_t,
    root: u32,
}

impl Arguments {
    const fn new(
        collective: Collective,
        (input, output): (*const c_void, *mut c_void),
        parts: RawParts,
        short: Option<usize>,
        data_type: RawType,
    ) -> Self {
        let sent = (null(), null());
        Self { collective, input, output, parts, sent, short, data_type, op: NO_OP, root: 0 }
    }

    /// Makes the call.
    ///
    /// # Safety
    /// Pointers point to the memory that the header asks for. Nobody else accesses it meanwhile.
    unsafe fn perform(self, comm: ringfold_comm_t) -> ringfold_result {
        reported(|| {
            with(comm, |comm| {
                let call =
                    |comm: &mut Communicator, uneven: &Uneven<'_>, data_type, places: Places| {
                        // SAFETY: the contract.
                        Ok(comm.perform_uneven(uneven, data_type, unsafe { places.buffers() })?)
                    };
                // SAFETY: the contract.
                unsafe { self.call(comm, call) }
            })
        })
    }

    /// Starts the call, and writes its request.
    ///
    /// # Safety
    /// As for `perform`, until the call has ended. `request` is NULL or points to memory of a
    /// handle.
    unsafe fn start(
        self,
        comm: ringfold_comm_t,
        request: *mut ringfold_request_t,
    ) -> ringfold_result {
        let begin = |comm: &mut Communicator| {
            let call = |comm: &mut Communicator, uneven: &Uneven<'_>, data_type, places: Places| {
                // SAFETY: the contract.
                Ok(comm.start_uneven(uneven, data_type, places, |it| unsafe { it.bytes() })?)
            };
            // SAFETY: the contract.
            unsafe { self.call(comm, call) }
        };
        // SAFETY: the contract.
        unsafe { keep(comm, request, begin) }
    }

    /// Checks the call, and gives it and its memory to `act`.
    ///
    /// # Safety
    /// The counts and displacements are those that the header asks for.
    unsafe fn call<R>(
        &self,
        comm: &mut Communicator,
        act: impl FnOnce(&mut Communicator, &Uneven<'_>, DataType, Places) -> Result<R, Fault>,
    ) -> Result<R, Fault> {
        let (collective, input, output) = (self.collective, self.input, self.output);
        let (data_type, root) = (element(self.data_type)?, Rank(self.root));
        let ranks = (comm.rank(), comm.size());
        let of_output = output.cast_const();
        if collective == Collective::AllToAll {
            // SAFETY: the contract.
            let received =
                unsafe { Long::new(of_output, self.parts, ranks, data_type, "the output") }?;
            let mut places = Places::InPlace(received.region);
            // A rank without a part to send has counts, and perhaps no input.
            let sent = if input.is_null() && self.sent.0.is_null() {
                None
            } else {
                // SAFETY: as above.
                let sent = unsafe { Long::new(input, self.sent, ranks, data_type, "the input") }?;
                places = apart(sent.region, received.region, "alltoallv")?;
                Some(sent)
            };
            let recv = received.parts();
            let uneven = Uneven::AllToAll { send: sent.as_ref().map_or(recv, Long::parts), recv };
            return act(comm, &uneven, data_type, places);
        }
        let gathers = matches!(collective, Collective::Gather | Collective::AllGather);
        let (of_short, of_long) = if gathers { (input, of_output) } else { (of_output, input) };
        let (short, long) =
            if gathers { ("the input", "the output") } else { ("the output", "the input") };
        if matches!(collective, Collective::Gather | Collective::Scatter) && comm.rank() != root {
            let own = elements(of_short, (self.short.unwrap_or(0), data_type), short)?;
            let (parts, none) = (Parts::default(), Region::EMPTY);
            let (uneven, places) = if gathers {
                (Uneven::Gather { root, parts }, Places::Apart { input: own, output: none })
            } else {
                (Uneven::Scatter { root, parts }, Places::Apart { input: none, output: own })
            };
            return act(comm, &uneven, data_type, places);
        }
        let in_place = input.is_null();
        let (of_long, long) = if in_place { (of_output, "the output") } else { (of_long, long) };
        // SAFETY: the contract.
        let long = unsafe { Long::new(of_long, self.parts, ranks, data_type, long) }?;
        let parts = long.parts();
        let (uneven, call) = match collective {
            Collective::Gather => (Uneven::Gather { root, parts }, "gatherv"),
            Collective::Scatter => (Uneven::Scatter { root, parts }, "scatterv"),
            Collective::AllGather => (Uneven::AllGather { parts }, "allgatherv"),
            _ => (Uneven::ReduceScatter { parts, op: operation(self.op)? }, "reduce_scatterv"),
        };
        let places = if in_place {
            Places::InPlace(long.region)
        } else {
            let count = self.short.unwrap_or_else(|| long.counts[ranks.0.index()]);
            long.beside(elements(of_short, (count, data_type), short)?, gathers, call)?
        };
        act(comm, &uneven, data_type, places)
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
    let (parts, sent) =
        ((output_counts, output_displacements), (input_counts, input_displacements));
    let call = Arguments::new(Collective::AllToAll, (input, output), parts, None, r#type);
    // SAFETY: the caller gives the memory that the header asks for.
    unsafe { Arguments { sent, ..call }.perform(comm) }
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
    let parts = (counts, displacements);
    let call =
        Arguments::new(Collective::Gather, (input, output), parts, Some(input_count), r#type);
    // SAFETY: the caller gives the memory that the header asks for.
    unsafe { Arguments { root, ..call }.perform(comm) }
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
    let parts = (counts, displacements);
    let call =
        Arguments::new(Collective::Scatter, (input, output), parts, Some(output_count), r#type);
    // SAFETY: the caller gives the memory that the header asks for.
    unsafe { Arguments { root, ..call }.perform(comm) }
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
    let parts = (counts, displacements);
    let call =
        Arguments::new(Collective::AllGather, (input, output), parts, Some(input_count), r#type);
    // SAFETY: the caller gives the memory that the header asks for.
    unsafe { call.perform(comm) }
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
    let parts = (counts, displacements);
    let call = Arguments::new(Collective::ReduceScatter, (input, output), parts, None, r#type);
    // SAFETY: the caller gives the memory that the header asks for.
    unsafe { Arguments { op, ..call }.perform(comm) }
}

/// Starts ringfold_all_to_all_v, as ringfold_start_all_reduce starts its call. The counts and the
/// displacements are read before this returns.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_start_all_to_all_v(
    input: *const c_void,
    input_counts: *const usize,
    input_displacements: *const usize,
    output: *mut c_void,
    output_counts: *const usize,
    output_displacements: *const usize,
    r#type: RawType,
    comm: ringfold_comm_t,
    request: *mut ringfold_request_t,
) -> ringfold_result {
    let (parts, sent) =
        ((output_counts, output_displacements), (input_counts, input_displacements));
    let call = Arguments::new(Collective::AllToAll, (input, output), parts, None, r#type);
    // SAFETY: the caller gives the memory that the header asks for.
    unsafe { Arguments { sent, ..call }.start(comm, request) }
}

/// Starts ringfold_gather_v, as ringfold_start_all_to_all_v starts its call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_start_gather_v(
    input: *const c_void,
    input_count: usize,
    output: *mut c_void,
    counts: *const usize,
    displacements: *const usize,
    r#type: RawType,
    root: u32,
    comm: ringfold_comm_t,
    request: *mut ringfold_request_t,
) -> ringfold_result {
    let parts = (counts, displacements);
    let call =
        Arguments::new(Collective::Gather, (input, output), parts, Some(input_count), r#type);
    // SAFETY: the caller gives the memory that the header asks for.
    unsafe { Arguments { root, ..call }.start(comm, request) }
}

/// Starts ringfold_scatter_v, as ringfold_start_all_to_all_v starts its call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_start_scatter_v(
    input: *const c_void,
    counts: *const usize,
    displacements: *const usize,
    output: *mut c_void,
    output_count: usize,
    r#type: RawType,
    root: u32,
    comm: ringfold_comm_t,
    request: *mut ringfold_request_t,
) -> ringfold_result {
    let parts = (counts, displacements);
    let call =
        Arguments::new(Collective::Scatter, (input, output), parts, Some(output_count), r#type);
    // SAFETY: the caller gives the memory that the header asks for.
    unsafe { Arguments { root, ..call }.start(comm, request) }
}

/// Starts ringfold_all_gather_v, as ringfold_start_all_to_all_v starts its call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_start_all_gather_v(
    input: *const c_void,
    input_count: usize,
    output: *mut c_void,
    counts: *const usize,
    displacements: *const usize,
    r#type: RawType,
    comm: ringfold_comm_t,
    request: *mut ringfold_request_t,
) -> ringfold_result {
    let parts = (counts, displacements);
    let call =
        Arguments::new(Collective::AllGather, (input, output), parts, Some(input_count), r#type);
    // SAFETY: the caller gives the memory that the header asks for.
    unsafe { call.start(comm, request) }
}

/// Starts ringfold_reduce_scatter_v, as ringfold_start_all_to_all_v starts its call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_start_reduce_scatter_v(
    input: *const c_void,
    output: *mut c_void,
    counts: *const usize,
    displacements: *const usize,
    r#type: RawType,
    op: ringfold_op_t,
    comm: ringfold_comm_t,
    request: *mut ringfold_request_t,
) -> ringfold_result {
    let parts = (counts, displacements);
    let call = Arguments::new(Collective::ReduceScatter, (input, output), parts, None, r#type);
    // SAFETY: the caller gives the memory that the header asks for.
    unsafe { Arguments { op, ..call }.start(comm, request) }
}
