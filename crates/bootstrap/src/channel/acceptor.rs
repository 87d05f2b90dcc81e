//! The authenticated acceptor: anybody may connect to its port, and only members of the job get
//! through.
//!
//! A connection is *mute* until its peer has answered the listener's challenge with the job's
//! secret. It is *opened* until its first encrypted message has arrived, and then proven. Each
//! connection has a new challenge, so a recorded handshake opens none. The acceptor has slots for
//! some unproven connections at a time, and each takes one for at most `limits::HANDSHAKE_MS`.
//! Further ones wait in the kernel. When every slot is taken, mute connections lose theirs after
//! `MUTE`, and opened ones after `OPENED`. A proven connection takes no slot and is never dropped.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use ringfold_types::{Rank, limits};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Handle};
use tokio::sync::{mpsc, oneshot};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::connect::Channel;
use super::greeting::{Greeting, HandshakeError};
use super::respond_as_any;
use super::socket::{self, BACKLOG};
use super::turned_away::TurnedAway;
use crate::discover::secret::Secret;

/// The maximum length of a peer's first message: its peer information, its host's name and a few
/// numbers.
const FIRST_BYTES_MAX: usize = limits::PEER_INFO_BYTES_MAX + limits::CAUSE_BYTES_MAX + 64;
/// The time before a full port closes a mute connection.
const MUTE: Duration = Duration::from_millis(200);
/// The time before a full port closes an opened connection.
const OPENED: Duration = Duration::from_secs(1);
const _: () = assert!(MUTE.as_millis() < OPENED.as_millis());
const _: () = assert!(OPENED.as_millis() < limits::HANDSHAKE_MS as u128);
/// Accepted connections after which a port starts one more of its threads that help.
const PER_HELPER: usize = 64;
/// How long connections wait when no file descriptor is left.
const RETRY_PAUSE: Duration = Duration::from_millis(50);

/// Ranks for which a port may have one more thread that helps.
const RANKS_PER_HELPER: usize = 128;
const HELPERS_MAX: usize = 4;
/// Ranks that may dial at once: half of those that a kernel queues.
const AT_ONCE: u32 = BACKLOG.unsigned_abs() / 2;
/// How much later than the one before it a rank dials that is not among them.
const SPREAD: Duration = Duration::from_micros(100);

/// The threads that help a port of so many ranks with their handshakes.
pub(crate) fn helpers_of(size: usize) -> usize {
    HELPERS_MAX.min(size / RANKS_PER_HELPER)
}

/// How long a rank waits before it dials the port of all. A connection that the kernel there cannot
/// queue takes a second and more.
pub(crate) fn turn(Rank(rank): Rank) -> Duration {
    SPREAD * rank.saturating_sub(AT_ONCE)
}

/// A connection whose peer has proven that it is a member of the job.
pub(crate) struct Authenticated {
    pub(crate) channel: Channel,
    /// Its first message.
    pub(crate) first: Vec<u8>,
    /// The index of the greeting and secret by which it came.
    pub(crate) by: usize,
    /// The thread that serves its socket.
    pub(crate) home: Home,
}

/// A thread with sockets of its own. One that helps an acceptor ends with the last clone.
#[derive(Clone, Debug)]
pub(crate) struct Home {
    pub(crate) handle: Handle,
    stays: Option<Arc<oneshot::Sender<()>>>,
}

impl Home {
    /// The thread of the runtime that calls this.
    pub(crate) fn here() -> Self {
        Self { handle: Handle::current(), stays: None }
    }

    /// A new thread.
    fn start() -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stays, until) = oneshot::channel::<()>();
        let name = thread::Builder::new().name("ringfold-help".into());
        name.spawn(move || runtime.block_on(until).unwrap_or_default())?;
        Ok(Self { handle, stays: Some(Arc::new(stays)) })
    }

    /// Moves a socket from the acceptor's thread to this one.
    fn adopt(&self, stream: TcpStream) -> io::Result<TcpStream> {
        if self.stays.is_none() {
            return Ok(stream);
        }
        let stream = stream.into_std()?;
        let _entered = self.handle.enter();
        TcpStream::from_std(stream)
    }
}

