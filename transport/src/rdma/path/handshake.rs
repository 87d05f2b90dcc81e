//! The messages that both ends of a path exchange before packets pass. This module knows no device.

use std::io;

use crate::rdma::sys::{Target, Ticket};

/// The handshake of one life. It is complete when both ends can be written to.
#[derive(Debug, Default)]
pub(super) struct Handshake {
    /// The sequence number of our first packet.
    sequence: u32,
    /// The secret that the peer shows when it connects to us (iWARP).
    ticket: Ticket,
    /// The peer's offer.
    theirs: Option<Target>,
    is_connected: bool,
    /// The peer has reported that it can be written to.
    is_ready: bool,
}

impl Handshake {
    /// Makes a handshake with random numbers, and a ticket that names the life by `tag`.
    pub(super) fn new(tag: u64) -> io::Result<Self> {
        let (mut random, mut ticket) = ([0; 4], Ticket::default());
        getrandom::fill(&mut random).map_err(io::Error::other)?;
        getrandom::fill(&mut ticket).map_err(io::Error::other)?;
        ticket[..8].copy_from_slice(&tag.to_le_bytes());
        let sequence = u32::from_le_bytes(random) & 0x00ff_ffff;
        Ok(Self { sequence, ticket, ..Self::default() })
    }

    pub(super) const fn sequence(&self) -> u32 {
        self.sequence
    }

    pub(super) const fn ticket(&self) -> &Ticket {
        &self.ticket
    }

    /// Takes the peer's offer of its end.
    pub(super) const fn take(&mut self, theirs: Target) {
        self.theirs = Some(theirs);
    }

    pub(super) const fn has_offer(&self) -> bool {
        self.theirs.is_some()
    }

    /// The peer's end, or zeros before the peer has offered it.
    pub(super) fn theirs(&self) -> Target {
        self.theirs.unwrap_or_default()
    }

    /// Notes that the peer can write to us.
    pub(super) const fn connected(&mut self) {
        self.is_connected = true;
    }

    pub(super) const fn is_connected(&self) -> bool {
        self.is_connected
    }

    /// Notes that we can write to the peer.
    pub(super) const fn ready(&mut self) {
        self.is_ready = true;
    }

    pub(super) const fn is_complete(&self) -> bool {
        self.is_connected && self.is_ready
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_name_their_life_and_cannot_be_guessed() {
        let [one, other] = [7, 7].map(|tag| Handshake::new(tag).unwrap());
        assert_eq!(one.ticket()[..8], 7_u64.to_le_bytes());
        assert_ne!(one.ticket(), other.ticket());
        assert!(one.sequence() < 1 << 24 && one.sequence != other.sequence);
    }

    #[test]
    fn both_ends_must_report_it() {
        let mut handshake = Handshake::default();
        handshake.ready();
        assert!(!handshake.is_complete());
        handshake.connected();
        assert!(handshake.is_complete());
    }
}
