//! The network as ranks on this host know it: the rail of each port, with its evidence.

use ringfold_topology::evidence::{Attached, Evidence, PortEvidence, Source};
use ringfold_topology::fabric::Place;
use serde_json::{Value, json};

use super::machine::network;
use super::text::aligned;

/// Prints a line for the host and one for each port.
pub(super) fn text(evidence: &Evidence) -> String {
    let mut text = "network, as ranks here know it\n".to_owned();
    let mut rows = Vec::new();
    if let Some(path) = &evidence.path {
        let mut place = path.groups.join(", in ");
        if let Some(order) = path.order {
            place += &format!("; number {order} in fabric order");
        }
        let groups =
            vec!["groups".to_owned(), place, "certain".to_owned(), path.source.to_string()];
        rows.push(groups);
    }
    rows.extend(evidence.ports.iter().map(row));
    if let Some(crosses) = evidence.crosses {
        let what = if crosses { "reach each other" } else { "do not reach each other" };
        rows.push(vec!["rails".to_owned(), what.to_owned(), "certain".to_owned()]);
    }
    text += &aligned(&rows, 2);
    if evidence.ports.is_empty() {
        text += "  no usable port\n";
    }
    text
}

/// Returns the name, rail, certainty and evidence of a port.
fn row(port: &PortEvidence) -> Vec<String> {
    let (rail, certainty) = match place(port) {
        Some((Place { rail, plane }, _)) => (format!("rail {rail} plane {plane}"), "certain"),
        None => ("no rail".to_owned(), "unknown"),
    };
    let name = format!("{} ({})", port.name, network(port.network));
    vec![name, rail, certainty.to_owned(), because(port)]
}

/// Returns the place from the most trusted source that names one.
fn place(port: &PortEvidence) -> Option<(Place, Source)> {
    let named = port.attached.iter().filter_map(|attached| match attached {
        Attached::Rail(place, source) => Some((*place, *source)),
        _ => None,
    });
    named.max_by_key(|(_, source)| *source)
}

fn because(port: &PortEvidence) -> String {
    if let Some((_, source)) = place(port) {
        return match source {
            Source::Declared => "RINGFOLD_IB_HCA or RINGFOLD_SOCKET_IFNAME".to_owned(),
            source => source.to_string(),
        };
    }
    let is = |wanted: fn(&Attached) -> bool| port.attached.iter().any(wanted);
    let sees = match (
        is(|it| matches!(it, Attached::Switch(_))),
        is(|it| matches!(it, Attached::Subnet { .. })),
    ) {
        (true, _) => "LLDP names its switch",
        (_, true) => "its subnet is known",
        _ => return "no evidence of its network".to_owned(),
    };
    format!("{sees}; together with other hosts it may give the rail")
}

/// Returns the same facts as JSON.
pub(super) fn json(evidence: &Evidence) -> Value {
    let port = |port: &PortEvidence| {
        let place = place(port);
        json!({
            "name": port.name,
            "network": network(port.network),
            "gbps": port.gbps,
            "rail": place.map(|(place, _)| place.rail),
            "plane": place.map(|(place, _)| place.plane),
            "certainty": if place.is_some() { "certain" } else { "unknown" },
            "because": because(port),
        })
    };
    let path = evidence.path.as_ref();
    json!({
        "groups": path.map(|path| &path.groups),
        "order": path.and_then(|path| path.order),
        "groups_because": path.map(|path| path.source.to_string()),
        "crosses": evidence.crosses,
        "ports": evidence.ports.iter().map(port).collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use ringfold_topology::evidence::HostPath;
    use ringfold_topology::machine::Network;

    use super::*;

    #[test]
    fn the_most_trusted_source_tells_the_rail() {
        let rail = |rail, source| Attached::Rail(Place { rail, plane: 0 }, source);
        let subnet = Attached::Subnet { network: 1, address: 2 };
        let port = |name: &str, attached| PortEvidence {
            name: name.to_owned(),
            network: Network::InfiniBand,
            gbps: 400,
            attached,
        };
        let evidence = Evidence {
            path: Some(HostPath {
                groups: vec!["pod1".to_owned(), "leaf7".to_owned()],
                order: Some(9),
                source: Source::Slurm,
            }),
            crosses: Some(false),
            ports: vec![
                port("a:1", vec![rail(3, Source::Site), subnet, rail(5, Source::Declared)]),
                port("b:1", vec![subnet]),
                port("c:1", vec![]),
            ],
        };
        let text = text(&evidence);
        let lines: Vec<Vec<&str>> = text
            .lines()
            .map(|line| line.split("  ").map(str::trim).filter(|it| !it.is_empty()).collect())
            .collect();
        let place = "pod1, in leaf7; number 9 in fabric order";
        assert_eq!(lines[1], ["groups", place, "certain", "Slurm"]);
        assert_eq!(lines[2][..3], ["a:1 (InfiniBand)", "rail 5 plane 0", "certain"]);
        assert!(lines[2][3].contains("IB_HCA"), "{text}");
        assert_eq!(lines[3][1..3], ["no rail", "unknown"]);
        assert!(lines[3][3].starts_with("its subnet is known"), "{text}");
        assert_eq!(lines[4][3], "no evidence of its network");
        assert_eq!(lines[5][..2], ["rails", "do not reach each other"]);
        let json = json(&evidence);
        assert_eq!(
            (&json["ports"][0]["rail"], &json["ports"][1]["rail"]),
            (&5.into(), &Value::Null)
        );
        assert_eq!(json["groups"][1], "leaf7");
    }
}
