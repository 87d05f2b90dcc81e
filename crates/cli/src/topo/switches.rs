//! Switches of a fabric: their levels and their short names.

use std::collections::VecDeque;

use ringfold_topology::fabric::{Fabric, Switch};

use super::names::fold;

/// A longer name is cut in the middle.
const NAME_MAX: usize = 24;

/// Returns the level of each switch. It is 1 for switches with hosts, and otherwise one more than
/// the lowest neighbour's level. It is 0 for switches without a path to a host.
pub(super) fn levels(fabric: &Fabric) -> Vec<u32> {
    let mut levels = vec![0; fabric.switches.len()];
    let mut beside = vec![Vec::new(); fabric.switches.len()];
    for cable in &fabric.cables {
        let [(one, _), (other, _)] = cable.ends;
        beside[one].push(other);
        beside[other].push(one);
    }
    let mut next = VecDeque::new();
    for (switch, _) in fabric.ports.iter().filter_map(|port| port.attached) {
        if levels[switch] == 0 {
            levels[switch] = 1;
            next.push_back(switch);
        }
    }
    while let Some(switch) = next.pop_front() {
        for other in &beside[switch] {
            if levels[*other] == 0 {
                levels[*other] = levels[switch] + 1;
                next.push_back(*other);
            }
        }
    }
    levels
}

/// Returns the name of a switch without the vendor's additions, or its identifier.
pub(super) fn name(switch: &Switch) -> String {
    // As in `MF0;leaf3:MQM9700/U1`.
    let name = switch.name.trim();
    let name = name.strip_prefix("MF0;").and_then(|it| it.split(':').next()).unwrap_or(name);
    if name.is_empty() {
        return format!("0x{:016x}", switch.id);
    }
    shorten(name, NAME_MAX)
}

/// Returns the folded names of several switches.
pub(super) fn folded(fabric: &Fabric, switches: &[usize]) -> String {
    let names: Vec<_> = switches.iter().map(|at| name(&fabric.switches[*at])).collect();
    fold(&names)
}

/// Cuts a text to at most `most` characters, with dots in place of its middle. Control characters
/// become `?`.
pub(super) fn shorten(text: &str, most: usize) -> String {
    let chars: Vec<char> = text.chars().map(|it| if it.is_control() { '?' } else { it }).collect();
    if chars.len() <= most {
        return chars.into_iter().collect();
    }
    let (kept, dots) = (most.saturating_sub(2), "..");
    let (head, tail) = (kept / 2, kept - kept / 2);
    let head: String = chars[..head].iter().collect();
    let tail: String = chars[chars.len() - tail..].iter().collect();
    format!("{head}{dots}{tail}")
}
