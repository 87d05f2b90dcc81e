//! The exchange of rails, with which two ranks begin.

use ringfold_types::Rank;

use super::own::Own;
use crate::rdma::budget::Share;
use crate::rdma::card::RailCard;
use crate::rdma::message::Message;
use crate::rdma::pairing;

/// The progress of the exchange, and this rank's share for its peer.
#[derive(Debug)]
pub(super) struct Greeting {
    progress: Progress,
    /// This rank's share of devices and memory for the peer, or the reason why there is none.
    share: Result<Share, String>,
    /// The rails that the peer was told of, each with its card at that time.
    announced: Vec<(usize, RailCard)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// Neither rank has sent anything.
    Silent,
    /// This rank has told its rails.
    Greeted,
    /// Both ranks have told their rails, and paths were made of them.
    Met,
}

impl Default for Greeting {
    fn default() -> Self {
        Self { progress: Progress::Silent, share: Ok(Share::default()), announced: Vec::new() }
    }
}

impl Greeting {
    /// Takes a share for the peer, and returns the message that tells it of our rails, unless it
    /// was told before.
    pub(super) fn greet(&mut self, peer: Rank, own: &mut Own<'_>) -> Option<Message> {
        if self.progress != Progress::Silent {
            return None;
        }
        self.progress = Progress::Greeted;
        let cards = own.rails.cards();
        let pairs = pairing::most(&cards);
        let each = own.settings.queue_pairs.max(own.rails.flows());
        self.share = own.budget.share(peer, pairs, each);
        let Share { rails: some, each: queue_pairs } = self.share();
        self.announced = pairing::announced(cards, some);
        let rails = self.announced.iter().map(|(_, card)| *card).collect();
        Some(Message::Rails { rails, queue_pairs })
    }

    /// Takes the rails that the peer was told of, now that it has told its own. Returns nothing if
    /// it told them before.
    pub(super) fn meet(&mut self) -> Option<Vec<(usize, RailCard)>> {
        if self.progress != Progress::Greeted {
            return None;
        }
        self.progress = Progress::Met;
        Some(std::mem::take(&mut self.announced))
    }

    pub(super) fn has_met(&self) -> bool {
        self.progress == Progress::Met
    }

    /// Returns whether the peer's rails are awaited.
    pub(super) fn waits(&self) -> bool {
        self.progress == Progress::Greeted
    }

    /// The share for the peer.
    pub(super) fn share(&self) -> Share {
        self.share.as_ref().copied().unwrap_or_default()
    }

    /// The reason for no share for the peer.
    pub(super) fn why_none(&self) -> Option<&str> {
        self.share.as_ref().err().map(String::as_str)
    }
}
