//! One function per launcher: from its variables to an identity.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ringfold_types::{Digest, Rank, expand_hosts, limits};

use super::address::loopback;
use super::identity::{Identity, Launcher, Rendezvous, SecretSource};
use super::pmi::past::{PastSession, past_session};
use super::secret::Secret;
use super::torch_store::TorchStore;
use super::vars::{DiscoverError, Number, Vars};
use super::{inherited, pmi};

/// The number of candidate ports, because other programs may hold some of them.
const CANDIDATES: u16 = 16;
/// The range of ports that a job's name leads to. It is above the registered ports that matter, and
/// below the ephemeral ones.
const PORTS: std::ops::Range<u16> = 20_000..32_000;
/// Slurm numbers its own steps (batch, extern, interactive) from here.
const SPECIAL_STEPS: u32 = 0xffff_fff0;
/// The variable with the URI by which Open MPI's daemons reach `mpirun`.
const MPIRUN_URI: &str = "OMPI_MCA_orte_hnp_uri";
/// The variable with a random number of 128 bits, which Open MPI's `mpirun` makes for each job and
/// gives to its ranks alone. If another launcher starts the ranks directly, the variable holds the
/// job's family and number.
const OPEN_MPI_KEY: &str = "OMPI_MCA_orte_precondition_transports";
/// The least word that counts as random. A random word of 64 bits is smaller once in four thousand
/// million times, and a job's number is always smaller.
const KEY_WORD_MIN: u64 = 1 << 32;
/// The most addresses of one host to try.
const ADDRESSES_MAX: usize = 16;
const PMI_TIMEOUT: Duration = Duration::from_secs(10);

/// Reads `RINGFOLD_RANK`, `RINGFOLD_SIZE`, `RINGFOLD_JOB`, `RINGFOLD_RENDEZVOUS`.
pub(super) fn ringrun(vars: &Vars<'_>) -> Result<Identity, DiscoverError> {
    let need = Need { launcher: Launcher::Ringrun, because: "RINGFOLD_RANK", vars };
    let address = match vars.get("RINGFOLD_RENDEZVOUS") {
        Some(address) => address,
        None if vars.get("RINGFOLD_SIZE").as_deref() == Some("1") => String::new(),
        None => return Err(need.unset("RINGFOLD_RENDEZVOUS", " to host:port of the launcher")),
    };
    Ok(Identity {
        rank: need.rank("RINGFOLD_RANK")?,
        size: need.number("RINGFOLD_SIZE")?,
        job: need.text("RINGFOLD_JOB", "")?,
        rendezvous: Rendezvous::Ask { address },
        launcher: Launcher::Ringrun,
        secret_source: SecretSource::None,
    })
}

/// Reads `RANK`, `WORLD_SIZE`, `MASTER_ADDR`, `MASTER_PORT`, and under torchrun `TORCHELASTIC_*`.
///
/// If torchrun's agent serves its store on `MASTER_PORT`, the candidates begin with the next port,
/// otherwise with that one. Foreign services on any of them are harmless, because they fail the
/// handshake.
pub(super) fn torch(vars: &Vars<'_>) -> Result<Identity, DiscoverError> {
    let because = ["TORCHELASTIC_RUN_ID", "RANK"].into_iter().find(|name| vars.has(name));
    let because = because.unwrap_or("WORLD_SIZE");
    let need = Need { launcher: Launcher::Torchrun, because, vars };
    let (rank, size) = (need.rank("RANK")?, need.number("WORLD_SIZE")?);
    if size == 1 {
        return Ok(Identity { launcher: Launcher::Torchrun, rank, ..Identity::alone() });
    }
    let host = need.text("MASTER_ADDR", " to the host of rank 0")?;
    let port: u16 = need.number("MASTER_PORT")?;
    let run = vars.get("TORCHELASTIC_RUN_ID").unwrap_or_default();
    let attempt = vars.get("TORCHELASTIC_RESTART_COUNT").unwrap_or_default();
    let store = vars.get("TORCHELASTIC_USE_AGENT_STORE");
    let taken = store.is_some_and(|v| v.eq_ignore_ascii_case("true") || v == "1");
    let job = format!("torch:{run}:{attempt}:{host}:{port}");
    let store = |key| TorchStore { host: host.clone(), port, key };
    let secret_source =
        taken.then(|| SecretSource::TorchStore(store(format!("ringfold-secret:{job}"))));
    Ok(Identity {
        rank,
        size,
        job,
        rendezvous: Rendezvous::Ports {
            hosts: vec![host],
            named_by: "MASTER_ADDR",
            ports: ports_from(port, u16::from(taken)),
        },
        launcher: Launcher::Torchrun,
        secret_source: secret_source.unwrap_or_default(),
    })
}

