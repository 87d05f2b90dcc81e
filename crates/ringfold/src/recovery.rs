//! Communicators of the ranks that survive a failure.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use ringfold_bootstrap::{
    ExchangeError, FailureCause, JoinError, Parent, RegroupError, Regrouped, Wish,
};
use ringfold_types::Rank;

use crate::communicator::Communicator;
use crate::error::Error;
use crate::lineage::Lineage;
use crate::setup::{InitError, Joined, Meeting, Origin, Parts, join_group};

/// The pause before another attempt.
const PAUSE: Duration = Duration::from_millis(20);

/// The time between two looks for the parts of a thread's new communicator.
const LOOK: Duration = Duration::from_millis(1);

impl Communicator {
    /// Makes a communicator of the ranks that survive a failure, in their old order. `ULFM` calls
    /// this `MPI_Comm_shrink`, and NCCL `ncclCommShrink`.
    ///
    /// Every survivor must call it. It may be called after a failure or without one, and once for a
    /// communicator. Ranks whose processes have ended, and stopped or disconnected ranks, need not
    /// cooperate: they are left out. Blocks until the survivors have joined. It waits for ranks
    /// that compute, for at most [`Config::join_timeout`](crate::Config::join_timeout), and then
    /// leaves them out. If another rank fails meanwhile, the others begin again without it. Rank 0
    /// may be among the dead.
    ///
    /// A new communicator needs more than half of the ranks, half of them and the vote of `ringrun`
    /// or torchrun's store, or the certain end of all others. So there are never two, also if the
    /// network parts. It has a key of its own, which ranks that were left out do not know.
    /// Everything else is as for [`split`](Self::split). The old communicator stays as it is; drop
    /// it to free its memory and connections.
    ///
    /// # Errors
    /// [`Error::Regroup`] if too few ranks come, or the others have left this one out;
    /// [`Error::Group`] if the survivors cannot join; [`Error::Forked`] in a child process.
    ///
    /// ```
    /// use ringfold::{ReduceOp, local};
    ///
    /// let sums = local::run(4, |comm| {
    ///     if comm.rank().0 == 0 {
    ///         comm.abort("simulated failure");
    ///     }
    ///     assert!(comm.barrier().is_err());
    ///     let mut survivors = comm.shrink().unwrap();
    ///     let mut sum = [1];
    ///     survivors.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
    ///     sum[0]
    /// })?;
    /// assert_eq!(sums, [4, 4, 4, 4]);
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn shrink(&mut self) -> Result<Self, Error> {
        self.shrink_without(&[])
    }

    /// Makes a communicator of all ranks but these, as [`shrink`](Self::shrink) does. All members
    /// must name the same ranks. The ranks that are left out need not call it: they learn of it
    /// when they call `shrink`.
    ///
    /// # Errors
    /// [`Error::Argument`] if a rank is not below the size, or is this rank. Otherwise as for
    /// [`shrink`](Self::shrink).
    pub fn shrink_without(&mut self, ranks: &[Rank]) -> Result<Self, Error> {
        self.check_process()?;
        let (own, size) = (self.rank(), self.size());
        if let Some(rank) = ranks.iter().find(|rank| rank.index() >= size || **rank == own) {
            let what = format!("rank {rank} is this rank, or not below {size}");
            return Err(Error::Argument { rank: own, call: "shrink", what });
        }
        let until = Instant::now() + self.config().join_timeout;
        let mut doubtful = None;
        loop {
            let (members, parts) = self.regroup(ranks, &mut doubtful)?;
            let name: Arc<str> = self.next_name().into();
            let error = match parts {
                Ok(parts) => return self.succeed(name, parts, &members),
                Err(error) => error,
            };
            if !may_pass(&error) || Instant::now() >= until {
                let error = Error::Group { rank: own, group: name, source: Arc::new(error) };
                tracing::error!("{error:?}");
                return Err(error);
            }
            tracing::warn!("rank {own} regroups again: {error}");
            sleep(PAUSE);
        }
    }

