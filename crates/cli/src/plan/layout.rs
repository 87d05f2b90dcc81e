//! The file of `--layout`: hosts with their leaf groups, ranks and rails.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::Read;

use anyhow::{Context, bail, ensure};
use ringfold_topology::fabric::Place;
use ringfold_topology::{Layout, Path, RankReach, Reach};
use ringfold_types::limits::{HOST_FILE_BYTES_MAX, RANKS_MAX};

/// The description of the file in `--help`.
pub(super) const HELP: &str = "\
Hosts, leaf groups, ranks and rails, in place of -n and --per-host: one line for each host, with \
four words:

  node1 pod0/leaf0 8 each

The words are the host's name, its leaf group (after its pod, if there are several), its number \
of ranks, and their rails. `each`: rank i of the host reaches rail i alone. `any:8`: all ranks \
reach 8 rails, and rank i prefers rail i. `0,1;2;3`: the rails of each rank, its preferred one \
first. `-`: unknown. Ranks are numbered in the order of the lines. In fabric order the hosts of \
a group are neighbours, and so are the groups of a pod. Lines that are empty or begin with # \
are ignored.";

/// A line of the file.
struct Host<'t> {
    pod: &'t str,
    group: &'t str,
    /// The rails of each rank; empty if unknown.
    reach: Vec<RankReach>,
    ranks: usize,
}

/// Reads a layout from a file.
pub(super) fn read(path: &str) -> anyhow::Result<Layout> {
    let mut text = String::new();
    let file = File::open(path).with_context(|| format!("--layout {path}"))?;
    let read = file.take(HOST_FILE_BYTES_MAX + 1).read_to_string(&mut text);
    read.with_context(|| format!("--layout {path}"))?;
    let fits = text.len() as u64 <= HOST_FILE_BYTES_MAX;
    ensure!(fits, "--layout {path}: longer than {HOST_FILE_BYTES_MAX} bytes");
    parse(&text).with_context(|| format!("--layout {path}"))
}

fn parse(text: &str) -> anyhow::Result<Layout> {
    let mut hosts = Vec::new();
    let mut names = BTreeSet::new();
    let mut size = 0;
    for (number, line) in (1..).zip(text.lines()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        if words.first().is_none_or(|word| word.starts_with('#')) {
            continue;
        }
        let host = host(&words).with_context(|| format!("line {number}"))?;
        ensure!(
            names.insert(words[0].to_owned()),
            "line {number}: host {} is listed twice",
            words[0]
        );
        size += host.ranks;
        ensure!(size <= RANKS_MAX, "line {number}: more than {RANKS_MAX} ranks");
        hosts.push(host);
    }
    ensure!(!hosts.is_empty(), "no host; a line has a name, a group, ranks and rails");
    let is_known = |host: &Host<'_>| !host.reach.is_empty();
    let known = hosts.iter().filter(|host| is_known(host)).count();
    ensure!(known == 0 || known == hosts.len(), "rails are `-` on some hosts only");
    Ok(layout(&hosts))
}

fn host<'t>(words: &[&'t str]) -> anyhow::Result<Host<'t>> {
    let &[_, place, ranks, rails] = words else {
        bail!("{} words; a line has a name, a group, ranks and rails", words.len());
    };
    let (pod, group) = place.rsplit_once('/').unwrap_or(("", place));
    let count = ranks.parse().ok().filter(|ranks| (1..=RANKS_MAX).contains(ranks));
    let ranks =
        count.with_context(|| format!("'{ranks}' is not a number of ranks up to {RANKS_MAX}"))?;
    Ok(Host { pod, group, reach: reach(rails, ranks)?, ranks })
}

/// Parses the rails of `ranks` ranks from a word.
fn reach(word: &str, ranks: usize) -> anyhow::Result<Vec<RankReach>> {
    if word == "-" {
        return Ok(Vec::new());
    }
    if word == "each" {
        return (0..ranks).map(|rank| rail(rank).map(|it| of(it, it))).collect();
    }
    if let Some(count) = word.strip_prefix("any:") {
        let count: usize =
            count.parse().with_context(|| format!("'{word}': give the number of rails"))?;
        ensure!(count > 0, "'{word}': at least one rail");
        let all = (0..count).map(rail).collect::<anyhow::Result<Reach>>()?;
        return (0..ranks).map(|rank| rail(rank % count).map(|it| of(all, it))).collect();
    }
    let lists: Vec<&str> = word.split(';').collect();
    ensure!(lists.len() == ranks, "'{word}': rails of {} ranks, not {ranks}", lists.len());
    let of_rank = |list: &&str| {
        let number =
            |text: &str| text.parse().ok().with_context(|| format!("'{text}' is not a rail"));
        let rails: Vec<Reach> =
            list.split(',').map(|text| number(text).and_then(rail)).collect::<Result<_, _>>()?;
        Ok(of(rails.iter().copied().collect(), rails[0]))
    };
    lists.iter().map(of_rank).collect()
}

const fn of(reaches: Reach, prefers: Reach) -> RankReach {
    RankReach { reaches, prefers }
}

