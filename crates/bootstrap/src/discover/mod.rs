//! Who am I? The answer of whichever launcher started this process, read from its variables.
//!
//! # Order
//! The innermost launcher wins, as `mpirun` in a Slurm allocation does over Slurm:
//! 1. `ringrun` (`RINGFOLD_RANK`);
//! 2. torchrun (`TORCHELASTIC_RUN_ID`), which others start per host and which starts only ranks;
//! 3. Hydra and relatives (`PMI_FD`), unless it is Slurm's PMI-2 under the same name;
//! 4. Open MPI (`OMPI_COMM_WORLD_RANK`);
//! 5. torch's variables set by hand (`RANK` or `WORLD_SIZE`);
//! 6. a Slurm step (`SLURM_STEP_ID` and `SLURM_PROCID`: a batch script has the latter without being
//!    a rank);
//! 7. nobody: alone.

use std::io;
use std::net::IpAddr;
use std::str::FromStr;

use ringfold_types::{Rank, limits};

use crate::identity::{Identity, Launcher, Rendezvous};
use crate::pmi::PmiError;
use hostlist::HostListError;

mod hostlist;
mod launchers;

pub use hostlist::{HostListError as InvalidHostList, expand as expand_hosts};

/// Reads the launcher's variables, which `variable` hands out; where the launcher speaks PMI-1,
/// begins that conversation, or remembers what came of the one that is over.
///
/// # Errors
/// A launcher's variables are incomplete or make no sense; the text says which one to set.
pub fn discover(variable: &dyn Fn(&str) -> Option<String>) -> Result<Identity, DiscoverError> {
    let vars = Vars(variable);
    let identity = match launcher(&vars).map(|(launcher, _)| launcher) {
        None | Some(Launcher::Alone) => Ok(Identity::alone()),
        Some(Launcher::Ringrun) => launchers::ringrun(&vars),
        Some(Launcher::Torchrun) => launchers::torch(&vars),
        Some(Launcher::Hydra) => launchers::hydra(&vars),
        Some(Launcher::OpenMpi) => launchers::open_mpi(&vars),
        Some(Launcher::Slurm) => launchers::slurm(&vars),
    }?;
    let Identity { rank, size, .. } = identity;
    if rank.index() >= size || size > limits::RANKS_MAX {
        return Err(DiscoverError::NoRank { launcher: identity.launcher, rank, size });
    }
    if size == 1 {
        return Ok(Identity { rendezvous: Rendezvous::Alone, ..identity });
    }
    Ok(identity)
}

/// The variable that tells this process that it is one of several ranks which a launcher has
/// started, if one does. Talks to nobody.
#[must_use]
pub fn started_as_rank(variable: &dyn Fn(&str) -> Option<String>) -> Option<&'static str> {
    let vars = Vars(variable);
    let (launcher, because) = launcher(&vars)?;
    // A step of one task is how people run any program on the nodes of their allocation.
    let is_alone =
        launcher == Launcher::Slurm && matches!(launchers::slurm_tasks(&vars), Ok(Some(1)));
    (!is_alone).then_some(because)
}

/// Who started this process, and the variable that says so.
fn launcher(vars: &Vars<'_>) -> Option<(Launcher, &'static str)> {
    let has = |names: &[&'static str]| names.iter().copied().find(|name| vars.has(name));
    let is = |launcher, because: Option<_>| because.map(|name: &'static str| (launcher, name));
    is(Launcher::Ringrun, has(&["RINGFOLD_RANK"]))
        .or_else(|| is(Launcher::Torchrun, has(&["TORCHELASTIC_RUN_ID"])))
        .or_else(|| is(Launcher::Hydra, has(&["PMI_FD"]).filter(|_| !is_slurm_pmi2(vars))))
        .or_else(|| is(Launcher::OpenMpi, has(&["OMPI_COMM_WORLD_RANK"])))
        .or_else(|| is(Launcher::Torchrun, has(&["RANK", "WORLD_SIZE"])))
        .or_else(|| {
            let because = has(&["SLURM_PROCID"]).filter(|_| launchers::is_slurm_step(vars));
            is(Launcher::Slurm, because)
        })
}

/// Why a launcher's variables do not make an identity.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DiscoverError {
    /// A variable is missing.
    #[error("started by {launcher} ({because} is set), but {missing} is not set: set it{hint}")]
    Unset {
        /// The launcher.
        launcher: Launcher,
        /// The variable that told so.
        because: &'static str,
        /// The variable to set.
        missing: &'static str,
        /// What else helps.
        hint: &'static str,
    },
    /// A variable has a value that makes no sense.
    #[error("{variable}={value:?} is not {expected}")]
    Invalid {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// What it should be.
        expected: &'static str,
    },
    /// Slurm's list of hosts makes no sense.
    #[error("{variable}={value:?}: {source}")]
    HostList {
        /// The variable.
        variable: &'static str,
        /// Its value.
        value: String,
        /// What is wrong with it.
        source: HostListError,
    },
    /// The rank is not below the size, or there are too many.
    #[error(
        "{launcher} says rank {rank} of {size}: ranks are 0..size, and size at most {}",
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
        "Open MPI says where mpirun runs, and rank 0 is on another host: tell the ranks, as by \
         mpirun -x MASTER_ADDR={rank_0} ..."
    )]
    NotWithMpirun {
        /// An address of rank 0's host.
        rank_0: IpAddr,
    },
    /// The launcher's socket cannot be used.
    #[error(
        "cannot use file descriptor {fd} (PMI_FD): {source}; set RINGFOLD_RANK, RINGFOLD_SIZE \
         and RINGFOLD_RENDEZVOUS, or start with ringrun"
    )]
    Socket {
        /// Its number.
        fd: i32,
        /// What the system says.
        source: io::Error,
    },
    /// The launcher does not speak PMI-1.
    #[error("the launcher's key-value space (PMI-1) failed: {0}")]
    Pmi(#[from] PmiError),
}

/// Slurm's PMI-2 plugin uses the same variables for a different protocol.
fn is_slurm_pmi2(vars: &Vars<'_>) -> bool {
    vars.has("PMI_JOBID")
        && vars.has("PMI_RANK")
        && vars.get("PMI_RANK") == vars.get("SLURM_PROCID")
}

/// The environment as the caller hands it out. What is set but empty counts as not set.
struct Vars<'a>(&'a dyn Fn(&str) -> Option<String>);

impl Vars<'_> {
    fn get(&self, name: &str) -> Option<String> {
        (self.0)(name).filter(|value| !value.is_empty())
    }

    fn has(&self, name: &str) -> bool {
        self.get(name).is_some()
    }

    fn number<T: FromStr>(&self, variable: &'static str) -> Result<Option<T>, DiscoverError> {
        let Some(value) = self.get(variable) else { return Ok(None) };
        let invalid = |value| DiscoverError::Invalid { variable, value, expected: "a number" };
        value.trim().parse().map(Some).map_err(|_| invalid(value))
    }
}

#[cfg(test)]
mod tests;