    /// Agrees with the other ranks on the bitwise and of their flags, as `MPI_Comm_agree` of `ULFM`
    /// does. Works without a failure, after one, and after [`revoke`](Self::revoke), and absorbs
    /// failures of ranks meanwhile.
    ///
    /// Every rank that lives must call it, equally often. All ranks that return a value return the
    /// same one, which has only bits that all their flags have. The flag of a rank that has died
    /// during the call may count or not, for all alike. Blocks until the value is known. It waits
    /// for ranks that compute, for at most [`Config::join_timeout`](crate::Config::join_timeout),
    /// and then goes on without them. More than half of the ranks must come, or half of them with
    /// the vote of `ringrun` or torchrun's store, or all others must have ended for certain. After
    /// an error the rank may call it again.
    ///
    /// # Errors
    /// [`Error::Regroup`] if too few ranks come, or the others have agreed without the flag of this
    /// one; [`Error::Forked`] in a child process.
    ///
    /// ```
    /// use ringfold::local;
    ///
    /// let all_done = local::run(3, |comm| {
    ///     let is_done = comm.rank().0 != 1;
    ///     comm.agree(u64::from(is_done)).unwrap()
    /// })?;
    /// assert_eq!(all_done, [0, 0, 0]);
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn agree(&mut self, flag: u64) -> Result<u64, Error> {
        self.check_process()?;
        let wish = self.wish(&[], None, None);
        let agreed = self.engine()?.health.watch().agree(wish, flag);
        agreed.map_err(|source| self.cannot_regroup(source))
    }

    fn wish(&self, without: &[Rank], address: Option<SocketAddr>, doubtful: Option<u128>) -> Wish {
        Wish {
            without: without.to_vec(),
            suspects: self.aborter().failure_cause().map_or_else(Vec::new, |it| suspects(&it)),
            address,
            timeout: self.config().join_timeout,
            doubtful,
        }
    }

    fn cannot_regroup(&self, source: RegroupError) -> Error {
        let (rank, group) = (self.rank(), self.group_name().map(Arc::from));
        let error = Error::Regroup { rank, group, source: Arc::new(source) };
        tracing::error!("{error:?}");
        error
    }

    /// How often the ranks have shrunk or grown, from the first communicator on. It is above 0 in
    /// the first communicator of a process that has joined a running job.
    #[must_use]
    pub const fn epoch(&self) -> u64 {
        self.lineage.epoch
    }

    /// The rank that `rank` had in the communicator from which [`shrink`](Self::shrink) made this
    /// one. `rank` itself if this communicator was not made by it: a rank that grows keeps its
    /// number.
    #[must_use]
    pub fn former_rank(&self, rank: Rank) -> Rank {
        self.origin_of(rank).0
    }

    /// The lasting identity of `rank`: its rank in the first communicator, also after several
    /// failures and in groups. A newcomer has a new number, which no rank had before.
    #[must_use]
    pub fn identity(&self, rank: Rank) -> Rank {
        self.origin_of(rank).1
    }

    /// The ranks that have caused the failure, in ascending order, as far as the cause tells. Empty
    /// without a failure, and after [`revoke`](Self::revoke). Does not block.
    #[must_use]
    pub fn failed_ranks(&self) -> Vec<Rank> {
        self.aborter().failed_ranks()
    }

    fn origin_of(&self, rank: Rank) -> (Rank, Rank) {
        let former = self.lineage.former.as_ref().and_then(|all| all.get(rank.index()));
        former.copied().unwrap_or((rank, rank))
    }

    /// Gives a group of these `members` their identities.
    pub(crate) fn inherit(&self, child: &mut Self, members: &[usize]) {
        let identities = members.iter().copied().enumerate();
        let former = identities.map(|(at, rank)| (Rank::at(at), self.identity(Rank::at(rank))));
        child.lineage.former = Some(former.collect());
        child.lineage.epoch = self.lineage.epoch;
        child.lineage.next = Some(self.next_identity());
    }

    /// The lasting identity of the next newcomer.
    pub(crate) fn next_identity(&self) -> u32 {
        self.lineage.next.unwrap_or_else(|| Rank::at(self.size()).0)
    }

    /// The name of the next group of these ranks, as in `split 1 color 0 / epoch 2`.
    pub(crate) fn next_name(&self) -> String {
        let epoch = self.lineage.epoch + 1;
        let name = self.group_name().unwrap_or_default();
        let base = match name.rsplit_once("epoch ") {
            Some((base, last)) if last.bytes().all(|byte| byte.is_ascii_digit()) => base.to_owned(),
            _ if name.is_empty() => String::new(),
            _ => format!("{name} / "),
        };
        format!("{base}epoch {epoch}")
    }

    /// Makes the communicator of the members.
    fn succeed(&mut self, name: Arc<str>, parts: Parts, members: &[Rank]) -> Result<Self, Error> {
        let doorkeeper = self.engine()?.health.watch().doorkeeper();
        let mut next = self.child(name, parts)?;
        let former = members.iter().map(|rank| (*rank, self.identity(*rank)));
        next.lineage = Lineage {
            epoch: self.lineage.epoch + 1,
            former: Some(former.collect()),
            next: Some(self.next_identity()),
            doorkeeper: Some(doorkeeper),
        };
        Ok(next)
    }

