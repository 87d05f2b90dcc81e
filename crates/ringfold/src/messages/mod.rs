//! Messages between two ranks.
//!
//! A message is a header of 16 bytes with its tag, the type of its elements and its length in
//! bytes, and then its bytes. The bytes of a short message follow in the same message of the
//! transport. Those of a longer one are a message of their own, which a transport may place
//! directly in the receiver's memory.
//!
//! Point-to-point messages have a lane of their own, and receives choose among them (`post`, with
//! `receive` and `probe`). `ends` are the two ends of one, and `unfinished` names those under way.
//! Uneven collectives consist of such messages too (`exchange`). Theirs take a lane of collectives
//! and carry the tag of their call, and both ends know the length.

mod ends;
mod exchange;
mod header;
mod post;
mod track;
mod unfinished;
mod work;

use std::time::Duration;

use ringfold_types::Rank;
use ringfold_types::limits::LINK_GRACE_MS;

pub(crate) use self::ends::{End, Receiving, Sending};
pub(crate) use self::exchange::{Exchange, Exchanging, Sides};
pub(crate) use self::header::{Elements, HEADER_BYTES, tag_and_bytes};
pub(crate) use self::post::Post;
pub(crate) use self::work::{Alone, Beside};
use crate::watch::Watch;

/// How long nothing moves before a rank asks whether its peers have left. The bytes of a peer that
/// has left get as long again to arrive.
const LEFT_GRACE: Duration = Duration::from_millis(LINK_GRACE_MS / 2);

/// Whether `peer` has left, and bytes that it sent have had the time to arrive.
fn has_left(watch: &Watch, peer: Rank) -> bool {
    watch.left_since(peer).is_some_and(|since| since >= LEFT_GRACE)
}
