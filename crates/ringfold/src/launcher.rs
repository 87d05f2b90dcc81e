//! The launcher of a running job, where it answers ranks.

use ringfold_bootstrap::LauncherPlace;

use crate::config::Config;
use crate::setup::InitError;

/// The launcher of this process, by its variables.
pub(crate) fn launcher(config: &Config) -> Result<LauncherPlace, InitError> {
    let variable = |name: &str| config.environment.get(name).cloned();
    let none = || InitError::NoDoor { reason: "ringrun has not started this process".to_owned() };
    // Other launchers keep no doors, and some serve one session.
    if config.started_ranks() == 0 {
        return Err(none());
    }
    let mut identity = ringfold_bootstrap::discover(&variable)?;
    let secret = identity.secret(&variable, config.join_timeout)?;
    LauncherPlace::of(&identity, secret).ok_or_else(none)
}
