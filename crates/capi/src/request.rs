//! Started collectives, which go on while the program computes.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::os::fd::AsRawFd;
use std::ptr::{null_mut, without_provenance_mut};
use std::time::Duration;

use ringfold::{Call, Collective, Communicator, Rank, Request, Started, wait_any};
use ringfold_foreign::Places;

use crate::collective::{NO_OP, element};
use crate::comm::with;
use crate::fault::{Fault, reported};
use crate::memory::{self, elements};
use crate::operation::operation;
use crate::point_to_point::{source, tag_of};
use crate::table::{Held, Table};
use crate::types::{
    RawType, ringfold_comm_t, ringfold_message, ringfold_op_t, ringfold_request_t, ringfold_result,
};

/// All requests that C has handles of.
static REQUESTS: Table<Request<Places>> = Table::new(6);

/// The name of a handle in errors.
const NAME: &str = "request";

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
        Ok(comm.start(&call, places, |places| match *places {
            // SAFETY: the contract.
            Places::InPlace(both) => (None, unsafe { both.slice_mut() }),
            // SAFETY: the contract.
            Places::Apart { input, output } => unsafe { (Some(input.slice()), output.slice_mut()) },
        }))
    };
    // SAFETY: the contract.
    unsafe { keep(comm, request, begin) }
}

/// Writes a request of what `begin` starts.
///
/// # Safety
/// `request` is NULL or points to memory of a handle.
unsafe fn keep(
    comm: ringfold_comm_t,
    request: *mut ringfold_request_t,
    begin: impl FnOnce(&mut Communicator) -> Result<Started<Places>, Fault>,
) -> ringfold_result {
    reported(|| {
        // SAFETY: the contract.
        let request = unsafe { memory::out(request, "request") }?;
        request.write(null_mut());
        let started = with(comm, |comm| Ok(begin(comm)?.map_err(|failed| failed.error)?))?;
        match REQUESTS.try_insert(started) {
            Ok(handle) => {
                let handle = usize::try_from(handle).map_err(|_| Fault::full(NAME))?;
                request.write(without_provenance_mut(handle));
                Ok(())
            }
            Err(started) => {
                // The memory is the program's again when this returns.
                started.wait().map_err(|failed| failed.error)?;
                Err(Fault::full(NAME))
            }
        }
    })
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
        Ok(comm.start_send_of(places, |_| unsafe { data.slice() }, Rank(to), tag))
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
        Ok(comm.start_recv_in(places, |_| unsafe { data.slice_mut() }, from, tag))
    };
    // SAFETY: the caller points to memory of a handle.
    unsafe { keep(comm, request, begin) }
}

fn find(request: ringfold_request_t) -> Result<Held<'static, Request<Places>>, Fault> {
    let handle = request.addr() as u64;
    REQUESTS.get(handle).ok_or_else(|| Fault::handle(NAME, handle))
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
        ended.write(find(request)?.test().into());
        Ok(())
    })
}

/// Waits until the call of a request has ended, frees the request and returns the call's result.
/// The memory of the call is the program's again.
#[unsafe(no_mangle)]
pub extern "C" fn ringfold_wait(request: ringfold_request_t) -> ringfold_result {
    reported(|| {
        let handle = request.addr() as u64;
        let request = REQUESTS.remove(handle).ok_or_else(|| Fault::handle(NAME, handle))?;
        request.wait().map_err(|failed| failed.error)?;
        Ok(())
    })
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
        let handle = request.addr() as u64;
        let request = REQUESTS.remove(handle).ok_or_else(|| Fault::handle(NAME, handle))?;
        request.wait_for(Duration::MAX);
        match request.take_result() {
            Some(received) => {
                if let Some(received) = received? {
                    message.write(received.into());
                }
            }
            // In a child process the call never ends, and the wait says so.
            None => {
                request.wait().map_err(|failed| failed.error)?;
            }
        }
        Ok(())
    })
}

/// Frees a request without a wait. Its call goes on, and no function tells its end. The memory
/// belongs to the call until the communicator is freed, or a later call of its ranks shows that it
/// has ended.
#[unsafe(no_mangle)]
pub extern "C" fn ringfold_request_free(request: ringfold_request_t) -> ringfold_result {
    reported(|| {
        let handle = request.addr() as u64;
        REQUESTS.remove(handle).map(drop).ok_or_else(|| Fault::handle(NAME, handle))
    })
}

/// Writes a descriptor that is readable once the call of a request has ended, for an event loop.
/// The program must not read or close it: ringfold_wait and ringfold_request_free close it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_request_descriptor(
    request: ringfold_request_t,
    descriptor: *mut c_int,
) -> ringfold_result {
    reported(|| {
        // SAFETY: the caller points to memory of a number.
        let descriptor = unsafe { memory::out(descriptor, "descriptor") }?;
        let request = find(request)?;
        let made = request.descriptor();
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
        let all: Vec<&Request<Places>> = there.iter().map(|(_, request)| &**request).collect();
        if let Some(ended) = wait_any(&all) {
            index.write(there[ended].0);
        }
        Ok(())
    })
}
