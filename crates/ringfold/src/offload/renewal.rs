//! Asks again for a group that was given up. A thread of rank 0 does so, with growing pauses.
//!
//! 1. Rank 0 asks the provider for a new term. The ticket goes to all ranks, and each member
//!    connects.
//! 2. Rank 0 asks all whether they are connected, and in which call each is. A member that says so
//!    begins no further call until all have answered.
//! 3. If all are connected, the term serves the calls after the latest one.

use std::sync::{Arc, Weak};
use std::thread;
use std::time::Duration;

use ringfold_bootstrap::Inquirer;
use ringfold_types::limits;

use super::background::spawn;
use super::question::{About, Question};
use super::site::Site;

/// The groups of a communicator, one of which was given up.
pub(super) trait Renewed: Send + Sync {
    fn provider(&self) -> Arc<dyn Site>;

    /// Whether a group is given up.
    fn is_given_up(&self, group: usize) -> bool;

    /// Whether a term of a group is in use, or is decided to be.
    fn has_term(&self, group: usize, number: u32) -> bool;
}

/// The shortest and the longest pause before another attempt.
const PAUSES: [Duration; 2] = [
    Duration::from_millis(limits::OFFLOAD_RENEWAL_MS),
    Duration::from_millis(16 * limits::OFFLOAD_RENEWAL_MS),
];

/// How often rank 0 asks whether all have connected, and the pause before each question.
const READY_TRIES: u64 = 10;
const READY_PAUSE: Duration = Duration::from_millis(200);

/// Begins to ask again for `group`, whose term of this number was given up.
pub(super) fn begin<R: Renewed + 'static>(
    shared: Weak<R>,
    inquirer: Inquirer,
    group: u8,
    mut term: u32,
) {
    spawn(move || {
        let [mut pause, longest] = PAUSES;
        loop {
            if !is_wanted_after(&shared, group, pause) {
                return;
            }
            pause = longest.min(2 * pause);
            let Some(site) = shared.upgrade().map(|shared| shared.provider()) else {
                return;
            };
            term += 1;
            let ticket = match site.ask(group.into(), term) {
                Ok(ticket) => ticket,
                Err(reason) => {
                    tracing::debug!("asked again in vain: {reason}");
                    continue;
                }
            };
            let ask = |question| inquirer.ask_all(About { group, term, question }.encode());
            ask(Question::Connect(ticket));
            for attempt in 0..READY_TRIES {
                thread::sleep(READY_PAUSE);
                ask(Question::Ready(attempt));
                let Some(shared) = shared.upgrade() else { return };
                if shared.has_term(group.into(), term) {
                    tracing::info!("{} serves again", site.name(group.into()));
                    return;
                }
            }
        }
    });
}

/// Waits for `pause`. Returns whether the group is still to be asked for.
fn is_wanted_after(shared: &Weak<impl Renewed>, group: u8, pause: Duration) -> bool {
    let step = Duration::from_millis(100);
    let mut left = pause;
    while !left.is_zero() {
        thread::sleep(step.min(left));
        left = left.saturating_sub(step);
        if shared.strong_count() == 0 {
            return false;
        }
    }
    shared.upgrade().is_some_and(|shared| shared.is_given_up(group.into()))
}
