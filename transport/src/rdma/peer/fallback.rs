//! TCP in place of paths, and the wait for paths that come back.

use std::time::{Duration, Instant};

use ringfold_types::limits::RDMA_RETURN_MS;

/// Whether data goes by TCP. Where TCP may not be used, a link without paths waits while a path is
/// expected to come back.
#[derive(Debug)]
pub(super) struct Fallback {
    may_use_tcp: bool,
    is_used: bool,
    /// The end of the wait for a path that may come back, because a port has another address.
    returns: Option<Instant>,
}

impl Fallback {
    pub(super) const fn new(may_use_tcp: bool) -> Self {
        Self { may_use_tcp, is_used: false, returns: None }
    }

    /// Returns whether data may go by TCP where no path is left.
    pub(super) const fn may_use_tcp(&self) -> bool {
        self.may_use_tcp
    }

    /// Returns whether data goes by TCP.
    pub(super) const fn is_used(&self) -> bool {
        self.is_used
    }

    /// Sends data by TCP from now on, if it may go there, because no path is left.
    pub(super) const fn begin(&mut self) {
        self.is_used = self.may_use_tcp;
    }

    /// Ends the fallback and the wait, because there is a path. Returns whether data went by TCP
    /// until now.
    pub(super) const fn end(&mut self) -> bool {
        self.returns = None;
        std::mem::replace(&mut self.is_used, false)
    }

    /// Waits for a path that ends now and is made again soon. Failed attempts do not prolong the
    /// wait.
    pub(super) fn expect_return(&mut self, now: Instant) {
        self.returns.get_or_insert(now + Duration::from_millis(RDMA_RETURN_MS));
    }

    /// Waits anew, because our own port has moved.
    pub(super) fn expect_another_return(&mut self, now: Instant) {
        self.returns = None;
        self.expect_return(now);
    }

    /// Returns whether a path is expected to come back.
    pub(super) const fn expects_return(&self) -> bool {
        self.returns.is_some()
    }

    /// The end of the wait.
    pub(super) const fn deadline(&self) -> Option<Instant> {
        self.returns
    }

    /// Ends the wait if it is due. Returns whether it was.
    pub(super) fn expire(&mut self, now: Instant) -> bool {
        self.returns.take_if(|until| *until <= now).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_has_an_end() {
        let (mut fallback, now) = (Fallback::new(false), Instant::now());
        let (wait, later) = (Duration::from_millis(RDMA_RETURN_MS), now + Duration::from_secs(1));
        fallback.expect_return(now);
        fallback.expect_return(later);
        assert_eq!(fallback.deadline(), Some(now + wait), "attempts do not prolong it");
        fallback.expect_another_return(later);
        assert_eq!(fallback.deadline(), Some(later + wait));
        assert!(!fallback.expire(now + wait) && fallback.expects_return());
        assert!(fallback.expire(later + wait) && !fallback.expects_return());
    }

    #[test]
    fn tcp_is_used_only_where_it_may() {
        for may_use_tcp in [false, true] {
            let mut fallback = Fallback::new(may_use_tcp);
            fallback.begin();
            assert_eq!(fallback.is_used(), may_use_tcp);
            assert_eq!(fallback.end(), may_use_tcp);
            assert!(!fallback.is_used() && !fallback.end());
        }
    }
}
