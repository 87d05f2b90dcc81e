//! Labels from switches and subnets. These sources only show which ports are together.

use std::collections::{BTreeMap, BTreeSet};

use super::ports::{Slot, Slots, because};
use super::remarks::Remarks;
use crate::evidence::Source;
use crate::fabric::Place;

/// The ports that one source puts on one network.
#[derive(Debug)]
struct Class {
    slots: Vec<usize>,
    /// Number of hosts that the ports are on.
    hosts: usize,
    /// The lowest index of one of the ports in evidence.
    at: usize,
}

/// Adds labels to ports without one, if `source` leaves only one answer. Returns a sentence with
/// their number.
///
/// If no port has a label yet, each network becomes a rail. Each host may have at most one port on
/// each network. Hosts must share at least two networks, and each pair of these must have a common
/// host. Otherwise a network takes the label that its labelled ports have, if there are several
/// such networks: a single network may carry all rails.
pub(super) fn add(
    slots: &Slots<'_>,
    source: Source,
    is_tcp: bool,
    labels: &mut [Option<Place>],
    remarks: &mut Remarks,
) -> Option<String> {
    let classes = classes(slots, source, is_tcp, remarks);
    let of_kind =
        |(slot, label): (&Slot<'_>, &Option<Place>)| slot.is_tcp == is_tcp && label.is_some();
    let added = if slots.all.iter().zip(labels.iter()).any(of_kind) {
        spread(slots, &classes, labels, remarks)
    } else {
        match number(slots, &classes) {
            Ok(places) => {
                places.iter().for_each(|(slot, place)| labels[*slot] = Some(*place));
                places.len()
            }
            Err(Some(why)) => {
                let ports = if is_tcp { "interfaces" } else { "RDMA ports" };
                remarks.add(format!("{source} do not determine the rails of {ports}: {why}"));
                0
            }
            Err(None) => 0,
        }
    };
    (added > 0).then(|| because(source, added))
}

/// The leaf groups that a source shows: by host, the number of its group. Hosts that share a
/// network are in one group.
pub(super) fn groups(slots: &Slots<'_>, source: Source, hosts: usize) -> Vec<Option<u32>> {
    let classes = classes(slots, source, false, &mut Remarks::default());
    let tcp = classes_of_interfaces(slots, source);
    let roots = joined(slots, classes.iter().chain(&tcp), hosts);
    let mut numbers = BTreeMap::new();
    let number = |root: Option<usize>| {
        let next = numbers.len();
        root.map(|root| u32::try_from(*numbers.entry(root).or_insert(next)).unwrap_or(u32::MAX))
    };
    roots.into_iter().map(number).collect()
}

fn classes_of_interfaces(slots: &Slots<'_>, source: Source) -> Vec<Class> {
    classes(slots, source, true, &mut Remarks::default())
}

/// The networks of a source in which all addresses differ. Others are ignored, because equal
/// addresses show that they are several networks.
fn classes(slots: &Slots<'_>, source: Source, is_tcp: bool, remarks: &mut Remarks) -> Vec<Class> {
    let mut by_network: BTreeMap<u64, Vec<(Option<u64>, usize)>> = BTreeMap::new();
    for (index, slot) in slots.all.iter().enumerate().filter(|(_, slot)| slot.is_tcp == is_tcp) {
        if let Some((network, address)) = slot.network(source) {
            by_network.entry(network).or_default().push((address, index));
        }
    }
    let mut classes = Vec::new();
    for mut ports in by_network.into_values() {
        ports.sort_unstable();
        let same = ports.windows(2).find(|two| two[0].0.is_some() && two[0].0 == two[1].0);
        if let Some(two) = same {
            let [one, other] = [two[0].1, two[1].1].map(|slot| slots.all[slot].title());
            remarks
                .add(format!("{one} and {other} have the same address, so their networks differ"));
            continue;
        }
        let members: Vec<usize> = ports.into_iter().map(|(_, slot)| slot).collect();
        let hosts: BTreeSet<u32> = members.iter().map(|slot| slots.all[*slot].host).collect();
        let at = members.iter().map(|slot| slots.all[*slot].at).min().unwrap_or(0);
        classes.push(Class { slots: members, hosts: hosts.len(), at });
    }
    classes
}

/// Makes a rail of each network that hosts share, numbered by the position of its ports. The error
/// is the reason against it, or `None` if there is too little evidence.
fn number(slots: &Slots<'_>, classes: &[Class]) -> Result<Vec<(usize, Place)>, Option<String>> {
    let mut shared: Vec<&Class> = classes.iter().filter(|class| class.hosts > 1).collect();
    if let Some(class) = classes.iter().find(|class| class.hosts < class.slots.len()) {
        let slot = &slots.all[class.slots[0]];
        return Err(Some(format!(
            "{} is on the same network as another port of its host",
            slot.title()
        )));
    }
    if shared.len() < 2 {
        return Err(None);
    }
    let hosts = slots.all.iter().map(|slot| slot.host as usize + 1).max().unwrap_or(0);
    let roots: BTreeSet<usize> =
        joined(slots, classes.iter(), hosts).into_iter().flatten().collect();
    if roots.len() > 1 {
        let groups = roots.len();
        return Err(Some(format!("hosts are in {groups} groups that share no network")));
    }
    if let Some([one, other]) = apart(slots, &shared, hosts) {
        let [one, other] = [one, other].map(|class| slots.all[class.slots[0]].title());
        let what = "have no host in common, so they may be one rail";
        return Err(Some(format!("the networks of {one} and of {other} {what}")));
    }
    shared.sort_by_key(|class| class.at);
    let mut places = Vec::new();
    for (rail, class) in shared.into_iter().enumerate() {
        let Ok(rail) = u16::try_from(rail) else {
            return Err(Some("there are too many networks".to_owned()));
        };
        places.extend(class.slots.iter().map(|slot| (*slot, Place { rail, plane: 0 })));
    }
    Ok(places)
}

/// Two networks without a common host, if there are any.
fn apart<'a>(slots: &Slots<'_>, classes: &[&'a Class], hosts: usize) -> Option<[&'a Class; 2]> {
    let mut of_host: Vec<Vec<usize>> = vec![Vec::new(); hosts];
    for (index, class) in classes.iter().enumerate() {
        class.slots.iter().for_each(|slot| of_host[slots.all[*slot].host as usize].push(index));
    }
    for class in classes {
        let at = class.slots.iter().map(|slot| slots.all[*slot].host as usize);
        let met: BTreeSet<usize> = at.flat_map(|host| &of_host[host]).copied().collect();
        if let Some(other) = (0..classes.len()).find(|other| !met.contains(other)) {
            return Some([class, classes[other]]);
        }
    }
    None
}

/// Gives ports without a label the label of the other ports on their network. Returns their number.
fn spread(
    slots: &Slots<'_>,
    classes: &[Class],
    labels: &mut [Option<Place>],
    remarks: &mut Remarks,
) -> usize {
    let mut taken: BTreeSet<(u32, Place)> = BTreeSet::new();
    for (slot, label) in slots.all.iter().zip(labels.iter()) {
        taken.extend(label.map(|place| (slot.host, place)));
    }
    let mut wanted: Vec<(usize, Place)> = Vec::new();
    let mut apart: BTreeSet<Place> = BTreeSet::new();
    for class in classes.iter().filter(|class| class.hosts == class.slots.len()) {
        let places: BTreeSet<Place> = class.slots.iter().filter_map(|slot| labels[*slot]).collect();
        let Some(place) = places.first().filter(|_| places.len() == 1) else { continue };
        let bare = class.slots.iter().filter(|slot| labels[**slot].is_none());
        wanted.extend(bare.map(|slot| (*slot, *place)));
        apart.insert(*place);
    }
    if apart.len() < 2 {
        return 0;
    }
    // Two networks that lead to one label leave two answers for a host that has both.
    let mut times: BTreeMap<(u32, Place), usize> = BTreeMap::new();
    for (slot, place) in &wanted {
        *times.entry((slots.all[*slot].host, *place)).or_default() += 1;
    }
    let mut added = 0;
    for (slot, place) in wanted {
        let key = (slots.all[slot].host, place);
        if taken.contains(&key) || times[&key] > 1 {
            let title = slots.all[slot].title();
            remarks.add(format!("{title}: its network would give two ports of the host one place"));
        } else {
            labels[slot] = Some(place);
            added += 1;
        }
    }
    added
}

/// By host: a host that stands for all hosts connected to it by networks, directly or through
/// others; `None` for hosts without a network.
fn joined<'a>(
    slots: &Slots<'_>,
    classes: impl Iterator<Item = &'a Class>,
    hosts: usize,
) -> Vec<Option<usize>> {
    let mut parent: Vec<Option<usize>> = vec![None; hosts];
    for class in classes {
        let mut members = class.slots.iter().map(|slot| slots.all[*slot].host as usize);
        let Some(first) = members.next() else { continue };
        let mut low = root(&mut parent, first);
        for host in members {
            let other = root(&mut parent, host);
            parent[low.max(other)] = Some(low.min(other));
            low = low.min(other);
        }
    }
    (0..hosts).map(|host| parent[host].map(|_| root(&mut parent, host))).collect()
}

/// The lowest host in the set of `host`.
fn root(parent: &mut [Option<usize>], host: usize) -> usize {
    let mut at = host;
    loop {
        match parent[at] {
            None => {
                parent[at] = Some(at);
                return at;
            }
            Some(next) if next == at => return at,
            Some(next) => {
                let beyond = parent[next];
                parent[at] = beyond;
                at = next;
            }
        }
    }
}
