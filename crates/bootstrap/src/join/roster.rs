//! How a rank gets the peer information of all ranks, and forwards it.

use std::future::pending;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;

use tokio::time::timeout_at;

use super::error::JoinError;
use super::joiner::{Candidates, EXTRA_WAIT, Joiner, PeerInfos};
use crate::arbiter::call_log::History;
use crate::channel::frames::decode;
use crate::channel::greeting::Purpose;
use crate::channel::socket;
use crate::control::message::{FromCoordinator, Roster, ToCoordinator};
use crate::control::relay;
use crate::control::relay::Relay;
use crate::control::task::{ControlStream, Incoming};
use crate::discover::address;
use crate::regroup::message::decode_entry;

impl Joiner {
    /// The addresses on which this rank listens for other ranks; every address if there are none.
    /// This rank reached rank 0 from the address `local`.
    pub(super) fn listening_near(local: IpAddr, candidates: &Candidates) -> Vec<IpAddr> {
        // On the host of rank 0 a name may resolve to the loopback address.
        let is_one_host = candidates.hosts.iter().all(|host| address::is_loopback(host));
        let is_reached_there = !local.is_loopback() || is_one_host;
        is_reached_there.then_some(local).into_iter().collect()
    }

    /// Listens for the ranks to which this one forwards messages, if there are any, and returns the
    /// port. If listening fails, the coordinator serves them.
    pub(super) fn open_relay(&self, ips: &[IpAddr]) -> Option<(u16, Relay)> {
        let children = relay::children(self.rank, self.size);
        if children.is_empty() {
            return None;
        }
        let listening = socket::listen(ips, &[0]);
        let listening = listening.and_then(|l| Ok((l.local_addr()?.port(), l)));
        let (port, listener) = listening
            .inspect_err(|e| tracing::debug!("rank {} cannot forward the roster: {e}", self.rank))
            .ok()?;
        let (greeting, secret) = (self.greeting(Purpose::Relay), self.secret.clone());
        Some((port, Relay::serve(listener, greeting, secret, children)))
    }

    /// Waits until every rank has joined, gets the peer information of all, and forwards it. The
    /// inner error means that the connection ended while other ranks were missing.
    pub(super) async fn roster(
        &self,
        stream: &mut ControlStream,
    ) -> Result<io::Result<PeerInfos>, JoinError> {
        let (mut fetcher, mut fetching) = (self.fetcher(), None);
        loop {
            let fetched = async {
                match &mut fetching {
                    Some(fetching) => Pin::new(fetching).await,
                    None => pending().await,
                }
            };
            let bytes = tokio::select! {
                message = self.next_message(stream) => match message? {
                    Ok(bytes) => bytes,
                    Err(cause) if fetcher.is_some() => return Ok(Err(cause)),
                    Err(cause) => return Err(self.lost(&cause.to_string())),
                },
                fetched = fetched => {
                    fetching = None;
                    match fetched {
                        Ok(roster) => Arc::from(roster),
                        Err(e) => {
                            tracing::debug!("rank {} asks rank 0 for the roster: {e}", self.rank);
                            stream.outgoing.send(ToCoordinator::NotFetched(0)).unwrap_or_default();
                            continue;
                        }
                    }
                }
            };
            match decode(&bytes) {
                Some(FromCoordinator::Roster(Roster(entries))) if entries.len() == self.size => {
                    let entries = entries.iter().map(|entry| decode_entry(entry));
                    let Some((places, peer_infos)) = entries.collect::<Option<(Vec<_>, Vec<_>)>>()
                    else {
                        return Err(self.lost("it sent a roster that cannot be read"));
                    };
                    if let Some(Some(meeting)) = self.meeting.get() {
                        meeting.set_places(places, self.reached);
                    }
                    if let Some(relay) = &self.relay {
                        relay.give(0, bytes);
                    }
                    return Ok(Ok(peer_infos));
                }
                Some(FromCoordinator::Refused(refusal)) => return Err(self.refused(refusal)),
                Some(FromCoordinator::Fetch(0, source)) => match fetcher.take() {
                    Some(fetcher) => {
                        let fetched = fetcher.fetch(0, source);
                        let latest = self.deadline + EXTRA_WAIT / 2;
                        let late = |_| Err(io::ErrorKind::TimedOut.into());
                        fetching = Some(Box::pin(async move {
                            timeout_at(latest, fetched).await.unwrap_or_else(late)
                        }));
                    }
                    None => return Err(self.lost("it named two ranks that have the roster")),
                },
                // Ranks that have the roster may already have made calls, and failed.
                Some(FromCoordinator::Ask) => {
                    stream
                        .outgoing
                        .send(ToCoordinator::Answer(History::default()))
                        .unwrap_or_default();
                }
                Some(FromCoordinator::FailureCause(cause)) => {
                    let (rank, cause) = (self.rank, cause.to_string());
                    return Err(JoinError::Failed { rank, cause });
                }
                _ => return Err(self.lost("it sent an unexpected message")),
            }
        }
    }

    /// The coordinator's next message. The inner error means that the connection ended.
    async fn next_message(
        &self,
        stream: &mut ControlStream,
    ) -> Result<io::Result<Arc<[u8]>>, JoinError> {
        match timeout_at(self.deadline + EXTRA_WAIT, stream.incoming.recv()).await {
            Ok(Some(Incoming::Message(bytes))) => Ok(Ok(bytes)),
            Ok(Some(Incoming::Closed(Some(cause)))) => Ok(Err(cause)),
            Ok(Some(Incoming::Closed(None) | Incoming::Mark(_)) | None) => {
                Ok(Err(io::Error::other("it closed the connection")))
            }
            Err(_) => Err(self.lost("it sent nothing in time")),
        }
    }
}
