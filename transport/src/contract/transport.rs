//! The core trait of the contract, which every transport implements.

use std::fmt;
use std::os::fd::BorrowedFd;

use super::error::LinkError;
use super::link::{Fragment, Link, Received};
use super::registered::RegisteredMemory;
use super::rendezvous::Rendezvous;
use crate::sys::copy;

/// Longest message that `Transport::exchange` moves, in bytes.
pub const EXCHANGE_BYTES: usize = 64;

/// How far `Transport::exchange` got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchanged {
    /// Nothing was sent or received.
    Nothing,
    /// This rank's bytes were sent; the peer's were not received.
    Sent,
    /// This rank's bytes were sent, and the peer's were received.
    Both,
}

/// A way to move bytes between this rank and others.
///
/// One thread uses a transport at a time. Peers are never trusted: their bytes may cause an error
/// on their link, but never a panic or an out-of-bounds access.
pub trait Transport: Send + fmt::Debug {
    /// Returns the transport's name for logs and errors, as in `tcp`.
    fn name(&self) -> &'static str;

    /// Sends `bytes` (not empty) to the peer under `tag`, and returns how many bytes from the front
    /// the transport accepted. Does not block. The caller may overwrite accepted bytes at once.
    ///
    /// The count is all of `bytes` or a multiple of `limits::FRAGMENT_ALIGN`. If it is not all, the
    /// next `send` on this link must pass the rest under the same tag. A count of 0 may mean "not
    /// yet": the call connects the link on first use. Unless the caller has called `arm`, the call
    /// may also wait briefly for a peer that is about to say where it wants the bytes.
    ///
    /// A link accepts at least `limits::LINK_BYTES_MIN` bytes before the peer consumes any. A
    /// message longer than that is an exception: the link may accept none of its bytes before the
    /// receiver takes some.
    ///
    /// Until all of a message is accepted or `withdraw` has returned, the peer or a device may read
    /// the rest by its address. If the caller changes or frees the rest, the peer gets other bytes,
    /// or the link fails. This process is not harmed: it reads `bytes` during the call only.
    ///
    /// # Errors
    /// The link is unusable from now on. The error names the peer.
    fn send(&mut self, link: Link, tag: u32, bytes: &[u8]) -> Result<usize, LinkError>;

    /// As `send`, for a short message before another one. If all of it is accepted, the caller must
    /// call `send` on this link next, with the other message. The transport may hold the short one
    /// until then, so that both travel together.
    ///
    /// # Errors
    /// As `send`.
    fn send_ahead(&mut self, link: Link, tag: u32, bytes: &[u8]) -> Result<usize, LinkError> {
        self.send(link, tag, bytes)
    }

    /// Sends `own` and receives the peer's message of the same length into the front of `theirs`,
    /// both under `tag`. A fast path for short messages: fewer instructions than `send` and `recv`.
    /// Polls for the peer's message up to `tries` more times. Moves whole messages only, and
    /// returns how far it got. The caller does the rest by `send` and `recv`, which also report
    /// errors. A transport without a faster path does nothing.
    fn exchange(
        &mut self,
        _link: Link,
        _tag: u32,
        _own: &[u8],
        _theirs: &mut [u8; EXCHANGE_BYTES],
        _tries: u32,
    ) -> Exchanged {
        Exchanged::Nothing
    }

    /// Returns the bytes at the front of the incoming stream, if any have arrived. Repeated calls
    /// return the same bytes, or more of them, until `consume`.
    ///
    /// # Errors
    /// The link is unusable, and this rank has consumed all bytes that arrived before.
    fn readable(&self, link: Link) -> Result<Option<Fragment<'_>>, LinkError>;

    /// Gives back the first `bytes` bytes that `readable` lent.
    ///
    /// # Panics
    /// If `bytes` is more than `readable` lent.
    fn consume(&mut self, link: Link, bytes: usize);

    /// Moves arrived bytes into `dst` (not empty). Returns their number, and the tag of their
    /// fragment. If that tag is not `tag`, the call moves nothing and the number is 0.
    ///
    /// A caller that got less than all of `dst` calls `recv` again for the rest, or for the front
    /// of the rest. Only this call writes to `dst`, with one exception. If the transport was made
    /// with a `Placement` and `dst` lies in `pages`, the peer may write the rest of the message
    /// there. It may do so until the message has arrived or `withdraw` has returned. The maker of
    /// the `Placement` has promised that nobody accesses these bytes meanwhile. `expect` says the
    /// same of more bytes.
    ///
    /// # Errors
    /// Those of `readable`. Both calls also fail if bytes have arrived in an earlier `dst` and the
    /// caller now asks for them elsewhere.
    fn recv(
        &mut self,
        link: Link,
        tag: u32,
        dst: &mut [u8],
    ) -> Result<Option<Received>, LinkError> {
        let Some(fragment) = self.readable(link)? else { return Ok(None) };
        if fragment.tag != tag {
            return Ok(Some(Received { tag: fragment.tag, bytes: 0 }));
        }
        let bytes = fragment.bytes.len().min(dst.len());
        copy(&mut dst[..bytes], &fragment.bytes[..bytes]);
        self.consume(link, bytes);
        Ok(Some(Received { tag, bytes }))
    }

    /// Announces that the caller will receive a part of the incoming stream into `dst`: the bytes
    /// after the next `skip` ones that it receives, all under `tag`. They may be many messages, and
    /// the caller still calls `recv` for them. Parts are announced in the order of the stream.
    /// Returns false if the transport cannot use that yet; the caller may announce it again.
    ///
    /// If the transport was made with a `Placement` and `dst` lies in `pages`, the peer may write
    /// these bytes there from now on, as in `recv`.
    fn expect(&mut self, _link: Link, _tag: u32, _skip: usize, _dst: &mut [u8]) -> bool {
        true
    }

    /// Cancels, on all links, every message that `send` has not fully accepted and every `recv`
    /// that is unfinished. A caller must call it before it uses their memory for something else.
    /// The peer gets a part of a cancelled message, or nothing, and no later message. A transport
    /// that is dropped after this call need not wait for the delivery of accepted bytes.
    fn withdraw(&mut self) {}

    /// Does the work that belongs to no single link: accepts connections, reads sockets, notices
    /// the end of peers. The caller must call it while it waits. It is cheap when there is nothing
    /// to do. Returns whether anything happened.
    ///
    /// # Errors
    /// The transport as a whole is unusable, or bytes that a link had accepted are lost.
    fn poll(&mut self) -> Result<bool, LinkError>;

    /// Whether all accepted bytes will reach their peers without further calls. A caller that will
    /// be busy elsewhere must call `poll` until this is true.
    fn is_flushed(&self) -> bool;

    /// Returns the descriptor for `ppoll`. It becomes readable when a call may succeed that could
    /// not when the caller called `arm`.
    fn wake_fd(&self) -> BorrowedFd<'_>;

    /// Asks peers to make `wake_fd` readable from now on. The caller must then try everything once
    /// more, park on `wake_fd` only if nothing moved, and call `disarm` in either case.
    fn arm(&mut self);

    /// Cancels the request of `arm` and clears `wake_fd`, which has no meaning until the next
    /// `arm`.
    fn disarm(&mut self);

    /// Returns this transport's rendezvous sends, if it has them.
    fn rendezvous(&mut self) -> Option<&mut dyn Rendezvous> {
        None
    }

    /// Returns this transport's registered memory, if it can make some now.
    fn registered_memory(&mut self) -> Option<&mut dyn RegisteredMemory> {
        None
    }
}
