//! Requests before they are posted.

use std::ptr;

use super::abi;

/// Pieces of memory that one write takes together.
pub(super) const PIECES: usize = 2;
/// Bytes that a request may carry inline.
pub(super) const INLINE_BYTES: usize = 64;

/// A request before it is posted.
#[derive(Clone, Copy)]
pub(super) struct Request {
    id: u64,
    pub(super) opcode: u32,
    pub(super) flags: u32,
    /// The immediate, in the byte order of the device.
    pub(super) number: u32,
    /// The address that the request writes or reads, with the key.
    pub(super) to: (u64, u32),
    pieces: [abi::Sge; PIECES],
    pub(super) count: usize,
    /// Inline bytes, in place of pieces.
    inline: [u8; INLINE_BYTES],
    inline_bytes: u32,
}

impl Request {
    /// Makes a request without data.
    pub(super) const fn new(id: u64, opcode: u32, is_signaled: bool) -> Self {
        Self {
            id,
            opcode,
            flags: if is_signaled { abi::SEND_SIGNALED } else { 0 },
            number: 0,
            to: (0, 0),
            pieces: [abi::Sge { addr: 0, length: 0, lkey: 0 }; PIECES],
            count: 0,
            inline: [0; INLINE_BYTES],
            inline_bytes: 0,
        }
    }

    /// Adds a piece.
    pub(super) fn take(&mut self, piece: abi::Sge) {
        self.pieces[self.count] = piece;
        self.count += 1;
    }

    /// Makes the bytes inline data, in place of pieces.
    pub(super) fn set_inline(&mut self, bytes: &[u8]) {
        self.inline[..bytes.len()].copy_from_slice(bytes);
        self.inline_bytes = u32::try_from(bytes.len()).unwrap_or(0);
        self.flags |= abi::SEND_INLINE;
    }

    /// The request as the driver wants it. It points into `self`, which must not move until the
    /// driver has taken it.
    pub(super) fn work(&mut self) -> abi::SendWr {
        if self.inline_bytes > 0 {
            let addr = self.inline.as_ptr() as u64;
            (self.pieces[0], self.count) =
                (abi::Sge { addr, length: self.inline_bytes, lkey: 0 }, 1);
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
