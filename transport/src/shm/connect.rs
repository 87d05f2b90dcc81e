//! Setup of a host's shared memory. The lowest rank makes the memory, and each other rank connects
//! to it and receives the descriptor. After that the ranks communicate in that memory.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use ringfold_types::Rank;
use ringfold_types::limits::{HANDSHAKE_MS, HANDSHAKES_MAX, LANES_MAX, RANKS_MAX};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    socket_with, sockopt,
};

use super::address::Address;
use super::endpoint::{Shm, SingleCopy};
use super::error::ConnectError;
use super::handshake::{Handshake, HandshakeError, Host, Outcome};
use super::segment::{Layout, Segment};
use crate::proof::JobKey;
use crate::sys::NamedWaker;

/// Connections that the kernel queues before this rank accepts them.
const BACKLOG: i32 = 4096;
/// Pause before a retry if a peer's backlog is full, or the system has no room for descriptors.
const RETRY: Duration = Duration::from_millis(2);
/// Longest pause before a retry after the lowest rank has closed the connection repeatedly.
const RETRY_MAX: Duration = Duration::from_millis(500);

/// The configuration of a rank's shared memory.
#[derive(Clone)]
pub struct Config {
    /// The secret that the ranks of the job share, or a key derived from it.
    pub key: [u8; 32],
    /// This process's rank.
    pub rank: Rank,
    /// Streams to each peer, at most `limits::LANES_MAX`; the same on all ranks.
    pub lanes: usize,
    /// Which messages go by rendezvous.
    pub offers: SingleCopy,
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { key: _, rank, lanes, offers } = self;
        let mut shown = f.debug_struct("Config");
        shown.field("rank", rank).field("lanes", lanes).field("offers", offers);
        shown.finish_non_exhaustive()
    }
}

/// A rank that listens and is not connected to its peers yet.
#[derive(Debug)]
pub struct Pending {
    key: JobKey,
    rank: Rank,
    lanes: usize,
    offers: SingleCopy,
    address: Address,
    listener: OwnedFd,
    waker: NamedWaker,
    stop: Option<OwnedFd>,
}

