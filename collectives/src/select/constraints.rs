//! The algorithms that the user allows, and the text form of that choice.

use alloc::borrow::ToOwned;
use alloc::string::String;
use core::fmt;
use core::str::FromStr;

use ringfold_types::{Collective, Hint, UnevenCollective, same_name};

use crate::algorithm::Algorithm;

/// The algorithms that may be used. By default all.
///
/// The text form has the grammar of `NCCL_ALGO`: rules separated by `;`, each
/// `[collective:][^]name[,name...]`. A rule allows the named algorithms only, or, with `^`, all but
/// them. A rule without a collective is for all collectives that have no rule of their own. A rule
/// of allowed names leaves a collective free if it has none of these algorithms. It also leaves a
/// call free if all of them need shared memory that the call lacks. `allgatherv` and
/// `reduce_scatterv` are other names of `allgather` and `reduce_scatter`. Case, `_` and `-` do not
/// matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Constraints {
    /// By collective, one bit for each of its algorithms.
    refused: [u64; Collective::ALL.len()],
}

impl Constraints {
    /// Whether `algorithm` may be used.
    #[must_use]
    pub fn allow(&self, algorithm: &Algorithm) -> bool {
        Algorithm::of(algorithm.collective)
            .iter()
            .zip(0..)
            .all(|(known, bit)| known.name != algorithm.name || !self.refuses(algorithm, bit))
    }

    fn refuses(&self, algorithm: &Algorithm, bit: u32) -> bool {
        self.refused[algorithm.collective as usize] >> bit & 1 == 1
    }
}

/// The text form. It leaves out collectives without a restriction, and equal constraints have equal
/// text.
impl fmt::Display for Constraints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut semicolon = "";
        for collective in Collective::ALL {
            let known = Algorithm::of(collective).iter().zip(0..);
            let refused = known.clone().filter(|(it, bit)| self.refuses(it, *bit)).count();
            if refused == 0 {
                continue;
            }
            // Writes the shorter of the two lists.
            let excludes = 2 * refused < Algorithm::of(collective).len();
            write!(f, "{semicolon}{collective}:{}", if excludes { "^" } else { "" })?;
            let named = known.filter(|(it, bit)| self.refuses(it, *bit) == excludes);
            for (index, (algorithm, _)) in named.enumerate() {
                write!(f, "{}{}", if index == 0 { "" } else { "," }, algorithm.name)?;
            }
            semicolon = ";";
        }
        Ok(())
    }
}

/// Why a text is not a valid `Constraints`.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum InvalidConstraints {
    /// The name before a colon is not that of a collective.
    UnknownCollective {
        /// The name, as written.
        name: String,
    },
    /// A name is not that of an algorithm.
    UnknownAlgorithm {
        /// The name, as written.
        name: String,
        /// The collective of the rule; `None` for a rule without one.
        collective: Option<Collective>,
    },
    /// Two rules are for one collective, or two for all collectives.
    Repeated {
        /// The collective; `None` if both rules are for all.
        collective: Option<Collective>,
    },
    /// The rules leave a collective without an algorithm.
    NothingLeft {
        /// The collective.
        collective: Collective,
    },
}

impl fmt::Display for InvalidConstraints {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::UnknownCollective { name } => {
                let hint = Hint::new(name, Collective::ALL.map(Collective::name));
                write!(f, "'{name}' is not a collective{hint}; use one of")?;
                Collective::ALL.iter().try_for_each(|collective| write!(f, " {collective}"))
            }
            Self::UnknownAlgorithm { name, collective: Some(collective) } => {
                let known = Algorithm::of(*collective).iter().map(|known| known.name);
                let hint = Hint::new(name, known);
                write!(f, "{collective} has no algorithm '{name}'{hint}; use one of")?;
                Algorithm::of(*collective).iter().try_for_each(|known| write!(f, " {}", known.name))
            }
            Self::UnknownAlgorithm { name, collective: None } => {
                let mut all =
                    Collective::ALL.iter().flat_map(|collective| Algorithm::of(*collective));
                let hint = Hint::new(name, all.clone().map(|known| known.name));
                write!(f, "'{name}' is not an algorithm{hint}; use one of")?;
                all.try_for_each(|known| write!(f, " {known}"))
            }
            Self::Repeated { collective: Some(collective) } => {
                write!(f, "there are two rules for {collective}: name all algorithms in one")
            }
            Self::Repeated { collective: None } => {
                write!(f, "there are two rules for all collectives: name all algorithms in one")
            }
            Self::NothingLeft { collective } => {
                write!(f, "the rules leave no algorithm for {collective}: forbid fewer")
            }
        }
    }
}