fn rail(number: usize) -> anyhow::Result<Reach> {
    let place = u16::try_from(number).ok().map(|rail| Place { rail, plane: 0 });
    place
        .and_then(Reach::of)
        .with_context(|| format!("rail {number}: rails are 0 to {}", Reach::RAILS - 1))
}

fn layout(hosts: &[Host<'_>]) -> Layout {
    let of_ranks = hosts.iter().enumerate().flat_map(|(at, host)| vec![at; host.ranks]);
    let layout = Layout::from_host_names(&of_ranks.collect::<Vec<_>>());
    let (mut pods, mut groups) = (BTreeMap::new(), BTreeMap::new());
    let paths: Vec<Path> = (0..)
        .zip(hosts)
        .map(|(machine, Host { pod, group, .. })| {
            let next = u32::try_from(pods.len()).unwrap_or(u32::MAX);
            let pod_number = *pods.entry(*pod).or_insert(next);
            let next = u32::try_from(groups.len()).unwrap_or(u32::MAX);
            let group = *groups.entry((*pod, *group)).or_insert(next);
            Path { order: 0, pod: pod_number, group, machine }
        })
        .collect();
    let layout = layout.with_paths(&paths);
    let reach: Vec<RankReach> = hosts.iter().flat_map(|host| host.reach.iter().copied()).collect();
    if reach.is_empty() { layout } else { layout.with_reach(&reach) }
}

#[cfg(test)]
mod tests {
    use ringfold_topology::Level;
    use ringfold_types::Rank;

    use super::*;

    #[test]
    fn a_file_says_where_ranks_are() {
        let text = "# name group ranks rails\n\nb p0/g1 2 each\na p0/g0 1 any:2\n\
                    c p0/g1 2 1;0,1\nd p1/g1 1 0\n";
        let layout = parse(text).unwrap();
        assert_eq!((layout.size(), layout.hosts_in_order()), (6, vec![0, 2, 1, 3]));
        let level = |to| layout.level(Rank(0), Rank(to));
        let levels = [Level::Host, Level::Pod, Level::Pod, Level::Group, Level::Fabric];
        assert_eq!([level(1), level(2), level(3), level(4), level(5)], levels);
        let rails = |rank| {
            let RankReach { reaches, prefers } = layout.reach(Rank(rank));
            format!("{reaches} {prefers}")
        };
        let known = ["0 0", "1 1", "0,1 0", "1 1", "0,1 0", "0 0"];
        assert_eq!([0, 1, 2, 3, 4, 5].map(rails), known);
        assert!(!parse("a g 4 -").unwrap().reach(Rank(0)).reaches.meets(rail(0).unwrap()));
    }

    #[test]
    fn invalid_layouts_are_refused_with_their_line() {
        for (text, reason) in [
            ("", "no host"),
            ("a g 2", "line 1: 3 words"),
            ("a g 2 each\n\na g 2 each", "line 3: host a is listed twice"),
            ("a g 0 each", "line 1: '0' is not a number of ranks"),
            ("a g 40000 -\nb g 40000 -", "line 2: more than 65536 ranks"),
            ("a g 17 each", "line 1: rail 16: rails are 0 to 15"),
            ("a g 2 any:0", "line 1: 'any:0': at least one rail"),
            ("a g 2 any:x", "line 1: 'any:x': give the number of rails"),
            ("a g 2 0;1;2", "line 1: '0;1;2': rails of 3 ranks, not 2"),
            ("a g 1 0,x", "line 1: 'x' is not a rail"),
            ("a g 2 each\nb g 2 -", "rails are `-` on some hosts only"),
        ] {
            let error = parse(text).map(|_| ()).unwrap_err();
            assert!(format!("{error:#}").contains(reason), "{text}: {error:#}");
        }
    }

    /// Cuts a valid file and inserts bytes, at every position. Each result parses or is refused.
    #[test]
    fn a_damaged_file_is_read_or_refused() {
        let text = "# all\na p0/g0 2 each\nb p0/g1 2 any:8\nc g 3 0,1;2;15\nd p//g 9 each\n";
        let (mut read, mut refused) = (0, 0);
        let mut check = |bytes: &[u8]| {
            // `read` refuses bytes that are not UTF-8.
            let Ok(text) = std::str::from_utf8(bytes) else { return };
            match parse(text) {
                Ok(layout) => {
                    assert!((1..=RANKS_MAX).contains(&layout.size()), "{text}");
                    read += 1;
                }
                Err(error) => {
                    assert!(!format!("{error:#}").contains('\n'), "{text}: {error:#}");
                    refused += 1;
                }
            }
        };
        for at in 0..text.len() {
            check(&text.as_bytes()[..at]);
            check(&text.as_bytes()[at..]);
            for byte in [b' ', b'\n', b'\t', b'#', b'/', b',', b';', b':', b'-', b'0', b'9', 0] {
                let mut changed = text.as_bytes().to_vec();
                changed[at] = byte;
                check(&changed);
                changed.insert(at, byte);
                check(&changed);
            }
        }
        // Numbers that overflow, or are negative.
        for word in ["any:99999999999999999999", "99999999999999999999", "any:65536", "any:-1"] {
            check(format!("a g 1 {word}").as_bytes());
            check(format!("a g {word} -").as_bytes());
        }
        assert!(read > 100 && refused > 100, "{read} read, {refused} refused");
    }
}
