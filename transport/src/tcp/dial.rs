//! The way to an open connection, for the end that opens it.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use ringfold_types::Rank;
use ringfold_types::limits::{HANDSHAKE_MS, ROUTE_MS};
use rustix::event::epoll;
use rustix::io::Errno;

use super::broken::Broken;
use super::hello::{WELCOME, hello};
use super::route::Route;
use super::socket::{EVENTS_OF_LINKS, Liveness, Read, connecting, read, write};
use crate::contract::Link;
use crate::proof::{CHALLENGE_BYTES, HELLO_BYTES, Hello, JobKey};

/// Rounds over all ways to the peer before a link counts as broken.
const ROUNDS_MAX: u32 = 8;

/// Pause after each failed attempt of the first round and of the second; those of each further
/// round are twice as long.
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
pub(super) struct Dial {
    /// This rank, and the link that the connection is for.
    me: Rank,
    link: Link,
    /// Ways to the peer, the next to try first.
    routes: VecDeque<Route>,
    /// Complete rounds over the ways.
    rounds: u32,
    /// Ways that this round has tried.
    tried: usize,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    /// Begins at the next `advance`, but not before that time.
    Idle(Option<Instant>),
    /// On its way since then, to say hello.
    Connecting { socket: OwnedFd, hello: Hello, since: Instant },
    /// Has said hello; so many bytes of the challenge have arrived.
    Challenged { socket: OwnedFd, hello: Hello, challenge: [u8; CHALLENGE_BYTES], arrived: usize },
    /// Has proven itself.
    Proven(OwnedFd),
    /// Was welcomed.
    Open(OwnedFd),
}

impl Dial {
    pub(super) const fn new(me: Rank, link: Link, routes: VecDeque<Route>) -> Self {
        Self { me, link, routes, rounds: 0, tried: 0, stage: Stage::Idle(None) }
    }

    /// Whether `advance` must be called as time passes, events or not.
    pub(super) const fn is_timed(&self) -> bool {
        matches!(self.stage, Stage::Idle(_) | Stage::Connecting { .. })
    }

    /// Whether the peer may already have taken this connection for the link.
    pub(super) const fn may_be_welcome(&self) -> bool {
        matches!(self.stage, Stage::Proven(_))
    }

    /// Takes the steps that are possible now. Gives the connection once it is open.
    pub(super) fn advance(&mut self, dialer: Dialer<'_>) -> Result<Option<OwnedFd>, Broken> {
        let patience = self.patience();
        loop {
            let next = match &mut self.stage {
                Stage::Idle(Some(time)) if Instant::now() < *time => return Ok(None),
                Stage::Idle(_) => self.dial(dialer)?,
                Stage::Connecting { socket, hello, since } => {
                    match write(&*socket, &hello.encode()) {
                        Ok(HELLO_BYTES) => {
                            let (hello, challenge) = (*hello, [0; CHALLENGE_BYTES]);
                            let next =
                                |socket| Stage::Challenged { socket, hello, challenge, arrived: 0 };
                            self.step(next)
                        }
                        Ok(0) if since.elapsed() < patience => return Ok(None),
                        Ok(0) => self.retry(Broken::Unreachable(Errno::TIMEDOUT))?,
                        Ok(_) => return Err(Broken::Protocol("no room for a hello")),
                        Err(errno) => self.retry(Broken::Unreachable(errno))?,
                    }
                }
                Stage::Challenged { socket, hello, challenge, arrived } => {
                    match read(&*socket, &mut challenge[*arrived..]) {
                        Ok(Read::NotYet) => return Ok(None),
                        Ok(Read::Bytes(bytes)) => {
                            *arrived += bytes;
                            if *arrived < CHALLENGE_BYTES {
                                continue;
                            }
                            let proof = dialer.key.answer(hello, challenge);
                            let proof = proof.ok_or(Broken::Unproven)?;
                            // Where this fails, so will the next read, and that decides.
                            write(&*socket, &proof).ok();
                            self.step(Stage::Proven)
                        }
                        Ok(Read::End) | Err(_) => self.retry(Broken::Unproven)?,
                    }
                }
                Stage::Proven(socket) => {
                    let mut welcome = [0];
                    match read(&*socket, &mut welcome) {
                        Ok(Read::NotYet) => return Ok(None),
                        Ok(Read::Bytes(_)) if welcome[0] == WELCOME => self.step(Stage::Open),
                        Ok(Read::Bytes(_)) => return Err(Broken::Protocol("no welcome")),
                        Ok(Read::End) | Err(_) => self.retry(Broken::Unproven)?,
                    }
                }
                Stage::Open(_) => {
                    let done = std::mem::replace(&mut self.stage, Stage::Idle(None));
                    return Ok(if let Stage::Open(socket) = done { Some(socket) } else { None });
                }
            };
            self.stage = next;
        }
    }