    /// Agrees on the members of the next communicator, and joins them. Leaves the communicator of
    /// which this rank is in doubt, and returns it in a later call if it has formed.
    fn regroup(
        &mut self,
        ranks: &[Rank],
        doubtful: &mut Option<Doubtful>,
    ) -> Result<(Vec<Rank>, Result<Parts, InitError>), Error> {
        let origin = self.origin().clone();
        let listener = match origin.open_listener(self.layout()) {
            Ok(listener) => listener,
            Err(error) => return Ok((Vec::new(), Err(error))),
        };
        let address = listener.as_ref().map(|it| it.address.socket);
        let wish = self.wish(ranks, address, doubtful.as_ref().map(|it| it.nonce));
        let regrouped = self.engine()?.health.watch().regroup(wish);
        let regrouped = regrouped.map_err(|source| self.cannot_regroup(source))?;
        let doubted = doubtful.take();
        let Some(regrouped) = regrouped else {
            let Some(formed) = doubted else { unreachable!("this rank was in doubt") };
            return Ok((formed.members, Ok(formed.parts)));
        };
        drop(doubted);
        let members = regrouped.members.clone();
        let until = Instant::now() + self.config().join_timeout;
        let place = members.iter().position(|rank| *rank == self.rank());
        let Some(place) = place else { unreachable!("this rank is a member") };
        let parts = match &origin {
            Origin::Alone => Parts::alone(),
            Origin::Threads(groups) => {
                // No group of `split` has this number.
                let id = (u64::MAX, self.lineage.epoch);
                let left = if place == 0 { groups.leave(id, members.len()) } else { Ok(()) };
                left.and_then(|()| {
                    loop {
                        match groups.take(id, place) {
                            Err(_) if place > 0 && Instant::now() < until => sleep(LOOK),
                            taken => break taken,
                        }
                    }
                })
            }
            Origin::Joined(joined) => {
                let listener = listener.filter(|_| place == 0).map(|it| it.socket);
                self.join_survivors(joined, regrouped, (Rank::at(place), listener), doubtful)
            }
        };
        Ok((members, parts))
    }

    /// Joins the survivors, as `rank` of their communicator. The first one has the `listener`.
    /// Leaves the communicator in `doubtful` where this rank does not learn that all have joined.
    fn join_survivors(
        &self,
        joined: &Joined,
        regrouped: Regrouped,
        (rank, listener): (Rank, Option<TcpListener>),
        doubtful: &mut Option<Doubtful>,
    ) -> Result<Parts, InitError> {
        let Regrouped { members, address, nonce, seat } = regrouped;
        let Some(seat) = seat else { unreachable!("processes have seats") };
        let parts = if members.len() == 1 {
            Parts::alone()?
        } else {
            let address = address.ok_or(InitError::GroupWithoutPort { rank: members[0] })?;
            let epoch = (self.lineage.epoch + 1).to_string();
            let meeting = Meeting {
                place: (rank, members.len()),
                name: self.next_name(),
                labels: ["epoch".to_owned(), epoch, format!("{nonce:x}")],
                address,
                listener,
                parent: Parent::Seat(Arc::clone(&seat)),
            };
            join_group(self.config(), joined, meeting)?
        };
        // No member goes on before all have joined.
        if let Err(source) = parts.control.exchange(Vec::new(), self.config().join_timeout) {
            seat.leave();
            *doubtful = Some(Doubtful { members, nonce, parts });
            return Err(match source {
                ExchangeError::Failed(cause) => InitError::Failed { rank, cause },
                source => InitError::Exchange { rank, source },
            });
        }
        seat.joined();
        Ok(parts)
    }
}

/// A communicator that this rank has joined without learning that all members have.
struct Doubtful {
    members: Vec<Rank>,
    nonce: u128,
    parts: Parts,
}

/// The ranks that do not answer any more, by this cause.
fn suspects(cause: &FailureCause) -> Vec<Rank> {
    match cause {
        FailureCause::Died { .. } | FailureCause::Silent { .. } | FailureCause::Left { .. } => {
            cause.culprits()
        }
        _ => Vec::new(),
    }
}

