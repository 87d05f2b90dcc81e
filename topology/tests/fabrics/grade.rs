//! Compares a classification with the truth.

use std::collections::{BTreeMap, BTreeSet};

use ringfold_topology::certainty::{Certainty, Finding};
use ringfold_topology::fabric::{Classification, Kind, Place};

use crate::truth::{Case, PortTruth, Truth};
use crate::wiring::Label;

/// The quality of an answer, the best first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Mark {
    Certain,
    Likely,
    Unknown,
    WrongUnsure,
    WrongCertain,
}

impl Mark {
    pub(crate) const ALL: [Self; 5] =
        [Self::Certain, Self::Likely, Self::Unknown, Self::WrongUnsure, Self::WrongCertain];

    pub(crate) fn is_right(self) -> bool {
        self <= Self::Likely
    }

    fn right(certainty: Certainty) -> Self {
        match certainty {
            Certainty::Certain => Self::Certain,
            Certainty::Likely => Self::Likely,
            Certainty::Unknown => Self::Unknown,
        }
    }

    fn wrong(certainty: Certainty, is_silent: bool) -> Self {
        match certainty {
            Certainty::Certain => Self::WrongCertain,
            Certainty::Likely if !is_silent => Self::WrongUnsure,
            _ => Self::Unknown,
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Grade {
    pub(crate) kind: Mark,
    pub(crate) members: Mark,
    /// Whether hosts are grouped by the leaves that they share; `None` where the design has no
    /// groups.
    pub(crate) groups: Option<bool>,
    /// Other wrong answers that are called certain.
    pub(crate) lies: Vec<String>,
}

impl Grade {
    pub(crate) fn is_right(&self) -> bool {
        self.kind.is_right() && self.members.is_right()
    }

    pub(crate) fn is_lie(&self) -> bool {
        [self.kind, self.members].contains(&Mark::WrongCertain) || !self.lies.is_empty()
    }
}

pub(crate) fn grade(case: &Case, answer: &Classification) -> Grade {
    let truth = &case.truth;
    let kind = kind(truth, &answer.kind);
    let members = members(truth, answer);
    let mut lies = Vec::new();
    let mut check = |what: &str, seen: usize, certainty: Certainty, is_right: bool| {
        if certainty == Certainty::Certain && !is_right {
            lies.push(format!("{what} {seen}"));
        }
    };
    let [rails, planes] = [answer.rails.value.into(), answer.planes.value.into()];
    check("rails", rails, answer.rails.certainty, truth.rails.contains(&rails));
    check("planes", planes, answer.planes.certainty, truth.planes.contains(&planes));
    let subnets = answer.subnets.value as usize;
    check("subnets", subnets, answer.subnets.certainty, truth.subnets.contains(&subnets));
    let parts = truth.subnet_of.iter().zip(&answer.subnet_of);
    let is_right = parts.clone().all(|(a, b)| a.is_some() == b.is_some())
        && is_renumbering(parts.filter_map(|(a, b)| Some(((*a)?, (*b)?))));
    check("subnet_of", subnets, answer.subnets.certainty, is_right);
    let crosses = answer.crosses.value;
    let is_right = truth.crosses.is_none_or(|truth| truth == crosses);
    check("crosses", crosses.into(), answer.crosses.certainty, is_right);
    Grade { kind, members, groups: groups(truth, answer), lies }
}

fn kind(truth: &Truth, seen: &Finding<Kind>) -> Mark {
    let is_other = matches!(seen.value, Kind::Other { .. });
    if truth.kinds.iter().any(|kind| kind.fits(&seen.value)) {
        // `Other` for a fabric without a name is right with any certainty.
        return if is_other {
            Mark::right(seen.certainty).min(Mark::Likely)
        } else {
            Mark::right(seen.certainty)
        };
    }
    Mark::wrong(seen.certainty, is_other)
}

/// Whether ports share labels as in the truth, except for the numbers of rails and planes.
fn members(truth: &Truth, answer: &Classification) -> Mark {
    let numbers = [answer.rails.value.into(), answer.planes.value.into()];
    if answer.places.len() != truth.ports.len() {
        return Mark::WrongCertain;
    }
    let meaning = meanings(truth, answer);
    let storage_free: BTreeSet<Place> = meaning.values().copied().collect();
    let mut worst = Mark::Certain;
    let mut is_some_right = false;
    for (truth_of_port, (place, certainty)) in truth.ports.iter().zip(&answer.places) {
        let mark = match (truth_of_port, place) {
            (PortTruth::In(..), None) if !truth.has_rails => continue,
            (PortTruth::In(cluster, label), Some(place)) => {
                if meaning.get(&(*cluster, *label)) == Some(place) {
                    is_some_right = true;
                    Mark::right(*certainty)
                } else {
                    Mark::wrong(*certainty, false)
                }
            }
            (PortTruth::In(..), None) => Mark::wrong(*certainty, true),
            (PortTruth::Storage, Some(place)) if storage_free.contains(place) => {
                Mark::wrong(*certainty, false)
            }
            (PortTruth::Above(cluster, Some(label)), Some(place))
                if meaning.get(&(*cluster, *label)).is_none_or(|it| it == place) =>
            {
                continue;
            }
            (PortTruth::Down | PortTruth::Above(..) | PortTruth::Astray, Some(_))
                if *certainty == Certainty::Certain =>
            {
                Mark::WrongCertain
            }
            _ => continue,
        };
        worst = worst.max(mark);
    }
    let fits = truth.rails.contains(&numbers[0]) && truth.planes.contains(&numbers[1]);
    if !is_some_right {
        // There are no rails, and the answer has none. It is as certain as the number of rails.
        worst = worst.max(Mark::right(answer.rails.certainty).min(Mark::Likely));
    }
    if fits { worst } else { worst.max(Mark::WrongUnsure) }
}

/// The place that the answer uses for each label: that of most ports with the label. Each place of
/// a cluster stands for one label.
fn meanings(truth: &Truth, answer: &Classification) -> BTreeMap<(usize, Label), Place> {
    let mut counts: BTreeMap<(usize, Label, Place), usize> = BTreeMap::new();
    for (port, (place, _)) in truth.ports.iter().zip(&answer.places) {
        if let (PortTruth::In(cluster, label), Some(place)) = (port, place) {
            *counts.entry((*cluster, *label, *place)).or_default() += 1;
        }
    }
    let mut by_count: Vec<_> = counts.into_iter().collect();
    by_count.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let (mut meaning, mut taken) = (BTreeMap::new(), BTreeSet::new());
    for ((cluster, label, place), _) in by_count {
        if !meaning.contains_key(&(cluster, label)) && taken.insert((cluster, place)) {
            meaning.insert((cluster, label), place);
        }
    }
    meaning
}

fn groups(truth: &Truth, answer: &Classification) -> Option<bool> {
    if truth.groups.is_empty() {
        return None;
    }
    let seen: BTreeMap<&str, (u32, u32)> =
        answer.hosts.iter().map(|host| (&*host.host, (host.pod, host.group))).collect();
    let is_complete = truth.groups.keys().all(|host| seen.contains_key(&**host));
    let pairs = truth.groups.iter().filter_map(|(host, group)| Some((group, seen.get(&**host)?)));
    Some(is_complete && is_renumbering(pairs))
}

/// Whether each left value belongs to one right value, and each right value to one left value.
fn is_renumbering<A: Ord + Copy, B: Ord + Copy>(mut pairs: impl Iterator<Item = (A, B)>) -> bool {
    let (mut to, mut from) = (BTreeMap::new(), BTreeMap::new());
    pairs.all(|(a, b)| *to.entry(a).or_insert(b) == b && *from.entry(b).or_insert(a) == a)
}
