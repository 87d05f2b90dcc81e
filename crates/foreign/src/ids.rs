//! The unique ids that this process has made and not yet used. Each keeps the port of its rank 0.

use std::str::FromStr;
use std::sync::{Mutex, MutexGuard};

use ringfold::UniqueId;

use crate::lock;

static IDS: Mutex<Vec<UniqueId>> = Mutex::new(Vec::new());

/// The ids, to add one, or to hold while the process forks.
pub fn made_ids() -> MutexGuard<'static, Vec<UniqueId>> {
    lock(&IDS)
}

/// The id with this text. An id of this process is taken out.
///
/// # Errors
/// The text is no id.
pub fn find_id(text: &str) -> Result<UniqueId, <UniqueId as FromStr>::Err> {
    let id: UniqueId = text.parse()?;
    let text = id.to_string();
    made_ids().retain(|made| made.to_string() != text);
    Ok(id)
}
