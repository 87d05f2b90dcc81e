//! Joins several fabrics into one: the subnets of a site, which only routers connect.

use std::collections::HashMap;

use super::error::{Error, Reason};
use crate::fabric::{Cable, EndPort, Fabric};

/// A fabric, with the file and line that it comes from.
pub(super) struct Part<'a> {
    pub(super) file: &'a str,
    pub(super) line: usize,
    pub(super) fabric: Fabric,
}

/// Joins fabrics. Routers may be in several subnets. Every other node must be in one.
pub(super) fn fabrics(parts: &[Part<'_>]) -> Result<Fabric, Error> {
    let mut whole = Fabric::default();
    let (mut switches, mut ports) = (HashMap::new(), HashMap::new());
    for (number, Part { file, line, fabric: part }) in parts.iter().enumerate() {
        let twice = |what: String, other: usize| {
            let Part { file: first, line: first_line, .. } = &parts[other];
            let text = format!("{what} is in {first}:{first_line} too: give each once");
            Reason::new(*line, text).of(file)
        };
        whole.is_partial |= part.is_partial;
        let mut indices = Vec::with_capacity(part.switches.len());
        for switch in &part.switches {
            let next = whole.switches.len();
            let (index, other) = *switches.entry(switch.id).or_insert((next, number));
            if index < next && !(switch.is_router && whole.switches[index].is_router) {
                return Err(twice(format!("switch {:#x} ({:?})", switch.id, switch.name), other));
            }
            if index == next {
                whole.switches.push(switch.clone());
            }
            indices.push(index);
        }
        for port in &part.ports {
            if let Some(other) = ports.insert(port.id, number) {
                return Err(twice(format!("port {:?} of {:?}", port.device, port.host), other));
            }
            let attached = port.attached.map(|(switch, number)| (indices[switch], number));
            whole.ports.push(EndPort { attached, ..port.clone() });
        }
        whole.cables.extend(part.cables.iter().map(|cable| Cable {
            ends: cable.ends.map(|(switch, number)| (indices[switch], number)),
            gbps: cable.gbps,
        }));
    }
    Ok(whole)
}
