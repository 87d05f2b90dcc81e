//! A layer that makes a transport as bad as the contract allows, and on request worse, to test its
//! callers.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;

use ringfold_types::limits::{FRAGMENT_ALIGN, LINK_BYTES_MIN};
use ringfold_types::mix;

use crate::contract::{Fragment, Link, LinkError, LinkFault, Received, Transport};

/// Most polls for which arrived bytes stay hidden.
const HIDDEN_POLLS_MAX: u64 = 8;

/// Most aligned pieces of a shortened send or receive.
const PIECES_MAX: u64 = 4;

/// The faults to inject. The same plan over the same calls gives the same faults.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Seed of the random numbers; tests print it.
    pub seed: u64,
    /// How often arrived bytes stay hidden for some polls, in thousandths.
    pub hide_per_mille: u64,
    /// How often a send or receive moves only a little, or a send nothing, in thousandths.
    pub shorten_per_mille: u64,
    /// The ends of links.
    pub ends: Vec<End>,
}

/// The end of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// The link that ends.
    pub link: Link,
    /// Bytes that the link carries before it ends, both directions counted.
    pub after_bytes: u64,
    /// The kind of the end.
    pub how: How,
}

/// The kind of a link's end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// As if the peer had closed it: both directions return `LinkFault::Closed`.
    Cut,
    /// As if the cable had been pulled: sent bytes are lost, nothing arrives, and nothing is
    /// reported.
    Silent,
}

/// A transport with injected faults.
///
/// The contract still holds, except for the ends of links. In particular no caller parks while
/// something is hidden: between `arm` and `disarm` nothing is hidden, refused or shortened.
#[derive(Debug)]
pub struct Fault {
    inner: Box<dyn Transport>,
    plan: Plan,
    random: u64,
    polls: u64,
    armed: bool,
    links: BTreeMap<Link, State>,
}

#[derive(Debug, Default)]
struct State {
    /// Arrived bytes show after this many polls.
    hidden_until: u64,
    /// Bytes of the last piece that was passed and not accepted; the caller must pass it again.
    owed: usize,
    /// Bytes that the link has carried.
    moved: u64,
    /// Bytes that a silent link has accepted and lost.
    swallowed: usize,
}

impl Fault {
    /// Wraps `inner`.
    #[must_use]
    pub const fn new(inner: Box<dyn Transport>, plan: Plan) -> Self {
        let random = plan.seed;
        Self { inner, plan, random, polls: 0, armed: false, links: BTreeMap::new() }
    }

    /// Ends a link from now on.
    pub fn end(&mut self, link: Link, how: How) {
        self.plan.ends.insert(0, End { link, after_bytes: 0, how });
    }

    /// SplitMix64.
    const fn random(&mut self) -> u64 {
        self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.random)
    }

    const fn happens(&mut self, per_mille: u64) -> bool {
        self.random() % 1000 < per_mille
    }

    /// How `link` has ended, if it has.
    fn ended(&self, link: Link) -> Option<How> {
        let moved = self.links.get(&link).map_or(0, |it| it.moved);
        self.plan.ends.iter().find(|it| it.link == link && moved >= it.after_bytes).map(|it| it.how)
    }

    fn closed(&self, link: Link) -> LinkError {
        LinkError { link, transport: self.name(), fault: LinkFault::Closed }
    }

    /// Whether arrived bytes of `link` are hidden.
    fn hides(&self, link: Link) -> bool {
        !self.armed && self.links.get(&link).is_some_and(|it| self.polls < it.hidden_until)
    }

    /// A random length of at most `bytes`.
    fn shortened(&mut self, bytes: usize) -> usize {
        if self.armed || !self.happens(self.plan.shorten_per_mille) {
            return bytes;
        }
        let pieces = usize::try_from(1 + self.random() % PIECES_MAX).unwrap_or(1);
        bytes.min(pieces * FRAGMENT_ALIGN)
    }

    fn consumed(&mut self, link: Link, bytes: usize) {
        let hide = self.happens(self.plan.hide_per_mille);
        let until = self.polls + 1 + self.random() % HIDDEN_POLLS_MAX;
        let state = self.links.entry(link).or_default();
        state.moved += bytes as u64;
        if hide {
            state.hidden_until = until;
        }
    }

    /// Accepts bytes as a link with a pulled cable does: up to its window, and then no more.
    fn swallow(&mut self, link: Link, bytes: usize) -> usize {
        let state = self.links.entry(link).or_default();
        let room = LINK_BYTES_MIN.saturating_sub(state.swallowed);
        let taken = if bytes <= room { bytes } else { room - room % FRAGMENT_ALIGN };
        state.swallowed += taken;
        taken
    }
}

impl Transport for Fault {
    pass_on!(name withdraw is_flushed wake_fd rendezvous expect registered_memory);
    fn send(&mut self, link: Link, tag: u32, bytes: &[u8]) -> Result<usize, LinkError> {
        match self.ended(link) {
            Some(How::Cut) => return Err(self.closed(link)),
            Some(How::Silent) => return Ok(self.swallow(link, bytes.len())),
            None => {}
        }
        let owed = self.links.get(&link).map_or(0, |it| it.owed);
        if owed == 0 && !self.armed && self.happens(self.plan.shorten_per_mille / 2) {
            return Ok(0);
        }
        let offered = if owed > 0 { owed } else { self.shortened(bytes.len()) };
        let accepted = self.inner.send(link, tag, &bytes[..offered])?;
        let state = self.links.entry(link).or_default();
        state.owed = offered - accepted;
        state.moved += accepted as u64;
        if self.armed && accepted == offered && offered < bytes.len() {
            // A caller must not park on bytes that an earlier fault held back.
            return Ok(accepted + self.send(link, tag, &bytes[accepted..])?);
        }
        Ok(accepted)
    }

    fn readable(&self, link: Link) -> Result<Option<Fragment<'_>>, LinkError> {
        match self.ended(link) {
            Some(How::Cut) => Err(self.closed(link)),
            Some(How::Silent) => Ok(None),
            // The inner transport must still learn of the read.
            None => Ok(self.inner.readable(link)?.filter(|_| !self.hides(link))),
        }
    }

    fn consume(&mut self, link: Link, bytes: usize) {
        self.inner.consume(link, bytes);
        if bytes > 0 {
            self.consumed(link, bytes);
        }
    }

    fn recv(
        &mut self,
        link: Link,
        tag: u32,
        dst: &mut [u8],
    ) -> Result<Option<Received>, LinkError> {
        match self.ended(link) {
            Some(How::Cut) => return Err(self.closed(link)),
            Some(How::Silent) => return Ok(None),
            None if self.hides(link) => return Ok(None),
            None => {}
        }
        let room = self.shortened(dst.len());
        let received = self.inner.recv(link, tag, &mut dst[..room])?;
        if let Some(Received { bytes: bytes @ 1.., .. }) = received {
            self.consumed(link, bytes);
        }
        Ok(received)
    }

    fn poll(&mut self) -> Result<bool, LinkError> {
        self.polls += 1;
        self.inner.poll()
    }

    fn arm(&mut self) {
        self.armed = true;
        self.inner.arm();
    }

    fn disarm(&mut self) {
        self.armed = false;
        self.inner.disarm();
    }
}
