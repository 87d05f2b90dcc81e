//! Making windows: every rank makes its part and hands it to the others over their sockets.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use ringfold_types::{Lane, Rank};

use super::Shm;
use super::window::Window;
use crate::contract::{Link, LinkError, LinkFault, Windows};
use crate::sys::{Access, Mapping, receive, sealed_memory, transmit};

/// A window that is being made.
#[derive(Debug)]
pub(super) struct Opening {
    bytes: usize,
    /// This rank's part; `None` if the system refused it.
    own: io::Result<Mapping>,
    /// Its descriptor, as long as not all peers have it,
    file: Option<OwnedFd>,
    /// and how many have.
    told: usize,
    /// What the peers have said, by place.
    parts: Vec<Option<io::Result<Mapping>>>,
}

/// What a rank says to a peer with its part: which window, and how many bytes; 0 if it has none to
/// hand over.
const OFFER_BYTES: usize = 24;
const MAGIC: [u8; 8] = *b"RFwin\0\0\x01";

pub(super) fn encode(number: u64, bytes: u64) -> [u8; OFFER_BYTES] {
    let mut message = [0; OFFER_BYTES];
    message[..8].copy_from_slice(&MAGIC);
    message[8..16].copy_from_slice(&number.to_le_bytes());
    message[16..].copy_from_slice(&bytes.to_le_bytes());
    message
}

impl Windows for Shm {
    fn begin(&mut self, bytes: usize) -> Result<(), LinkError> {
        self.windows += 1;
        let (file, own) = match part(bytes) {
            Ok((file, memory)) => (Some(file), Ok(memory)),
            Err(error) => (None, Err(error)),
        };
        let parts = self.peers.iter().map(|_| None).collect();
        let mut opening = Opening { bytes, own, file, told: 0, parts };
        self.tell(&mut opening)?;
        self.opening = Some(opening);
        Ok(())
    }

    fn finish(&mut self) -> Result<Option<io::Result<Window>>, LinkError> {
        let Some(mut opening) = self.opening.take() else { return Ok(None) };
        self.tell(&mut opening)?;
        for place in 0..self.peers.len() {
            if opening.parts[place].is_none() {
                let heard = self.hear(place, opening.bytes);
                opening.parts[place] = heard.map_err(|fault| self.fault(place, fault))?;
            }
        }
        if opening.told < self.peers.len() || opening.parts.iter().any(Option::is_none) {
            self.opening = Some(opening);
            return Ok(None);
        }
        Ok(Some(self.assembled(opening)))
    }
}

impl Shm {
    /// Hands this rank's part to the peers that do not have it yet, as far as that is possible now:
    /// the system limits how many descriptors are on their way at once.
    fn tell(&self, opening: &mut Opening) -> Result<(), LinkError> {
        let size = if opening.file.is_some() { opening.bytes as u64 } else { 0 };
        let message = encode(self.windows, size);
        let file = opening.file.as_ref().map(AsFd::as_fd);
        while let Some(peer) = self.peers.get(opening.told) {
            let sent = match &peer.socket {
                Some(socket) => transmit(socket, &message, file.as_slice()),
                None => return Err(self.fault(opening.told, LinkFault::Closed)),
            };
            match sent {
                Ok(()) => opening.told += 1,
                Err(error) if is_not_yet(&error) => return Ok(()),
                Err(error) => return Err(self.fault(opening.told, ended(error))),
            }
        }
        Ok(())
    }

    /// What the peer at `place` has to say of the window that is being made, if it has said it.
    fn hear(&self, place: usize, bytes: usize) -> Result<Option<io::Result<Mapping>>, LinkFault> {
        let Some(socket) = &self.peers[place].socket else { return Err(LinkFault::Closed) };
        let mut message = [0; OFFER_BYTES + 1];
        let (len, descriptors) = match receive(socket, &mut message) {
            Ok((0, _)) => return Err(LinkFault::Closed),
            Ok(received) => received,
            Err(error) if is_not_yet(&error) => return Ok(None),
            Err(error) => return Err(ended(error)),
        };
        let message = &message[..len];
        if *message == encode(self.windows, 0) && descriptors.is_empty() {
            return Ok(Some(Err(io::Error::from(io::ErrorKind::OutOfMemory))));
        }
        if *message != encode(self.windows, bytes as u64) {
            return Err(LinkFault::Protocol("another window than was asked for"));
        }
        let Ok([file]) = <[OwnedFd; 1]>::try_from(descriptors) else {
            return Err(LinkFault::Protocol("a window without its memory"));
        };
        match Mapping::new(&file, 0, bytes, Access::ReadWrite) {
            Ok(memory) => Ok(Some(memory.populate().map(|()| memory))),
            // Not what was promised, rather than our own want.
            Err(error) if error.kind() == io::ErrorKind::InvalidData => {
                Err(LinkFault::Protocol("memory for a window that is unfit for it"))
            }
            Err(error) => Ok(Some(Err(error))),
        }
    }

    fn assembled(&self, opening: Opening) -> io::Result<Window> {
        let own = opening.own?;
        let mut peers: Vec<Option<Mapping>> = self.places.iter().map(|_| None).collect();
        let mut parts: Vec<_> = opening.parts.into_iter().flatten().map(Some).collect();
        for (part, place) in peers.iter_mut().zip(&self.places) {
            let found = usize::try_from(*place).ok().and_then(|place| parts.get_mut(place));
            *part = found.and_then(Option::take).transpose()?;
        }
        Ok(Window::new(own, peers))
    }

    fn fault(&self, place: usize, fault: LinkFault) -> LinkError {
        let is_it = |at: &u32| usize::try_from(*at).is_ok_and(|at| at == place);
        let rank = self.places.iter().position(is_it).unwrap_or_default();
        let link = Link { peer: Rank::at(rank), lane: Lane(0) };
        super::error(link, fault)
    }
}

/// This rank's part, all of whose pages are there.
fn part(bytes: usize) -> io::Result<(OwnedFd, Mapping)> {
    let file = sealed_memory(c"ringfold-window", bytes)?;
    let memory = Mapping::new(&file, 0, bytes, Access::ReadWrite)?;
    memory.make_pages()?;
    Ok((file, memory))
}

fn is_not_yet(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
        || error.raw_os_error() == Some(rustix::io::Errno::TOOMANYREFS.raw_os_error())
}

/// What a socket's failure says of the peer.
fn ended(error: io::Error) -> LinkFault {
    match error.kind() {
        io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe => LinkFault::Closed,
        io::ErrorKind::InvalidData => LinkFault::Protocol("an oversized message"),
        _ => LinkFault::Io(error),
    }
}