impl Shm {
    /// Begins to listen for the other ranks of the host. Does not block.
    ///
    /// # Errors
    /// The system has no socket for it, or `config.lanes` is 0 or beyond `limits::LANES_MAX`.
    pub fn listen(config: Config) -> io::Result<Pending> {
        let Config { key, rank, lanes, offers } = config;
        if lanes == 0 || lanes > LANES_MAX {
            let why = format!("{lanes} lanes: not 1 to {LANES_MAX}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        }
        let address = Address::fresh()?;
        let listener = socket()?;
        bind(&listener, &address.socket()?)?;
        listen(&listener, BACKLOG)?;
        let waker = NamedWaker::new(&address.waker()?)?;
        Ok(Pending {
            key: JobKey::new(key),
            rank,
            lanes,
            offers,
            address,
            listener,
            waker,
            stop: None,
        })
    }
}

impl Pending {
    /// Returns this rank's address: at most 80 printable ASCII characters. The caller must publish
    /// it to the peers unchanged. `same_host` says which peers are on this host.
    #[must_use]
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Has [`connect`](Self::connect) end as at its deadline once `stop` is readable.
    #[must_use]
    pub fn until_readable(self, stop: OwnedFd) -> Self {
        Self { stop: Some(stop), ..self }
    }

    /// Connects to `peers`, a list of ranks and their addresses; an entry for this rank is ignored.
    /// Every rank of the host must call it with all ranks of the host. Blocks, at most until
    /// `deadline`. The lowest rank waits for all others, and each other rank waits for the lowest.
    ///
    /// # Errors
    /// Not all ranks could be connected; the error names them and the reason. Unauthenticated
    /// connections are only logged.
    pub fn connect(self, peers: &[(Rank, String)], deadline: Instant) -> Result<Shm, ConnectError> {
        let Self { key, rank, lanes, offers, address, listener, waker, stop } = self;
        let mut all: Vec<(Rank, &str)> =
            peers.iter().map(|(peer, address)| (*peer, address.as_str())).collect();
        all.retain(|(peer, _)| *peer != rank);
        let own = address.to_string();
        all.push((rank, &own));
        if let Some((peer, _)) = all.iter().find(|(peer, _)| peer.index() >= RANKS_MAX) {
            let why = format!("rank {peer}: not less than {RANKS_MAX}");
            return Err(ConnectError::Io(io::Error::new(io::ErrorKind::InvalidInput, why)));
        }
        all.sort_unstable();
        all.dedup_by_key(|(peer, _)| *peer);
        let ranks: Vec<Rank> = all.iter().map(|(peer, _)| *peer).collect();
        let addresses = all.iter().map(|(peer, address)| find(*peer, address));
        let addresses: Vec<Address> = addresses.collect::<Result<_, _>>()?;
        let layout = Layout { ranks: ranks.len(), lanes };
        let (lowest, door) = (ranks[0], addresses[0].socket()?);
        let host = Host { key, rank, ranks, layout };
        let segment = if lowest == rank {
            let segment = Segment::create(layout)?;
            Setup::new(&host, listener, &segment, stop).run(deadline)?;
            segment
        } else {
            drop(listener);
            let file = fetch(&host, lowest, &door, deadline)?;
            Segment::open(file, layout)
                .map_err(|source| ConnectError::Unreachable { peer: lowest, source })?
        };
        Ok(Shm::new(host, offers, segment, &addresses, waker)?)
    }
}

/// Parses the address of `peer`.
fn find(peer: Rank, address: &str) -> Result<Address, ConnectError> {
    Address::parse(address)
        .ok_or_else(|| ConnectError::Address { peer, address: address.to_owned() })
}

/// Gets the memory from the lowest rank. Retries, since the lowest rank may close a connection to
/// make room for others.
fn fetch(
    host: &Host,
    lowest: Rank,
    door: &SocketAddrUnix,
    deadline: Instant,
) -> Result<OwnedFd, ConnectError> {
    let mut pause = RETRY;
    loop {
        match fetch_once(host, lowest, door, deadline) {
            Err(HandshakeError::Closed) if Instant::now() + pause < deadline => {
                std::thread::sleep(pause);
                pause = RETRY_MAX.min(2 * pause);
            }
            fetched => return fetched.map_err(|error| fatal(lowest, error)),
        }
    }
}

/// As `fetch`, by one connection.
fn fetch_once(
    host: &Host,
    lowest: Rank,
    door: &SocketAddrUnix,
    deadline: Instant,
) -> Result<OwnedFd, HandshakeError> {
    let late = || HandshakeError::Io(io::ErrorKind::TimedOut.into());
    let socket = socket()?;
    loop {
        match connect(&socket, door) {
            Ok(()) => break,
            Err(Errno::AGAIN | Errno::INTR) if Instant::now() < deadline => {
                std::thread::sleep(RETRY);
            }
            Err(Errno::AGAIN | Errno::INTR) => return Err(late()),
            Err(error) => return Err(HandshakeError::Io(error.into())),
        }
    }
    if !is_same_user(&socket)? {
        return Err(HandshakeError::Unproven);
    }
    let mut handshake = Handshake::open(socket, host, lowest)?;
    loop {
        match handshake.step(host, None)? {
            Outcome::Welcome(file) => return Ok(file),
            Outcome::Waiting(waiting) => handshake = waiting,
            Outcome::Welcomed(_) => {
                return Err(HandshakeError::Protocol(
                    "it sent a proof where the memory was expected",
                ));
            }
        }
        let now = Instant::now();
        if now >= deadline {
            return Err(late());
        }
        await_any(&mut [PollFd::new(&handshake, PollFlags::IN)], deadline - now)?;
    }
}

/// The lowest rank's handshakes with the others.
struct Setup<'a> {
    host: &'a Host,
    listener: OwnedFd,
    segment: &'a Segment,
    /// Setup ends when this is readable.
    stop: Option<OwnedFd>,
    handshakes: Vec<Handshake>,
    /// By slot: whether the rank has the memory.
    met: Vec<bool>,
    /// Whether the system lacks descriptors for more handshakes.
    is_full: bool,
    /// Whether the log already says why peers have to wait.
    has_warned: bool,
}

impl<'a> Setup<'a> {
    fn new(host: &'a Host, listener: OwnedFd, segment: &'a Segment, stop: Option<OwnedFd>) -> Self {
        let met = host.ranks.iter().map(|rank| *rank == host.rank).collect();
        Self {
            host,
            listener,
            segment,
            stop,
            handshakes: Vec::new(),
            met,
            is_full: false,
            has_warned: false,
        }
    }

    fn run(&mut self, deadline: Instant) -> Result<(), ConnectError> {
        while self.met.contains(&false) {
            let now = Instant::now();
            if now >= deadline || self.is_stopped()? {
                let ranks = self.met.iter().zip(&self.host.ranks);
                let missing = ranks.filter(|(met, _)| !**met).map(|(_, rank)| *rank);
                return Err(ConnectError::Deadline { missing: missing.collect() });
            }
            self.expire(now);
            let is_ready = self.wait(now, deadline)?;
            self.step(&is_ready);
            self.accept(now)?;
        }
        Ok(())
    }

    fn is_stopped(&self) -> io::Result<bool> {
        let Some(stop) = &self.stop else { return Ok(false) };
        let mut fds = [PollFd::new(stop, PollFlags::IN)];
        await_any(&mut fds, Duration::ZERO)?;
        Ok(!fds[0].revents().is_empty())
    }

