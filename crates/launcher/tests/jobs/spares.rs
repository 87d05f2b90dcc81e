//! Ranks that start again on spare hosts, and spare hosts that do not take any.

use std::os::unix::process::ExitStatusExt as _;
use std::process::Command;

use crate::support::{children, ringrun};
use ringfold_harness::{Folder, Job, Outcome, kill};
use rustix::process::Signal;

/// Agents that play the hosts `a`, `b` and so on here, and ranks that run until they may end.
struct Hosts {
    folder: Folder,
}

impl Hosts {
    /// Each host finds programs in a folder of its own too. `host` is a line of shell that each of
    /// them runs first.
    fn new(host: &str) -> Self {
        let folder = Folder::new();
        let agent = format!(
            "#!/bin/sh\nPLAYED=$1; export PLAYED; shift\n{host}\n\
             PATH=$(dirname $0)/$PLAYED:$PATH; exec \"$@\"\n"
        );
        let rank = "#!/bin/sh
            echo $RINGFOLD_RANK $PLAYED ${RINGFOLD_NEWCOMER:-0} $RINGFOLD_LOCAL_RANK \
                $RINGFOLD_LOCAL_SIZE $$
            until [ -e $1/end ]; do sleep 0.05; done\n";
        for name in ["a", "b", "c", "d"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
            folder.program(&format!("{name}/rank"), rank);
        }
        folder.program("agent", &agent);
        Self { folder }
    }

    /// `ringrun ARGS`, and ranks on these hosts.
    fn command(&self, args: &[&str]) -> Command {
        let agent = self.folder.at("agent");
        let ours = ["--agent", &agent, "--rendezvous-addr", "127.0.0.1"];
        let folder = self.folder.path().to_str().unwrap();
        ringrun(&[&ours[..], args, &["rank", folder]].concat())
    }

    /// Lets the ranks end, and returns the outcome.
    fn end(&self, job: Job) -> Outcome {
        std::fs::write(self.folder.path().join("end"), "").unwrap();
        job.outcome()
    }
}

/// The next lines of new ranks in order, without their processes, and these.
fn started(job: &Job, count: usize) -> (Vec<String>, Vec<u32>) {
    let mut lines = job.lines(count);
    lines.sort();
    let parts = lines.iter().map(|line| line.rsplit_once(' ').unwrap());
    parts.map(|(line, pid)| (line.to_owned(), pid.parse::<u32>().unwrap())).unzip()
}

#[test]
fn the_ranks_of_a_lost_host_start_again_on_spare_hosts() {
    let hosts = Hosts::new("");
    let args = ["--host", "a,b:3", "--spare", "c,d:4", "--restart", "2"];
    let job = Job::start(&mut hosts.command(&args));
    let (lines, _) = started(&job, 4);
    assert_eq!(lines, ["0 a 0 0 1", "1 b 0 0 3", "2 b 0 1 3", "3 b 0 2 3"]);
    // The agents of the spare hosts are the first.
    let agents = children(job.id());
    kill(agents[3], Signal::KILL);
    let (lines, pids) = started(&job, 3);
    assert_eq!(lines, ["1 c 1 0 1", "2 d 1 0 4", "3 d 1 1 4"]);
    // One that fails there starts again there, until its host is lost too.
    kill(pids[1], Signal::KILL);
    assert_eq!(started(&job, 1).0, ["2 d 1 0 4"]);
    kill(agents[0], Signal::KILL);
    assert_eq!(started(&job, 1).0, ["1 d 1 2 4"]);
    let done = hosts.end(job);
    assert_eq!(done.code(), 0, "{done:?}");
    for words in [
        "ringrun: host b is lost: ringrun there ended",
        "ringrun: rank 3 is lost with its host, and starts again in 0.1 s on host d (1 of 2 times)",
        "ringrun: rank 2 was killed by signal 9, and starts again in 0.2 s (2 of 2 times)",
        "the job has ended well; started again: rank 1 (2 times), rank 2 (2 times), rank 3\n",
    ] {
        assert!(done.stderr.contains(words), "{words}: {done:?}");
    }
}

#[test]
fn a_rank_that_its_host_cannot_start_again_starts_on_a_spare_one() {
    let hosts = Hosts::new("");
    let args = ["--host", "a,b", "--spare", "c", "--restart", "3"];
    let job = Job::start(&mut hosts.command(&args));
    let (_, pids) = started(&job, 2);
    std::fs::remove_file(hosts.folder.path().join("b/rank")).unwrap();
    kill(pids[1], Signal::KILL);
    assert_eq!(started(&job, 1).0, ["1 c 1 0 1"]);
    let done = hosts.end(job);
    assert_eq!(done.code(), 0, "{done:?}");
    let words = "rank 1 cannot start on host b (program 'rank' not found), and starts again in \
                 0.2 s on host c (2 of 3 times)";
    assert!(done.stderr.contains(words), "{done:?}");
}

#[test]
fn spare_hosts_that_are_of_no_use_are_named_before_any_rank_starts() {
    let hosts = Hosts::new("[ $PLAYED = d ] && { echo no route to d; exit 7; }");
    let refused = |args: &[&str], words: &[&str]| {
        let job = Job::start(&mut hosts.command(args));
        let done = job.outcome();
        assert_eq!((done.code(), &*done.stdout), (125, ""), "{done:?}");
        for words in words {
            assert!(done.last_line().contains(words), "{words}: {done:?}");
        }
    };
    let without = "--spare c: no process would ever start there: pass --restart N";
    refused(&["--host", "a", "--spare", "c"], &[without]);
    refused(&["--host", "a", "--spare", "c", "--restart", "0"], &[without]);
    let twice = ["--host", "a:2,b", "-n", "1", "--restart", "1", "--spare", "c,b"];
    refused(&twice, &["--spare b: this host is one of those for the ranks at the start: name it"]);
    refused(&["--restart", "1", "--spare", "localhost"], &[": this host is one of those"]);
    refused(
        &["--restart", "1", "--spare", "c,-x"],
        &["--spare c,-x: host 2", "'-x' is not a host"],
    );
    refused(&["--restart", "1", "--spare", "c:0"], &["--spare c:0: ", "'0' is not a number of"]);
    let unknown = ["--host", "a", "--restart", "1", "--spare", "c,d"];
    refused(
        &unknown,
        &["--spare d: no rank can start there: '", "(exit status: 7) after: no route"],
    );
    let folder = ["--host", "a", "--restart", "1", "--spare", "c", "--wdir", "/no/such"];
    refused(&folder, &["--spare c: ", "working directory '/no/such' does not exist; create it"]);
}

#[test]
fn a_job_that_waits_for_a_spare_host_can_be_stopped() {
    let hosts = Hosts::new("[ $PLAYED = d ] && { echo $$ >$0.d; exec sleep 1000; }");
    let args = ["--host", "a", "--restart", "1", "--spare", "d"];
    let done = Job::start(&mut hosts.command(&[&["--timeout", "0.5"], &args[..]].concat()));
    let done = done.outcome();
    assert_eq!((done.code(), &*done.stdout), (124, ""), "{done:?}");
    let file = hosts.folder.path().join("agent.d");
    std::fs::remove_file(&file).unwrap();
    let job = Job::start(&mut hosts.command(&args));
    while !file.exists() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    job.signal(Signal::INT);
    let done = job.outcome();
    assert_eq!((done.code(), &*done.stdout, done.status.signal()), (130, "", None), "{done:?}");
}
