//! The events of iWARP connections.

use std::time::Instant;

use super::Rdma;
use crate::rdma::path::Id;
use crate::rdma::peer::Peer;
use crate::rdma::sys::{CmEvent, Connection, Ticket};

/// Connection events that are handled in a row, so that no peer occupies this rank.
const CM_EVENTS_MAX: usize = 64;

impl Rdma {
    /// Handles the events of all rails' connections.
    pub(super) fn handle_connections(&mut self) {
        for rail in 0..self.devices.count() {
            for _ in 0..CM_EVENTS_MAX {
                let it = self.devices.rail(rail);
                let Some(connector) = it.connector.as_ref().filter(|_| !it.is_gone) else { break };
                match connector.event() {
                    Ok(None) => break,
                    Ok(Some(event)) => {
                        tracing::debug!(rail = it.name(), ?event, "rdma");
                        self.handle_connection_event(rail, event);
                    }
                    Err(error) => self.lose_device(rail, &error.to_string()),
                }
            }
        }
    }

    fn handle_connection_event(&mut self, rail: usize, event: CmEvent) {
        match event {
            CmEvent::RouteResolved(tag) => {
                self.with(tag, |peer, path, life| peer.route_resolved(path, life))
            }
            CmEvent::Established(tag) => {
                self.devices.rail_mut(rail).connected_at = Instant::now();
                self.with(tag, |peer, path, life| peer.established(path, life));
            }
            CmEvent::Disconnected(tag, why) => {
                let (Id { peer, .. }, _) = Id::decode(tag);
                if self.contacts.has(peer) {
                    self.explain(peer);
                }
                self.with(tag, |peer, path, life| peer.disconnected(path, life, &why));
            }
            CmEvent::ConnectRequest(connection, ticket) => {
                if let Err(connection) = self.admit(connection, ticket) {
                    let name = self.devices.rail(rail).name();
                    tracing::info!("rdma: {name}: refused an unexpected connection");
                    connection.refuse();
                }
            }
            CmEvent::DeviceRemoval => self.lose_device(rail, "it was removed"),
            CmEvent::Other => {}
        }
    }

    /// Changes the peer that a tag names, if it is a contact.
    fn with(&mut self, tag: u64, change: impl FnOnce(&mut Peer, usize, u8)) {
        let (Id { peer, path, life }, _) = Id::decode(tag);
        if self.contacts.has(peer) {
            self.change(peer, |peer, _| change(peer, path, life));
        }
    }

    /// Takes a connection for the path that its ticket names, or gives it back.
    fn admit(&mut self, connection: Connection, ticket: Option<Ticket>) -> Result<(), Connection> {
        let Some(ticket) = ticket else { return Err(connection) };
        let [a, b, c, d, e, f, g, h, ..] = ticket;
        let tag = u64::from_le_bytes([a, b, c, d, e, f, g, h]);
        let (Id { peer, path, life }, _) = Id::decode(tag);
        if !self.contacts.has(peer) {
            return Err(connection);
        }
        self.change(peer, |peer, _| peer.admit((path, life), connection, &ticket))
    }
}
