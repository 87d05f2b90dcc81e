//! The connection of a group to the one above it: there this aggregator is a child, like a member.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::{Context, Poll};

use ringfold_transport::offload::aggregator::{AggregatorGroup, Child};
use ringfold_transport::offload::handshake::Place;
use ringfold_transport::offload::{Carrier, Chunk, Group as _, OffloadError, Properties};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::core::{Group, Shape};

/// The endpoint of the group above, and the child that a group is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Endpoint {
    pub(crate) at: SocketAddr,
    pub(crate) group: u32,
    pub(crate) child: u8,
}

/// The connection to the group above, in one epoch.
pub(crate) struct Uplink {
    endpoint: Endpoint,
    group: AggregatorGroup,
    /// A copy of the group's descriptor, which wakes the task.
    wake: AsyncFd<OwnedFd>,
}

impl Uplink {
    /// Begins to connect in an epoch.
    ///
    /// # Errors
    /// The system refuses a descriptor, or has no route.
    pub(crate) fn connect(
        endpoint: Endpoint,
        key: [u8; 32],
        epoch: u32,
        shape: &Shape,
        carrier: Option<Arc<dyn Carrier>>,
    ) -> Result<Self, OffloadError> {
        let place = Place { group: endpoint.group, epoch, child: endpoint.child };
        let members: u16 = shape.members.iter().sum();
        let (window, chunk_bytes_max) = (shape.window, shape.chunk_bytes_max);
        let properties = Properties { window, chunk_bytes_max, fixed_order: true, exact: true };
        let last = shape.first + (members - 1);
        let child = Child { place, key, members: shape.first..=last };
        let group = AggregatorGroup::connect(endpoint.at, child, properties, carrier)?;
        let wake = group.wake_fd().try_clone_to_owned()?;
        #[expect(deprecated, reason = "an owned descriptor stays open while it is registered")]
        let wake = AsyncFd::with_interest(wake, Interest::READABLE)?;
        Ok(Self { endpoint, group, wake })
    }

    pub(crate) const fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    pub(crate) fn is_ready(&self) -> bool {
        self.group.is_ready()
    }

    /// The children of the nearest group above that waits for some.
    pub(crate) fn awaited(&self) -> u64 {
        let awaited = self.group.awaited();
        if awaited.children == 0 { awaited.above } else { awaited.children }
    }

    /// Hands over what `core` has combined, and gives it the results. Returns whether anything
    /// moved. If nothing did, the task wakes when something can.
    ///
    /// # Errors
    /// The group above has failed.
    pub(crate) fn exchange(
        &mut self,
        cx: &mut Context<'_>,
        core: &mut Group,
    ) -> Result<bool, OffloadError> {
        self.group.disarm();
        if self.step(core)? {
            return Ok(true);
        }
        self.group.arm();
        loop {
            if self.step(core)? {
                return Ok(true);
            }
            match self.wake.poll_read_ready(cx) {
                Poll::Ready(ready) => {
                    ready?.clear_ready();
                    self.group.disarm();
                    self.group.arm();
                }
                Poll::Pending => return Ok(false),
            }
        }
    }

    fn step(&mut self, core: &mut Group) -> Result<bool, OffloadError> {
        let mut moved = false;
        while let Some((header, bytes)) = core.partial(self.group.posted()) {
            let Some(reduction) = header.reduction() else { break };
            let width = reduction.input_bytes(1);
            let count = bytes.len().checked_div(width).unwrap_or(0);
            let chunk = Chunk { number: self.group.posted(), tag: header.tag, reduction, count };
            if !self.group.post(&chunk, bytes)? {
                break;
            }
            moved = true;
        }
        moved |= self.group.poll()?;
        while let Some(outcome) = self.group.result() {
            core.take_result(outcome.bytes);
            self.group.take();
            moved = true;
        }
        Ok(moved)
    }

    /// Ends the epoch of the group above, with the reason for its other children.
    pub(crate) fn abandon(self, reason: &str) {
        self.group.abandon(reason);
    }
}
