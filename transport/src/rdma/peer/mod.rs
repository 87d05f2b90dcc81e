//! All that there is between this rank and one other: `meeting` makes it, with `connecting` where
//! that takes turns, `streams` and `receiving` use it, `losing` is about paths that end and begin
//! again.

mod connecting;
mod losing;
mod meeting;
mod receiving;
mod streams;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::time::Instant;

use ringfold_types::limits::{LANES_MAX, LINK_BYTES_MIN, RDMA_RING_BYTES};
use ringfold_types::{Lane, Rank};

use super::Settings;
use super::budget::{Budget, Share};
use super::inbound::Inbound;
use super::invitation::{MAILBOX_BYTES, Mailbox};
use super::message::{MESSAGE_BYTES, Message, RailCard};
use super::nameplate::Nameplate;
use super::outages::News;
use super::outbound::{Outbound, Ready};
use super::pairing;
use super::path::Path;
use super::rail::Rails;
use super::registry::Registry;
use super::sys::Pd;
use crate::contract::{Link, LinkFault};
use crate::overflow::Overflow;

/// See the module's head.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) rank: Rank,
    stage: Stage,
    /// Messages to send.
    pub(super) to_say: VecDeque<Message>,
    /// What happened, for the log.
    pub(super) news: Vec<News>,
    /// What we may take for it; or why nothing.
    share: Result<Share, String>,
    /// The rails that we told it of, each with its card at that time.
    told: Vec<(usize, RailCard)>,
    cables: Vec<Cable>,
    paths: Vec<Path>,
    /// The path whose turn it is.
    turn: usize,
    /// By which one it says what it has received.
    voice: Option<usize>,
    /// Whether data may go by TCP where no path is left,
    may_use_tcp: bool,
    /// whether it does,
    is_by_tcp: bool,
    /// and fragments that wait for it, each with its lane.
    loads: VecDeque<(usize, Ready)>,
    outbound: Vec<Outgoing>,
    inbound: Vec<Option<Inbound>>,
    /// Where it may write invitations, if there are cables.
    mailbox: Option<Mailbox>,
    /// Until when a path may come back, because a port has another address.
    returns: Option<Instant>,
    /// Fragments that the peer sent before it left, by lane.
    promised: Option<[u64; LANES_MAX]>,
    /// When it left.
    left: Option<Instant>,
    /// Why nothing can be sent any more, or made.
    fault: Option<Fault>,
}

/// How far the two have come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// Neither has said anything.
    Idle,
    /// We have said which rails we have.
    Greeting,
    /// Paths were made of them, if there were any.
    Met,
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
    /// None where something lacks, memory as a rule, so that it cannot be used.
    pd: Option<Arc<Pd>>,
    /// It carries data only while no other cable does.
    is_spare: bool,
    /// The device has refused to let go of callers' memory.
    is_stuck: bool,
    theirs: RailCard,
    /// Of our end, for people,
    name: String,
    /// and of theirs, once they have said so.
    plate: Nameplate,
}

impl Cable {
    /// Lets go of the device: it reaches no caller's memory through this cable any more, unless it
    /// is stuck.
    fn disown(&mut self, own: &mut Own<'_>) {
        self.recall(own);
        self.pd = None;
    }

    /// Takes callers' memory back from the device, as far as that lets go of it.
    fn recall(&mut self, own: &mut Own<'_>) {
        if let Some(pd) = &self.pd
            && let Err(error) = own.registry.forget(pd, own.budget)
        {
            tracing::warn!("rdma: {} does not let go of memory: {error}; see `dmesg`", self.name);
            self.is_stuck = true;
        }
    }
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
    pub(super) budget: &'a mut Budget,
    pub(super) registry: &'a mut Registry,
}

impl Peer {
    /// A rank with which nothing was said yet.
    pub(super) fn new(rank: Rank, lanes: usize, may_use_tcp: bool) -> Self {
        Self {
            rank,
            stage: Stage::Idle,
            to_say: VecDeque::new(),
            news: Vec::new(),
            share: Ok(Share::default()),
            told: Vec::new(),
            cables: Vec::new(),
            paths: Vec::new(),
            turn: 0,
            voice: None,
            may_use_tcp,
            is_by_tcp: false,
            loads: VecDeque::new(),
            outbound: (0..lanes).map(|_| Outgoing::default()).collect(),
            inbound: (0..lanes).map(|_| None).collect(),
            mailbox: None,
            returns: None,
            promised: None,
            left: None,
            fault: None,
        }
    }

    /// Whether all is said that was begun, so that nothing is expected on the connection.
    pub(super) fn is_settled(&self) -> bool {
        let waits = match self.stage {
            Stage::Idle => false,
            Stage::Greeting => true,
            Stage::Met => {
                self.is_by_tcp
                    || !self.paths.iter().all(|path| path.is_usable() || path.is_settled())
                    || self.outbound.iter().any(|lane| matches!(lane.way, Way::Asked))
            }
        };
        let has_said = self.to_say.is_empty() && self.loads.is_empty();
        self.fault.is_some() || has_said && (!waits || self.is_done())
    }