/// Whether the error is the failure of another member, so that the others may join without it.
pub(crate) const fn may_pass(error: &InitError) -> bool {
    match error {
        InitError::Failed { .. } | InitError::Exchange { .. } => true,
        InitError::Join(error) => matches!(
            error,
            JoinError::SeatLeft { .. }
                | JoinError::Failed { .. }
                | JoinError::CoordinatorLost { .. }
                | JoinError::NoCoordinator { .. }
                | JoinError::Lost { .. }
                | JoinError::Missing { .. }
                | JoinError::Peer { .. }
        ),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::thread;

    use ringfold_harness::TorchStore;

    use super::*;
    use crate::config::Config;
    use crate::local::run_with;
    use crate::unique_id::UniqueId;

    fn config() -> Config {
        Config { join_timeout: Duration::from_millis(300), ..Config::default() }
    }

    /// The size of the communicator that a rank gets, or whether it is left out.
    fn outcome(shrunk: Result<Communicator, Error>) -> Result<usize, String> {
        match shrunk {
            Ok(mut survivors) => survivors.barrier().map(|()| survivors.size()),
            Err(error) => Err(error),
        }
        .map_err(|error| format!("{error:?}"))
    }

    #[test]
    fn threads_leave_out_the_late_one() {
        let outcomes = run_with(&config(), 3, |comm| {
            if comm.rank() == Rank(2) {
                sleep(Duration::from_secs(1));
            }
            outcome(comm.shrink())
        });
        let [one, two, late] = &outcomes.unwrap()[..] else { panic!("three ranks") };
        assert_eq!((one, two), (&Ok(2), &Ok(2)));
        assert!(late.as_ref().unwrap_err().contains("without this one"), "{late:?}");
    }

    #[test]
    fn a_thread_that_is_left_out_may_ask() {
        let outcomes = run_with(&config(), 3, |comm| match comm.rank() {
            Rank(0) => outcome(comm.shrink()),
            _ => outcome(comm.shrink_without(&[Rank(0)])),
        });
        let [out, one, two] = &outcomes.unwrap()[..] else { panic!("three ranks") };
        assert_eq!((one, two), (&Ok(2), &Ok(2)));
        assert!(out.as_ref().unwrap_err().contains("without this one"), "{out:?}");
    }

    /// Ranks 2 and 3 of four that met by an id go on, where all have the same witness.
    #[test]
    fn half_of_a_group_by_id_have_the_vote_of_the_store_of_all() {
        let (common, other) = (TorchStore::start(), TorchStore::start());
        for (store_of_3, expected) in
            [(Some(&common), Ok(2)), (Some(&other), Err(())), (None, Err(()))]
        {
            let config = |rank: u32| {
                let store = if rank == 3 { store_of_3 } else { Some(&common) };
                let variables = store.into_iter().flat_map(TorchStore::variables);
                let own = [("RANK", rank.to_string()), ("WORLD_SIZE", "4".to_owned())];
                let all = variables.chain(own).map(|(name, value)| (name.to_owned(), value));
                let environment = all.collect();
                Config { join_timeout: Duration::from_secs(20), environment, ..Config::default() }
            };
            let (id, joined) = (UniqueId::new(&config(0)).unwrap(), Barrier::new(4));
            let outcomes = thread::scope(|scope| {
                let run = |rank| {
                    let (config, id, joined) = (config(rank), &id, &joined);
                    move || {
                        let comm = Communicator::init_with_id(&config, id, Rank(rank), 4);
                        let mut comm = comm.unwrap();
                        joined.wait();
                        comm.abort("a test");
                        (rank > 1).then(|| outcome(comm.shrink()))
                    }
                };
                let ranks: Vec<_> = (0..4).map(|rank| scope.spawn(run(rank))).collect();
                ranks.into_iter().filter_map(|it| it.join().unwrap()).collect::<Vec<_>>()
            });
            for outcome in outcomes {
                match expected {
                    Ok(size) => assert_eq!(outcome, Ok(size)),
                    Err(()) => {
                        let error = outcome.unwrap_err();
                        assert!(error.contains("2 of 4 ranks have come"), "{error}");
                    }
                }
            }
        }
    }

    #[test]
    fn names_count_the_epochs_and_identities_last() {
        let names = run_with(&config(), 4, |comm| {
            let mut pair = comm.split(Some(comm.rank().0 / 2), 0).unwrap().unwrap();
            let mut next = pair.shrink().unwrap();
            let last = next.shrink().unwrap();
            assert_eq!((last.epoch(), last.former_rank(Rank(1))), (2, Rank(1)));
            (last.group_name().unwrap().to_owned(), last.identity(Rank(1)).0)
        });
        let name = |color| format!("split 1 color {color} / epoch 2");
        let expected = [(name(0), 1), (name(0), 1), (name(1), 3), (name(1), 3)];
        assert_eq!(names.unwrap(), expected);
    }
}
