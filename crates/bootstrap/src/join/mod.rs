//! Joining the other ranks: from an identity and a secret to a `Control` and the peer information
//! of all ranks.
//!
//! `joiner` has the options and the knowledge of a joining rank. `locate` finds the addresses where
//! the coordinator may listen, `dial` tries them, and `roster` gets the peer information. `error`
//! has the errors.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, OnceLock, mpsc as std_mpsc};
use std::time::Duration;

use ringfold_types::{Chain, Rank, limits};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tracing::instrument::WithSubscriber;

use crate::arbiter::call_log::CallLog;
use crate::arbiter::{FailureReport, cut};
use crate::channel::acceptor::{accept_any, helpers_of, turn};
use crate::channel::descriptors;
use crate::channel::frames::decode;
use crate::channel::greeting::Purpose;
use crate::channel::turned_away::TurnedAway;
use crate::control::local;
use crate::control::local_process::LocalProcess;
use crate::control::message::{
    FromCoordinator, JoinRequest, ProcessId, Refusal, ReturnTicket, ToCoordinator,
};
use crate::control::rank_state::RankState;
use crate::control::reconnect::{ReturnPath, ReturnPort};
use crate::control::runtime::ControlRuntime;
use crate::control::task::{Command, ControlStream, Incoming, TaskHandle, serve};
use crate::control::{Backend, Control};
use crate::coordinator::JoinQueue;
use crate::coordinator::state::Coordinator;
use crate::discover::address;
use crate::discover::identity::{Identity, Rendezvous};
use crate::discover::secret::Secret;
use crate::record::GroupFacts;
use crate::regroup::witness::Witness;
use dial::Dial;

mod dial;
pub(crate) mod error;
pub(crate) mod joiner;
mod locate;
mod roster;

use error::JoinError;
use joiner::{Candidates, EXTRA_WAIT, Joiner, Options, Parent, PeerInfos};

const PEERS_WAITING_MAX: usize = 64;
/// How long a rank whose connection ended tries to join again, while others are missing.
const REJOIN: Duration = Duration::from_millis(2 * limits::RETURN_MS);
/// The pause before a rank joins again.
const RETRY_PAUSE: Duration = Duration::from_millis(20);

impl Control {
    /// Joins the other ranks. `peer_info` describes this rank to the others (addresses, host,
    /// version). Returns the peer information of all ranks, in rank order. All ranks must call it.
    /// Blocks until all have, or until `options.timeout` is over.
    ///
    /// # Errors
    /// See `JoinError`. Every rank gets the error within the timeout and a few seconds.
    pub fn join(
        identity: Identity,
        secret: Secret,
        peer_info: Vec<u8>,
        options: Options,
    ) -> Result<(Self, PeerInfos), JoinError> {
        if peer_info.len() > limits::PEER_INFO_BYTES_MAX {
            return Err(JoinError::PeerInfoTooLong { bytes: peer_info.len() });
        }
        let (rank, parent) = (identity.rank, options.parent.clone());
        let joined = Self::join_with(identity, secret, Ok(peer_info), options);
        // The coordinator tells the others of everything else.
        if let (Err(e), Some(parent)) = (&joined, parent)
            && match e {
                JoinError::System { .. }
                | JoinError::Descriptors { .. }
                | JoinError::Listen { .. } => true,
                JoinError::ParentLeft { .. } => rank == Rank(0),
                _ => false,
            }
        {
            parent.fail(rank, Chain(e).to_string());
        }
        joined
    }

    /// Tells the other ranks that this one cannot join, and the reason, so that they do not wait
    /// for it. Blocks until they know, for at most `limits::JOIN_NEWS_MS`.
    pub fn cannot_join(identity: Identity, secret: Secret, reason: String, options: Options) {
        let (rank, reason) = (identity.rank, cut(reason));
        if let Some(parent) = options.parent {
            return parent.fail(rank, reason);
        }
        let timeout = options.timeout.min(Duration::from_millis(limits::JOIN_NEWS_MS));
        let told = Self::join_with(identity, secret, Err(reason), Options { timeout, ..options });
        if let Err(e) = told {
            tracing::debug!("rank {rank} told the others that it cannot join: {e}");
        }
    }

