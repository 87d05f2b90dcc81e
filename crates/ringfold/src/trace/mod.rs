//! A trace of a job in Chrome's format: the calls of each rank, its waits, and its messages.
//!
//! Every process with `RINGFOLD_TRACE` keeps its events in memory, and has a thread that adds them
//! to the file (`process`). The events of calls and waits come from the record of the process, and
//! those of messages from the transports (`via`), which are wrapped only where there is a trace.
//! `text` writes the events, and `file` shares the file with the other processes.

mod event;
mod file;
mod process;
mod text;
mod via;

pub(crate) use self::event::Owner;
pub(crate) use self::process::{begin, clock_offset, flush, has_emptied, is_on, start};
pub(crate) use self::via::{Traced, Traffic};
