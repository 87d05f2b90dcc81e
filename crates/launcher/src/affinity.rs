//! `--bind-to core`: one of the allowed cores for each rank, in turn.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// Cores that this process may use; at least 1.
pub(crate) fn allowed_cores() -> usize {
    sched_getaffinity(None).map_or(1, |allowed| one_thread_per_core(&allowed).len().max(1))
}

/// Ties this process to the core of the rank with this number on its host.
///
/// # Errors
/// What the operating system says.
pub(crate) fn bind(local_rank: usize) -> rustix::io::Result<()> {
    let cores = one_thread_per_core(&sched_getaffinity(None)?);
    let mut chosen = CpuSet::new();
    if let Some(cpu) = local_rank.checked_rem(cores.len()).and_then(|at| cores.get(at)) {
        chosen.set(*cpu);
        sched_setaffinity(None, &chosen)?;
    }
    Ok(())
}

/// The first allowed hardware thread of each core. Where the kernel does not tell which threads
/// share a core, each counts as one.
fn one_thread_per_core(allowed: &CpuSet) -> Vec<usize> {
    let mut seen = Vec::new();
    let mut cores = Vec::new();
    for cpu in (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)) {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        let core = std::fs::read_to_string(path).unwrap_or_else(|_| cpu.to_string());
        if !seen.contains(&core) {
            seen.push(core);
            cores.push(cpu);
        }
    }
    cores
}

#[cfg(test)]
mod tests {
    use rustix::thread::{CpuSet, sched_getaffinity};

    use super::{allowed_cores, one_thread_per_core};

    #[test]
    fn only_allowed_cores_are_given() {
        let allowed = sched_getaffinity(None).unwrap();
        let cores = one_thread_per_core(&allowed);
        assert!(cores.iter().all(|cpu| allowed.is_set(*cpu)));
        assert_eq!(cores.len(), allowed_cores());
        assert!(one_thread_per_core(&CpuSet::new()).is_empty());
    }
}