/// Sends every proven connection to `peers`, until the receiver is dropped. There are so many
/// `slots` for unproven ones.
pub(crate) async fn accept(
    slots: usize,
    listener: TcpListener,
    shared: (Greeting, Secret),
    turned_away: Arc<TurnedAway>,
    peers: mpsc::Sender<Authenticated>,
) {
    accept_any(slots, 0, listener, vec![shared], turned_away, peers).await;
}

/// As `accept`, for peers that share any of these greetings and secrets. Once many have come, up to
/// so many threads help with the handshakes, and keep the sockets of those that they let in.
pub(crate) async fn accept_any(
    slots: usize,
    helpers: usize,
    listener: TcpListener,
    shared: Vec<(Greeting, Secret)>,
    turned_away: Arc<TurnedAway>,
    peers: mpsc::Sender<Authenticated>,
) {
    let homes = vec![Home::here()];
    let (handshakes, taken) = (JoinSet::new(), Vec::new());
    let mut unproven =
        Unproven { max: slots, homes, helpers, accepted: 0, handshakes, slots: taken };
    let shared: Arc<[_]> = shared.into();
    let mut failures = 0_u32;
    loop {
        let (is_full, next_expiry) = (unproven.is_full(), unproven.next_expiry());
        tokio::select! {
            accepted = listener.accept(), if !is_full => match accepted {
                Ok((stream, from)) => if let Err(e) = unproven.add(stream, from, &shared) {
                    turned_away.note(from, &e.into());
                },
                Err(e) => {
                    failures = failures.saturating_add(1);
                    if failures.is_power_of_two() {
                        tracing::warn!("cannot accept a connection: {e} ({failures} so far)");
                    }
                    // Idle unauthenticated connections may hold the descriptors that the system
                    // lacks.
                    unproven.make_room(&turned_away);
                    sleep(RETRY_PAUSE).await;
                }
            },
            Some(ended) = unproven.handshakes.join_next() => match ended {
                Ok((_, Ok(peer))) => if peers.send(peer).await.is_err() {
                    return;
                },
                Ok((from, Err(cause))) => turned_away.note(from, &cause),
                Err(e) if e.is_cancelled() => {}
                Err(e) => tracing::error!("a handshake panicked: {e}"),
            },
            () = sleep_until(next_expiry), if is_full => {
                unproven.make_room(&turned_away);
            }
            () = peers.closed() => return,
        }
        unproven.slots.retain(|slot| !slot.task.is_finished());
    }
}

/// The unproven connections. Dropping this closes them.
struct Unproven {
    max: usize,
    /// The threads that serve them: the acceptor's, or those that help. The next connection goes to
    /// the second.
    homes: Vec<Home>,
    /// The most threads that help.
    helpers: usize,
    accepted: usize,
    handshakes: JoinSet<(SocketAddr, Result<Authenticated, HandshakeError>)>,
    slots: Vec<Slot>,
}

struct Slot {
    from: SocketAddr,
    since: Instant,
    is_opened: Arc<AtomicBool>,
    task: AbortHandle,
}

impl Unproven {
    fn is_full(&self) -> bool {
        self.slots.len() >= self.max
    }

    fn add(
        &mut self,
        stream: TcpStream,
        from: SocketAddr,
        shared: &Arc<[(Greeting, Secret)]>,
    ) -> io::Result<()> {
        self.accepted += 1;
        let starts_one = self.accepted.is_multiple_of(PER_HELPER);
        if starts_one && self.accepted / PER_HELPER <= self.helpers {
            self.add_helper();
        }
        self.homes.rotate_left(1);
        let Some(home) = self.homes.first().cloned() else { return Ok(()) };
        let (stream, handle) = (home.adopt(stream)?, home.handle.clone());
        let (shared, is_opened) = (Arc::clone(shared), Arc::new(AtomicBool::new(false)));
        let opened = Arc::clone(&is_opened);
        let handshake = async move {
            let bound = Duration::from_millis(limits::HANDSHAKE_MS);
            let received = timeout(bound, receive(stream, from, &shared, &opened, home)).await;
            let late = |_| Err(io::Error::from(io::ErrorKind::TimedOut).into());
            (from, received.unwrap_or_else(late))
        };
        let task = self.handshakes.spawn_on(handshake, &handle);
        self.slots.push(Slot { from, since: Instant::now(), is_opened, task });
        Ok(())
    }

