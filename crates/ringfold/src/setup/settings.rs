//! The settings on which schedules depend. Ranks with different ones would wait for messages that
//! nobody sends, so the ranks compare them while they join.

use std::collections::BTreeMap;

use ringfold_types::{Digest, Rank};
use serde::{Deserialize, Serialize};

use super::error::DifferentSettings;
use crate::config::{COMMON, Config};

const COUNT: usize = COMMON.len();
/// The bytes of a value that ranks exchange. The rest of a longer value is left out.
const SHOWN_BYTES: usize = 22;

/// One rank's settings, in the order of `COMMON`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Settings([Setting; COUNT]);

/// A value, as ranks exchange it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Setting {
    /// The digest of the whole value.
    digest: u64,
    /// The beginning of the value.
    shown: String,
}

impl Settings {
    /// The settings of `config`. `site` is as for `Config::common_values`.
    pub(crate) fn of(config: &Config, site: Option<u64>) -> Self {
        let or_unset = |value: String| if value.is_empty() { "unset".to_owned() } else { value };
        Self(config.common_values(site).map(|value| Setting::new(&or_unset(value))))
    }

    /// Compares the settings of all ranks.
    ///
    /// # Errors
    /// The first setting in which ranks differ.
    pub(crate) fn compare<'a>(
        all: impl Iterator<Item = &'a Self> + Clone,
    ) -> Result<(), DifferentSettings> {
        COMMON.iter().enumerate().try_for_each(|(index, (name, _))| {
            compare(name, all.clone().map(|settings| &settings.0[index]))
        })
    }

    /// The texts that an error shows.
    pub(super) fn shown(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|setting| setting.shown.as_str())
    }
}

/// Compares the builds of all ranks.
///
/// # Errors
/// The builds differ.
pub(super) fn compare_builds<'a>(
    builds: impl Iterator<Item = &'a str>,
) -> Result<(), DifferentSettings> {
    let builds: Vec<_> = builds.map(Setting::new).collect();
    compare("the version and sources of ringfold", builds.iter())
}

/// Compares the values that all ranks have of one setting.
fn compare<'a>(
    name: &'static str,
    all: impl Iterator<Item = &'a Setting>,
) -> Result<(), DifferentSettings> {
    let mut by_value = BTreeMap::<&Setting, Vec<Rank>>::new();
    for (rank, value) in all.enumerate() {
        by_value.entry(value).or_default().push(Rank::at(rank));
    }
    if by_value.len() <= 1 {
        return Ok(());
    }
    let shown = |(value, ranks): (&Setting, _)| (value.shown.clone(), ranks);
    let mut values: Vec<(_, Vec<Rank>)> = by_value.into_iter().map(shown).collect();
    values.sort_by_key(|(_, ranks)| ranks.first().copied());
    Err(DifferentSettings { name, values })
}

/// The version, and the digest of all sources that define schedules, programs and frames. Builds
/// of other sources may send other messages in the same call.
pub(super) fn build() -> String {
    let sources = [
        ringfold_types::SOURCES,
        ringfold_topology::SOURCES,
        ringfold_collectives::SOURCES,
        ringfold_transport::SOURCES,
        ringfold_bootstrap::SOURCES,
        ringfold_innetwork::SOURCES,
        env!("SOURCES_DIGEST"),
    ];
    format!("{}+{:012x}", env!("CARGO_PKG_VERSION"), Digest::of(sources.concat()) >> 16)
}

impl Setting {
    fn new(value: &str) -> Self {
        let digest = Digest::of(value);
        let end = value.floor_char_boundary(SHOWN_BYTES);
        let rest = if end < value.len() { ".." } else { "" };
        Self { digest, shown: format!("{}{rest}", &value[..end]).replace(char::is_control, " ") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(algorithms: &str, chunk_bytes: Option<usize>) -> Settings {
        let algorithms = algorithms.parse().unwrap();
        Settings::of(&Config { algorithms, chunk_bytes, ..Config::default() }, None)
    }

    #[test]
    fn an_error_lists_the_values_and_their_ranks() {
        let (plain, own) = (with("", None), with("", Some(65536)));
        assert_eq!(Settings::compare([&plain, &plain].into_iter()), Ok(()));
        let differ = Settings::compare([&plain, &own, &plain, &own, &own].into_iter());
        assert_eq!(
            differ.unwrap_err().to_string(),
            format!(
                "ranks differ in {}: ranks 0, 2 have unset, ranks 1, 3-4 have 65536; give all of \
                 them the same",
                COMMON[2].0
            )
        );
    }

    #[test]
    fn files_of_a_site_that_differ_are_refused() {
        let of = |site| Settings::of(&Config::default(), site);
        let all = [of(Some(0xab)), of(Some(0xcd)), of(Some(0xab)), of(None)];
        let error = Settings::compare(all.iter()).unwrap_err().to_string();
        let has = "ranks 0, 2 have ab, rank 1 has cd, rank 3 has unset";
        assert!(error.starts_with(&format!("ranks differ in {}: {has};", COMMON[6].0)), "{error}");
    }

    #[test]
    fn long_values_differ_though_they_do_not_fit() {
        let every = "allreduce:^ring,tree;allgather:^ring,bruck;reduce_scatter:^ring,halving";
        let one = with(&format!("{every};broadcast:chain"), None);
        let other = with(&format!("{every};broadcast:binomial"), None);
        let error = Settings::compare([&one, &other].into_iter()).unwrap_err().to_string();
        assert!(error.contains(": rank 0 has allreduce:^ring,tree;"), "{error}");
    }

    #[test]
    fn the_same_rules_in_other_words_are_the_same() {
        let one = with("allreduce: Ring, tree", None);
        let other = with("allreduce:tree,ring;", None);
        assert_eq!(one, other);
    }
}
