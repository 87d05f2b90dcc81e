//! Meeting the other ranks: from an identity and a secret to a `Control` and everyone's card.

use std::io;
use std::net::IpAddr;
use std::sync::{Arc, mpsc as std_mpsc};
use std::thread;
use std::time::Duration;

use ringfold_types::{Rank, limits};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout_at};

use crate::acceptor::accept;
use crate::address;
use crate::channel::Purpose;
use crate::control::{Control, Link};
use crate::descriptors;
use crate::dial::{Dial, Target};
use crate::hub::{Entrance, Hub};
use crate::identity::{Identity, Rendezvous};
use crate::local;
use crate::member::{Heard, Line, Member, tend};
use crate::message::{FromHub, Invitation, Joining, ProcessId, Refusal, ToHub, decode};
use crate::reconnect::{Entry, WayBack};
use crate::seat::Seat;
use crate::secret::Secret;
use crate::turned_away::TurnedAway;

mod error;
mod joiner;
mod place;
mod roster;

pub use error::JoinError;
pub use joiner::Options;

use joiner::{Cards, Joiner, LAST_WORD, Place};

const GUESTS_MAX: usize = 64;
/// A rank whose connection ended while others were missing tries to join once more for so long,
const REJOIN: Duration = Duration::from_millis(2 * limits::RETURN_MS);
/// and after such a pause.
const BREATHER: Duration = Duration::from_millis(20);

impl Control {
    /// Meets the other ranks. `card` is what this rank says of itself (addresses, host, version);
    /// everyone's comes back, in rank order. All ranks must call it; blocks until all have or
    /// `options.timeout` is over.
    ///
    /// # Errors
    /// See `JoinError`; within the timeout and a few seconds, on every rank.
    pub fn join(
        identity: Identity,
        secret: Secret,
        card: Vec<u8>,
        options: Options,
    ) -> Result<(Self, Cards), JoinError> {
        let (rank, size) = (identity.rank, identity.size);
        if rank.index() >= size || size > limits::RANKS_MAX {
            return Err(JoinError::Invalid { rank, size });
        }
        if card.len() > limits::CARD_BYTES_MAX {
            return Err(JoinError::CardTooLong { bytes: card.len() });
        }
        let system = |action| move |source| JoinError::System { rank, action, source };
        if let Rendezvous::Alone = identity.rendezvous {
            let alone = local::controls(1).map_err(system("make an eventfd"))?.pop();
            return alone.map(|c| (c, vec![card])).ok_or(JoinError::Invalid { rank, size });
        }
        let seat = Seat::new().map_err(system("make an eventfd"))?;
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(system("start an event loop"))?;
        let (mut member, orders) = Member::new();
        let (tell, told) = std_mpsc::sync_channel(1);
        let deadline = Instant::now() + options.timeout;
        let (job, hub) = (identity.job, JoinSet::new());
        let mut joiner = Joiner { rank, size, job, secret, options, deadline, hub, relay: None };
        let (ours, rendezvous) = (Arc::clone(&seat), identity.rendezvous);
        // A log of the calling thread alone shall hear of the ranks' meeting, too.
        let log = tracing::dispatcher::get_default(Clone::clone);
        let work = move || {
            runtime.block_on(async {
                let heard = tracing::dispatcher::set_default(&log);
                let enrolled = joiner.enrol(rendezvous, card).await;
                drop(heard);
                let told = match enrolled {
                    Ok((line, cards)) => {
                        let told = tell.send(Ok(cards));
                        tend(rank, ours, line, orders).await;
                        joiner.hub.join_next().await;
                        told
                    }
                    Err(e) => {
                        // The others learn of it before this process may end.
                        joiner.hub.join_next().await;
                        tell.send(Err(e))
                    }
                };
                told.unwrap_or_default();
            });
            // A name that is still being looked up shall not keep anybody.
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name("ringfold-ctl".into()).spawn(work);
        member.runs_on(thread.map_err(system("start a thread"))?);
        let died = |_| io::Error::other("the control thread ended early");
        let cards = told.recv().map_err(died).map_err(system("join"))??;
        Ok((Self::new(rank, size, seat, Link::Member(member)), cards))
    }
}

impl Joiner {
    async fn enrol(
        &mut self,
        rendezvous: Rendezvous,
        card: Vec<u8>,
    ) -> Result<(Line, Cards), JoinError> {
        let host = self.options.host.clone();
        let host = host.unwrap_or_else(address::host_name);
        let mut process = ProcessId::default();
        getrandom::fill(&mut process).map_err(|e| JoinError::System {
            rank: self.rank,
            action: "make a random number",
            source: io::Error::other(e),
        })?;
        let mut joining = Joining { rank: self.rank.0, host, card, relay: None, process };
        if self.rank == Rank(0) {
            let mut line = self.preside(rendezvous, joining).await?;
            let cards = self.roster(&mut line, None).await?;
            return Ok((line, cards.map_err(|cause| self.lost(&cause.to_string()))?));
        }
        let place = self.find(rendezvous).await?;
        let (mut line, mut peer) = self.sit_down(&place, &mut joining, self.deadline).await?;
        loop {
            match self.roster(&mut line, Some(peer)).await? {
                Ok(cards) => return Ok((line, cards)),
                // Other ranks are missing, so that the coordinator takes this one in again.
                Err(cause) => {
                    tracing::debug!("rank {} joins once more: {cause}", self.rank);
                    sleep(BREATHER).await;
                    let until = self.deadline.min(Instant::now() + REJOIN);
                    let seated = self.sit_down(&place, &mut joining, until).await;
                    (line, peer) = seated.map_err(|e| match e {
                        JoinError::NoHub { .. } => self.lost(&cause.to_string()),
                        other => other,
                    })?;
                }
            }
        }
    }