    fn join_with(
        identity: Identity,
        secret: Secret,
        peer_info: Result<Vec<u8>, String>,
        options: Options,
    ) -> Result<(Self, PeerInfos), JoinError> {
        let (rank, size) = (identity.rank, identity.size);
        if rank.index() >= size || size > limits::RANKS_MAX {
            return Err(JoinError::Invalid { rank, size });
        }
        let system = |action| move |source| JoinError::System { rank, action, source };
        if let Rendezvous::Alone = identity.rendezvous {
            let alone = local::controls(1).map_err(system("make an eventfd"))?.pop();
            let all = vec![peer_info.unwrap_or_default()];
            return alone.map(|c| (c, all)).ok_or(JoinError::Invalid { rank, size });
        }
        let [id @ .., _, _, _, _, _, _, _, _, _, _, _, _, _, _, _, _] =
            secret.derive(&["record", &identity.job]);
        let facts = GroupFacts {
            id: u128::from_le_bytes(id),
            rank: rank.0.into(),
            size: size as u64,
            name: &identity.job,
        };
        let calls = CallLog::recorded(facts);
        let (state, wake) = RankState::new(calls).map_err(system("make an eventfd"))?;
        let runtime = ControlRuntime::shared().map_err(system("start the control thread"))?;
        let (member, orders) = TaskHandle::new(Arc::clone(&runtime));
        let commands = member.commands();
        let (tell, told) = std_mpsc::sync_channel(1);
        let deadline = Instant::now() + limits::timeout(options.timeout);
        let (job, coordinator, meeting) = (identity.job, JoinSet::new(), OnceLock::new());
        let parent = options.parent.clone();
        let mut joiner = Joiner {
            rank,
            size,
            job,
            secret,
            options,
            deadline,
            state: Arc::clone(&state),
            coordinator,
            relay: None,
            reached: None,
            meeting,
        };
        let (ours, rendezvous) = (Arc::clone(&state), identity.rendezvous);
        // A thread-local log subscriber of the caller must receive the events of joining, too.
        let log = tracing::dispatcher::get_default(Clone::clone);
        runtime.spawn(async move {
            let joined = tokio::select! {
                // Members may leave the parent group as soon as all have joined.
                biased;
                joined = joiner.join_job(rendezvous, peer_info).with_subscriber(log) => joined,
                error = failure_of(parent, rank) => {
                    // Each of the others learns of it by the parent group too.
                    joiner.coordinator.abort_all();
                    Err(error)
                }
            };
            let told = match joined {
                Ok((stream, peer_infos)) => {
                    let told = tell.send(Ok((peer_infos, joiner.meeting.take().flatten())));
                    let _watching = watch_seats(joiner.options.parent.take(), commands);
                    let branch = joiner.branch();
                    serve(rank, ours, stream, orders, joiner.coordinator, branch).await;
                    told
                }
                Err(e) => {
                    // The others learn of it before this process may end.
                    joiner.coordinator.join_next().await;
                    tell.send(Err(e))
                }
            };
            told.unwrap_or_default();
        });
        let died = |_| io::Error::other("the control task ended early");
        let (peer_infos, meeting) = told.recv().map_err(died).map_err(system("join"))??;
        let control = Self::new(rank, size, (state, wake), Backend::Task(member));
        Ok((control.meeting_at(meeting), peer_infos))
    }
}

/// Fails the group that is made if one of its members gives up its seat or keeps silent, before all
/// have joined. The watch ends with the set.
fn watch_seats(parent: Option<Parent>, commands: mpsc::UnboundedSender<Command>) -> JoinSet<()> {
    let mut watching = JoinSet::new();
    if let Some(Parent::Seat(seat)) = parent {
        watching.spawn(async move {
            if let Some(member) = seat.failure().await {
                let reason = format!("rank {member} of the old group gave up or is silent");
                let report = Command::Report(FailureReport::Abort { reason });
                commands.send(report).unwrap_or_default();
            }
        });
    }
    watching
}

