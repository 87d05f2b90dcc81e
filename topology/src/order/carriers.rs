//! Which rank of each host carries which rail.

use ringfold_types::Rank;

use crate::layout::{RankReach, Reach};

/// Per shard, the rank of each host that carries it, as long as every host has a rank for one more.
///
/// Ranks of a shard have a rail and plane in common that all of them reach. No rank carries two
/// shards, the first shards are on different rails, and ranks carry rails that they prefer as far
/// as this takes no shard away. Where no rail is common to all hosts, or rails are unknown, shard i
/// goes to the rank that has i others of its host before it.
pub(crate) fn carriers(hosts: &[&[Rank]], reach: &[RankReach]) -> Vec<Vec<Rank>> {
    let fewest = hosts.iter().map(|ranks| ranks.len()).min().unwrap_or(0);
    let by_rail = if reach.is_empty() { Vec::new() } else { by_rail(hosts, reach, fewest) };
    if by_rail.is_empty() {
        let at = |place: usize| hosts.iter().map(|ranks| ranks[place]).collect();
        return (0..fewest).map(at).collect();
    }
    by_rail
}

fn by_rail(hosts: &[&[Rank]], reach: &[RankReach], fewest: usize) -> Vec<Vec<Rank>> {
    let mut crews: Vec<Crew> = hosts.iter().map(|ranks| Crew::new(ranks, reach)).collect();
    let all: Reach = reach.iter().map(|it| it.reaches).collect();
    let mut rails: Vec<Reach> = Vec::new();
    for wishes in [Wishes::Prefers, Wishes::Reaches] {
        let mut open: Vec<Reach> = all.places().filter_map(Reach::of).collect();
        while !open.is_empty() {
            open.retain(|rail| {
                let found = rails.len() < fewest && all_take(&mut crews, &rails, *rail, wishes);
                rails.extend(found.then_some(*rail));
                found
            });
        }
    }
    let carrier = |crew: &Crew, shard| {
        let at = crew.takes.iter().position(|it| *it == Some(shard));
        crew.ranks[at.unwrap_or(0)]
    };
    let of_all = |shard| crews.iter().map(|crew| carrier(crew, shard)).collect();
    (0..rails.len()).map(of_all).collect()
}

/// Which rails a rank may be given.
#[derive(Clone, Copy)]
enum Wishes {
    Prefers,
    Reaches,
}

/// Gives one more shard, on `rail`, to a rank of every host, or to none.
fn all_take(crews: &mut [Crew], rails: &[Reach], rail: Reach, wishes: Wishes) -> bool {
    let rails = [rails, &[rail]].concat();
    let take = |crew: &mut Crew| {
        crew.before.clone_from(&crew.takes);
        let mut asked = vec![false; crew.ranks.len()];
        crew.take(&rails, rails.len() - 1, wishes, &mut asked)
    };
    let Some(failed) = crews.iter_mut().position(|crew| !take(crew)) else { return true };
    for crew in &mut crews[..=failed] {
        crew.takes.clone_from(&crew.before);
    }
    false
}

/// The ranks of a host, and the shards that they carry.
struct Crew {
    ranks: Vec<Rank>,
    reach: Vec<RankReach>,
    /// By rank of the host.
    takes: Vec<Option<usize>>,
    /// The same before the shard that is being given.
    before: Vec<Option<usize>>,
}

impl Crew {
    fn new(ranks: &[Rank], reach: &[RankReach]) -> Self {
        let reach = ranks.iter().map(|rank| reach[rank.index()]).collect();
        Self { ranks: ranks.to_vec(), reach, takes: vec![None; ranks.len()], before: Vec::new() }
    }

    /// Gives a shard to a rank, which may pass its own on to another: an augmenting path of a
    /// bipartite matching.
    fn take(&mut self, rails: &[Reach], shard: usize, wishes: Wishes, asked: &mut [bool]) -> bool {
        let wishes_it = |of: &RankReach| match wishes {
            Wishes::Prefers => of.prefers.meets(rails[shard]),
            Wishes::Reaches => of.reaches.meets(rails[shard]),
        };
        let fits: Vec<usize> =
            (0..self.ranks.len()).filter(|at| wishes_it(&self.reach[*at])).collect();
        let mut found = fits.iter().find(|at| self.takes[**at].is_none()).copied();
        for at in fits {
            if found.is_some() {
                break;
            }
            if let (false, Some(other)) = (core::mem::replace(&mut asked[at], true), self.takes[at])
            {
                found = self.take(rails, other, wishes, asked).then_some(at);
            }
        }
        if let Some(at) = found {
            self.takes[at] = Some(shard);
        }
        found.is_some()
    }
}
