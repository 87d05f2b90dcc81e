//! The endpoints of a group: each has the links of the children that chose it.

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::task::{Context, Poll};

use crate::RdmaDevices;
use crate::wire::links::{Links, child_rank};
use crate::wire::messages::Messages;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;

use super::pool::Lease;

/// An endpoint, and the wake-ups of its task.
#[derive(Debug)]
pub(crate) struct Endpoint {
    /// The links, until a thread closes them.
    links: Option<Links>,
    /// The messages of each child.
    messages: Vec<Messages>,
    /// The group's memory, which returns after the links have closed.
    lease: Arc<Lease>,
    /// A copy of the links' descriptor.
    wake: AsyncFd<OwnedFd>,
    is_armed: bool,
    /// Whether its children use RDMA.
    pub(crate) is_rdma: bool,
    /// The port that children dial.
    pub(crate) port: u16,
}

impl Endpoint {
    /// Listens for this many children, at an address of this host. With devices it blocks for some
    /// tenths of a second.
    ///
    /// # Errors
    /// The address has no free port, or the devices cannot be used now.
    pub(crate) fn open(
        devices: Option<&RdmaDevices>,
        at: IpAddr,
        key: [u8; 32],
        (children, lease): (usize, &Arc<Lease>),
    ) -> io::Result<Self> {
        let (links, port) = Links::listen(devices, at, key, children)?;
        let wake = links.wake_fd().try_clone_to_owned()?;
        #[expect(deprecated, reason = "an owned descriptor stays open while it is registered")]
        let wake = AsyncFd::with_interest(wake, Interest::READABLE)?;
        let messages = (0..).take(children).map(|child| Messages::new(child_rank(child))).collect();
        let (links, lease, is_rdma) = (Some(links), Arc::clone(lease), devices.is_some());
        Ok(Self { links, messages, lease, wake, is_armed: false, is_rdma, port })
    }

    /// The group's memory, for others that use it.
    pub(crate) fn lease(&self) -> Arc<Lease> {
        Arc::clone(&self.lease)
    }

    /// The links, and the messages of a child.
    pub(crate) fn child(&mut self, child: usize) -> (&mut Links, &mut Messages) {
        (Self::open_links(&mut self.links), &mut self.messages[child])
    }

    fn open_links(links: &mut Option<Links>) -> &mut Links {
        links.as_mut().expect("links stay until the endpoint is dropped")
    }

    /// Does the work of all links. Returns whether anything moved.
    ///
    /// # Errors
    /// The links have failed together.
    pub(crate) fn poll(&mut self) -> Result<bool, String> {
        Self::open_links(&mut self.links).poll().map_err(|fault| fault.to_string())
    }

    /// Whether all messages reach the children without further calls.
    pub(crate) fn is_flushed(&self) -> bool {
        self.messages.iter().all(Messages::is_idle)
            && self.links.as_ref().is_none_or(Links::is_flushed)
    }

    /// Cancels the wake-up that `may_sleep` has asked for.
    pub(crate) fn disarm(&mut self) {
        if std::mem::take(&mut self.is_armed) {
            Self::open_links(&mut self.links).disarm();
        }
    }

    /// Whether the task may sleep, after a round in which nothing moved. If not, it must do another
    /// round.
    pub(crate) fn may_sleep(&mut self, cx: &mut Context<'_>) -> bool {
        if !std::mem::replace(&mut self.is_armed, true) {
            Self::open_links(&mut self.links).arm();
            return false;
        }
        match self.wake.poll_read_ready(cx) {
            Poll::Pending => true,
            Poll::Ready(Ok(mut ready)) => {
                ready.clear_ready();
                self.disarm();
                false
            }
            // The runtime ends.
            Poll::Ready(Err(_)) => true,
        }
    }
}

impl Drop for Endpoint {
    /// Closes the links on a thread that may block, since the children may be late.
    fn drop(&mut self) {
        let is_flushed = self.is_flushed();
        let (mut links, lease) = (self.links.take(), Arc::clone(&self.lease));
        if !is_flushed {
            links.iter_mut().for_each(Links::withdraw);
        }
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn_blocking(move || drop((links, lease)));
        }
    }
}
