//! `--bind-to`: which of its host's cores a rank may use.

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use crate::message::Bind;

/// Cores that this process may use; at least 1.
pub(crate) fn allowed_cores() -> usize {
    sched_getaffinity(None).map_or(1, |allowed| cores(&allowed).len().max(1))
}

/// Ties this process to the cores of the rank with this number among `local_size` on its host.
///
/// # Errors
/// What the operating system says.
pub(crate) fn bind(how: Bind, local_rank: usize, local_size: usize) -> rustix::io::Result<()> {
    let allowed = sched_getaffinity(None)?;
    let cores = cores(&allowed);
    let mut chosen = CpuSet::new();
    match how {
        Bind::None => return Ok(()),
        Bind::Core => {
            if let Some(cpu) = local_rank.checked_rem(cores.len()).and_then(|at| cores[at].first())
            {
                chosen.set(*cpu);
            }
        }
        Bind::Share if cores.len() < local_size && has_quota(&allowed) => return Ok(()),
        Bind::Share => share(&cores, local_rank, local_size).for_each(|cpu| chosen.set(cpu)),
    }
    if chosen.count() == 0 { Ok(()) } else { sched_setaffinity(None, &chosen) }
}

/// The CPUs of a rank's share: a run of neighbouring cores, or a core that it shares with its
/// neighbours if cores divide ranks; none if neither is possible. Where ranks take turns, all wait
/// for the fullest core, and the kernel may take a tenth of a second to spread them evenly.
fn share(
    cores: &[Vec<usize>],
    local_rank: usize,
    local_size: usize,
) -> impl Iterator<Item = usize> + '_ {
    let (first, each) = match (cores.len() / local_size.max(1), local_size / cores.len().max(1)) {
        (0, ranks @ 1..) if ranks * cores.len() == local_size => (local_rank / ranks, 1),
        (each, _) => (local_rank * each, each),
    };
    cores.iter().skip(first).take(each).flatten().copied()
}

/// Whether this process may use less than all of the CPUs that it may run on: who is tied to some
/// then would seem to have these for itself.
fn has_quota(allowed: &CpuSet) -> bool {
    let cpus = (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).count();
    std::thread::available_parallelism().is_ok_and(|usable| usable.get() < cpus)
}

/// The allowed cores, each as its allowed hardware threads. Where the kernel does not tell which
/// threads share a core, each counts as one.
fn cores(allowed: &CpuSet) -> Vec<Vec<usize>> {
    let mut cores: Vec<(String, Vec<usize>)> = Vec::new();
    for cpu in (0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)) {
        let path = format!("/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list");
        let name = std::fs::read_to_string(path).unwrap_or_else(|_| cpu.to_string());
        match cores.iter_mut().find(|(known, _)| *known == name) {
            Some((_, threads)) => threads.push(cpu),
            None => cores.push((name, vec![cpu])),
        }
    }
    cores.into_iter().map(|(_, threads)| threads).collect()
}

#[cfg(test)]
mod tests {
    use rustix::thread::{CpuSet, sched_getaffinity};

    use super::{allowed_cores, cores, share};

    #[test]
    fn only_allowed_cores_are_given() {
        let allowed = sched_getaffinity(None).unwrap();
        let cores = cores(&allowed);
        assert!(cores.iter().flatten().all(|cpu| allowed.is_set(*cpu)));
        assert_eq!(cores.len(), allowed_cores());
        assert!(super::cores(&CpuSet::new()).is_empty());
    }

    #[test]
    fn shares_are_equal_and_nobody_elses() {
        let cores = [vec![0, 4], vec![1, 5], vec![2, 6], vec![3, 7], vec![8]];
        let of = |rank, size| share(&cores, rank, size).collect::<Vec<_>>();
        assert_eq!(of(0, 1).len(), 9);
        assert_eq!([of(0, 2), of(1, 2)], [[0, 4, 1, 5], [2, 6, 3, 7]]);
        assert_eq!((of(4, 5), of(0, 6)), (vec![8], vec![]), "six do not divide five cores");
        assert_eq!([of(0, 10), of(1, 10), of(2, 10)], [[0, 4], [0, 4], [1, 5]]);
        assert_eq!(of(9, 10), [8]);
        assert_eq!((share(&[], 0, 2).count(), share(&[], 0, 0).count()), (0, 0));
        assert_eq!(share(&cores, 0, 0).count(), 9);
    }
}
