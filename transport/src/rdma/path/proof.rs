//! The proof that packets pass: a short one, and then a write of the longest ones. Only both show
//! that the path works, because a switch with a smaller MTU loses long packets in silence.

use std::sync::Arc;

use crate::rdma::rail::PROBE_BYTES;
use crate::rdma::sys::{Mr, Target};

/// The memory of both ends for the packets of a proof, and its progress in one life.
#[derive(Debug, Default)]
pub(super) struct Proof {
    /// The registration of our memory. All peers write there too, and nobody reads it.
    right: Option<Arc<Mr>>,
    /// The bytes in the longest packets.
    packet_bytes: u32,
    /// The short packet has passed, so long ones are under way.
    is_long: bool,
}

impl Proof {
    /// Makes a proof in the memory that the device can access.
    pub(super) const fn new(right: Arc<Mr>) -> Self {
        Self { right: Some(right), packet_bytes: 0, is_long: false }
    }

    /// The address of our memory for the peer, and the key to it.
    pub(super) fn target(&self) -> (u64, u32) {
        self.right.as_ref().map(|right| (right.address(0), right.remote_key())).unwrap_or_default()
    }

    /// Sets the packets' MTU, as verbs count it.
    pub(super) const fn set_mtu(&mut self, mtu: u8) {
        self.packet_bytes = 128 << mtu;
    }

    /// Begins with long packets. Returns whether that is new.
    pub(super) const fn lengthen(&mut self) -> bool {
        !std::mem::replace(&mut self.is_long, true)
    }

    /// The bytes to write, once the packets are long.
    pub(super) fn payload(&self, to: &Target) -> Option<(&Mr, (usize, usize))> {
        let right = self.right.as_deref().filter(|_| self.is_long && to.key != 0);
        right.map(|right| (right, (0, PROBE_BYTES)))
    }

    /// The bytes in the packets that are under way, if they are long.
    pub(super) fn long_packets(&self) -> Option<u32> {
        self.is_long.then_some(self.packet_bytes)
    }
}
