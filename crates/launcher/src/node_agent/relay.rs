//! Bytes on their way through a keeper: orders in, reports out, the ranks' streams between.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use ringfold_types::limits::HOST_SILENCE_MS;

use crate::frame::{Decoder, FrameError, GREETING, encode};
use crate::message::{Down, REFUSAL_MARK, Refusal, Stream, Up};
use crate::output::Lines;
use crate::silence::{Beat, Silence};

/// Reports that wait for the launcher; beyond them the ranks wait.
const OUTPUTS_WAITING: usize = 32;

/// How long a stream may be silent, but open, when all processes of the job are dead.
const SILENCE: Duration = Duration::from_secs(1);

/// Bytes taken from a stream at once.
const READ_BYTES: usize = 16 * 1024;

/// The way to the launcher. Events never wait; their number is bounded by that of the ranks.
#[derive(Clone, Debug)]
pub(super) struct Reports {
    events: mpsc::UnboundedSender<Up>,
    outputs: mpsc::Sender<Up>,
    refusals: mpsc::UnboundedSender<(u32, Refusal)>,
    over: watch::Sender<bool>,
}

/// What comes of `Reports::over`, for the keeper's own ears.
pub(super) struct Ends {
    /// Done when all `Reports` are gone, or the launcher.
    pub(super) writer: JoinHandle<()>,
    /// Ranks that could not be started.
    pub(super) refusals: mpsc::UnboundedReceiver<(u32, Refusal)>,
}

impl Reports {
    /// Reports over `stdout`, with signs of life within `silence`.
    pub(super) fn over(stdout: pipe::Sender, silence: Option<Duration>) -> (Self, Ends) {
        let (events, events_rx) = mpsc::unbounded_channel();
        let (outputs, outputs_rx) = mpsc::channel(OUTPUTS_WAITING);
        let writer = tokio::spawn(async move {
            // The launcher is gone if this fails, which the end of our input tells as well.
            write_reports(stdout, events_rx, outputs_rx, Beat::within(silence)).await.ok();
        });
        let (refusals, refusals_rx) = mpsc::unbounded_channel();
        let reports = Self { events, outputs, refusals, over: watch::Sender::new(false) };
        (reports, Ends { writer, refusals: refusals_rx })
    }

    /// Every process of the job is dead: nothing more will be written by any.
    pub(super) fn no_more_output(&self) {
        self.over.send_replace(true);
    }

    /// Reports something that happened.
    pub(super) fn event(&self, event: Up) {
        // Fails only if the launcher is gone.
        self.events.send(event).ok();
    }
}

async fn write_reports(
    mut stdout: pipe::Sender,
    mut events: mpsc::UnboundedReceiver<Up>,
    mut outputs: mpsc::Receiver<Up>,
    mut beat: Beat,
) -> io::Result<()> {
    stdout.write_all(GREETING).await?;
    loop {
        let report = tokio::select! {
            biased;
            report = next_report(&mut events, &mut outputs) => match report {
                Some(report) => report,
                None => return Ok(()),
            },
            () = beat.next() => Up::Beat,
        };
        stdout.write_all(&encode(&report).map_err(io::Error::other)?).await?;
    }
}

/// The next report, events first; `None` if there will be no more. May be cancelled.
async fn next_report(
    events: &mut mpsc::UnboundedReceiver<Up>,
    outputs: &mut mpsc::Receiver<Up>,
) -> Option<Up> {
    tokio::select! {
        biased;
        Some(event) = events.recv() => Some(event),
        Some(output) = outputs.recv() => Some(output),
        else => None,
    }
}

/// Why the launcher gives no more orders, though its connection is open.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unheard {
    /// It, or the connection to it, does not live.
    #[error("it has heard nothing from ringrun for {} s (--host-timeout)", .0.as_secs_f64())]
    Silent(Duration),
    /// A launcher gives no such orders.
    #[error("it does not understand ringrun: {0}")]
    Nonsense(FrameError),
}

/// Passes orders on until the launcher is gone, falls silent or talks nonsense. How long it may be
/// silent is in its first order.
pub(super) async fn read_orders(
    mut stdin: pipe::Receiver,
    orders: mpsc::Sender<Result<Down, Unheard>>,
) {
    let mut limit = Some(Duration::from_millis(HOST_SILENCE_MS));
    let mut silence = Silence::at_most(limit);
    let mut decoder = Decoder::plain();
    let mut buffer = vec![0; READ_BYTES];
    let unheard = 'heard: loop {
        let count = tokio::select! {
            biased;
            read = stdin.read(&mut buffer) => read.unwrap_or(0),
            () = silence.too_long() => break Unheard::Silent(limit.unwrap_or_default()),
        };
        if count == 0 {
            return;
        }
        silence.broken();
        decoder.push(&buffer[..count]);
        loop {
            let order = match decoder.next() {
                Ok(Some(order)) => order,
                Ok(None) => break,
                Err(error) => break 'heard Unheard::Nonsense(error),
            };
            if let Down::Start(order) = &order {
                limit = order.silence;
                silence = Silence::at_most(limit);
            }
            if orders.send(Ok(order)).await.is_err() {
                return;
            }
        }
    };
    // The keeper is gone if this fails.
    orders.send(Err(unheard)).await.ok();
}

/// Passes on what a rank writes, in whole lines where they are not too long, until every process
/// that holds its end is gone. When the job is over, it does not wait for processes outside the job
/// that still hold it.
pub(super) async fn read_stream(
    mut from: pipe::Receiver,
    rank: u32,
    stream: Stream,
    reports: Reports,
) {
    let mut lines = Lines::default();
    let mut buffer = vec![0; READ_BYTES];
    let mut over = reports.over.subscribe();
    let mut open = true;
    let mut at_start = stream == Stream::Out;
    while open {
        let silence = async {
            // The sender is in `reports`.
            over.wait_for(|over| *over).await.ok();
            tokio::time::sleep(SILENCE).await;
        };
        let count = tokio::select! {
            biased;
            read = from.read(&mut buffer) => read.unwrap_or(0),
            () = silence => 0,
        };
        open = count > 0;
        if at_start && let Some(refusal) = refusal(&buffer[..count]) {
            // The keeper is gone if this fails, and this task with it.
            reports.refusals.send((rank, refusal)).ok();
            return;
        }
        at_start = false;
        let whole = if open { lines.push(&buffer[..count]) } else { lines.finish() };
        if !whole.is_empty() {
            let output = Up::Output { rank, stream, bytes: whole };
            open &= reports.outputs.send(output).await.is_ok();
        }
    }
}

/// A trampoline's last words, if these are.
fn refusal(first_bytes: &[u8]) -> Option<Refusal> {
    let mut decoder = Decoder::plain();
    decoder.push(first_bytes.strip_prefix(REFUSAL_MARK)?);
    decoder.next().ok().flatten()
}

/// Writes a rank's input: first `order`, then the pieces as they come. A rank that reads no more
/// takes no more, and the launcher leaves the rest unread.
pub(super) async fn write_input(
    mut to: pipe::Sender,
    order: zeroize::Zeroizing<Vec<u8>>,
    mut pieces: mpsc::UnboundedReceiver<Vec<u8>>,
    reports: Reports,
) {
    if to.write_all(&order).await.is_err() {
        return;
    }
    drop(order);
    while let Some(piece) = pieces.recv().await {
        if to.write_all(&piece).await.is_err() {
            return;
        }
        reports.event(Up::InputTaken);
    }
}
