//! Messages between two ranks.
#![allow(unsafe_code)]

use std::ffi::c_void;

use ringfold::Rank;

use crate::collective::element;
use crate::comm::with;
use crate::fault::reported;
use crate::memory::Region;
use crate::pending::{self, Entry};
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
    let data = || Region::of_elements(data, (count, element(r#type)?), "the data");
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
    let data = || Region::of_elements(data, (count, element(r#type)?), "the data");
    reported(|| {
        if let Some(group) = pending::of(comm) {
            return group.add(|_, _| Ok([Entry::Recv { data: data()?, from: Rank(from), tag }]));
        }
        // SAFETY: the caller gives the memory that the header asks for.
        with(comm, |comm| Ok(comm.recv(unsafe { data()?.slice_mut() }, Rank(from), tag)?))
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
        let input = Region::of_elements(input, (input_count, element(input_type)?), "the input")?;
        let output =
            Region::of_elements(output, (output_count, element(output_type)?), "the output")?;
        input.check_apart(output, "send_recv").map(|()| (input, output))
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