/// Reads `PMI_FD`, `PMI_RANK`, `PMI_SIZE`, and the PMI session on that descriptor, or the record of
/// a finished one. Later communicators of the process meet at the address of the first.
pub(super) fn hydra(vars: &Vars<'_>) -> Result<Identity, DiscoverError> {
    let need = Need { launcher: Launcher::Hydra, because: "PMI_FD", vars };
    let (rank, size) = (need.rank("PMI_RANK")?, need.number("PMI_SIZE")?);
    let fd = need.number("PMI_FD")?;
    let socket = inherited::duplicate(fd);
    let socket = socket.map_err(|source| DiscoverError::Socket { fd, source })?;
    if let Some(PastSession { space, coordinator, secret }) = past_session(&socket) {
        let meet = |coordinator: SocketAddr| Rendezvous::Ports {
            hosts: vec![coordinator.ip().to_string()],
            named_by: "the launcher's key-value space",
            ports: ports_from(coordinator.port(), 0),
        };
        let rendezvous = coordinator.map_or(Rendezvous::Alone, meet);
        let job = format!("pmi:{space}");
        let (launcher, secret_source) =
            (Launcher::Hydra, secret.map_or(SecretSource::None, SecretSource::Known));
        return Ok(Identity { rank, size, job, rendezvous, launcher, secret_source });
    }
    let client = pmi::Client::open(socket, PMI_TIMEOUT)?;
    let job = format!("pmi:{}", client.space());
    let rendezvous = if size == 1 {
        // Hydra takes a process that ends without this for a failure.
        client.finalize()?;
        Rendezvous::Alone
    } else {
        Rendezvous::Kvs(client)
    };
    let (launcher, secret_source) = (Launcher::Hydra, SecretSource::None);
    Ok(Identity { rank, size, job, rendezvous, launcher, secret_source })
}

/// Reads `OMPI_COMM_WORLD_*`. The ranks meet at `MASTER_ADDR`, or at the loopback address if all
/// run on this host, or else at the host of `mpirun`. Open MPI puts rank 0 there unless its list of
/// hosts begins with another.
pub(super) fn open_mpi(vars: &Vars<'_>) -> Result<Identity, DiscoverError> {
    let because = "OMPI_COMM_WORLD_RANK";
    let need = Need { launcher: Launcher::OpenMpi, because, vars };
    let (rank, size) = (need.rank(because)?, need.number("OMPI_COMM_WORLD_SIZE")?);
    let one_host = vars.number("OMPI_COMM_WORLD_LOCAL_SIZE")? == Some(size);
    let (named_by, hosts) = match vars.get("MASTER_ADDR") {
        Some(host) => ("MASTER_ADDR", vec![host]),
        None if one_host => ("Open MPI", vec![loopback().to_string()]),
        None => (MPIRUN_URI, mpirun_host(&need, rank)?),
    };
    let names = ["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri"];
    let name = names.iter().find_map(|name| vars.get(name));
    let port = vars.number("MASTER_PORT")?;
    let (job, ports) = match (name, port) {
        (Some(name), Some(port)) => (name, ports_from(port, 0)),
        (Some(name), None) => (name.clone(), ports_of(&name)),
        (None, Some(port)) => (format!("{}:{port}", hosts.join(",")), ports_from(port, 0)),
        (None, None) => {
            return Err(need.unset("MASTER_PORT", " to a free port of the host of rank 0"));
        }
    };
    Ok(Identity {
        rank,
        size,
        job: format!("ompi:{job}"),
        rendezvous: Rendezvous::Ports { hosts, named_by, ports },
        launcher: Launcher::OpenMpi,
        secret_source: mpirun_key(vars)
            .map_or(SecretSource::None, |key| SecretSource::Known(Secret::of_key(&key))),
    })
}

