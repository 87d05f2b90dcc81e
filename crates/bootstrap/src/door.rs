//! The door of a group: newcomers wait there until the group admits them.
//!
//! Rank 0 of the group opens the door, and newcomers knock. Both have the door's secret. A newcomer
//! that is admitted learns where the larger group meets, and the fresh secret of that group. So one
//! that comes too late cannot enter.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc as std_mpsc};
use std::time::{Duration, Instant};

use ringfold_types::limits;
use serde::{Deserialize, Serialize};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::channel::acceptor::{Authenticated, accept};
use crate::channel::connect::{Channel, attempt};
use crate::channel::frames::{decode, encode};
use crate::channel::greeting::{Greeting, HandshakeError, Purpose};
use crate::channel::socket;
use crate::control::runtime::ControlRuntime;
use crate::discover::secret::Secret;

/// Authenticated newcomers that wait for the control thread.
const WAITING_MAX: usize = 64;

/// The time between two looks at a group that may have failed.
const LOOK: Duration = Duration::from_millis(20);

/// The pause before a newcomer knocks again.
const PAUSE: Duration = Duration::from_millis(20);

/// Bytes of a message at the door: a rank, a size, an address and a secret.
const BYTES_MAX: usize = 96;

/// The first message of a newcomer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
enum Knock {
    Enter,
}

/// The larger group, for one of its members.
#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Admission {
    /// The rank of the newcomer. An old rank keeps its number.
    pub rank: u32,
    /// The number of ranks.
    pub size: u32,
    /// Where rank 0 listens for the others.
    pub address: SocketAddr,
    /// The secret of the group, which only its members know.
    pub key: [u8; 32],
}

impl Admission {
    /// Whether the rank is below the size, and the size is one that a group may have.
    #[must_use]
    pub const fn is_possible(&self) -> bool {
        self.rank < self.size && self.size as usize <= limits::RANKS_MAX
    }
}

impl fmt::Debug for Admission {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, size, address, .. } = self;
        write!(f, "Admission({rank} of {size} at {address})")
    }
}

/// Why a newcomer was not admitted.
#[derive(Debug, thiserror::Error)]
#[error("the group at {address} did not admit this process within {timeout:?}: {cause}")]
pub struct NotAdmitted {
    /// The address of the door.
    pub address: SocketAddr,
    /// The time for which this process has waited.
    pub timeout: Duration,
    /// The last cause.
    pub cause: String,
}

/// An open door. Dropping it closes it, and newcomers that wait learn of that.
#[derive(Debug)]
pub struct Door {
    waiting: Arc<Waiting>,
    _stays: oneshot::Sender<()>,
    _runtime: Arc<ControlRuntime>,
}

#[derive(Debug, Default)]
struct Waiting {
    present: Mutex<Present>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Present {
    last: u64,
    /// The newcomers that have not been admitted, in the order in which they came.
    newcomers: BTreeMap<u64, oneshot::Sender<Admission>>,
}

fn greeting() -> Greeting {
    Greeting::new(Purpose::Door, "door", 0)
}

impl Door {
    /// Opens the door at a socket that listens and does not block.
    ///
    /// # Errors
    /// The system refuses a thread.
    pub fn open(listener: std::net::TcpListener, secret: Secret) -> io::Result<Self> {
        let runtime = ControlRuntime::shared()?;
        let (stays, closed) = oneshot::channel();
        let waiting = Arc::new(Waiting::default());
        let ours = Arc::clone(&waiting);
        runtime.spawn(async move {
            tokio::select! {
                served = serve(listener, secret, ours) => {
                    served.unwrap_or_else(|e| tracing::warn!("no newcomer can come: {e}"));
                }
                _ = closed => {}
            }
        });
        Ok(Self { waiting, _stays: stays, _runtime: runtime })
    }

