//! Prints a fabric as text: its kind with evidence, a table of hosts and rails, and its oddities.

use std::cmp::Ordering;
use std::collections::BTreeSet;
use std::fmt::Write as _;

use ringfold_topology::certainty::{Certainty, Finding};
use ringfold_topology::fabric::{Classification, Fabric, Kind, Place, Ratio};
use ringfold_topology::site::{Measured, Reach, Site};

use super::names::fold;
use super::picture::{Block, Cell, Picture, State};
use super::switches::{folded, levels, shorten};

/// In a table of more hosts, hosts that look alike share a row.
const HOSTS_MAX: usize = 32;

/// The most blocks to print; the rest are counted.
const BLOCKS_MAX: usize = 64;
/// The most oddities to print; the rest are counted.
const ODDITIES_MAX: usize = 40;

/// The most characters of a cell.
const CELL_MAX: usize = 28;

/// The most measured pairs of places to print; the rest are counted.
const MEASURED_MAX: usize = 40;

/// Prints a fabric without its measurements.
pub(super) fn fabric(fabric: &Fabric, found: &Classification) -> String {
    let picture = Picture::of(fabric, found, count_hosts(fabric) > HOSTS_MAX);
    let mut text = summary(fabric, found);
    if !picture.blocks.is_empty() {
        text.push('\n');
        text += &table(fabric, &picture);
    }
    if !found.oddities.is_empty() {
        text.push('\n');
        text += &oddities(found);
    }
    text
}

/// Prints a line for each measured pair of rails.
pub(super) fn measured(site: &Site) -> String {
    if site.measured.is_empty() {
        return String::new();
    }
    let place = |Place { rail, plane }: Place| match site.planes.value {
        ..=1 => format!("rail {rail}"),
        _ => format!("rail {rail} plane {plane}"),
    };
    let row = |it: &Measured| {
        let [one, other] = it.between;
        let pair = match one == other {
            true => format!("  within {}", place(one)),
            false => format!("  {} - {}", place(one), place(other)),
        };
        let reach = match it.reach {
            Reach::All => "all probes arrived",
            Reach::Some => "some probes arrived",
            Reach::None => "no probe arrived",
        };
        let apart = match it.are_apart {
            Some(true) => "each carries its full rate beside the other",
            Some(false) => "they share a link",
            None => "",
        };
        [&pair, reach, apart].map(str::to_owned).to_vec()
    };
    let rows: Vec<_> = site.measured.iter().take(MEASURED_MAX).map(row).collect();
    let mut text = format!("\nmeasured\n{}", aligned(&rows, 0));
    let left = site.measured.len().saturating_sub(MEASURED_MAX);
    if left > 0 {
        writeln!(text, "  and {left} more: --json prints all").unwrap_or_default();
    }
    text
}

pub(super) fn count_hosts(fabric: &Fabric) -> usize {
    let hosts: BTreeSet<_> = fabric.ports.iter().map(super::picture::host).collect();
    hosts.len()
}

/// Names a kind of fabric.
pub(super) fn kind(kind: &Kind) -> String {
    match kind {
        Kind::SingleSwitch => "single switch".to_owned(),
        Kind::RailOptimized => "rail-optimized".to_owned(),
        Kind::RailOnly => "rail-only".to_owned(),
        Kind::FatTree { levels, oversubscription } => {
            format!("fat tree of {levels} levels, {}", oversubscribed(*oversubscription))
        }
        Kind::DragonflyPlus => "dragonfly+".to_owned(),
        Kind::Torus { dims } => format!("torus {}", grid(dims)),
        Kind::HyperX { dims } if dims.iter().all(|dim| *dim == 2) => {
            format!("hypercube of {} dimensions", dims.len())
        }
        Kind::HyperX { dims } => format!("HyperX {}", grid(dims)),
        Kind::Other { levels: 0 } => "unknown".to_owned(),
        Kind::Other { levels: 1 } => "unknown, with 1 level of switches".to_owned(),
        Kind::Other { levels } => format!("unknown, with {levels} levels of switches"),
    }
}

