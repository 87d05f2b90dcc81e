//! Metrics of all processes of this user on this host, over HTTP or in a file.
//!
//! Every process with `RINGFOLD_METRICS` has a thread that waits for its turn. The first one reads
//! the records of all processes. When its process ends, the next one goes on. No thread that
//! performs calls, or detects failures, takes part in it. An aggregator offers its own numbers by
//! the same server.

mod aggregator;
mod text;

use std::collections::HashMap;
use std::fs;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::thread;
use std::time::Duration;

use ringfold_bootstrap::{Counters, open_counters, serve};
use ringfold_innetwork::trees::Stats;
use ringfold_transport::{TRAFFIC_WORDS, close_in_children, count_traffic, may_write};
use ringfold_types::Digest;
use rustix::fs::{FlockOperation, fcntl_lock};
use rustix::io::Errno;

use self::text::{CONTENT_TYPE, text};
use crate::config::{Metrics, part_of};
use crate::host_lock::open_lock;

/// The time between two states of a file.
const FILE_EVERY: Duration = Duration::from_secs(1);

/// The time between two attempts to listen at a taken port.
const RETRY: Duration = Duration::from_secs(5);

/// Offers the metrics of the processes whose records are in `folder` from now on, once for all
/// communicators of this process. Does not block. Warnings of the first attempt come from the
/// calling thread, whose program may have no log of its own.
pub(crate) fn start(metrics: &Metrics, folder: &Path) {
    static STARTED: Once = Once::new();
    STARTED.call_once(|| {
        if let Err(error) = begin(metrics.clone(), folder.to_owned()) {
            tracing::warn!(
                "RINGFOLD_METRICS={metrics} is not served by this process, and the job goes on: \
                 {error}"
            );
        }
    });
}

/// Offers the metrics of an aggregator from now on: of its process, and of the groups that `stats`
/// returns. It is called once in a process. `at` is the address of the aggregator. Does not block.
/// Logs a warning if the place is taken, and tries again.
///
/// # Errors
/// There is no thread to have.
#[doc(hidden)]
pub fn serve_aggregator(
    metrics: &Metrics,
    at: String,
    stats: impl Fn() -> Stats + Send + Sync + 'static,
) -> io::Result<()> {
    let words: Box<[AtomicU64]> = (0..TRAFFIC_WORDS).map(|_| AtomicU64::new(0)).collect();
    let words = &*Box::leak(words);
    count_traffic(words);
    let listener = first_listener(metrics);
    let metrics = metrics.clone();
    start_thread(move || {
        offer(&metrics, listener, move || {
            let traffic: Vec<_> = words.iter().map(|it| it.load(Ordering::Relaxed)).collect();
            aggregator::text(&at, &traffic, &stats())
        });
    })
}

/// Begins to listen if it is the turn of this process, and starts its thread.
fn begin(metrics: Metrics, folder: PathBuf) -> io::Result<()> {
    let lock = lock_file(&metrics, &folder)?;
    let has_turn = fcntl_lock(&lock, FlockOperation::NonBlockingLockExclusive).is_ok();
    let listener = if has_turn { first_listener(&metrics) } else { None };
    start_thread(move || {
        wait_for_turn(&lock);
        let seen = Seen::new(&folder);
        offer(&metrics, listener, move || seen.text());
    })
}

fn start_thread(run: impl FnOnce() + Send + 'static) -> io::Result<()> {
    thread::Builder::new().name("ringfold-metrics".to_owned()).spawn(run).map(drop)
}

/// Listens at the address of the metrics, if they have one. Warns if the port is taken.
fn first_listener(metrics: &Metrics) -> Option<TcpListener> {
    let Metrics::At(address) = metrics else { return None };
    listen(*address)
        .inspect_err(|error| {
            tracing::warn!(
                "RINGFOLD_METRICS={metrics} is not served, and the job goes on; this process \
                 tries again every {} s: {error}",
                RETRY.as_secs()
            );
        })
        .ok()
}

