//! Slurm on this machine: its three daemons on loopback, with their own configuration.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ringfold_harness::{Folder, needed};
use rustix::process::{Pid, Signal, kill_process};

const PROGRAMS: &[&str] =
    &["munged", "slurmctld", "slurmd", "srun", "salloc", "sinfo", "squeue", "scancel", "scontrol"];

/// The deadline of each step of start and stop.
const DEADLINE: Duration = Duration::from_secs(60);

/// A cluster of one node with a configured number of 4 CPUs. Dropping it stops it.
pub(crate) struct Slurm {
    daemons: Vec<Daemon>,
    folder: Folder,
}

/// A daemon. Dropping it stops it.
struct Daemon(Child);

impl Slurm {
    /// Starts the daemons. Returns `None` without the permission or the programs.
    ///
    /// # Panics
    /// If a daemon does not start. The message has the daemons' logs.
    pub(crate) fn start() -> Option<Self> {
        if !needed::is_root("slurm") || !needed::are_there("slurm", PROGRAMS) {
            return None;
        }
        let mut this = Self { daemons: Vec::new(), folder: Folder::new() };
        let at = |name: &str| this.folder.at(name);
        fs::create_dir(at("spool")).unwrap();
        fs::create_dir(at("state")).unwrap();
        write_key(Path::new(&at("munge.key")));
        fs::write(at("slurm.conf"), configuration(this.folder.path())).unwrap();
        let munged = [
            "--foreground".to_owned(),
            format!("--key-file={}", at("munge.key")),
            format!("--socket={}", at("munge.socket")),
            format!("--pid-file={}", at("munged.pid")),
            format!("--log-file={}", at("munged.log")),
            format!("--seed-file={}", at("munge.seed")),
        ];
        let socket = at("munge.socket");
        let foreground = ["-D".to_owned()];
        this.daemon("munged", &munged);
        this.wait("munged's socket", || Path::new(&socket).exists());
        this.daemon("slurmctld", &foreground);
        this.wait("slurmctld", || this.answer("scontrol", &["ping"]).contains(" is UP"));
        this.daemon("slurmd", &foreground);
        this.wait("an idle node", || this.answer("sinfo", &["-h", "-o", "%t"]).trim() == "idle");
        Some(this)
    }

    /// Returns a command with this cluster's configuration.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command.env("SLURM_CONF", self.folder.path().join("slurm.conf"));
        command
    }

    fn daemon(&mut self, program: &str, args: &[String]) {
        let log = File::create(self.folder.path().join(format!("{program}.out"))).unwrap();
        // The kernel ends the daemon if this test is killed.
        let mut command = self.command("setpriv");
        command.args(["--pdeathsig", "TERM", "--", program]).args(args).stdin(Stdio::null());
        command.stdout(log.try_clone().unwrap()).stderr(log);
        self.daemons.push(Daemon(command.spawn().unwrap()));
    }

    fn wait(&self, what: &str, is_there: impl Fn() -> bool) {
        if !within_deadline(is_there) {
            panic!("no {what} within {DEADLINE:?}\n{}", self.logs());
        }
    }

    fn answer(&self, program: &str, args: &[&str]) -> String {
        let output = self.command(program).args(args).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn logs(&self) -> String {
        let log = |name: &str| fs::read_to_string(self.folder.path().join(name));
        let names = ["munged.out", "slurmctld.out", "slurmd.out"];
        names.iter().map(|name| format!("{name}:\n{}\n", log(name).unwrap_or_default())).collect()
    }
}

impl Drop for Slurm {
    fn drop(&mut self) {
        // slurmd would leave the ranks of a failed test behind.
        if self.daemons.len() == 3 && !self.answer("squeue", &["-h"]).is_empty() {
            self.command("scancel").arg("--user=root").status().ok();
            within_deadline(|| self.answer("squeue", &["-h"]).is_empty());
        }
        while let Some(daemon) = self.daemons.pop() {
            drop(daemon);
        }
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let pid = i32::try_from(self.0.id()).ok().and_then(Pid::from_raw);
        if let Some(pid) = pid {
            kill_process(pid, Signal::TERM).ok();
        }
        if !within_deadline(|| self.has_ended()) {
            self.0.kill().ok();
            self.0.wait().ok();
        }
    }
}

impl Daemon {
    fn has_ended(&mut self) -> bool {
        !matches!(self.0.try_wait(), Ok(None))
    }
}

fn within_deadline(mut is_so: impl FnMut() -> bool) -> bool {
    let until = Instant::now() + DEADLINE;
    while !is_so() {
        if Instant::now() > until {
            return false;
        }
        thread::sleep(Duration::from_millis(50));
    }
    true
}

/// Writes the secret of munge's daemon and its clients.
fn write_key(path: &Path) {
    let mut key = [0; 128];
    std::io::Read::read_exact(&mut File::open("/dev/urandom").unwrap(), &mut key).unwrap();
    let mut options = OpenOptions::new();
    let mut file = options.write(true).create_new(true).mode(0o600).open(path).unwrap();
    file.write_all(&key).unwrap();
}

fn configuration(place: &Path) -> String {
    let name = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    let name = name.trim().split('.').next().unwrap();
    let place = place.display();
    // Both listeners exist until both ports are known, so the ports differ.
    let free = || TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let (control, node) = (free(), free());
    let port = |listener: &TcpListener| listener.local_addr().unwrap().port();
    let (control, node) = (port(&control), port(&node));
    format!(
        "ClusterName=ringfold
SlurmctldHost={name}(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={place}/munge.socket
CommunicationParameters=NoInAddrAny,NoCtldInAddrAny
SlurmctldPort={control}
SlurmdPort={node}
SlurmctldPidFile={place}/slurmctld.pid
SlurmdPidFile={place}/slurmd.pid
SlurmdSpoolDir={place}/spool
StateSaveLocation={place}/state
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
ReturnToService=2
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
NodeName={name} NodeAddr=127.0.0.1 CPUs=4 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=5 State=UP
"
    )
}
