//! The names of all variables, and the search for misspelled ones.

use std::collections::BTreeMap;

use ringfold_types::Hint;

/// The beginning of every name.
const PREFIX: &str = "RINGFOLD_";

/// The rest of the name of each variable of a program: settings, the launcher's variables, and
/// those of torch.
const KNOWN: [&str; 45] = [
    "AGENT",
    "AGGREGATORS",
    "ALGO",
    "CHANNELS",
    "CHUNK",
    "DEBUG",
    "HOSTID",
    "IB_ADAPTIVE_ROUTING",
    "IB_BYTES_MAX",
    "IB_GID_INDEX",
    "IB_HCA",
    "IB_PCI_RELAXED_ORDERING",
    "IB_PKEY",
    "IB_QPS_MAX",
    "IB_QPS_PER_CONNECTION",
    "IB_RETRY_CNT",
    "IB_SL",
    "IB_TC",
    "IB_TIMEOUT",
    "INNETWORK",
    "JOB",
    "JOIN_TIMEOUT",
    "LOCAL_RANK",
    "LOCAL_SIZE",
    "PLAN",
    "PRICES",
    "RANK",
    "RENDEZVOUS",
    "SECRET",
    "SECRET_FD",
    "SECRET_FILE",
    "SHM_CMA",
    "SITE_SECRET_FILE",
    "SIZE",
    "SOCKET_IFNAME",
    "TIMEOUT",
    "TOPO",
    "TOPO_FILE",
    "TORCH_TAKE_OVER_GLOO",
    "TRANSPORT",
    "WIRE",
    // Tests and fuzzers read these.
    "FAKE_VERBS",
    "MUTANTS",
    "MUTANTS_SEED",
    "PROOFS_SEED",
];

/// The beginning of the names that only tests read, after `PREFIX`.
const TEST: &str = "TEST_";

/// A sentence about each variable that looks like one of ringfold's and is none.
pub(super) fn unknown(environment: &BTreeMap<String, String>) -> Vec<String> {
    let unknown = |name: &String| {
        let rest = name.strip_prefix(PREFIX)?;
        if KNOWN.contains(&rest) || rest.starts_with(TEST) {
            return None;
        }
        let hint = Hint::new(rest, KNOWN).name();
        let hint =
            hint.map_or_else(String::new, |known| format!("; did you mean {PREFIX}{known}?"));
        Some(format!("{name} is ignored: there is no such variable{hint}"))
    };
    environment.keys().filter_map(unknown).collect()
}

/// Whether programs read the variable with this name.
pub(super) fn is_known(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|rest| KNOWN.contains(&rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The sentences about variables, whose names follow `PREFIX`.
    fn said(names: &[&str]) -> Vec<String> {
        unknown(&names.iter().map(|name| (format!("{PREFIX}{name}"), "1".to_owned())).collect())
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
        assert!(unknown(&others.into()).is_empty(), "names of other programs");
    }

    /// The page of variables and the list have the same names.
    #[test]
    fn every_variable_of_the_page_is_known() {
        let page = include_str!("../../../../docs/environment.md");
        let names =
            page.split(|c: char| !c.is_ascii_uppercase() && c != '_' && !c.is_ascii_digit());
        let mut found = 0;
        for name in names.filter(|name| name.len() > PREFIX.len() && name.starts_with(PREFIX)) {
            assert!(is_known(name) || name.starts_with("RINGFOLD_TEST_"), "{name}");
            found += 1;
        }
        assert!(found > 30, "{found}");
    }
}
