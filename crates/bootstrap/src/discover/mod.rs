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

use ringfold_types::limits;

use crate::identity::{Identity, Launcher, Rendezvous};
use vars::Vars;

mod hostlist;
mod launchers;
mod vars;

#[doc(hidden)]
pub use launchers::addresses;

pub use hostlist::{HostListError as InvalidHostList, expand as expand_hosts};
pub use vars::DiscoverError;

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

/// Slurm's PMI-2 plugin uses the same variables for a different protocol.
fn is_slurm_pmi2(vars: &Vars<'_>) -> bool {
    vars.has("PMI_JOBID")
        && vars.has("PMI_RANK")
        && vars.get("PMI_RANK") == vars.get("SLURM_PROCID")
}

#[cfg(test)]
mod tests;
