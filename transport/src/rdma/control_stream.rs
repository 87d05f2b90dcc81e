//! The control stream: messages to and from a peer over the TCP connection.

use ringfold_types::limits::LINK_BYTES_MIN;
use ringfold_types::{Lane, Rank};

use super::message::{BadMessage, Context, MESSAGE_BYTES, Message, TcpFragment};
use super::peer::{Fault, Peer};
use crate::contract::{Link, LinkFault, Received, Transport as _};
use crate::proof::JobKey;
use crate::tcp::Tcp;

/// The tag of messages.
const TAG: u32 = u32::from_le_bytes(*b"RFrd");

/// The tag of fragments, each of which follows its message.
const FRAGMENT_TAG: u32 = u32::from_le_bytes(*b"RFld");

/// Bytes of fragments taken from the connection at once.
const RECEIVE_BYTES: usize = 16 * 1024;

/// One connection's messages, and fragments where there is no other way.
#[derive(Debug)]
pub(super) struct ControlStream {
    sent_messages: u64,
    received_messages: u64,
    /// The rest of a message that the connection has not taken.
    unsent: Vec<u8>,
    /// The fragment after that message, with the number of its bytes that the connection has taken.
    sending: Option<(TcpFragment, usize)>,
    /// The bytes of the next message.
    partial: [u8; MESSAGE_BYTES],
    /// The number of bytes of the next message that have arrived.
    arrived: usize,
    /// The fragment after the last message, with the number of its bytes that have arrived.
    receiving: Option<(TcpFragment, usize)>,
}

impl Default for ControlStream {
    fn default() -> Self {
        Self {
            sent_messages: 0,
            received_messages: 0,
            unsent: Vec::new(),
            sending: None,
            partial: [0; MESSAGE_BYTES],
            arrived: 0,
            receiving: None,
        }
    }
}

/// The two ends of the stream, and the key that authenticates them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parties<'a> {
    pub(super) key: &'a JobKey,
    pub(super) own: Rank,
    pub(super) peer: Rank,
}

impl ControlStream {
    /// Returns whether the connection has taken everything.
    pub(super) const fn is_sent(&self) -> bool {
        self.unsent.is_empty() && self.sending.is_none()
    }

    /// Sends the queued messages, as far as the connection takes them. If the connection is broken,
    /// `receive` returns the reason.
    pub(super) fn send(&mut self, tcp: &mut Tcp, peer: &mut Peer, parties: Parties<'_>) {
        let Parties { key, own, peer: to } = parties;
        loop {
            while !self.unsent.is_empty() {
                match tcp.send(control_lane(to), TAG, &self.unsent) {
                    Ok(0) | Err(_) => return,
                    Ok(taken) => drop(self.unsent.drain(..taken)),
                }
            }
            while let Some((fragment, sent)) = &mut self.sending {
                match tcp.send(control_lane(to), FRAGMENT_TAG, peer.image(*fragment, *sent)) {
                    Ok(0) if *sent < fragment.bytes => return,
                    Err(_) => return,
                    Ok(taken) => *sent += taken,
                }
                if *sent == fragment.bytes {
                    self.sending = None;
                }
            }
            let Some(message) = peer.next_message() else { return };
            tracing::debug!(to = to.0, ?message, "rdma");
            let context = Context { key, from: own, to, count: self.sent_messages };
            self.sent_messages += 1;
            self.unsent.extend(message.encode(context));
            if let Message::TcpFragment(fragment) = message {
                self.sending = Some((fragment, 0));
            }
        }
    }

    /// Returns the next message with its fragment, if all of it has arrived.
    pub(super) fn receive(
        &mut self,
        tcp: &mut Tcp,
        peer: &mut Peer,
        parties: Parties<'_>,
    ) -> Result<Option<Message>, Fault> {
        let Parties { key, own, peer: from } = parties;
        while self.receiving.is_none() {
            while self.arrived < MESSAGE_BYTES {
                let rest = &mut self.partial[self.arrived..];
                match tcp.recv(control_lane(from), TAG, rest) {
                    Ok(None) => return Ok(None),
                    Ok(Some(Received { tag: TAG, bytes })) => self.arrived += bytes,
                    Ok(Some(_)) => return Err("data where a message should be".into()),
                    Err(error) => return Err(fault(error.fault)),
                }
            }
            self.arrived = 0;
            let context = Context { key, from, to: own, count: self.received_messages };
            self.received_messages += 1;
            let message = Message::decode(&self.partial, context).map_err(|bad| match bad {
                BadMessage::Unproven => Fault::Unproven,
                BadMessage::Invalid => "an invalid message".into(),
            })?;
            tracing::debug!(from = from.0, ?message, "rdma");
            match message {
                Message::TcpFragment(fragment) => self.receiving = Some((fragment, 0)),
                message => return Ok(Some(message)),
            }
        }
        self.receive_fragment(tcp, peer, from)
    }

    /// Takes a fragment's bytes. Returns its message once all of them are there.
    fn receive_fragment(
        &mut self,
        tcp: &mut Tcp,
        peer: &mut Peer,
        from: Rank,
    ) -> Result<Option<Message>, Fault> {
        let mut bytes = [0; RECEIVE_BYTES];
        while let Some((fragment, received)) = &mut self.receiving {
            let most = bytes.len().min(fragment.bytes - *received);
            let taken = match tcp.recv(control_lane(from), FRAGMENT_TAG, &mut bytes[..most]) {
                Ok(Some(Received { tag: FRAGMENT_TAG, bytes })) => bytes,
                Ok(Some(_)) => return Err("a message where a fragment should be".into()),
                Ok(None) => return Ok(None),
                Err(error) => return Err(fault(error.fault)),
            };
            peer.store(*fragment, *received, &bytes[..taken])?;
            *received += taken;
            if *received == fragment.bytes {
                return Ok(self
                    .receiving
                    .take()
                    .map(|(fragment, _)| Message::TcpFragment(fragment)));
            }
        }
        Ok(None)
    }
}

/// The lane for messages.
const fn control_lane(peer: Rank) -> Link {
    Link { peer, lane: Lane(0) }
}

const _: () = assert!(MESSAGE_BYTES < LINK_BYTES_MIN);

fn fault(fault: LinkFault) -> Fault {
    match fault {
        LinkFault::Closed | LinkFault::Died => Fault::Closed,
        LinkFault::Unproven => Fault::Unproven,
        LinkFault::Protocol(what) => Fault::Protocol(what),
        LinkFault::Unreachable(error) => Fault::Unreachable(error.to_string()),
        LinkFault::Io(error) => Fault::Lost(error.to_string()),
    }
}
