//! Messages between two ranks.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};

use ringfold::Rank;
use ringfold_foreign::Entry;

use crate::collective::element;
use crate::comm::with;
use crate::fault::reported;
use crate::memory::{self, elements};
use crate::pending;
use crate::types::{RawType, ringfold_comm_t, ringfold_result};

/// Sends `count` elements to rank `to`, which must receive them with the same tag and the same
/// length in bytes. Blocks until the message has left, or until the receiver takes it if it is
/// long. Messages from one rank to another arrive in the order in which they were sent. They have
/// no part in the order of the collectives. Two ranks that send long messages to each other must
/// use ringfold_send_recv or a group of calls. In a group, `to` may be this rank.
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

/// Receives the next message of rank `from` in `count` elements. Blocks until it has arrived. A
/// message with another tag or another length in bytes fails the job. In a group of calls, `from`
/// may be this rank.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_recv(
    data: *mut c_void,
    count: usize,
    r#type: RawType,
    from: u32,
    tag: u32,
    comm: ringfold_comm_t,
) -> ringfold_result {
    let data = || elements(data, (count, element(r#type)?), "the data");
    reported(|| {
        if let Some(group) = pending::of(comm) {
            return group.add(|_, _| Ok([Entry::Recv { data: data()?, from: Rank(from), tag }]));
        }
        // SAFETY: the caller gives the memory that the header asks for.
        with(comm, |comm| Ok(comm.recv(unsafe { data()?.slice_mut() }, Rank(from), tag)?))
    })
}

/// Receives the next message with this tag, of any other rank, in `count` elements, and writes its
/// sender to `from`. Blocks until it has arrived. A rank whose next message has another tag is
/// passed over. A message with another length in bytes fails the job, and so does the departure of
/// all other ranks. Among several senders the search begins behind the one that it found last. Has
/// no part in groups of calls.
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
        with(comm, |comm| {
            let data = elements(data, (count, element(r#type)?), "the data")?;
            // SAFETY: the caller gives the memory that the header asks for.
            from.write(comm.recv_any(unsafe { data.slice_mut() }, tag)?.0);
            Ok(())
        })
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
            let found = comm.probe(Rank(from))?;
            is_there.write(found.is_some().into());
            if let Some(message) = found {
                tag.write(message.tag);
                bytes.write(message.bytes);
            }
            Ok(())
        })
    })
}

/// Sends `input_count` elements to rank `to` and receives the next message of rank `from` in
/// `output_count` elements, both with this tag. Both progress at once, so a ring of ranks that all
/// call it does not deadlock. Both ranks may be this one. Blocks until both are done. The input and
/// the output must lie apart.
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
    let (to, from) = (Rank(to), Rank(from));
    reported(|| {
        if let Some(group) = pending::of(comm) {
            return group.add(|_, _| {
                let (input, output) = both()?;
                let send = Entry::Send { data: input, to, tag };
                Ok([send, Entry::Recv { data: output, from, tag }])
            });
        }
        with(comm, |comm| {
            let (input, output) = both()?;
            // SAFETY: the caller gives the memory that the header asks for, and it lies apart.
            let (input, output) = unsafe { (input.slice(), output.slice_mut()) };
            Ok(comm.send_recv(input, to, output, from, tag)?)
        })
    })
}
