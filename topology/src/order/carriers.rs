//! The rank of each host that carries each shard.

use ringfold_types::Rank;

use crate::layout::reach::{RankReach, Reach};

/// Per shard, the rank of each host that carries it. There are as many shards as every host has
/// ranks for.
///
/// Ranks of a shard have a common rail and plane that all of them reach. No rank carries two
/// shards, and the first shards are on different rails. Ranks carry rails that they prefer as far
/// as this does not reduce the number of shards. A host with unknown rails takes any shard.
///
/// If no rail is common to all hosts, shards are on the rails that most hosts have. A host without
/// the rail of a shard gives it the first of its free ranks. If no rails are known, all hosts do
/// so.
pub(crate) fn carriers(hosts: &[&[Rank]], reach: &[RankReach]) -> Vec<Vec<Rank>> {
    let fewest = hosts.iter().map(|ranks| ranks.len()).min().unwrap_or(0);
    if reach.iter().all(|it| it.reaches.is_empty()) {
        let at = |place: usize| hosts.iter().map(|ranks| ranks[place]).collect();
        return (0..fewest).map(at).collect();
    }
    let mut crews: Vec<Crew> = hosts.iter().map(|ranks| Crew::new(ranks, reach)).collect();
    let all: Reach = reach.iter().map(|it| it.reaches).collect();
    let mut shards = give_to_all(&mut crews, all, fewest);
    if shards == 0 {
        give_to_most(&mut crews, all, fewest);
        shards = fewest;
    }
    let of_all = |shard| crews.iter().map(|crew| crew.carrier(shard)).collect();
    (0..shards).map(of_all).collect()
}

/// Gives as many shards as all hosts can take, each on a rail that they have in common.
fn give_to_all(crews: &mut [Crew], all: Reach, fewest: usize) -> usize {
    let mut rails: Vec<Reach> = Vec::new();
    for wishes in [Wishes::Prefers, Wishes::Reaches] {
        let mut open: Vec<Reach> = all.places().filter_map(Reach::of).collect();
        while !open.is_empty() {
            open.retain(|rail| {
                let found = rails.len() < fewest && all_take(crews, &rails, *rail, wishes);
                rails.extend(found.then_some(*rail));
                found
            });
        }
    }
    rails.len()
}

/// Gives `fewest` shards on the rails that most hosts have, in turn. Other hosts give them any
/// rank.
fn give_to_most(crews: &mut [Crew], all: Reach, fewest: usize) {
    let mut rails: Vec<Reach> = all.places().filter_map(Reach::of).collect();
    let lacks = |crew: &&Crew, rail| !crew.reach.iter().any(|it| it.reaches.meets(rail));
    rails.sort_by_key(|rail| crews.iter().filter(|crew| lacks(crew, *rail)).count());
    let rails: Vec<Reach> = rails.into_iter().cycle().take(fewest).collect();
    for crew in crews {
        for wishes in [Wishes::Prefers, Wishes::Reaches] {
            for shard in 0..rails.len() {
                if !crew.takes.contains(&Some(shard)) {
                    crew.take(&rails, shard, wishes, &mut vec![false; crew.ranks.len()]);
                }
            }
        }
        for shard in 0..fewest {
            if !crew.takes.contains(&Some(shard)) {
                let free = crew.takes.iter_mut().find(|it| it.is_none());
                free.into_iter().for_each(|it| *it = Some(shard));
            }
        }
    }
}

/// The rails that a rank may be given.
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
    /// Whether no rank has known rails.
    is_unknown: bool,
    /// By rank of the host.
    takes: Vec<Option<usize>>,
    /// The value of `takes` before the current shard.
    before: Vec<Option<usize>>,
}

impl Crew {
    fn new(ranks: &[Rank], reach: &[RankReach]) -> Self {
        let of = |rank: &Rank| reach.get(rank.index()).copied().unwrap_or_default();
        let reach: Vec<RankReach> = ranks.iter().map(of).collect();
        let is_unknown = reach.iter().all(|it| it.reaches.is_empty());
        let takes = vec![None; ranks.len()];
        Self { ranks: ranks.to_vec(), reach, is_unknown, takes, before: Vec::new() }
    }

    /// The rank that carries `shard`. There is one.
    fn carrier(&self, shard: usize) -> Rank {
        let at = self.takes.iter().position(|it| *it == Some(shard));
        self.ranks[at.unwrap_or(0)]
    }

    /// Gives a shard to a rank, which may pass its own on to another: an augmenting path of a
    /// bipartite matching.
    fn take(&mut self, rails: &[Reach], shard: usize, wishes: Wishes, asked: &mut [bool]) -> bool {
        let wishes_it = |of: &RankReach| match wishes {
            _ if self.is_unknown => true,
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