/// Waits until a member has failed in the parent group or left it, if there is one, or cannot join
/// this one.
async fn failure_of(parent: Option<Parent>, rank: Rank) -> JoinError {
    match parent {
        Some(parent) => parent.failure(rank).await,
        None => std::future::pending().await,
    }
}

impl Joiner {
    async fn join_job(
        &mut self,
        rendezvous: Rendezvous,
        peer_info: Result<Vec<u8>, String>,
    ) -> Result<(ControlStream, PeerInfos), JoinError> {
        let host = self.options.host.clone();
        let host = host.unwrap_or_else(address::host_name);
        let mut process = ProcessId::default();
        getrandom::fill(&mut process).map_err(|e| JoinError::System {
            rank: self.rank,
            action: "make a random number",
            source: io::Error::other(e),
        })?;
        let (rank, local) = (self.rank.0, LocalProcess::own());
        let (relay, meeting) = (None, 0);
        let witness = self.options.witness.as_ref().map(Witness::mark);
        let mut request =
            JoinRequest { rank, host, peer_info, relay, meeting, process, local, witness };
        if self.rank == Rank(0) {
            let mut stream = self.run_coordinator(rendezvous, request).await?;
            let peer_infos = self.roster(&mut stream).await?;
            return Ok((stream, peer_infos.map_err(|cause| self.lost(&cause.to_string()))?));
        }
        let candidates = self.find(rendezvous).await?;
        // Connections that the kernel of rank 0 cannot queue cost a second and more.
        sleep_until((Instant::now() + turn(self.rank)).min(self.deadline)).await;
        let mut stream = self.register(&candidates, &mut request, self.deadline).await?;
        loop {
            match self.roster(&mut stream).await? {
                Ok(peer_infos) => return Ok((stream, peer_infos)),
                // Other ranks are missing, so the coordinator accepts this one again.
                Err(cause) => {
                    tracing::debug!("rank {} joins again: {cause}", self.rank);
                    sleep(RETRY_PAUSE).await;
                    let until = self.deadline.min(Instant::now() + REJOIN);
                    let accepted = self.register(&candidates, &mut request, until).await;
                    stream = accepted.map_err(|e| match e {
                        JoinError::NoCoordinator { .. } => self.lost(&cause.to_string()),
                        other => other,
                    })?;
                }
            }
        }
    }

    /// Finds the coordinator and waits until it has accepted this rank. Returns the control stream
    /// to it.
    async fn register(
        &mut self,
        candidates: &Candidates,
        request: &mut JoinRequest,
        until: Instant,
    ) -> Result<ControlStream, JoinError> {
        let greeting = self.greeting(Purpose::Control);
        let mut dial = Dial::new(self, &greeting, candidates);
        dial.deadline = until;
        loop {
            let channel = dial.connect().await?;
            let peer = channel.peer;
            let listening = Self::listening_near(channel.local.ip(), candidates);
            let relay = self.open_relay(&listening);
            request.meeting = self.open_meeting_point(&listening);
            request.relay = relay.as_ref().map(|(port, _)| *port);
            let mut stream = ControlStream::over(channel, ToCoordinator::Join(request.clone()));
            match self.accepted(&mut stream).await? {
                Ok(return_ticket) => {
                    stream.return_path = return_ticket.map(|return_ticket| ReturnPath {
                        rank: self.rank,
                        ip: peer.ip(),
                        return_ticket,
                        greeting: self.greeting(Purpose::Return),
                        secret: self.secret.clone(),
                    });
                    (self.relay, self.reached) = (relay.map(|(_, relay)| relay), Some(peer.ip()));
                    return Ok(stream);
                }
                // The coordinator has not accepted this rank, which may therefore try again.
                Err(cause) => dial.lost(peer, cause).await?,
            }
        }
    }