    /// Advances the handshakes that can advance.
    fn step(&mut self, is_ready: &[bool]) {
        let mut waiting = Vec::with_capacity(self.handshakes.len());
        for (handshake, is_ready) in std::mem::take(&mut self.handshakes).into_iter().zip(is_ready)
        {
            if !is_ready {
                waiting.push(handshake);
                continue;
            }
            match handshake.step(self.host, Some(self.segment.file().as_fd())) {
                Ok(Outcome::Waiting(handshake)) => {
                    if handshake.is_sending() && !self.has_warned {
                        self.has_warned = true;
                        tracing::warn!(
                            "ranks of this host wait for their shared memory: this user has too \
                             many descriptors in flight between processes; raise `ulimit -n`"
                        );
                    }
                    waiting.push(handshake);
                }
                Ok(Outcome::Welcomed(peer)) => self.note_connected(peer),
                Ok(Outcome::Welcome(_)) => {}
                Err(error) => {
                    tracing::warn!("refused a connection to the shared-memory socket: {error}");
                }
            }
        }
        self.is_full &= waiting.len() == is_ready.len();
        self.handshakes = waiting;
    }

    fn note_connected(&mut self, peer: Rank) {
        let slot = self.host.ranks.binary_search(&peer).ok();
        match slot.and_then(|slot| self.met.get_mut(slot)) {
            Some(met @ false) => *met = true,
            _ => tracing::warn!("rank {peer} connected more than once over shared memory"),
        }
    }

    fn accept(&mut self, now: Instant) -> Result<(), ConnectError> {
        while self.has_room() {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            match accept_with(&self.listener, flags) {
                Ok(socket) if is_same_user(&socket)? => {
                    let expires = now + Duration::from_millis(HANDSHAKE_MS);
                    self.handshakes.push(Handshake::answer(socket, expires));
                }
                Ok(_) => {
                    tracing::warn!("refused another user's connection to the shared-memory socket");
                }
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                // The peers that are connected are served first, and then the others.
                Err(Errno::MFILE | Errno::NFILE) if !self.handshakes.is_empty() => {
                    self.is_full = true;
                }
                Err(error) => return Err(ConnectError::Io(error.into())),
            }
        }
        Ok(())
    }

    /// Whether there is room for another handshake. Further connections wait in the backlog, where
    /// they cost nothing.
    fn has_room(&self) -> bool {
        !self.is_full && self.handshakes.len() < HANDSHAKES_MAX
    }

    /// Closes connections that have not authenticated themselves in time, if others need the room.
    /// A busy host may also delay honest ranks for that long.
    fn expire(&mut self, now: Instant) {
        if self.has_room() {
            return;
        }
        let before = self.handshakes.len();
        // An authenticated peer is not closed: it waits for this rank.
        self.handshakes.retain(|handshake| {
            handshake.is_sending() || handshake.expires.is_none_or(|expires| now < expires)
        });
        let silent = before - self.handshakes.len();
        if silent > 0 {
            self.is_full = false;
            tracing::warn!(
                "closed {silent} connections to the shared-memory socket that did not \
                 authenticate themselves in time"
            );
        }
    }

    /// Blocks until something can advance, at most until `deadline`. Returns which handshakes can.
    fn wait(&self, now: Instant, deadline: Instant) -> Result<Vec<bool>, ConnectError> {
        let mut until = deadline;
        if self.handshakes.iter().any(Handshake::is_sending) {
            until = until.min(now + RETRY);
        }
        let crowded = if self.has_room() { &[] } else { self.handshakes.as_slice() };
        let unproven = crowded.iter().filter(|handshake| !handshake.is_sending());
        for expires in unproven.filter_map(|handshake| handshake.expires) {
            until = until.min(expires);
        }
        let listener = self.has_room().then(|| self.listener.as_fd());
        let stop = self.stop.as_ref().map(AsFd::as_fd);
        let sockets = self.handshakes.iter().map(|handshake| handshake.as_fd());
        let mut fds: Vec<PollFd<'_>> = sockets
            .chain(listener)
            .chain(stop)
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        await_any(&mut fds, until.saturating_duration_since(now))?;
        let is_ready = fds.iter().zip(&self.handshakes);
        Ok(is_ready.map(|(fd, it)| it.is_sending() || !fd.revents().is_empty()).collect())
    }
}

/// Blocks until one of the descriptors is readable, at most for `limit`.
fn await_any(fds: &mut [PollFd<'_>], limit: Duration) -> io::Result<()> {
    let limit =
        Timespec::try_from(limit).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    match poll(fds, Some(&limit)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

fn is_same_user(socket: &OwnedFd) -> io::Result<bool> {
    Ok(sockopt::socket_peercred(socket)?.uid == rustix::process::geteuid())
}

/// The error for a failed handshake with a peer that this rank connected to.
fn fatal(peer: Rank, error: HandshakeError) -> ConnectError {
    match error {
        HandshakeError::Io(error) if error.kind() == io::ErrorKind::TimedOut => {
            ConnectError::Deadline { missing: vec![peer] }
        }
        HandshakeError::Closed => {
            let source = io::Error::from(io::ErrorKind::ConnectionReset);
            ConnectError::Unreachable { peer, source }
        }
        HandshakeError::Unproven => ConnectError::Unproven { peer },
        HandshakeError::Protocol(what) => ConnectError::Protocol { peer, what },
        HandshakeError::Io(source) => ConnectError::Unreachable { peer, source },
    }
}
