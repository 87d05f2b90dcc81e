//! Transports around a transport: what is wrong with it, what goes through it, how fast it may be.
//!
//! They are wrappers, so that no transport has a flag for them and all transports have them. They
//! hide a transport's windows, what goes through which they could not see.

mod fault;
mod throttle;
mod trace;

use std::io;
use std::os::fd::BorrowedFd;

use ringfold_types::Rank;

use crate::contract::{Capabilities, Fragment, Link, LinkError, Transport, Windows};
use crate::rdma::Pages;

pub use fault::{End, Fault, How, Plan};
pub use throttle::{Rate, Throttle};
pub use trace::{Counts, Trace};

/// So that layers wrap transports that are chosen at run time.
impl Transport for Box<dyn Transport> {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }

    fn send(&mut self, link: Link, tag: u32, bytes: &[u8]) -> Result<usize, LinkError> {
        (**self).send(link, tag, bytes)
    }

    fn offer(&mut self, link: Link, tag: u32, bytes: &[u8]) -> Result<usize, LinkError> {
        (**self).offer(link, tag, bytes)
    }

    fn takes_offers(&self) -> bool {
        (**self).takes_offers()
    }

    fn is_offering(&self) -> bool {
        (**self).is_offering()
    }

    fn readable(&self, link: Link) -> Result<Option<Fragment<'_>>, LinkError> {
        (**self).readable(link)
    }

    fn consume(&mut self, link: Link, bytes: usize) {
        (**self).consume(link, bytes);
    }

    fn recv(
        &mut self,
        link: Link,
        tag: u32,
        dst: &mut [u8],
    ) -> Result<Option<(u32, usize)>, LinkError> {
        (**self).recv(link, tag, dst)
    }

    fn withdraw(&mut self) {
        (**self).withdraw();
    }

    fn pages(&mut self, bytes: usize) -> Option<io::Result<Pages>> {
        (**self).pages(bytes)
    }

    fn poll(&mut self) -> Result<bool, LinkError> {
        (**self).poll()
    }

    fn is_flushed(&self) -> bool {
        (**self).is_flushed()
    }

    fn wake_fd(&self) -> BorrowedFd<'_> {
        (**self).wake_fd()
    }

    fn arm(&mut self) {
        (**self).arm();
    }

    fn disarm(&mut self) {
        (**self).disarm();
    }

    fn tell(&mut self, tag: u32) {
        (**self).tell(tag);
    }

    fn told(&self, peer: Rank) -> Result<Option<u32>, LinkError> {
        (**self).told(peer)
    }

    fn heard(&mut self, peer: Rank) {
        (**self).heard(peer);
    }

    fn windows(&mut self) -> Option<&mut dyn Windows> {
        (**self).windows()
    }
}

#[cfg(test)]
mod tests;
