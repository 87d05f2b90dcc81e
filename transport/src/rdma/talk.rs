//! What is being said to a peer, and heard from it, over the TCP connection.

use ringfold_types::Rank;

use super::message::{BadMessage, Context, MESSAGE_BYTES, Message};
use super::peer::{Fault, messages_to};
use crate::contract::{LinkFault, Transport as _};
use crate::tcp::Tcp;
use crate::tcp::proof::JobKey;

/// Marks bytes of messages.
const TAG: u32 = u32::from_le_bytes(*b"RFrd");

/// One connection's messages. They are few and short, so that the connection takes them whole as a
/// rule.
#[derive(Debug)]
pub(super) struct Talk {
    said: u64,
    heard: u64,
    /// What the connection has not taken.
    unsaid: Vec<u8>,
    /// What has arrived of the next message.
    partial: [u8; MESSAGE_BYTES],
    arrived: usize,
}

impl Default for Talk {
    fn default() -> Self {
        let partial = [0; MESSAGE_BYTES];
        Self { said: 0, heard: 0, unsaid: Vec::new(), partial, arrived: 0 }
    }
}

impl Talk {
    /// Whether the connection has taken all.
    pub(super) const fn is_said(&self) -> bool {
        self.unsaid.is_empty()
    }

    /// Gives a message to the connection.
    pub(super) fn say(&mut self, message: &Message, key: &JobKey, from: Rank, to: Rank) {
        tracing::debug!(to = to.0, ?message, "rdma");
        let context = Context { key, from, to, count: self.said };
        self.said += 1;
        self.unsaid.extend(message.encode(context));
    }

    /// Brings on its way what the connection takes. Where it is broken, listening says why.
    pub(super) fn speak(&mut self, tcp: &mut Tcp, to: Rank) {
        while !self.unsaid.is_empty() {
            match tcp.send(messages_to(to), TAG, &self.unsaid) {
                Ok(0) | Err(_) => return,
                Ok(taken) => drop(self.unsaid.drain(..taken)),
            }
        }
    }

    /// The next message, if it has arrived.
    pub(super) fn listen(
        &mut self,
        tcp: &mut Tcp,
        key: &JobKey,
        from: Rank,
        to: Rank,
    ) -> Result<Option<Message>, Fault> {
        while self.arrived < MESSAGE_BYTES {
            let rest = &mut self.partial[self.arrived..];
            match tcp.recv(messages_to(from), TAG, rest) {
                Ok(None) => return Ok(None),
                Ok(Some((TAG, bytes))) => self.arrived += bytes,
                Ok(Some(_)) => return Err("data where a message should be".into()),
                Err(error) => return Err(fault(error.fault)),
            }
        }
        self.arrived = 0;
        let context = Context { key, from, to, count: self.heard };
        self.heard += 1;
        match Message::decode(&self.partial, context) {
            Ok(message) => {
                tracing::debug!(from = from.0, ?message, "rdma");
                Ok(Some(message))
            }
            Err(BadMessage::Unproven) => Err(Fault::Unproven),
            Err(BadMessage::Nonsense) => Err("a message that makes no sense".into()),
        }
    }
}

fn fault(fault: LinkFault) -> Fault {
    match fault {
        LinkFault::Closed => Fault::Closed,
        LinkFault::Unproven => Fault::Unproven,
        LinkFault::Protocol(what) => Fault::Protocol(what),
        LinkFault::Unreachable(error) => Fault::Unreachable(error.to_string()),
        LinkFault::Io(error) => Fault::Lost(error.to_string()),
    }
}
