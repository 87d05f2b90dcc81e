//! Ranks that have a network between them.
//!
//! Every two ranks have a connection per lane, for both directions, so that acknowledgements travel
//! with answers. Whoever first sends on a link opens it; nobody connects to a peer that it only
//! hears. If both ends do so at once, both agree which attempt goes on (`connection`), and nothing
//! is sent before that is settled. A peer with several lanes has several connections, which
//! schedules use side by side; nothing is striped in here.
//!
//! * `hello`: the first words on a connection, proven as in `crate::proof`; `greeting`: connections
//!   that have proven nothing yet;
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

pub use endpoint::Tcp;
pub use listening::{Config, ConnectError, ListenError, Listening};
pub use route::{Route, Ways};
pub use socket::Liveness;
