//! All that there is between this rank and one other: `meeting` makes it, `streams` uses it.

mod meeting;
mod streams;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use ringfold_types::limits::{LANES_MAX, LINK_BYTES_MIN, RDMA_RING_BYTES};
use ringfold_types::{Lane, Rank};

use super::Settings;
use super::inbound::Inbound;
use super::message::{Heard, MESSAGE_BYTES, Message, RailCard};
use super::outbound::Outbound;
use super::path::Path;
use super::rail::Rails;
use super::sys::Pd;
use super::words;
use crate::contract::{Link, LinkFault};
use crate::overflow::Overflow;

/// See the module's head.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) rank: Rank,
    pub(super) stage: Stage,
    /// Messages to send, and bytes of those that the connection took a part of.
    pub(super) to_say: VecDeque<Message>,
    cables: Vec<Cable>,
    pub(super) paths: Vec<Path>,
    /// The path whose turn it is.
    turn: usize,
    outbound: Vec<Outgoing>,
    inbound: Vec<Option<Inbound>>,
    /// Writes that were sent and that have arrived, of all paths.
    sent: u64,
    received: u64,
    /// Writes that the peer sent before it left.
    promised: Option<u64>,
    /// Why nothing can be sent any more, or made.
    fault: Option<Fault>,
}

/// How far the two have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Neither has said anything.
    Idle,
    /// We have said which rails we have.
    Greeting,
    /// There are paths, or will be.
    Rdma,
    /// There are none: data goes by TCP. Whether the peer has said so too.
    Tcp { agreed: bool },
}

/// A lane towards the peer.
#[derive(Debug, Default)]
struct Outgoing {
    way: Way,
    /// Accepted bytes that wait for the way to open, or for room in the ring.
    held: Overflow,
}

/// How bytes of a lane reach the peer.
#[derive(Debug, Default)]
enum Way {
    #[default]
    Unused,
    /// We have asked for a ring.
    Asked,
    Open(Box<Outbound>),
}

/// A pair of rails, one of either end.
#[derive(Debug)]
struct Cable {
    rail: usize,
    pd: Arc<Pd>,
    theirs: RailCard,
}

/// What ended it, in a form that can be told again and again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Closed,
    Unproven,
    Protocol(&'static str),
    Unreachable(String),
    Lost(String),
}

impl Fault {
    pub(super) fn told(&self) -> LinkFault {
        match self {
            Self::Closed => LinkFault::Closed,
            Self::Unproven => LinkFault::Unproven,
            Self::Protocol(what) => LinkFault::Protocol(what),
            Self::Unreachable(why) => LinkFault::Unreachable(io::Error::other(why.clone())),
            Self::Lost(why) => LinkFault::Io(io::Error::other(why.clone())),
        }
    }
}

impl From<&'static str> for Fault {
    fn from(what: &'static str) -> Self {
        Self::Protocol(what)
    }
}

/// What peers share.
pub(super) struct Own<'a> {
    pub(super) rank: Rank,
    pub(super) lanes: usize,
    pub(super) settings: &'a Settings,
    pub(super) rails: &'a mut Rails,
    /// Whether data may go by TCP where there is no path.
    pub(super) may_use_tcp: bool,
}

impl Peer {
    /// A rank with which nothing was said yet. One that has no rails gets its data by TCP.
    pub(super) fn new(rank: Rank, lanes: usize, stage: Stage) -> Self {
        Self {
            rank,
            stage,
            to_say: VecDeque::new(),
            cables: Vec::new(),
            paths: Vec::new(),
            turn: 0,
            outbound: (0..lanes).map(|_| Outgoing::default()).collect(),
            inbound: (0..lanes).map(|_| None).collect(),
            sent: 0,
            received: 0,
            promised: None,
            fault: None,
        }
    }

    /// Whether all is said that was begun, so that nothing is expected on the connection.
    pub(super) fn is_settled(&self) -> bool {
        let waits = match self.stage {
            Stage::Idle | Stage::Tcp { agreed: true } => false,
            Stage::Greeting | Stage::Tcp { agreed: false } => true,
            Stage::Rdma => {
                let is_open = |path: &Path| path.is_dead || path.is_connected && path.is_ready;
                !self.paths.iter().all(is_open)
                    || self.paths.iter().any(Path::is_unsettled)
                    || self.outbound.iter().any(|lane| matches!(lane.way, Way::Asked))
            }
        };
        self.fault.is_some() || !waits && self.to_say.is_empty()
    }

    /// Why nothing can be sent.
    pub(super) const fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    /// Ends it. The first reason counts, unless the peer is gone: that explains what came before.
    pub(super) fn end(&mut self, fault: Fault) {
        if self.fault.is_none() {
            tracing::debug!(peer = self.rank.0, ?fault, "rdma link ended");
            self.paths.iter_mut().filter(|path| !path.is_dead).for_each(Path::fail);
            self.outbound.iter_mut().for_each(|lane| lane.held = Overflow::default());
        }
        if self.fault.is_none() || fault == Fault::Closed {
            self.fault = Some(fault);
        }
    }

