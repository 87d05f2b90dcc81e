//! How the ranks of a host meet: everybody listens, and everybody connects to the lower ranks. One
//! loop serves all conversations at once, so the order in which ranks arrive does not matter.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, Instant};

use ringfold_types::Rank;
use ringfold_types::limits::{HANDSHAKE_MS, HANDSHAKES_MAX, LANES_MAX, RANKS_MAX};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, accept_with, bind, connect, listen,
    socket_with, sockopt,
};

use super::Shm;
use super::address::Address;
use super::error::ConnectError;
use super::handshake::{Flaw, Handshake, Host, Met, Outcome};
use super::proof::JobKey;
use super::segment::Segment;
use crate::sys::Bell;

/// Connections that the kernel keeps for us before we take them.
const BACKLOG: i32 = 4096;
/// How long to wait where a peer's backlog is full.
const RETRY: Duration = Duration::from_millis(2);

/// Which messages stay where they are until their receivers copy them from there, where the system
/// lets them read this process's memory (cross-memory attach). None does that is no longer than
/// `limits::LINK_BYTES_MIN`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Offers {
    /// None, and none are taken so from peers.
    Never,
    /// Those that `Transport::offer` is called for.
    #[default]
    Asked,
    /// All of so many bytes and more.
    From(usize),
}

/// Who this rank is.
#[derive(Clone)]
pub struct Config {
    /// The secret that the ranks of the job share, or a key derived from it.
    pub key: [u8; 32],
    /// This process's rank.
    pub rank: Rank,
    /// Streams to each peer, at most `limits::LANES_MAX`; the same on all ranks.
    pub lanes: usize,
    /// What is copied by its receiver.
    pub offers: Offers,
}

impl std::fmt::Debug for Config {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { key: _, rank, lanes, offers } = self;
        let mut shown = f.debug_struct("Config");
        shown.field("rank", rank).field("lanes", lanes).field("offers", offers);
        shown.finish_non_exhaustive()
    }
}

/// A rank that listens and has not met its peers.
#[derive(Debug)]
pub struct Pending {
    key: JobKey,
    rank: Rank,
    lanes: usize,
    offers: Offers,
    address: Address,
    listener: OwnedFd,
}

impl Pending {
    /// Begins to listen. Does not block.
    ///
    /// # Errors
    /// The system gives no socket, or `config.lanes` is 0 or beyond `limits::LANES_MAX`.
    pub(super) fn listen(config: Config) -> io::Result<Self> {
        let Config { key, rank, lanes, offers } = config;
        if lanes == 0 || lanes > LANES_MAX {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "lanes beyond the limit"));
        }
        let address = Address::fresh()?;
        let listener = socket()?;
        bind(&listener, &address.socket()?)?;
        listen(&listener, BACKLOG)?;
        Ok(Self { key: JobKey::new(key), rank, lanes, offers, address, listener })
    }

    /// What peers need to find this rank: at most 80 printable ASCII characters, to be published to
    /// them as they are. `same_host` says which of the peers' are within reach.
    #[must_use]
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// Meets `peers`, given as ranks and their addresses (this rank itself is skipped). Every rank
    /// must call it with all ranks of the host. Blocks until all have met or `deadline` has passed.
    ///
    /// # Errors
    /// Not all could be met; the error says who and why. Strangers that connect are logged, nothing
    /// more.
    pub fn connect(self, peers: &[(Rank, String)], deadline: Instant) -> Result<Shm, ConnectError> {
        let Self { key, rank, lanes, offers, address: _, listener } = self;
        let mut known: Vec<Rank> = peers.iter().map(|(peer, _)| *peer).collect();
        known.retain(|peer| *peer != rank);
        if known.iter().any(|peer| peer.index() >= RANKS_MAX) {
            let why = "a rank beyond the limit";
            return Err(ConnectError::Io(io::Error::new(io::ErrorKind::InvalidInput, why)));
        }
        known.sort_unstable();
        known.dedup();
        let segment = Segment::new(known.len(), lanes)?;
        let bell = Bell::new()?;
        let host = Host { key, rank, lanes, offers, peers: known, segment, bell };
        let mut meeting = Meeting {
            to_dial: dials(peers, rank)?,
            handshakes: Vec::new(),
            met: host.peers.iter().map(|_| None).collect(),
            host,
            listener,
        };
        meeting.run(deadline)?;
        let met = meeting.met.into_iter().flatten().collect();
        Shm::assemble(meeting.host, met)
    }
}

/// The peers that it is up to us to connect to.
fn dials(
    peers: &[(Rank, String)],
    rank: Rank,
) -> Result<Vec<(Rank, SocketAddrUnix)>, ConnectError> {
    let lower = peers.iter().filter(|(peer, _)| *peer < rank);
    lower
        .map(|(peer, address)| {
            let parsed = Address::parse(address).and_then(|address| address.socket().ok());
            let unfit = || ConnectError::Address { peer: *peer, address: address.clone() };
            parsed.map(|socket| (*peer, socket)).ok_or_else(unfit)
        })
        .collect()
}

/// All conversations of one rank.
struct Meeting {
    host: Host,
    listener: OwnedFd,
    to_dial: Vec<(Rank, SocketAddrUnix)>,
    handshakes: Vec<Handshake>,
    /// By place among the host's peers.
    met: Vec<Option<Met>>,
}

