//! The coordinator, the centre of the star in rank 0's process. It waits for the ranks, watches
//! each of them, and announces the failure cause.
//!
//! `state` is what both phases share. Joining is below, and `watch` follows.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ringfold_types::{Rank, limits};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::instrument::WithSubscriber;

use crate::arbiter::cut;
use crate::arbiter::failure_cause::{Listed, RankList, list_room};
use crate::channel::acceptor::Authenticated;
use crate::channel::connect::Channel;
use crate::channel::frames::{decode, encode};
use crate::channel::turned_away::TurnedAway;
use crate::control::message::{FromCoordinator, JoinRequest, Refusal, Roster, ToCoordinator};
use crate::control::reconnect::ReturnPort;
use crate::regroup::message::encode_entry;
use crate::rendezvous::Report;
use crate::rendezvous::registry::Ended;

pub(crate) mod state;
mod watch;

use state::{Coordinator, Event, FLUSH, RankLink};

/// How long a rank whose connection ended may take to join again, while others are missing.
const REJOIN: Duration = Duration::from_millis(3 * limits::RETURN_MS);
/// How long a rank may be missing after as many processes have come as there are ranks, and how
/// long ranks that come late learn why others cannot join.
const NEWS: Duration = Duration::from_millis(limits::JOIN_NEWS_MS);

/// The connections of joining ranks, and the time limit for them.
pub(crate) struct JoinQueue {
    pub(crate) peers: mpsc::Receiver<Authenticated>,
    pub(crate) turned_away: Arc<TurnedAway>,
    pub(crate) deadline: Instant,
    /// The port or address where the coordinator listens, for messages.
    pub(crate) place: String,
    /// The acceptor task. The coordinator stops it when no rank is missing any more.
    pub(crate) acceptor: JoinHandle<()>,
    /// The port where ranks reconnect after their connection broke.
    pub(crate) return_port: Option<ReturnPort>,
    /// The ranks whose programs have ended, and how, from the launcher.
    pub(crate) ended: Option<mpsc::UnboundedReceiver<Ended>>,
    /// The log of the thread that joins.
    pub(crate) log: tracing::Dispatch,
}

/// The next rank whose program has ended. Waits for ever if no launcher tells.
async fn next_ended(ended: &mut Option<mpsc::UnboundedReceiver<Ended>>) -> Ended {
    match ended {
        Some(ended) => match ended.recv().await {
            Some(ended) => ended,
            None => std::future::pending().await,
        },
        None => std::future::pending().await,
    }
}

impl Coordinator {
    /// Waits for all ranks, then watches them until rank 0 has left.
    pub(crate) async fn run(mut self, mut queue: JoinQueue) {
        let JoinQueue { return_port, .. } = &mut queue;
        self.return_port = return_port.take();
        let log = queue.log.clone();
        let gathered = self.gather(&mut queue).with_subscriber(log).await;
        if let Err(failed @ Refusal::Failed { rank, .. }) = &gathered {
            self.broadcast_message(&FromCoordinator::Refused(failed.clone()));
            self.failure = Some(failed.clone());
            self.refused.insert(*rank);
            timeout(NEWS, self.refuse_late(&mut queue)).await.unwrap_or_default();
        }
        // Closes the port when no rank is missing, and before any rank learns that all have joined.
        // A rank that dials for its next communicator must not reach this coordinator.
        queue.acceptor.abort();
        if queue.acceptor.await.is_err_and(|e| e.is_panic()) {
            tracing::error!("the coordinator's accept task panicked");
        }
        match gathered {
            Err(refusal) => self.broadcast_message(&FromCoordinator::Refused(refusal)),
            Ok(()) => {
                self.send_roster();
                self.report(Report::Joined);
                self.watch(&mut queue.ended).await;
            }
        }
        self.shut_down().await;
    }

