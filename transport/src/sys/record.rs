//! The record of a process: words in a file that other processes may read, also after its end; and
//! the clock of its stamps.
#![allow(unsafe_code)]

use std::ffi::{CString, OsStr};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::ptr::{self, NonNull};
use std::slice;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use rustix::fs::{
    AtFlags, FallocateFlags, FlockOperation, FsWord, Mode, OFlags, fallocate, flock, fstat,
    fstatfs, mkdir, openat, statat, unlinkat,
};
use rustix::mm::{MapFlags, ProtFlags, mmap};
use rustix::process::{getpid, getuid};
use rustix::time::{ClockId, clock_gettime};

use super::file_limit::may_write;
use super::fork::Process;

/// The number by which `statfs` names a file system in memory.
const TMPFS: FsWord = 0x0102_1994;

/// The most processes of one number whose records may lie in a folder, as those of containers.
const SAME_NUMBER_MAX: usize = 64;

/// A record that this process made, for the end of the process.
#[derive(Debug)]
struct Kept {
    path: CString,
    words: &'static [AtomicU64],
    keep_at: usize,
    process: Process,
    /// Its lock says that the process lives.
    _file: OwnedFd,
}

static RECORD: OnceLock<Kept> = OnceLock::new();

/// Whether the counter of the processor is a clock.
static HAS_COUNTER: AtomicBool = AtomicBool::new(false);

/// Whether stamps are of the monotonic clock itself.
static IS_EXACT: AtomicBool = AtomicBool::new(false);

/// The process with a function that runs at its end.
static END: OnceLock<(Process, fn())> = OnceLock::new();

/// The folder of this user for the records of all its processes on this host.
#[must_use]
pub fn record_folder() -> PathBuf {
    PathBuf::from(format!("/dev/shm/ringfold-{}", getuid().as_raw()))
}

/// Opens a folder that only this user may use, on a file system in memory. Makes it first if it is
/// missing.
///
/// # Errors
/// The folder belongs to another user, or is on another kind of file system.
pub fn open_private_folder(path: &Path) -> io::Result<OwnedFd> {
    match mkdir(path, Mode::RWXU) {
        Err(rustix::io::Errno::EXIST) | Ok(()) => {}
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let folder = rustix::fs::open(path, flags, Mode::empty())?;
    let found = fstat(&folder)?;
    if found.st_uid != getuid().as_raw() || found.st_mode & 0o077 != 0 {
        return Err(io::Error::other("it is not a folder of this user with mode 0700"));
    }
    if fstatfs(&folder)?.f_type != TMPFS {
        return Err(io::Error::other("it is not on a tmpfs"));
    }
    Ok(folder)
}

/// Makes the record of this process: `words` words of zero in a new file of `folder`, which is
/// locked while this process lives. Other processes of the user may read the file at any time. The
/// end of the process removes it if word `keep_at` is still zero. A killed process leaves it.
///
/// A user who truncates the file may kill this process, as by a signal.
///
/// # Errors
/// The process has a record, or the folder has no room for it.
pub fn record(folder: &Path, words: usize, keep_at: usize) -> io::Result<&'static [AtomicU64]> {
    let at = open_private_folder(folder)?;
    let (name, file) = new_file(&at)?;
    let made = map(&file, words).and_then(|words| {
        let path = CString::new(folder.join(&name).into_os_string().as_bytes())?;
        let process = Process::this();
        let kept = Kept { path, words, keep_at, process, _file: file };
        RECORD.set(kept).map_err(|_| io::Error::other("this process has a record"))?;
        Ok(words)
    });
    match made {
        Ok(words) => {
            // SAFETY: the handler only reads statics that are never dropped, and calls `unlink`.
            if unsafe { libc::atexit(remove) } != 0 {
                tracing::debug!("the record of this process stays after its end");
            }
            Ok(words)
        }
        Err(error) => {
            unlinkat(&at, &*name, AtFlags::empty()).ok();
            Err(error)
        }
    }
}

/// Makes an empty file with the number of this process in its name, and locks it.
fn new_file(folder: &OwnedFd) -> io::Result<(String, OwnedFd)> {
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mut error = io::Error::from(io::ErrorKind::AlreadyExists);
    for copy in 0..SAME_NUMBER_MAX {
        let name = format!("{}-{copy}", getpid().as_raw_nonzero());
        match openat(folder, &*name, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => {
                flock(&file, FlockOperation::NonBlockingLockExclusive)?;
                return Ok((name, file));
            }
            Err(rustix::io::Errno::EXIST) => error = rustix::io::Errno::EXIST.into(),
            Err(other) => return Err(other.into()),
        }
    }
    Err(error)
}

/// Maps `words` words of an empty file, whose pages exist from then on.
fn map(file: &OwnedFd, words: usize) -> io::Result<&'static [AtomicU64]> {
    let bytes = words * size_of::<u64>();
    may_write(bytes as u64)?;
    // Without it a full file system would kill the process at an access.
    fallocate(file, FallocateFlags::empty(), 0, bytes as u64)?;
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    let flags = MapFlags::SHARED | MapFlags::POPULATE;
    // SAFETY: a fresh mapping at an address of the kernel's choice overlaps nothing.
    let base = unsafe { mmap(ptr::null_mut(), bytes, protection, flags, file, 0) }?;
    let base = NonNull::new(base.cast::<AtomicU64>()).ok_or(io::ErrorKind::OutOfMemory)?;
    // SAFETY: page-aligned, as long as the file, and never unmapped. All accesses of this process
    // are atomic. The mode of the file and its folder keep other users from changing it.
    Ok(unsafe { slice::from_raw_parts(base.as_ptr(), words) })
}

