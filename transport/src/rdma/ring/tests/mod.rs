//! Both halves of a ring without a device.

mod credit;
mod rtr;
mod stream;

use ringfold_types::limits::{RDMA_PIECE_BYTES, RDMA_PLACED_BYTES};

use super::inbound::Inbound;
use super::layout::{LINE_BYTES, Most, RING_LINES};
use super::outbound::{By, Outbound};
use crate::rdma::message::Grant;
use crate::rdma::sys::{Inbox, Outbox};

fn halves() -> (Outbound, Inbound) {
    let bytes = RING_LINES as usize * LINE_BYTES;
    let outbound = Outbound::new(0, Grant::default(), Outbox::new(bytes).unwrap(), Vec::new());
    (outbound, Inbound::new(Inbox::new(bytes).unwrap(), Vec::new(), Grant::default()))
}

const fn by(path: usize) -> By {
    By { path, cable: Some(0), most: Most { direct: RDMA_PLACED_BYTES, by_ring: RDMA_PIECE_BYTES } }
}
