//! Setup of a host's shared memory. The lowest rank makes the memory. Each other rank sends it one
//! end of a pair of sockets, and receives the memory's descriptor by the other end. After that the
//! ranks communicate in that memory.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use ringfold_types::Rank;
use ringfold_types::limits::{HANDSHAKES_MAX, LANES_MAX, RANKS_MAX};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

use super::address::Address;
use super::endpoint::{Shm, SingleCopy};
use super::error::ConnectError;
use super::handshake::{Handshake, HandshakeError, Host, Outcome, is_not_yet};
use super::segment::{Layout, Segment};
use crate::proof::JobKey;
use crate::refusals::Refusals;
use crate::sys::{NamedWaker, WakerAddress};

/// Pause before a retry if the lowest rank's queue is full, or the system has no room for
/// descriptors.
const RETRY: Duration = Duration::from_millis(2);
/// Longest pause before a retry after the lowest rank has closed or refused connections repeatedly.
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
        let (key, address) = (JobKey::new(key), Address::fresh()?);
        let waker = NamedWaker::new(&address.waker(&key, rank)?)?;
        Ok(Pending { key, rank, lanes, offers, address, waker, stop: None })
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
    /// Not all ranks could be connected; the error names them and the reason. Refused connections
    /// are only logged.
    pub fn connect(self, peers: &[(Rank, String)], deadline: Instant) -> Result<Shm, ConnectError> {
        let Self { key, rank, lanes, offers, address, waker, stop } = self;
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
        let (lowest, door) = (ranks[0], addresses[0].waker(&key, ranks[0])?);
        let host = Host { key, rank, ranks, layout };
        let until = Until { deadline, stop };
        let segment = if lowest == rank {
            let segment = Segment::create(layout)?;
            Setup::new(&host, &waker, &segment).run(&until)?;
            segment
        } else {
            let file = fetch(&host, lowest, (&waker, &door), &until)?;
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

/// The end of the time for setup.
struct Until {
    deadline: Instant,
    /// Setup also ends when this is readable.
    stop: Option<OwnedFd>,
}

impl Until {
    fn has_passed(&self) -> io::Result<bool> {
        if Instant::now() >= self.deadline {
            return Ok(true);
        }
        let mut stop: Vec<PollFd<'_>> = self.stop.iter().map(readable).collect();
        await_any(&mut stop, Duration::ZERO)?;
        Ok(stop.iter().any(|stop| !stop.revents().is_empty()))
    }

    /// Blocks until one of `fds` is readable, at most for `limit` and until the end. Returns which
    /// are readable.
    fn wait(&self, fds: &[BorrowedFd<'_>], limit: Duration) -> io::Result<Vec<bool>> {
        let mut polled: Vec<PollFd<'_>> = fds.iter().map(readable).collect();
        polled.extend(self.stop.iter().map(readable));
        await_any(&mut polled, limit.min(self.deadline.saturating_duration_since(Instant::now())))?;
        Ok(polled[..fds.len()].iter().map(|fd| !fd.revents().is_empty()).collect())
    }
}

/// Gets the memory from the lowest rank. Retries: the lowest rank may lack a descriptor for the
/// connection. If it has ended, the wait goes on until the deadline, or until the job tells the
/// reason by `stop`.
fn fetch(
    host: &Host,
    lowest: Rank,
    way: (&NamedWaker, &WakerAddress),
    until: &Until,
) -> Result<OwnedFd, ConnectError> {
    let mut pause = RETRY;
    loop {
        match fetch_once(host, lowest, way, until) {
            Err(HandshakeError::Closed) => {
                until.wait(&[], pause)?;
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
    (waker, door): (&NamedWaker, &WakerAddress),
    until: &Until,
) -> Result<OwnedFd, HandshakeError> {
    let go_on = || match until.has_passed()? {
        true => Err(HandshakeError::Io(io::ErrorKind::TimedOut.into())),
        false => Ok(()),
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let ends = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let (own, theirs) = ends.map_err(io::Error::from)?;
    loop {
        go_on()?;
        match waker.pass(door, theirs.as_fd()) {
            Ok(()) => break,
            Err(error) if is_not_yet(&error) => until.wait(&[], RETRY)?,
            Err(error) => return Err(error.into()),
        };
    }
    drop(theirs);
    let mut handshake = Handshake::open(own, host, lowest)?;
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
        go_on()?;
        until.wait(&[handshake.as_fd()], Duration::MAX)?;
    }
}

/// The lowest rank's handshakes with the others.
struct Setup<'a> {
    host: &'a Host,
    waker: &'a NamedWaker,
    segment: &'a Segment,
    handshakes: Vec<Handshake>,
    /// By slot: whether the rank has the memory.
    met: Vec<bool>,
    refusals: Refusals,
    /// Whether the log already says why peers have to wait.
    has_warned: bool,
}

impl<'a> Setup<'a> {
    fn new(host: &'a Host, waker: &'a NamedWaker, segment: &'a Segment) -> Self {
        let met = host.ranks.iter().map(|rank| *rank == host.rank).collect();
        let (refusals, has_warned) = (Refusals::default(), false);
        Self { host, waker, segment, handshakes: Vec::new(), met, refusals, has_warned }
    }

    fn run(&mut self, until: &Until) -> Result<(), ConnectError> {
        while self.met.contains(&false) {
            if until.has_passed()? {
                let ranks = self.met.iter().zip(&self.host.ranks);
                let missing = ranks.filter(|(met, _)| !**met).map(|(_, rank)| *rank);
                return Err(ConnectError::Deadline { missing: missing.collect() });
            }
            let is_ready = self.wait(until)?;
            self.step(&is_ready);
            self.take_connections()?;
        }
        Ok(())
    }

    /// Advances the handshakes that can advance.
    fn step(&mut self, is_ready: &[bool]) {
        let mut waiting = Vec::with_capacity(self.handshakes.len());
        for (handshake, is_ready) in std::mem::take(&mut self.handshakes).into_iter().zip(is_ready)
        {
            if !is_ready && !handshake.is_sending() {
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
                Err(error) => self.refusals.log(&error.to_string()),
            }
        }
        self.handshakes = waiting;
    }

    fn note_connected(&mut self, peer: Rank) {
        let slot = self.host.ranks.binary_search(&peer).ok();
        match slot.and_then(|slot| self.met.get_mut(slot)) {
            Some(met @ false) => *met = true,
            _ => tracing::warn!("rank {peer} connected more than once over shared memory"),
        }
    }

    /// Takes the connections that peers have sent, as far as there is room. Further ones wait in
    /// the queue. A datagram that brings no connection is only logged: its sender tries again.
    fn take_connections(&mut self) -> Result<(), ConnectError> {
        for _ in self.handshakes.len()..HANDSHAKES_MAX {
            match self.waker.receive() {
                Ok(socket) => self.handshakes.push(Handshake::answer(socket)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.raw_os_error().is_none() => {
                    self.refusals.log(&error.to_string());
                }
                Err(error) => return Err(ConnectError::Io(error)),
            }
        }
        Ok(())
    }

    /// Blocks until something can advance, or until the end. Returns which handshakes can.
    fn wait(&self, until: &Until) -> Result<Vec<bool>, ConnectError> {
        let is_sending = self.handshakes.iter().any(Handshake::is_sending);
        let limit = if is_sending { RETRY } else { Duration::MAX };
        let door = (self.handshakes.len() < HANDSHAKES_MAX).then(|| self.waker.as_fd());
        let fds: Vec<_> = self.handshakes.iter().map(AsFd::as_fd).chain(door).collect();
        Ok(until.wait(&fds, limit)?)
    }
}

fn readable(fd: &impl AsFd) -> PollFd<'_> {
    PollFd::new(fd, PollFlags::IN)
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