/// Removes the record at the end of the process, unless it is to be kept.
extern "C" fn remove() {
    if let Some(record) = RECORD.get()
        && record.process.is_this()
        && record.words.get(record.keep_at).is_some_and(|it| it.load(Ordering::Relaxed) == 0)
    {
        // SAFETY: the path ends with a zero byte, and is never dropped.
        unsafe { libc::unlink(record.path.as_ptr()) };
    }
}

/// Runs `end` at the end of this process, unless a signal kills it. Only the first call counts.
/// Children made by `fork` do not run it.
pub fn at_exit(end: fn()) {
    let mut is_first = false;
    END.get_or_init(|| {
        is_first = true;
        (Process::this(), end)
    });
    // SAFETY: the handler only reads a static that is never dropped, and calls a safe function.
    if is_first && unsafe { libc::atexit(run_end) } != 0 {
        tracing::debug!("nothing runs at the end of this process");
    }
}

extern "C" fn run_end() {
    if let Some((process, end)) = END.get()
        && process.is_this()
    {
        end();
    }
}

/// Removes the file `name` of a `folder` if no living process has it as its record, and
/// `is_outdated` says so of its bytes. Returns whether it is gone.
///
/// # Errors
/// The file cannot be opened.
pub fn remove_record(
    folder: &OwnedFd,
    name: &OsStr,
    is_outdated: impl FnOnce() -> bool,
) -> io::Result<bool> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = openat(folder, name, flags, Mode::empty())?;
    if flock(&file, FlockOperation::NonBlockingLockShared).is_err() || !is_outdated() {
        return Ok(false);
    }
    let (ours, named) = (fstat(&file)?, statat(folder, name, AtFlags::SYMLINK_NOFOLLOW)?);
    if ours.st_ino == named.st_ino {
        unlinkat(folder, name, AtFlags::empty())?;
    }
    Ok(true)
}

/// Lets `ticks` read the counter of the processor, if the kernel trusts it as a clock. Returns
/// whether it does.
pub fn trust_counter() -> bool {
    const SOURCES: &str = "/sys/devices/system/clocksource/clocksource0/available_clocksource";
    let is_trusted = cfg!(target_arch = "x86_64")
        && std::fs::read_to_string(SOURCES)
            .is_ok_and(|text| text.split_whitespace().any(|source| source == "tsc"));
    HAS_COUNTER.store(is_trusted, Ordering::Relaxed);
    is_trusted
}

/// Has `ticks` read the monotonic clock, in nanoseconds. All processes of a host have the same one,
/// so their stamps have an order. A stamp takes some ten nanoseconds then.
pub fn use_exact_clock() {
    IS_EXACT.store(true, Ordering::Relaxed);
    HAS_COUNTER.store(false, Ordering::Relaxed);
}

/// The time of a stamp: the counter of the processor where it is trusted, or else nanoseconds of
/// the coarse monotonic clock. It takes a few nanoseconds.
#[must_use]
#[inline]
pub fn ticks() -> u64 {
    #[cfg(target_arch = "x86_64")]
    if HAS_COUNTER.load(Ordering::Relaxed) {
        // SAFETY: the kernel uses the instruction itself, so this processor has it.
        return unsafe { std::arch::x86_64::_rdtsc() };
    }
    monotonic()
}

#[cold]
fn monotonic() -> u64 {
    let is_exact = IS_EXACT.load(Ordering::Relaxed);
    let now = clock_gettime(if is_exact { ClockId::Monotonic } else { ClockId::MonotonicCoarse });
    let (seconds, nanos) = (now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs());
    seconds.wrapping_mul(1_000_000_000).wrapping_add(nanos)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use ringfold_harness::Folder;

    use super::*;

    #[test]
    fn a_folder_that_others_may_use_is_refused() {
        let path = Path::new("/dev/shm").join(format!("ringfold-test-{}", std::process::id()));
        drop(open_private_folder(&path).unwrap());
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let refused = open_private_folder(&path).unwrap_err();
        fs::remove_dir(&path).unwrap();
        assert!(refused.to_string().contains("0700"), "{refused}");
    }

    #[test]
    fn a_link_is_not_followed() {
        let (real, folder) = (Folder::new(), Folder::new());
        let path = folder.at("link");
        std::os::unix::fs::symlink(real.at("."), &path).unwrap();
        assert!(open_private_folder(Path::new(&path)).is_err());
    }

    #[test]
    fn stamps_grow() {
        trust_counter();
        let first = ticks();
        std::thread::sleep(std::time::Duration::from_millis(20));
        assert!(ticks() > first);
    }

    /// One test, since a process has one record.
    #[test]
    fn the_record_of_a_living_process_stays() {
        let path = Path::new("/dev/shm").join(format!("ringfold-record-{}", std::process::id()));
        let words = record(&path, 1024, 2).unwrap();
        words[7].store(0x1234, Ordering::Relaxed);
        let name = fs::read_dir(&path).unwrap().next().unwrap().unwrap().file_name();
        let bytes = fs::read(path.join(&name)).unwrap();
        assert_eq!((bytes.len(), &bytes[56..58]), (8192, &[0x34, 0x12][..]));
        let folder = open_private_folder(&path).unwrap();
        assert!(!remove_record(&folder, &name, || true).unwrap(), "its process lives");
        assert!(record(&path, 1024, 2).is_err(), "a second record");
        assert_eq!(fs::read_dir(&path).unwrap().count(), 1, "the second file is gone");
        fs::write(path.join("1-0"), b"").unwrap();
        assert!(!remove_record(&folder, "1-0".as_ref(), || false).unwrap(), "it is young");
        assert!(remove_record(&folder, "1-0".as_ref(), || true).unwrap());
        fs::remove_dir_all(&path).unwrap();
    }
}
