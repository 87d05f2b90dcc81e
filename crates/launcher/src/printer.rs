//! Writes the ranks' output to this process's standard output and error. A thread writes it,
//! because these streams block as long as their readers please.

use std::io::{self, Write};

use tokio::sync::{mpsc, oneshot};

use crate::message::Stream;
use crate::output::Tags;
use crate::supervisor::Event;

/// The most pieces that wait for a slow reader. Beyond them the ranks wait.
const PIECES_WAITING: usize = 32;

/// Bytes of one rank: whole lines, or a part of a long or unfinished one.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) rank: u32,
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
}

impl Printer {
    /// Whether nothing waits to be printed.
    pub(crate) fn is_idle(&self) -> bool {
        self.pieces.capacity() == self.pieces.max_capacity()
    }
}

/// Starts the printing thread. It sends `Event::OutputClosed` when standard output has no reader
/// any more, and drops later output.
pub(crate) fn start(tag_output: bool, events: mpsc::UnboundedSender<Event>) -> io::Result<Printer> {
    let (pieces, mut pieces_rx) = mpsc::channel::<Piece>(PIECES_WAITING);
    let (finished, done) = oneshot::channel();
    std::thread::Builder::new().name("ringrun-print".into()).spawn(move || {
        let (mut out, mut err) = (tag_output.then(Tags::default), tag_output.then(Tags::default));
        let mut printed = Printed { unfinished_error_line: false };
        let mut open = true;
        while let Some(piece) = pieces_rx.blocking_recv() {
            let tags = if piece.stream == Stream::Out { &mut out } else { &mut err };
            if open && print(&piece, tags.as_mut()).is_err() && piece.stream == Stream::Out {
                open = false;
                events.send(Event::OutputClosed).ok();
            }
            if piece.stream == Stream::Err {
                printed.unfinished_error_line = !piece.bytes.ends_with(b"\n");
            }
        }
        // The launcher may have given up waiting.
        finished.send(printed).ok();
    })?;
    Ok(Printer { pieces, done })
}

fn print(piece: &Piece, tags: Option<&mut Tags>) -> io::Result<()> {
    let marked = tags.map(|tags| tags.mark(piece.rank, &piece.bytes));
    let bytes = marked.as_ref().unwrap_or(&piece.bytes);
    match piece.stream {
        Stream::Out => {
            let mut out = io::stdout().lock();
            out.write_all(bytes)?;
            out.flush()
        }
        Stream::Err => io::stderr().lock().write_all(bytes),
    }
}
