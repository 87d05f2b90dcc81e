//! Calls that are collected first and then performed together.
#![allow(unsafe_code)]

use ringfold::{Call, CallGroup, Rank, Wire};

use crate::places::Places;
use crate::region::Region;

/// A call of a group.
#[derive(Clone, Copy, Debug)]
pub enum Entry {
    /// A message to a rank.
    Send {
        /// The bytes.
        data: Region,
        /// The receiver.
        to: Rank,
        /// The tag.
        tag: u32,
    },
    /// A message from a rank.
    Recv {
        /// The bytes.
        data: Region,
        /// The sender; `None` for any rank.
        from: Option<Rank>,
        /// The tag; `None` for any.
        tag: Option<u32>,
    },
    /// A collective.
    Collective {
        /// The call, whose wire is that of the communicator.
        call: Call,
        /// Its memory.
        places: Places,
    },
}

/// Whether no call writes memory that another one uses.
pub fn are_apart(entries: &[Entry]) -> bool {
    let mut used = Vec::new();
    let mut add = |region: Region, is_written: bool| {
        let bytes = region.addresses();
        if !bytes.is_empty() {
            used.push((bytes.start, bytes.end, is_written));
        }
    };
    for entry in entries {
        match *entry {
            Entry::Send { data, .. } => add(data, false),
            Entry::Recv { data, .. } => add(data, true),
            Entry::Collective { places: Places::InPlace(both), .. } => add(both, true),
            Entry::Collective { places: Places::Apart { input, output }, .. } => {
                add(input, false);
                add(output, true);
            }
        }
    }
    used.sort_unstable();
    let (mut written_to, mut used_to) = (0, 0);
    for (start, end, is_written) in used {
        if start < written_to || is_written && start < used_to {
            return false;
        }
        used_to = used_to.max(end);
        if is_written {
            written_to = end;
        }
    }
    true
}

/// Adds calls to a group.
///
/// # Safety
/// The memory of the calls belongs to the caller. Nobody else accesses it until they are done. The
/// calls [are apart](are_apart).
pub unsafe fn add_to(group: &mut CallGroup<'_>, entries: &[Entry], wire: Wire) {
    for entry in entries {
        // SAFETY: the contract.
        unsafe {
            match *entry {
                Entry::Send { data, to, tag } => group.send::<u8>(data.slice(), to, tag),
                Entry::Recv { data, from, tag } => group.recv::<u8>(data.slice_mut(), from, tag),
                Entry::Collective { call, places } => {
                    group.perform(&Call { wire, ..call }, places.buffers());
                }
            }
        }
    }
}
