//! Newcomers that join the ranks of a running job.
//!
//! Rank 0 opens a door, and newcomers knock there. When enough wait, rank 0 tells the members over
//! the control plane, and all join a larger group. The members then agree whether all have joined.
//! Only if so they welcome the newcomers, and go on in the larger group.

use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use ringfold_bootstrap::{
    Admission, Door, DoorSign, ExchangeError, ParentGroup, Secret, knock, listen_at,
    show_connections,
};
use ringfold_transport::close_in_children;
use ringfold_types::{Chain, Rank, limits};
use serde::{Deserialize, Serialize};

use crate::communicator::Communicator;
use crate::config::Config;
use crate::error::Error;
use crate::launcher::launcher;
use crate::lineage::Lineage;
use crate::recovery::may_pass;
use crate::setup::{InitError, Parts, join_by_id};
use crate::unique_id::{InvalidUniqueId, UniqueId};

/// The least time in which admitted newcomers and members join.
const JOIN_MIN: Duration = Duration::from_secs(10);

/// How much longer the members wait for each other than for newcomers.
const SLACK: Duration = Duration::from_secs(10);

/// The pause before a newcomer knocks again.
const PAUSE: Duration = Duration::from_millis(20);

/// Bytes of the reason why a rank cannot join.
const REASON_BYTES_MAX: usize = 500;

/// The decision of rank 0.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Plan {
    /// No newcomer has come.
    Stay,
    /// All join a larger group.
    Grow(Admission),
    /// There is no door.
    Fail(String),
}

/// The lineage of the larger group, for newcomers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Welcome {
    epoch: u64,
    next: u32,
    identities: Vec<u32>,
    name: String,
}

/// The door that rank 0 opens, and its address.
pub(crate) struct Entrance {
    pub(crate) door: Door,
    pub(crate) address: SocketAddr,
    /// The launcher shows the door while this exists.
    _sign: Option<DoorSign>,
}

impl Entrance {
    /// Opens the door of an id that this process has made.
    pub(crate) fn of(id: &UniqueId) -> Result<Self, String> {
        let unusable = "this process has not made the unique id, or has used it";
        let listener = id.take_listener().ok_or_else(|| unusable.to_owned())?;
        let door = Door::open(listener, id.secret().clone()).map_err(|e| e.to_string())?;
        Ok(Self { door, address: id.address(), _sign: None })
    }

    /// Opens a door that the launcher shows to newcomers.
    fn shown(config: &Config) -> Result<Self, String> {
        let id = UniqueId::new(config).map_err(|e| format!("{e:?}"))?;
        let launcher = launcher(config).map_err(|e| Chain(&e).to_string())?;
        let entrance = Self::of(&id)?;
        let sign = launcher.show(id.to_string(), config.join_timeout)?;
        Ok(Self { _sign: Some(sign), ..entrance })
    }
}

impl Communicator {
    /// Makes a communicator of these ranks and at most `newcomers` processes that join the running
    /// job. NCCL calls this `ncclCommGrow`. Old ranks keep their numbers, and newcomers follow.
    ///
    /// Every rank must call it, between the same two collectives. The numbers and the id of rank 0
    /// count. It makes the [`UniqueId`], passes its text to the newcomers by any means, and keeps
    /// the id until the call returns. Other ranks pass `None`. Each newcomer calls
    /// [`init_as_newcomer`](Self::init_as_newcomer) with the id.
    ///
    /// Blocks until all `newcomers` have joined, for at most
    /// [`Config::join_timeout`](crate::Config::join_timeout), and as long again for joining. Then
    /// the group grows by those that have come. Returns `None` on every rank if none has: the group
    /// stays as it is. This communicator remains usable either way; drop it to free its memory and
    /// connections. Everything else is as for [`split`](Self::split).
    ///
    /// # Errors
    /// [`Error::Failed`] if this communicator has failed, or fails meanwhile; [`Error::Group`] if
    /// rank 0 cannot open a port, or has no id of its own; [`Error::Forked`] in a child process.
    ///
    /// ```
    /// use ringfold::{Communicator, Config, Rank, ReduceOp, UniqueId, local};
    ///
    /// let config = Config::from_env()?;
    /// let id = UniqueId::new(&config)?;
    /// let text = id.to_string();
    /// let newcomer = std::thread::spawn(move || -> Result<(u32, u32), ringfold::Error> {
    ///     let mut comm = Communicator::init_as_newcomer(&config, &text.parse().unwrap())?;
    ///     let mut sum = [3];
    ///     comm.all_reduce(&mut sum, ReduceOp::Sum)?;
    ///     Ok((comm.rank().0, sum[0]))
    /// });
    /// let sums = local::run(2, |comm| {
    ///     let id = (comm.rank() == Rank(0)).then_some(&id);
    ///     let mut larger = comm.grow(1, id).unwrap().expect("one comes");
    ///     let mut sum = [larger.rank().0];
    ///     larger.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
    ///     sum[0]
    /// })?;
    /// assert_eq!((sums, newcomer.join().unwrap()?), (vec![4, 4], (2, 4)));
    /// # Ok::<(), ringfold::Error>(())
    /// ```
    pub fn grow(&mut self, newcomers: usize, id: Option<&UniqueId>) -> Result<Option<Self>, Error> {
        self.check_process()?;
        let entrance = (self.rank() == Rank(0)).then(|| {
            let id = id.ok_or_else(|| "rank 0 must pass a unique id".to_owned())?;
            Entrance::of(id)
        });
        self.grow_through(newcomers, entrance, self.config().join_timeout)
    }

