//! A member's end of a group with blocking calls, which can also break the protocol.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::thread;

use ringfold_transport::offload::OffloadError;
use ringfold_transport::offload::handshake::{Connector, Place};
use ringfold_transport::offload::header::{HEADER_BYTES, Header, Kind};
use ringfold_types::DataType;

use crate::DEADLINE;

/// The key of all groups.
pub(crate) const KEY: [u8; 32] = [7; 32];

/// A group that a server has granted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Endpoint {
    pub(crate) at: SocketAddr,
    pub(crate) group: u32,
    pub(crate) key: [u8; 32],
    pub(crate) window: u64,
    pub(crate) chunk_bytes: usize,
}

/// A connection to a group's endpoint.
#[derive(Debug)]
pub(crate) struct Wire(pub(crate) TcpStream);

impl Wire {
    pub(crate) fn connect(at: SocketAddr) -> Self {
        let stream = TcpStream::connect(at).unwrap();
        stream.set_nodelay(true).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        Self(stream)
    }

    /// This end's address, by which the server names the peer.
    pub(crate) fn name(&self) -> String {
        self.0.local_addr().unwrap().to_string()
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        // The server may have closed the connection. Its last message tells more.
        self.0.write_all(bytes).ok();
    }

    /// Receives a message. A refusal is an error, heartbeats are left out.
    pub(crate) fn receive(&mut self) -> Result<(Header, Vec<u8>), OffloadError> {
        loop {
            let mut head = [0; HEADER_BYTES];
            self.read(&mut head)?;
            let header = Header::decode(&head).unwrap();
            let mut payload = vec![0; header.bytes as usize];
            self.read(&mut payload)?;
            match header.kind {
                Kind::Beat => {}
                Kind::Refused => {
                    let reason = String::from_utf8(payload).unwrap();
                    return Err(OffloadError::Refused { reason });
                }
                _ => return Ok((header, payload)),
            }
        }
    }

    fn read(&mut self, into: &mut [u8]) -> Result<(), OffloadError> {
        self.0.read_exact(into).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => OffloadError::Closed,
            _ => OffloadError::Io(error),
        })
    }
}

/// A child of a group.
#[derive(Debug)]
pub(crate) struct Member {
    pub(crate) wire: Wire,
    place: Place,
    window: u64,
}

impl Member {
    /// Connects, and proves that it knows the endpoint's key.
    pub(crate) fn join(endpoint: &Endpoint, child: u8, epoch: u32) -> Result<Self, OffloadError> {
        let place = Place { group: endpoint.group, epoch, child };
        let connector = Connector::new(endpoint.key, place)?;
        let mut wire = Wire::connect(endpoint.at);
        wire.send(&connector.hello());
        let (_, challenge) = wire.receive()?;
        wire.send(&connector.answer(&challenge, false)?);
        assert_eq!(wire.receive()?.0.kind, Kind::Welcome);
        Ok(Self { wire, place, window: endpoint.window })
    }

    /// The header of a chunk of bytes that are summed.
    pub(crate) fn header(&self, chunk: u64, bytes: usize) -> Header {
        let Place { group, epoch, child } = self.place;
        let bytes = u32::try_from(bytes).unwrap();
        let slot = u8::try_from(chunk % (2 * self.window)).unwrap();
        let plain = Header::plain(Kind::AllReduce, group, epoch, bytes);
        Header { child, slot, chunk, tag: 1, data_type: DataType::U8, ..plain }
    }

    pub(crate) fn post(&mut self, header: &Header, payload: &[u8]) {
        self.wire.send(&header.encode());
        self.wire.send(payload);
    }

    /// Sums `chunks` equal chunks, from number `first`, with the window full.
    pub(crate) fn all_reduce(
        &mut self,
        first: u64,
        chunks: u64,
        part: &[u8],
        wanted: &[u8],
    ) -> Result<(), OffloadError> {
        let mut posted = 0;
        for taken in 0..chunks {
            while posted < chunks.min(taken + self.window) {
                self.post(&self.header(first + posted, part.len()), part);
                posted += 1;
            }
            let (header, result) = self.wire.receive()?;
            assert_eq!((header.kind, header.chunk), (Kind::Result, first + taken));
            assert!(result == wanted, "chunk {taken} has other sums");
        }
        Ok(())
    }

    /// Leaves as intended.
    pub(crate) fn leave(mut self) {
        self.wire.send(&self.place.message(Kind::Leave, &[]));
    }
}

/// All members of a group, each in a thread: they sum `bytes` bytes `times` times, and then `end`.
pub(crate) fn run(
    endpoint: &Endpoint,
    members: u8,
    bytes: usize,
    times: usize,
    end: impl Fn(Member) + Sync,
) {
    let part = |child: u8| vec![child + 1; endpoint.chunk_bytes];
    let wanted = vec![(1..=members).sum(); endpoint.chunk_bytes];
    let chunks = bytes.div_ceil(endpoint.chunk_bytes) as u64;
    thread::scope(|scope| {
        for child in 0..members {
            let (wanted, end) = (&wanted, &end);
            scope.spawn(move || {
                let mut member = Member::join(endpoint, child, 1).unwrap();
                for call in 0..times as u64 {
                    member.all_reduce(call * chunks, chunks, &part(child), wanted).unwrap();
                }
                end(member);
            });
        }
    });
}
