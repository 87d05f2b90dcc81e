//! The control stream: messages to and from a peer over the TCP connection.

use ringfold_types::limits::LINK_BYTES_MIN;
use ringfold_types::{Lane, Rank};

use super::message::{BadMessage, Context, Load, MESSAGE_BYTES, Message};
use super::peer::{Fault, Peer};
use crate::contract::{Link, LinkFault, Received, Transport as _};
use crate::proof::JobKey;
use crate::tcp::Tcp;

/// The tag of messages.
const TAG: u32 = u32::from_le_bytes(*b"RFrd");

/// The tag of fragments, each of which follows its message.
const LOAD_TAG: u32 = u32::from_le_bytes(*b"RFld");

/// Bytes of fragments taken from the connection at once.
const LAND_BYTES: usize = 16 * 1024;

/// One connection's messages, and fragments where there is no other way.
#[derive(Debug)]
pub(super) struct Talk {
    said: u64,
    heard: u64,
    /// The rest of a message that the connection has not taken.
    unsaid: Vec<u8>,
    /// The fragment after that message, with the number of its bytes that the connection has taken.
    loading: Option<(Load, usize)>,
    /// The bytes of the next message.
    partial: [u8; MESSAGE_BYTES],
    /// The number of bytes of the next message that have arrived.
    arrived: usize,
    /// The fragment after the last message, with the number of its bytes that have arrived.
    landing: Option<(Load, usize)>,
}

impl Default for Talk {
    fn default() -> Self {
        Self {
            said: 0,
            heard: 0,
            unsaid: Vec::new(),
            loading: None,
            partial: [0; MESSAGE_BYTES],
            arrived: 0,
            landing: None,
        }
    }
}

/// The two ends of the stream, and the key that authenticates them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Between<'a> {
    pub(super) key: &'a JobKey,
    pub(super) own: Rank,
    pub(super) peer: Rank,
}

impl Talk {
    /// Returns whether the connection has taken everything.
    pub(super) const fn is_said(&self) -> bool {
        self.unsaid.is_empty() && self.loading.is_none()
    }

    /// Sends the queued messages, as far as the connection takes them. If the connection is broken,
    /// `receive` returns the reason.
    pub(super) fn speak(&mut self, tcp: &mut Tcp, peer: &mut Peer, between: Between<'_>) {
        let Between { key, own, peer: to } = between;
        loop {
            while !self.unsaid.is_empty() {
                match tcp.send(messages_to(to), TAG, &self.unsaid) {
                    Ok(0) | Err(_) => return,
                    Ok(taken) => drop(self.unsaid.drain(..taken)),
                }
            }
            while let Some((load, sent)) = &mut self.loading {
                match tcp.send(messages_to(to), LOAD_TAG, peer.image(*load, *sent)) {
                    Ok(0) if *sent < load.bytes => return,
                    Err(_) => return,
                    Ok(taken) => *sent += taken,
                }
                if *sent == load.bytes {
                    self.loading = None;
                }
            }
            let Some(message) = peer.next_to_say() else { return };
            tracing::debug!(to = to.0, ?message, "rdma");
            let context = Context { key, from: own, to, count: self.said };
            self.said += 1;
            self.unsaid.extend(message.encode(context));
            if let Message::Load(load) = message {
                self.loading = Some((load, 0));
            }
        }
    }

    /// Returns the next message with its fragment, if all of it has arrived.
    pub(super) fn listen(
        &mut self,
        tcp: &mut Tcp,
        peer: &mut Peer,
        between: Between<'_>,
    ) -> Result<Option<Message>, Fault> {
        let Between { key, own, peer: from } = between;
        while self.landing.is_none() {
            while self.arrived < MESSAGE_BYTES {
                let rest = &mut self.partial[self.arrived..];
                match tcp.recv(messages_to(from), TAG, rest) {
                    Ok(None) => return Ok(None),
                    Ok(Some(Received { tag: TAG, bytes })) => self.arrived += bytes,
                    Ok(Some(_)) => return Err("data where a message should be".into()),
                    Err(error) => return Err(fault(error.fault)),
                }
            }
            self.arrived = 0;
            let context = Context { key, from, to: own, count: self.heard };
            self.heard += 1;
            let message = Message::decode(&self.partial, context).map_err(|bad| match bad {
                BadMessage::Unproven => Fault::Unproven,
                BadMessage::Nonsense => "a message that makes no sense".into(),
            })?;
            tracing::debug!(from = from.0, ?message, "rdma");
            match message {
                Message::Load(load) => self.landing = Some((load, 0)),
                message => return Ok(Some(message)),
            }
        }
        self.land(tcp, peer, from)
    }

    /// Takes a fragment's bytes. Returns its message once all of them are there.
    fn land(
        &mut self,
        tcp: &mut Tcp,
        peer: &mut Peer,
        from: Rank,
    ) -> Result<Option<Message>, Fault> {
        let mut bytes = [0; LAND_BYTES];
        while let Some((load, landed)) = &mut self.landing {
            let most = bytes.len().min(load.bytes - *landed);
            let taken = match tcp.recv(messages_to(from), LOAD_TAG, &mut bytes[..most]) {
                Ok(Some(Received { tag: LOAD_TAG, bytes })) => bytes,
                Ok(Some(_)) => return Err("a message where a fragment should be".into()),
                Ok(None) => return Ok(None),
                Err(error) => return Err(fault(error.fault)),
            };
            peer.store(*load, *landed, &bytes[..taken])?;
            *landed += taken;
            if *landed == load.bytes {
                return Ok(self.landing.take().map(|(load, _)| Message::Load(load)));
            }
        }
        Ok(None)
    }
}

/// The lane for messages.
const fn messages_to(peer: Rank) -> Link {
    Link { peer, lane: Lane(0) }
}

const _: () = assert!(MESSAGE_BYTES < LINK_BYTES_MIN);

fn fault(fault: LinkFault) -> Fault {
    match fault {
        LinkFault::Closed => Fault::Closed,
        LinkFault::Unproven => Fault::Unproven,
        LinkFault::Protocol(what) => Fault::Protocol(what),
        LinkFault::Unreachable(error) => Fault::Unreachable(error.to_string()),
        LinkFault::Io(error) => Fault::Lost(error.to_string()),
    }
}
