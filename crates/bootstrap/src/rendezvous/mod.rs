//! The rendezvous at the launcher. A launcher that starts ranks on several hosts cannot know which
//! port is free on rank 0's host. So rank 0 picks a port and tells the launcher, and the other
//! ranks ask the launcher.
//!
//! A job may meet again: each time a rank makes a communicator, in the same process or in the next
//! program of its script, there is a new coordinator. `registry` assigns one to each rank that
//! asks.
//!
//! A launcher that starts processes in place of dead ranks also knows the door of the newest group
//! (`sign`), and newcomers ask for it. After a failure it has a vote of its own, which decides
//! between two halves of the ranks.
//!
//! Rank 0 keeps its connection and reports on it, so that the launcher can print the failure cause.
//! The launcher itself takes no part in the job.

use std::net::SocketAddr;
use std::sync::Arc;

use ringfold_types::limits;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::channel::acceptor::{Authenticated, accept};
use crate::channel::connect::Channel;
use crate::channel::descriptors::{TooFew, provide};
use crate::channel::frames::{decode, encode};
use crate::channel::greeting::{Greeting, Purpose};
use crate::discover::secret::Secret;
pub use registry::Ended;
use registry::Registry;

pub(crate) mod registry;
pub(crate) mod sign;

/// Bytes of the text of a door, which is a unique id.
const DOOR_BYTES_MAX: usize = 256;

/// A report of rank 0 to the launcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Report {
    /// Every rank has joined.
    Joined,
    /// A rank has left the job.
    Left {
        /// The number of the rank.
        rank: u32,
    },
    /// The job has failed.
    FailureCause {
        /// The failure cause as text.
        text: String,
        /// The ranks that the failure cause names as culprits.
        culprits: Vec<u32>,
    },
}

/// A message from a rank to the launcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToLauncher {
    /// From rank 0: a coordinator listens at this address. Reports follow. When the connection
    /// ends, so does the coordinator.
    Publish(SocketAddr),
    /// From another rank, with its number: asks for the address of its next coordinator.
    Ask(u32),
    Report(Report),
    /// From rank 0 of a group that takes newcomers: its door has this text. When the connection
    /// ends, the door is closed.
    Door(String),
    /// From a newcomer, with its number: asks for a door.
    Seek(u32),
    /// From half of the ranks of a group: asks for the launcher's vote. Both are digests.
    Vote {
        group: [u8; 32],
        members: [u8; 32],
    },
}

/// An answer of the launcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FromLauncher {
    /// The launcher tells the address to the other ranks.
    Published,
    /// There are too many coordinators already.
    Full,
    /// The coordinator listens at this address.
    Coordinator(SocketAddr),
    /// The program of a rank has ended.
    Ended(Ended),
    /// The newest group has this door.
    Door(String),
    /// All ranks have ended, or are newcomers that ask for a door.
    NobodyLeft,
    /// Whether these members have the launcher's vote.
    Vote(bool),
}

/// Answers the ranks of `job` for as long as it is polled, and sends rank 0's reports to `reports`.
/// Ranks that wait for a rank of `ended` stop waiting. Rejects unauthenticated peers. Needs a tokio
/// runtime with net and time.
pub async fn serve(
    listener: TcpListener,
    secret: Secret,
    job: &str,
    size: usize,
    reports: mpsc::UnboundedSender<Report>,
    mut ended: mpsc::UnboundedReceiver<Ended>,
) {
    if let Err(TooFew { needed, limit }) = provide(size) {
        tracing::warn!(
            "{needed} file descriptors are needed for {size} ranks, and the hard limit is {limit} \
             (RLIMIT_NOFILE): raise it, as by `ulimit -Hn {needed}`"
        );
    }
    let (admitted, mut peers) = mpsc::channel(size.clamp(1, 1024));
    let greeting = Greeting::new(Purpose::Rendezvous, job, size);
    let mut tasks = JoinSet::new();
    let (slots, shared) = (limits::HANDSHAKES_MAX, (greeting, secret));
    tasks.spawn(accept(slots, listener, shared, Arc::default(), admitted));
    let (registry, _) = watch::channel(Registry::new(size));
    let registry = Arc::new(registry);
    loop {
        tokio::select! {
            Some(peer) = peers.recv() => {
                tasks.spawn(serve_peer(peer, Arc::clone(&registry), reports.clone()));
            }
            Some(ended) = ended.recv() => registry.send_modify(|registry| registry.end(ended)),
            else => return,
        }
        // Forgets finished tasks.
        while tasks.try_join_next().is_some() {}
    }
}