/// The key that `mpirun` made for this job. `None` if `mpirun` did not start this rank, or if
/// others can guess the key. A good key is two words of 16 hexadecimal digits, neither of them
/// small.
fn mpirun_key(vars: &Vars<'_>) -> Option<String> {
    let key = vars.get(OPEN_MPI_KEY).filter(|_| vars.has(MPIRUN_URI))?;
    let is_random = |word: &str| {
        let is_hex = word.len() == 16 && word.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_hex && u64::from_str_radix(word, 16).is_ok_and(|number| number >= KEY_WORD_MIN)
    };
    let is_secret = key.split_once('-').is_some_and(|(a, b)| is_random(a) && is_random(b));
    is_secret.then_some(key)
}

/// The addresses of `mpirun`'s host.
fn mpirun_host(need: &Need<'_>, rank: Rank) -> Result<Vec<String>, DiscoverError> {
    let at = |name| need.vars.get(name).map_or_else(Vec::new, |uri| addresses(&uri));
    let (mpirun, here) = (at(MPIRUN_URI), at("OMPI_MCA_orte_local_daemon_uri"));
    if mpirun.is_empty() {
        let hint = " to the host of rank 0 (mpirun -x MASTER_ADDR=...)";
        return Err(need.unset("MASTER_ADDR", hint));
    }
    // Hosts may share an address, such as that of a container bridge, but not all addresses.
    match here.first() {
        Some(rank_0) if rank == Rank(0) && here != mpirun => {
            Err(DiscoverError::NotWithMpirun { rank_0: *rank_0 })
        }
        _ => Ok(mpirun.iter().map(ToString::to_string).collect()),
    }
}

/// The addresses in Open MPI's `id;tcp://address,address:port;tcp6://[address],[address]:port` by
/// which other hosts may reach that host.
#[must_use]
pub fn addresses(uri: &str) -> Vec<IpAddr> {
    let is_elsewhere = |ip: &IpAddr| match ip {
        IpAddr::V4(ip) => !ip.is_loopback(),
        // A link-local address needs an interface, which the URI does not name.
        IpAddr::V6(ip) => !ip.is_loopback() && !ip.is_unicast_link_local(),
    };
    let places = uri.split(';').skip(1).filter_map(|part| part.split_once("://"));
    let lists = places.filter_map(|(_, place)| place.rsplit_once(':')).map(|(list, _)| list);
    let all = lists
        .flat_map(|list| list.split(','))
        .filter_map(|address| address.trim_start_matches('[').trim_end_matches(']').parse().ok());
    all.filter(is_elsewhere).take(ADDRESSES_MAX).collect()
}

pub(super) fn is_slurm_step(vars: &Vars<'_>) -> bool {
    let step = slurm_step(vars).and_then(|step| step.parse::<u32>().ok());
    vars.has("SLURM_PROCID") && step.is_some_and(|step| step < SPECIAL_STEPS)
}