impl core::error::Error for InvalidConstraints {}

impl FromStr for Constraints {
    type Err = InvalidConstraints;

    fn from_str(text: &str) -> Result<Self, InvalidConstraints> {
        let mut own: [Option<u64>; Collective::ALL.len()] = Default::default();
        let mut all = None;
        for rule in text.split(';').map(str::trim).filter(|rule| !rule.is_empty()) {
            let Some((name, list)) = rule.split_once(':') else {
                if all.replace(List::parse(rule, None)?).is_some() {
                    return Err(InvalidConstraints::Repeated { collective: None });
                }
                continue;
            };
            let collective = collective(name.trim())?;
            let list = List::parse(list, Some(collective))?;
            let refused = list.refused(collective);
            if list.inverted && refuses_ordinary(refused, collective) {
                return Err(InvalidConstraints::NothingLeft { collective });
            }
            if own[collective as usize].replace(refused).is_some() {
                return Err(InvalidConstraints::Repeated { collective: Some(collective) });
            }
        }
        let mut constraints = Self::default();
        for collective in Collective::ALL {
            let by_all = || all.map_or(0, |list: List<'_>| list.refused_if_any(collective));
            let refused = own[collective as usize].unwrap_or_else(by_all);
            let known = Algorithm::of(collective).len();
            let inverted = own[collective as usize].is_none() && all.is_some_and(|l| l.inverted);
            if known > 0 && refused.trailing_ones() as usize >= known
                || inverted && refuses_ordinary(refused, collective)
            {
                return Err(InvalidConstraints::NothingLeft { collective });
            }
            constraints.refused[collective as usize] = refused;
        }
        Ok(constraints)
    }
}

/// Whether no algorithm for ordinary memory is left.
fn refuses_ordinary(refused: u64, collective: Collective) -> bool {
    let mut known = Algorithm::of(collective).iter().zip(0..64);
    known.all(|(algorithm, bit)| !algorithm.works_anywhere() || refused >> bit & 1 == 1)
}

/// The collective of that name. An uneven one has the algorithms of its even form.
fn collective(name: &str) -> Result<Collective, InvalidConstraints> {
    let uneven = || name.parse().ok().and_then(UnevenCollective::scheduled_as);
    let found = name.parse().ok().or_else(uneven);
    found.ok_or_else(|| InvalidConstraints::UnknownCollective { name: name.to_owned() })
}

/// The names of a rule.
#[derive(Clone, Copy)]
struct List<'t> {
    /// Whether the rule forbids these names.
    inverted: bool,
    names: &'t str,
}

impl<'t> List<'t> {
    /// A list for `collective`, or for all. Each name must be that of an algorithm for it, or for
    /// any.
    fn parse(text: &'t str, collective: Option<Collective>) -> Result<Self, InvalidConstraints> {
        let meant = |c: &Collective| collective.is_none_or(|collective| collective == *c);
        let known = |name: &&str| {
            let mut algorithms = Collective::ALL.into_iter().filter(meant).flat_map(Algorithm::of);
            algorithms.any(|known| same_name(known.name, name))
        };
        let text = text.trim();
        let (inverted, names) = text.strip_prefix('^').map_or((false, text), |rest| (true, rest));
        let list = Self { inverted, names };
        match list.names().find(|name| !known(name)) {
            None => Ok(list),
            Some(name) => {
                Err(InvalidConstraints::UnknownAlgorithm { name: name.to_owned(), collective })
            }
        }
    }

    fn names(&self) -> impl Iterator<Item = &'t str> + use<'t> {
        self.names.split(',').map(str::trim)
    }

    fn refused(&self, collective: Collective) -> u64 {
        let named =
            |algorithm: &Algorithm| self.names().any(|name| same_name(name, algorithm.name));
        let bits = Algorithm::of(collective).iter().zip(0..64);
        bits.filter(|(algorithm, _)| named(algorithm) == self.inverted)
            .fold(0, |refused, (_, bit)| refused | 1 << bit)
    }

    /// Like `refused`, but empty if a list of allowed names has none of this collective's
    /// algorithms.
    fn refused_if_any(&self, collective: Collective) -> u64 {
        let refused = self.refused(collective);
        let none_wanted = refused.trailing_ones() as usize >= Algorithm::of(collective).len();
        if !self.inverted && none_wanted { 0 } else { refused }
    }
}
