//! Long messages to all ranks travel down a tree: rank 0 sends them to the first `FAN_OUT` ranks,
//! each of those to as many others, and so on. Thus the bytes through rank 0 grow linearly with the
//! ranks. Up to `STAR_MAX` ranks, rank 0 sends them to all.
//!
//! A rank with children in the tree listens for them on its own port, where they authenticate as
//! they do at the coordinator. Rank 0 tells each child when to fetch a message there. A child that
//! does not get it in time asks rank 0 for it.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ringfold_types::{Rank, limits};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout, timeout_at};

use super::message::Source;
use crate::channel::acceptor::{Authenticated, accept};
use crate::channel::connect::{Channel, attempt};
use crate::channel::frames::{decode, encode};
use crate::channel::greeting::Greeting;
use crate::discover::secret::Secret;

/// How long a rank waits for a message from its parent before it asks rank 0.
const RELAY: Duration = Duration::from_secs(10);
/// How much longer it waits for each level between rank 0 and its parent. So after a parent that
/// does not answer, its children ask rank 0, and theirs need not.
const LEVEL: Duration = Duration::from_secs(1);

/// Ranks to which one rank forwards messages.
const FAN_OUT: usize = 8;
/// The most ranks to which rank 0 sends every message itself.
const STAR_MAX: usize = 33;
/// The most authenticated children that wait for their turn.
const WAITING_MAX: usize = 8;

/// A child's request to its parent for a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fetch {
    pub(crate) rank: u32,
    /// 0 for the roster, and n for the result of exchange n.
    pub(crate) number: u64,
}

const fn fan_out(size: usize) -> usize {
    if size <= STAR_MAX { size } else { FAN_OUT }
}

/// The ranks to which `rank` forwards messages, of `size`.
pub(crate) fn children(rank: Rank, size: usize) -> std::ops::Range<usize> {
    let first = rank.index() * fan_out(size) + 1;
    first.min(size)..(first + fan_out(size)).min(size)
}

/// The rank from which `rank` gets messages, of `size`; `rank` is not 0.
pub(crate) fn parent(rank: Rank, size: usize) -> Rank {
    Rank::at((rank.index() - 1) / fan_out(size))
}

/// The parent's address for a child, as the coordinator sees both: `child` and `parent` are the
/// addresses from which they connected.
pub(crate) fn address(child: IpAddr, parent: IpAddr) -> Option<IpAddr> {
    let (child, parent) = (child.to_canonical(), parent.to_canonical());
    // A loopback address of rank 0's host means another host to a child elsewhere.
    (!parent.is_loopback() || child.is_loopback()).then_some(parent)
}

/// A message, and its number as in `Fetch`.
type Numbered = (u64, Arc<[u8]>);

/// A port where children fetch messages. Dropping this closes it.
pub(crate) struct Relay {
    latest: watch::Sender<Option<Numbered>>,
    _tasks: JoinSet<()>,
}

impl Relay {
    /// Serves these children.
    pub(crate) fn serve(
        listener: TcpListener,
        greeting: Greeting,
        secret: Secret,
        children: std::ops::Range<usize>,
    ) -> Self {
        let (latest, given) = watch::channel(None);
        let mut tasks = JoinSet::new();
        let (admitted, peers) = mpsc::channel(WAITING_MAX);
        let shared = (greeting, secret);
        // A child whose connection broke may come twice.
        tasks.spawn(accept(2 * children.len(), listener, shared, Arc::default(), admitted));
        tasks.spawn(forward(peers, given, children));
        Self { latest, _tasks: tasks }
    }

    /// Gives a message to the children, which may forget the one before it.
    pub(crate) fn give(&self, number: u64, message: Arc<[u8]>) {
        self.latest.send_replace(Some((number, message)));
    }
}

async fn forward(
    mut peers: mpsc::Receiver<Authenticated>,
    latest: watch::Receiver<Option<Numbered>>,
    children: std::ops::Range<usize>,
) {
    // A child asks for one message at a time.
    let mut sending: BTreeMap<u32, JoinSet<()>> = BTreeMap::new();
    while let Some(Authenticated { channel, first, .. }) = peers.recv().await {
        let Channel { mut writer, mut reader, peer: from, .. } = channel;
        let fetch = decode::<Fetch>(&first).filter(|it| children.contains(&Rank(it.rank).index()));
        let Some(Fetch { rank, number }) = fetch else {
            tracing::warn!("{from} asks for a message and is no child of this rank");
            continue;
        };
        let mut latest = latest.clone();
        let mut task = JoinSet::new();
        task.spawn(async move {
            let is_there = |it: &Option<Numbered>| it.as_ref().is_some_and(|(at, _)| *at >= number);
            let known = tokio::select! {
                known = latest.wait_for(is_there) => known.ok().and_then(|known| known.clone()),
                // The child does not wait any more.
                _ = reader.next() => return,
            };
            let Some((_, message)) = known.filter(|(at, _)| *at == number) else { return };
            if let Err(e) = writer.send(&message).await {
                tracing::debug!("cannot send a message to rank {rank}: {e}");
            }
        });
        sending.insert(rank, task);
    }
}

/// A rank's place in the tree.
pub(crate) struct Branch {
    pub(crate) fetcher: Fetcher,
    /// Where its children fetch messages, if it has any.
    pub(crate) relay: Option<Relay>,
}

