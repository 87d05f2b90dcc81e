//! Accepted connections that are not authenticated yet, of peers and of others.
//!
//! There are at most `limits::HANDSHAKES_MAX`, each for `limits::HANDSHAKE_MS`; further connections
//! wait in the kernel. If the limit is reached, the oldest is closed after a grace period. So many
//! silent connections cannot keep the peers out.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use ringfold_types::limits::{HANDSHAKE_MS, HANDSHAKES_MAX};

use super::hello::{PROTOCOL, WELCOME};
use super::socket::{Read, read, write};
use crate::contract::Link;
use crate::proof::{Challenged, HELLO_BYTES, Hello, JobKey, PROOF_BYTES};

/// Time after which a connection may be closed if the limit is reached.
const GRACE: Duration = Duration::from_millis(200);

/// A connection that a peer, or someone else, opened.
#[derive(Debug)]
pub(super) struct Greeting {
    socket: OwnedFd,
    since: Instant,
    state: State,
}

#[derive(Debug)]
enum State {
    Hello([u8; HELLO_BYTES], usize),
    Proof(Box<Awaited>),
}

/// A proof of which some bytes may be missing.
#[derive(Debug)]
struct Awaited {
    of: Challenged,
    proof: [u8; PROOF_BYTES],
    arrived: usize,
}

/// The link that a hello is for, or the reason to refuse it. `None` as the reason means that the
/// refusal is not logged.
type Admission = Result<Link, Option<&'static str>>;

/// The progress of a handshake.
#[derive(Debug)]
pub(super) enum Outcome {
    /// More bytes must arrive.
    Waiting,
    /// The peer is authenticated, and this is its link.
    Proven(Link),
    /// The connection is refused, for this reason if it should be logged.
    Refused(Option<&'static str>),
}

impl Greeting {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self { socket, since: Instant::now(), state: State::Hello([0; HELLO_BYTES], 0) }
    }

    /// Takes all steps that are possible now. `check` returns the link that a peer with this hello
    /// may have.
    pub(super) fn advance(&mut self, key: &JobKey, check: impl Fn(&Hello) -> Admission) -> Outcome {
        loop {
            let (buffer, arrived): (&mut [u8], _) = match &mut self.state {
                State::Hello(buffer, arrived) => (buffer, arrived),
                State::Proof(it) => (&mut it.proof, &mut it.arrived),
            };
            match read(&self.socket, &mut buffer[*arrived..]) {
                Ok(Read::Bytes(bytes)) => *arrived += bytes,
                Ok(Read::NotYet) => return Outcome::Waiting,
                Ok(Read::End) | Err(_) => {
                    // A connection without a byte was a port scan, and one with a whole hello was a
                    // peer's. Neither is logged.
                    let spoke = matches!(self.state, State::Hello(_, 1..));
                    return Outcome::Refused(
                        spoke.then_some("it closed the connection within its hello"),
                    );
                }
            }
            if *arrived < buffer.len() {
                continue;
            }
            let next = match &self.state {
                State::Hello(bytes, _) => self.challenge(key, bytes, &check),
                State::Proof(it) => match self.welcome(key, it, &check) {
                    Ok(link) => return Outcome::Proven(link),
                    Err(reason) => Err(reason),
                },
            };
            match next {
                Ok(state) => self.state = state,
                Err(reason) => return Outcome::Refused(reason),
            }
        }
    }

    pub(super) const fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    const fn is_mute(&self) -> bool {
        matches!(self.state, State::Hello(..))
    }

    pub(super) fn into_socket(self) -> OwnedFd {
        self.socket
    }

    fn challenge(
        &self,
        key: &JobKey,
        hello: &[u8; HELLO_BYTES],
        check: impl Fn(&Hello) -> Admission,
    ) -> Result<State, Option<&'static str>> {
        let hello =
            Hello::decode(PROTOCOL, hello).ok_or("its hello is not of this protocol version")?;
        check(&hello)?;
        let of = Challenged::new(hello).map_err(|_| "the system gave no random bytes")?;
        self.write(&of.challenge(key))?;
        Ok(State::Proof(Box::new(Awaited { of, proof: [0; PROOF_BYTES], arrived: 0 })))
    }

    fn welcome(
        &self,
        key: &JobKey,
        it: &Awaited,
        check: impl Fn(&Hello) -> Admission,
    ) -> Admission {
        if !it.of.accepts(key, &it.proof) {
            return Err(Some("its proof is wrong"));
        }
        let link = check(it.of.hello())?;
        self.write(&[WELCOME])?;
        Ok(link)
    }

    /// Writes all of `bytes`. They always fit the send buffer of a connection without earlier data.
    fn write(&self, bytes: &[u8]) -> Result<(), Option<&'static str>> {
        match write(&self.socket, bytes) {
            Ok(count) if count == bytes.len() => Ok(()),
            _ => Err(None),
        }
    }
}

/// The handshakes in progress, by index.
#[derive(Debug, Default)]
pub(super) struct Greetings {
    places: Vec<Option<Greeting>>,
    free: Vec<usize>,
    count: usize,
}

impl Greetings {
    pub(super) const fn is_empty(&self) -> bool {
        self.count == 0
    }

    pub(super) const fn is_full(&self) -> bool {
        self.count >= HANDSHAKES_MAX
    }

    /// Adds a handshake and returns its index.
    pub(super) fn add(&mut self, greeting: Greeting) -> usize {
        self.count += 1;
        if let Some(place) = self.free.pop() {
            self.places[place] = Some(greeting);
            return place;
        }
        self.places.push(Some(greeting));
        self.places.len() - 1
    }

    pub(super) fn at(&mut self, place: usize) -> Option<&mut Greeting> {
        self.places.get_mut(place)?.as_mut()
    }

    pub(super) fn remove(&mut self, place: usize) -> Option<Greeting> {
        let greeting = self.places.get_mut(place)?.take()?;
        self.free.push(place);
        self.count -= 1;
        Some(greeting)
    }

    /// Removes handshakes whose time is up. If the limit is still reached, removes those without a
    /// complete hello after the grace period, and then the oldest, and returns all of them.
    pub(super) fn expire(&mut self) -> Vec<Greeting> {
        let limit = Duration::from_millis(HANDSHAKE_MS);
        let mut expired = self.take(|greeting| greeting.since.elapsed() > limit);
        if self.is_full() {
            expired.extend(self.take(|it| it.is_mute() && it.since.elapsed() > GRACE));
        }
        if self.is_full() {
            let oldest = self.places.iter().flatten().map(|greeting| greeting.since).min();
            let is_oldest = |it: &Greeting| Some(it.since) == oldest;
            expired.extend(self.take(|it| is_oldest(it) && it.since.elapsed() > GRACE));
        }
        expired
    }

    fn take(&mut self, which: impl Fn(&Greeting) -> bool) -> Vec<Greeting> {
        let is_taken = |place: &usize| self.places[*place].as_ref().is_some_and(&which);
        let places: Vec<usize> = (0..self.places.len()).filter(is_taken).collect();
        places.into_iter().filter_map(|place| self.remove(place)).collect()
    }
}