    /// Ends it, because the peer is no more. What it sent before is still on its way.
    pub(super) fn leave(&mut self) {
        self.fault = Some(Fault::Closed);
    }

    /// Begins to find out how to reach the peer.
    pub(super) fn greet(&mut self, own: &Own<'_>) {
        if self.stage == Stage::Idle {
            self.stage = Stage::Greeting;
            let (rails, queue_pairs) = (own.rails.cards(), own.settings.queue_pairs);
            self.to_say.push_back(Message::Rails { rails, queue_pairs });
        }
    }

    /// Asks for a ring, if there is none for the lane.
    pub(super) fn want(&mut self, lane: usize) {
        if self.stage == Stage::Rdma && matches!(self.outbound[lane].way, Way::Unused) {
            self.outbound[lane].way = Way::Asked;
            self.to_say.push_back(Message::Want { lane });
        }
    }

    /// Whether the lane's ring is there.
    pub(super) fn is_open(&self, lane: usize) -> bool {
        matches!(self.outbound[lane].way, Way::Open(_))
    }

    /// Bytes of a lane that were accepted and have not left.
    pub(super) fn held(&mut self, lane: usize) -> &mut Overflow {
        &mut self.outbound[lane].held
    }

    /// A path has failed.
    pub(super) fn fail(&mut self, path: usize, status: u32, vendor: u32, settings: &Settings) {
        let Some(it) = self.paths.get(path).filter(|path| !path.is_dead) else { return };
        let gid = self.cables[it.cable].theirs.gid;
        let address = std::net::Ipv6Addr::from(gid).to_canonical();
        let peer = format!("rank {} ({address})", self.rank);
        let silence = words::silence(settings.timeout, settings.retries);
        self.lose(path, &words::status(status, vendor, &peer, silence));
    }

    /// Goes on without a path, if there is another; else that was the end.
    pub(super) fn lose(&mut self, path: usize, why: &str) {
        // What was promised may be lost with it.
        self.promised = None;
        self.paths[path].fail();
        if self.fault.is_some() {
            return;
        }
        let left = self.paths.iter().filter(|path| path.is_usable()).count();
        if left == 0 {
            self.end(Fault::Lost(why.to_owned()));
            return;
        }
        let rank = self.rank;
        tracing::warn!("rdma: path {path} to rank {rank} is lost, {left} left: {why}");
        self.to_say.push_back(Message::Without { path });
        self.inbound.iter_mut().flatten().for_each(Inbound::repeat);
    }

    /// The paths by a rail that carry data.
    pub(super) fn paths_by(&self, rail: usize) -> Vec<usize> {
        let is_by = |path: &Path| !path.is_dead && self.cables[path.cable].rail == rail;
        (0..self.paths.len()).filter(|at| is_by(&self.paths[*at])).collect()
    }

    /// Tells the peer what has arrived by paths that are dead, once nothing more can.
    pub(super) fn tell(&mut self) {
        for path in 0..self.paths.len() {
            if self.fault.is_none() && self.paths[path].must_tell() {
                self.paths[path].has_told = true;
                let heard = |inbound: &Option<Inbound>| {
                    inbound.as_ref().map(Inbound::state).unwrap_or_default()
                };
                let mut lanes = [Heard::default(); LANES_MAX];
                lanes.iter_mut().zip(&self.inbound).for_each(|(to, from)| *to = heard(from));
                self.to_say.push_back(Message::Heard { path, lanes });
            }
        }
    }

    /// Whether the peer's device has all that was sent.
    pub(super) fn is_drained(&self) -> bool {
        self.fault.is_some() || self.paths.iter().all(Path::is_drained)
    }

    /// Says how much was sent, as the last word.
    pub(super) fn part(&mut self) {
        let has_lost = self.paths.iter().any(|path| path.is_dead);
        if self.stage == Stage::Rdma && self.fault.is_none() && !has_lost {
            self.to_say.push_back(Message::Bye { writes: self.sent });
        }
    }

    /// Queue pairs, registrations and registered bytes.
    pub(super) fn costs(&self) -> (usize, usize, usize) {
        let out = self.outbound.iter().filter(|lane| matches!(lane.way, Way::Open(_))).count();
        let rings = out + self.inbound.iter().flatten().count();
        (self.paths.len(), rings * self.cables.len(), rings * RDMA_RING_BYTES)
    }
}

/// The lane on which messages go.
pub(super) const fn messages_to(peer: Rank) -> Link {
    Link { peer, lane: Lane(0) }
}

const _: () = assert!(MESSAGE_BYTES < LINK_BYTES_MIN);