    /// Waits for the processes that `ringrun --restart` starts in place of dead ranks, and makes a
    /// communicator with them, as [`grow`](Self::grow) does. Every rank must call it, usually after
    /// [`shrink`](Self::shrink). Blocks until the job has as many ranks as at its start, for at
    /// most `timeout`, and as long again for joining. Then the group grows by those that have come.
    /// Returns `None` on every rank if none has: the group stays as it is.
    ///
    /// In the new process, [`init`](Self::init) joins that communicator.
    ///
    /// # Errors
    /// As for [`grow`](Self::grow). [`Error::Group`] also if `ringrun` has not started rank 0.
    pub fn wait_for_replacement(&mut self, timeout: Duration) -> Result<Option<Self>, Error> {
        self.check_process()?;
        let timeout = limits::timeout(timeout);
        let missing = self.config().started_ranks().saturating_sub(self.size());
        let entrance = (self.rank() == Rank(0)).then(|| Entrance::shown(self.config()));
        self.grow_through(missing, entrance, timeout)
    }

    /// Joins the newest group of a job, in a process that `ringrun` has started in place of a dead
    /// rank. Blocks until the group admits this process, for at most the timeout of joining.
    pub(crate) fn init_as_replacement(config: &Arc<Config>) -> Result<Self, Error> {
        let launcher = launcher(config)?;
        let until = Instant::now() + config.join_timeout;
        loop {
            let rest = until.saturating_duration_since(Instant::now());
            let door = launcher.seek(rest).map_err(|reason| InitError::NoDoor { reason })?;
            let id: UniqueId = door.parse().map_err(|error: InvalidUniqueId| {
                InitError::NoDoor { reason: error.to_string() }
            })?;
            let rest = until.saturating_duration_since(Instant::now());
            let entered = knock(id.address(), id.secret(), rest, true)
                .map_err(|error| Error::from(InitError::from(error)))
                .and_then(|admission| Self::enter_as_newcomer(config, admission));
            match entered {
                Err(Error::Init(error)) if Instant::now() < until && is_passing(&error) => {
                    tracing::warn!("this newcomer asks for a door again: {error}");
                    sleep(PAUSE);
                }
                entered => return entered,
            }
        }
    }

    /// Joins the ranks of a running job, which call [`grow`](Self::grow) with this `id`. Blocks
    /// until they admit this process, for at most
    /// [`Config::join_timeout`](crate::Config::join_timeout). Rank 0 of the communicator is never a
    /// newcomer, so it can broadcast the state of the job to newcomers.
    ///
    /// # Errors
    /// [`Error::Init`] if the ranks do not admit this process in time, or have another secret.
    pub fn init_as_newcomer(config: &Config, id: &UniqueId) -> Result<Self, Error> {
        show_connections(close_in_children);
        let config = config.bounded();
        let until = Instant::now() + config.join_timeout;
        loop {
            let rest = until.saturating_duration_since(Instant::now());
            let admission =
                knock(id.address(), id.secret(), rest, false).map_err(InitError::from)?;
            match Self::enter_as_newcomer(&config, admission) {
                Err(Error::Init(error)) if may_pass(&error) && Instant::now() < until => {
                    tracing::warn!("this newcomer knocks again: {error}");
                    sleep(PAUSE);
                }
                entered => return entered,
            }
        }
    }

