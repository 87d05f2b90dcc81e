//! Turns the evidence of all ranks into one answer, the same on every rank.
//!
//! * `ports`: the statements about each port, and the labels that sources give by name;
//! * `networks`: labels from switches and subnets, which have no names of their own;
//! * `order`: the hosts in fabric order, and the groups around each;
//! * `agreement`: the answer, and the parts of it that a layout takes.
//!
//! Some sources name rails and planes: the user, a site file, a fabric file. They are believed port
//! by port, the most trusted first. Switches and subnets only show which ports are together. They
//! add labels where that leaves only one answer.

mod agreement;
mod known;
mod networks;
mod order;
mod ports;
mod remarks;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use crate::certainty::{Certainty, Finding};
use crate::evidence::Source;

use ports::Slots;
use remarks::Remarks;

pub use agreement::{AgreedHost, Agreement};
pub use known::{HostEvidence, Known, RankEvidence};

/// Computes the answer that all ranks can rely on. Takes time and memory in proportion to the
/// evidence.
///
/// # Panics
/// If `known` has a number of a host, machine or evidence that it does not list.
#[must_use]
pub fn agree(known: &Known) -> Agreement {
    let mut remarks = Remarks::default();
    let slots = Slots::new(known, &mut remarks);
    let (mut labels, mut because) = slots.named(&mut remarks);
    for source in [Source::Lldp, Source::Subnets] {
        for is_tcp in [false, true] {
            because.extend(networks::add(&slots, source, is_tcp, &mut labels, &mut remarks));
        }
    }
    let rails: BTreeSet<u16> = labels.iter().flatten().map(|place| place.rail).collect();
    let planes: BTreeSet<u8> = labels.iter().flatten().map(|place| place.plane).collect();
    let (certainty, because) = match because.is_empty() {
        true => (Certainty::Unknown, "no evidence shows which ports share a rail".to_owned()),
        false => (Certainty::Certain, because.join("; ")),
    };
    Agreement {
        hosts: order::order(known, &slots, &mut remarks),
        rails: Finding { value: rails.into_iter().collect(), certainty, because },
        planes: planes.into_iter().collect(),
        labels: slots.by_evidence(known, &labels),
        crosses: crosses(known, &mut remarks),
        ignored: remarks.sentences(),
    }
}

/// Whether ports on different rails reach each other, if all sources that state it agree.
fn crosses(known: &Known, remarks: &mut Remarks) -> Option<bool> {
    let said: BTreeSet<bool> = known.evidence.iter().filter_map(|it| it.evidence.crosses).collect();
    if said.len() > 1 {
        remarks.add("ranks disagree whether ports on different rails reach each other".to_owned());
    }
    said.first().copied().filter(|_| said.len() == 1)
}
