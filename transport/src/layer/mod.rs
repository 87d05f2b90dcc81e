//! Wrappers around a transport: faults, traces of traffic, and limits of its rate.
//!
//! They are wrappers, so no transport has a flag for them and all transports can have them. They
//! hide that a transport shares memory, and rendezvous sends bypass them.

/// Passes these methods of `Transport` on to the inner transport.
macro_rules! pass_on {
    ($($method:ident)+) => { $(pass_on!(@$method);)+ };
    (@name) => {
        fn name(&self) -> &'static str {
            self.inner.name()
        }
    };
    (@readable) => {
        fn readable(&self, link: Link) -> Result<Option<Fragment<'_>>, LinkError> {
            self.inner.readable(link)
        }
    };
    (@withdraw) => {
        fn withdraw(&mut self) {
            self.inner.withdraw();
        }
    };
    (@poll) => {
        fn poll(&mut self) -> Result<bool, LinkError> {
            self.inner.poll()
        }
    };
    (@is_flushed) => {
        fn is_flushed(&self) -> bool {
            self.inner.is_flushed()
        }
    };
    (@wake_fd) => {
        fn wake_fd(&self) -> BorrowedFd<'_> {
            self.inner.wake_fd()
        }
    };
    (@arm) => {
        fn arm(&mut self) {
            self.inner.arm();
        }
    };
    (@memory) => {
        fn rendezvous(&mut self) -> Option<&mut dyn crate::contract::Rendezvous> {
            self.inner.rendezvous()
        }

        fn expect(&mut self, link: Link, tag: u32, skip: usize, dst: &mut [u8]) -> bool {
            self.inner.expect(link, tag, skip, dst)
        }

        fn registered_memory(&mut self) -> Option<&mut dyn crate::contract::RegisteredMemory> {
            self.inner.registered_memory()
        }
    };
}

mod fault;
mod throttle;
mod trace;

pub use fault::{End, Fault, How, Plan};
pub use throttle::{Rate, Throttle};
pub use trace::{Counts, Trace};

#[cfg(test)]
mod tests;