fn grid(dims: &[u32]) -> String {
    dims.iter().map(u32::to_string).collect::<Vec<_>>().join("x")
}

/// Compares the capacity from hosts with that upwards, as in `oversubscribed 2:1` or `1.33:1`.
fn oversubscribed(Ratio(down, up): Ratio) -> String {
    let times = |large: u64, small: u64| {
        let hundredths = u128::from(large) * 100 / u128::from(small);
        match hundredths % 100 {
            0 => (hundredths / 100).to_string(),
            rest => format!("{}.{rest:02}", hundredths / 100),
        }
    };
    match down.cmp(&up) {
        _ if up == 0 => "without uplinks".to_owned(),
        _ if down == 0 => "without ports of hosts".to_owned(),
        Ordering::Greater => format!("oversubscribed {}:1", times(down, up)),
        Ordering::Equal => "not oversubscribed".to_owned(),
        Ordering::Less => {
            format!("with spare uplinks (1:{})", times(up, down))
        }
    }
}

/// Formats a count with its noun.
pub(super) fn many(count: usize, noun: &str) -> String {
    let ending = match (count, noun) {
        (1, _) => "",
        (_, noun) if noun.ends_with("ch") => "es",
        _ => "s",
    };
    format!("{count} {noun}{ending}")
}

/// Counts hosts, ports, switches and cables.
pub(super) fn size(fabric: &Fabric) -> String {
    let up = fabric.ports.iter().filter(|port| port.attached.is_some()).count();
    let mut parts = vec![many(count_hosts(fabric), "host")];
    parts.push(match fabric.ports.len() - up {
        down if down > 0 && !fabric.switches.is_empty() => {
            format!("{} ({down} down)", many(up + down, "port"))
        }
        _ => many(fabric.ports.len(), "port"),
    });
    if !fabric.switches.is_empty() {
        parts.push(many(fabric.switches.len(), "switch"));
        parts.push(match fabric.is_partial {
            true => "cables between switches not shown".to_owned(),
            false => format!("{} between switches", many(fabric.cables.len(), "cable")),
        });
    }
    parts.join(", ")
}

/// Prints a line for each answer: its value, its certainty and its evidence.
fn summary(fabric: &Fabric, found: &Classification) -> String {
    let mut text = format!("fabric   {}\n", size(fabric));
    let groups: BTreeSet<_> = found.hosts.iter().map(|host| (host.pod, host.group)).collect();
    let pods: BTreeSet<_> = groups.iter().map(|(pod, _)| pod).collect();
    if groups.len() > 1 {
        let pods =
            if pods.len() > 1 { format!(" in {}", many(pods.len(), "pod")) } else { String::new() };
        writeln!(text, "groups   {} of hosts that share leaf switches{pods}", groups.len())
            .unwrap_or_default();
    }
    let rails = match found.rails.value {
        0 => "none".to_owned(),
        rails => rails.to_string(),
    };
    let crosses = if found.crosses.value { "yes" } else { "no" };
    let rows = [
        answer("kind", kind(&found.kind.value), &found.kind),
        answer("rails", rails, &found.rails),
        answer("planes", found.planes.value.to_string(), &found.planes),
        answer("subnets", found.subnets.value.to_string(), &found.subnets),
        answer("crosses", crosses.to_owned(), &found.crosses),
    ];
    text += &aligned(&rows, 0);
    text + &upper(fabric)
}

fn answer<T>(title: &str, value: String, found: &Finding<T>) -> Vec<String> {
    let is_known = found.certainty != Certainty::Unknown || title == "kind";
    let value = if is_known { value } else { "-".to_owned() };
    vec![format!("{title:<7}"), value, found.certainty.to_string(), found.because.clone()]
}

/// Prints a line for each level of switches, the highest first.
fn upper(fabric: &Fabric) -> String {
    let levels = levels(fabric);
    let mut text = String::new();
    for level in (0..=levels.iter().copied().max().unwrap_or(0)).rev() {
        let here: Vec<usize> = (0..levels.len()).filter(|at| levels[*at] == level).collect();
        let (routers, switches): (Vec<_>, Vec<_>) =
            here.iter().partition(|at| fabric.switches[**at].is_router);
        for (noun, these) in [("router", routers), ("switch", switches)] {
            if !these.is_empty() {
                let title = if level == 0 { "apart".to_owned() } else { format!("level {level}") };
                let names = folded(fabric, &these);
                writeln!(text, "{title}  {}: {names}", many(these.len(), noun)).unwrap_or_default();
            }
        }
    }
    text
}