    /// Why nothing can be sent.
    pub(super) const fn fault(&self) -> Option<&Fault> {
        self.fault.as_ref()
    }

    /// Ends it. The first reason counts, unless the peer is gone: that explains what came before.
    pub(super) fn end(&mut self, fault: Fault) {
        if self.fault.is_none() {
            tracing::debug!(peer = self.rank.0, ?fault, "rdma link ended");
            self.paths.iter_mut().filter(|path| !path.has_ended()).for_each(Path::end);
            self.outbound.iter_mut().for_each(|lane| lane.held = Overflow::default());
            self.loads.clear();
        }
        if self.fault.is_none() || fault == Fault::Closed {
            self.fault = Some(fault);
        }
    }

    /// The peer says goodbye, and so has all that it wanted; after so many fragments of each lane.
    fn dismiss(&mut self, fragments: [u64; LANES_MAX]) {
        self.promised = Some(fragments);
        for lane in &mut self.outbound {
            if let Way::Open(outbound) = &mut lane.way {
                outbound.all_arrived();
            }
        }
    }

    /// Ends it, because the peer is no more. What it sent before is still on its way.
    pub(super) fn leave(&mut self) {
        self.fault = Some(Fault::Closed);
        if let Some(fragments) = self.promised {
            self.dismiss(fragments);
        }
        self.left = Some(Instant::now());
    }

    /// Whether the peer wants nothing any more.
    fn is_done(&self) -> bool {
        self.fault.is_some() || self.promised.is_some()
    }

    /// Begins to find out how to reach the peer.
    pub(super) fn greet(&mut self, own: &mut Own<'_>) {
        if self.stage == Stage::Idle {
            self.stage = Stage::Greeting;
            let cards = own.rails.cards();
            let pairs = pairing::most(&cards);
            self.share = own.budget.share(self.rank, pairs, own.settings.queue_pairs);
            let Share { rails: some, each: queue_pairs } = self.share();
            self.told = pairing::told(cards, some);
            let rails = self.told.iter().map(|(_, card)| *card).collect();
            self.to_say.push_back(Message::Rails { rails, queue_pairs });
        }
    }

    fn share(&self) -> Share {
        self.share.as_ref().copied().unwrap_or_default()
    }

    /// Asks for a ring, if there is none for the lane.
    pub(super) fn want(&mut self, lane: usize) {
        if self.stage == Stage::Met && matches!(self.outbound[lane].way, Way::Unused) {
            self.outbound[lane].way = Way::Asked;
            let mailbox = self.mailbox.as_ref().map(Mailbox::grant).unwrap_or_default();
            self.to_say.push_back(Message::Want { lane, mailbox });
        }
    }

    /// Whether the lane's ring is there.
    pub(super) fn is_open(&self, lane: usize) -> bool {
        matches!(self.outbound[lane].way, Way::Open(_))
    }

    /// Whether the peer's device has all that was sent.
    pub(super) fn is_drained(&self) -> bool {
        self.is_done() || self.paths.iter().all(Path::is_drained)
    }

    /// Lets the devices say when they are done.
    pub(super) fn ask(&mut self) {
        for path in 0..self.paths.len() {
            self.ask_path(path);
        }
    }

    /// Says how much was sent, as the last word; for when all has left.
    pub(super) fn part(&mut self) {
        if self.stage == Stage::Met && self.fault.is_none() {
            let mut fragments = [0; LANES_MAX];
            for (count, lane) in fragments.iter_mut().zip(&self.outbound) {
                if let Way::Open(outbound) = &lane.way {
                    *count = outbound.fragments();
                }
            }
            self.to_say.push_back(Message::Bye { fragments });
        }
    }

    /// Whether data goes by TCP, because no path is left.
    pub(super) const fn is_by_tcp(&self) -> bool {
        self.is_by_tcp && self.fault.is_none()
    }

    /// Queue pairs, registrations, and the bytes of those.
    pub(super) fn costs(&self) -> (usize, usize, usize) {
        let paths = self.paths.iter().filter(|path| !path.has_ended()).count();
        let rings = (self.images() + self.rings()) * self.cables.len();
        let mailboxes = self.mailbox.as_ref().map_or(0, Mailbox::rights);
        (paths, rings + mailboxes, rings * RDMA_RING_BYTES + mailboxes * MAILBOX_BYTES)
    }

    /// Lanes that have an image of the peer's ring.
    fn images(&self) -> usize {
        self.outbound.iter().filter(|lane| matches!(lane.way, Way::Open(_))).count()
    }

    /// Lanes that have a ring.
    fn rings(&self) -> usize {
        self.inbound.iter().flatten().count()
    }
}

/// The lane on which messages go.
pub(super) const fn messages_to(peer: Rank) -> Link {
    Link { peer, lane: Lane(0) }
}

const _: () = assert!(MESSAGE_BYTES < LINK_BYTES_MIN);
