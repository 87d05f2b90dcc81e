//! Standard output and standard error of this process, for programs that lose no byte in silence.
//!
//! Another program may have left such a stream non-blocking, its disk may be full, and its reader
//! may have left. The writers of the standard library turn the first into an error, and forget the
//! others when the program ends.

use std::error::Error;
use std::fmt;
use std::io::{self, IsTerminal, Write};
use std::os::fd::BorrowedFd;
use std::process::ExitCode;

use ringfold_types::Chain;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// The exit status of a program whose output has lost its reader, as if SIGPIPE had killed it.
pub(crate) const OUTPUT_CLOSED: u8 = 141;

/// One of the two streams that a process writes. As a writer it is that of this process, without a
/// buffer: it waits while there is no room, and its errors name the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stream {
    /// Standard output.
    Out,
    /// Standard error.
    Err,
}

/// Why a stream takes no more bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("cannot write to {stream}: {errno}")]
pub(crate) struct StreamError {
    stream: Stream,
    errno: Errno,
}

impl StreamError {
    /// Whether the reader of the stream has left.
    pub(crate) fn is_closed(&self) -> bool {
        self.errno == Errno::PIPE
    }
}

impl fmt::Display for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Out => "standard output",
            Self::Err => "standard error",
        })
    }
}

impl Stream {
    fn descriptor(self) -> BorrowedFd<'static> {
        match self {
            Self::Out => rustix::stdio::stdout(),
            Self::Err => rustix::stdio::stderr(),
        }
    }

    /// Writes all of `bytes`.
    pub(crate) fn put(self, mut bytes: &[u8]) -> Result<(), StreamError> {
        while !bytes.is_empty() {
            let count = self.put_some(bytes)?;
            bytes = bytes.get(count..).unwrap_or_default();
        }
        Ok(())
    }

    fn put_some(self, bytes: &[u8]) -> Result<usize, StreamError> {
        let descriptor = self.descriptor();
        loop {
            let errno = match rustix::io::write(descriptor, bytes) {
                Ok(count) => return Ok(count),
                Err(Errno::AGAIN) => {
                    let mut room = [PollFd::from_borrowed_fd(descriptor, PollFlags::OUT)];
                    poll(&mut room, None).err()
                }
                Err(errno) => Some(errno),
            };
            match errno {
                None | Some(Errno::INTR) => {}
                Some(errno) => return Err(StreamError { stream: self, errno }),
            }
        }
    }
}

impl Write for Stream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.put_some(bytes).map_err(|error| {
            let kind = io::Error::from(error.errno).kind();
            io::Error::new(kind, error)
        })
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Ends a program that has failed: prints `NAME: error` with its causes, and returns `status`. A
/// program whose output has lost its reader ends with status 141 and prints nothing.
#[must_use = "main must return this status"]
pub fn failed(name: &str, error: &(dyn Error + 'static), status: u8) -> ExitCode {
    let causes = std::iter::successors(Some(error), |&error| error.source());
    let mut streams = causes.filter_map(|cause| cause.downcast_ref::<io::Error>()?.get_ref());
    if streams.any(|it| it.downcast_ref().is_some_and(StreamError::is_closed)) {
        return ExitCode::from(OUTPUT_CLOSED);
    }
    // Without a standard error there is nobody to tell.
    Stream::Err.put(format!("{name}: {}\n", Chain(error)).as_bytes()).unwrap_or_default();
    ExitCode::from(status)
}

/// Returns a parsed command line. If it is invalid or asks for help, prints what clap has to say,
/// and returns the status with which `main` must return.
///
/// # Errors
/// There is nothing to run.
pub fn parsed<T>(parsed: Result<T, clap::Error>) -> Result<T, ExitCode> {
    parsed.map_err(|error| {
        let mut stream = if error.use_stderr() { Stream::Err } else { Stream::Out };
        let text = error.render();
        let is_terminal = stream.descriptor().is_terminal();
        let text = if is_terminal { text.ansi().to_string() } else { text.to_string() };
        match stream.write_all(text.as_bytes()) {
            Ok(()) => ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(2)),
            Err(error) => failed("error", &error, 1),
        }
    })
}
