//! What the ranks write, on this process's standard output and error: a thread, because these block
//! as long as their readers please.

use std::io::{self, Write};

use tokio::sync::{mpsc, oneshot};

use crate::conduct::Event;
use crate::message::Stream;
use crate::output::tag_lines;

/// Pieces that wait for a slow reader; beyond them the ranks wait.
const PIECES_WAITING: usize = 32;

/// Whole lines of one rank.
#[derive(Debug)]
pub(crate) struct Piece {
    pub(crate) rank: u32,
    pub(crate) stream: Stream,
    pub(crate) text: Vec<u8>,
}

/// The way to the printing thread.
#[derive(Debug)]
pub(crate) struct Printer {
    pub(crate) pieces: mpsc::Sender<Piece>,
    /// Resolves when all senders are gone and everything is written.
    pub(crate) done: oneshot::Receiver<()>,
}

impl Printer {
    /// Whether nothing waits to be printed.
    pub(crate) fn is_idle(&self) -> bool {
        self.pieces.capacity() == self.pieces.max_capacity()
    }
}

/// Starts to print. `Event::OutputClosed` tells that standard output has no reader any more; what
/// comes after is dropped.
pub(crate) fn start(tag_output: bool, events: mpsc::UnboundedSender<Event>) -> io::Result<Printer> {
    let (pieces, mut pieces_rx) = mpsc::channel::<Piece>(PIECES_WAITING);
    let (finished, done) = oneshot::channel();
    std::thread::Builder::new().name("ringrun-print".into()).spawn(move || {
        let mut open = true;
        while let Some(piece) = pieces_rx.blocking_recv() {
            if open && print(&piece, tag_output).is_err() && piece.stream == Stream::Out {
                open = false;
                events.send(Event::OutputClosed).ok();
            }
        }
        // The launcher may have given up waiting.
        finished.send(()).ok();
    })?;
    Ok(Printer { pieces, done })
}

fn print(piece: &Piece, tag_output: bool) -> io::Result<()> {
    let tagged;
    let text = if tag_output {
        tagged = tag_lines(&format!("[{}] ", piece.rank), &piece.text);
        &tagged
    } else {
        &piece.text
    };
    match piece.stream {
        Stream::Out => {
            let mut out = io::stdout().lock();
            out.write_all(text)?;
            out.flush()
        }
        Stream::Err => io::stderr().lock().write_all(text),
    }
}
