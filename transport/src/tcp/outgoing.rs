//! The sending end of a link: opens the connection, proves it, writes frames.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use ringfold_types::limits::{FRAGMENT_ALIGN, FRAME_BYTES_MAX, HANDSHAKE_MS, LINK_BYTES_MIN};
use rustix::event::epoll;
use rustix::io::Errno;

use super::broken::Broken;
use super::frame::{HEADER_BYTES, Header};
use super::proof::{CHALLENGE_BYTES, HELLO_BYTES, Hello, JobKey, NONCE_BYTES, Side, WELCOME};
use super::socket::{Read, connecting, read, write, write_framed};
use super::{Liveness, random};

/// Attempts to open one link before it counts as broken.
const ATTEMPTS_MAX: u32 = 8;

/// Pause after the first failed attempt; each further one is twice as long.
const PAUSE: Duration = Duration::from_millis(20);

/// What the links of an endpoint share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dialer<'a> {
    pub(super) key: &'a JobKey,
    pub(super) epoll: &'a OwnedFd,
    /// What events of the connection carry.
    pub(super) token: u64,
    pub(super) liveness: Liveness,
}

/// See the module's head.
#[derive(Debug)]
pub(super) struct Outgoing {
    /// What to say; every attempt gets a nonce of its own.
    hello: Hello,
    /// Where the peer may be found, the next to try first.
    addresses: VecDeque<SocketAddr>,
    attempts: u32,
    stage: Stage,
    /// What the kernel did not take, or could not yet; it goes first.
    held: Held,
    /// Bytes of the frame under way that `send` has not accepted.
    left: usize,
    /// Bytes after the accepted ones that the kernel has already. They are fewer than the alignment,
    /// and are offered again.
    skip: usize,
    /// The kernel may take bytes. Events are told once, so this remembers them.
    writable: bool,
}

#[derive(Debug)]
enum Stage {
    /// Begins at the next `advance`, but not before that time.
    Idle(Option<Instant>),
    /// On its way since then.
    Connecting(OwnedFd, Instant),
    /// Has said hello.
    Challenged(OwnedFd, [u8; CHALLENGE_BYTES], usize),
    /// Has proven itself.
    Proven(OwnedFd),
    Open(OwnedFd),
    Broken(Broken),
}

/// Bytes that `send` accepted and the kernel has not.
#[derive(Debug, Default)]
struct Held {
    /// Headers and payload as they travel.
    wire: Vec<u8>,
    /// Bytes of `wire` that the kernel took.
    gone: usize,
    /// Bytes of payload in `wire`.
    payload: usize,
}

impl Outgoing {
    pub(super) const fn new(hello: Hello, addresses: VecDeque<SocketAddr>) -> Self {
        Self {
            hello,
            addresses,
            attempts: 0,
            stage: Stage::Idle(None),
            held: Held { wire: Vec::new(), gone: 0, payload: 0 },
            left: 0,
            skip: 0,
            writable: true,
        }
    }

    /// Whether bytes wait here that only `advance` brings on their way.
    pub(super) const fn is_unsent(&self) -> bool {
        !self.held.wire.is_empty()
    }

    /// Whether `advance` must be called as time passes, events or not.
    pub(super) const fn is_timed(&self) -> bool {
        matches!(self.stage, Stage::Idle(_) | Stage::Connecting(..))
    }

    pub(super) const fn broken(&self) -> Option<Broken> {
        match self.stage {
            Stage::Broken(broken) => Some(broken),
            _ => None,
        }
    }

    /// As `Transport::send`.
    pub(super) fn send(&mut self, tag: u32, bytes: &[u8]) -> Result<usize, Broken> {
        match &self.stage {
            Stage::Broken(broken) => return Err(*broken),
            Stage::Open(_) => {}
            _ => return Ok(self.hold(tag, bytes)),
        }
        let is_short = self.left == 0 && bytes.len() <= LINK_BYTES_MIN;
        let sent = self.flush().and_then(|()| self.write_frame(tag, bytes));
        let accepted = sent.map_err(|broken| self.fail(broken))?;
        if accepted == bytes.len() || !is_short {
            return Ok(accepted);
        }
        // The window that every link has: a short message is accepted whatever the kernel says.
        Ok(accepted + self.hold(tag, &bytes[accepted..]))
    }