    fn add_helper(&mut self) {
        match Home::start() {
            Ok(home) => {
                self.homes.retain(|it| it.stays.is_some());
                self.homes.push(home);
            }
            Err(e) => tracing::debug!("the system starts no thread that helps: {e}"),
        }
    }

    /// When the acceptor may take the next slot away, if all are taken until then.
    fn next_expiry(&self) -> Instant {
        let expiries = self.slots.iter().map(Slot::expiry);
        expiries.min().unwrap_or_else(Instant::now)
    }

    fn make_room(&mut self, turned_away: &TurnedAway) {
        let now = Instant::now();
        self.slots.retain(|slot| {
            let is_kept = now < slot.expiry();
            if !is_kept {
                slot.task.abort();
                turned_away.note(slot.from, &HandshakeError::Evicted);
            }
            is_kept
        });
    }
}

impl Slot {
    /// When the acceptor may take the slot away.
    fn expiry(&self) -> Instant {
        self.since + if self.is_opened.load(Ordering::Relaxed) { OPENED } else { MUTE }
    }
}

async fn receive(
    mut stream: TcpStream,
    from: SocketAddr,
    shared: &[(Greeting, Secret)],
    is_opened: &AtomicBool,
    home: Home,
) -> Result<Authenticated, HandshakeError> {
    socket::tune(&stream)?;
    let ends = [stream.local_addr()?, from];
    let (by, session) = respond_as_any(&mut stream, shared).await?;
    is_opened.store(true, Ordering::Relaxed);
    let mut channel = Channel::new(stream, ends, session);
    channel.reader.set_bytes_max(FIRST_BYTES_MAX);
    let first = channel.reader.next().await?;
    let first = first.ok_or_else(|| io::Error::from(io::ErrorKind::UnexpectedEof))?;
    channel.reader.set_bytes_max(limits::CONTROL_BYTES_MAX);
    Ok(Authenticated { channel, first, by, home })
}

#[cfg(test)]
mod tests {
    //! Checks with real sockets on loopback which connections a full acceptor drops.

    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::channel::frames::Writer;
    use crate::channel::greeting::Purpose;
    use crate::channel::initiate;

    const SECRET: Secret = Secret::new([1; 32]);

    struct Open {
        at: SocketAddr,
        peers: mpsc::Receiver<Authenticated>,
        turned_away: Arc<TurnedAway>,
    }

    fn greeting() -> Greeting {
        Greeting::new(Purpose::Control, "test", 2)
    }

    fn open(helpers: usize) -> Open {
        let listener = socket::listen(&[[127, 0, 0, 1].into()], &[0]).unwrap();
        let at = listener.local_addr().unwrap();
        let (admitted, peers) = mpsc::channel(1);
        let turned_away = Arc::new(TurnedAway::default());
        let noted = Arc::clone(&turned_away);
        let (slots, shared) = (limits::HANDSHAKES_MAX, vec![(greeting(), SECRET)]);
        tokio::spawn(accept_any(slots, helpers, listener, shared, noted, admitted));
        Open { at, peers, turned_away }
    }

    fn run(test: impl Future<Output = ()>) {
        let runtime = Builder::new_current_thread().enable_all().build().unwrap();
        let bounded = async { timeout(Duration::from_secs(60), test).await };
        runtime.block_on(bounded).expect("the test hangs");
    }

    /// A client that has proven that it knows the secret, and has not yet sent its first message.
    async fn opened(at: SocketAddr) -> (TcpStream, Arc<snow::StatelessTransportState>) {
        let mut stream = TcpStream::connect(at).await.unwrap();
        let session = initiate(&mut stream, &greeting(), &SECRET).await.unwrap();
        (stream, Arc::new(session))
    }

