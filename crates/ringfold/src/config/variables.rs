//! The names of all variables, and the search for misspelled ones.

use ringfold_types::Hint;

use super::{Config, VARIABLES};

/// The beginning of every name.
const PREFIX: &str = "RINGFOLD_";

/// The rest of the name of each variable of a program that is no setting: the launcher's variables,
/// and those of torch.
const OTHERS: [&str; 15] = [
    "AGENT",
    "JOB",
    "LOCAL_RANK",
    "LOCAL_SIZE",
    "NEWCOMER",
    "RANK",
    "RENDEZVOUS",
    "SECRET",
    "SECRET_FD",
    "SECRET_FILE",
    "SIZE",
    "TORCH_TAKE_OVER_GLOO",
    // Tests and fuzzers read these.
    "FAKE_VERBS",
    "MUTANTS",
    "MUTANTS_SEED",
];

/// The beginning of the names that only tests read, after `PREFIX`.
const TEST: &str = "TEST_";

impl Config {
    /// A sentence about each variable of the environment that looks like one of ringfold's and is
    /// none, with the nearest name. Joining logs them as warnings of rank 0.
    #[must_use]
    pub fn unknown_variables(&self) -> Vec<String> {
        let unknown = |name: &String| {
            let rest = name.strip_prefix(PREFIX)?;
            if known().any(|it| it == rest) || rest.starts_with(TEST) {
                return None;
            }
            let hint = Hint::new(rest, known()).name();
            let hint =
                hint.map_or_else(String::new, |known| format!("; did you mean {PREFIX}{known}?"));
            Some(format!("{name} is ignored: there is no such variable{hint}"))
        };
        self.environment.keys().filter_map(unknown).collect()
    }
}

/// The rest of the name of each variable that programs read.
fn known() -> impl Iterator<Item = &'static str> {
    VARIABLES.iter().filter_map(|(name, _)| name.strip_prefix(PREFIX)).chain(OTHERS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sentences about variables, whose names follow `PREFIX`.
    fn said(names: &[&str]) -> Vec<String> {
        let names = names.iter().map(|name| (format!("{PREFIX}{name}"), "1".to_owned()));
        Config { environment: names.collect(), ..Config::default() }.unknown_variables()
    }

    #[test]
    fn unknown_variables_are_named_with_the_nearest() {
        let said_of = |name| said(&[name]).concat();
        let sentence = said_of("TIMEOT");
        assert!(
            sentence.starts_with(&format!("{PREFIX}TIMEOT is ignored: there is no such variable"))
        );
        assert!(sentence.ends_with("; did you mean RINGFOLD_TIMEOUT?"), "{sentence}");
        assert!(said_of("TIME_OUT").ends_with("did you mean RINGFOLD_TIMEOUT?"));
        assert!(said_of("ALGOS").ends_with("did you mean RINGFOLD_ALGO?"));
        assert!(said_of("").ends_with("no such variable"));
        assert!(said_of("SOMETHING_ELSE").ends_with("no such variable"), "none is near");
        assert!(said(&["ALGO", "TEST_SEED"]).is_empty());
        assert_eq!(said(&["A", "RANK", "B"]).len(), 2);
        let others = ["RING", "OTHER_TIMEOT"].map(|name| (name.to_owned(), String::new()));
        let others = Config { environment: others.into(), ..Config::default() };
        assert!(others.unknown_variables().is_empty(), "names of other programs");
    }

    /// The page of variables and the list have the same names.
    #[test]
    fn every_variable_of_the_page_is_known() {
        let page = include_str!("../../../../docs/environment.md");
        let names =
            page.split(|c: char| !c.is_ascii_uppercase() && c != '_' && !c.is_ascii_digit());
        let mut found = 0;
        for name in names.filter(|name| name.len() > PREFIX.len() && name.starts_with(PREFIX)) {
            let rest = &name[PREFIX.len()..];
            assert!(known().any(|it| it == rest) || rest.starts_with(TEST), "{name}");
            found += 1;
        }
        assert!(found > 30, "{found}");
    }
}