    async fn gather(&mut self, queue: &mut JoinQueue) -> Result<(), Refusal> {
        let mut pause = Duration::from_millis(limits::JOIN_WARNING_MS);
        let mut warn_at = Instant::now() + pause;
        while self.links.len() < self.hosts.len() {
            if let Some(failure) = self.failure.take() {
                return Err(failure);
            }
            let expiring = self.may_rejoin.iter().min_by_key(|(_, until)| **until);
            let (gone, expiry) = expiring.map_or((None, queue.deadline), |(rank, until)| {
                (Some(*rank), queue.deadline.min(*until))
            });
            tokio::select! {
                biased;
                Some(peer) = queue.peers.recv() => self.admit(peer, &queue.turned_away),
                Ended { rank, how } = next_ended(&mut queue.ended) => {
                    if !self.links.contains_key(&rank) && Rank(rank).index() < self.hosts.len() {
                        let reason = format!("it ended ({how}) before it joined");
                        self.failure = Some(Refusal::Failed { rank, reason });
                    }
                }
                () = sleep_until(self.doubtful.unwrap_or(expiry)), if self.doubtful.is_some() => {
                    self.failure = self.explain_duplicates(&queue.turned_away);
                }
                Some(event) = self.events.recv() => match event {
                    Event::Message(rank, ToCoordinator::Goodbye(_)) => {
                        self.links.remove(&rank);
                        return Err(Refusal::Lost { rank });
                    }
                    Event::Closed { rank, connection, .. } => self.allow_rejoin(rank, connection),
                    Event::Message(rank, _) => {
                        tracing::warn!("rank {rank} sent a message before the job has begun");
                    }
                    Event::CatchUp(_) | Event::CaughtUp(_) | Event::Ended(_) => {}
                },
                () = sleep_until(expiry) => {
                    if let Some(rank) = gone.filter(|_| expiry < queue.deadline) {
                        return Err(Refusal::Lost { rank });
                    }
                    let mut ranks: Listed<_> = self.missing().into_iter().map(Rank).collect();
                    ranks.shorten_runs(list_room(self.hosts.len()));
                    let turned_away = queue.turned_away.explanation();
                    return Err(Refusal::Missing { ranks, turned_away });
                }
                () = sleep_until(warn_at) => {
                    self.warn_of_missing(queue);
                    pause *= 2;
                    warn_at += pause;
                }
            }
        }
        Ok(())
    }

    /// As many processes have come as there are ranks, and some of them as the same rank.
    fn explain_duplicates(&self, turned_away: &TurnedAway) -> Option<Refusal> {
        let rank = *self.missing().first()?;
        Some(Refusal::Failed { rank, reason: turned_away.explanation() })
    }

    /// Tells the ranks that have not come yet why the ranks do not join.
    async fn refuse_late(&mut self, queue: &mut JoinQueue) {
        while self.missing().iter().any(|rank| !self.refused.contains(rank)) {
            let Some(peer) = queue.peers.recv().await else { return };
            self.admit(peer, &queue.turned_away);
        }
    }

    /// The connection of a rank ended while others were missing, so the rank may join again.
    fn allow_rejoin(&mut self, rank: u32, connection: u64) {
        // A rank that has joined again has another connection.
        if self.links.get(&rank).is_some_and(|link| link.connection == connection) {
            tracing::debug!("the connection of rank {rank} ended; the rank may join again");
            self.links.remove(&rank);
            self.may_rejoin.insert(rank, Instant::now() + REJOIN);
        }
    }

    fn missing(&self) -> Vec<u32> {
        let all = (0..self.hosts.len()).map(|i| Rank::at(i).0);
        all.filter(|rank| !self.links.contains_key(rank)).collect()
    }

    fn warn_of_missing(&self, queue: &JoinQueue) {
        let missing: Vec<Rank> = self.missing().into_iter().map(Rank).collect();
        let (joined, size) = (self.links.len(), self.hosts.len());
        let why = match queue.turned_away.explanation() {
            none if none.is_empty() => "no rejected connection explains this".into(),
            explanation => explanation,
        };
        tracing::warn!(
            "rank 0 listens at {} and has waited {:.0?} for {}; {joined} of {size} ranks have \
             joined; {why}",
            queue.place,
            self.began.elapsed(),
            RankList(&missing),
        );
    }