async fn serve_peer(
    peer: Authenticated,
    registry: Arc<watch::Sender<Registry>>,
    reports: mpsc::UnboundedSender<Report>,
) {
    let Authenticated { channel, first, .. } = peer;
    let from = channel.peer;
    let done = match decode(&first) {
        Some(ToLauncher::Ask(rank)) if registry.borrow().knows(rank) => {
            answer(channel, rank, &registry).await
        }
        Some(ToLauncher::Publish(coordinator)) => {
            serve_coordinator(channel, coordinator, &registry, &reports).await
        }
        Some(ToLauncher::Door(door)) if door.len() <= DOOR_BYTES_MAX => {
            keep_door(channel, door, &registry).await
        }
        Some(ToLauncher::Seek(rank)) if registry.borrow().is_rank(rank) => {
            guide(channel, rank, &registry).await
        }
        Some(ToLauncher::Vote { group, members }) => {
            let (mut is_given, mut writer) = (false, channel.writer);
            registry.send_if_modified(|registry| {
                is_given = registry.vote(group, members);
                false
            });
            writer.send(&encode(&FromLauncher::Vote(is_given))).await
        }
        Some(_) | None => {
            return tracing::warn!("{from} sent an invalid message");
        }
    };
    if let Err(e) = done {
        tracing::debug!("cannot answer {from}: {e}");
    }
}

/// Tells a rank the address of its next coordinator, once there is one.
async fn answer(
    channel: Channel,
    rank: u32,
    registry: &watch::Sender<Registry>,
) -> std::io::Result<()> {
    let Channel { mut reader, mut writer, .. } = channel;
    let mut changes = registry.subscribe();
    loop {
        // If the rank closes the connection while it waits, no coordinator is assigned.
        tokio::select! {
            known = changes.wait_for(|it| it.has_news(rank)) => drop(known),
            _ = reader.next() => return Ok(()),
        }
        let (mut coordinator, mut ended) = (None, None);
        registry.send_if_modified(|registry| {
            coordinator = registry.take_next(rank);
            ended = registry.ended(0);
            false
        });
        // The coordinator may be gone again, or another thread of that rank was faster.
        let answer = coordinator.map(FromLauncher::Coordinator);
        if let Some(answer) = answer.or_else(|| ended.map(FromLauncher::Ended)) {
            return writer.send(&encode(&answer)).await;
        }
    }
}

/// Shows a door to newcomers until the connection ends.
async fn keep_door(
    channel: Channel,
    door: String,
    registry: &watch::Sender<Registry>,
) -> std::io::Result<()> {
    let Channel { mut reader, mut writer, .. } = channel;
    let mut number = 0;
    registry.send_modify(|registry| number = registry.show(door));
    let published = writer.send(&encode(&FromLauncher::Published)).await;
    if published.is_ok() {
        reader.next().await.unwrap_or_default();
    }
    registry.send_modify(|registry| registry.take_down(number));
    published
}

/// Tells a newcomer the door, once there is one, or that nobody can open one any more.
async fn guide(
    channel: Channel,
    rank: u32,
    registry: &watch::Sender<Registry>,
) -> std::io::Result<()> {
    let Channel { mut reader, mut writer, .. } = channel;
    let mut changes = registry.subscribe();
    registry.send_modify(|registry| registry.seek(rank));
    let answer = tokio::select! {
        known = changes.wait_for(|it| it.door().is_some() || it.is_abandoned()) => {
            known.ok().map(|it| it.door().map_or(FromLauncher::NobodyLeft, FromLauncher::Door))
        }
        _ = reader.next() => None,
    };
    registry.send_modify(|registry| registry.found(rank, answer.is_some()));
    let Some(answer) = answer else { return Ok(()) };
    writer.send(&encode(&answer)).await
}