    /// Time that the next way has to answer. The first round is in a hurry to find one that works.
    fn patience(&self) -> Duration {
        let has_others = self.routes.len() > 1;
        let is_in_hurry = has_others && self.rounds == 0;
        Duration::from_millis(if is_in_hurry { ROUTE_MS } else { HANDSHAKE_MS })
    }

    /// Opens a connection to the next address.
    fn dial(&mut self, dialer: Dialer<'_>) -> Result<Stage, Broken> {
        let Some(route) = self.routes.front() else {
            return Err(Broken::Unreachable(Errno::DESTADDRREQ));
        };
        let hello = hello(self.me, self.link).map_err(|_| Broken::Os(Errno::IO))?;
        match connecting(*route, dialer.liveness) {
            Ok(socket) => {
                let data = epoll::EventData::new_u64(dialer.token);
                epoll::add(dialer.epoll, &socket, data, EVENTS_OF_LINKS)?;
                Ok(Stage::Connecting { socket, hello, since: Instant::now() })
            }
            Err(errno) => self.retry(Broken::Unreachable(errno)),
        }
    }

    /// The stage that follows, with the same socket.
    fn step(&mut self, next: impl FnOnce(OwnedFd) -> Stage) -> Stage {
        match std::mem::replace(&mut self.stage, Stage::Idle(None)) {
            Stage::Connecting { socket, .. }
            | Stage::Challenged { socket, .. }
            | Stage::Proven(socket)
            | Stage::Open(socket) => next(socket),
            idle @ Stage::Idle(_) => idle,
        }
    }

    /// Tries again later, at the next address, unless there is no point in it. An acceptor that had
    /// too many strangers at its door may have dropped us, and one that opened the link itself will
    /// be heard of; one that refuses is no more.
    fn retry(&mut self, because: Broken) -> Result<Stage, Broken> {
        let failed = self.routes.pop_front();
        if because != Broken::Unreachable(Errno::CONNREFUSED) {
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
        if let (Some(failed), Broken::Unreachable(errno)) = (failed, because)
            && failed != *next
        {
            let (Link { peer, lane }, errno) = (self.link, std::io::Error::from(errno));
            tracing::info!(
                "tcp: lane {lane} to rank {peer} cannot go {failed}: {errno}; trying {next}"
            );
        }
        let pause = PAUSE * 2_u32.saturating_pow(self.rounds.saturating_sub(1));
        Ok(Stage::Idle(Some(Instant::now() + pause)))
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use ringfold_types::Lane;

    use super::*;

    /// The patience of every attempt until the link counts as broken, and the ways tried.
    fn attempts(ways: u8, refused: Option<u8>) -> Vec<(u8, u64)> {
        let to = |last| Route { from: None, to: SocketAddr::from(([192, 0, 2, last], 1)) };
        let link = Link { peer: Rank(1), lane: Lane(0) };
        let mut dial = Dial::new(Rank(0), link, (0..ways).map(to).collect());
        let mut all = Vec::new();
        loop {
            let front = *dial.routes.front().unwrap();
            let way = (0..ways).find(|last| to(*last) == front).unwrap();
            all.push((way, u64::try_from(dial.patience().as_millis()).unwrap()));
            let errno = if refused == Some(way) { Errno::CONNREFUSED } else { Errno::TIMEDOUT };
            if dial.retry(Broken::Unreachable(errno)).is_err() {
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
