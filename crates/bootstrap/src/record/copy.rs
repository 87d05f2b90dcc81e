//! Copies of records in the folder for dumps. A failure makes them, and other processes make those
//! of ranks that could not.

use std::fs;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use super::clock::moment;
use super::format::{at, without_keys};
use super::read::{Record, bytes_of, is_running, pair, read_record, text, to_bytes, to_words};

/// Copies the record `words` of this process at this `moment` to the folder `dump`. Also copies
/// those of the dead ranks of its job in `folder`.
///
/// # Errors
/// The folder cannot be made or written.
pub(super) fn copy(
    words: &[AtomicU64],
    moment: [u64; 3],
    folder: Option<&Path>,
    dump: &Path,
) -> io::Result<()> {
    let own: Vec<u64> = words.iter().map(|word| word.load(Ordering::Relaxed)).collect();
    let job = pair(&own, at::JOB);
    fs::create_dir_all(dump)?;
    write(dump, own, moment)?;
    let Some(folder) = folder else { return Ok(()) };
    copy_ended(folder, moment, |record| (record.job == job).then(|| dump.to_owned()))
}

/// Copies the records in `folder` of processes that have ended to the folder for dumps that each of
/// them names, which must exist. A copy there that has all of a record stays. With `only` it copies
/// those that name this folder. `clock` reads the stamps of the records.
///
/// `ringrun` calls it after the end of its ranks, and `ringfold inspect` before it reads the
/// folder: ranks that are killed together copy nothing. It blocks for as long as the files take.
///
/// # Errors
/// A file cannot be written. The other records are copied nevertheless.
pub fn dump_ended(folder: &Path, clock: fn() -> u64, only: Option<&Path>) -> io::Result<()> {
    if !folder.exists() {
        return Ok(());
    }
    copy_ended(folder, moment(clock), |record| {
        let dump = Path::new(&record.dump);
        let is_named =
            only.map_or_else(|| dump.is_absolute() && dump.is_dir(), |only| only == dump);
        is_named.then(|| dump.to_owned())
    })
}

/// Copies the records in `folder` of processes that have ended to the folders that `dump_of` gives.
fn copy_ended(
    folder: &Path,
    moment: [u64; 3],
    dump_of: impl Fn(&Record) -> Option<PathBuf>,
) -> io::Result<()> {
    let mut outcome = Ok(());
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let read = || {
            let bytes = bytes_of(&path).ok()?;
            Some((read_record(&bytes, &bytes).ok()?, bytes))
        };
        if read().is_none_or(|(found, _)| is_running(&found)) {
            continue;
        }
        // The process may have written until it ended.
        let Some((found, bytes)) = read() else { continue };
        let last = found.last_stamp().max(1);
        let Some(dump) = dump_of(&found) else { continue };
        if found.dumped == last && *dump == *found.dump {
            continue;
        }
        match write(&dump, to_words(&bytes), moment) {
            Ok(()) => mark(&path, last),
            Err(error) => outcome = Err(error),
        }
    }
    outcome
}

/// Writes the copy `words` of a record, made at this `moment`. It has a name of its own first, so
/// that a reader finds whole copies only.
fn write(dump: &Path, mut words: Vec<u64>, moment: [u64; 3]) -> io::Result<()> {
    words[at::COPIED].copy_from_slice(&moment);
    without_keys(&mut words);
    let (host, pid) = (text(&words[at::HOST], u64::MAX), words[at::PID]);
    let name = format!("{}-{pid}.record", host.replace('/', "_"));
    let part = dump.join(format!(".{name}.{}", std::process::id()));
    fs::write(&part, to_bytes(&words))?;
    fs::rename(&part, dump.join(name))
}

/// Writes into a record that its copy has all up to this stamp. Without it others copy it again.
fn mark(record: &Path, last: u64) {
    let file = fs::OpenOptions::new().write(true).open(record);
    let place = (at::DUMPED * size_of::<u64>()) as u64;
    let marked = file.and_then(|file| file.write_all_at(&to_bytes(&[last]), place));
    if let Err(error) = marked {
        tracing::debug!("{} is copied again: {error}", record.display());
    }
}
