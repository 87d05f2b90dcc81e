//! A member's end of a group with blocking calls, which can also break the protocol.

use std::thread;

use ringfold_innetwork::End;
use ringfold_innetwork::wire::header::{Header, Kind};
use ringfold_innetwork::wire::links::Endpoints;
use ringfold_types::DataType;

/// The key of all groups.
pub(crate) const KEY: [u8; 32] = [7; 32];

/// A group that a server has granted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Endpoint {
    pub(crate) at: Endpoints,
    pub(crate) group: u32,
    pub(crate) key: [u8; 32],
    pub(crate) chunk_bytes: usize,
    pub(crate) window: u64,
}

/// A child of a group.
#[derive(Debug)]
pub(crate) struct Member {
    end: End,
    window: u64,
}

impl Member {
    /// Connects, and waits until the server accepts the child.
    pub(crate) fn join(endpoint: &Endpoint, child: u8) -> Result<Self, String> {
        let mut member = Self::connect(endpoint, child)?;
        member.send(Header::plain(Kind::Hello, 0), &[]);
        assert_eq!(member.receive()?.0.kind, Kind::Welcome);
        Ok(member)
    }

    /// Connects, and says nothing.
    pub(crate) fn connect(endpoint: &Endpoint, child: u8) -> Result<Self, String> {
        let end = End::dial(endpoint.at, child, endpoint.key).map_err(|e| e.to_string())?;
        Ok(Self { end, window: endpoint.window })
    }

    /// Receives a message. A refusal is an error, heartbeats are left out.
    pub(crate) fn receive(&mut self) -> Result<(Header, Vec<u8>), String> {
        loop {
            let (header, payload) = self.end.receive().map_err(|fault| fault.to_string())?;
            match header.kind {
                Kind::Beat => {}
                Kind::Refused => return Err(String::from_utf8(payload).unwrap()),
                _ => return Ok((header, payload)),
            }
        }
    }

    /// The header of a chunk of bytes that are summed.
    pub(crate) fn header(chunk: u64, bytes: usize) -> Header {
        let plain = Header::plain(Kind::AllReduce, u32::try_from(bytes).unwrap());
        Header { chunk, tag: 1, data_type: DataType::U8, ..plain }
    }

    pub(crate) fn send(&mut self, header: Header, payload: &[u8]) {
        self.send_raw(&[&header.encode()[..], payload].concat());
    }

    pub(crate) fn send_raw(&mut self, bytes: &[u8]) {
        // The server may have closed the link. Its last message tells more.
        self.end.send(bytes).ok();
    }

    /// Sums `chunks` equal chunks, from number `first`, with the window full.
    pub(crate) fn all_reduce(
        &mut self,
        first: u64,
        chunks: u64,
        part: &[u8],
        wanted: &[u8],
    ) -> Result<(), String> {
        let mut posted = 0;
        for taken in 0..chunks {
            while posted < chunks.min(taken + self.window) {
                self.send(Self::header(first + posted, part.len()), part);
                posted += 1;
            }
            let (header, result) = self.receive()?;
            assert_eq!((header.kind, header.chunk), (Kind::Result, first + taken));
            assert!(result == wanted, "chunk {taken} has other sums");
        }
        Ok(())
    }

    /// Leaves as intended.
    pub(crate) fn leave(mut self) {
        self.send(Header::plain(Kind::Leave, 0), &[]);
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
                let mut member = Member::join(endpoint, child).unwrap();
                for call in 0..times as u64 {
                    member.all_reduce(call * chunks, chunks, &part(child), wanted).unwrap();
                }
                end(member);
            });
        }
    });
}
