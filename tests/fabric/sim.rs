//! `ibsim` with a subnet manager, and the tools of infiniband-diags on it.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use ringfold_harness::{Folder, needed};

use crate::model::{Model, Port, Start};

/// The preloaded library that connects a program to `ibsim` in place of a device.
const LIBRARY: &str = "/usr/lib/x86_64-linux-gnu/umad2sim/libumad2sim.so";

/// The deadline of each step.
const DEADLINE: Duration = Duration::from_secs(60);

/// Returns whether the machine has the programs.
pub(crate) fn is_there() -> bool {
    let programs = ["ibsim", "opensm", "ibnetdiscover", "iblinkinfo", "timeout"];
    needed::are_there("ibsim", &programs)
        && (Path::new(LIBRARY).exists() || needed::skipped("ibsim", LIBRARY))
}

/// A simulated fabric. Dropping it ends the simulator.
pub(crate) struct Sim {
    child: Child,
    console: ChildStdin,
    folder: Folder,
    name: String,
}

impl Sim {
    pub(crate) fn start(model: &Model) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let name = format!("ringfold-{}-{count}", std::process::id());
        let folder = Folder::new();
        let net = folder.file("net", model.net());
        let log = folder.path().join("log");
        let mut child = Command::new("timeout")
            .args(["300", "ibsim", "-s", "-N", "2048", "-S", "512", "-P", "65536"])
            .arg(net)
            .env("IBSIM_SOCKNAME", &name)
            .stdin(Stdio::piped())
            .stdout(File::create(&log).unwrap())
            .stderr(File::create(folder.path().join("errors")).unwrap())
            .spawn()
            .unwrap();
        let console = child.stdin.take().unwrap();
        let this = Self { child, console, folder, name };
        let start = Instant::now();
        while !fs::read_to_string(&log).unwrap_or_default().contains("ready") {
            assert!(start.elapsed() < DEADLINE, "{}", this.said());
            thread::sleep(Duration::from_millis(20));
        }
        this
    }

    /// Assigns LIDs in the subnet of `start`.
    pub(crate) fn manage(&self, start: &Start) {
        let log = self.folder.path().join("opensm.log");
        let log = log.display().to_string();
        self.run(start, &["opensm", "-o", "-f", &log]);
    }

    /// Pulls the cable at a switch's port.
    pub(crate) fn pull(&mut self, (switch, number): &Port) {
        writeln!(self.console, "Unlink \"{switch}\"[{number}]").unwrap();
        self.console.flush().unwrap();
    }

    /// Runs a program at `start` and returns its output.
    ///
    /// # Panics
    /// If it fails or takes too long.
    pub(crate) fn run(&self, start: &Start, command: &[&str]) -> String {
        let output = Command::new("timeout")
            .arg("60")
            .args(command)
            .env("LD_PRELOAD", LIBRARY)
            .env("IBSIM_SOCKNAME", &self.name)
            .env("SIM_HOST", &start.node)
            .env("OSM_CACHE_DIR", self.folder.path())
            .env("OSM_TMP_DIR", self.folder.path())
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{command:?} at {start:?}: {stderr}\n{}", self.said());
        String::from_utf8(output.stdout).unwrap()
    }

    fn said(&self) -> String {
        let read = |name| fs::read_to_string(self.folder.path().join(name)).unwrap_or_default();
        format!("{}\n{}", read("log"), read("errors"))
    }
}

impl Drop for Sim {
    fn drop(&mut self) {
        // The simulator ends with its console. `timeout` forwards the signal.
        writeln!(self.console, "quit").ok();
        let pid = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw);
        pid.map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::TERM));
        self.child.wait().ok();
    }
}
