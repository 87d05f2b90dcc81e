//! The core of the contract, which every transport implements.

use std::fmt;
use std::os::fd::BorrowedFd;

use super::error::LinkError;
use super::link::{Fragment, Link, Received};
use super::registered::RegisteredMemory;
use super::rendezvous::Rendezvous;
use crate::sys::copy;

/// Room for what an exchange brings; longer messages are none.
pub const EXCHANGE_BYTES: usize = 64;

/// How far an exchange got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exchanged {
    /// Nothing happened.
    Nothing,
    /// The own bytes are sent.
    Sent,
    /// They are, and the peer's have been received.
    Both,
}

/// A way to move bytes between this rank and others.
///
/// One thread uses a transport at a time. Peers are never trusted: what they write may cost an
/// error on their link, never a panic or an out-of-bounds access.
pub trait Transport: Send + fmt::Debug {
    /// The name, as in `tcp`, for logs and errors.
    fn name(&self) -> &'static str;

    /// Offers `bytes` (not empty) to the peer, marked `tag`, and returns how many from the front
    /// were accepted; those may be overwritten at once. The count is a multiple of
    /// `limits::FRAGMENT_ALIGN` unless it is all. Where it is not all, the next `send` on this link
    /// must offer the rest under the same tag. A link accepts at least `limits::LINK_BYTES_MIN`
    /// bytes before the peer consumes any, unless a message is longer than that: of such a message
    /// it may accept nothing before its receiver takes some. Until all is accepted, or `withdraw`
    /// was called, the peer or a device may read the rest where it is, by its address. If the rest
    /// changes or is freed, the peer gets whatever lies there, or its link fails. This process is
    /// not harmed: it reads `bytes` itself during the call only. Connects the link on first use,
    /// and may wait for a moment for the peer to say where it wants the bytes, unless the caller
    /// has called `arm`; so 0 may also mean "not yet".
    ///
    /// # Errors
    /// The link is unusable from now on; the error names the peer.
    fn send(&mut self, link: Link, tag: u32, bytes: &[u8]) -> Result<usize, LinkError>;

    /// Sends `own` and receives as many bytes to the front of `theirs`, both short messages
    /// marked `tag`, as `send` and `recv` do but in fewer instructions; looks up to `tries`
    /// times more for what the peer sends. Says how far it got: `send` and `recv` do the rest,
    /// or say why it cannot be done. Nothing is sent or received in part. A transport without a
    /// faster way leaves all to them.
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

    /// The bytes at the front of the incoming stream, if any have arrived. Repeated calls give the
    /// same bytes, or more of them, until `consume`.
    ///
    /// # Errors
    /// The link is unusable and all that arrived before was consumed.
    fn readable(&self, link: Link) -> Result<Option<Fragment<'_>>, LinkError>;

    /// Gives back the first `bytes` of what `readable` lent.
    ///
    /// # Panics
    /// If `bytes` is more than `readable` lent.
    fn consume(&mut self, link: Link, bytes: usize);

    /// Moves bytes that have arrived straight into `dst` (not empty) and returns how many, with the
    /// tag of the fragment that they came from. Bytes whose tag is not `tag` are never moved to
    /// `dst`: then the count is 0 and the tag is the stranger's.
    ///
    /// A caller that got less than all of `dst` comes back for the rest, or for its front, with
    /// `recv`. Only this call writes to `dst`, with one exception: where the transport was made
    /// with a `Placement` and `dst` lies in `pages`, the peer may write the rest of the message
    /// there until it has arrived, or `withdraw` has returned. The maker of the `Placement` has
    /// promised that nobody accesses it meanwhile.
    ///
    /// # Errors
    /// As `readable`; and from both if bytes have arrived where an earlier `dst` was and the caller
    /// looks for them elsewhere.
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

    /// Gives up what `send` was offered and has not accepted, and what `recv` waits for, on all
    /// links, as a caller must before it may use that memory for something else. Of a message that
    /// is given up the peer gets a part, or nothing, and no other after it. An end that is dropped
    /// after that need not wait for what was accepted to arrive.
    fn withdraw(&mut self) {}

    /// Does the work that no single link asks for: accepts connections, reads sockets, notices the
    /// end of peers. Must be called while waiting. Cheap when there is nothing to do. Returns
    /// whether anything happened.
    ///
    /// # Errors
    /// The transport as a whole is unusable, or bytes that a link accepted are lost.
    fn poll(&mut self) -> Result<bool, LinkError>;

    /// Whether all accepted bytes will reach their peers without further calls. A caller that is
    /// about to be busy elsewhere must `poll` until this holds.
    fn is_flushed(&self) -> bool;

    /// A descriptor for `ppoll` that becomes readable when something may have become possible that
    /// was not when `arm` was called.
    fn wake_fd(&self) -> BorrowedFd<'_>;

    /// Asks peers to ring `wake_fd` from now on. The caller then tries everything once more, parks
    /// on `wake_fd` only if nothing moved, and calls `disarm` in either case.
    fn arm(&mut self);

    /// Withdraws what `arm` asked and clears `wake_fd`, which means nothing until the next `arm`.
    fn disarm(&mut self);

    /// Returns this transport as one that can send by rendezvous, if it can.
    fn rendezvous(&mut self) -> Option<&mut dyn Rendezvous> {
        None
    }

    /// Returns this transport as one that makes registered memory, if it can do so now.
    fn registered_memory(&mut self) -> Option<&mut dyn RegisteredMemory> {
        None
    }
}
