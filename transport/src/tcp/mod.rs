//! Transport over TCP, for ranks with an IP network between them.
//!
//! Every pair of ranks has one connection per lane, which carries both directions, so
//! acknowledgements travel with data. The rank that first sends on a link opens it; a rank that
//! only receives opens none. If both ends open the link at the same time, both agree on the attempt
//! that stays (`connection`), and neither sends data before that. Schedules use the connections of
//! several lanes side by side; this module stripes nothing.
//!
//! * `hello`: the first message on a connection, proven as in `crate::proof`;
//! * `greeting`: accepted connections that are not authenticated yet;
//! * `route`: the routes to a peer, by rail if the ranks agree on rails;
//! * `frame`, `staging`: the bytes on the wire, decoded without a socket;
//! * `connection`: a link, made of a `dial`, a `reader` and a `writer`;
//! * `endpoint`: all links of a rank, and their events; `rates`: the rates of those to a peer;
//! * `socket`, `ticker`, `waker`, `token`: interfaces to the kernel.
//!
//! Sends write from the caller's memory and receives read into it. Only messages below a kilobyte,
//! and bytes that a reduction reads in place, are copied once in between. Events are edge-triggered
//! and remembered: one system call asks for the events of all links, and a caller parks on the
//! descriptor of that call.
//!
//! This module provides the window that the contract demands, not the kernel. A short message is
//! accepted even if the link is not open or its socket is full, and leaves in a later `poll`
//! (`Transport::is_flushed`).

mod broken;
mod connection;
mod dial;
mod endpoint;
pub mod frame;
mod greeting;
mod hello;
mod listening;
mod rates;
mod reader;
mod route;
mod socket;
pub mod staging;
pub(crate) mod ticker;
mod token;
mod waker;
mod writer;

use ringfold_types::limits::LINK_BYTES_MIN;

pub use endpoint::Tcp;
pub use listening::{Config, ConnectError, ListenError, Listening};
pub use route::{PeerRoutes, Route};
pub use socket::Liveness;

/// Bytes that a link may take in this process, beside those of the kernel.
pub const LINK_BYTES: usize = reader::STAGING_BYTES + LINK_BYTES_MIN;