/// Offers the text that `make` returns, and goes on for as long as the process runs.
fn offer(
    metrics: &Metrics,
    listener: Option<TcpListener>,
    make: impl Fn() -> String + Send + Sync + 'static,
) {
    match metrics {
        Metrics::At(address) => {
            let listener = listener.unwrap_or_else(|| listen_later(*address));
            let error = serve(listener, CONTENT_TYPE, make);
            tracing::warn!("RINGFOLD_METRICS={metrics} is not served: {error}");
        }
        Metrics::File(path) => write_always(path, make),
    }
}

/// Opens the file whose lock says that its process offers these metrics, in this network.
fn lock_file(metrics: &Metrics, folder: &Path) -> io::Result<OwnedFd> {
    let network = fs::metadata("/proc/self/ns/net").map_or(0, |it| it.ino());
    let name = match metrics {
        Metrics::At(address) => format!("metrics-{network}-{address}"),
        Metrics::File(path) => {
            let path = std::path::absolute(path)?;
            format!("metrics-{:x}", Digest::of(path.as_os_str().as_encoded_bytes()))
        }
    };
    open_lock(folder, &name)
}

/// Waits until no other process has this lock.
fn wait_for_turn(lock: &OwnedFd) {
    while let Err(error) = fcntl_lock(lock, FlockOperation::LockExclusive) {
        if error != Errno::INTR {
            tracing::warn!("the thread for metrics cannot wait for its turn: {error}");
            thread::sleep(RETRY);
        }
    }
}

fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(address)?;
    close_in_children(listener.as_fd());
    tracing::info!("metrics are at http://{address}/metrics");
    Ok(listener)
}

/// Listens at this address, once no other program has the port.
fn listen_later(address: SocketAddr) -> TcpListener {
    loop {
        match listen(address) {
            Ok(listener) => return listener,
            Err(error) => tracing::debug!("{address}: {error}"),
        }
        thread::sleep(RETRY);
    }
}

/// Writes the metrics to a file again and again.
fn write_always(path: &Path, make: impl Fn() -> String) {
    let mut was_written = true;
    loop {
        let written = write(path, &make());
        if let (Err(error), true) = (&written, was_written) {
            tracing::warn!(
                "RINGFOLD_METRICS={} is not written, and the job goes on: {error}",
                path.display()
            );
        }
        was_written = written.is_ok();
        thread::sleep(FILE_EVERY);
    }
}

/// Replaces a file as a whole, so that a reader finds all of a state.
fn write(path: &Path, text: &str) -> io::Result<()> {
    let part = part_of(path);
    let written = may_write(text.len() as u64)
        .and_then(|()| fs::write(&part, text))
        .and_then(|()| fs::rename(&part, path));
    if written.is_err() {
        fs::remove_file(&part).unwrap_or_default();
    }
    written
}

/// The processes whose records are in a folder.
struct Seen {
    folder: PathBuf,
    /// The counters of each process at the latest look: they never go down.
    latest: Mutex<HashMap<(u64, u64), Counters>>,
}

impl Seen {
    fn new(folder: &Path) -> Self {
        Self { folder: folder.to_owned(), latest: Mutex::default() }
    }

    /// The metrics of the processes that run now and have joined.
    fn text(&self) -> String {
        let entries = fs::read_dir(&self.folder).into_iter().flatten().flatten();
        let found = entries.filter_map(|entry| open_counters(&entry.path()).ok().flatten());
        let mut found: Vec<Counters> = found.collect();
        found.sort_unstable_by_key(|it| (it.job, it.rank, it.begun));
        let mut latest = self.latest.lock().unwrap_or_else(PoisonError::into_inner);
        for counters in &mut found {
            if let Some(before) = latest.get(&(counters.pid, counters.begun)) {
                counters.raise_to(before);
            }
        }
        *latest = found.iter().map(|it| ((it.pid, it.begun), it.clone())).collect();
        text(&found)
    }
}

#[cfg(test)]
mod tests {
    use ringfold_harness::Folder;

    use super::*;

    #[test]
    fn a_file_is_replaced_as_a_whole() {
        let folder = Folder::new();
        let path = folder.at("metrics.prom");
        let path = Path::new(&path);
        write(path, "one").unwrap();
        write(path, "two").unwrap();
        assert_eq!(fs::read_to_string(path).unwrap(), "two");
        assert_eq!(fs::read_dir(folder.at(".")).unwrap().count(), 1);
    }
}
