//! A layer that logs and counts the traffic of a transport.

use std::collections::BTreeMap;
use std::os::fd::BorrowedFd;

use crate::contract::{Fragment, Link, LinkError, Received, Transport};

/// A transport whose traffic is counted, and logged at level `TRACE`.
#[derive(Debug)]
pub struct Trace {
    inner: Box<dyn Transport>,
    links: BTreeMap<Link, Counts>,
}

/// The traffic of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Calls of `send` that accepted at least one byte.
    pub sends: u64,
    /// Bytes that those calls accepted.
    pub sent_bytes: u64,
    /// Calls of `send` that accepted nothing.
    pub refusals: u64,
    /// Calls of `consume` and `recv` that took at least one byte.
    pub receives: u64,
    /// Bytes that those calls took.
    pub received_bytes: u64,
}

impl Trace {
    /// Wraps `inner`.
    #[must_use]
    pub const fn new(inner: Box<dyn Transport>) -> Self {
        Self { inner, links: BTreeMap::new() }
    }

    /// The traffic of `link` so far.
    #[must_use]
    pub fn counts(&self, link: Link) -> Counts {
        self.links.get(&link).copied().unwrap_or_default()
    }

    fn received(&mut self, link: Link, bytes: usize) {
        let counts = self.links.entry(link).or_default();
        counts.receives += 1;
        counts.received_bytes += bytes as u64;
    }
}

impl Transport for Trace {
    pass_on!(name readable withdraw poll is_flushed wake_fd arm memory);
    fn send(&mut self, link: Link, tag: u32, bytes: &[u8]) -> Result<usize, LinkError> {
        let result = self.inner.send(link, tag, bytes);
        let (peer, lane, offered) = (link.peer.0, link.lane.0, bytes.len());
        let counts = self.links.entry(link).or_default();
        match &result {
            // A waiting caller tries repeatedly; that is not logged.
            Ok(0) => counts.refusals += 1,
            Ok(accepted) => {
                counts.sends += 1;
                counts.sent_bytes += *accepted as u64;
                tracing::trace!(peer, lane, tag, offered, accepted, "send");
            }
            Err(error) => tracing::trace!(peer, lane, tag, offered, %error, "send"),
        }
        result
    }

    fn consume(&mut self, link: Link, bytes: usize) {
        self.inner.consume(link, bytes);
        tracing::trace!(peer = link.peer.0, lane = link.lane.0, bytes, "consume");
        self.received(link, bytes);
    }

    fn recv(
        &mut self,
        link: Link,
        tag: u32,
        dst: &mut [u8],
    ) -> Result<Option<Received>, LinkError> {
        let result = self.inner.recv(link, tag, dst);
        if let Ok(Some(Received { tag: found, bytes })) = &result {
            let (peer, lane) = (link.peer.0, link.lane.0);
            tracing::trace!(peer, lane, tag, found, bytes, room = dst.len(), "recv");
            if *bytes > 0 {
                self.received(link, *bytes);
            }
        }
        result
    }

    fn disarm(&mut self) {
        self.inner.disarm();
    }
}
