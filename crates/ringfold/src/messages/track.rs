//! The way that messages take over the transports.

use ringfold_transport::{Fragment, Link, LinkError};
use ringfold_types::limits::{INLINE_BYTES, MESSAGE_LANE};
use ringfold_types::{Lane, Rank};

use super::header::{HEADER_BYTES, Header};
use crate::router::Router;

/// Bytes of a message that needs little memory beside it.
const TINY_BYTES: usize = 48;

/// The way that messages take beside those of other operations.
#[derive(Clone, Copy, Debug)]
pub(super) struct Track {
    lane: Lane,
    /// The transport's tag of headers, and of short messages behind them.
    pub(super) header_tag: u32,
    /// The transport's tag of the bytes of longer messages.
    body_tag: u32,
}

/// The bytes at the front of a link are no message of this track.
#[derive(Debug)]
pub(super) struct Garbled;

/// The result of a receive of bytes.
pub(super) type Arrival = Result<Result<bool, Garbled>, LinkError>;

impl Track {
    /// The track of point-to-point messages, which has a lane of its own.
    pub(super) const POINT_TO_POINT: Self =
        Self { lane: Lane(MESSAGE_LANE), header_tag: 1, body_tag: 2 };

    /// The track of a collective whose messages have this tag, on a lane of collectives.
    pub(super) const fn of_call(tag: u32) -> Self {
        Self { lane: Lane(0), header_tag: tag, body_tag: tag.wrapping_add(1) }
    }

    /// The link of messages to and from a peer.
    pub(super) const fn link(self, peer: Rank) -> Link {
        Link { peer, lane: self.lane }
    }

    /// The transport's tag of the bytes of a message of this length.
    pub(super) const fn tag_of_body(self, bytes: usize) -> u32 {
        if bytes <= INLINE_BYTES { self.header_tag } else { self.body_tag }
    }

    /// Sends what the transport takes now of a message. `accepted` counts its bytes, with the
    /// header. Whether the transport took anything.
    pub(super) fn send(
        self,
        router: &mut Router,
        to: Rank,
        header: &Header,
        bytes: &[u8],
        accepted: &mut usize,
    ) -> Result<bool, LinkError> {
        let before = *accepted;
        let link = self.link(to);
        if bytes.len() <= INLINE_BYTES {
            let (mut tiny, mut short);
            let whole: &mut [u8] = if bytes.len() <= TINY_BYTES {
                tiny = [0; HEADER_BYTES + TINY_BYTES];
                &mut tiny
            } else {
                short = [0; HEADER_BYTES + INLINE_BYTES];
                &mut short
            };
            let whole = &mut whole[..HEADER_BYTES + bytes.len()];
            let (front, body) = whole.split_at_mut(HEADER_BYTES);
            front.copy_from_slice(&header.encode());
            body.copy_from_slice(bytes);
            *accepted += router.to(link).send(link, self.header_tag, &whole[before..])?;
            return Ok(*accepted > before);
        }
        if *accepted < HEADER_BYTES {
            let front = header.encode();
            *accepted += router.to(link).send_ahead(link, self.header_tag, &front[before..])?;
        }
        while let Some(sent) = accepted.checked_sub(HEADER_BYTES)
            && sent < bytes.len()
        {
            match router.to(link).send(link, self.body_tag, &bytes[sent..])? {
                0 => break,
                more => *accepted += more,
            }
        }
        Ok(*accepted > before)
    }

    /// The header at the front, if a message begins there, and the bytes behind it that have
    /// arrived in the same fragment.
    pub(super) fn begins(self, front: Fragment<'_>) -> Result<(Header, &[u8]), Garbled> {
        match front.bytes.split_first_chunk() {
            Some((header, rest)) if front.tag == self.header_tag => {
                Ok((Header::decode(header), rest))
            }
            _ => Err(Garbled),
        }
    }

    /// Receives what has arrived of the bytes of a message behind its header. `arrived` counts
    /// them. Whether anything had.
    pub(super) fn receive(
        self,
        router: &mut Router,
        from: Rank,
        bytes: &mut [u8],
        arrived: &mut usize,
    ) -> Arrival {
        let (before, link, tag) = (*arrived, self.link(from), self.tag_of_body(bytes.len()));
        while *arrived < bytes.len() {
            match router.recv(link, tag, &mut bytes[*arrived..])? {
                None => break,
                Some(received) if received.tag != tag => return Ok(Err(Garbled)),
                Some(received) => *arrived += received.bytes,
            }
        }
        Ok(Ok(*arrived > before))
    }
}
