//! The first words on a data connection: a handshake of `crate::proof` about a lane, and one byte
//! of welcome.

use std::io;

use ringfold_types::{Lane, Rank};

use crate::contract::Link;
use crate::proof::{Hello, Protocol};

/// The version counts what frames mean, too.
pub(super) const PROTOCOL: Protocol = Protocol { magic: *b"RFtc", version: 2 };
/// The byte that ends the handshake.
pub(super) const WELCOME: u8 = 1;

/// The hello of rank `from` for a link of its own.
pub(super) fn hello(from: Rank, link: Link) -> io::Result<Hello> {
    Hello::new(PROTOCOL, from, link.peer, [link.lane.0.into(), 0])
}

/// The acceptor's link that a connection with this hello is for, if there can be one.
pub(super) fn link(hello: &Hello) -> Option<Link> {
    let lane = u8::try_from(hello.about[0]).ok()?;
    (hello.about[1] == 0).then_some(Link { peer: hello.from, lane: Lane(lane) })
}
