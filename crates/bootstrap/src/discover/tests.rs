//! Tests each launcher's variables, as it sets them, and the errors when one is missing.

use std::collections::BTreeMap;
use std::os::fd::AsRawFd;
use std::os::unix::net::UnixStream;

use ringfold_types::Rank;

use super::*;
use crate::discover::identity::SecretSource;
use crate::discover::secret::Secret;

fn found(vars: &[(&str, &str)]) -> Result<Identity, DiscoverError> {
    let map: BTreeMap<&str, &str> = vars.iter().copied().collect();
    discover(&|name| map.get(name).map(|v| (*v).to_owned()))
}

#[test]
fn where_ranks_on_one_host_are_reached() {
    assert!(found(&OPEN_MPI).unwrap().source().is_loopback());
    assert!(found(&[]).unwrap().source().is_loopback());
    let ringrun = [
        ("RINGFOLD_RANK", "0"),
        ("RINGFOLD_SIZE", "2"),
        ("RINGFOLD_JOB", "j"),
        ("RINGFOLD_RENDEZVOUS", "127.0.0.1:9"),
    ];
    assert!(found(&ringrun).unwrap().source().is_loopback());
}

#[test]
fn a_launcher_of_ranks_learns_that_it_is_a_rank() {
    let by = |vars: &[(&str, &str)]| {
        let map: BTreeMap<&str, &str> = vars.iter().copied().collect();
        started_as_rank(&|name| map.get(name).map(|v| (*v).to_owned()))
    };
    assert_eq!(by(&[("HOME", "/root")]), None);
    assert_eq!(by(&TORCHRUN), Some("TORCHELASTIC_RUN_ID"));
    assert_eq!(by(&OPEN_MPI), Some("OMPI_COMM_WORLD_RANK"));
    assert_eq!(by(&[("PMI_FD", "5")]), Some("PMI_FD"));
    assert_eq!(by(&SLURM), Some("SLURM_PROCID"));
    // A batch script and a step of one task are no ranks among others.
    let batch: Vec<_> = SLURM.into_iter().filter(|(n, _)| *n != "SLURM_STEP_ID").collect();
    assert_eq!(by(&batch), None);
    assert_eq!(by(&[&SLURM[..], &[("SLURM_STEP_NUM_TASKS", "1")]].concat()), None);
}

fn place(identity: &Identity) -> (String, Vec<u16>) {
    match &identity.rendezvous {
        Rendezvous::Ports { hosts, ports, .. } => (hosts.join(" "), ports.clone()),
        other => panic!("{other:?}"),
    }
}

const TORCHRUN: [(&str, &str); 7] = [
    ("RANK", "2"),
    ("WORLD_SIZE", "4"),
    ("MASTER_ADDR", "node7"),
    ("MASTER_PORT", "29500"),
    ("TORCHELASTIC_RUN_ID", "none"),
    ("TORCHELASTIC_RESTART_COUNT", "0"),
    ("TORCHELASTIC_USE_AGENT_STORE", "True"),
];

const SLURM: [(&str, &str); 6] = [
    ("SLURM_PROCID", "3"),
    ("SLURM_NTASKS", "8"),
    ("SLURM_JOB_ID", "77"),
    ("SLURM_STEP_ID", "0"),
    ("SLURM_JOB_NODELIST", "a[1-9]"),
    ("SLURM_STEP_NODELIST", "a[2-4]"),
];

const OPEN_MPI: [(&str, &str); 4] = [
    ("OMPI_COMM_WORLD_RANK", "1"),
    ("OMPI_COMM_WORLD_SIZE", "2"),
    ("OMPI_COMM_WORLD_LOCAL_SIZE", "2"),
    ("PMIX_NAMESPACE", "prterun-h-12@1"),
];

#[test]
fn nothing_set_is_alone() {
    let me = found(&[]).unwrap();
    assert_eq!((me.rank, me.size, me.launcher), (Rank(0), 1, Launcher::Alone));
    assert!(matches!(me.rendezvous, Rendezvous::Alone));
}

#[test]
fn ringrun() {
    let vars = [
        ("RINGFOLD_RANK", "1"),
        ("RINGFOLD_SIZE", "3"),
        ("RINGFOLD_JOB", "j"),
        ("RINGFOLD_RENDEZVOUS", "10.0.0.1:99"),
    ];
    let me = found(&[&vars[..], &TORCHRUN, &SLURM].concat()).unwrap();
    assert_eq!((me.rank, me.size, me.job.as_str()), (Rank(1), 3, "j"));
    assert!(matches!(me.rendezvous, Rendezvous::Ask { address } if address == "10.0.0.1:99"));
    for missing in 1..vars.len() {
        let mut fewer = vars.to_vec();
        let (name, _) = fewer.remove(missing);
        let error = found(&fewer).unwrap_err().to_string();
        assert!(error.contains(&format!("{name} is not set")), "{error}");
    }
}

