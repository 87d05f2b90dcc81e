//! The records of killed ranks, in their folders for dumps.

use ringfold_bootstrap::dump_ended;
use ringfold_transport::{record_folder, ticks, trust_counter};

use crate::stream::Stream;

/// Copies the records of the ranks of this host that were killed, after all have ended.
pub(crate) fn complete() {
    trust_counter();
    if let Err(error) = dump_ended(&record_folder(), ticks, None) {
        let line = format!("ringrun: RINGFOLD_DUMP lacks records of killed ranks: {error}\n");
        // Without a standard error there is nobody to tell.
        Stream::Err.put(line.as_bytes()).unwrap_or_default();
    }
}
