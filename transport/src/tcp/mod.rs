//! Ranks that have a network between them.
//!
//! Every two ranks have a connection per lane, for both directions, so that acknowledgements travel
//! with answers. Whoever first sends on a link opens it; nobody connects to a peer that it only
//! hears. If both ends do so at once, both agree which attempt goes on (`connection`), and nothing
//! is sent before that is settled. A peer with several lanes has several connections, which
//! schedules use side by side; nothing is striped in here.
//!
//! * `hello`: what a connection says of itself, to be proven as `crate::proof` has it; `greeting`:
//!   connections that have not proven it yet;
//! * `route`: the ways to a peer, by rail where the ranks agree on rails;
//! * `frame`, `staging`: the bytes on the wire, decoded without a socket;
//! * `connection`: a link, of a `dial`, a `reader` and a `writer`; `endpoint`: all of them, and
//!   their events;
//! * `socket`, `ticker`, `bell`, `token`: what the kernel does for us.
//!
//! Sends write from the caller's memory and receives read into it; only messages below a kilobyte,
//! and what a reduction wants to look at, are copied once between. Events are edge-triggered and
//! remembered, so that waiting costs one system call that asks for all links at once, and the
//! descriptor of that call is what a caller parks on.
//!
//! The window that the contract demands is ours, not the kernel's: a short message is accepted even
//! if the link is not open or its socket is full, and leaves with a later `poll`
//! (`Transport::is_flushed`).

mod bell;
mod broken;
mod connection;
mod dial;
mod endpoint;
pub mod frame;
mod greeting;
mod hello;
mod listening;
mod reader;
mod route;
mod socket;
pub mod staging;
mod strangers;
pub(crate) mod ticker;
mod token;
mod writer;

use std::time::Duration;

pub use endpoint::Tcp;
pub use listening::{Config, ConnectError, ListenError, Listening};
pub use route::{Route, Ways};

/// When a silent connection counts as cut. A slow peer is not a silent one: its kernel answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Liveness {
    /// Time after which an idle connection whose other end does not answer probes is broken; by
    /// seconds, at least 4. `None` to wait for ever. Default 30 s.
    pub idle: Option<Duration>,
    /// Time after which bytes that the peer's kernel did not take break the connection. The kernel
    /// cannot tell a cut cable from a peer that reads nothing while its window is full, so this
    /// must exceed the time that a rank may be late. `None` for the kernel's own, about 15 minutes,
    /// which spares late peers. Default `None`.
    pub unanswered: Option<Duration>,
}

impl Default for Liveness {
    fn default() -> Self {
        Self { idle: Some(Duration::from_secs(30)), unanswered: None }
    }
}
