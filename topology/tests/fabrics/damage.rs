//! Removes and moves cables, and disturbs hosts, as happens in real machine rooms.

use crate::design::Design;
use crate::wiring::{HostPlan, Naming, Outlet, Role, Seat, Wiring};
use ringfold_harness::Random;

/// The largest part of missing or misplaced cables, in thousandths.
const WORST: usize = 50;

/// The damage of a fabric.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Damage {
    /// Cables that are missing or misplaced.
    pub(crate) cables: usize,
    /// Hosts with missing or renamed NICs.
    pub(crate) hosts: usize,
    /// Ports at half their rate.
    pub(crate) slow: usize,
}

pub(crate) fn damage(design: &Design, wiring: &mut Wiring, random: &mut Random) -> Damage {
    let mut damage = Damage::default();
    if random.chance(15) && design.hosts >= 8 {
        add_management(wiring, random);
    }
    if random.chance(40) {
        damage.hosts = disturb_hosts(design, wiring, random);
    }
    if random.chance(20) {
        damage.slow = random.between(1, 3);
        for _ in 0..damage.slow {
            let index = random.below(wiring.outlets.len());
            wiring.outlets[index].gbps = design.gbps / 2;
        }
    }
    if random.chance(75) {
        let cables = wiring.outlets.len() + wiring.trunks.len();
        damage.cables = cables * random.between(1, WORST) / 1000;
        disturb_cables(wiring, damage.cables, random);
    }
    damage
}

/// Adds hosts for logins and management, with one port on any leaf.
fn add_management(wiring: &mut Wiring, random: &mut Random) {
    for number in 0..random.between(1, 2) {
        let host = wiring.hosts.len();
        wiring.hosts.push(HostPlan { name: format!("login{number}"), names: Naming::Slots });
        let at = random.pick(&leaves(wiring));
        let mut outlet = Outlet { host, role: Role::Management, ..wiring.outlets[0].clone() };
        (outlet.designed, outlet.at, outlet.nic, outlet.plane) = (at, Some(at), 0, 0);
        wiring.outlets.push(outlet);
    }
}

/// Removes NICs of some hosts and renames devices of others. That is at most 5 % of the hosts, and
/// less than half of a group, because the majority of a group defines the meaning of names.
fn disturb_hosts(design: &Design, wiring: &mut Wiring, random: &mut Random) -> usize {
    let groups = design.shape.groups() * design.subnets;
    let mut disturbed = vec![0; groups];
    let devices = design.nics * design.planes + design.storage_nics;
    let mut wanted = (design.hosts / 20).max(1);
    for host in random.order(design.hosts) {
        let group = design.group_of(host);
        let members = (0..design.hosts).filter(|host| design.group_of(*host) == group).count();
        if wanted == 0 {
            break;
        }
        if (disturbed[group] + 1) * 2 >= members || design.nics < 2 {
            continue;
        }
        disturbed[group] += 1;
        wanted -= 1;
        let names = match random.below(3) {
            0 => Naming::Permuted(random.order(devices)),
            1 => Naming::Slots,
            _ => Naming::Packed,
        };
        if !matches!(names, Naming::Permuted(_)) {
            let gone = random.below(design.nics);
            let is_gone = |outlet: &Outlet| {
                outlet.host == host && outlet.nic == gone && outlet.role == Role::Compute
            };
            wiring.outlets.retain(|outlet| !is_gone(outlet));
        }
        wiring.hosts[host].names = names;
    }
    disturbed.iter().sum()
}

fn leaves(wiring: &Wiring) -> Vec<usize> {
    let is_leaf = |switch: &usize| matches!(wiring.seats[*switch], Seat::Leaf { .. });
    (0..wiring.seats.len()).filter(is_leaf).collect()
}

fn disturb_cables(wiring: &mut Wiring, count: usize, random: &mut Random) {
    let outlets = wiring.outlets.len();
    let mut chosen = random.order(outlets + wiring.trunks.len());
    chosen.truncate(count);
    let mut gone = Vec::new();
    let parts = wiring.parts(false);
    while let Some(cable) = chosen.pop() {
        let is_missing = random.chance(50);
        if cable >= outlets {
            let trunk = cable - outlets;
            if is_missing || !move_trunk(wiring, trunk, &parts, random) {
                gone.push(trunk);
            }
        } else if is_missing {
            wiring.outlets[cable].at = None;
        } else {
            // Exchanging two cables of a host misplaces both.
            let other = chosen.iter().position(|other| {
                *other < outlets && wiring.outlets[*other].host == wiring.outlets[cable].host
            });
            match other {
                Some(other) => {
                    let other = chosen.swap_remove(other);
                    let was = wiring.outlets[cable].at;
                    wiring.outlets[cable].at = wiring.outlets[other].at;
                    wiring.outlets[other].at = was;
                }
                None => move_outlet(wiring, cable, random),
            }
        }
    }
    gone.sort_unstable();
    for trunk in gone.into_iter().rev() {
        wiring.trunks.swap_remove(trunk);
    }
}

/// Moves a host's cable to another leaf, mostly of the same group, and rarely to any switch.
fn move_outlet(wiring: &mut Wiring, cable: usize, random: &mut Random) {
    let from = wiring.outlets[cable].designed;
    let group_of = |switch: usize| match wiring.seats[switch] {
        Seat::Leaf { group, .. } => Some(group),
        _ => None,
    };
    let mut choices = leaves(wiring);
    match random.below(20) {
        0 => choices = (0..wiring.seats.len()).collect(),
        1..10 => choices.retain(|switch| group_of(*switch) == group_of(from)),
        _ => {}
    }
    choices.retain(|switch| *switch != from && wiring.seats[*switch] != Seat::Router);
    if let Some(last) = choices.len().checked_sub(1) {
        wiring.outlets[cable].at = Some(choices[random.between(0, last)]);
    }
}

/// Moves one end of a cable between switches to another switch, mostly of the same part. A design
/// that keeps parts apart has cables between them only on purpose, not by mistake.
fn move_trunk(wiring: &mut Wiring, trunk: usize, parts: &[usize], random: &mut Random) -> bool {
    let [stays, moves] = wiring.trunks[trunk].ends;
    let is_router = |switch: usize| wiring.seats[switch] == Seat::Router;
    if is_router(stays) || is_router(moves) {
        return false;
    }
    let anywhere = random.chance(10);
    let fits = |switch: &usize| {
        ![stays, moves].contains(switch)
            && !is_router(*switch)
            && (anywhere || parts[*switch] == parts[stays])
    };
    let choices: Vec<usize> = (0..wiring.seats.len()).filter(fits).collect();
    if choices.is_empty() {
        return false;
    }
    wiring.trunks[trunk].ends = [stays, random.pick(&choices)];
    true
}
