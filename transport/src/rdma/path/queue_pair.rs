//! A path's objects of the device: the queue pair and its receives, until the device has let go of
//! them.

use std::io;
use std::sync::Arc;
use std::time::Instant;

use super::destruction::Destruction;
use super::send_queue::SENDS;
use crate::rdma::rail::Rail;
use crate::rdma::ring::layout::LINE_BYTES;
use crate::rdma::sys::{Connection, Cq, Qp, Sizes};

/// Used receives that may accumulate before they are posted again.
pub(super) const SPENT_MAX: usize = 16;
/// Inline bytes of a send: a line of the ring. Few devices take much more.
const INLINE_BYTES: u32 = 64;
const _: () = assert!(INLINE_BYTES as usize == LINE_BYTES);

/// The queue pair of the present life. While it is *exposed*, the peer may be able to write by it.
/// It stays exposed until it is flushed or destroyed.
#[derive(Debug, Default)]
pub(super) struct QueuePair {
    qp: Option<Qp>,
    /// The completion queue, which is kept from life to life, and the completions that it has room
    /// for.
    queue: Option<(Arc<Cq>, u32)>,
    is_exposed: bool,
    /// The destruction of an exposed queue pair. The peer hears nothing of this life's end before
    /// the device is done.
    destruction: Option<Destruction>,
    /// The receives that the queue pair has room for.
    most: usize,
    /// The identity in completions of receives.
    id: u64,
    /// Receives that are posted.
    receives: usize,
    /// Receives that were used and not posted again.
    spent: usize,
}

impl QueuePair {
    /// Makes a queue pair with room for `receives` receives, whose work completes under `id`. The
    /// completion queue has room for `posted` of them.
    pub(super) fn make(
        &mut self,
        rail: &mut Rail,
        (id, receives, posted): (u64, usize, usize),
    ) -> io::Result<()> {
        self.most = receives;
        let receives = u32::try_from(receives).unwrap_or(u32::MAX);
        let queue = self.reserve(rail, posted)?;
        let sizes = Sizes { sends: SENDS, receives, inline_bytes: INLINE_BYTES };
        let qp = Qp::new(&rail.pd, &queue, sizes)?;
        qp.init(rail.port.number, rail.partition.index)?;
        (self.qp, self.id) = (Some(qp), id);
        Ok(())
    }

    /// Returns the completion queue, with room for the completions of all sends and of so many
    /// receives: the device completes all work of a queue pair that fails. A queue that cannot grow
    /// has room for all receives from the beginning.
    pub(super) fn reserve(&mut self, rail: &mut Rail, receives: usize) -> io::Result<Arc<Cq>> {
        let receives = if rail.can_grow() { receives } else { self.most };
        let wanted = u32::try_from(receives).unwrap_or(u32::MAX).saturating_add(SENDS);
        match &mut self.queue {
            None => {
                let queue = rail.queue(wanted)?;
                self.queue = Some((Arc::clone(&queue), wanted));
                Ok(queue)
            }
            Some((queue, reserved)) => {
                if wanted > *reserved {
                    rail.reserve(queue, wanted - *reserved)?;
                    *reserved = wanted;
                }
                Ok(Arc::clone(queue))
            }
        }
    }

    /// Lets the device destroy the queue pair in the background, and starts anew.
    pub(super) fn clear(&mut self, connection: Option<Arc<Connection>>) {
        self.bury(connection);
        *self = Self { queue: self.queue.take(), ..Self::default() };
    }

    fn bury(&mut self, connection: Option<Arc<Connection>>) -> Option<Destruction> {
        Some(Destruction::new(self.qp.take()?, connection))
    }

    pub(super) const fn get(&self) -> Option<&Qp> {
        self.qp.as_ref()
    }

    pub(super) fn qp_mut(&mut self) -> io::Result<&mut Qp> {
        self.qp.as_mut().ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    pub(super) fn is_iwarp(&self) -> bool {
        self.qp.as_ref().is_some_and(Qp::is_iwarp)
    }

    /// Notes that the peer may be able to write from now on.
    pub(super) const fn expose(&mut self) {
        self.is_exposed = true;
    }

    /// Posts more receives.
    pub(super) fn post_receives(&mut self, count: usize) -> io::Result<()> {
        let id = self.id;
        self.qp_mut()?.receive(id, count)?;
        self.receives += count;
        Ok(())
    }

    pub(super) const fn has_receives(&self) -> bool {
        self.receives > 0
    }

    /// Notes that a receive was flushed.
    pub(super) const fn flushed(&mut self) {
        self.receives = self.receives.saturating_sub(1);
    }

    /// Notes that a receive was used. Used receives are posted again in batches if the queue pair
    /// `goes_on`.
    pub(super) fn used(&mut self, goes_on: bool) -> io::Result<()> {
        self.flushed();
        self.spent += 1;
        if self.spent < SPENT_MAX || !goes_on {
            return Ok(());
        }
        let spent = std::mem::take(&mut self.spent);
        self.post_receives(spent)
    }

    /// Ends the connection. Arrivals complete first, and then the receives that are flushed.
    /// Returns whether the device does so.
    pub(super) fn fail(&self) -> bool {
        self.qp.as_ref().is_some_and(|qp| qp.fail().is_ok())
    }

    /// Lets the device destroy the queue pair, because it refuses to end it or does not flush it.
    pub(super) fn destroy(&mut self, connection: Option<Arc<Connection>>) {
        self.receives = 0;
        let destruction = self.bury(connection).filter(|_| self.is_exposed);
        self.destruction = destruction.or_else(|| self.destruction.take());
    }

    /// Blocks until the device has destroyed the queue pair.
    ///
    /// # Errors
    /// The device refuses, or takes too long.
    pub(super) fn wait(&self) -> io::Result<()> {
        self.destruction.as_ref().map_or(Ok(()), Destruction::wait)
    }

    /// Returns whether nothing more can arrive.
    ///
    /// # Errors
    /// The device does not let go of the queue pair, so the peer may still write by it.
    pub(super) fn is_silent(&self) -> io::Result<bool> {
        if self.has_receives() {
            return Ok(false);
        }
        self.destruction.as_ref().map_or(Ok(true), Destruction::is_done)
    }

    /// The time of the next check of a destruction.
    pub(super) fn next_check(&self) -> Option<Instant> {
        self.destruction.as_ref()?.next_check()
    }
}