    /// Writes as much of the frame under way, or of a new one, as the kernel takes.
    fn write_frame(&mut self, tag: u32, bytes: &[u8]) -> Result<usize, Broken> {
        let Stage::Open(socket) = &self.stage else { return Ok(0) };
        if !self.writable || !self.held.wire.is_empty() {
            return Ok(0);
        }
        let is_new = self.left == 0;
        let len = if is_new { bytes.len().min(FRAME_BYTES_MAX) } else { self.left };
        let payload = &bytes[self.skip..len];
        let header = Header { tag, len };
        let mut taken;
        if is_new {
            let header = header.encode();
            taken = write_framed(socket, &header, payload)?;
            self.writable = taken == HEADER_BYTES + payload.len();
            if taken == 0 {
                return Ok(0);
            }
            if taken < HEADER_BYTES {
                self.held.wire.extend_from_slice(&header[taken..]);
            }
            taken = taken.saturating_sub(HEADER_BYTES);
        } else {
            taken = write(socket, payload)?;
            self.writable = taken == payload.len();
        }
        let reached = self.skip + taken;
        let accepted = if reached == len { len } else { reached - reached % FRAGMENT_ALIGN };
        self.left = len - accepted;
        self.skip = reached - accepted;
        Ok(accepted)
    }

    /// Accepts bytes that the kernel does not take now, up to the window.
    fn hold(&mut self, tag: u32, bytes: &[u8]) -> usize {
        let room = LINK_BYTES_MIN.saturating_sub(self.held.payload);
        let is_new = self.left == 0;
        let len = if is_new { bytes.len().min(FRAME_BYTES_MAX) } else { self.left };
        let accepted = if len <= room { len } else { room - room % FRAGMENT_ALIGN };
        if accepted == 0 {
            return 0;
        }
        if is_new {
            self.held.wire.extend_from_slice(&Header { tag, len }.encode());
        }
        self.held.wire.extend_from_slice(&bytes[self.skip..accepted]);
        self.held.payload += accepted;
        self.left = len - accepted;
        self.skip = 0;
        accepted
    }

    /// Writes what is held, as far as the kernel takes it.
    fn flush(&mut self) -> Result<(), Broken> {
        let Stage::Open(socket) = &self.stage else { return Ok(()) };
        if !self.writable || self.held.wire.is_empty() {
            return Ok(());
        }
        let rest = &self.held.wire[self.held.gone..];
        let taken = write(socket, rest)?;
        self.writable = taken == rest.len();
        self.held.gone += taken;
        if self.held.gone == self.held.wire.len() {
            self.held.wire.clear();
            self.held.gone = 0;
            self.held.payload = 0;
        }
        Ok(())
    }

    /// Heeds an event on the connection.
    pub(super) fn notice(&mut self, dialer: Dialer<'_>, flags: epoll::EventFlags) {
        if let Stage::Open(socket) = &self.stage {
            use epoll::EventFlags as Flags;
            if flags.intersects(Flags::IN | Flags::RDHUP | Flags::HUP | Flags::ERR) {
                // Receivers never write after the welcome: something here is the end, or nonsense.
                match read(socket, &mut [0]) {
                    Ok(Read::NotYet) => {}
                    Ok(Read::End) => return self.broke(Broken::Closed),
                    Ok(Read::Bytes(_)) => {
                        return self.broke(Broken::Protocol("bytes against the stream"));
                    }
                    Err(errno) => return self.broke(errno.into()),
                }
            }
            self.writable |= flags.contains(Flags::OUT);
        }
        self.advance(dialer);
    }

