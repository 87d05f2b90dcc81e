//! The CPUs that a process may run on.

use std::collections::BTreeSet;
use std::fmt;
use std::fs;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A set of CPUs. Its text form is that of the kernel's lists: `0-3,8`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Cpus(BTreeSet<u16>);

/// A text that is not a list of CPUs, or one with numbers beyond those of Linux.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidCpus;

impl fmt::Display for InvalidCpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a list of CPUs such as 0-3,8")
    }
}

/// Linux supports no more CPUs.
const CPUS_MAX: u16 = 8192;

impl Cpus {
    /// The CPUs that the calling thread may run on. Empty if the system does not show them.
    #[must_use]
    pub fn allowed() -> Self {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        list.and_then(|list| list.trim().parse().ok()).unwrap_or_default()
    }

    /// Number of CPUs in the set.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The CPUs, ascending.
    pub fn iter(&self) -> impl Iterator<Item = u16> + '_ {
        self.0.iter().copied()
    }

    /// Whether `cpu` is in the set.
    #[must_use]
    pub fn contains(&self, cpu: u16) -> bool {
        self.0.contains(&cpu)
    }

    pub(super) fn first(&self) -> Option<u16> {
        self.0.first().copied()
    }

    pub(super) fn insert(&mut self, cpu: u16) {
        self.0.insert(cpu);
    }

    pub(super) fn remove(&mut self, cpu: u16) {
        self.0.remove(&cpu);
    }

    pub(super) fn retain(&mut self, is_kept: impl Fn(u16) -> bool) {
        self.0.retain(|cpu| is_kept(*cpu));
    }

    /// Adds the CPUs of `other`.
    pub fn join(&mut self, other: &Self) {
        self.0.extend(&other.0);
    }
}

impl FromIterator<u16> for Cpus {
    fn from_iter<I: IntoIterator<Item = u16>>(cpus: I) -> Self {
        Self(cpus.into_iter().filter(|cpu| *cpu < CPUS_MAX).collect())
    }
}

impl TryFrom<String> for Cpus {
    type Error = InvalidCpus;

    fn try_from(list: String) -> Result<Self, InvalidCpus> {
        list.parse()
    }
}

impl From<Cpus> for String {
    fn from(cpus: Cpus) -> Self {
        cpus.to_string()
    }
}

impl FromStr for Cpus {
    type Err = InvalidCpus;

    fn from_str(list: &str) -> Result<Self, InvalidCpus> {
        let mut cpus = BTreeSet::new();
        for range in list.split(',').filter(|range| !range.is_empty()) {
            let number = |text: &str| text.parse().ok().filter(|cpu: &u16| *cpu < CPUS_MAX);
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            let (first, last) = number(first).zip(number(last)).ok_or(InvalidCpus)?;
            cpus.extend(first..=last);
        }
        Ok(Self(cpus))
    }
}

impl fmt::Display for Cpus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut cpus = self.0.iter().copied().peekable();
        let mut comma = "";
        while let Some(first) = cpus.next() {
            let mut last = first;
            while let Some(next) = cpus.next_if(|next| *next == last + 1) {
                last = next;
            }
            write!(f, "{comma}{first}")?;
            if last > first {
                write!(f, "-{last}")?;
            }
            comma = ",";
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_and_written() {
        for (list, len) in [("", 0), ("0", 1), ("0-3,8", 5), ("1,3,5-6", 4), ("8190-8191", 2)] {
            let cpus: Cpus = list.parse().unwrap();
            assert_eq!((cpus.len(), cpus.to_string().as_str()), (len, list));
        }
        assert_eq!("3,1-2".parse::<Cpus>().unwrap().to_string(), "1-3");
        for nonsense in ["a", "1-", "-1", "0-8192", "70000", "1;2"] {
            assert_eq!(nonsense.parse::<Cpus>(), Err(InvalidCpus), "{nonsense}");
        }
    }

    #[test]
    fn sets_are_joined() {
        let mut cpus: Cpus = "0-1".parse().unwrap();
        cpus.join(&"1-2".parse().unwrap());
        assert_eq!(cpus.to_string(), "0-2");
    }

    #[test]
    fn this_thread_may_run_somewhere() {
        // A quota may leave fewer.
        assert!(Cpus::allowed().len() >= crate::discover::cores());
    }
}
