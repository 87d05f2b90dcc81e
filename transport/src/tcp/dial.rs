//! The steps to an open connection, for the end that opens it.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use ringfold_types::Rank;
use ringfold_types::limits::HANDSHAKE_MS;
use rustix::event::epoll;
use rustix::io::Errno;

use super::broken::Broken;
use super::hello::{WELCOME, hello};
use super::route::Route;
use super::socket::{EVENTS_OF_LINKS, Liveness, Read, connecting, read, write};
use crate::contract::Link;
use crate::proof::{CHALLENGE_BYTES, HELLO_BYTES, Hello, JobKey};

/// Time in milliseconds that an address of a peer has to answer if the peer has other addresses.
const ROUTE_MS: u64 = 2_000;

/// Rounds over all routes to the peer before the link counts as broken.
const ROUNDS_MAX: u32 = 8;

/// Pause after each failed attempt of the first two rounds. The pause doubles with each later
/// round.
const PAUSE: Duration = Duration::from_millis(20);

/// Parameters that all links of an endpoint share.
#[derive(Clone, Copy, Debug)]
pub(super) struct Dialer<'a> {
    pub(super) key: &'a JobKey,
    pub(super) epoll: &'a OwnedFd,
    /// The token of the connection's events.
    pub(super) token: u64,
    /// The network interface of the connection; any if `None`.
    pub(super) interface: Option<&'a str>,
    pub(super) liveness: Liveness,
}

/// An attempt to open a link.
#[derive(Debug)]
pub(super) struct Dial {
    /// This rank.
    me: Rank,
    /// The link that the connection is for.
    link: Link,
    /// Routes to the peer; the front is tried next.
    routes: VecDeque<Route>,
    /// Complete rounds over the routes.
    rounds: u32,
    /// Routes tried in this round.
    tried: usize,
    state: State,
}

#[derive(Debug)]
enum State {
    /// No attempt; the next begins in an `advance` at or after that time.
    Idle(Option<Instant>),
    /// Connecting since `since`; the hello follows.
    Connecting { socket: OwnedFd, hello: Hello, since: Instant },
    /// The hello is sent; `arrived` bytes of the challenge have arrived.
    Challenged { socket: OwnedFd, hello: Hello, challenge: [u8; CHALLENGE_BYTES], arrived: usize },
    /// The proof is sent.
    Proven(OwnedFd),
    /// The peer has accepted.
    Open(OwnedFd),
}

impl Dial {
    pub(super) const fn new(me: Rank, link: Link, routes: VecDeque<Route>) -> Self {
        Self { me, link, routes, rounds: 0, tried: 0, state: State::Idle(None) }
    }

    /// Whether `advance` must be called as time passes, even without events.
    pub(super) const fn is_timed(&self) -> bool {
        matches!(self.state, State::Idle(_) | State::Connecting { .. })
    }

    /// Whether the peer may already use this connection for the link.
    pub(super) const fn may_be_welcome(&self) -> bool {
        matches!(self.state, State::Proven(_))
    }

    /// Takes all steps that are possible now. Returns the connection once it is open.
    pub(super) fn advance(&mut self, dialer: Dialer<'_>) -> Result<Option<OwnedFd>, Broken> {
        let timeout = self.timeout();
        loop {
            let next = match &mut self.state {
                State::Idle(Some(time)) if Instant::now() < *time => return Ok(None),
                State::Idle(_) => self.dial(dialer)?,
                State::Connecting { socket, hello, since } => {
                    match write(&*socket, &hello.encode()) {
                        Ok(HELLO_BYTES) => {
                            let (hello, challenge) = (*hello, [0; CHALLENGE_BYTES]);
                            let next =
                                |socket| State::Challenged { socket, hello, challenge, arrived: 0 };
                            self.step(next)
                        }
                        Ok(0) if since.elapsed() < timeout => return Ok(None),
                        Ok(0) => self.unreachable(Errno::TIMEDOUT)?,
                        Ok(_) => {
                            return Err(Broken::Protocol(
                                "the connection took only a part of the hello",
                            ));
                        }
                        Err(errno) => self.unreachable(errno)?,
                    }
                }
                State::Challenged { socket, hello, challenge, arrived } => {
                    match read(&*socket, &mut challenge[*arrived..]) {
                        Ok(Read::NotYet) => return Ok(None),
                        Ok(Read::Bytes(bytes)) => {
                            *arrived += bytes;
                            if *arrived < CHALLENGE_BYTES {
                                continue;
                            }
                            let proof = dialer.key.answer(hello, challenge);
                            let proof = proof.ok_or(Broken::Unproven)?;
                            // If this write fails, the next read fails too and handles the error.
                            write(&*socket, &proof).ok();
                            self.step(State::Proven)
                        }
                        Ok(Read::End) | Err(_) => self.retry(Broken::Unproven)?,
                    }
                }
                State::Proven(socket) => {
                    let mut welcome = [0];
                    match read(&*socket, &mut welcome) {
                        Ok(Read::NotYet) => return Ok(None),
                        Ok(Read::Bytes(_)) if welcome[0] == WELCOME => self.step(State::Open),
                        Ok(Read::Bytes(_)) => return Err(Broken::Protocol("an invalid welcome")),
                        Ok(Read::End) | Err(_) => self.retry(Broken::Unproven)?,
                    }
                }
                State::Open(_) => {
                    let done = std::mem::replace(&mut self.state, State::Idle(None));
                    return Ok(if let State::Open(socket) = done { Some(socket) } else { None });
                }
            };
            self.state = next;
        }
    }

