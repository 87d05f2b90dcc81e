//! Requests before they are posted.

use std::ptr;

use super::abi;

/// Pieces of memory that one write takes together.
pub(super) const PIECES: usize = 2;
/// Bytes that a request may carry that lie nowhere else.
pub(super) const SAID_BYTES: usize = 64;

/// See the module's head.
#[derive(Clone, Copy)]
pub(super) struct Request {
    id: u64,
    pub(super) opcode: u32,
    pub(super) flags: u32,
    /// What it tells the peer, in the order of bytes that the device takes.
    pub(super) number: u32,
    /// Where it writes or reads, with the key.
    pub(super) to: (u64, u32),
    pieces: [abi::Sge; PIECES],
    pub(super) count: usize,
    /// Instead of pieces, bytes that go into the request.
    said: [u8; SAID_BYTES],
    said_bytes: u32,
}

impl Request {
    /// One that brings nothing.
    pub(super) const fn new(id: u64, opcode: u32, is_signaled: bool) -> Self {
        Self {
            id,
            opcode,
            flags: if is_signaled { abi::SEND_SIGNALED } else { 0 },
            number: 0,
            to: (0, 0),
            pieces: [abi::Sge { addr: 0, length: 0, lkey: 0 }; PIECES],
            count: 0,
            said: [0; SAID_BYTES],
            said_bytes: 0,
        }
    }

    /// Takes a piece, after those that it has.
    pub(super) fn take(&mut self, piece: abi::Sge) {
        self.pieces[self.count] = piece;
        self.count += 1;
    }

    /// Takes bytes instead.
    pub(super) fn say(&mut self, bytes: &[u8]) {
        self.said[..bytes.len()].copy_from_slice(bytes);
        self.said_bytes = u32::try_from(bytes.len()).unwrap_or(0);
        self.flags |= abi::SEND_INLINE;
    }

    /// As the driver wants it: points into `self`, which must stay where it is until the driver has
    /// it.
    pub(super) fn work(&mut self) -> abi::SendWr {
        if self.said_bytes > 0 {
            let addr = self.said.as_ptr() as u64;
            (self.pieces[0], self.count) = (abi::Sge { addr, length: self.said_bytes, lkey: 0 }, 1);
        }
        abi::SendWr {
            wr_id: self.id,
            next: ptr::null_mut(),
            sg_list: if self.count > 0 { self.pieces.as_mut_ptr() } else { ptr::null_mut() },
            num_sge: i32::try_from(self.count).unwrap_or(0),
            opcode: self.opcode,
            send_flags: self.flags,
            imm_data: self.number.to_be(),
            remote_addr: self.to.0,
            rkey: self.to.1,
            _rest: [0; 9],
        }
    }
}