#[test]
fn torchrun_with_and_without_its_store() {
    let me = found(&TORCHRUN).unwrap();
    assert_eq!((me.rank, me.size, me.launcher), (Rank(2), 4, Launcher::Torchrun));
    assert_eq!(place(&me), ("node7".into(), (29501..29516).collect()));
    let SecretSource::TorchStore(store) = &me.secret_source else { panic!("{me:?}") };
    assert_eq!((store.host.as_str(), store.port), ("node7", 29500));
    let me = found(&TORCHRUN[..4]).unwrap();
    assert_eq!(place(&me), ("node7".into(), (29500..29516).collect()));
    assert!(matches!(me.secret_source, SecretSource::None));
    for missing in 0..4 {
        let mut fewer = TORCHRUN.to_vec();
        let (name, _) = fewer.remove(missing);
        let error = found(&fewer).unwrap_err().to_string();
        assert!(error.contains(&format!("{name} is not set")), "{error}");
    }
}

#[test]
fn a_slurm_step_and_a_batch_script() {
    let me = found(&SLURM).unwrap();
    assert_eq!((me.rank, me.size, me.launcher), (Rank(3), 8, Launcher::Slurm));
    let (host, ports) = place(&me);
    assert_eq!(host, "a2");
    assert!(ports.iter().all(|p| (20_000..32_000).contains(p)), "{ports:?}");
    let again = found(&SLURM).unwrap();
    assert_eq!((place(&again).1, again.job), (ports, me.job));

    // A batch script is no step, and the batch, extern and interactive steps are not ours.
    let batch: Vec<_> = SLURM.into_iter().filter(|(n, _)| *n != "SLURM_STEP_ID").collect();
    assert_eq!(found(&batch).unwrap().launcher, Launcher::Alone);
    let special = [&batch[..], &[("SLURM_STEPID", "4294967291")]].concat();
    assert_eq!(found(&special).unwrap().launcher, Launcher::Alone);

    let one_node = [&SLURM[..5], &[("SLURM_STEP_NODELIST", "a3")]].concat();
    assert_eq!(place(&found(&one_node).unwrap()).0, "127.0.0.1");
    let bad = [&SLURM[..5], &[("SLURM_STEP_NODELIST", "a[3")]].concat();
    assert!(matches!(found(&bad), Err(DiscoverError::HostList { .. })));
}

#[test]
fn open_mpi_wins_over_the_allocation_it_runs_in() {
    let me = found(&[&OPEN_MPI[..], &SLURM].concat()).unwrap();
    assert_eq!((me.rank, me.size, me.launcher), (Rank(1), 2, Launcher::OpenMpi));
    assert_eq!(place(&me).0, "127.0.0.1");
    let two_hosts = [&OPEN_MPI[..2], &OPEN_MPI[3..]].concat();
    let error = found(&two_hosts).unwrap_err().to_string();
    assert!(error.contains("MASTER_ADDR is not set: set it to the host of rank 0"), "{error}");
    assert!(error.contains("mpirun -x MASTER_ADDR="), "{error}");
    let error = found(&OPEN_MPI[..3]).unwrap_err().to_string();
    assert!(error.contains("MASTER_PORT is not set"), "{error}");
    let elastic = [&OPEN_MPI[..], &TORCHRUN].concat();
    assert_eq!(found(&elastic).unwrap().launcher, Launcher::Torchrun);
}

const MPIRUN_KEY: &str = "15ae03f5c5e6a9b1-09c1d2e3f4a5b6c7";

#[test]
fn open_mpi_s_key_is_a_secret_only_if_mpirun_made_it() {
    let secret_source = |key, mpirun: &[(&'static str, &'static str)]| {
        let key = ("OMPI_MCA_orte_precondition_transports", key);
        found(&[&OPEN_MPI[..], &[key], mpirun].concat()).unwrap().secret_source
    };
    let mpirun = [("OMPI_MCA_orte_hnp_uri", "9.0;tcp://10.0.0.1:5")];
    assert!(matches!(secret_source(MPIRUN_KEY, &mpirun), SecretSource::Known(_)));
    // Here another launcher started the ranks.
    assert!(matches!(secret_source(MPIRUN_KEY, &[]), SecretSource::None));
    for key in [
        "000000000000002a-15ae03f5c5e6a9b1",
        "15ae03f5c5e6a9b1-00000000ffffffff",
        "15ae03f5c5e6a9b1",
        "15ae03f5c5e6a9b1-15ae03f5c5e6a9b",
        "15ae03f5c5e6a9b1-+5ae03f5c5e6a9b1",
        "15ae03f5c5e6a9b1-15ae03f5c5e6a9b1-15ae03f5c5e6a9b1",
        "-",
    ] {
        assert!(matches!(secret_source(key, &mpirun), SecretSource::None), "{key}");
    }
}

