//! Where is the hub? A launcher that starts ranks on several hosts cannot know which port is free
//! on rank 0's; so rank 0 picks one and tells the launcher, and the others ask.
//!
//! A job may meet again: each time a rank makes a communicator, in the same process or in the next
//! program of its script, there is a new hub. `board` says which one an asker is meant to go to.
//!
//! Rank 0 keeps its connection and reports on it, so that the launcher can say what went wrong in
//! the words of the verdict. The launcher itself takes no part in the job.

use std::net::SocketAddr;
use std::sync::Arc;

use ringfold_types::limits;
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::acceptor::{Member as Guest, accept};
use crate::channel::{Greeting, Purpose};
use crate::descriptors::{TooFew, provide};
use crate::dial::Channel;
use crate::message::{decode, encode};
use crate::secret::Secret;
use crate::turned_away::TurnedAway;
use board::Board;

mod board;

/// What rank 0 reports to the launcher in the course of the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Report {
    /// Every rank has joined.
    Joined,
    /// A rank has said goodbye.
    Left {
        /// Its number.
        rank: u32,
    },
    /// The job has failed.
    Verdict {
        /// The verdict in words.
        text: String,
        /// The ranks it points at.
        culprits: Vec<u32>,
    },
}

/// What a rank says to the launcher.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum ToLauncher {
    /// Rank 0: a hub listens here; reports follow, and with the connection the hub ends.
    Publish(SocketAddr),
    /// Any other, by its number: where does the next one listen?
    Ask(u32),
    Report(Report),
}

/// What the launcher answers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum FromLauncher {
    /// The others are told.
    Published,
    /// Too many hubs are there already.
    Full,
    /// The hub listens here.
    Hub(SocketAddr),
}

/// Answers the ranks of `job` for as long as it is polled; what rank 0 reports goes to `reports`.
/// Strangers on the port are turned away. Needs a tokio runtime with net and time.
pub async fn serve(
    listener: TcpListener,
    secret: Secret,
    job: &str,
    size: usize,
    reports: mpsc::UnboundedSender<Report>,
) {
    if let Err(TooFew { needed, limit }) = provide(size) {
        tracing::warn!(
            "{needed} file descriptors are needed for {size} ranks, and the hard limit is {limit} \
             (RLIMIT_NOFILE): raise it, as by `ulimit -Hn {needed}`"
        );
    }
    let (admitted, mut guests) = mpsc::channel(size.clamp(1, 1024));
    let greeting = Greeting::new(Purpose::Rendezvous, job, size);
    let mut tasks = JoinSet::new();
    tasks.spawn(accept(listener, greeting, secret, Arc::new(TurnedAway::default()), admitted));
    let (board, _) = watch::channel(Board::new(size));
    let board = Arc::new(board);
    while let Some(guest) = guests.recv().await {
        tasks.spawn(attend(guest, Arc::clone(&board), reports.clone()));
        // Those that are done are forgotten.
        while tasks.try_join_next().is_some() {}
    }
}

async fn attend(
    guest: Guest,
    board: Arc<watch::Sender<Board>>,
    reports: mpsc::UnboundedSender<Report>,
) {
    let from = guest.from;
    let done = match decode(&guest.first) {
        Some(ToLauncher::Ask(rank)) if board.borrow().knows(rank) => {
            lead(guest, rank, &board).await
        }
        Some(ToLauncher::Publish(hub)) => host(guest, hub, &board, &reports).await,
        Some(ToLauncher::Ask(_) | ToLauncher::Report(_)) | None => {
            return tracing::warn!("{from} makes no sense");
        }
    };
    if let Err(e) = done {
        tracing::debug!("cannot answer {from}: {e}");
    }
}

/// Tells a rank where its next hub is, once there is one.
async fn lead(guest: Guest, rank: u32, board: &watch::Sender<Board>) -> std::io::Result<()> {
    let Guest { mut reader, mut writer, .. } = guest;
    let mut changes = board.subscribe();
    loop {
        // It may hang up while it waits; then there is nobody to tell, and nothing is taken.
        tokio::select! {
            known = changes.wait_for(|board| board.has_next(rank)) => drop(known),
            _ = reader.next() => return Ok(()),
        }
        let mut hub = None;
        board.send_if_modified(|board| {
            hub = board.take_next(rank);
            false
        });
        // It may be gone again, or another thread of that rank was faster.
        if let Some(hub) = hub {
            return writer.send(&encode(&FromLauncher::Hub(hub))).await;
        }
    }
}

/// Lets the others find rank 0's hub, and listens to rank 0, until it hangs up.
async fn host(
    guest: Guest,
    hub: SocketAddr,
    board: &watch::Sender<Board>,
    reports: &mpsc::UnboundedSender<Report>,
) -> std::io::Result<()> {
    let Guest { mut reader, mut writer, from, .. } = guest;
    let mut number = None;
    board.send_if_modified(|board| {
        number = board.open(hub);
        number.is_some()
    });
    let Some(number) = number else {
        tracing::warn!("no room for the hub at {from}: {} are there", limits::HUBS_MAX);
        return writer.send(&encode(&FromLauncher::Full)).await;
    };
    let heard = async {
        writer.send(&encode(&FromLauncher::Published)).await?;
        while let Some(bytes) = reader.next().await? {
            let Some(ToLauncher::Report(report)) = decode(&bytes) else { break };
            if reports.send(report).is_err() {
                break;
            }
        }
        Ok(())
    };
    let heard = heard.await;
    board.send_modify(|board| board.close(number));
    heard
}

/// Rank 0's side: says where the hub listens; what is sent to the returned end is reported. `None`
/// if the launcher takes no more hubs.
pub(crate) async fn publish(
    channel: Channel,
    hub: SocketAddr,
) -> std::io::Result<Option<mpsc::UnboundedSender<Report>>> {
    let Channel { mut writer, mut reader, .. } = channel;
    writer.send(&encode(&ToLauncher::Publish(hub))).await?;
    match reader.next().await?.and_then(|bytes| decode(&bytes)) {
        Some(FromLauncher::Published) => {}
        Some(FromLauncher::Full) => return Ok(None),
        Some(FromLauncher::Hub(_)) | None => {
            return Err(std::io::Error::other("the launcher did not take rank 0's address"));
        }
    }
    let (report, mut reports) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let _kept_open = reader;
        while let Some(report) = reports.recv().await {
            if writer.send(&encode(&ToLauncher::Report(report))).await.is_err() {
                return;
            }
        }
    });
    Ok(Some(report))
}

/// The others' side: waits until the launcher knows where the hub listens.
pub(crate) async fn ask(mut channel: Channel, rank: u32) -> std::io::Result<SocketAddr> {
    channel.writer.send(&encode(&ToLauncher::Ask(rank))).await?;
    match channel.reader.next().await?.and_then(|bytes| decode(&bytes)) {
        Some(FromLauncher::Hub(hub)) => Ok(hub),
        _ => Err(std::io::Error::other(
            "the launcher hung up before rank 0 had told it where it listens",
        )),
    }
}
