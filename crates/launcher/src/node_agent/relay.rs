//! The streams through a node agent: orders in, reports out, and the ranks' output and input
//! between.

use std::io;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;

use ringfold_types::limits::HOST_SILENCE_MS;

use crate::frame::{Decoder, FrameError, GREETING, encode};
use crate::heartbeat::{Heartbeat, SilenceTimer};
use crate::message::{Down, REFUSAL_MARK, Refusal, Up};
use crate::output::Lines;
use crate::stream::Stream;

/// The most output reports that wait for the launcher. Beyond them the ranks wait.
const OUTPUTS_WAITING: usize = 32;

/// How long a stream may be silent, but open, after all processes of the job are dead.
const OUTPUT_SILENCE: Duration = Duration::from_secs(1);

/// The most bytes to read from a stream at once.
const READ_BYTES: usize = 16 * 1024;

/// The queues to the launcher. Events never wait. Their number is bounded by the number of ranks.
#[derive(Clone, Debug)]
pub(super) struct Reports {
    events: mpsc::UnboundedSender<Up>,
    outputs: mpsc::Sender<Up>,
    refusals: mpsc::UnboundedSender<(u32, Refusal)>,
    over: watch::Sender<bool>,
}

/// The ends of `Reports` for the node agent itself.
pub(super) struct Ends {
    /// The task that writes. It ends when all `Reports` or the launcher are gone.
    pub(super) writer: JoinHandle<()>,
    /// The ranks that could not be started.
    pub(super) refusals: mpsc::UnboundedReceiver<(u32, Refusal)>,
}

impl Reports {
    /// Writes reports to `stdout`, with heartbeats within `silence`.
    pub(super) fn over(stdout: pipe::Sender, silence: Option<Duration>) -> (Self, Ends) {
        let (events, events_rx) = mpsc::unbounded_channel();
        let (outputs, outputs_rx) = mpsc::channel(OUTPUTS_WAITING);
        let writer = tokio::spawn(async move {
            // The launcher is gone if this fails. The end of our input shows that as well.
            write_reports(stdout, events_rx, outputs_rx, Heartbeat::within(silence)).await.ok();
        });
        let (refusals, refusals_rx) = mpsc::unbounded_channel();
        let reports = Self { events, outputs, refusals, over: watch::Sender::new(false) };
        (reports, Ends { writer, refusals: refusals_rx })
    }

    /// Tells the readers that every process of the job is dead and writes no more.
    pub(super) fn no_more_output(&self) {
        self.over.send_replace(true);
    }

    /// Reports an event.
    pub(super) fn event(&self, event: Up) {
        // Fails only if the launcher is gone.
        self.events.send(event).ok();
    }
}

async fn write_reports(
    mut stdout: pipe::Sender,
    mut events: mpsc::UnboundedReceiver<Up>,
    mut outputs: mpsc::Receiver<Up>,
    mut beat: Heartbeat,
) -> io::Result<()> {
    stdout.write_all(GREETING).await?;
    loop {
        let report = tokio::select! {
            biased;
            report = next_report(&mut events, &mut outputs) => match report {
                Some(report) => report,
                None => return Ok(()),
            },
            () = beat.next() => Up::Heartbeat,
        };
        stdout.write_all(&encode(&report).map_err(io::Error::other)?).await?;
    }
}

/// The next report, events first. `None` if there will be no more. May be cancelled.
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
pub(super) enum LauncherLost {
    /// The launcher, or the connection to it, is dead.
    #[error("it has received nothing from ringrun for {} s (--host-timeout)", .0.as_secs_f64())]
    Silent(Duration),
    /// The launcher sent an invalid order.
    #[error("ringrun sent an invalid order")]
    Invalid(#[source] FrameError),
}

/// Passes on orders until the launcher is gone, falls silent or sends an invalid one. Its first
/// order says how long it may be silent.
pub(super) async fn read_orders(
    mut stdin: pipe::Receiver,
    orders: mpsc::Sender<Result<Down, LauncherLost>>,
) {
    let mut limit = Some(Duration::from_millis(HOST_SILENCE_MS));
    let mut silence = SilenceTimer::at_most(limit);
    let mut decoder = Decoder::plain();
    let mut buffer = vec![0; READ_BYTES];
    let lost = 'heard: loop {
        let count = tokio::select! {
            biased;
            read = stdin.read(&mut buffer) => read.unwrap_or(0),
            () = silence.expired() => break LauncherLost::Silent(limit.unwrap_or_default()),
        };
        if count == 0 {
            return;
        }
        silence.reset();
        decoder.push(&buffer[..count]);
        loop {
            let order = match decoder.next() {
                Ok(Some(order)) => order,
                Ok(None) => break,
                Err(error) => break 'heard LauncherLost::Invalid(error),
            };
            if let Down::Start(order) = &order {
                limit = order.silence;
                silence = SilenceTimer::at_most(limit);
            }
            if orders.send(Ok(order)).await.is_err() {
                return;
            }
        }
    };
    // The node agent is gone if this fails.
    orders.send(Err(lost)).await.ok();
}

/// Passes on the output of a rank, in whole lines unless they are too long, until every process
/// that holds its end is gone. After the end of the job it does not wait for processes outside the
/// job that still hold it.
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
            tokio::time::sleep(OUTPUT_SILENCE).await;
        };
        let count = tokio::select! {
            biased;
            read = from.read(&mut buffer) => read.unwrap_or(0),
            () = silence => 0,
        };
        open = count > 0;
        if at_start && let Some(refusal) = refusal(&buffer[..count]) {
            // The node agent is gone if this fails, and so is this task.
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

/// The refusal of a trampoline, if these bytes hold one.
fn refusal(first_bytes: &[u8]) -> Option<Refusal> {
    let mut decoder = Decoder::plain();
    decoder.push(first_bytes.strip_prefix(REFUSAL_MARK)?);
    decoder.next().ok().flatten()
}

/// Writes a rank's input: first `order`, then the pieces as they come. If the rank stops reading,
/// the launcher leaves the rest of the input unread.
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

#[cfg(test)]
mod tests {
    use std::io;

    use ringfold_types::Chain;

    use super::*;

    #[test]
    fn an_invalid_message_is_named_once_with_its_cause() {
        let cause = postcard::Error::DeserializeBadEncoding;
        let lost = io::Error::other(LauncherLost::Invalid(FrameError::Malformed(cause.clone())));
        let text = format!("ringrun sent an invalid order: not a message: {cause}");
        assert_eq!(Chain(&lost).to_string(), text);
    }
}
