//! The link of a group to the one above it: there this aggregator is a child, like a member.

use std::os::fd::OwnedFd;
use std::task::{Context, Poll};

use crate::provider::{AggregatorGroup, Child};
use crate::wire::links::Endpoints;
use crate::{Chunk, Group as _, OffloadError, Properties, RdmaDevices};
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use super::core::{Group, Shape};

/// The group above one: its endpoints and its number, and the child that the lower group is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parent {
    pub(crate) at: Endpoints,
    pub(crate) group: u32,
    pub(crate) child: u8,
}

/// The link to the group above.
pub(crate) struct Uplink {
    parent: Parent,
    group: AggregatorGroup,
    /// A copy of the group's descriptor, which wakes the task.
    wake: AsyncFd<OwnedFd>,
}

impl Uplink {
    /// Begins to connect. With devices it blocks for some tenths of a second.
    ///
    /// # Errors
    /// Those of `AggregatorGroup::connect`.
    pub(crate) fn connect(
        parent: Parent,
        key: [u8; 32],
        shape: &Shape,
        devices: Option<&RdmaDevices>,
    ) -> Result<Self, OffloadError> {
        let members: u16 = shape.members.iter().sum();
        let (window, chunk_bytes_max) = (shape.window, shape.chunk_bytes_max);
        let properties = Properties { window, chunk_bytes_max, exact: true };
        let last = shape.first + (members - 1);
        let child = Child { number: parent.child, key, members: shape.first..=last };
        let group = AggregatorGroup::connect(parent.at, child, properties, devices)?;
        let wake = group.wake_fd().try_clone_to_owned()?;
        #[expect(deprecated, reason = "an owned descriptor stays open while it is registered")]
        let wake = AsyncFd::with_interest(wake, Interest::READABLE)?;
        Ok(Self { parent, group, wake })
    }

    pub(crate) const fn parent(&self) -> &Parent {
        &self.parent
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

    /// Ends the group above, with the reason for its other children.
    pub(crate) fn abandon(self, reason: &str) {
        self.group.abandon(reason);
    }
}
