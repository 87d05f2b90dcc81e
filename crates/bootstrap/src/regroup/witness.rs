//! The witness of a group: a third party that outlives ranks, and decides between two halves of
//! them by a vote of its own.
//!
//! `ringrun` is one, and so is the store of torchrun's agent. Both keep the first members that ask
//! for a group's vote, for ever. Each rank finds its witness by the variables of its launcher, and
//! tells the others a mark of it when it joins. The witness counts for a group whose ranks all have
//! the same mark, no matter how they have met.

use std::io;
use std::time::Duration;

use ringfold_types::Rank;
use tokio::time::timeout;

use crate::arbiter::failure_cause::RankList;
use crate::channel::blocking::blocking;
use crate::discover::identity::{Launcher, SecretSource};
use crate::discover::secret::Secret;
use crate::discover::torch_store::TorchStore;
use crate::discover::{discover, launcher};
use crate::rendezvous::sign::LauncherPlace;

/// A digest that only ranks with the same witness have. It reveals nothing.
pub(crate) type Mark = [u8; 16];

/// The witness of a rank.
#[derive(Clone, Debug)]
pub struct Witness {
    party: Party,
    mark: Mark,
}

#[derive(Clone, Debug)]
enum Party {
    Ringrun(LauncherPlace),
    /// torchrun's store, and the secret of the job there.
    Store(TorchStore, Secret),
}

impl Witness {
    /// The witness of this process, by the variables of its launcher. `None` if the launcher has
    /// none, or does not answer. torchrun's store is none if the user has given the job a secret:
    /// such ranks keep away from the store. Blocks for at most `limit`.
    pub fn find(variable: &dyn Fn(&str) -> Option<String>, limit: Duration) -> Option<Self> {
        let (party, secret, job) = match launcher(variable)? {
            Launcher::Ringrun => {
                let mut identity = discover(variable).ok()?;
                let secret = identity.secret(variable, limit).ok()?;
                let place = LauncherPlace::of(&identity, secret.clone())?;
                (Party::Ringrun(place), secret, identity.job)
            }
            Launcher::Torchrun if matches!(Secret::given(variable), Ok(None)) => {
                let identity = discover(variable).ok()?;
                let SecretSource::TorchStore(store) = identity.secret_source else { return None };
                let shared = store.share_secret(limit).inspect_err(|e| {
                    tracing::warn!("torchrun's store has no vote after a failure: {e}");
                });
                let secret = shared.ok()?;
                (Party::Store(store, secret.clone()), secret, identity.job)
            }
            // To ask another launcher may begin a session with it.
            _ => return None,
        };
        let mark = secret.derive(&["witness", &job]);
        Some(Self { party, mark: std::array::from_fn(|at| mark[at]) })
    }

    pub(crate) const fn mark(&self) -> Mark {
        self.mark
    }

    /// Asks for the vote for these members of the group of this secret and these ports, which are
    /// its own also where several groups have the secret of the job. The witness learns neither the
    /// secret nor the members: it compares. Waits for at most `limit`.
    pub(super) async fn votes_for(
        self,
        members: Vec<u32>,
        (secret, ports): (Secret, Vec<u16>),
        limit: Duration,
    ) -> (Vec<u32>, bool) {
        let list = RankList(&members.iter().copied().map(Rank).collect::<Vec<_>>()).to_string();
        let group = secret.derive(&["group", &format!("{ports:?}")]);
        let digests = [group, secret.derive(&["members", &list])];
        let answer = match self.party {
            Party::Ringrun(place) => place.vote(digests, limit).await,
            Party::Store(store, job) => {
                let asked = blocking(move || store.vote(&job, digests, limit));
                let late = |_| Err(io::ErrorKind::TimedOut.into());
                let answer = timeout(limit, asked).await.unwrap_or_else(late);
                answer.flatten().map_err(|e| e.to_string())
            }
        };
        let is_given = answer.unwrap_or_else(|cause| {
            tracing::warn!("the witness gives no vote: {cause}");
            false
        });
        (members, is_given)
    }
}