/// Reads `SLURM_PROCID`, `SLURM_NTASKS`, the node list, job and step. Rank 0 is on the first node
/// in all of Slurm's own distributions. For an arbitrary distribution, `MASTER_ADDR` overrides
/// this.
pub(super) fn slurm(vars: &Vars<'_>) -> Result<Identity, DiscoverError> {
    let need = Need { launcher: Launcher::Slurm, because: "SLURM_PROCID", vars };
    let rank = need.rank("SLURM_PROCID")?;
    let size = slurm_tasks(vars)?.ok_or_else(|| need.unset("SLURM_NTASKS", ""))?;
    let job = need.text("SLURM_JOB_ID", "")?;
    let step = slurm_step(vars).unwrap_or_default();
    let (named_by, host) = match vars.get("MASTER_ADDR") {
        Some(host) => ("MASTER_ADDR", host),
        None => first_node(&need)?,
    };
    let job = format!("slurm:{job}.{step}");
    let ports = match vars.number("MASTER_PORT")? {
        Some(port) => ports_from(port, 0),
        None => ports_of(&job),
    };
    let rendezvous = Rendezvous::Ports { hosts: vec![host], named_by, ports };
    let (launcher, secret_source) = (Launcher::Slurm, SecretSource::None);
    Ok(Identity { rank, size, job, rendezvous, launcher, secret_source })
}

pub(super) fn slurm_tasks(vars: &Vars<'_>) -> Result<Option<usize>, DiscoverError> {
    Ok(vars.number("SLURM_STEP_NUM_TASKS")?.or(vars.number("SLURM_NTASKS")?))
}

fn slurm_step(vars: &Vars<'_>) -> Option<String> {
    vars.get("SLURM_STEP_ID").or_else(|| vars.get("SLURM_STEPID"))
}

/// The first node of Slurm's list, and the variable that holds it.
fn first_node(need: &Need<'_>) -> Result<(&'static str, String), DiscoverError> {
    let names = ["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST"];
    let found = names.into_iter().find_map(|name| Some((name, need.vars.get(name)?)));
    let Some((variable, value)) = found else {
        return Err(need.unset("SLURM_STEP_NODELIST", " to the list of nodes, as srun does"));
    };
    let hosts = expand_hosts(&value, limits::RANKS_MAX);
    let hosts = hosts.map_err(|source| DiscoverError::HostList { variable, value, source })?;
    let host = match hosts.as_slice() {
        [] | [_] => loopback().to_string(),
        [first, ..] => first.clone(),
    };
    Ok((variable, host))
}

/// The candidate ports from `port` on, without the first `skipped` ones.
fn ports_from(port: u16, skipped: u16) -> Vec<u16> {
    (skipped..CANDIDATES).filter_map(|i| port.checked_add(i)).collect()
}

/// The candidate ports for a job's name. Two jobs rarely have the same first one.
fn ports_of(job: &str) -> Vec<u16> {
    let span = u64::from((PORTS.end - PORTS.start) / CANDIDATES);
    let slot = u16::try_from(Digest::of(job) % span).unwrap_or(0);
    ports_from(PORTS.start + slot * CANDIDATES, 0)
}

/// Looks up variables that a launcher must have set.
struct Need<'a> {
    launcher: Launcher,
    because: &'static str,
    vars: &'a Vars<'a>,
}

impl Need<'_> {
    fn number<T: Number>(&self, name: &'static str) -> Result<T, DiscoverError> {
        self.vars.number(name)?.ok_or_else(|| self.unset(name, ""))
    }

    fn rank(&self, name: &'static str) -> Result<Rank, DiscoverError> {
        self.number(name).map(Rank)
    }

    fn text(&self, name: &'static str, hint: &'static str) -> Result<String, DiscoverError> {
        self.vars.get(name).ok_or_else(|| self.unset(name, hint))
    }

    const fn unset(&self, missing: &'static str, hint: &'static str) -> DiscoverError {
        let (launcher, because) = (self.launcher, self.because);
        DiscoverError::Unset { launcher, because, missing, hint }
    }
}
