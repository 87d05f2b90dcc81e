//! The collectives, on ordinary memory.
#![allow(unsafe_code)]

use std::ffi::c_void;

use ringfold::{Call, Collective, DataType, Rank, Wire};
use ringfold_foreign::{Entry, Places};

use crate::comm::with;
use crate::fault::{Fault, reported};
use crate::memory;
use crate::operation::operation;
use crate::pending;
use crate::types::{RawType, ringfold_comm_t, ringfold_op_t, ringfold_result};

/// A predefined operation without meaning.
pub(crate) const NO_OP: ringfold_op_t = 0;

/// Makes the call, or adds it to a group.
///
/// # Safety
/// Pointers point to the memory that the header asks for. Nobody else accesses it during the call.
#[inline]
unsafe fn perform(
    collective: Collective,
    (input, output): (*const c_void, *mut c_void),
    (count, data_type): (usize, RawType),
    (op, root): (ringfold_op_t, u32),
    comm: ringfold_comm_t,
) -> ringfold_result {
    let checked = |rank: Rank, size: usize, wire: Wire| -> Result<(Call, Places), Fault> {
        let (data_type, op, root) = (element(data_type)?, operation(op)?, Rank(root));
        let call = Call { collective, count, data_type, op, root, wire };
        Ok((call, memory::places(&call, input, output, rank, size)?))
    };
    reported(|| {
        if let Some(group) = pending::of(comm) {
            return group.add(|rank, size| {
                let (call, places) = checked(rank, size, Wire::Element)?;
                Ok([Entry::Collective { call, places }])
            });
        }
        with(comm, |comm| {
            let (call, places) = checked(comm.rank(), comm.size(), comm.wire())?;
            // SAFETY: the contract of this function.
            Ok(comm.perform(&call, unsafe { places.buffers() })?)
        })
    })
}

/// The data type that C means.
#[inline]
pub(crate) fn element(data_type: RawType) -> Result<DataType, Fault> {
    let known = u8::try_from(data_type).ok().and_then(DataType::from_code);
    known.ok_or_else(|| {
        Fault::argument(format!("{data_type} is no data type of enum ringfold_type"))
    })
}

