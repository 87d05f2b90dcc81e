//! Messages as work of a blocking call.

use std::time::Duration;

use ringfold_bootstrap::AwaitedMessage;
use ringfold_collectives::Progress;

use super::ends::End;
use super::post::Post;
use crate::error::CallError;
use crate::execute::Work;
use crate::router::Router;
use crate::watch::Watch;

/// The messages of a blocking call, while no other call or message is under way.
pub(crate) struct Alone<'p>(pub(crate) &'p mut Post);

impl Work for Alone<'_> {
    /// Lends long buffers only if nothing else is under way, whose end would release them.
    fn lease(&mut self, router: &mut Router) {
        let post = &mut *self.0;
        for at in 0..post.to.len() {
            let to = post.receiver(post.to[at]);
            post.outboxes[to.index()].iter_mut().for_each(|it| router.lease_input(it.bytes()));
        }
        for at in 0..post.from.len() {
            let from = post.sender(post.from[at]);
            let posted = &mut post.inboxes[from.index()].posted;
            posted.iter_mut().for_each(|it| router.lease_output(it.bytes()));
        }
        post.any.iter_mut().for_each(|it| router.lease_output(it.bytes()));
    }

    #[inline]
    fn advance(&mut self, router: &mut Router, _: &Watch, _: usize) -> Result<Progress, CallError> {
        let progress = self.0.advance(router)?;
        Ok(if self.0.is_foreground_done() { Progress::Done } else { progress })
    }

    fn check_peers(&mut self, router: &Router, watch: &Watch) -> Result<(), CallError> {
        self.0.check_peers(router, watch)
    }

    fn awaited(&mut self) -> Option<AwaitedMessage> {
        self.0.awaited(|end| matches!(end, End::Foreground))
    }
}

/// A blocking call beside started messages.
pub(crate) struct Beside<'w, W> {
    pub(crate) work: &'w mut W,
    pub(crate) post: &'w mut Post,
}

impl<W: Work> Work for Beside<'_, W> {
    fn lease(&mut self, router: &mut Router) {
        self.work.lease(router);
    }

    fn advance(
        &mut self,
        router: &mut Router,
        watch: &Watch,
        budget: usize,
    ) -> Result<Progress, CallError> {
        let of_post = self.post.advance(router).map_err(|error| self.post.blame(error))?;
        Ok(match self.work.advance(router, watch, budget)? {
            Progress::Idle if of_post == Progress::Moved => Progress::Moved,
            progress => progress,
        })
    }

    /// Messages must not hold the call up.
    fn is_flushed(&self, router: &Router) -> bool {
        self.post.has_unsent() || self.work.is_flushed(router)
    }

    fn park_limit(&mut self) -> Duration {
        self.work.park_limit().min(self.post.time_left())
    }

    fn check_peers(&mut self, router: &Router, watch: &Watch) -> Result<(), CallError> {
        self.work.check_peers(router, watch)?;
        let of_post = match self.post.time_left() {
            Duration::ZERO => Err(CallError::Overdue),
            _ => self.post.check_peers(router, watch),
        };
        of_post.map_err(|error| self.post.blame(error))
    }
}