    fn enter_as_newcomer(config: &Arc<Config>, admission: Admission) -> Result<Self, Error> {
        let rank = Rank(admission.rank);
        let parts = enter(config, admission, (None, None))?;
        let limit = config.join_timeout + SLACK;
        let all = parts.control.exchange(Vec::new(), limit).map_err(|source| match source {
            ExchangeError::Failed(cause) => InitError::Failed { rank, cause },
            source => InitError::Exchange { rank, source },
        })?;
        let welcome = all.first().and_then(|bytes| postcard::from_bytes::<Welcome>(bytes).ok());
        let is_whole = |it: &Welcome| it.identities.len() == admission.size as usize;
        let Welcome { epoch, next, identities, name } =
            welcome.filter(is_whole).ok_or(InitError::Growth)?;
        let mut comm = Self::new(config, parts);
        let former = (0..).map(Rank).zip(identities.into_iter().map(Rank)).collect();
        let (former, next, doorkeeper) = (Some(former), Some(next), None);
        comm.lineage = Lineage { epoch, former, next, doorkeeper };
        comm.name_group(name.into())?;
        Ok(comm)
    }

    /// Grows by at most `most` newcomers that knock within `limit`. Rank 0 has the entrance.
    pub(crate) fn grow_through(
        &mut self,
        most: usize,
        entrance: Option<Result<Entrance, String>>,
        limit: Duration,
    ) -> Result<Option<Self>, Error> {
        let until = Instant::now() + limit;
        loop {
            let mut listener = None;
            let plan = entrance.as_ref().map(|entrance| match entrance {
                Ok(entrance) => self.plan(entrance, most, until, &mut listener),
                Err(reason) => Plan::Fail(reason.clone()),
            });
            let bytes = plan.as_ref().and_then(|it| postcard::to_allocvec(it).ok());
            let all = self.exchange(bytes.unwrap_or_default(), limit + SLACK)?;
            let decoded = all.first().and_then(|bytes| postcard::from_bytes(bytes).ok());
            let is_larger = |it: &Admission| it.is_possible() && it.rank as usize == self.size();
            let admission = match decoded {
                Some(Plan::Stay) => return Ok(None),
                Some(Plan::Grow(admission)) if is_larger(&admission) => admission,
                Some(Plan::Fail(reason)) => {
                    return Err(self.cannot_grow(InitError::Door { reason }));
                }
                Some(Plan::Grow(_)) | None => return Err(self.cannot_grow(InitError::Growth)),
            };
            let rest = until.saturating_duration_since(Instant::now());
            let own = Admission { rank: self.rank().0, ..admission };
            let joined = self.enter_as_member(own, listener, rest);
            let mut said = String::new();
            if let Err(error) = &joined {
                said = Chain(error).to_string();
                said.truncate(said.floor_char_boundary(REASON_BYTES_MAX));
            }
            let all = self.exchange(said.into_bytes(), limit + SLACK)?;
            match joined {
                Ok(parts) if all.iter().all(Vec::is_empty) => {
                    return self.go_on(parts, admission).map(Some);
                }
                _ => {
                    let reason = all.iter().find(|it| !it.is_empty()).map(Vec::as_slice);
                    let reason = String::from_utf8_lossy(reason.unwrap_or_default());
                    tracing::warn!("rank {} waits for other newcomers: {reason}", self.rank());
                }
            }
        }
    }

    /// In rank 0: waits for newcomers, and admits them.
    fn plan(
        &self,
        entrance: &Entrance,
        most: usize,
        until: Instant,
        listener: &mut Option<TcpListener>,
    ) -> Plan {
        let Entrance { door, address, .. } = entrance;
        let rest = until.saturating_duration_since(Instant::now());
        let aborter = self.aborter();
        let count = door.wait(most, rest, || aborter.failure_cause().is_some());
        if count == 0 {
            return Plan::Stay;
        }
        let opened = listen_at(address.ip()).and_then(|socket| {
            let place = socket.local_addr()?;
            Ok((socket, place, Secret::generate()?.derive(&["door"])))
        });
        match opened {
            Ok((socket, address, key)) => {
                let rank = Rank::at(self.size()).0;
                let size = Rank::at(self.size() + count).0;
                let admission = Admission { rank, size, address, key };
                if !admission.is_possible() {
                    return Plan::Fail(format!("{size} ranks are too many"));
                }
                *listener = Some(socket);
                door.admit(count, admission);
                Plan::Grow(admission)
            }
            Err(error) => Plan::Fail(error.to_string()),
        }
    }