/// Prints hosts in rows and rails in columns, with the leaf switches above each group.
fn table(fabric: &Fabric, picture: &Picture) -> String {
    let mut rows = Vec::new();
    let titles = picture.columns.iter().map(|column| column.title.clone());
    rows.push([String::new()].into_iter().chain(titles).collect());
    for block in picture.blocks.iter().take(BLOCKS_MAX) {
        rows.push(heading(fabric, block));
        for row in &block.rows {
            let cells = row.cells.iter().map(|it| shorten(&cell(fabric, it), CELL_MAX));
            let name = match row.hosts.len() {
                1 => row.hosts[0].clone(),
                count => format!("{} x{count}", fold(&row.hosts)),
            };
            rows.push([format!("  {name}")].into_iter().chain(cells).collect());
        }
    }
    let mut text = aligned(&rows, 0);
    let left = picture.blocks.len().saturating_sub(BLOCKS_MAX);
    if left > 0 {
        writeln!(text, "and {}: --json prints all", many(left, "more group")).unwrap_or_default();
    }
    text
}

fn heading(fabric: &Fabric, block: &Block) -> Vec<String> {
    let heads = block.heads.iter().map(|switches| match &switches[..] {
        [] => String::new(),
        switches => format!("[{}]", shorten(&folded(fabric, switches), CELL_MAX)),
    });
    [block.title.clone()].into_iter().chain(heads).collect()
}

/// Describes the ports of a host in a column.
pub(super) fn cell(fabric: &Fabric, cell: &Cell) -> String {
    let mut text = match cell.state {
        State::Absent => "-".to_owned(),
        State::Up => cell.device.clone(),
        State::Down { of: 1, .. } => format!("{} down", cell.device),
        State::Down { down, of } => format!("{} {down} of {of} down", cell.device),
        State::Slow(gbps) => format!("{} {gbps}G", cell.device),
    };
    if !cell.switches.is_empty() {
        text += &format!(" @{}", folded(fabric, &cell.switches));
    }
    if cell.is_odd {
        text += " !";
    }
    text
}

fn oddities(found: &Classification) -> String {
    let mut text = many(found.oddities.len(), "oddity").replace("odditys", "oddities") + "\n";
    for oddity in found.oddities.iter().take(ODDITIES_MAX) {
        writeln!(text, "  ! {}", oddity.what).unwrap_or_default();
    }
    let left = found.oddities.len().saturating_sub(ODDITIES_MAX);
    if left > 0 {
        writeln!(text, "  and {left} more: --json prints all").unwrap_or_default();
    }
    text
}

/// Aligns the cells of rows in columns. The last cell of a row does not widen its column.
pub(super) fn aligned(rows: &[Vec<String>], indent: usize) -> String {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |column: usize| {
        let cells = rows.iter().filter(|row| column + 1 < row.len()).map(|row| &row[column]);
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        let line = cells.collect::<Vec<_>>().join("  ");
        writeln!(text, "{:indent$}{}", "", line.trim_end()).unwrap_or_default();
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tree_is_oversubscribed_by_hosts_only() {
        let said = [(2, 1), (4, 3), (1, 1), (1, 2), (0, 1), (3, 0)];
        let words = [
            "oversubscribed 2:1",
            "oversubscribed 1.33:1",
            "not oversubscribed",
            "with spare uplinks (1:2)",
            "without ports of hosts",
            "without uplinks",
        ];
        assert_eq!(said.map(|(down, up)| oversubscribed(Ratio(down, up))), words);
        let tree = Kind::FatTree { levels: 2, oversubscription: Ratio(1, 300) };
        let uplinks = "fat tree of 2 levels, with spare uplinks (1:300)";
        assert_eq!(kind(&tree), uplinks);
    }
}
