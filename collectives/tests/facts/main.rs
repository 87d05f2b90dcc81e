//! Reviewed facts of schedules and choices: bytes, connections, digests and texts.
#![expect(clippy::unwrap_used, reason = "all of this is a test")]

mod bytes;
mod choices;
mod connections;
mod printed;
mod unchanged;
mod wire;
