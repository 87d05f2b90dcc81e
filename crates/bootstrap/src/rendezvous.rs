//! Where is the hub? A launcher that starts ranks on several hosts cannot know which port is free
//! on rank 0's; so rank 0 picks one and tells the launcher, and the others ask.
//!
//! Rank 0 keeps its connection and reports on it, so that the launcher can say what went wrong in
//! the words of the verdict. The launcher itself takes no part in the job.

use std::net::SocketAddr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use crate::channel::{Greeting, Purpose};
use crate::gate::{Guest, Strangers, admit};
use crate::message::{decode, encode};
use crate::secret::Secret;
use crate::seek::Channel;

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
    /// Rank 0: the hub listens here; reports follow.
    Publish(SocketAddr),
    /// Any other: where does it listen? The answer is an address.
    Ask,
    Report(Report),
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
    let (admitted, mut guests) = mpsc::channel(size.clamp(1, 1024));
    let greeting = Greeting::new(Purpose::Rendezvous, job, size);
    let mut tasks = JoinSet::new();
    tasks.spawn(admit(listener, greeting, secret, Arc::new(Strangers::default()), admitted));
    let (publish, hub) = watch::channel(None);
    let publish = Arc::new(publish);
    while let Some(guest) = guests.recv().await {
        tasks.spawn(attend(guest, Arc::clone(&publish), hub.clone(), reports.clone()));
        // Those that are done are forgotten.
        while tasks.try_join_next().is_some() {}
    }
}

async fn attend(
    guest: Guest,
    publish: Arc<watch::Sender<Option<SocketAddr>>>,
    mut hub: watch::Receiver<Option<SocketAddr>>,
    reports: mpsc::UnboundedSender<Report>,
) {
    let Guest { mut reader, mut writer, from, first } = guest;
    match decode(&first) {
        Some(ToLauncher::Ask) => {
            // It may hang up while it waits; then there is nobody to tell.
            let known = tokio::select! {
                known = hub.wait_for(Option::is_some) => known.ok().and_then(|hub| *hub),
                _ = reader.next() => None,
            };
            if let Some(hub) = known
                && let Err(e) = writer.send(&encode(&hub)).await
            {
                tracing::debug!("cannot tell {from} where the hub is: {e}");
            }
        }
        Some(ToLauncher::Publish(hub)) => {
            let is_first = publish.send_if_modified(|known| {
                let is_first = known.is_none();
                known.get_or_insert(hub);
                is_first
            });
            if !is_first {
                tracing::warn!("a second rank 0, at {from}; the first one stays");
                return;
            }
            while let Ok(Some(bytes)) = reader.next().await {
                let Some(ToLauncher::Report(report)) = decode(&bytes) else { return };
                if reports.send(report).is_err() {
                    return;
                }
            }
        }
        Some(ToLauncher::Report(_)) | None => tracing::warn!("{from} makes no sense"),
    }
}

/// Rank 0's side: says where the hub listens; what is sent to the returned end is reported.
pub(crate) async fn publish(
    channel: Channel,
    hub: SocketAddr,
) -> std::io::Result<mpsc::UnboundedSender<Report>> {
    let Channel { mut writer, reader } = channel;
    writer.send(&encode(&ToLauncher::Publish(hub))).await?;
    let (report, mut reports) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        let _kept_open = reader;
        while let Some(report) = reports.recv().await {
            if writer.send(&encode(&ToLauncher::Report(report))).await.is_err() {
                return;
            }
        }
    });
    Ok(report)
}

/// The others' side: waits until the launcher knows where the hub listens.
pub(crate) async fn ask(mut channel: Channel) -> std::io::Result<SocketAddr> {
    channel.writer.send(&encode(&ToLauncher::Ask)).await?;
    let answer = channel.reader.next().await?;
    answer.and_then(|bytes| decode(&bytes)).ok_or_else(|| {
        std::io::Error::other("the launcher hung up before rank 0 had told it where it listens")
    })
}
