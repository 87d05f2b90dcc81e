//! Traces of the traffic of transports.
//!
//! A layer around a transport shows all that it moves, so transports without a trace cost nothing
//! more. Both ends of a link see the same bytes in the same order. So the sender and the receiver
//! count alike, and derive the same number for an arrow. A point-to-point message is an arrow of
//! its own. Of the bytes with the tag of a collective the first ones are.

use std::collections::HashMap;

use ringfold_transport::layer::Watch;
use ringfold_transport::{Link, ticks};
use ringfold_types::limits::MESSAGE_LANE;
use ringfold_types::{Digest, Rank, mix};

use super::event::{Arrow, Event, GroupId, Passed, What};
use super::process::record;
use crate::messages::{HEADER_BYTES, tag_and_bytes};

/// A rank of a group, whose traffic is traced.
#[derive(Clone, Debug)]
pub(crate) struct Traffic {
    /// The number of the group in the record.
    pub(crate) group: GroupId,
    /// The name of the group.
    pub(crate) name: String,
    /// A number of the group that all members have.
    pub(crate) number: u64,
    /// This rank.
    pub(crate) own: Rank,
}

/// The trace of a transport's traffic.
#[derive(Debug)]
pub(crate) struct Traced {
    traffic: Traffic,
    streams: HashMap<(Link, bool), Stream>,
}

/// One direction of a link.
#[derive(Debug, Default)]
struct Stream {
    /// The arrows so far.
    arrows: u64,
    /// The latest tag.
    tag: Option<u32>,
    /// The message that has begun.
    message: Option<Message>,
}

/// A message that has begun.
#[derive(Clone, Copy, Debug)]
struct Message {
    since: u64,
    tag: u32,
    bytes: u64,
    /// The bytes that have not passed, with the header.
    left: u64,
}

impl Traffic {
    /// The number of an arrow of this link.
    fn arrow(&self, (link, is_sent): (Link, bool), count: u64) -> Arrow {
        let [from, to] = if is_sent { [self.own, link.peer] } else { [link.peer, self.own] };
        let numbers = [self.number, from.0.into(), to.0.into(), link.lane.0.into()];
        let stream = numbers.into_iter().fold(Digest::default(), |it, next| it.number(next.into()));
        Arrow { id: mix(stream.finish().wrapping_add(count)), is_sent }
    }

    fn record(&self, since: u64, until: u64, what: What) {
        let group = self.group;
        record(Event { group, since, until, what }, || self.name.clone());
    }
}

impl Traced {
    pub(crate) fn new(traffic: Traffic) -> Self {
        Self { traffic, streams: HashMap::new() }
    }
}

impl Watch for Traced {
    fn begin(&mut self, at: (Link, bool), tag: u32, front: &[u8]) {
        let stream = self.streams.entry(at).or_default();
        if at.0.lane.0 == MESSAGE_LANE {
            if stream.message.is_none()
                && let Some((tag, bytes)) = tag_and_bytes(front)
            {
                let left = bytes.saturating_add(HEADER_BYTES as u64);
                stream.message = Some(Message { since: ticks(), tag, bytes, left });
            }
        } else if stream.tag.replace(tag) != Some(tag) {
            let arrow = self.traffic.arrow(at, stream.arrows);
            stream.arrows += 1;
            let now = ticks();
            self.traffic.record(now, now, What::Bytes(arrow));
        }
    }

    fn pass(&mut self, at: (Link, bool), passed: usize) {
        let Some(stream) = self.streams.get_mut(&at) else { return };
        let Some(message) = &mut stream.message else { return };
        message.left = message.left.saturating_sub(passed as u64);
        if message.left == 0 {
            let Message { since, tag, bytes, .. } = *message;
            let arrow = self.traffic.arrow(at, stream.arrows);
            (stream.message, stream.arrows) = (None, stream.arrows + 1);
            let message = Passed { peer: at.0.peer.0, tag, bytes, arrow };
            self.traffic.record(since, ticks(), What::Message(message));
        }
    }
}
