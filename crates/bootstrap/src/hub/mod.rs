//! The middle of the star, in rank 0's process: brings the ranks together, keeps an ear on each,
//! and hands out the verdict.

use std::sync::Arc;
use std::time::Duration;

use ringfold_types::{Rank, limits};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until, timeout};

use crate::acceptor::Member as Guest;
use crate::message::{FromHub, Joining, Parent, Refusal, ToHub, decode, encode};
use crate::reconnect::Entry;
use crate::relay;
use crate::rendezvous::Report;
use crate::turned_away::TurnedAway;
use crate::verdict::RankList;

mod state;
mod watch;

pub(crate) use state::Hub;
use state::{Event, FLUSH};

/// While ranks are missing, how long one whose connection ended has to join once more.
const REJOIN: Duration = Duration::from_millis(3 * limits::RETURN_MS);

/// The connections of ranks that join, and when to stop waiting for them.
pub(crate) struct Entrance {
    pub(crate) guests: mpsc::Receiver<Guest>,
    pub(crate) turned_away: Arc<TurnedAway>,
    pub(crate) deadline: Instant,
    /// The port or address where the coordinator listens, for messages.
    pub(crate) place: String,
    /// The acceptor; it is stopped when no rank is missing any more.
    pub(crate) acceptor: JoinHandle<()>,
    /// Where ranks come back whose connection broke.
    pub(crate) entry: Option<Entry>,
}

impl Hub {
    /// Brings the ranks together, then watches until rank 0 has left.
    pub(crate) async fn run(mut self, mut entrance: Entrance) {
        let Entrance { entry, .. } = &mut entrance;
        self.entry = entry.take();
        let gathered = self.gather(&mut entrance).await;
        // With no rank to wait for the port is closed, and before any rank hears that all are
        // there: a rank that dials for its next communicator must not reach this one.
        entrance.acceptor.abort();
        if entrance.acceptor.await.is_err_and(|e| e.is_panic()) {
            tracing::error!("the coordinator's accept task panicked");
        }
        match gathered {
            Err(refusal) => self.tell_all(&FromHub::Refused(refusal)),
            Ok(()) => {
                self.hand_out_roster();
                self.report(Report::Joined);
                self.watch().await;
            }
        }
        self.dismiss().await;
    }

    async fn gather(&mut self, entrance: &mut Entrance) -> Result<(), Refusal> {
        let mut pause = Duration::from_millis(limits::JOIN_WARNING_MS);
        let mut warn_at = Instant::now() + pause;
        while self.seats.len() < self.hosts.len() {
            let expiring = self.vacated.iter().min_by_key(|(_, until)| **until);
            let (gone, expiry) = expiring.map_or((None, entrance.deadline), |(rank, until)| {
                (Some(*rank), entrance.deadline.min(*until))
            });
            tokio::select! {
                biased;
                Some(guest) = entrance.guests.recv() => self.welcome(guest),
                Some(event) = self.events.recv() => match event {
                    Event::Said(rank, ToHub::Goodbye(_)) => {
                        self.seats.remove(&rank);
                        return Err(Refusal::Lost { rank });
                    }
                    Event::Closed { rank, connection, .. } => self.vacate(rank, connection),
                    Event::Said(rank, _) => {
                        tracing::warn!("rank {rank} speaks before the job has begun");
                    }
                    Event::CatchUp(_) | Event::CaughtUp(_) => {}
                },
                () = sleep_until(expiry) => {
                    if let Some(rank) = gone.filter(|_| expiry < entrance.deadline) {
                        return Err(Refusal::Lost { rank });
                    }
                    return Err(Refusal::Missing {
                        ranks: self.missing(),
                        turned_away: entrance.turned_away.explanation(),
                    });
                }
                () = sleep_until(warn_at) => {
                    self.warn_of_missing(entrance);
                    pause *= 2;
                    warn_at += pause;
                }
            }
        }
        Ok(())
    }

    /// The connection of a rank ended while others were missing: the rank may join once more.
    fn vacate(&mut self, rank: u32, connection: u64) {
        // A rank that has joined once more has another connection.
        if self.seats.get(&rank).is_some_and(|seat| seat.connection == connection) {
            tracing::debug!("the connection of rank {rank} ended; it may join once more");
            self.seats.remove(&rank);
            self.vacated.insert(rank, Instant::now() + REJOIN);
        }
    }

