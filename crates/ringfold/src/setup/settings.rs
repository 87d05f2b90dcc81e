//! The settings on which schedules depend. Ranks with different ones would wait for messages that
//! nobody sends, so the ranks compare them while they join.

use std::collections::BTreeMap;
use std::fmt;

use ringfold_types::Rank;

use super::error::DifferentSettings;
use crate::config::{COMMON, Config};
use crate::digest::digest;

const COUNT: usize = COMMON.len();
/// The bytes of a value that ranks exchange. The rest of a longer value is left out.
const SHOWN_BYTES: usize = 22;

/// One rank's settings, in the order of `COMMON`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Settings([Setting; COUNT]);

/// A value, as ranks exchange it.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Setting {
    /// The digest of the whole value.
    digest: u64,
    /// The beginning of the value, without spaces.
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

    /// Parses the text that `Display` writes.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let mut settings = Self::default();
        for setting in &mut settings.0 {
            let (digest, shown) = words.next()?.split_once(':')?;
            let digest = u64::from_str_radix(digest, 16).ok()?;
            *setting = Setting { digest, shown: shown.to_owned() };
        }
        words.next().is_none().then_some(settings)
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
        env!("SOURCES_DIGEST"),
    ];
    format!("{}+{:012x}", env!("CARGO_PKG_VERSION"), digest(sources.concat()) >> 16)
}

impl Setting {
    fn new(value: &str) -> Self {
        let digest = digest(value);
        let end = value.floor_char_boundary(SHOWN_BYTES);
        let rest = if end < value.len() { ".." } else { "" };
        Self { digest, shown: format!("{}{rest}", &value[..end]) }
    }
}

/// The text that ranks exchange.
impl fmt::Display for Settings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, Setting { digest, shown }) in self.0.iter().enumerate() {
            let space = if index == 0 { "" } else { " " };
            write!(f, "{space}{digest:x}:{shown}")?;
        }
        Ok(())
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

    #[test]
    fn settings_survive_formatting() {
        let settings = with("ring", Some(1 << 20));
        assert_eq!(Settings::parse(&settings.to_string()), Some(settings));
        assert_eq!(Settings::parse(&Settings::default().to_string()), Some(Settings::default()));
        let more = "1:a 2:b 3:c 4:d 5:e 6:f 7:g 8:h 9:i a:j";
        for nonsense in ["", "a", "1:a 2:b", more, "1:a x:b 3:c", "1:a 2 3:c"] {
            assert_eq!(Settings::parse(nonsense), None, "{nonsense}");
        }
    }
}
