//! Links between ranks with an RDMA network: InfiniBand, RoCE or iWARP, through verbs.
//!
//! Every link has a ring in the receiver's registered memory, and the sender keeps an image of it.
//! The sender writes fragments into the image, and its device writes them to the same place at the
//! peer, by RDMA WRITE with an immediate that tells lane, order and length. The receiver reads them
//! in the ring, and returns credit by the same kind of immediate. So every event of a rank is in
//! its completion queues: one place to poll, however many peers there are, and one descriptor to
//! park on. Over iWARP, whose writes have no immediates, a message of four bytes after the write
//! brings it.
//!
//! The exposed memory is rings, mailboxes, and registered memory that a ready-to-receive message
//! opened to a peer. Each key is told to one peer only. All queue pairs of a job have one
//! protection domain on a device, so a peer that guesses a key may write by it.
//!
//! Queue pairs and rings are made when a link is first used. Both ends find each other by a TCP
//! connection (`crate::tcp`), which is authenticated like every other. On it they pair their rails,
//! exchange the addresses of queue pairs and memory (`message`), and notice each other's end. Peers
//! without a working rail in common use it for data too.
//!
//! * `sys`: libibverbs and librdmacm, found at run time;
//! * `settings`; `filter`, `gid`, `partition`, `rail`: the ports of this host, and the choice among
//!   them;
//! * `ports`, `wire`: the opened ports as evidence of the fabric; `card`: a port as peers know it;
//! * `pairing`: the pairs of ports of two ranks; `address`: the addresses of packets between them;
//! * `ring`: the rings of a lane; `path`: a queue pair; `peer`, `control_stream`: all of one peer;
//! * `message`: the messages about queue pairs and memory;
//! * `table`: the devices of this process, which all endpoints share; `lock`: its locks;
//! * `registry`: callers' memory that devices access directly;
//! * `budget`: the shares of peers in devices and memory;
//! * `endpoint`: all peers, and waiting;
//! * `diagnostics`: texts for people: explanations of errors, the log of rails, and the checks of a
//!   host's RDMA; `path_label`: the names of ports there.

mod address;
mod budget;
mod card;
mod control_stream;
#[doc(hidden)]
pub mod decode;
mod diagnostics;
mod endpoint;
mod filter;
mod gid;
mod lock;
mod message;
mod pairing;
mod partition;
mod path;
mod path_label;
mod peer;
mod ports;
mod rail;
mod registry;
mod ring;
mod settings;
mod sys;
mod table;
#[cfg(test)]
mod tests;
mod wire;

pub use budget::peer_bytes;
pub use diagnostics::{Examined, Finding, Port, State, examine};
pub use endpoint::{Config, Rdma};
pub use filter::{Filter, InvalidFilter};
pub use partition::Partition;
pub use ports::OpenPort;
pub use rail::{Rails, Unusable};
pub use settings::Settings;
/// The controls of the fake libibverbs, for tests.
#[cfg(any(test, feature = "testing"))]
#[doc(hidden)]
pub use sys::fake;