impl Meeting {
    fn run(&mut self, deadline: Instant) -> Result<(), ConnectError> {
        loop {
            self.dial()?;
            self.step()?;
            if self.met.iter().all(Option::is_some) {
                return Ok(());
            }
            let now = Instant::now();
            if now >= deadline {
                let met = self.met.iter().zip(&self.host.peers);
                let missing = met.filter(|(met, _)| met.is_none()).map(|(_, peer)| *peer);
                return Err(ConnectError::Deadline { missing: missing.collect() });
            }
            self.expire(now);
            self.wait(now, deadline)?;
            self.accept(now)?;
        }
    }

    /// Connects to the peers that we have not tried, or that were too busy.
    fn dial(&mut self) -> Result<(), ConnectError> {
        let mut busy = Vec::new();
        for (peer, address) in std::mem::take(&mut self.to_dial) {
            let unreachable = |source: io::Error| ConnectError::Unreachable { peer, source };
            let socket = socket()?;
            match connect(&socket, &address) {
                Ok(()) => {}
                Err(Errno::AGAIN | Errno::INTR) => {
                    busy.push((peer, address));
                    continue;
                }
                Err(error) => return Err(unreachable(error.into())),
            }
            if !is_same_user(&socket)? {
                return Err(ConnectError::Unproven { peer });
            }
            let handshake = Handshake::open(socket, &self.host, peer);
            self.handshakes.push(handshake.map_err(|flaw| fatal(peer, flaw))?);
        }
        self.to_dial = busy;
        Ok(())
    }

    /// Lets every conversation go on as far as it can.
    fn step(&mut self) -> Result<(), ConnectError> {
        let mut waiting = Vec::with_capacity(self.handshakes.len());
        for handshake in std::mem::take(&mut self.handshakes) {
            let dialed = handshake.dialed();
            match (handshake.step(&self.host), dialed) {
                (Ok(Outcome::Waiting(handshake)), _) => waiting.push(handshake),
                (Ok(Outcome::Met(met)), _) => self.meet(met),
                (Err(flaw), Some(peer)) => return Err(fatal(peer, flaw)),
                (Err(flaw), None) => {
                    tracing::warn!("refused a connection to the shared-memory socket: {flaw}");
                }
            }
        }
        self.handshakes.append(&mut waiting);
        Ok(())
    }

    fn meet(&mut self, met: Met) {
        let place = self.host.index(met.peer).and_then(|index| self.met.get_mut(index));
        match place {
            Some(place @ None) => *place = Some(met),
            _ => tracing::warn!("rank {} connected more than once over shared memory", met.peer),
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
                Ok(_) => tracing::warn!("refused another user on the shared-memory socket"),
                Err(Errno::AGAIN) => break,
                Err(Errno::INTR | Errno::CONNABORTED) => {}
                Err(error) => return Err(ConnectError::Io(error.into())),
            }
        }
        Ok(())
    }

    /// Whether more strangers can be heard. The others wait in the backlog, where they cost
    /// nothing.
    fn has_room(&self) -> bool {
        let strangers = self.handshakes.iter().filter(|handshake| handshake.expires.is_some());
        strangers.count() < HANDSHAKES_MAX
    }

    fn expire(&mut self, now: Instant) {
        let before = self.handshakes.len();
        self.handshakes.retain(|handshake| handshake.expires.is_none_or(|expires| now < expires));
        let silent = before - self.handshakes.len();
        if silent > 0 {
            tracing::warn!(
                "{silent} connections to the shared-memory socket proved nothing in time"
            );
        }
    }

    /// Blocks until something can go on, at most until `deadline`.
    fn wait(&self, now: Instant, deadline: Instant) -> Result<(), ConnectError> {
        let mut until = deadline;
        if !self.to_dial.is_empty() {
            until = until.min(now + RETRY);
        }
        for expires in self.handshakes.iter().filter_map(|handshake| handshake.expires) {
            until = until.min(expires);
        }
        let timeout = Timespec::try_from(until.saturating_duration_since(now))
            .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let listener = self.has_room().then(|| self.listener.as_fd());
        let sockets = self.handshakes.iter().map(|handshake| handshake.as_fd());
        let mut fds: Vec<PollFd<'_>> = listener
            .into_iter()
            .chain(sockets)
            .map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::IN))
            .collect();
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => Ok(()),
            Err(error) => Err(ConnectError::Io(error.into())),
        }
    }
}

fn socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?)
}

fn is_same_user(socket: &OwnedFd) -> io::Result<bool> {
    Ok(sockopt::socket_peercred(socket)?.uid == rustix::process::geteuid())
}

/// A flaw of a peer that we connected to.
fn fatal(peer: Rank, flaw: Flaw) -> ConnectError {
    match flaw {
        Flaw::Closed => {
            let source = io::Error::from(io::ErrorKind::ConnectionReset);
            ConnectError::Unreachable { peer, source }
        }
        Flaw::Unproven => ConnectError::Unproven { peer },
        Flaw::Protocol(what) => ConnectError::Protocol { peer, what },
        Flaw::Io(source) => ConnectError::Unreachable { peer, source },
    }
}
