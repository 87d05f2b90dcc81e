//! The turns by which paths over iWARP get connected, and lose their connection.

use super::Peer;
use crate::rdma::path::Path;
use crate::rdma::sys::{Connection, Ticket};
use crate::rdma::words;

impl Peer {
    fn living(&mut self, path: usize, life: u8) -> Option<&mut Path> {
        self.routes.paths_mut().get_mut(path).filter(|path| path.lives(life))
    }

    /// Whether some path is to be connected.
    pub(in crate::rdma) fn is_connecting(&self) -> bool {
        self.routes.paths().iter().any(Path::is_connecting)
    }

    /// The way for that life of a path is known.
    pub(in crate::rdma) fn found(&mut self, path: usize, life: u8) {
        if let Some(Err(error)) = self.living(path, life).map(Path::found) {
            self.lose(path, &words::connection(&error));
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
            self.lose(path, &words::connection(&error));
        }
        Ok(())
    }

    /// The connection of that life of a path is there.
    pub(in crate::rdma) fn made(&mut self, path: usize, life: u8) {
        if let Some(Err(error)) = self.living(path, life).map(Path::made) {
            self.lose(path, &words::connection(&error));
        }
    }

    /// The connection of that life of a path is no more.
    pub(in crate::rdma) fn broken(&mut self, path: usize, life: u8, why: &str) {
        if self.living(path, life).is_some() {
            self.lose(path, why);
        }
    }

    /// Lets nobody wait for connections that are being made; as the end of it all.
    pub(in crate::rdma) fn abandon(&mut self) {
        self.routes.paths_mut().iter_mut().for_each(Path::abandon);
    }
}
