//! Messages between two ranks.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use ringfold::{ANY_SOURCE, ANY_TAG, Message, Rank};
use ringfold_foreign::Entry;

use crate::collective::element;
use crate::comm::with;
use crate::fault::{Fault, reported};
use crate::memory::{self, elements};
use crate::pending;
use crate::types::{
    RINGFOLD_ANY_SOURCE, RINGFOLD_ANY_TAG, RawType, ringfold_comm_t, ringfold_message,
    ringfold_result,
};

/// Sends `count` elements to rank `to`. Blocks until the message has left, or until the receiver
/// takes it if it is long. Messages with the same tag from one rank to another never overtake each
/// other. They have no part in the order of the collectives. Two ranks that send long messages to
/// each other must use ringfold_send_recv, ringfold_start_send or a group of calls. In a group,
/// `to` may be this rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_send(
    data: *const c_void,
    count: usize,
    r#type: RawType,
    to: u32,
    tag: u32,
    comm: ringfold_comm_t,
) -> ringfold_result {
    let data = || elements(data, (count, element(r#type)?), "the data");
    reported(|| {
        if let Some(group) = pending::of(comm) {
            return group.add(|_, _| Ok([Entry::Send { data: data()?, to: Rank(to), tag }]));
        }
        // SAFETY: the caller gives the memory that the header asks for.
        with(comm, |comm| Ok(comm.send(unsafe { data()?.slice() }, Rank(to), tag)?))
    })
}

/// Receives the first message of rank `from` with this tag in at most `count` elements. Blocks
/// until it has arrived. `from` may be RINGFOLD_ANY_SOURCE, and `tag` RINGFOLD_ANY_TAG. A message
/// that is longer gives RINGFOLD_ERROR_TRUNCATED and stays for a later receive. In a group of
/// calls, `from` may be this rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_recv(
    data: *mut c_void,
    count: usize,
    r#type: RawType,
    from: u32,
    tag: u32,
    comm: ringfold_comm_t,
) -> ringfold_result {
    reported(|| {
        let (from, tag) = (source(from), tag_of(tag));
        if let Some(group) = pending::of(comm) {
            let data = elements(data, (count, element(r#type)?), "the data")?;
            return group.add(|_, _| Ok([Entry::Recv { data, from, tag }]));
        }
        // SAFETY: the contract of this function.
        unsafe { recv(data, (count, r#type), (from, tag), comm) }.map(drop)
    })
}

/// Receives as ringfold_recv, and writes the message to `message`. Has no part in groups of calls.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_recv_message(
    data: *mut c_void,
    count: usize,
    r#type: RawType,
    from: u32,
    tag: u32,
    message: *mut ringfold_message,
    comm: ringfold_comm_t,
) -> ringfold_result {
    reported(|| {
        // SAFETY: the caller points to memory of a message.
        let message = unsafe { memory::out(message, "message") }?;
        let which = (source(from), tag_of(tag));
        // SAFETY: the contract of this function.
        message.write(unsafe { recv(data, (count, r#type), which, comm) }?.into());
        Ok(())
    })
}

/// Receives a message.
///
/// # Safety
/// `data` points to memory of that many elements, which nobody else accesses meanwhile.
unsafe fn recv(
    data: *mut c_void,
    (count, data_type): (usize, RawType),
    (from, tag): (Option<Rank>, Option<u32>),
    comm: ringfold_comm_t,
) -> Result<Message, Fault> {
    with(comm, |comm| {
        let data = elements(data, (count, element(data_type)?), "the data")?;
        // SAFETY: the contract.
        Ok(comm.recv(unsafe { data.slice_mut() }, from, tag)?)
    })
}

/// The source that C names.
pub(crate) fn source(from: u32) -> Option<Rank> {
    (from != RINGFOLD_ANY_SOURCE).then_some(Rank(from))
}

/// The tag that C names.
pub(crate) fn tag_of(tag: u32) -> Option<u32> {
    (tag != RINGFOLD_ANY_TAG).then_some(tag)
}

/// Receives as ringfold_recv, from any other rank, and writes the sender to `from`. Among several
/// senders the search begins behind the one that it found last. Fails the job when all other ranks
/// have left. Has no part in groups of calls.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_recv_any(
    data: *mut c_void,
    count: usize,
    r#type: RawType,
    tag: u32,
    from: *mut u32,
    comm: ringfold_comm_t,
) -> ringfold_result {
    reported(|| {
        // SAFETY: the caller points to memory of a number.
        let from = unsafe { memory::out(from, "from") }?;
        // SAFETY: the contract of this function.
        let message = unsafe { recv(data, (count, r#type), (ANY_SOURCE, tag_of(tag)), comm) }?;
        from.write(message.peer.0);
        Ok(())
    })
}

/// Writes to `is_there` whether the next message of rank `from` has begun to arrive: 1 or 0. If it
/// has, writes its tag and its length in bytes. Does not wait, and leaves the message to a receive.
/// Fails if `from` has left and all of its messages are received. Has no part in groups of calls.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_probe(
    from: u32,
    is_there: *mut c_int,
    tag: *mut u32,
    bytes: *mut usize,
    comm: ringfold_comm_t,
) -> ringfold_result {
    reported(|| {
        // SAFETY: the caller points to memory of a number.
        let is_there = unsafe { memory::out(is_there, "is_there") }?;
        // SAFETY: as above.
        let tag = unsafe { memory::out(tag, "tag") }?;
        // SAFETY: as above.
        let bytes = unsafe { memory::out(bytes, "bytes") }?;
        with(comm, |comm| {
            let found = comm.probe(source(from), ANY_TAG)?;
            is_there.write(found.is_some().into());
            if let Some(message) = found {
                tag.write(message.tag);
                bytes.write(message.bytes);
            }
            Ok(())
        })
    })
}

/// Writes to `is_there` whether a message that ringfold_recv would take has begun to arrive: 1 or
/// 0. If it has, writes it to `message`. `from` may be RINGFOLD_ANY_SOURCE, and `tag`
/// RINGFOLD_ANY_TAG. Does not wait, and leaves the message to a receive. Has no part in groups of
/// calls.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_probe_message(
    from: u32,
    tag: u32,
    is_there: *mut c_int,
    message: *mut ringfold_message,
    comm: ringfold_comm_t,
) -> ringfold_result {
    reported(|| {
        // SAFETY: the caller points to memory of a number.
        let is_there = unsafe { memory::out(is_there, "is_there") }?;
        // SAFETY: the caller points to memory of a message.
        let message = unsafe { memory::out(message, "message") }?;
        let found = with(comm, |comm| Ok(comm.probe(source(from), tag_of(tag))?))?;
        is_there.write(found.is_some().into());
        if let Some(found) = found {
            message.write(found.into());
        }
        Ok(())
    })
}

/// Sends `input_count` elements to rank `to` and receives a message of rank `from` in at most
/// `output_count` elements, both with this tag. `from` may be RINGFOLD_ANY_SOURCE. Both progress at
/// once, so a ring of ranks that all call it does not deadlock. Both ranks may be this one. Blocks
/// until both are done. The input and the output must lie apart.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_send_recv(
    input: *const c_void,
    input_count: usize,
    input_type: RawType,
    to: u32,
    output: *mut c_void,
    output_count: usize,
    output_type: RawType,
    from: u32,
    tag: u32,
    comm: ringfold_comm_t,
) -> ringfold_result {
    let both = || {
        let input = elements(input, (input_count, element(input_type)?), "the input")?;
        let output = elements(output, (output_count, element(output_type)?), "the output")?;
        memory::apart(input, output, "send_recv").map(|_| (input, output))
    };
    let (to, from) = (Rank(to), source(from));
    reported(|| {
        if let Some(group) = pending::of(comm) {
            return group.add(|_, _| {
                let (input, output) = both()?;
                let send = Entry::Send { data: input, to, tag };
                Ok([send, Entry::Recv { data: output, from, tag: Some(tag) }])
            });
        }
        with(comm, |comm| {
            let (input, output) = both()?;
            // SAFETY: the caller gives the memory that the header asks for, and it lies apart.
            let (input, output) = unsafe { (input.slice(), output.slice_mut()) };
            Ok(comm.send_recv(input, to, output, from, tag).map(drop)?)
        })
    })
}