#[test]
fn open_mpi_on_several_hosts_says_where_mpirun_is() {
    const URI: &str = "9.0;tcp://10.0.0.1,172.17.0.1:5;tcp6://[fd00::1],[fe80::1]:6";
    let vars = |rank, daemon| {
        let mpirun = ("OMPI_MCA_orte_hnp_uri", URI);
        let key = ("OMPI_MCA_orte_precondition_transports", MPIRUN_KEY);
        let daemon = ("OMPI_MCA_orte_local_daemon_uri", daemon);
        let rank = ("OMPI_COMM_WORLD_RANK", rank);
        [&[rank, mpirun, daemon, key], &OPEN_MPI[1..2], &OPEN_MPI[3..]].concat()
    };
    let (same, other) = (URI.replace("9.0", "9.1"), "9.2;tcp://10.0.0.2,172.17.0.1:7");
    for (rank, daemon) in [("0", same.as_str()), ("1", &same), ("1", other)] {
        let mut me = found(&vars(rank, daemon)).unwrap();
        let Rendezvous::Ports { named_by, .. } = me.rendezvous else { panic!("{me:?}") };
        assert_eq!(named_by, "OMPI_MCA_orte_hnp_uri");
        assert_eq!(place(&me).0, "10.0.0.1 172.17.0.1 fd00::1");
        let secret = me.secret(&|_| None, std::time::Duration::ZERO).unwrap();
        assert_eq!(secret, Secret::of_key(MPIRUN_KEY));
    }
    let error = found(&vars("0", other)).unwrap_err().to_string();
    assert!(error.ends_with("mpirun -x MASTER_ADDR=10.0.0.2 ..."), "{error}");
    let named = [&vars("0", other)[..], &[("MASTER_ADDR", "node9")]].concat();
    assert_eq!(place(&found(&named).unwrap()).0, "node9");
}

#[test]
fn hydra_speaks_on_an_inherited_socket() {
    let (ours, theirs) = UnixStream::pair().unwrap();
    let server = pmi::tests::launcher(theirs, &pmi::tests::OPENING);
    let fd = ours.as_raw_fd().to_string();
    let vars = [("PMI_FD", fd.as_str()), ("PMI_RANK", "1"), ("PMI_SIZE", "2")];
    let me = found(&[&vars[..], &SLURM].concat()).unwrap();
    assert_eq!((me.rank, me.size, me.job.as_str()), (Rank(1), 2, "pmi:kvs_77_0"));
    assert!(matches!(me.rendezvous, Rendezvous::Kvs(_)));
    server.join().unwrap();
    let closed = [("PMI_FD", "987654"), ("PMI_RANK", "1"), ("PMI_SIZE", "2")];
    assert!(matches!(found(&closed), Err(DiscoverError::Socket { fd: 987_654, .. })));
    let pmi2 = [("PMI_FD", "3"), ("PMI_JOBID", "77.0"), ("PMI_RANK", "3"), ("PMI_SIZE", "8")];
    assert_eq!(found(&[&pmi2[..], &SLURM].concat()).unwrap().launcher, Launcher::Slurm);
}

#[test]
fn the_only_rank_takes_leave_of_hydra() {
    use pmi::tests::{OPENING, launcher};
    const SCRIPT: [(&str, &str); 5] =
        [OPENING[0], OPENING[1], OPENING[2], OPENING[3], ("cmd=finalize", "cmd=finalize_ack\n")];
    let (ours, theirs) = UnixStream::pair().unwrap();
    let server = launcher(theirs, &SCRIPT);
    let fd = ours.as_raw_fd().to_string();
    let me = found(&[("PMI_FD", &fd), ("PMI_RANK", "0"), ("PMI_SIZE", "1")]).unwrap();
    assert!(matches!(me.rendezvous, Rendezvous::Alone));
    drop(ours);
    server.join().unwrap();
}

#[test]
fn invalid_values_are_refused() {
    for (name, value, expected) in [
        ("RANK", "two", "a rank from 0 to 65535"),
        ("RANK", "99999999999", "a rank from 0 to 65535"),
        ("WORLD_SIZE", "-1", "a number of ranks from 1 to 65536"),
        ("MASTER_PORT", "70000", "a port from 1 to 65535"),
        ("MASTER_PORT", "0", "a port from 1 to 65535"),
    ] {
        let mut vars: BTreeMap<_, _> = TORCHRUN.into_iter().collect();
        vars.insert(name, value);
        let vars: Vec<_> = vars.into_iter().collect();
        let error = found(&vars).unwrap_err().to_string();
        assert_eq!(error, format!("{name}={value:?} is not {expected}"));
    }
    let error = found(&[("RANK", "4"), ("WORLD_SIZE", "4"), TORCHRUN[2], TORCHRUN[3]]).unwrap_err();
    assert!(error.to_string().contains("rank 4 of 4"), "{error}");
}