    /// In rank 0: listens, publishes the address, and runs the coordinator.
    async fn run_coordinator(
        &mut self,
        rendezvous: Rendezvous,
        mut first: JoinRequest,
    ) -> Result<ControlStream, JoinError> {
        let size = self.size;
        descriptors::provide(size).map_err(|descriptors::TooFew { needed, limit }| {
            JoinError::Descriptors { size, needed, limit }
        })?;
        let (listener, launcher) = self.open(rendezvous).await?;
        let (report, ended) = launcher.map(|it| (it.reports, it.ended)).unzip();
        let place = listener.local_addr().map_or_else(|e| e.to_string(), |at| at.to_string());
        let return_port = listener.local_addr().and_then(|at| {
            ReturnPort::reserve(at.ip(), self.greeting(Purpose::Return), self.secret.clone())
        });
        let return_port = return_port.inspect_err(|e| {
            tracing::warn!("a rank whose connection breaks cannot reconnect: {e}");
        });
        let listening: Vec<IpAddr> = listener.local_addr().iter().map(|at| at.ip()).collect();
        first.meeting = self.open_meeting_point(&listening);
        let (coordinator, stream) = Coordinator::new(self.size, first, self.options.linger, report);
        let (admitted, peers) = mpsc::channel(PEERS_WAITING_MAX);
        let turned_away = Arc::new(TurnedAway::default());
        let shared = (self.greeting(Purpose::Control), self.secret.clone());
        let noted = Arc::clone(&turned_away);
        let (slots, helpers) = (limits::HANDSHAKES_MAX, helpers_of(size));
        let acceptor = accept_any(slots, helpers, listener, vec![shared], noted, admitted);
        self.coordinator.spawn(coordinator.run(JoinQueue {
            peers,
            turned_away,
            deadline: self.deadline,
            place,
            acceptor: tokio::spawn(acceptor.with_current_subscriber()),
            log: tracing::dispatcher::get_default(Clone::clone),
            return_port: return_port.ok(),
            ended,
        }));
        Ok(stream)
    }

    /// Waits until the coordinator has accepted this rank. The inner error means that the
    /// connection ended earlier.
    async fn accepted(
        &self,
        stream: &mut ControlStream,
    ) -> Result<io::Result<Option<ReturnTicket>>, JoinError> {
        let hung_up =
            || io::Error::other("it closed the connection before it had accepted this rank");
        match timeout_at(self.deadline + EXTRA_WAIT, stream.incoming.recv()).await {
            Ok(Some(Incoming::Message(bytes))) => match decode(&bytes) {
                Some(FromCoordinator::Accepted(return_ticket)) => Ok(Ok(return_ticket)),
                Some(FromCoordinator::Refused(refusal)) => Err(self.refused(refusal)),
                _ => Err(self.lost("it sent an unexpected message")),
            },
            Ok(Some(Incoming::Closed(Some(cause)))) => Ok(Err(cause)),
            Ok(Some(Incoming::Closed(None) | Incoming::Mark(_)) | None) => Ok(Err(hung_up())),
            Err(_) => Err(self.lost("it sent nothing in time")),
        }
    }

    fn refused(&self, refusal: Refusal) -> JoinError {
        let (rank, size, timeout) = (self.rank, self.size, self.options.timeout);
        match refusal {
            Refusal::Duplicate => JoinError::Duplicate { rank },
            Refusal::Invalid => JoinError::Invalid { rank, size },
            Refusal::Lost { rank } => JoinError::Lost { rank: Rank(rank) },
            Refusal::Failed { rank, reason } => {
                JoinError::Peer { peer: Rank(rank), reason: cut(reason) }
            }
            Refusal::Missing { ranks: missing, turned_away } => {
                let turned_away = cut(turned_away);
                JoinError::Missing { size, missing, timeout, turned_away }
            }
        }
    }
}
