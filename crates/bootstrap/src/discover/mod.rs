//! Finds this process's rank and job in the variables of the launcher that started it.
//!
//! The result is an `identity`. `launchers` has a function for each launcher, and reads with
//! `vars`, `inherited` and `pmi`. `secret` finds the job's secret, which `pmi` and
//! `torch_store` can carry. `address` and `interface` know the addresses of the host.
//!
//! # Order
//! The innermost launcher wins, as `mpirun` does over Slurm in a Slurm allocation:
//! 1. `ringrun` (`RINGFOLD_RANK`);
//! 2. torchrun (`TORCHELASTIC_RUN_ID`), which other launchers start once per host, and which starts
//!    only ranks;
//! 3. Hydra and relatives (`PMI_FD`), unless Slurm's PMI-2 uses the same name;
//! 4. Open MPI (`OMPI_COMM_WORLD_RANK`);
//! 5. torch's variables set by hand (`RANK` or `WORLD_SIZE`);
//! 6. a Slurm step (`SLURM_STEP_ID` and `SLURM_PROCID`: a batch script has the latter without being
//!    a rank);
//! 7. no launcher: the only rank.

use ringfold_types::limits;

pub(crate) mod address;
pub(crate) mod identity;
mod inherited;
pub mod interface;
pub(crate) mod launchers;
pub mod pmi;
pub(crate) mod secret;
pub(crate) mod torch_store;
pub(crate) mod vars;

use identity::{Identity, Launcher, Rendezvous};
use vars::{DiscoverError, Vars};

/// Reads the launcher's variables through `variable`. If the launcher speaks PMI-1, this begins a
/// PMI session, or uses the record of a finished one.
///
/// # Errors
/// The variables are incomplete or invalid. The error names the variable to set.
pub fn discover(variable: &dyn Fn(&str) -> Option<String>) -> Result<Identity, DiscoverError> {
    let vars = Vars(variable);
    let identity = match launcher(variable) {
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

/// The variable that marks this process as one of several ranks of a launcher, if there is one.
/// Contacts no other process.
#[must_use]
pub fn started_as_rank(variable: &dyn Fn(&str) -> Option<String>) -> Option<&'static str> {
    let vars = Vars(variable);
    let (launcher, because) = launcher_and_variable(&vars)?;
    // Users run any program on the nodes of their allocation as a step of one task.
    let is_alone =
        launcher == Launcher::Slurm && matches!(launchers::slurm_tasks(&vars), Ok(Some(1)));
    (!is_alone).then_some(because)
}

/// The launcher that started this process. Contacts no other process.
pub(crate) fn launcher(variable: &dyn Fn(&str) -> Option<String>) -> Option<Launcher> {
    launcher_and_variable(&Vars(variable)).map(|(launcher, _)| launcher)
}

/// The launcher that started this process, and the variable that shows it.
fn launcher_and_variable(vars: &Vars<'_>) -> Option<(Launcher, &'static str)> {
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
