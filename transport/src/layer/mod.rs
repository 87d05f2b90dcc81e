//! Wrappers around a transport: faults, traces of traffic, and limits of its rate.
//!
//! They are wrappers, so no transport has a flag for them and all transports can have them. They
//! hide that a transport shares memory, and rendezvous sends bypass them.

mod fault;
mod throttle;
mod trace;

use std::os::fd::BorrowedFd;

use crate::contract::{
    EXCHANGE_BYTES, Exchanged, Fragment, Link, LinkError, Received, RegisteredMemory, Rendezvous,
    Transport,
};

pub use fault::{End, Fault, How, Plan};
pub use throttle::{Rate, Throttle};
pub use trace::{Counts, Trace};

/// Lets layers wrap transports that are chosen at run time.
impl Transport for Box<dyn Transport> {
    fn name(&self) -> &'static str {
        (**self).name()
    }

    fn send(&mut self, link: Link, tag: u32, bytes: &[u8]) -> Result<usize, LinkError> {
        (**self).send(link, tag, bytes)
    }

    fn send_ahead(&mut self, link: Link, tag: u32, bytes: &[u8]) -> Result<usize, LinkError> {
        (**self).send_ahead(link, tag, bytes)
    }

    fn exchange(
        &mut self,
        link: Link,
        tag: u32,
        own: &[u8],
        theirs: &mut [u8; EXCHANGE_BYTES],
        tries: u32,
    ) -> Exchanged {
        (**self).exchange(link, tag, own, theirs, tries)
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
    ) -> Result<Option<Received>, LinkError> {
        (**self).recv(link, tag, dst)
    }

    fn withdraw(&mut self) {
        (**self).withdraw();
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

    fn rendezvous(&mut self) -> Option<&mut dyn Rendezvous> {
        (**self).rendezvous()
    }

    fn registered_memory(&mut self) -> Option<&mut dyn RegisteredMemory> {
        (**self).registered_memory()
    }
}

#[cfg(test)]
mod tests;
