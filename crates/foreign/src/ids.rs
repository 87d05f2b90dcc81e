//! The unique ids that this process has made and not yet used. Each keeps the port of its rank 0.

use std::str::FromStr;
use std::sync::{Mutex, MutexGuard};

use ringfold::UniqueId;

use crate::lock;

static IDS: Mutex<Vec<UniqueId>> = Mutex::new(Vec::new());

/// The ids, to add one. A holder of the guard keeps other threads from them.
pub fn made_ids() -> MutexGuard<'static, Vec<UniqueId>> {
    lock(&IDS)
}

/// The id with this text. An id of this process is taken out.
///
/// # Errors
/// The text is no id.
pub fn find_id(text: &str) -> Result<UniqueId, <UniqueId as FromStr>::Err> {
    let mut ids = made_ids();
    match ids.iter().position(|made| made.to_string() == text) {
        Some(at) => Ok(ids.swap_remove(at)),
        None => text.parse(),
    }
}