/// Writes the reduction of all ranks' inputs to the output of every rank. Both have `count`
/// elements. In place: `input` is NULL or equals `output`.
///
/// All ranks must make the same calls in the same order, with equal counts, types, operations and
/// roots. A call blocks until this rank's part is done. An input and an output overlap only in a
/// call in place. Memory of any alignment will do.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_all_reduce(
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    r#type: RawType,
    op: ringfold_op_t,
    comm: ringfold_comm_t,
) -> ringfold_result {
    let (both, elements) = ((input, output), (count, r#type));
    // SAFETY: the caller gives the memory that the header asks for.
    unsafe { perform(Collective::AllReduce, both, elements, (op, 0), comm) }
}

/// Writes the inputs of all ranks, in rank order, to the output of every rank. An input has `count`
/// elements, and the output `count` times the number of ranks. In place: `input` is NULL or points
/// to block `rank` of `output`, which then is the input.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_all_gather(
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    r#type: RawType,
    comm: ringfold_comm_t,
) -> ringfold_result {
    let (both, elements) = ((input, output), (count, r#type));
    // SAFETY: the caller gives the memory that the header asks for.
    unsafe { perform(Collective::AllGather, both, elements, (NO_OP, 0), comm) }
}

/// Reduces all ranks' inputs and writes block `rank` of the result to this rank's output. The
/// output has `count` elements, and the input `count` times the number of ranks. In place: `output`
/// points to block `rank` of `input`; or `input` is NULL, and `output` is the long buffer. The
/// other blocks of a call in place are undefined afterwards.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_reduce_scatter(
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    r#type: RawType,
    op: ringfold_op_t,
    comm: ringfold_comm_t,
) -> ringfold_result {
    let (both, elements) = ((input, output), (count, r#type));
    // SAFETY: the caller gives the memory that the header asks for.
    unsafe { perform(Collective::ReduceScatter, both, elements, (op, 0), comm) }
}

/// Writes the input of `root` to the output of every rank. Both have `count` elements. The inputs
/// of other ranks are not read. In place on the root: `input` is NULL or equals `output`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_broadcast(
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    r#type: RawType,
    root: u32,
    comm: ringfold_comm_t,
) -> ringfold_result {
    let (both, elements) = ((input, output), (count, r#type));
    // SAFETY: the caller gives the memory that the header asks for.
    unsafe { perform(Collective::Broadcast, both, elements, (NO_OP, root), comm) }
}

/// Writes the reduction of all ranks' inputs to the output of `root`. Both have `count` elements.
/// The outputs of other ranks are not written and may be NULL. In place: `input` is NULL or equals
/// `output`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_reduce(
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    r#type: RawType,
    op: ringfold_op_t,
    root: u32,
    comm: ringfold_comm_t,
) -> ringfold_result {
    let (both, elements) = ((input, output), (count, r#type));
    // SAFETY: the caller gives the memory that the header asks for.
    unsafe { perform(Collective::Reduce, both, elements, (op, root), comm) }
}

/// Writes block r of this rank's input to block `rank` of the output of rank r. The input and the
/// output have `count` elements for each rank. In place: `input` is NULL or equals `output`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_all_to_all(
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    r#type: RawType,
    comm: ringfold_comm_t,
) -> ringfold_result {
    let (both, elements) = ((input, output), (count, r#type));
    // SAFETY: the caller gives the memory that the header asks for.
    unsafe { perform(Collective::AllToAll, both, elements, (NO_OP, 0), comm) }
}

/// Writes the inputs of all ranks, in rank order, to the output of `root`. An input has `count`
/// elements, and the output `count` times the number of ranks. The outputs of other ranks are not
/// written and may be NULL. In place on the root: `input` is NULL or points to block `root` of
/// `output`, which then is the input.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_gather(
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    r#type: RawType,
    root: u32,
    comm: ringfold_comm_t,
) -> ringfold_result {
    let (both, elements) = ((input, output), (count, r#type));
    // SAFETY: the caller gives the memory that the header asks for.
    unsafe { perform(Collective::Gather, both, elements, (NO_OP, root), comm) }
}

/// Writes block r of the input of `root` to the output of rank r. An output has `count` elements,
/// and the input `count` times the number of ranks. The inputs of other ranks are not read and may
/// be NULL. In place on the root: `output` points to block `root` of `input`; or `input` is NULL,
/// and `output` is the long buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_scatter(
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    r#type: RawType,
    root: u32,
    comm: ringfold_comm_t,
) -> ringfold_result {
    let (both, elements) = ((input, output), (count, r#type));
    // SAFETY: the caller gives the memory that the header asks for.
    unsafe { perform(Collective::Scatter, both, elements, (NO_OP, root), comm) }
}

/// Writes the reduction of the inputs of ranks 0 to r to the output of rank r. Both have `count`
/// elements. In place: `input` is NULL or equals `output`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_scan(
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    r#type: RawType,
    op: ringfold_op_t,
    comm: ringfold_comm_t,
) -> ringfold_result {
    let (both, elements) = ((input, output), (count, r#type));
    // SAFETY: the caller gives the memory that the header asks for.
    unsafe { perform(Collective::Scan, both, elements, (op, 0), comm) }
}

/// Writes the reduction of the inputs of the ranks below r to the output of rank r. Both have
/// `count` elements. The output of rank 0 is not written. In place: `input` is NULL or equals
/// `output`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_exscan(
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    r#type: RawType,
    op: ringfold_op_t,
    comm: ringfold_comm_t,
) -> ringfold_result {
    let (both, elements) = ((input, output), (count, r#type));
    // SAFETY: the caller gives the memory that the header asks for.
    unsafe { perform(Collective::Exscan, both, elements, (op, 0), comm) }
}

/// Waits until every rank has made this call.
#[unsafe(no_mangle)]
pub extern "C" fn ringfold_barrier(comm: ringfold_comm_t) -> ringfold_result {
    reported(|| with(comm, |comm| Ok(comm.barrier()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::ringfold_type::{
        RINGFOLD_BFLOAT16, RINGFOLD_FLOAT8_E4M3, RINGFOLD_FLOAT8_E5M2, RINGFOLD_FLOAT16,
        RINGFOLD_FLOAT32, RINGFOLD_FLOAT64, RINGFOLD_INT8, RINGFOLD_INT32, RINGFOLD_INT64,
        RINGFOLD_UINT8, RINGFOLD_UINT32, RINGFOLD_UINT64,
    };

    #[test]
    fn data_types_have_the_codes_of_rust() {
        for (code, data_type) in [
            (RINGFOLD_INT8, DataType::I8),
            (RINGFOLD_UINT8, DataType::U8),
            (RINGFOLD_INT32, DataType::I32),
            (RINGFOLD_UINT32, DataType::U32),
            (RINGFOLD_INT64, DataType::I64),
            (RINGFOLD_UINT64, DataType::U64),
            (RINGFOLD_FLOAT16, DataType::F16),
            (RINGFOLD_BFLOAT16, DataType::Bf16),
            (RINGFOLD_FLOAT32, DataType::F32),
            (RINGFOLD_FLOAT64, DataType::F64),
            (RINGFOLD_FLOAT8_E4M3, DataType::F8E4M3),
            (RINGFOLD_FLOAT8_E5M2, DataType::F8E5M2),
        ] {
            assert_eq!(element(code as RawType).ok(), Some(data_type));
        }
        assert!([12, 255, 256, u32::MAX].into_iter().all(|code| element(code).is_err()));
    }
}