    fn missing(&self) -> Vec<u32> {
        let all = (0..self.hosts.len()).map(|i| Rank::at(i).0);
        all.filter(|rank| !self.seats.contains_key(rank)).collect()
    }

    fn warn_of_missing(&self, entrance: &Entrance) {
        let missing: Vec<Rank> = self.missing().into_iter().map(Rank).collect();
        let (joined, size) = (self.seats.len(), self.hosts.len());
        let why = match entrance.turned_away.explanation() {
            none if none.is_empty() => "no other connection has come that explains it".into(),
            explanation => explanation,
        };
        tracing::warn!(
            "rank 0 listens at {} and has waited {:.0?} for {}; {joined} of {size} ranks have \
             joined; {why}",
            entrance.place,
            self.began.elapsed(),
            RankList(&missing),
        );
    }

    fn welcome(&mut self, guest: Guest) {
        let Guest { mut reader, mut writer, from, first } = guest;
        let refusal = match decode(&first) {
            Some(ToHub::Join(joining)) => match self.objection(&joining) {
                None => {
                    let rank = joining.rank;
                    match joining.relay {
                        Some(port) => self.relays.insert(rank, (from.ip(), port)),
                        None => self.relays.remove(&rank),
                    };
                    self.fetching.insert(rank, from.ip());
                    tracing::debug!("rank {rank} joined from {from}");
                    let seat = self.connect(rank, reader, writer);
                    self.seat(joining, seat);
                    let invitation = self.entry.as_ref().map(|entry| entry.invitation(rank));
                    self.tell(rank, &FromHub::Seated(invitation));
                    return;
                }
                Some(refusal) => refusal,
            },
            _ => Refusal::Invalid,
        };
        tracing::warn!("refused a rank from {from}: {refusal:?}");
        self.writers.spawn(async move {
            let refused = encode(&FromHub::Refused(refusal));
            // It hangs up once it has read that, so that our hanging up resets nothing.
            if writer.send(&refused).await.is_ok() && timeout(FLUSH, reader.next()).await.is_err() {
                tracing::debug!("{from} does not go away");
            }
        });
    }

    fn objection(&self, joining: &Joining) -> Option<Refusal> {
        let Joining { rank, host, card, process, .. } = joining;
        let fits = card.len() <= limits::CARD_BYTES_MAX && host.len() <= limits::CAUSE_BYTES_MAX;
        if !fits || self.hosts.len() <= Rank(*rank).index() {
            Some(Refusal::Invalid)
        } else if self.seats.contains_key(rank) && self.processes.get(rank) != Some(process) {
            Some(Refusal::Duplicate)
        } else {
            None
        }
    }

    /// Sends the roster to this rank's children, and to the others where they find it.
    fn hand_out_roster(&mut self) {
        self.roster = encode(&FromHub::Roster(std::mem::take(&mut self.cards))).into();
        for rank in self.seats.keys().copied().collect::<Vec<_>>() {
            let parent = if rank == 0 { 0 } else { relay::parent(Rank(rank)).0 };
            let place = self.relays.get(&parent).zip(self.fetching.get(&rank));
            if let Some(((ip, port), child)) = place {
                let (ip, port) = (relay::address(*child, *ip), *port);
                self.tell(rank, &FromHub::Fetch(Parent { rank: parent, ip, port }));
            } else {
                self.fetching.remove(&rank);
                self.send(rank, &self.roster);
            }
        }
    }

    /// Lets those who are still here know that nobody watches any more, and rank 0 go.
    async fn dismiss(mut self) {
        let own = self.seats.remove(&0);
        if self.verdict.is_none() {
            self.tell_all(&FromHub::Closing);
        }
        self.seats.clear();
        self.reports = None;
        // Everybody else first: with the farewell the process may end.
        let others = async { while self.writers.join_next().await.is_some() {} };
        if timeout(FLUSH, others).await.is_err() {
            tracing::debug!("some ranks do not take what is sent to them");
        }
        if let Some(own) = own {
            own.say(&encode(&FromHub::Farewell).into());
        }
    }
}

#[cfg(test)]
mod tests;
