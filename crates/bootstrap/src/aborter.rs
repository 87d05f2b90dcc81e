//! Gives a rank up from any thread.

use std::sync::Arc;

use ringfold_types::Rank;
use tokio::sync::mpsc;

use crate::judge::Complaint;
use crate::member::Command;
use crate::room::Room;

/// Ends a rank's membership from any thread, while another thread may wait in a call. Clones end
/// the same membership.
///
/// Every rank of the communicator, this one included, then gets [`Verdict::Aborted`], which names
/// this rank and its reason; calls that wait end with it. Where a failure was announced before,
/// that one stays. Once the rank has left, nothing happens.
///
/// [`Verdict::Aborted`]: crate::Verdict::Aborted
#[derive(Clone, Debug)]
pub struct Aborter {
    pub(crate) rank: Rank,
    pub(crate) way: Way,
}

/// How an aborter reaches the arbiter.
#[derive(Clone, Debug)]
pub(crate) enum Way {
    Local(Arc<Room>),
    Member(mpsc::UnboundedSender<Command>),
}

impl Aborter {
    /// Gives up, for a `reason` that every rank's error repeats, up to
    /// `limits::CAUSE_BYTES_MAX` bytes of it. Does not block.
    pub fn abort(&self, reason: impl Into<String>) {
        let complaint = Complaint::Abort { reason: reason.into() };
        match &self.way {
            Way::Local(room) => room.complain(self.rank, complaint),
            Way::Member(commands) => {
                if commands.send(Command::Complain(complaint)).is_err() {
                    tracing::debug!("rank {} has left and aborts no more", self.rank);
                }
            }
        }
    }
}
