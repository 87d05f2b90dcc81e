//! One end of a link between a member and an aggregator, for tests that play the other end.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;
use std::{io, thread};

use ringfold_types::Rank;

use super::header::Header;
use super::links::{AGGREGATOR, Endpoints, Links, child_rank};
use super::messages::Messages;
use ringfold_transport::LinkFault;

/// One end of a link, with calls that block.
#[derive(Debug)]
pub struct End {
    links: Links,
    peer: Rank,
    messages: Messages,
}

impl End {
    /// The end of an aggregator with one child, and the endpoints that the child dials.
    ///
    /// # Errors
    /// The system lacks ports or descriptors.
    pub fn listen(key: [u8; 32], child: u8) -> io::Result<(Self, Endpoints)> {
        let at = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let (links, port) = Links::listen(None, at, key, 1)?;
        let tcp = SocketAddr::new(at, port);
        Ok((Self::of(links, child_rank(child)), Endpoints { tcp, rdma_port: 0 }))
    }

    /// The end of a child.
    ///
    /// # Errors
    /// The system lacks descriptors, or there is no route.
    pub fn dial(at: Endpoints, child: u8, key: [u8; 32]) -> io::Result<Self> {
        Ok(Self::of(Links::dial(None, child, at.tcp, key)?, AGGREGATOR))
    }

    fn of(links: Links, peer: Rank) -> Self {
        Self { links, peer, messages: Messages::new(peer) }
    }

    /// Receives a message.
    ///
    /// # Errors
    /// The link has ended.
    ///
    /// # Panics
    /// If the header is none, or is of another version.
    pub fn receive(&mut self) -> Result<(Header, Vec<u8>), LinkFault> {
        let Self { links, messages, .. } = self;
        let head = until(links, |links| messages.header(links))?;
        let header = Header::decode(&head).expect("a header");
        let mut payload = vec![0; header.bytes as usize];
        until(links, |links| Ok(messages.payload(links, &mut payload)?.then_some(())))?;
        Ok((header, payload))
    }

    /// Sends a message, or any other bytes.
    ///
    /// # Errors
    /// The link has ended.
    pub fn send(&mut self, mut bytes: &[u8]) -> Result<(), LinkFault> {
        let Self { links, peer, .. } = self;
        while !bytes.is_empty() {
            let write = |links: &mut Links| links.write(*peer, bytes, false);
            let sent = until(links, |links| Ok(Some(write(links)?).filter(|sent| *sent > 0)))?;
            bytes = &bytes[sent..];
        }
        until(links, |links| Ok(links.is_flushed().then_some(())))
    }

    /// Sends a header and its payload.
    ///
    /// # Errors
    /// As `send`.
    pub fn send_message(&mut self, header: &Header, payload: &[u8]) -> Result<(), LinkFault> {
        self.send(&[&header.encode()[..], payload].concat())
    }
}

/// Repeats a step until it returns something.
fn until<T>(
    links: &mut Links,
    mut step: impl FnMut(&mut Links) -> Result<Option<T>, LinkFault>,
) -> Result<T, LinkFault> {
    loop {
        links.poll()?;
        if let Some(done) = step(links)? {
            return Ok(done);
        }
        thread::sleep(Duration::from_micros(100));
    }
}