    /// Time that the next route has to answer. It is short in the first round, which looks for a
    /// route that works.
    fn timeout(&self) -> Duration {
        let has_others = self.routes.len() > 1;
        let is_in_hurry = has_others && self.rounds == 0;
        Duration::from_millis(if is_in_hurry { ROUTE_MS } else { HANDSHAKE_MS })
    }

    /// Opens a connection on the next route.
    fn dial(&mut self, dialer: Dialer<'_>) -> Result<State, Broken> {
        let Some(route) = self.routes.front() else {
            return Err(Broken::Unreachable(Errno::DESTADDRREQ, None));
        };
        let hello = hello(self.me, self.link).map_err(|_| Broken::Os(Errno::IO))?;
        match connecting(*route, dialer.interface, dialer.liveness) {
            Ok(socket) => {
                let data = epoll::EventData::new_u64(dialer.token);
                epoll::add(dialer.epoll, &socket, data, EVENTS_OF_LINKS)?;
                Ok(State::Connecting { socket, hello, since: Instant::now() })
            }
            Err(errno) => self.unreachable(errno),
        }
    }

    /// Returns the next state, with the same socket.
    fn step(&mut self, next: impl FnOnce(OwnedFd) -> State) -> State {
        match std::mem::replace(&mut self.state, State::Idle(None)) {
            State::Connecting { socket, .. }
            | State::Challenged { socket, .. }
            | State::Proven(socket)
            | State::Open(socket) => next(socket),
            idle @ State::Idle(_) => idle,
        }
    }

    /// The next route does not lead to the peer.
    fn unreachable(&mut self, errno: Errno) -> Result<State, Broken> {
        let at = self.routes.front().map(|route| route.to);
        self.retry(Broken::Unreachable(errno, at))
    }

    /// Schedules the next attempt, on the next route, unless it is pointless. A busy acceptor may
    /// have dropped this connection, and an acceptor that has opened the link itself will connect
    /// here. A route whose peer refuses connections is removed: the peer is gone.
    fn retry(&mut self, because: Broken) -> Result<State, Broken> {
        let failed = self.routes.pop_front();
        if !matches!(because, Broken::Unreachable(Errno::CONNREFUSED, _)) {
            self.routes.extend(failed);
            self.tried += 1;
        }
        if self.tried >= self.routes.len() {
            self.tried = 0;
            self.rounds += 1;
        }
        let Some(next) = self.routes.front().filter(|_| self.rounds < ROUNDS_MAX) else {
            return Err(because);
        };
        if let (Some(failed), Broken::Unreachable(errno, _)) = (failed, because)
            && failed != *next
        {
            let (Link { peer, lane }, errno) = (self.link, std::io::Error::from(errno));
            tracing::info!(
                "tcp: lane {lane} to rank {peer} cannot connect {failed}: {errno}; trying {next}"
            );
        }
        let pause = PAUSE * 2_u32.saturating_pow(self.rounds.saturating_sub(1));
        Ok(State::Idle(Some(Instant::now() + pause)))
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use ringfold_types::Lane;

    use super::*;

    /// Returns the routes of all attempts until the link counts as broken, each with its timeout.
    fn attempts(ways: u8, refused: Option<u8>) -> Vec<(u8, u64)> {
        let to = |last| Route { from: None, to: SocketAddr::from(([192, 0, 2, last], 1)) };
        let link = Link { peer: Rank(1), lane: Lane(0) };
        let mut dial = Dial::new(Rank(0), link, (0..ways).map(to).collect());
        let mut all = Vec::new();
        loop {
            let front = *dial.routes.front().unwrap();
            let way = (0..ways).find(|last| to(*last) == front).unwrap();
            all.push((way, u64::try_from(dial.timeout().as_millis()).unwrap()));
            let errno = if refused == Some(way) { Errno::CONNREFUSED } else { Errno::TIMEDOUT };
            if let Err(broken) = dial.unreachable(errno) {
                assert_eq!(broken, Broken::Unreachable(errno, Some(to(way).to)));
                return all;
            }
        }
    }

    #[test]
    fn only_the_first_round_over_several_ways_is_in_a_hurry() {
        let rounds = ROUNDS_MAX as usize;
        assert_eq!(attempts(1, None), vec![(0, HANDSHAKE_MS); rounds]);
        let mut expected = vec![(0, ROUTE_MS), (1, ROUTE_MS), (2, ROUTE_MS)];
        expected.extend([0, 1, 2].repeat(rounds - 1).into_iter().map(|at| (at, HANDSHAKE_MS)));
        assert_eq!(attempts(3, None), expected);
        let mut expected = vec![(0, ROUTE_MS), (1, ROUTE_MS), (2, ROUTE_MS)];
        expected.extend([0, 2].repeat(rounds - 1).into_iter().map(|at| (at, HANDSHAKE_MS)));
        assert_eq!(attempts(3, Some(1)), expected, "a way that refuses is tried once");
    }
}
