//! Ranks that have an RDMA network between them: InfiniBand, RoCE or iWARP, through verbs.
//!
//! Every link has a ring in the receiver's registered memory. The sender keeps an image of it,
//! writes fragments into the image and lets the device write them to the peer, at the same place,
//! by RDMA WRITE with an immediate number that says lane, order and length. The receiver lends them
//! where they lie, and returns credit by the same kind of number. So all that happens to a rank is
//! in its completion queues: one place to look, however many peers there are, and one descriptor to
//! park on; and nothing is ever exposed but rings, mailboxes and registered memory into which
//! a peer was once invited to write, each to its one peer. Over iWARP, whose writes have no
//! numbers, a message of four bytes after the write brings it.
//!
//! Queue pairs and rings come to be when a link is first used. Both ends find each other by a TCP
//! connection (`crate::tcp`), proven as all are; on it they pair their rails, exchange what they
//! must know of queue pairs and memory (`message`), and notice each other's end. Peers that have no
//! rail in common, or none that works any more, use it for data too.
//!
//! * `sys`: libibverbs and librdmacm, found at run time;
//! * `settings`; `filter`, `gid`, `rail`: the ports of this host, and the choice among them;
//! * `ports`, `wire`: the opened ports as evidence of the fabric; `card`: a port as peers know it;
//! * `pairing`: the pairs of ports of two ranks; `address`: the way of packets between them;
//! * `ring`: the rings of a lane; `path`: a queue pair; `peer`, `talk`: all of one peer;
//! * `message`: the messages about queue pairs and memory;
//! * `registry`: memory of callers that devices read and write where it lies;
//! * `budget`: the shares of peers in devices and memory;
//! * `endpoint`: all peers, and waiting;
//! * `words`, `nameplate`: devices' reports and ports' names for people; `outages`: the log's lines
//!   about rails, one for each cable that fails;
//! * `examine`: whether all is there that it takes.

mod address;
mod budget;
mod card;
#[doc(hidden)]
pub mod decode;
mod endpoint;
mod examine;
mod filter;
mod gid;
mod message;
mod nameplate;
mod outages;
mod pairing;
mod path;
mod peer;
mod ports;
mod rail;
mod registry;
mod ring;
mod settings;
mod sys;
mod talk;
#[cfg(test)]
mod tests;
mod wire;
mod words;

pub use endpoint::{Config, Rdma};
pub use examine::{Examined, Finding, Port, State, examine};
pub use filter::{Filter, InvalidFilter};
pub use ports::OpenPort;
pub use rail::{Rails, Unusable};
pub use settings::Settings;