    /// Joins the larger group as an old rank.
    fn enter_as_member(
        &self,
        own: Admission,
        listener: Option<TcpListener>,
        rest: Duration,
    ) -> Result<Parts, InitError> {
        let join_timeout = self.config().join_timeout.min(rest.max(JOIN_MIN));
        let config = Config { join_timeout, ..self.config().clone() };
        let [group @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] =
            Secret::new(own.key).derive(&["nonce"]);
        let members = (0..self.size()).map(Rank::at).collect();
        let group = u128::from_le_bytes(group);
        let parent = ParentGroup { group, aborter: self.aborter(), members };
        enter(&config, own, (listener, Some(parent)))
    }

    /// Wraps the parts of the larger group, and welcomes the newcomers.
    fn go_on(&mut self, parts: Parts, first: Admission) -> Result<Self, Error> {
        let (epoch, next) = (self.lineage.epoch + 1, self.next_identity());
        let new = (first.rank..first.size).zip(next..);
        let old = (0..first.rank).map(Rank).map(|rank| (rank, self.identity(rank)));
        let former: Vec<(Rank, Rank)> =
            old.chain(new.map(|(rank, identity)| (Rank(rank), Rank(identity)))).collect();
        let next = next.saturating_add(first.size - first.rank);
        let identities = former.iter().map(|(_, identity)| identity.0).collect();
        let name = self.next_name();
        let welcome = Welcome { epoch, next, identities, name: name.clone() };
        let bytes = postcard::to_allocvec(&welcome).unwrap_or_default();
        let bytes = if self.rank() == Rank(0) { bytes } else { Vec::new() };
        // If a newcomer has just died, the first call of the larger group says so.
        if let Err(error) = parts.control.exchange(bytes, self.config().join_timeout) {
            tracing::warn!("the larger group has failed: {error}");
        }
        let doorkeeper = self.lineage.doorkeeper.clone();
        let mut larger = self.child(name.into(), parts)?;
        let former = Some(former.into());
        larger.lineage = Lineage { epoch, former, next: Some(next), doorkeeper };
        Ok(larger)
    }

    /// Exchanges bytes with all ranks over the control plane.
    fn exchange(&mut self, bytes: Vec<u8>, limit: Duration) -> Result<Vec<Vec<u8>>, Error> {
        let exchanged = self.engine()?.health.watch().exchange(bytes, limit);
        exchanged.or_else(|source| {
            if let ExchangeError::Failed(_) = source {
                // It returns the failure.
                self.barrier()?;
            }
            let rank = self.rank();
            Err(self.cannot_grow(InitError::Exchange { rank, source }))
        })
    }

    fn cannot_grow(&self, source: InitError) -> Error {
        let (rank, group) = (self.rank(), self.next_name().into());
        let error = Error::Group { rank, group, source: Arc::new(source) };
        tracing::error!("{error:?}");
        error
    }
}

/// Whether another door may open to a newcomer that has this error.
const fn is_passing(error: &InitError) -> bool {
    matches!(error, InitError::NotAdmitted(_)) || may_pass(error)
}