    /// Finds the coordinator and waits until it has taken this rank in. Returns the line to it, and
    /// its address.
    async fn sit_down(
        &mut self,
        place: &Place,
        joining: &mut Joining,
        until: Instant,
    ) -> Result<(Line, IpAddr), JoinError> {
        let greeting = self.greeting(Purpose::Control);
        let mut dial = Dial::new(Target { deadline: until, ..self.target(&greeting, place) });
        loop {
            let channel = dial.connect().await?;
            let peer = channel.peer;
            let relay = self.open_relay(channel.local.ip(), place);
            joining.relay = relay.as_ref().map(|(port, _)| *port);
            let mut line = Line::over(channel, ToHub::Join(joining.clone()));
            match self.seated(&mut line).await? {
                Ok(invitation) => {
                    line.way_back = invitation.map(|invitation| WayBack {
                        rank: self.rank,
                        ip: peer.ip(),
                        invitation,
                        greeting: self.greeting(Purpose::Return),
                        secret: self.secret.clone(),
                    });
                    self.relay = relay.map(|(_, relay)| relay);
                    return Ok((line, peer.ip()));
                }
                // The coordinator has not taken this rank in, so that it may come again.
                Err(cause) => dial.lost(peer, cause).await?,
            }
        }
    }

    /// Rank 0: listens, says where, and runs the hub.
    async fn preside(&mut self, rendezvous: Rendezvous, first: Joining) -> Result<Line, JoinError> {
        let size = self.size;
        descriptors::provide(size).map_err(|descriptors::TooFew { needed, limit }| {
            JoinError::Descriptors { size, needed, limit }
        })?;
        let (listener, report) = self.open(rendezvous).await?;
        let place = listener.local_addr().map_or_else(|e| e.to_string(), |at| at.to_string());
        let entry = listener.local_addr().and_then(|at| {
            Entry::reserve(at.ip(), self.greeting(Purpose::Return), self.secret.clone())
        });
        let entry = entry.inspect_err(|e| {
            tracing::warn!("a rank whose connection breaks cannot come back: {e}");
        });
        let (hub, line) = Hub::new(self.size, first, self.options.linger, report);
        let (admitted, guests) = mpsc::channel(GUESTS_MAX);
        let turned_away = Arc::new(TurnedAway::default());
        let (greeting, noted) = (self.greeting(Purpose::Control), Arc::clone(&turned_away));
        let acceptor = accept(listener, greeting, self.secret.clone(), noted, admitted);
        self.hub.spawn(hub.run(Entrance {
            guests,
            turned_away,
            deadline: self.deadline,
            place,
            acceptor: tokio::spawn(acceptor),
            entry: entry.ok(),
        }));
        Ok(line)
    }

    /// Waits until the coordinator has taken this rank in. The inner error is that the connection
    /// ended before.
    async fn seated(&self, line: &mut Line) -> Result<io::Result<Option<Invitation>>, JoinError> {
        let hung_up = || io::Error::other("it hung up before it had taken this rank in");
        match timeout_at(self.deadline + LAST_WORD, line.heard.recv()).await {
            Ok(Some(Heard::Message(bytes))) => match decode(&bytes) {
                Some(FromHub::Seated(invitation)) => Ok(Ok(invitation)),
                Some(FromHub::Refused(refusal)) => Err(self.refused(refusal)),
                _ => Err(self.lost("it sent an unexpected message")),
            },
            Ok(Some(Heard::Closed(Some(cause)))) => Ok(Err(cause)),
            Ok(Some(Heard::Closed(None) | Heard::Mark(_)) | None) => Ok(Err(hung_up())),
            Err(_) => Err(self.lost("it said nothing in time")),
        }
    }

    fn refused(&self, refusal: Refusal) -> JoinError {
        let (rank, size, timeout) = (self.rank, self.size, self.options.timeout);
        match refusal {
            Refusal::Duplicate => JoinError::Duplicate { rank },
            Refusal::Invalid => JoinError::Invalid { rank, size },
            Refusal::Lost { rank } => JoinError::Lost { rank: Rank(rank) },
            Refusal::Missing { mut ranks, turned_away } => {
                ranks.truncate(size);
                let missing = ranks.into_iter().map(Rank).collect();
                let turned_away = crate::judge::cut(turned_away);
                JoinError::Missing { size, missing, timeout, turned_away }
            }
        }
    }
}
