//! The handshake of a data connection: that of `crate::proof` about a lane, and one byte of
//! welcome.

use std::io;

use ringfold_types::{Lane, Rank};

use crate::contract::Link;
use crate::proof::{Hello, Protocol};

/// The version also covers the meaning of frames.
pub(super) const PROTOCOL: Protocol = Protocol { magic: *b"RFtc", version: 2 };
/// The byte that ends the handshake.
pub(super) const WELCOME: u8 = 1;

/// The hello of rank `from` for the link `link` that it opens.
pub(super) fn hello(from: Rank, link: Link) -> io::Result<Hello> {
    Hello::new(PROTOCOL, from, link.peer, [link.lane.0.into(), 0])
}

/// The acceptor's link for a connection with this hello; `None` if the hello names no lane.
pub(super) fn link(hello: &Hello) -> Option<Link> {
    let lane = u8::try_from(hello.about[0]).ok()?;
    (hello.about[1] == 0).then_some(Link { peer: hello.from, lane: Lane(lane) })
}
