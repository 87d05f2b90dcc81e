//! Connections that have not yet proven themselves: those of peers, and those of strangers.
//!
//! There are at most `limits::HANDSHAKES_MAX`, each for `limits::HANDSHAKE_MS`; further ones wait
//! in the kernel. Where all places are taken, the oldest gives way after a grace period, so that a
//! crowd of strangers that say nothing does not keep the peers out.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use ringfold_types::limits::{HANDSHAKE_MS, HANDSHAKES_MAX};

use super::hello::{PROTOCOL, WELCOME};
use super::socket::{Read, read, write};
use crate::contract::Link;
use crate::proof::{Challenged, HELLO_BYTES, Hello, JobKey, PROOF_BYTES};

/// Time after which a connection gives way to others when all places are taken.
const GRACE: Duration = Duration::from_millis(200);

/// A connection that a peer, or a stranger, opened.
#[derive(Debug)]
pub(super) struct Greeting {
    socket: OwnedFd,
    since: Instant,
    stage: Stage,
}

#[derive(Debug)]
enum Stage {
    Hello([u8; HELLO_BYTES], usize),
    Proof(Box<Awaited>),
}

/// A proof that is on its way.
#[derive(Debug)]
struct Awaited {
    of: Challenged,
    proof: [u8; PROOF_BYTES],
    arrived: usize,
}

/// The link that a hello may have, or why it may have none; a reason that is there is worth a word
/// to the log.
type Judged = Result<Link, Option<&'static str>>;

/// How far a greeting came.
#[derive(Debug)]
pub(super) enum Outcome {
    /// More must arrive.
    Waiting,
    /// It is the peer that it says, and this is the link.
    Proven(Link),
    /// It is of no use; whether it is worth a word to the log.
    Refused(Option<&'static str>),
}

impl Greeting {
    pub(super) fn new(socket: OwnedFd) -> Self {
        Self { socket, since: Instant::now(), stage: Stage::Hello([0; HELLO_BYTES], 0) }
    }

    /// Takes the steps that are possible now. `judge` says which link a peer with this hello may
    /// have.
    pub(super) fn advance(&mut self, key: &JobKey, judge: impl Fn(&Hello) -> Judged) -> Outcome {
        loop {
            let (buffer, arrived): (&mut [u8], _) = match &mut self.stage {
                Stage::Hello(buffer, arrived) => (buffer, arrived),
                Stage::Proof(it) => (&mut it.proof, &mut it.arrived),
            };
            match read(&self.socket, &mut buffer[*arrived..]) {
                Ok(Read::Bytes(bytes)) => *arrived += bytes,
                Ok(Read::NotYet) => return Outcome::Waiting,
                Ok(Read::End) | Err(_) => {
                    // Who leaves without a word was scanning, and who leaves later was a peer.
                    let spoke = matches!(self.stage, Stage::Hello(_, 1..));
                    return Outcome::Refused(spoke.then_some("it left"));
                }
            }
            if *arrived < buffer.len() {
                continue;
            }
            let next = match &self.stage {
                Stage::Hello(bytes, _) => self.challenge(key, bytes, &judge),
                Stage::Proof(it) => match self.welcome(key, it, &judge) {
                    Ok(link) => return Outcome::Proven(link),
                    Err(reason) => Err(reason),
                },
            };
            match next {
                Ok(stage) => self.stage = stage,
                Err(reason) => return Outcome::Refused(reason),
            }
        }
    }

    pub(super) const fn socket(&self) -> &OwnedFd {
        &self.socket
    }

    const fn is_mute(&self) -> bool {
        matches!(self.stage, Stage::Hello(..))
    }

    pub(super) fn into_socket(self) -> OwnedFd {
        self.socket
    }

    fn challenge(
        &self,
        key: &JobKey,
        hello: &[u8; HELLO_BYTES],
        judge: impl Fn(&Hello) -> Judged,
    ) -> Result<Stage, Option<&'static str>> {
        let hello = Hello::decode(PROTOCOL, hello).ok_or("it speaks another language")?;
        judge(&hello)?;
        let of = Challenged::new(hello).map_err(|_| "the system gave no random bytes")?;
        self.write(&of.challenge(key))?;
        Ok(Stage::Proof(Box::new(Awaited { of, proof: [0; PROOF_BYTES], arrived: 0 })))
    }

    fn welcome(&self, key: &JobKey, it: &Awaited, judge: impl Fn(&Hello) -> Judged) -> Judged {
        if !it.of.accepts(key, &it.proof) {
            return Err(Some("its proof is wrong"));
        }
        let link = judge(it.of.hello())?;
        self.write(&[WELCOME])?;
        Ok(link)
    }

    /// A few bytes always fit into a connection on which nothing was written.
    fn write(&self, bytes: &[u8]) -> Result<(), Option<&'static str>> {
        match write(&self.socket, bytes) {
            Ok(count) if count == bytes.len() => Ok(()),
            _ => Err(None),
        }
    }
}

/// The greetings under way, by place.
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

    /// Takes a greeting in and says at which place.
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

    /// Closes those whose time is over. If all places are taken, those that have not even said
    /// hello within the grace period go too, and if there are none the oldest. Returns how many.
    pub(super) fn expire(&mut self) -> usize {
        let before = self.count;
        self.close(|greeting| greeting.since.elapsed() > Duration::from_millis(HANDSHAKE_MS));
        if self.is_full() {
            self.close(|greeting| greeting.is_mute() && greeting.since.elapsed() > GRACE);
        }
        if self.is_full() {
            let oldest = self.places.iter().flatten().map(|greeting| greeting.since).min();
            self.close(|it| Some(it.since) == oldest && it.since.elapsed() > GRACE);
        }
        before - self.count
    }

    fn close(&mut self, which: impl Fn(&Greeting) -> bool) {
        for place in 0..self.places.len() {
            if self.places[place].as_ref().is_some_and(&which) {
                self.remove(place);
            }
        }
    }
}
