//! From the evidence of all ranks to one answer, the same on every rank.
//!
//! * `ports`: what was said of each port, and the labels that sources give by name;
//! * `networks`: labels from switches and subnets, which have no names of their own;
//! * `order`: the hosts in fabric order, and the groups around each;
//! * `agreement`: the answer, and the parts of it that a layout takes.
//!
//! A source that names rails and planes (the user, a site file, a fabric file) is believed port by
//! port, the most trusted first. Switches and subnets only say which ports are together: they add
//! labels where that leaves one answer.

mod agreement;
mod known;
mod networks;
mod notes;
mod order;
mod ports;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use crate::certainty::{Certainty, Finding};
use crate::evidence::Source;

use notes::Notes;
use ports::Slots;

pub use agreement::{AgreedHost, Agreement};
pub use known::{HostEvidence, Known, RankEvidence};

/// What all ranks can rely on. Takes time and memory in proportion to what was said.
///
/// # Panics
/// If `known` has a number of a host, machine or evidence that it does not list.
#[must_use]
pub fn agree(known: &Known) -> Agreement {
    let mut notes = Notes::default();
    let slots = Slots::new(known, &mut notes);
    let (mut labels, mut because) = slots.named(&mut notes);
    for source in [Source::Lldp, Source::Subnets] {
        for is_tcp in [false, true] {
            because.extend(networks::add(&slots, source, is_tcp, &mut labels, &mut notes));
        }
    }
    let rails: BTreeSet<u16> = labels.iter().flatten().map(|place| place.rail).collect();
    let planes: BTreeSet<u8> = labels.iter().flatten().map(|place| place.plane).collect();
    let (certainty, because) = match because.is_empty() {
        true => (Certainty::Unknown, "no evidence tells which ports share a rail".to_owned()),
        false => (Certainty::Certain, because.join("; ")),
    };
    Agreement {
        hosts: order::order(known, &slots, &mut notes),
        rails: Finding { value: rails.into_iter().collect(), certainty, because },
        planes: planes.into_iter().collect(),
        labels: slots.by_evidence(known, &labels),
        crosses: crosses(known, &mut notes),
        ignored: notes.sentences(),
    }
}

/// Whether ports on different rails reach each other, if every source that says so agrees.
fn crosses(known: &Known, notes: &mut Notes) -> Option<bool> {
    let said: BTreeSet<bool> = known.evidence.iter().filter_map(|it| it.evidence.crosses).collect();
    if said.len() > 1 {
        notes.add("ranks differ in whether ports on different rails reach each other".to_owned());
    }
    said.first().copied().filter(|_| said.len() == 1)
}