    fn admit(&mut self, peer: Authenticated, turned_away: &TurnedAway) {
        let Authenticated { channel, first, home, .. } = peer;
        let Channel { mut reader, mut writer, peer: from, .. } = channel;
        let refusal = match decode(&first) {
            Some(ToCoordinator::Join(request)) => match self.refusal_for(&request) {
                None => {
                    tracing::debug!("rank {} joined from {from}", request.rank);
                    let link = self.connect(request.rank, (reader, writer), home);
                    return self.seat(request, from.ip(), link);
                }
                Some(refusal) => {
                    if refusal == Refusal::Duplicate {
                        self.note_duplicate(&request, from, turned_away);
                    }
                    refusal
                }
            },
            _ => Refusal::Invalid,
        };
        tracing::warn!("refused a rank from {from}: {refusal:?}");
        self.writers.spawn(async move {
            let refused = encode(&FromCoordinator::Refused(refusal));
            // The peer closes the connection after it has read the refusal, so that closing our end
            // resets nothing.
            if writer.send(&refused).await.is_ok() && timeout(FLUSH, reader.next()).await.is_err() {
                tracing::debug!("{from} does not close its refused connection");
            }
            drop(home);
        });
    }

    /// Accepts a rank, which came from that address.
    fn seat(&mut self, request: JoinRequest, from: IpAddr, link: RankLink) {
        let rank = request.rank;
        self.addresses.insert(rank, (from, request.relay));
        self.note_place(&request, from);
        self.add_rank(request, link);
        let return_port = self.return_port.as_ref();
        let return_ticket = return_port.map(|return_port| return_port.return_ticket(rank));
        self.send_message(rank, &FromCoordinator::Accepted(return_ticket));
    }

    /// Counts a process that came as the rank of another process. When all processes have come,
    /// the missing ranks have little time left.
    fn note_duplicate(
        &mut self,
        request: &JoinRequest,
        from: SocketAddr,
        turned_away: &TurnedAway,
    ) {
        turned_away.note_duplicate(from, request.rank);
        if self.duplicates.len() < self.hosts.len() {
            self.duplicates.insert((request.local, request.rank));
        }
        if self.links.len() + self.duplicates.len() >= self.hosts.len() {
            self.doubtful.get_or_insert_with(|| Instant::now() + NEWS);
        }
    }

    /// Decides about a rank's request. A rank that cannot join is the reason why no other can.
    fn refusal_for(&mut self, request: &JoinRequest) -> Option<Refusal> {
        let JoinRequest { rank, host, peer_info, process, .. } = request;
        let bytes = peer_info.as_ref().map_or(0, Vec::len);
        let fits = bytes <= limits::PEER_INFO_BYTES_MAX && host.len() <= limits::CAUSE_BYTES_MAX;
        if !fits || self.hosts.len() <= Rank(*rank).index() {
            Some(Refusal::Invalid)
        } else if self.links.contains_key(rank) && !self.is_process(*rank, process) {
            Some(Refusal::Duplicate)
        } else {
            if let Err(reason) = peer_info {
                let (rank, reason) = (*rank, cut(reason.clone()));
                self.failure.get_or_insert(Refusal::Failed { rank, reason });
            }
            if self.failure.is_some() {
                self.refused.insert(*rank);
            }
            self.failure.clone()
        }
    }

    fn send_roster(&mut self) {
        let infos = std::mem::take(&mut self.peer_infos);
        let entries = self.places.iter().zip(infos).map(|(place, info)| encode_entry(place, &info));
        let roster = encode(&FromCoordinator::Roster(Roster(entries.collect())));
        tracing::debug!("the roster of {} ranks takes {} bytes", self.links.len(), roster.len());
        self.spread(0, roster);
    }

    /// Tells the connected ranks that nobody watches any more, then lets rank 0 leave.
    async fn shut_down(mut self) {
        let own = self.links.remove(&0);
        if self.failure_cause.is_none() {
            self.broadcast_message(&FromCoordinator::Closing);
        }
        self.links.clear();
        self.reports = None;
        // Rank 0 comes last: its process may end when it gets the farewell.
        let others = async { while self.writers.join_next().await.is_some() {} };
        if timeout(FLUSH, others).await.is_err() {
            tracing::debug!("some ranks do not read their last messages");
        }
        if let Some(own) = own {
            own.send(&encode(&FromCoordinator::Farewell).into());
        }
    }
}

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