/// Registers rank 0's coordinator and receives rank 0's reports, until rank 0 closes the
/// connection.
async fn serve_coordinator(
    channel: Channel,
    coordinator: SocketAddr,
    registry: &watch::Sender<Registry>,
    reports: &mpsc::UnboundedSender<Report>,
) -> std::io::Result<()> {
    let Channel { mut reader, mut writer, peer: from, .. } = channel;
    let mut number = None;
    registry.send_if_modified(|registry| {
        number = registry.open(coordinator);
        number.is_some()
    });
    let Some(number) = number else {
        tracing::warn!(
            "refused a coordinator from {from}: the limit is {}",
            limits::COORDINATORS_MAX
        );
        return writer.send(&encode(&FromLauncher::Full)).await;
    };
    let mut changes = registry.subscribe();
    changes.mark_changed();
    let heard = async {
        writer.send(&encode(&FromLauncher::Published)).await?;
        let mut told = 0;
        loop {
            tokio::select! {
                bytes = reader.next() => {
                    let Some(bytes) = bytes? else { return Ok(()) };
                    let Some(ToLauncher::Report(report)) = decode(&bytes) else { return Ok(()) };
                    if reports.send(report).is_err() {
                        return Ok(());
                    }
                }
                Ok(()) = changes.changed() => {
                    let news = changes.borrow_and_update().all_ended()[told..].to_vec();
                    told += news.len();
                    for ended in news {
                        writer.send(&encode(&FromLauncher::Ended(ended))).await?;
                    }
                }
            }
        }
    };
    let heard = heard.await;
    registry.send_modify(|registry| registry.close(number));
    heard
}

/// The connection of a coordinator to the launcher.
pub(crate) struct LauncherLink {
    pub(crate) reports: mpsc::UnboundedSender<Report>,
    /// The ranks whose programs have ended.
    pub(crate) ended: mpsc::UnboundedReceiver<Ended>,
}

/// Rank 0's side: publishes the coordinator's address. Returns `None` if the launcher accepts no
/// more coordinators.
pub(crate) async fn publish(
    channel: Channel,
    coordinator: SocketAddr,
) -> std::io::Result<Option<LauncherLink>> {
    let Channel { mut writer, mut reader, .. } = channel;
    writer.send(&encode(&ToLauncher::Publish(coordinator))).await?;
    match reader.next().await?.and_then(|bytes| decode(&bytes)) {
        Some(FromLauncher::Published) => {}
        Some(FromLauncher::Full) => return Ok(None),
        Some(_) | None => {
            return Err(std::io::Error::other("the launcher did not accept rank 0's address"));
        }
    }
    let (report, mut reports) = mpsc::unbounded_channel();
    let (tell, ended) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let mut is_open = true;
        loop {
            tokio::select! {
                report = reports.recv() => {
                    let Some(report) = report else { return };
                    if writer.send(&encode(&ToLauncher::Report(report))).await.is_err() {
                        return;
                    }
                }
                news = reader.next(), if is_open => match news {
                    Ok(Some(bytes)) => {
                        if let Some(FromLauncher::Ended(ended)) = decode(&bytes) {
                            // After rank 0 has left, nobody wants to know.
                            tell.send(ended).unwrap_or_default();
                        }
                    }
                    Ok(None) | Err(_) => is_open = false,
                },
            }
        }
    });
    Ok(Some(LauncherLink { reports: report, ended }))
}

/// The other ranks' side: waits until the launcher knows the coordinator's address. The inner error
/// is rank 0's end.
pub(crate) async fn ask(
    mut channel: Channel,
    rank: u32,
) -> std::io::Result<Result<SocketAddr, Ended>> {
    channel.writer.send(&encode(&ToLauncher::Ask(rank))).await?;
    match channel.reader.next().await?.and_then(|bytes| decode(&bytes)) {
        Some(FromLauncher::Coordinator(coordinator)) => Ok(Ok(coordinator)),
        Some(FromLauncher::Ended(ended)) => Ok(Err(ended)),
        _ => Err(std::io::Error::other(
            "the launcher closed the connection before rank 0 had published its address",
        )),
    }
}
