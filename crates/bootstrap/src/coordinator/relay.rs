//! The roster travels down a tree: rank 0 sends it to the first `FAN_OUT` ranks,
//! each of those to as many others, and so on. Thus the bytes through rank 0 grow linearly with the
//! ranks. Up to 33 ranks, rank 0 sends it to all.
//!
//! A rank with children in the tree listens for them on its own port, where they authenticate as
//! they do at the coordinator. A child that does not get the roster there in time asks rank 0 for
//! it.

use std::collections::BTreeSet;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ringfold_types::{Rank, limits};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use crate::channel::acceptor::{Authenticated, accept};
use crate::channel::connect::{Channel, attempt};
use crate::channel::frames::{decode, encode};
use crate::channel::greeting::Greeting;
use crate::discover::secret::Secret;

/// How long a rank waits for the roster from its parent before it asks rank 0.
const RELAY: Duration = Duration::from_secs(10);

/// Ranks to which one rank forwards the roster.
const FAN_OUT: usize = 32;
/// The most authenticated children that wait for their turn.
const WAITING_MAX: usize = 8;

/// A child's request to its parent for the roster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fetch {
    pub(crate) rank: u32,
}

/// The ranks to which `rank` forwards the roster, of `size`.
pub(crate) fn children(rank: Rank, size: usize) -> std::ops::Range<usize> {
    let first = rank.index() * FAN_OUT + 1;
    first.min(size)..(first + FAN_OUT).min(size)
}

/// The rank from which `rank` gets the roster; `rank` is not 0.
pub(crate) fn parent(rank: Rank) -> Rank {
    Rank::at((rank.index() - 1) / FAN_OUT)
}

/// The parent's address for a child, as the coordinator sees both: `child` and `parent` are the
/// addresses from which they connected.
pub(crate) fn address(child: IpAddr, parent: IpAddr) -> Option<IpAddr> {
    let (child, parent) = (child.to_canonical(), parent.to_canonical());
    // A loopback address of rank 0's host means another host to a child elsewhere.
    (!parent.is_loopback() || child.is_loopback()).then_some(parent)
}

/// A port where children ask for the roster. Dropping this closes it.
pub(crate) struct Relay {
    roster: watch::Sender<Option<Arc<[u8]>>>,
    _tasks: JoinSet<()>,
}

impl Relay {
    /// Serves the children until each has the roster, `deadline` has passed, or this rank has had
    /// the roster for `RELAY`. Children that come later ask rank 0.
    pub(crate) fn serve(
        listener: TcpListener,
        greeting: Greeting,
        secret: Secret,
        children: std::ops::Range<usize>,
        deadline: Instant,
    ) -> Self {
        let (roster, given) = watch::channel(None);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let (admitted, peers) = mpsc::channel(WAITING_MAX);
            let missing = children.map(|rank| Rank::at(rank).0).collect();
            let shared = (greeting, secret);
            let acceptor = accept(2 * FAN_OUT, listener, shared, Arc::default(), admitted);
            let over = is_over(given.clone());
            let served = async { tokio::join!(acceptor, forward(peers, given, missing)) };
            let is_served = tokio::select! {
                served = timeout_at(deadline, served) => served.is_ok(),
                () = over => false,
            };
            if !is_served {
                tracing::debug!("not every child fetched the roster");
            }
        });
        Self { roster, _tasks: tasks }
    }

    /// Gives the roster, as a message, to the children.
    pub(crate) fn give(&self, roster: Arc<[u8]>) {
        self.roster.send_replace(Some(roster));
    }
}

/// Returns when no child waits for the roster any more.
async fn is_over(mut given: watch::Receiver<Option<Arc<[u8]>>>) {
    if given.wait_for(Option::is_some).await.is_ok() {
        sleep(RELAY).await;
    }
}

async fn forward(
    mut peers: mpsc::Receiver<Authenticated>,
    given: watch::Receiver<Option<Arc<[u8]>>>,
    mut missing: BTreeSet<u32>,
) {
    let mut sending = JoinSet::new();
    while !missing.is_empty() || !sending.is_empty() {
        tokio::select! {
            Some(Authenticated { channel, first, .. }) = peers.recv(), if !missing.is_empty() => {
                let Channel { mut writer, reader, peer: from, .. } = channel;
                let child = decode::<Fetch>(&first).map(|fetch| fetch.rank);
                // A child that lost its connection asks rank 0, so no child comes twice.
                let Some(child) = child.filter(|rank| missing.remove(rank)) else {
                    tracing::warn!("{from} asks for the roster and is no child of this rank");
                    continue;
                };
                let mut given = given.clone();
                sending.spawn(async move {
                    let _kept_open = reader;
                    let known = given.wait_for(Option::is_some).await;
                    let Some(roster) = known.ok().and_then(|known| known.clone()) else { return };
                    if let Err(e) = writer.send(&roster).await {
                        tracing::debug!("cannot send the roster to rank {child}: {e}");
                    }
                });
            }
            Some(_) = sending.join_next() => {}
        }
    }
}

/// Gets the roster for `rank` from a parent, as a message. Takes at most `RELAY`, and
/// ends before `latest`.
///
/// # Errors
/// The parent cannot be reached, or does not have the roster in time.
pub(crate) async fn fetch(
    rank: Rank,
    at: SocketAddr,
    (greeting, secret): (&Greeting, &Secret),
    latest: Instant,
) -> io::Result<Vec<u8>> {
    let late = |_| Err(io::ErrorKind::TimedOut.into());
    let fetched = async {
        let bound = Duration::from_millis(limits::HANDSHAKE_MS);
        let channel = timeout(bound, attempt(at, greeting, secret)).await;
        let channel = channel.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?;
        let mut channel = channel.map_err(io::Error::other)?;
        channel.writer.send(&encode(&Fetch { rank: rank.0 })).await?;
        channel.reader.next().await?.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    };
    let until = (Instant::now() + RELAY).min(latest);
    timeout_at(until, fetched).await.unwrap_or_else(late)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tree_reaches_every_rank_once() {
        for size in [1, 2, 33, 34, 35, 1057, 1058, limits::RANKS_MAX] {
            let mut reached = vec![0; size];
            for rank in 0..size {
                for child in children(Rank::at(rank), size) {
                    assert_eq!(parent(Rank::at(child)).index(), rank);
                    assert!(child > rank, "a parent has the roster before its children");
                    reached[child] += 1;
                }
            }
            assert!(reached[1..].iter().all(|count| *count == 1), "{size} ranks");
            assert!((1..size).all(|rank| size > 33 || children(Rank::at(rank), size).is_empty()));
        }
    }

    #[test]
    fn a_relay_whose_children_do_not_come_closes_its_port() {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = crate::channel::socket::listen(&[[127, 0, 0, 1].into()], &[0]).unwrap();
            let at = listener.local_addr().unwrap();
            let greeting = Greeting::new(crate::channel::greeting::Purpose::Relay, "test", 100);
            let far = 100 * RELAY;
            let (secret, children) = (Secret::new([1; 32]), children(Rank(1), 100));
            let until = Instant::now() + far;
            let relay = Relay::serve(listener, greeting, secret, children, until);
            relay.give(Arc::from([1]));
            let closed = async {
                while tokio::net::TcpStream::connect(at).await.is_ok() {
                    sleep(Duration::from_millis(200)).await;
                }
            };
            assert!(timeout(far / 10, closed).await.is_ok(), "the port is still open");
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
