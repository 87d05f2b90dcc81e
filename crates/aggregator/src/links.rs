//! The links of a group's children in one epoch, where a carrier carries the chunks.

use std::io;
use std::net::IpAddr;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use ringfold_transport::offload::Carrier;
use ringfold_transport::offload::links::Links;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;
use tokio::runtime::Handle;

use crate::pool::Lease;

/// The links, for the session and the connections of its children.
#[derive(Clone, Debug)]
pub(crate) struct SharedLinks(Arc<Closing>);

/// Closes the links on a thread that may block, since the children may be late. The group's memory
/// returns after that.
#[derive(Debug)]
struct Closing {
    links: Mutex<Option<Links>>,
    lease: Arc<Lease>,
}

/// The aggregator's end, and the wake-ups of its task.
#[derive(Debug)]
pub(crate) struct EpochLinks {
    links: SharedLinks,
    /// A copy of the links' descriptor.
    wake: AsyncFd<OwnedFd>,
    is_armed: bool,
    /// The port that children dial.
    pub(crate) port: u16,
}

impl SharedLinks {
    /// Acts on the links.
    pub(crate) fn with<T>(&self, act: impl FnOnce(&mut Links) -> T) -> T {
        let mut links: MutexGuard<'_, Option<Links>> = self.0.lock();
        act(links.as_mut().expect("links stay until all holders have dropped them"))
    }
}

impl Closing {
    fn lock(&self) -> MutexGuard<'_, Option<Links>> {
        self.links.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Closing {
    fn drop(&mut self) {
        let (mut links, lease) = (self.lock().take(), Arc::clone(&self.lease));
        let close = move || {
            if let Some(links) = &mut links {
                links.withdraw();
            }
            drop((links, lease));
        };
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn_blocking(close);
        }
    }
}

impl EpochLinks {
    /// Opens the carrier's devices for this many children, at an address of this host. The links
    /// hold the lease until they are closed. Blocks for some tenths of a second.
    ///
    /// # Errors
    /// The carrier cannot be used now.
    pub(crate) fn open(
        carrier: &dyn Carrier,
        at: IpAddr,
        key: [u8; 32],
        (children, lease): (usize, &Arc<Lease>),
    ) -> io::Result<Self> {
        let (links, port) = Links::listen(carrier, at, key, children)?;
        let wake = links.wake_fd().try_clone_to_owned()?;
        #[expect(deprecated, reason = "an owned descriptor stays open while it is registered")]
        let wake = AsyncFd::with_interest(wake, Interest::READABLE)?;
        let links = Mutex::new(Some(links));
        let links = SharedLinks(Arc::new(Closing { links, lease: Arc::clone(lease) }));
        Ok(Self { links, wake, is_armed: false, port })
    }

    pub(crate) const fn shared(&self) -> &SharedLinks {
        &self.links
    }

    /// Does the work of all links. Returns whether anything moved.
    ///
    /// # Errors
    /// The links have failed together.
    pub(crate) fn poll(&self) -> Result<bool, String> {
        self.links.with(|links| links.poll().map_err(|e| e.to_string()))
    }

    /// Cancels the wake-up that `may_sleep` has asked for.
    pub(crate) fn disarm(&mut self) {
        if std::mem::take(&mut self.is_armed) {
            self.links.with(Links::disarm);
        }
    }

    /// Whether the task may sleep, after a round in which nothing moved. If not, it must do another
    /// round.
    pub(crate) fn may_sleep(&mut self, cx: &mut Context<'_>) -> bool {
        if !std::mem::replace(&mut self.is_armed, true) {
            self.links.with(Links::arm);
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
