//! The file of a trace, to which the processes of a job add whole events in turn.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf, absolute};
use std::thread;
use std::time::{Duration, Instant};

use ringfold_transport::may_write;
use ringfold_types::Digest;
use rustix::fs::{FlockOperation, fcntl_lock, flock};
use rustix::io::Errno;

use crate::host_lock::open_lock;

/// The beginning of the file.
const HEAD: &str = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";

/// The end of the file, after the last event. Later events replace it.
const TAIL: &str = "\n]}\n";

/// The separator of events.
pub(super) const SEPARATOR: &str = ",\n";

/// How long a process waits for its turn. One that has the turn may be stopped.
const TURN: Duration = Duration::from_secs(1);

/// Bytes at the end of a file in which its last whole event ends.
const LAST_BYTES: u64 = 64 * 1024;

/// A file of events. It is a whole JSON document at any time.
#[derive(Debug)]
pub(super) struct TraceFile {
    file: File,
    path: PathBuf,
    is_new: bool,
    /// A lock that says that this process writes the file, until it ends.
    _writes: Option<OwnedFd>,
}

/// The turn of a process, which ends with its drop.
pub(super) struct Turn<'f>(&'f TraceFile);

impl Turn<'_> {
    /// Adds events, each of which begins with the separator.
    ///
    /// # Errors
    /// There is no room. The file has none of these events then.
    pub(super) fn append(&self, events: &str) -> io::Result<()> {
        let file = &self.0.file;
        let at = self.0.end(file.metadata()?.len())?;
        let is_first = at == HEAD.len() as u64;
        let events = if is_first { &events[SEPARATOR.len()..] } else { events };
        let text = [events, TAIL].concat();
        may_write(at.saturating_add(text.len() as u64))?;
        let end = |text: &str| file.set_len(at + text.len() as u64);
        let written = file.write_all_at(text.as_bytes(), at).and_then(|()| end(&text));
        if written.is_err() {
            // The old end had room.
            file.write_all_at(TAIL.as_bytes(), at).and_then(|()| end(TAIL))?;
        }
        written
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        flock(&self.0.file, FlockOperation::Unlock).unwrap_or_default();
    }
}

impl TraceFile {
    /// Opens the file, and removes the events that it has, unless they are to be kept, or a process
    /// of this host writes them. The locks in the folder `locks` tell that.
    ///
    /// # Errors
    /// The file cannot be made or locked.
    pub(super) fn open(path: &Path, keeps_events: bool, locks: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(path)?;
        let name = format!("trace-{:x}", Digest::of(absolute(path)?.as_os_str().as_bytes()));
        let writes = open_lock(locks, &name).ok();
        let alone = |lock| fcntl_lock(lock, FlockOperation::NonBlockingLockExclusive).is_ok();
        let is_new = !keeps_events && writes.as_ref().is_none_or(alone);
        let this = Self { file, path: path.to_owned(), is_new, _writes: writes };
        if is_new {
            let _turn = this.turn()?;
            this.file.set_len(0)?;
            this.file.write_all_at(format!("{HEAD}{TAIL}").as_bytes(), 0)?;
        }
        if let Some(lock) = &this._writes {
            // Another process may have emptied the file in this moment.
            in_time(|| fcntl_lock(lock, FlockOperation::NonBlockingLockShared))?;
        }
        Ok(this)
    }

    /// Whether this process has removed the events of others.
    pub(super) const fn is_new(&self) -> bool {
        self.is_new
    }

    /// Waits until no other process writes.
    ///
    /// # Errors
    /// `WouldBlock` if another process does not end its turn; other kinds if the file has no locks.
    pub(super) fn turn(&self) -> io::Result<Turn<'_>> {
        in_time(|| flock(&self.file, FlockOperation::NonBlockingLockExclusive))?;
        Ok(Turn(self))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// The place behind the last whole event of a file of this length. A process that was killed
    /// may have left a part of one.
    fn end(&self, len: u64) -> io::Result<u64> {
        let from = len.saturating_sub(LAST_BYTES);
        let mut last = vec![0; usize::try_from(len - from).unwrap_or(0)];
        self.file.read_exact_at(&mut last, from)?;
        if let Some(rest) = last.strip_suffix(TAIL.as_bytes())
            && len >= (HEAD.len() + TAIL.len()) as u64
        {
            return Ok(from + rest.len() as u64);
        }
        let head = HEAD.len() as u64;
        let separators = last.windows(SEPARATOR.len()).enumerate();
        let mut separators = separators.filter(|(_, it)| *it == SEPARATOR.as_bytes());
        let whole = separators.next_back().map(|(at, _)| from + at as u64);
        if let Some(whole) = whole.filter(|at| *at > head) {
            return Ok(whole);
        }
        // It has no whole event, or was emptied.
        self.file.write_all_at(HEAD.as_bytes(), 0)?;
        Ok(head)
    }
}

/// Tries to take a lock until no other process has it, for `TURN`.
fn in_time(lock: impl Fn() -> Result<(), Errno>) -> io::Result<()> {
    let begin = Instant::now();
    loop {
        match lock() {
            Err(Errno::WOULDBLOCK | Errno::ACCESS | Errno::INTR) if begin.elapsed() < TURN => {
                thread::sleep(Duration::from_millis(1));
            }
            done => return Ok(done?),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use ringfold_harness::Folder;

    use super::*;

    #[test]
    fn a_file_is_whole_after_each_addition() {
        let folder = Folder::new();
        let path = folder.at("trace.json");
        let path = Path::new(&path);
        fs::write(path, "old").unwrap();
        let [one, other] = [false, true]
            .map(|keeps| TraceFile::open(path, keeps, Path::new(&folder.at("locks"))).unwrap());
        let text = || fs::read_to_string(path).unwrap();
        assert_eq!(text(), format!("{HEAD}{TAIL}"));
        one.turn().unwrap().append(",\n{\"a\":1}").unwrap();
        other.turn().unwrap().append(",\n{\"b\":2},\n{\"c\":3}").unwrap();
        let whole = format!("{HEAD}{{\"a\":1}},\n{{\"b\":2}},\n{{\"c\":3}}{TAIL}");
        assert_eq!(text(), whole);
        // A process was killed while it wrote.
        for cut in [whole.len() - 1, whole.len() - TAIL.len(), whole.len() - TAIL.len() - 3] {
            fs::write(path, &whole[..cut]).unwrap();
            one.turn().unwrap().append(",\n{\"d\":4}").unwrap();
            assert_eq!(text(), format!("{HEAD}{{\"a\":1}},\n{{\"b\":2}},\n{{\"d\":4}}{TAIL}"));
        }
        for cut in 0..HEAD.len() + 5 {
            fs::write(path, &whole[..cut]).unwrap();
            one.turn().unwrap().append(",\n{\"d\":4}").unwrap();
            assert_eq!(text(), format!("{HEAD}{{\"d\":4}}{TAIL}"), "{cut}");
        }
    }

    #[test]
    fn a_stopped_process_holds_up_no_other_for_long() {
        let folder = Folder::new();
        let path = folder.at("trace.json");
        let [one, other] = [(); 2].map(|()| {
            TraceFile::open(Path::new(&path), false, Path::new(&folder.at("locks"))).unwrap()
        });
        let turn = one.turn().unwrap();
        let refused = other.turn().err().map(|error| error.kind());
        assert_eq!(refused, Some(io::ErrorKind::WouldBlock));
        drop(turn);
        other.turn().unwrap().append(",\n{}").unwrap();
    }
}
