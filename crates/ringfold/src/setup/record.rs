//! The record of this process, which other processes of the user may read.

use std::cmp::Reverse;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::AtomicU64;
use std::time::{Duration, SystemTime};

use ringfold_bootstrap::{
    KEEP_WORD, RECORD_WORDS, Record, RecordFacts, TRAFFIC_AT, has_record, open_record, start_record,
};
use ringfold_transport::{
    count_traffic, may_write, open_private_folder, record, record_folder, remove_record, ticks,
    trust_counter, use_exact_clock,
};
use ringfold_types::limits::{DUMP_PATH_BYTES, RECORDS_KEPT};
use rustix::time::{ClockId, clock_gettime};

use crate::config::{Config, part_of};
use crate::{metrics, trace};

/// The age at which the record of an ended process goes.
const KEPT: Duration = Duration::from_secs(24 * 60 * 60);

/// Begins the record of this process on `host`, unless it has one. Without a place in shared memory
/// it is in ordinary memory, where no other process reads it.
pub(super) fn start(config: &Config, host: &str) {
    static STARTING: Mutex<()> = Mutex::new(());
    let _one = STARTING.lock();
    if has_record() {
        return;
    }
    remove_old_records();
    let path = record_folder();
    let is_newcomer = config.is_newcomer();
    let tracer = config.trace.as_ref().and_then(|file| trace::start(file, is_newcomer, &path));
    let has_counter = trust_counter() && tracer.is_none();
    if tracer.is_some() {
        use_exact_clock();
    }
    let (words, folder) = match record(&path, RECORD_WORDS, KEEP_WORD) {
        Ok(words) => (words, Some(path)),
        Err(error) => {
            tracing::warn!(
                "`ringfold top` does not see this process: no record in {}: {error}",
                path.display()
            );
            let words: Box<[AtomicU64]> = (0..RECORD_WORDS).map(|_| AtomicU64::new(0)).collect();
            (&*Box::leak(words), None)
        }
    };
    if let (Some(metrics), Some(folder)) = (&config.metrics, &folder) {
        metrics::start(metrics, folder);
    }
    let dump = config.dump.as_ref().and_then(|dump| dump_folder(Path::new(dump)));
    let clock = (ticks as fn() -> u64, has_counter);
    count_traffic(&words[TRAFFIC_AT]);
    start_record(words, RecordFacts { host: host.to_owned(), clock, dump, folder, tracer });
}

/// Makes the folder `dump`, and returns its absolute path. Warns if a failure cannot copy the
/// record there.
fn dump_folder(dump: &Path) -> Option<PathBuf> {
    let trial = part_of(&dump.join("trial"));
    let tried = may_write((RECORD_WORDS * size_of::<u64>()) as u64)
        .and_then(|()| fs::create_dir_all(dump))
        .and_then(|()| fs::write(&trial, b""))
        .and_then(|()| fs::remove_file(&trial))
        .and_then(|()| fs::canonicalize(dump))
        .and_then(|path| {
            if path.as_os_str().len() > DUMP_PATH_BYTES {
                let long = format!("its path has more than {DUMP_PATH_BYTES} bytes");
                return Err(io::Error::other(long));
            }
            Ok(path)
        });
    tried
        .inspect_err(|error| {
            tracing::warn!(
                "RINGFOLD_DUMP={} cannot be written, so a failure leaves no records there; make it \
                 a folder that this user may write: {error}",
                dump.display()
            );
        })
        .ok()
}

/// Removes the records of processes of this user that ended more than a day ago, and the oldest of
/// more than `limits::RECORDS_KEPT`. Starting processes and `ringfold top` call it.
pub fn remove_old_records() {
    let path = record_folder();
    let (Ok(folder), Ok(entries)) = (open_private_folder(&path), fs::read_dir(&path)) else {
        return;
    };
    let dated = entries
        .flatten()
        // Locks have other names than records.
        .filter(|entry| {
            entry.file_name().as_encoded_bytes().first().is_some_and(u8::is_ascii_digit)
        })
        .filter_map(|entry| Some((entry.metadata().ok()?.modified().ok()?, entry.file_name())));
    let mut dated: Vec<_> = dated.collect();
    dated.sort_unstable_by_key(|(modified, _)| Reverse(*modified));
    for (index, (modified, name)) in dated.into_iter().enumerate() {
        let is_outdated = |at: SystemTime| at.elapsed().is_ok_and(|age| age > KEPT);
        let is_last =
            || open_record(&path.join(&name)).is_ok_and(|it| !is_outdated(last_moment(&it)));
        if index >= RECORDS_KEPT || is_outdated(modified) {
            let is_surplus = index >= RECORDS_KEPT;
            // Another process may have removed it.
            remove_record(&folder, &name, || is_surplus || !is_last()).unwrap_or_default();
        }
    }
}

/// The time of the latest entry of a record.
fn last_moment(record: &Record) -> SystemTime {
    let last = record.time_of(record.last_stamp(), this_moment());
    SystemTime::UNIX_EPOCH + Duration::from_nanos(last)
}

/// This moment as a stamp of records of this host, and in monotonic nanoseconds.
#[must_use]
pub fn this_moment() -> [u64; 2] {
    let now = clock_gettime(ClockId::Monotonic);
    let (seconds, nanos) = (now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs());
    [ticks(), seconds.wrapping_mul(1_000_000_000).wrapping_add(nanos)]
}