/// Joins the larger group. Rank 0 has the listener, and old ranks their group.
fn enter(
    config: &Config,
    admission: Admission,
    (listener, parent): (Option<TcpListener>, Option<ParentGroup>),
) -> Result<Parts, InitError> {
    let Admission { rank, size, address, key } = admission;
    let place = (Rank(rank), size as usize);
    join_by_id(config, (address, listener), Secret::new(key), place, parent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::run_with;
    use ringfold_types::ReduceOp;

    fn config() -> Config {
        Config { join_timeout: Duration::from_secs(20), ..Config::default() }
    }

    /// The sum of the identities of all ranks.
    fn sum(comm: &mut Communicator) -> u32 {
        let mut sum = [comm.identity(comm.rank()).0];
        comm.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
        sum[0]
    }

    #[test]
    fn a_group_shrinks_and_grows_in_turn() {
        let ids: Vec<UniqueId> = (0..2).map(|_| UniqueId::new(&config()).unwrap()).collect();
        let newcomer = |id: &UniqueId| {
            let id: UniqueId = id.to_string().parse().unwrap();
            std::thread::spawn(move || {
                let mut comm = Communicator::init_as_newcomer(&config(), &id).unwrap();
                let seen = (comm.rank().0, comm.epoch(), sum(&mut comm));
                (seen, comm.group_name().unwrap().to_owned())
            })
        };
        let newcomers: Vec<_> = ids.iter().map(newcomer).collect();
        let old = run_with(&config(), 3, |comm| {
            let given =
                |at: usize, comm: &Communicator| (comm.rank() == Rank(0)).then(|| ids[at].clone());
            let first = given(0, comm);
            let mut larger = comm.grow(1, first.as_ref()).unwrap().unwrap();
            let all = sum(&mut larger);
            // The newcomer ends, and the last old rank goes too.
            if larger.rank() == Rank(2) {
                return (all, 0);
            }
            let mut smaller = larger.shrink_without(&[Rank(2), Rank(3)]).unwrap();
            let second = given(1, &smaller);
            let mut last = smaller.grow(1, second.as_ref()).unwrap().unwrap();
            assert_eq!((last.epoch(), last.size(), last.identity(Rank(2)).0), (3, 3, 4));
            (all, sum(&mut last))
        });
        assert_eq!(old.unwrap(), [(6, 5), (6, 5), (6, 0)]);
        let seen: Vec<_> = newcomers.into_iter().map(|it| it.join().unwrap()).collect();
        assert_eq!(seen[0], ((3, 1, 6), "epoch 1".to_owned()));
        assert_eq!(seen[1], ((2, 3, 5), "epoch 3".to_owned()));
    }

    #[test]
    fn a_newcomer_that_never_comes_leaves_the_group_as_it_was() {
        let config = Config { join_timeout: Duration::from_millis(200), ..Config::default() };
        let id = UniqueId::new(&config).unwrap();
        let wrong = format!("ringfold-id-1/{}/{}", id.address(), "5e".repeat(32));
        let wrong: UniqueId = wrong.parse().unwrap();
        let sizes = run_with(&config, 2, |comm| {
            let own = (comm.rank() == Rank(0)).then_some(&id);
            assert!(comm.grow(1, own).unwrap().is_none());
            // The id is used now.
            let error = comm.grow(1, own).unwrap_err();
            assert!(format!("{error:?}").contains("has used it"), "{error:?}");
            comm.barrier().unwrap();
            comm.size()
        });
        assert_eq!(sizes.unwrap(), [2, 2]);
        assert!(matches!(Communicator::init_as_newcomer(&config, &wrong), Err(Error::Init(_))));
    }

    #[test]
    fn a_newcomer_with_another_secret_does_not_enter() {
        let config = Config { join_timeout: Duration::from_secs(1), ..Config::default() };
        let id = UniqueId::new(&config).unwrap();
        let wrong = format!("ringfold-id-1/{}/{}", id.address(), "5e".repeat(32));
        let wrong: UniqueId = wrong.parse().unwrap();
        let newcomer = std::thread::spawn({
            let config = config.clone();
            move || Communicator::init_as_newcomer(&config, &wrong).map(|comm| comm.size())
        });
        let grown = run_with(&config, 2, |comm| {
            let own = (comm.rank() == Rank(0)).then_some(&id);
            comm.grow(1, own).unwrap().is_some()
        });
        assert_eq!(grown.unwrap(), [false, false]);
        let error = newcomer.join().unwrap().unwrap_err();
        assert!(format!("{error:?}").contains("another secret"), "{error:?}");
    }

    #[test]
    fn a_failure_ends_the_wait_for_newcomers() {
        let id = UniqueId::new(&config()).unwrap();
        let began = Instant::now();
        let errors = run_with(&config(), 3, |comm| {
            if comm.rank() == Rank(2) {
                sleep(Duration::from_millis(100));
                comm.abort("simulated failure");
                return comm.barrier().is_err();
            }
            let own = (comm.rank() == Rank(0)).then_some(&id);
            matches!(comm.grow(1, own), Err(Error::Failed(_)))
        });
        assert_eq!(errors.unwrap(), [true, true, true]);
        assert!(began.elapsed() < config().join_timeout, "they waited for the newcomer");
    }
}
