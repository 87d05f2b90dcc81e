//! What every transport promises.
//!
//! A *link* is one lane between this rank and a peer; its two directions are independent, ordered,
//! reliable streams of tagged fragments with flow control. A transport polls and never blocks:
//! every method returns at once with what could be done. It lends out arrived bytes where they lie
//! (`readable`), so that a reduction can read them without a copy, and takes outgoing bytes from
//! where they lie (`send`).
//!
//! Putting, registered memory and credits live *below* this line, in the transports: memory that
//! hardware writes on its own cannot be lent in safe Rust, and the caller has no use for knowing.
//! There are two exceptions, each behind an `unsafe` promise. Windows are memory of the transport's
//! own that all peers have mapped, to be used in an `Exposure`. `Pages` are memory that peers may
//! write after `recv` has returned, if the transport was given a `Placement`.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;

use ringfold_types::{Lane, Rank};

use crate::sys::copy;

use crate::rdma::Pages;
use crate::shm::Window;

/// One stream each way between this rank and a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Link {
    /// The rank at the other end.
    pub peer: Rank,
    /// Which of the parallel streams to it.
    pub lane: Lane,
}

/// Bytes that have arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment<'a> {
    /// What the sender said the bytes belong to. The receiver compares it with what it expects
    /// before it uses the bytes.
    pub tag: u32,
    /// Never empty. A multiple of `limits::FRAGMENT_ALIGN` long, or up to the end of what one
    /// `send` sequence offered.
    pub bytes: &'a [u8],
}

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

/// What a transport can do, with units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Largest message, in bytes, that travels with its own notification and so costs one
    /// hand-over.
    pub inline_bytes: usize,
    /// Bytes that `send` accepts before the peer consumes any; at least `limits::LINK_BYTES_MIN`.
    /// Of messages that stay where they are, and are longer than that, none.
    pub window_bytes: usize,
    /// Whether `readable` lends memory that the peer's own stores reached, with neither a kernel
    /// nor a device between, so that to look again costs next to nothing.
    pub shares_memory: bool,
}

/// A way to move bytes between this rank and others.
///
/// One thread uses a transport at a time. Peers are never trusted: what they write may cost an
/// error on their link, never a panic or an out-of-bounds access.
pub trait Transport: Send + fmt::Debug {
    /// The name, as in `tcp`, for logs and errors.
    fn name(&self) -> &'static str;

    /// What it can do. Constant over the transport's life.
    fn capabilities(&self) -> Capabilities;

    /// Offers `bytes` (not empty) to the peer, marked `tag`, and returns how many from the front
    /// were accepted; those may be overwritten at once. The count is a multiple of
    /// `limits::FRAGMENT_ALIGN` unless it is all. Where it is not all, the next `send` on this link
    /// must offer the rest under the same tag. Until all is accepted, or `withdraw` was called, the
    /// peer or a device may read the rest where it is, by its address. If the rest changes or is
    /// freed, the peer gets whatever lies there, or its link fails. This process is not harmed: it
    /// reads `bytes` itself during the call only. Connects the link on first use, and may wait
    /// for a moment for the peer to say where it wants the bytes, unless the caller has called
    /// `arm`; so 0 may also mean "not yet".
    ///
    /// # Errors
    /// The link is unusable from now on; the error names the peer.
    fn send(&mut self, link: Link, tag: u32, bytes: &[u8]) -> Result<usize, LinkError>;

    /// As `send`, for a message that its receiver may copy from where it lies, if this transport
    /// does such things: then nothing is accepted before it was taken.
    ///
    /// # Errors
    /// As `send`.
    fn offer(&mut self, link: Link, tag: u32, bytes: &[u8]) -> Result<usize, LinkError> {
        self.send(link, tag, bytes)
    }

    /// Whether what is offered would be copied by its receiver, and what peers offer by this one.
    fn takes_offers(&self) -> bool {
        false
    }

    /// Whether something that was offered is not taken yet: a peer may be at it, and done soon.
    fn is_offering(&self) -> bool {
        false
    }

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
    ) -> Result<Option<(u32, usize)>, LinkError> {
        let Some(fragment) = self.readable(link)? else { return Ok(None) };
        if fragment.tag != tag {
            return Ok(Some((fragment.tag, 0)));
        }
        let bytes = fragment.bytes.len().min(dst.len());
        copy(&mut dst[..bytes], &fragment.bytes[..bytes]);
        self.consume(link, bytes);
        Ok(Some((tag, bytes)))
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

    /// Makes memory of `bytes` (not 0) zeroed bytes, where `send` may let a device read long
    /// messages, if this transport does such things. That `send` accepts bytes when the device is
    /// done with them. With a `Placement`, `recv` may let a device write long messages there. The
    /// first such `send` to each peer, and the first such `recv`, take as long as the system needs
    /// to pin all of the pages.
    fn pages(&mut self, _bytes: usize) -> Option<io::Result<Pages>> {
        None
    }

    /// Tells all peers at once, under a tag, that this rank has come so far: who hears of it sees
    /// all that this rank did before, in windows too. The caller sees to it that none of them has
    /// more than `limits::TELLS_MAX` tells left to hear. Only of a transport that has windows.
    fn tell(&mut self, _tag: u32) {
        unreachable!("a transport without windows has nothing to tell of");
    }

    /// The tag of the first tell of `peer` that was not `heard`, if there is one.
    ///
    /// # Errors
    /// As `readable`.
    fn told(&self, _peer: Rank) -> Result<Option<u32>, LinkError> {
        Ok(None)
    }

    /// Goes on to the next tell of `peer`, after `told` has said that there was one.
    fn heard(&mut self, _peer: Rank) {}

    /// The maker of windows, if this transport has them.
    fn windows(&mut self) -> Option<&mut dyn Windows> {
        None
    }
}

/// Makes buffers that every peer of a transport has mapped. All make the same, in the same order,
/// one after the other. Like a transport it never blocks.
pub trait Windows {
    /// Begins a window in which every rank has `bytes` bytes, at least 1: makes this rank's part,
    /// with all its pages, and hands it to the peers.
    ///
    /// # Errors
    /// A peer is gone.
    fn begin(&mut self, bytes: usize) -> Result<(), LinkError>;

    /// The window, once all peers have handed over their parts; or why it cannot be, after which
    /// others can: some rank, maybe this one, lacks memory for it.
    ///
    /// # Errors
    /// A peer is gone, or handed over something else.
    fn finish(&mut self) -> Result<Option<io::Result<Window>>, LinkError>;
}

/// A link that is unusable, and why.
#[derive(Debug, thiserror::Error)]
#[error("{transport} link to rank {} (lane {}): {fault}", link.peer, link.lane)]
pub struct LinkError {
    /// Which link; lane 0 where all lanes to the peer are concerned.
    pub link: Link,
    /// The transport's name.
    pub transport: &'static str,
    /// What happened.
    #[source]
    pub fault: LinkFault,
}

/// What can happen to a link.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LinkFault {
    /// The peer closed it, or its process ended.
    #[error("the peer closed the connection or its process ended")]
    Closed,
    /// The peer cannot be reached.
    #[error("cannot connect: {0}")]
    Unreachable(io::Error),
    /// The peer does not know the job's secret, or is not who it says.
    #[error("the peer did not prove that it belongs to this job")]
    Unproven,
    /// What the peer wrote is not what a ringfold rank writes.
    #[error("the peer broke the protocol: {0}")]
    Protocol(&'static str),
    /// The operating system said so.
    #[error("{0}")]
    Io(#[from] io::Error),
}