    /// Waits until `most` newcomers wait, or the time is over, or `is_over` says so. Returns how
    /// many wait, at most `most`. Blocks.
    #[must_use]
    pub fn wait(&self, most: usize, timeout: Duration, is_over: impl Fn() -> bool) -> usize {
        let began = Instant::now();
        let mut present = self.waiting.present();
        loop {
            let waiting = present.newcomers.len().min(most);
            if waiting == most || began.elapsed() >= timeout || is_over() {
                return waiting;
            }
            let woken = self.waiting.changed.wait_timeout(present, LOOK);
            present = woken.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Admits so many newcomers, with ranks from that of `first` on. Does not block.
    pub fn admit(&self, count: usize, first: Admission) {
        let mut present = self.waiting.present();
        for rank in (first.rank..).take(count) {
            let Some((_, newcomer)) = present.newcomers.pop_first() else { return };
            // One that has just gone is missed when the group meets.
            newcomer.send(Admission { rank, ..first }).unwrap_or_default();
        }
    }
}

impl Waiting {
    fn present(&self) -> MutexGuard<'_, Present> {
        self.present.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps one newcomer until it goes.
    async fn keep(&self, channel: Channel) {
        let Channel { mut reader, mut writer, .. } = channel;
        reader.set_bytes_max(BYTES_MAX);
        let (tell, told) = oneshot::channel();
        let number = {
            let mut present = self.present();
            if present.newcomers.len() >= limits::RANKS_MAX {
                return;
            }
            present.last += 1;
            let number = present.last;
            present.newcomers.insert(number, tell);
            number
        };
        self.changed.notify_all();
        tokio::select! {
            // It says nothing more, so it has gone.
            _ = reader.next() => {}
            Ok(admission) = told => {
                if writer.send(&encode(&admission)).await.is_ok() {
                    reader.next().await.unwrap_or_default();
                }
            }
        }
        self.present().newcomers.remove(&number);
    }
}

async fn serve(
    listener: std::net::TcpListener,
    secret: Secret,
    waiting: Arc<Waiting>,
) -> io::Result<()> {
    let listener = socket::serve(listener)?;
    let (admitted, mut peers) = mpsc::channel(WAITING_MAX);
    let shared = (greeting(), secret);
    let accepting = accept(limits::HANDSHAKES_MAX, listener, shared, Arc::default(), admitted);
    let mut kept = JoinSet::new();
    let keeping = async {
        loop {
            tokio::select! {
                Some(Authenticated { channel, first, .. }) = peers.recv() => {
                    if let Some(Knock::Enter) = decode(&first) {
                        let waiting = Arc::clone(&waiting);
                        kept.spawn(async move { waiting.keep(channel).await });
                    }
                }
                Some(_) = kept.join_next() => {}
                else => return,
            }
        }
    };
    tokio::join!(accepting, keeping);
    Ok(())
}

/// Knocks at the door at `address` until the group admits this process, once or again and again.
/// Blocks for at most `limit`.
///
/// # Errors
/// The group has another secret or build, or does not admit this process in time.
pub fn knock(
    address: SocketAddr,
    secret: &Secret,
    limit: Duration,
    is_once: bool,
) -> Result<Admission, NotAdmitted> {
    let not_admitted = |cause| NotAdmitted { address, timeout: limit, cause };
    let runtime = ControlRuntime::shared().map_err(|e| not_admitted(e.to_string()))?;
    let (tell, told) = std_mpsc::sync_channel(1);
    let secret = secret.clone();
    runtime.spawn(async move {
        let mut last = String::from("nobody answers");
        let knocking = async {
            loop {
                match knock_once(address, &secret).await {
                    Ok(admission) => return Ok(admission),
                    Err(HandshakeError::Io(cause)) if !is_once => last = cause.to_string(),
                    Err(cause) => return Err(cause.to_string()),
                }
                sleep(PAUSE).await;
            }
        };
        let outcome = timeout(limits::timeout(limit), knocking).await;
        tell.send(outcome.unwrap_or(Err(last))).unwrap_or_default();
    });
    let died = |_| not_admitted("the control thread ended early".to_owned());
    told.recv().map_err(died)?.map_err(not_admitted)
}

async fn knock_once(address: SocketAddr, secret: &Secret) -> Result<Admission, HandshakeError> {
    let late = |_| Err(io::Error::from(io::ErrorKind::TimedOut).into());
    let bound = Duration::from_millis(limits::HANDSHAKE_MS);
    let greeting = greeting();
    let attempted = timeout(bound, attempt(address, &greeting, secret)).await;
    let mut channel = attempted.unwrap_or_else(late)?;
    channel.reader.set_bytes_max(BYTES_MAX);
    channel.writer.send(&encode(&Knock::Enter)).await?;
    let closed = || io::Error::other("the group closed its door");
    let answer = channel.reader.next().await?.ok_or_else(closed)?;
    let admission = decode(&answer).filter(Admission::is_possible);
    admission.ok_or(HandshakeError::NotRingfold)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::channel::socket::listen_at;
    use crate::discover::address::loopback;

    const PATIENCE: Duration = Duration::from_secs(30);

    fn open() -> (Door, SocketAddr) {
        let listener = listen_at(loopback()).unwrap();
        let at = listener.local_addr().unwrap();
        (Door::open(listener, Secret::new([7; 32])).unwrap(), at)
    }

    fn first(at: SocketAddr) -> Admission {
        Admission { rank: 3, size: 5, address: at, key: [9; 32] }
    }

    #[test]
    fn newcomers_that_wait_are_admitted() {
        let (door, at) = open();
        let ranks = std::thread::scope(|scope| {
            let knock = || knock(at, &Secret::new([7; 32]), PATIENCE, false).unwrap();
            let newcomers = [scope.spawn(knock), scope.spawn(knock)];
            assert_eq!(door.wait(2, PATIENCE, || false), 2);
            door.admit(2, first(at));
            let mut admitted = newcomers.map(|it| it.join().unwrap());
            admitted.sort_by_key(|it| it.rank);
            assert_eq!(admitted[0], first(at));
            admitted.map(|it| it.rank)
        });
        assert_eq!(ranks, [3, 4]);
    }

    #[test]
    fn a_wrong_secret_is_refused_and_does_not_count() {
        let (door, at) = open();
        let error = knock(at, &Secret::new([8; 32]), PATIENCE, false).unwrap_err();
        assert!(error.cause.contains("another secret"), "{error}");
        assert_eq!(door.wait(1, Duration::from_millis(100), || false), 0);
    }

    #[test]
    fn a_newcomer_that_has_gone_does_not_count() {
        let (door, at) = open();
        let error =
            knock(at, &Secret::new([7; 32]), Duration::from_millis(300), false).unwrap_err();
        assert!(error.to_string().contains("did not admit"), "{error}");
        let until = Instant::now() + PATIENCE;
        while door.wait(1, Duration::ZERO, || false) > 0 {
            assert!(Instant::now() < until, "it still counts");
        }
        drop(door);
        assert!(knock(at, &Secret::new([7; 32]), Duration::from_secs(9), true).is_err());
    }

    #[test]
    fn the_longest_admission_fits() {
        let address = "[ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff]:65535".parse().unwrap();
        let longest = Admission { rank: u32::MAX, size: u32::MAX, address, key: [255; 32] };
        assert!(encode(&longest).len() <= BYTES_MAX && !longest.is_possible());
        assert!(!Admission { rank: 5, ..first(address) }.is_possible());
        assert!(!format!("{longest:?}").contains("255, 255"), "{longest:?}");
    }
}
