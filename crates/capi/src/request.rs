//! Started collectives, which go on while the program computes.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd;
use std::ptr::{null_mut, without_provenance_mut};
use std::time::Duration;

use ringfold::{Call, Collective, Communicator, Message, Rank, Request, wait_any};
use ringfold_foreign::Places;

use crate::collective::{NO_OP, element};
use crate::comm::{Later, with};
use crate::fault::{Fault, reported};
use crate::kept::{Kept, NAME, REQUESTS, alone, find, keep};
use crate::memory::{self, elements};
use crate::operation::operation;
use crate::point_to_point::{source, tag_of};
use crate::types::{
    RawType, ringfold_comm_t, ringfold_message, ringfold_op_t, ringfold_request_t, ringfold_result,
};

/// Writes a handle that takes the place of `comm` in functions that start calls, as
/// ringfold_start_all_reduce. With it they prepare their call instead: they write a request that
/// ringfold_start starts, as often as the program wants. ringfold_request_free frees such a
/// request. The handle itself needs no function to free it.
///
/// Calls have the order of their starts. So ranks may prepare them in any order, and a prepared
/// call meets the same call of other ranks, prepared or not.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_prepare(
    comm: ringfold_comm_t,
    later: *mut ringfold_comm_t,
) -> ringfold_result {
    reported(|| {
        // SAFETY: the caller points to memory of a handle.
        let later = unsafe { memory::out(later, "later") }?;
        later.write(null_mut());
        later.write(Later::handle_for(comm)?);
        Ok(())
    })
}

/// Starts a collective.
///
/// # Safety
/// Pointers point to the memory that the header asks for. Nobody else accesses it until the call
/// has ended. `request` is NULL or points to memory of a handle.
unsafe fn start(
    collective: Collective,
    (input, output): (*const c_void, *mut c_void),
    (count, data_type): (usize, RawType),
    (op, root): (ringfold_op_t, u32),
    comm: ringfold_comm_t,
    request: *mut ringfold_request_t,
) -> ringfold_result {
    let begin = |comm: &mut Communicator| {
        let (data_type, op, root) = (element(data_type)?, operation(op)?, Rank(root));
        let call = Call { collective, count, data_type, op, root, wire: comm.wire() };
        let places = memory::places(&call, input, output, comm.rank(), comm.size())?;
        // SAFETY: the contract.
        Ok(comm.start(&call, places, |places| unsafe { places.bytes() })?)
    };
    // SAFETY: the contract.
    unsafe { keep(comm, request, begin) }
}

