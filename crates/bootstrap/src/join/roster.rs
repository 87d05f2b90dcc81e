//! How a rank gets everyone's card, and hands them on.

use std::future::pending;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;

use tokio::time::timeout_at;

use super::error::JoinError;
use super::joiner::{Cards, Joiner, LAST_WORD, Place};
use crate::address;
use crate::call_log::History;
use crate::channel::Purpose;
use crate::member::{Heard, Line};
use crate::message::{FromHub, Parent, ToHub, decode};
use crate::relay::{self, Relay};

impl Joiner {
    /// Listens for the ranks to which this one hands on the roster, if there are any; the port. If
    /// that fails, the coordinator serves them.
    pub(super) fn open_relay(&self, local: IpAddr, place: &Place) -> Option<(u16, Relay)> {
        let children = relay::children(self.rank, self.size);
        if children.is_empty() {
            return None;
        }
        // On the host of rank 0 a name may well lead to the loopback address.
        let is_one_host = place.hosts.iter().all(|host| address::is_loopback(host));
        let is_reached_there = !local.is_loopback() || is_one_host;
        let listening = address::listen(is_reached_there.then_some(local), &[0]);
        let listening = listening.and_then(|l| Ok((l.local_addr()?.port(), l)));
        let (port, listener) = listening
            .inspect_err(|e| tracing::debug!("rank {} hands on no roster: {e}", self.rank))
            .ok()?;
        let (greeting, secret) = (self.greeting(Purpose::Relay), self.secret.clone());
        let until = self.deadline + LAST_WORD;
        Some((port, Relay::serve(listener, greeting, secret, children, until)))
    }

    /// Waits until every rank is there, gets everyone's card, and hands it on. `coordinator` is the
    /// address at which this rank reached rank 0. The inner error is that the connection ended
    /// while other ranks were missing.
    pub(super) async fn roster(
        &self,
        line: &mut Line,
        mut coordinator: Option<IpAddr>,
    ) -> Result<io::Result<Cards>, JoinError> {
        let mut fetching = None;
        loop {
            let fetched = async {
                match &mut fetching {
                    Some(fetching) => Pin::new(fetching).await,
                    None => pending().await,
                }
            };
            let bytes = tokio::select! {
                word = self.word(line) => match word? {
                    Ok(bytes) => bytes,
                    Err(cause) if coordinator.is_some() => return Ok(Err(cause)),
                    Err(cause) => return Err(self.lost(&cause.to_string())),
                },
                fetched = fetched => {
                    fetching = None;
                    match fetched {
                        Ok(roster) => Arc::from(roster),
                        Err(e) => {
                            tracing::debug!("rank {} asks rank 0 for the roster: {e}", self.rank);
                            line.say.send(ToHub::NoRoster).unwrap_or_default();
                            continue;
                        }
                    }
                }
            };
            match decode(&bytes) {
                Some(FromHub::Roster(cards)) if cards.len() == self.size => {
                    if let Some(relay) = &self.relay {
                        relay.give(bytes);
                    }
                    return Ok(Ok(cards));
                }
                Some(FromHub::Refused(refusal)) => return Err(self.refused(refusal)),
                Some(FromHub::Fetch(parent)) => match coordinator.take() {
                    Some(coordinator) => {
                        fetching = Some(Box::pin(self.fetch(parent, coordinator)));
                    }
                    None => return Err(self.lost("it named two ranks that have the roster")),
                },
                // Ranks that have the roster may be at work already, and in trouble.
                Some(FromHub::Ask) => {
                    line.say.send(ToHub::Answer(History::default())).unwrap_or_default();
                }
                Some(FromHub::Verdict(verdict)) => {
                    let (rank, verdict) = (self.rank, verdict.to_string());
                    return Err(JoinError::Failed { rank, verdict });
                }
                _ => return Err(self.lost("it sent an unexpected message")),
            }
        }
    }

    async fn fetch(&self, parent: Parent, coordinator: IpAddr) -> io::Result<Vec<u8>> {
        let at = SocketAddr::new(parent.ip.unwrap_or(coordinator), parent.port);
        let (greeting, place) = (self.greeting(Purpose::Relay), Place::at(at, "rank 0"));
        let latest = self.deadline + LAST_WORD / 2;
        relay::fetch(self.target(&greeting, &place), at, latest).await
    }

    /// The coordinator's next message. The inner error is that the connection ended.
    async fn word(&self, line: &mut Line) -> Result<io::Result<Arc<[u8]>>, JoinError> {
        match timeout_at(self.deadline + LAST_WORD, line.heard.recv()).await {
            Ok(Some(Heard::Message(bytes))) => Ok(Ok(bytes)),
            Ok(Some(Heard::Closed(Some(cause)))) => Ok(Err(cause)),
            Ok(Some(Heard::Closed(None) | Heard::Mark(_)) | None) => {
                Ok(Err(io::Error::other("it hung up")))
            }
            Err(_) => Err(self.lost("it said nothing in time")),
        }
    }
}