    /// Takes the steps that are possible now towards an open link with nothing held.
    pub(super) fn advance(&mut self, dialer: Dialer<'_>) {
        loop {
            let next = match &mut self.stage {
                Stage::Idle(not_before) => {
                    if not_before.is_some_and(|time| Instant::now() < time) {
                        return;
                    }
                    self.dial(dialer)
                }
                Stage::Connecting(socket, since) => {
                    let since = *since;
                    match write(&*socket, &self.hello.encode()) {
                        Ok(0) if since.elapsed() < Duration::from_millis(HANDSHAKE_MS) => return,
                        Ok(0) => self.retry(Broken::Unreachable(Errno::TIMEDOUT)),
                        Ok(HELLO_BYTES) => {
                            self.step(|socket| Stage::Challenged(socket, [0; CHALLENGE_BYTES], 0))
                        }
                        Ok(_) => Err(Broken::Protocol("no room for a hello")),
                        Err(errno) => self.retry(Broken::Unreachable(errno)),
                    }
                }
                Stage::Challenged(socket, challenge, arrived) => {
                    match read(&*socket, &mut challenge[*arrived..]) {
                        Ok(Read::NotYet) => return,
                        Ok(Read::Bytes(bytes)) => {
                            *arrived += bytes;
                            if *arrived < CHALLENGE_BYTES {
                                continue;
                            }
                            let challenge = *challenge;
                            self.answer(dialer.key, &challenge)
                        }
                        Ok(Read::End) | Err(_) => self.retry(Broken::Unproven),
                    }
                }
                Stage::Proven(socket) => {
                    let mut welcome = [0];
                    match read(&*socket, &mut welcome) {
                        Ok(Read::NotYet) => return,
                        Ok(Read::Bytes(_)) if welcome[0] == WELCOME => {
                            self.writable = true;
                            self.step(Stage::Open)
                        }
                        Ok(Read::Bytes(_)) => Err(Broken::Protocol("no welcome")),
                        Ok(Read::End) | Err(_) => self.retry(Broken::Unproven),
                    }
                }
                Stage::Open(_) => match self.flush() {
                    Ok(()) => return,
                    Err(broken) => Err(broken),
                },
                Stage::Broken(_) => return,
            };
            match next {
                Ok(stage) => self.stage = stage,
                Err(broken) => return self.broke(broken),
            }
        }
    }

    /// Opens a connection to the next address.
    fn dial(&mut self, dialer: Dialer<'_>) -> Result<Stage, Broken> {
        let Some(address) = self.addresses.front() else {
            return Err(Broken::Unreachable(Errno::DESTADDRREQ));
        };
        self.attempts += 1;
        self.hello.nonce = random::<NONCE_BYTES>()?;
        match connecting(*address, dialer.liveness) {
            Ok(socket) => {
                use epoll::EventFlags as Flags;
                let flags = Flags::IN | Flags::OUT | Flags::RDHUP | Flags::ET;
                let data = epoll::EventData::new_u64(dialer.token);
                epoll::add(dialer.epoll, &socket, data, flags)?;
                Ok(Stage::Connecting(socket, Instant::now()))
            }
            Err(errno) => self.retry(Broken::Unreachable(errno)),
        }
    }

    /// Checks the acceptor's proof and gives ours.
    fn answer(&mut self, key: &JobKey, challenge: &[u8]) -> Result<Stage, Broken> {
        let (nonce, proof) = challenge.split_at(NONCE_BYTES);
        if !key.accepts(Side::Acceptor, &self.hello, nonce, proof) {
            return Err(Broken::Unproven);
        }
        let proof = key.prove(Side::Connector, &self.hello, nonce);
        if let Stage::Challenged(socket, ..) = &self.stage {
            write(socket, &proof)?;
        }
        self.step(Stage::Proven)
    }

    /// The stage that follows, with the same socket.
    fn step(&mut self, next: impl FnOnce(OwnedFd) -> Stage) -> Result<Stage, Broken> {
        match std::mem::replace(&mut self.stage, Stage::Idle(None)) {
            Stage::Connecting(socket, _)
            | Stage::Challenged(socket, ..)
            | Stage::Proven(socket)
            | Stage::Open(socket) => Ok(next(socket)),
            idle_or_broken => Ok(idle_or_broken),
        }
    }

    /// Tries again later, at the next address, unless there is no point in it. An acceptor that had
    /// too many strangers at its door may have dropped us; one that refuses is no more.
    fn retry(&mut self, because: Broken) -> Result<Stage, Broken> {
        let address = self.addresses.pop_front();
        if because != Broken::Unreachable(Errno::CONNREFUSED) {
            self.addresses.extend(address);
        }
        if self.addresses.is_empty() || self.attempts >= ATTEMPTS_MAX {
            return Err(because);
        }
        let pause = PAUSE * 2_u32.saturating_pow(self.attempts.saturating_sub(1));
        Ok(Stage::Idle(Some(Instant::now() + pause)))
    }

    fn fail(&mut self, broken: Broken) -> Broken {
        self.broke(broken);
        broken
    }

    fn broke(&mut self, broken: Broken) {
        self.stage = Stage::Broken(broken);
        self.held = Held::default();
    }
}
