//! A launcher's variables, and the errors in them.

use std::io;
use std::net::IpAddr;
use std::ops::RangeInclusive;
use std::str::FromStr;

use ringfold_types::{InvalidHostList, Rank, limits};

use super::identity::Launcher;
use super::pmi::error::PmiError;

/// The environment, read through the caller's function. An empty variable counts as not set.
pub(super) struct Vars<'a>(pub(super) &'a dyn Fn(&str) -> Option<String>);

impl Vars<'_> {
    pub(super) fn get(&self, name: &str) -> Option<String> {
        (self.0)(name).filter(|value| !value.is_empty())
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    pub(super) fn number<T: Number>(
        &self,
        variable: &'static str,
    ) -> Result<Option<T>, DiscoverError> {
        let Some(value) = self.get(variable) else { return Ok(None) };
        let number = value.trim().parse().ok().filter(|number| T::RANGE.contains(number));
        let invalid = || DiscoverError::Invalid { variable, value, expected: T::EXPECTED };
        number.map(Some).ok_or_else(invalid)
    }
}

/// A number in a variable.
pub(super) trait Number: FromStr + PartialOrd + 'static {
    /// The valid values.
    const RANGE: RangeInclusive<Self>;
    /// The valid values in words.
    const EXPECTED: &'static str;
}

const _: () = assert!(limits::RANKS_MAX == 65_536, "the words below say so");

/// A port.
impl Number for u16 {
    const RANGE: RangeInclusive<Self> = 1..=Self::MAX;
    const EXPECTED: &'static str = "a port from 1 to 65535";
}

/// A number of ranks. `DiscoverError::NoRank` names those out of range, together with the rank.
impl Number for usize {
    const RANGE: RangeInclusive<Self> = 0..=Self::MAX;
    const EXPECTED: &'static str = "a number of ranks from 1 to 65536";
}

/// A rank, as far as a number of ranks.
impl Number for u32 {
    const RANGE: RangeInclusive<Self> = 0..=Self::MAX;
    const EXPECTED: &'static str = "a rank from 0 to 65535";
}

/// A descriptor.
impl Number for i32 {
    const RANGE: RangeInclusive<Self> = 0..=Self::MAX;
    const EXPECTED: &'static str = "the number of an open file";
}

/// Why a launcher's variables do not form an identity.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiscoverError {
    /// A variable is missing.
    #[error("started by {launcher} ({because} is set), but {missing} is not set: set it{hint}")]
    Unset {
        /// The launcher.
        launcher: Launcher,
        /// The variable that identified the launcher.
        because: &'static str,
        /// The variable to set.
        missing: &'static str,
        /// Further advice.
        hint: &'static str,
    },
    /// A variable has an invalid value.
    #[error("{variable}={value:?} is not {expected}")]
    Invalid {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// The valid values.
        expected: &'static str,
    },
    /// Slurm's list of hosts is invalid.
    #[error("{variable}={value:?} is not a list of hosts")]
    HostList {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// The error in the list.
        source: InvalidHostList,
    },
    /// The rank is not below the size, or the size is too large.
    #[error(
        "{launcher} gave rank {rank} of {size}: ranks are 0..size, and size is at most {}",
        limits::RANKS_MAX
    )]
    NoRank {
        /// The launcher.
        launcher: Launcher,
        /// The rank it gave.
        rank: Rank,
        /// The size it gave.
        size: usize,
    },
    /// Open MPI has put rank 0 on another host than `mpirun`.
    #[error(
        "rank 0 runs on another host than mpirun, and Open MPI passes on only mpirun's address: \
         name rank 0's host by mpirun -x MASTER_ADDR={rank_0} ..."
    )]
    NotWithMpirun {
        /// An address of rank 0's host.
        rank_0: IpAddr,
    },
    /// The launcher's socket cannot be used.
    #[error(
        "cannot use file descriptor {fd} of PMI_FD (set RINGFOLD_RANK, RINGFOLD_SIZE and \
         RINGFOLD_RENDEZVOUS, or start with ringrun)"
    )]
    Socket {
        /// The number of the descriptor.
        fd: i32,
        /// The system's error.
        source: io::Error,
    },
    /// The PMI-1 session with the launcher failed.
    #[error("the launcher's key-value space (PMI-1) failed")]
    Pmi(#[from] PmiError),
}
