//! Wrappers around a transport: faults, views of its traffic, and limits of its rate.
//!
//! They are wrappers, so no transport has a flag for them and all transports can have them. Faults
//! and limits, which only tests use, hide that a transport shares memory, and rendezvous sends
//! bypass them.

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
    (@disarm) => {
        fn disarm(&mut self) {
            self.inner.disarm();
        }
    };
    (@rendezvous) => {
        fn rendezvous(&mut self) -> Option<&mut dyn crate::contract::Rendezvous> {
            self.inner.rendezvous()
        }
    };
    (@expect) => {
        fn expect(&mut self, link: Link, tag: u32, skip: usize, dst: &mut [u8]) -> bool {
            self.inner.expect(link, tag, skip, dst)
        }
    };
    (@registered_memory) => {
        fn registered_memory(&mut self) -> Option<&mut dyn crate::contract::RegisteredMemory> {
            self.inner.registered_memory()
        }
    };
}

#[cfg(any(test, feature = "testing"))]
mod fault;
#[cfg(any(test, feature = "testing"))]
mod throttle;
mod watched;

#[cfg(any(test, feature = "testing"))]
pub use fault::{End, Fault, How, Plan};
#[cfg(any(test, feature = "testing"))]
pub use throttle::{Rate, Throttle};
pub use watched::{Watch, Watched};

#[cfg(test)]
mod tests;