    async fn mute(at: SocketAddr, count: usize) -> Vec<TcpStream> {
        let mut streams = Vec::new();
        for _ in 0..count {
            streams.push(TcpStream::connect(at).await.unwrap());
        }
        streams
    }

    #[test]
    fn mute_connections_give_way_before_one_that_knows_the_secret() {
        for helpers in [0, 2] {
            run(async {
                let mut open = open(helpers);
                let (stream, session) = opened(open.at).await;
                let mute_ones = mute(open.at, 2 * limits::HANDSHAKES_MAX).await;
                // Waits until the acceptor has dropped the first wave of mute connections, so that
                // it serves the second.
                while (open.turned_away.count() as usize) < limits::HANDSHAKES_MAX {
                    sleep(Duration::from_millis(10)).await;
                }
                let mut writer = Writer::new(stream, session);
                writer.send(b"hello").await.unwrap();
                assert_eq!(open.peers.recv().await.unwrap().first, b"hello");
                drop(mute_ones);
            });
        }
    }

    #[test]
    fn proven_connections_wait_for_as_long_as_it_takes() {
        run(async {
            let mut open = open(0);
            // The channel holds one connection, and the acceptor the other.
            let mut clients = Vec::new();
            for i in 0..2_u8 {
                let (stream, session) = opened(open.at).await;
                let mut writer = Writer::new(stream, session);
                writer.send(&[i]).await.unwrap();
                clients.push(writer);
                sleep(Duration::from_millis(50)).await;
            }
            let mute_ones = mute(open.at, limits::HANDSHAKES_MAX + 50).await;
            sleep(3 * MUTE).await;
            for i in 0..2_u8 {
                assert_eq!(open.peers.recv().await.unwrap().first, [i]);
            }
            drop(mute_ones);
        });
    }

    #[test]
    fn opened_connections_give_way_while_mute_ones_wait_too() {
        run(async {
            let mut open = open(0);
            let mut opened_ones = Vec::new();
            for _ in 0..limits::HANDSHAKES_MAX - 1 {
                opened_ones.push(opened(open.at).await);
            }
            let full_since = Instant::now();
            // The acceptor serves these one at a time, unless the others give way.
            let mute_ones = mute(open.at, 40).await;
            let (stream, session) = opened(open.at).await;
            Writer::new(stream, session).send(b"honest").await.unwrap();
            assert_eq!(open.peers.recv().await.unwrap().first, b"honest");
            let waited = full_since.elapsed();
            assert!(waited < Duration::from_millis(limits::HANDSHAKE_MS - 1_000), "{waited:?}");
            drop(mute_ones);
        });
    }

    #[test]
    fn a_port_for_few_members_has_fewer_places() {
        const FEW: usize = 4;
        run(async {
            let listener = socket::listen(&[[127, 0, 0, 1].into()], &[0]).unwrap();
            let at = listener.local_addr().unwrap();
            let (admitted, _members) = mpsc::channel(1);
            let turned_away = Arc::new(TurnedAway::default());
            let noted = Arc::clone(&turned_away);
            tokio::spawn(accept(FEW, listener, (greeting(), SECRET), noted, admitted));
            let mut opened_ones = Vec::new();
            for _ in 0..=FEW {
                opened_ones.push(opened(at).await);
            }
            assert!(turned_away.count() > 0, "the last connection got the slot of another");
        });
    }

    #[test]
    fn opened_connections_give_way_when_there_are_no_others() {
        run(async {
            let mut open = open(0);
            let mut replays = Vec::new();
            for _ in 0..limits::HANDSHAKES_MAX {
                replays.push(opened(open.at).await);
            }
            let (stream, session) = opened(open.at).await;
            Writer::new(stream, session).send(b"last").await.unwrap();
            assert_eq!(open.peers.recv().await.unwrap().first, b"last");
            let (first, _) = &mut replays[0];
            let ended = first.read_u8().await.unwrap_err().kind();
            assert!(matches!(ended, io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset));
            replays[limits::HANDSHAKES_MAX - 1].0.write_all(b"x").await.unwrap();
        });
    }
}