/// The means of a rank to fetch messages from its parent.
#[derive(Clone, Debug)]
pub(crate) struct Fetcher {
    pub(crate) rank: Rank,
    pub(crate) size: usize,
    /// The address at which the rank reached rank 0.
    pub(crate) coordinator: IpAddr,
    pub(crate) greeting: Greeting,
    pub(crate) secret: Secret,
}

impl Fetcher {
    /// Gets the message of this number from a parent. Takes at most `RELAY` and some levels.
    ///
    /// # Errors
    /// The parent cannot be reached, or does not have the message in time.
    pub(crate) async fn fetch(self, number: u64, from: Source) -> io::Result<Vec<u8>> {
        let at = SocketAddr::new(from.ip.unwrap_or(self.coordinator), from.port);
        let late = |_| Err(io::ErrorKind::TimedOut.into());
        let fetched = async {
            let bound = Duration::from_millis(limits::HANDSHAKE_MS);
            let channel = timeout(bound, attempt(at, &self.greeting, &self.secret)).await;
            let channel = channel.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?;
            let mut channel = channel.map_err(io::Error::other)?;
            channel.writer.send(&encode(&Fetch { rank: self.rank.0, number })).await?;
            channel.reader.next().await?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
        };
        timeout_at(Instant::now() + self.limit(), fetched).await.unwrap_or_else(late)
    }

    fn limit(&self) -> Duration {
        let above = |rank: &Rank| (*rank != Rank(0)).then(|| parent(*rank, self.size));
        let levels = std::iter::successors(Some(parent(self.rank, self.size)), above).skip(1);
        levels.fold(RELAY, |limit, _| limit + LEVEL)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::greeting::Purpose;

    #[test]
    fn the_tree_reaches_every_rank_once() {
        for size in [1, 2, 9, 33, 34, 35, 73, 74, 1057, 1058, limits::RANKS_MAX] {
            let mut reached = vec![0; size];
            for rank in 0..size {
                for child in children(Rank::at(rank), size) {
                    assert_eq!(parent(Rank::at(child), size).index(), rank);
                    assert!(child > rank, "a parent has the roster before its children");
                    reached[child] += 1;
                }
            }
            assert!(reached[1..].iter().all(|count| *count == 1), "{size} ranks");
            assert!((1..size).all(|rank| size > 33 || children(Rank::at(rank), size).is_empty()));
        }
    }

    #[test]
    fn children_wait_for_longer_than_their_parents() {
        let limit = |rank| {
            let greeting = Greeting::new(Purpose::Relay, "test", 600);
            let (coordinator, secret) = ([127, 0, 0, 1].into(), Secret::new([1; 32]));
            Fetcher { rank: Rank(rank), size: 600, coordinator, greeting, secret }.limit()
        };
        assert_eq!([limit(9), limit(72)], [RELAY + LEVEL; 2]);
        assert_eq!(
            [limit(73), limit(584), limit(585)].map(|it| it - RELAY),
            [2, 2, 3].map(|n| n * LEVEL)
        );
    }

    #[test]
    fn a_relay_serves_its_children_alone_and_each_message_once_it_is_there() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = crate::channel::socket::listen(&[[127, 0, 0, 1].into()], &[0]).unwrap();
            let at = listener.local_addr().unwrap();
            let (greeting, secret) =
                (Greeting::new(Purpose::Relay, "test", 100), Secret::new([1; 32]));
            let children = children(Rank(1), 100);
            let relay = Relay::serve(listener, greeting.clone(), secret.clone(), children);
            let fetch = |rank, number| {
                let (greeting, secret) = (greeting.clone(), secret.clone());
                let (rank, coordinator) = (Rank(rank), at.ip());
                let fetcher = Fetcher { rank, size: 100, coordinator, greeting, secret };
                tokio::spawn(fetcher.fetch(number, Source { rank: 1, ip: None, port: at.port() }))
            };
            let early = [9, 16].map(|rank| fetch(rank, 0));
            relay.give(0, Arc::from([7]));
            for early in early {
                assert_eq!(early.await.unwrap().unwrap(), [7]);
            }
            let (behind, next) = (fetch(10, 1), fetch(9, 2));
            relay.give(2, Arc::from([8]));
            assert_eq!(next.await.unwrap().unwrap(), [8]);
            assert!(behind.await.unwrap().is_err(), "the relay has another message");
            assert!(fetch(17, 2).await.unwrap().is_err(), "it is the child of another rank");
            drop(relay);
            let closed = async { while tokio::net::TcpStream::connect(at).await.is_ok() {} };
            assert!(timeout(RELAY, closed).await.is_ok(), "the port is still open");
        });
    }

    #[test]
    fn parents_on_the_coordinator_s_host_have_its_address() {
        let [here, mapped] = ["127.0.0.1", "::ffff:127.0.0.1"].map(|ip| ip.parse().unwrap());
        let [one, two] = ["10.0.0.1", "10.0.0.2"].map(|ip| ip.parse().unwrap());
        assert_eq!(address(one, two), Some(two));
        assert_eq!(address(one, here), None);
        assert_eq!(address(one, mapped), None);
        assert_eq!(address(mapped, here), Some(here));
        assert_eq!(address(here, two), Some(two));
    }
}
