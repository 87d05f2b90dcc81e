//! The trace of this process: its events in memory, and the thread that writes them.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, Once, OnceLock, PoisonError};
use std::thread::{self, Thread};
use std::time::Duration;

use ringfold_bootstrap::{RecordedCall, TracedGroup, Tracer};
use ringfold_transport::{Process, at_exit};
use ringfold_types::limits::TRACE_EVENTS_MAX;

use super::event::{Event, GroupId, Owner, What};
use super::file::TraceFile;
use super::text::Tracks;

/// The time between two additions to the file.
const WRITE_EVERY: Duration = Duration::from_millis(100);

/// The trace of this process.
struct Trace {
    /// A child made by `fork` has no trace.
    process: Process,
    events: Mutex<Events>,
    output: Mutex<Output>,
    owner: OnceLock<Owner>,
    writer: OnceLock<Thread>,
}

/// The events that are not in the file yet.
#[derive(Debug, Default)]
struct Events {
    latest: Vec<Event>,
    /// The events that found no room.
    lost: u64,
    /// The names of the groups of these events.
    names: BTreeMap<GroupId, String>,
}

/// The file, and the tracks of this process in it.
struct Output {
    file: TraceFile,
    tracks: Option<Tracks>,
    /// Whether there is no further warning.
    has_warned: bool,
}

static TRACE: OnceLock<Trace> = OnceLock::new();

/// Begins the trace of this process in a file, before it joins its first group. An old trace goes,
/// unless the process joins ranks that run, or another process of this host writes the file. The
/// locks in `locks` tell that. Returns the tracer for the record. Waits for at most two seconds, if
/// another process does not end its turn.
pub(crate) fn start(path: &Path, is_newcomer: bool, locks: &Path) -> Option<Tracer> {
    let file = match TraceFile::open(path, is_newcomer, locks) {
        Ok(file) => file,
        Err(error) => {
            tracing::warn!(
                "RINGFOLD_TRACE={} has no events of this process, and the job goes on: {error}",
                path.display()
            );
            return None;
        }
    };
    let output = Mutex::new(Output { file, tracks: None, has_warned: false });
    let (process, events) = (Process::this(), Mutex::default());
    let (owner, writer) = (OnceLock::new(), OnceLock::new());
    TRACE.get_or_init(|| Trace { process, events, output, owner, writer });
    at_exit(end);
    Some(Tracer { call, wait })
}

/// Whether this process has a trace.
pub(crate) fn is_on() -> bool {
    trace().is_some()
}

/// Whether this process has begun the file anew.
pub(crate) fn has_emptied() -> bool {
    trace().is_some_and(|trace| locked(&trace.output).file.is_new())
}

/// The offset of this process's clock, once it is known.
pub(crate) fn clock_offset() -> Option<i64> {
    Some(trace()?.owner.get()?.clock_offset)
}

/// Says what the process is in the trace. Only the first call counts. From then on a thread writes
/// the events.
pub(crate) fn begin(owner: Owner) {
    static BEGUN: Once = Once::new();
    let Some(trace) = trace() else { return };
    trace.owner.get_or_init(|| owner);
    BEGUN.call_once(|| {
        let write_always = || {
            loop {
                thread::park_timeout(WRITE_EVERY);
                flush();
            }
        };
        match thread::Builder::new().name("ringfold-trace".to_owned()).spawn(write_always) {
            Ok(writer) => drop(trace.writer.set(writer.thread().clone())),
            Err(error) => tracing::warn!("no thread writes the trace before the end: {error}"),
        }
    });
}

/// Adds the events so far to the file. The end of a communicator calls it too. Blocks for about a
/// second at most: if another process does not end its turn then, the events stay in memory.
pub(crate) fn flush() {
    let Some(trace) = trace() else { return };
    let Some(owner) = trace.owner.get() else { return };
    let mut output = locked(&trace.output);
    let Output { file, tracks, has_warned } = &mut *output;
    let tracks = tracks.get_or_insert_with(|| Tracks::new(owner.clone()));
    if tracks.is_named() && locked(&trace.events).is_empty() {
        return;
    }
    let mut warn = |error: io::Error| {
        if !std::mem::replace(has_warned, true) {
            tracing::warn!(
                "RINGFOLD_TRACE={} lacks events of this process, and the job goes on: {error}",
                file.path().display()
            );
        }
    };
    let turn = match file.turn() {
        Ok(turn) => turn,
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
        Err(error) => return warn(error),
    };
    let (events, lost, names) = {
        let mut events = locked(&trace.events);
        let room = Vec::with_capacity(events.latest.len());
        let latest = std::mem::replace(&mut events.latest, room);
        (latest, std::mem::take(&mut events.lost), std::mem::take(&mut events.names))
    };
    let text = tracks.text(&events, lost, &names);
    if let Err(error) = turn.append(&text) {
        // A later text says so.
        locked(&trace.events).lost += lost + events.len() as u64;
        tracks.forget();
        warn(error);
    }
}

/// Adds the last events of this process. Logs nothing: subscribers may have ended before.
fn end() {
    if let Some(trace) = trace() {
        locked(&trace.output).has_warned = true;
        flush();
    }
}

impl Events {
    fn is_empty(&self) -> bool {
        self.latest.is_empty() && self.lost == 0
    }
}

/// The trace of this process, which is no child made by `fork`.
fn trace() -> Option<&'static Trace> {
    TRACE.get().filter(|trace| trace.process.is_this())
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps an event until it is in the file.
pub(super) fn record(event: Event, name: impl FnOnce() -> String) {
    let Some(trace) = trace() else { return };
    let mut events = locked(&trace.events);
    if events.latest.len() >= TRACE_EVENTS_MAX {
        events.lost += 1;
        return;
    }
    events.names.entry(event.group).or_insert_with(name);
    events.latest.push(event);
    if events.latest.len() == TRACE_EVENTS_MAX / 2 {
        trace.writer.get().into_iter().for_each(Thread::unpark);
    }
}

fn call(group: TracedGroup, call: RecordedCall) {
    let (since, until) = (call.begin, call.end.unwrap_or(call.begin));
    let what = What::Call(call);
    record(Event { group: group.id(), since, until, what }, || group.name());
}

fn wait(group: TracedGroup, since: u64, until: u64) {
    record(Event { group: group.id(), since, until, what: What::Wait }, || group.name());
}