/// Starts ringfold_send, also to this rank, and writes a request. Does not wait for the receiver.
///
/// The memory belongs to the message until ringfold_wait has returned, also after an error: nobody
/// writes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_start_send(
    data: *const c_void,
    count: usize,
    r#type: RawType,
    to: u32,
    tag: u32,
    comm: ringfold_comm_t,
    request: *mut ringfold_request_t,
) -> ringfold_result {
    let begin = |comm: &mut Communicator| {
        let data = elements(data, (count, element(r#type)?), "the data")?;
        let places = Places::InPlace(data);
        // SAFETY: the caller gives the memory that the header asks for.
        Ok(comm.start_send_of(places, move |_| unsafe { data.slice() }, Rank(to), tag)?)
    };
    // SAFETY: the caller points to memory of a handle.
    unsafe { keep(comm, request, begin) }
}

/// Starts ringfold_recv, also from this rank, and writes a request. ringfold_wait_message has the
/// message. Receives take their messages in the order of their starts.
///
/// The memory belongs to the receive until ringfold_wait has returned, also after an error: nobody
/// else accesses it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_start_recv(
    data: *mut c_void,
    count: usize,
    r#type: RawType,
    from: u32,
    tag: u32,
    comm: ringfold_comm_t,
    request: *mut ringfold_request_t,
) -> ringfold_result {
    let begin = |comm: &mut Communicator| {
        let data = elements(data, (count, element(r#type)?), "the data")?;
        let (places, from, tag) = (Places::InPlace(data), source(from), tag_of(tag));
        // SAFETY: the caller gives the memory that the header asks for.
        Ok(comm.start_recv_in(places, move |_| unsafe { data.slice_mut() }, from, tag)?)
    };
    // SAFETY: the caller points to memory of a handle.
    unsafe { keep(comm, request, begin) }
}

/// Starts ringfold_all_reduce and writes a request. Does not wait for other ranks.
///
/// The memory belongs to the call until ringfold_wait has returned, also after an error: nobody
/// else writes it, and nobody reads the output. All ranks must start the same calls in the same
/// order. A started call and a blocking one are the same: one rank may start it while another
/// blocks in it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_start_all_reduce(
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    r#type: RawType,
    op: ringfold_op_t,
    comm: ringfold_comm_t,
    request: *mut ringfold_request_t,
) -> ringfold_result {
    let (both, elements) = ((input, output), (count, r#type));
    // SAFETY: the caller gives the memory that the header asks for.
    unsafe { start(Collective::AllReduce, both, elements, (op, 0), comm, request) }
}

/// Starts ringfold_all_gather, as ringfold_start_all_reduce starts its call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_start_all_gather(
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    r#type: RawType,
    comm: ringfold_comm_t,
    request: *mut ringfold_request_t,
) -> ringfold_result {
    let (both, elements) = ((input, output), (count, r#type));
    // SAFETY: the caller gives the memory that the header asks for.
    unsafe { start(Collective::AllGather, both, elements, (NO_OP, 0), comm, request) }
}

/// Starts ringfold_reduce_scatter, as ringfold_start_all_reduce starts its call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_start_reduce_scatter(
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    r#type: RawType,
    op: ringfold_op_t,
    comm: ringfold_comm_t,
    request: *mut ringfold_request_t,
) -> ringfold_result {
    let (both, elements) = ((input, output), (count, r#type));
    // SAFETY: the caller gives the memory that the header asks for.
    unsafe { start(Collective::ReduceScatter, both, elements, (op, 0), comm, request) }
}

/// Starts ringfold_broadcast, as ringfold_start_all_reduce starts its call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_start_broadcast(
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    r#type: RawType,
    root: u32,
    comm: ringfold_comm_t,
    request: *mut ringfold_request_t,
) -> ringfold_result {
    let (both, elements) = ((input, output), (count, r#type));
    // SAFETY: the caller gives the memory that the header asks for.
    unsafe { start(Collective::Broadcast, both, elements, (NO_OP, root), comm, request) }
}

/// Starts ringfold_reduce, as ringfold_start_all_reduce starts its call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_start_reduce(
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    r#type: RawType,
    op: ringfold_op_t,
    root: u32,
    comm: ringfold_comm_t,
    request: *mut ringfold_request_t,
) -> ringfold_result {
    let (both, elements) = ((input, output), (count, r#type));
    // SAFETY: the caller gives the memory that the header asks for.
    unsafe { start(Collective::Reduce, both, elements, (op, root), comm, request) }
}

/// Starts ringfold_all_to_all, as ringfold_start_all_reduce starts its call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_start_all_to_all(
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    r#type: RawType,
    comm: ringfold_comm_t,
    request: *mut ringfold_request_t,
) -> ringfold_result {
    let (both, elements) = ((input, output), (count, r#type));
    // SAFETY: the caller gives the memory that the header asks for.
    unsafe { start(Collective::AllToAll, both, elements, (NO_OP, 0), comm, request) }
}

/// Starts ringfold_gather, as ringfold_start_all_reduce starts its call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_start_gather(
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    r#type: RawType,
    root: u32,
    comm: ringfold_comm_t,
    request: *mut ringfold_request_t,
) -> ringfold_result {
    let (both, elements) = ((input, output), (count, r#type));
    // SAFETY: the caller gives the memory that the header asks for.
    unsafe { start(Collective::Gather, both, elements, (NO_OP, root), comm, request) }
}

/// Starts ringfold_scatter, as ringfold_start_all_reduce starts its call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_start_scatter(
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    r#type: RawType,
    root: u32,
    comm: ringfold_comm_t,
    request: *mut ringfold_request_t,
) -> ringfold_result {
    let (both, elements) = ((input, output), (count, r#type));
    // SAFETY: the caller gives the memory that the header asks for.
    unsafe { start(Collective::Scatter, both, elements, (NO_OP, root), comm, request) }
}

/// Starts ringfold_scan, as ringfold_start_all_reduce starts its call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_start_scan(
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    r#type: RawType,
    op: ringfold_op_t,
    comm: ringfold_comm_t,
    request: *mut ringfold_request_t,
) -> ringfold_result {
    let (both, elements) = ((input, output), (count, r#type));
    // SAFETY: the caller gives the memory that the header asks for.
    unsafe { start(Collective::Scan, both, elements, (op, 0), comm, request) }
}

/// Starts ringfold_exscan, as ringfold_start_all_reduce starts its call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_start_exscan(
    input: *const c_void,
    output: *mut c_void,
    count: usize,
    r#type: RawType,
    op: ringfold_op_t,
    comm: ringfold_comm_t,
    request: *mut ringfold_request_t,
) -> ringfold_result {
    let (both, elements) = ((input, output), (count, r#type));
    // SAFETY: the caller gives the memory that the header asks for.
    unsafe { start(Collective::Exscan, both, elements, (op, 0), comm, request) }
}

/// Starts ringfold_barrier, as ringfold_start_all_reduce starts its call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_start_barrier(
    comm: ringfold_comm_t,
    request: *mut ringfold_request_t,
) -> ringfold_result {
    let none = (std::ptr::null(), null_mut());
    let elements = (0, crate::types::ringfold_type::RINGFOLD_UINT8 as RawType);
    // SAFETY: the call has no memory.
    unsafe { start(Collective::Barrier, none, elements, (NO_OP, 0), comm, request) }
}

/// Writes 1 to `ended` if the call of a request has ended, and 0 otherwise. Does not wait, and
/// advances the calls of the communicator. The request stays until ringfold_wait.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_test(
    request: ringfold_request_t,
    ended: *mut c_int,
) -> ringfold_result {
    reported(|| {
        // SAFETY: the caller points to memory of a number.
        let ended = unsafe { memory::out(ended, "ended") }?;
        ended.write(0);
        ended.write(find(request)?.used()?.test().into());
        Ok(())
    })
}

/// Starts the call of a prepared request, after all calls that were started before. Does not wait
/// for other ranks. The call is active until ringfold_wait has returned: it must not be started
/// again before. Meanwhile its memory belongs to the call.
#[unsafe(no_mangle)]
pub extern "C" fn ringfold_start(request: ringfold_request_t) -> ringfold_result {
    reported(|| match &*find(request)? {
        Kept::Prepared { comm, prepared } => {
            let mut prepared = alone(prepared)?;
            with(without_provenance_mut(*comm), |comm| Ok(prepared.start(comm)?))
        }
        Kept::Started(_) => Err(Fault::argument(
            "the request is started already; ringfold_prepare makes those for ringfold_start",
        )),
    })
}

/// Waits until the call of a request has ended, and returns the call's result. The memory of the
/// call is the program's again. Frees the request, unless it is a prepared one. Such a one may be
/// started again, and a wait for one that is not active returns at once.
#[unsafe(no_mangle)]
pub extern "C" fn ringfold_wait(request: ringfold_request_t) -> ringfold_result {
    reported(|| ended(request).map(drop))
}

/// Waits for the call of a request. Returns the message of a receive.
fn ended(request: ringfold_request_t) -> Result<Option<Message>, Fault> {
    let result_of = |it: &Request<Places>| {
        it.wait_for(Duration::MAX);
        it.take_result()
    };
    if let Kept::Prepared { prepared, .. } = &*find(request)? {
        let mut prepared = alone(prepared)?;
        let result = result_of(&prepared);
        let others = prepared.wait().map(|_| None);
        return Ok(result.unwrap_or(others)?);
    }
    let handle = request.addr() as u64;
    let Some(Kept::Started(request)) = REQUESTS.remove(handle) else {
        return Err(Fault::handle(NAME, handle));
    };
    match result_of(&request) {
        Some(result) => Ok(result?),
        // In a child process the call never ends, and the wait says so.
        None => Ok(request.wait().map(|_| None)?),
    }
}

/// Waits as ringfold_wait, and writes the message of a receive. Requests of other calls have none,
/// and `message` stays as it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_wait_message(
    request: ringfold_request_t,
    message: *mut ringfold_message,
) -> ringfold_result {
    reported(|| {
        // SAFETY: the caller points to memory of a message.
        let message = unsafe { memory::out(message, "message") }?;
        if let Some(received) = ended(request)? {
            message.write(received.into());
        }
        Ok(())
    })
}

/// Frees a request without a wait. Its call goes on, and no function tells its end. The memory
/// belongs to the call until the communicator is freed, or a later call of its ranks shows that it
/// has ended. Waits for other threads that use a prepared request.
#[unsafe(no_mangle)]
pub extern "C" fn ringfold_request_free(request: ringfold_request_t) -> ringfold_result {
    reported(|| {
        let handle = request.addr() as u64;
        REQUESTS.remove(handle).map(drop).ok_or_else(|| Fault::handle(NAME, handle))
    })
}

/// Writes a descriptor that is readable once the call of a request has ended, for an event loop.
/// The program must not read or close it: the function that frees the request closes it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_request_descriptor(
    request: ringfold_request_t,
    descriptor: *mut c_int,
) -> ringfold_result {
    reported(|| {
        // SAFETY: the caller points to memory of a number.
        let descriptor = unsafe { memory::out(descriptor, "descriptor") }?;
        let request = find(request)?;
        let used = request.used()?;
        let made = used.descriptor();
        let made = made.map_err(|error| Fault::argument(format!("no descriptor: {error}")))?;
        descriptor.write(made.as_raw_fd());
        Ok(())
    })
}

/// Waits until the call of one of `count` requests has ended, and writes its index. The request
/// stays until ringfold_wait. Requests that are NULL are left out; if all are, `index` is `count`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_wait_any(
    count: usize,
    requests: *const ringfold_request_t,
    index: *mut usize,
) -> ringfold_result {
    reported(|| {
        // SAFETY: the caller points to that many handles, and to memory of a number.
        let (requests, index) =
            unsafe { (memory::slice(requests, count, "requests")?, memory::out(index, "index")?) };
        index.write(count);
        let there = requests.iter().enumerate().filter(|(_, request)| !request.is_null());
        let there: Vec<_> =
            there.map(|(at, request)| Ok((at, find(*request)?))).collect::<Result<_, Fault>>()?;
        let used: Vec<_> =
            there.iter().map(|(_, request)| request.used()).collect::<Result<_, Fault>>()?;
        let all: Vec<&Request<Places>> = used.iter().map(|used| &**used).collect();
        if let Some(ended) = wait_any(&all) {
            index.write(there[ended].0);
        }
        Ok(())
    })
}
