//! Copies of records, which a failure makes in the folder for dumps.

use std::fs;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use super::format::{at, without_keys};
use super::read::{bytes_of, is_running, read_record, to_bytes, to_words};

/// Copies the record `words` of this process on `host` at this `moment` to the folder `dump`. Also
/// copies those of the dead ranks of its job in `folder`.
///
/// # Errors
/// The folder cannot be made or written.
pub(super) fn copy(
    words: &[AtomicU64],
    moment: [u64; 3],
    (host, folder): (&str, Option<&Path>),
    dump: &Path,
) -> io::Result<()> {
    let mut own: Vec<u64> = words.iter().map(|word| word.load(Ordering::Relaxed)).collect();
    let [job @ .., pid] = [at::JOB.start, at::JOB.start + 1, at::PID].map(|place| own[place]);
    own[at::COPIED].copy_from_slice(&moment);
    without_keys(&mut own);
    fs::create_dir_all(dump)?;
    write(dump, host, pid, &to_bytes(&own))?;
    let Some(folder) = folder else { return Ok(()) };
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let Ok(bytes) = bytes_of(&path) else { continue };
        let Ok(found) = read_record(&bytes, &bytes) else { continue };
        if found.job != job || found.pid == pid || is_running(&found) {
            continue;
        }
        let mut words = to_words(&bytes);
        words[at::COPIED].copy_from_slice(&moment);
        without_keys(&mut words);
        write(dump, host, found.pid, &to_bytes(&words))?;
    }
    Ok(())
}

/// Writes a copy under a name of its own first, so that a reader finds whole copies only.
fn write(dump: &Path, host: &str, pid: u64, bytes: &[u8]) -> io::Result<()> {
    let name = format!("{}-{pid}.record", host.replace('/', "_"));
    let part = dump.join(format!(".{name}.{}", std::process::id()));
    fs::write(&part, bytes)?;
    fs::rename(&part, dump.join(name))
}
