//! Writes the ranks' output, and the lines of the launcher itself, to this process's standard
//! output and error. A thread writes it, because these streams block as long as their readers
//! please.

use std::io;

use tokio::sync::{mpsc, oneshot};

use crate::output::Tags;
use crate::stream::{Stream, StreamError};
use crate::supervisor::Event;

/// The most pieces that wait for a slow reader. Beyond them the ranks wait.
const PIECES_WAITING: usize = 32;

/// Bytes of one writer: whole lines, or a part of a long or unfinished one.
#[derive(Debug)]
pub(crate) struct Piece {
    /// The rank, or `None` for lines of the launcher itself.
    pub(crate) rank: Option<u32>,
    pub(crate) stream: Stream,
    pub(crate) bytes: Vec<u8>,
}

/// The queue to the printing thread.
#[derive(Debug)]
pub(crate) struct Printer {
    pub(crate) pieces: mpsc::Sender<Piece>,
    /// Resolves when all senders are gone and everything is written.
    pub(crate) done: oneshot::Receiver<Printed>,
}

/// The state of the streams once everything is written.
#[derive(Debug)]
pub(crate) struct Printed {
    /// Whether the last byte on standard error was no newline.
    pub(crate) unfinished_error_line: bool,
    /// Why output of ranks is lost, if it is.
    pub(crate) lost: Option<StreamError>,
}

impl Printer {
    /// Whether nothing waits to be printed.
    pub(crate) fn is_idle(&self) -> bool {
        self.pieces.capacity() == self.pieces.max_capacity()
    }

    /// Prints a line of the launcher itself after the output that waits already.
    pub(crate) fn say(&self, line: &str) {
        let bytes = format!("{line}\n").into_bytes();
        let (pieces, piece) =
            (self.pieces.clone(), Piece { rank: None, stream: Stream::Err, bytes });
        // The job must not wait for a slow reader. Fails only if the thread is gone.
        tokio::spawn(async move { pieces.send(piece).await.ok() });
    }
}

/// Starts the printing thread. If a stream takes no more output of ranks, it sends
/// `Event::OutputLost` once, and drops later output.
pub(crate) fn start(tag_output: bool, events: mpsc::UnboundedSender<Event>) -> io::Result<Printer> {
    let (pieces, mut pieces_rx) = mpsc::channel::<Piece>(PIECES_WAITING);
    let (finished, done) = oneshot::channel();
    std::thread::Builder::new().name("ringrun-print".into()).spawn(move || {
        let [mut out, mut err] = [(); 2].map(|()| Writer::new(tag_output));
        let mut lost = None;
        while let Some(piece) = pieces_rx.blocking_recv() {
            let writer = if piece.stream == Stream::Out { &mut out } else { &mut err };
            if piece.rank.is_none() {
                // A line of the launcher explains the end of the job. Its loss changes nothing.
                writer.print(&piece).ok();
            } else if lost.is_none()
                && let Err(error) = writer.print(&piece)
            {
                lost = Some(error);
                events.send(Event::OutputLost(error)).ok();
            }
        }
        // The launcher may have given up waiting.
        finished.send(Printed { unfinished_error_line: err.is_unfinished, lost }).ok();
    })?;
    Ok(Printer { pieces, done })
}

/// The state of one stream.
struct Writer {
    tags: Option<Tags>,
    /// Whether the last byte was no newline.
    is_unfinished: bool,
}

impl Writer {
    fn new(tag_output: bool) -> Self {
        Self { tags: tag_output.then(Tags::default), is_unfinished: false }
    }

    fn print(&mut self, piece: &Piece) -> Result<(), StreamError> {
        let marked = match (piece.rank, &mut self.tags) {
            (Some(rank), Some(tags)) => Some(tags.mark(rank, &piece.bytes)),
            (Some(_), None) => None,
            (None, tags) => {
                tags.iter_mut().for_each(Tags::end_line);
                self.is_unfinished.then(|| [b"\n", &*piece.bytes].concat())
            }
        };
        let bytes = marked.as_ref().unwrap_or(&piece.bytes);
        self.is_unfinished = bytes.last().map_or(self.is_unfinished, |last| *last != b'\n');
        piece.stream.put(bytes)
    }
}
