//! The events of iWARP connections, for the paths of a peer.

use super::Peer;
use crate::rdma::diagnostics;
use crate::rdma::path::Path;
use crate::rdma::sys::{Connection, Ticket};

impl Peer {
    fn living(&mut self, path: usize, life: u8) -> Option<&mut Path> {
        self.routes.paths_mut().get_mut(path).filter(|path| path.lives(life))
    }

    /// Returns whether some path is to be connected.
    pub(in crate::rdma) fn is_connecting(&self) -> bool {
        self.routes.paths().iter().any(Path::is_connecting)
    }

    /// Handles the resolved route of that life of a path.
    pub(in crate::rdma) fn route_resolved(&mut self, path: usize, life: u8) {
        if let Some(Err(error)) = self.living(path, life).map(Path::route_resolved) {
            self.lose(path, &diagnostics::connection(&error));
        }
    }

    /// Takes a connection for that life of a path, or gives it back.
    pub(in crate::rdma) fn admit(
        &mut self,
        (path, life): (usize, u8),
        connection: Connection,
        ticket: &Ticket,
    ) -> Result<(), Connection> {
        let Some(it) = self.living(path, life) else { return Err(connection) };
        if let Err(error) = it.admit(connection, ticket)? {
            self.lose(path, &diagnostics::connection(&error));
        }
        Ok(())
    }

    /// Handles the established connection of that life of a path.
    pub(in crate::rdma) fn established(&mut self, path: usize, life: u8) {
        if let Some(Err(error)) = self.living(path, life).map(Path::established) {
            self.lose(path, &diagnostics::connection(&error));
        }
    }

    /// Handles the end of the connection of that life of a path.
    pub(in crate::rdma) fn disconnected(&mut self, path: usize, life: u8, why: &str) {
        if self.living(path, life).is_some() {
            self.lose(path, why);
        }
    }

    /// Lets nobody wait for connections that are being made, at the end of the links.
    pub(in crate::rdma) fn abandon(&mut self) {
        self.routes.paths_mut().iter_mut().for_each(Path::abandon);
    }
}
