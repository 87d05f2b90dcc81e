//! Other hosts, simulated by this one: through a fake agent, and as network namespaces.

use std::io::Write;
use std::process::{Command, Stdio};

use crate::support::{assert_ended, assert_gone, children, mark, ringrun, run};
use ringfold_harness::{Folder, Job, Namespaces, Outcome, kill};
use rustix::process::Signal;

/// A folder with a program.
struct Script {
    _folder: Folder,
    path: String,
}

impl Script {
    fn new(text: &str) -> Self {
        let folder = Folder::new();
        let path = folder.program("script", text);
        Self { _folder: folder, path }
    }

    /// Makes an agent that greets like a login shell, then runs the command here.
    fn agent() -> Self {
        let text = "#!/bin/sh\nPLAYED=$1; export PLAYED; shift\n\
                    echo \"Welcome to $PLAYED, last login never\"\nexec \"$@\"\n";
        Self::new(text)
    }

    fn path(&self) -> &str {
        &self.path
    }
}

/// Runs `ringrun --agent AGENT --rendezvous-addr 127.0.0.1 ARGS`.
fn run_on(agent: &Script, args: &[&str]) -> Outcome {
    let ours = ["--agent", agent.path(), "--rendezvous-addr", "127.0.0.1"];
    run(&[&ours[..], args].concat())
}

#[test]
fn ranks_run_where_they_were_placed() {
    let agent = Script::agent();
    let script = "echo $RINGFOLD_RANK ${PLAYED:-here} $RINGFOLD_LOCAL_RANK $RINGFOLD_LOCAL_SIZE";
    let done = run_on(&agent, &["--host", "a:2,localhost,b:2", "sh", "-c", script]);
    assert_eq!(done.lines(), ["0 a 0 2", "1 a 1 2", "2 here 0 1", "3 b 0 2", "4 b 1 2"]);
    assert_eq!((done.code(), done.stderr.as_str()), (0, ""));

    let file = Script::new("# two\na slots=1\nb:4 # more\n");
    let args = ["-n", "3", "--hostfile", file.path(), "sh", "-c", script];
    let done = run_on(&agent, &args);
    assert_eq!(done.lines(), ["0 a 0 1", "1 b 0 2", "2 b 1 2"], "{}", done.stderr);
}

#[test]
fn input_reaches_rank_0_on_another_host() {
    let agent = Script::agent();
    let args = ["--agent", agent.path(), "--rendezvous-addr", "127.0.0.1", "--host", "a,b"];
    let mut command = ringrun(&[&args[..], &["--tag-output", "cat"]].concat());
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"one\ntwo\n").unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.stdout, b"[0] one\n[0] two\n");
}

#[test]
fn the_host_of_a_failure_is_named() {
    let agent = Script::agent();
    let mark = mark();
    let script = format!("[ $RINGFOLD_RANK = 3 ] && kill -9 $$; exec sleep {mark}");
    let args = ["--host", "a:2,b:2", "--grace", "0", "sh", "-c", &script];
    let done = run_on(&agent, &args);
    assert_eq!(done.code(), 137, "{done:?}");
    let line = done.last_line();
    assert!(line.starts_with("ringrun: rank 3 (pid ") && line.contains(", host b) was killed"));
    assert!(line.ends_with("; 3 others were stopped"), "{line}");
    assert_gone(&mark);
}

#[test]
fn a_host_without_the_program_stops_the_others() {
    let text = "#!/bin/sh\nPLAYED=$1; shift\n[ $PLAYED = b ] && PATH=/nowhere\nexec \"$@\"\n";
    let agent = Script::new(text);
    let mark = mark();
    let done = run_on(&agent, &["--host", "a,b", "sleep", &mark]);
    assert_eq!(done.code(), 127, "{done:?}");
    let line = done.last_line();
    assert!(line.contains("cannot start rank 1 on host b: program 'sleep' not found"), "{line}");
    assert_gone(&mark);
}

#[test]
fn agents_that_fail_are_quoted() {
    let text = "#!/bin/sh\necho \"no route to $1\"; [ $1 = a ] && exit 7; exec cat\n";
    let agent = Script::new(text);
    let done = run_on(&agent, &["--host", "a", "true"]);
    assert_eq!(done.code(), 125, "{done:?}");
    let line = done.last_line();
    assert!(line.contains("host a is lost: ") && line.contains("(exit status: 7)"), "{line}");
    assert!(line.contains("no route to a"), "{line}");

    let host = "no-such-host.invalid,localhost";
    let done = run(&["--agent", "/no/such/agent", "--host", host, "true"]);
    assert_eq!(done.code(), 125, "{done:?}");
    let line = done.last_line();
    assert!(line.contains("host no-such-host.invalid cannot be resolved ("), "{line}");
    let remedy =
        "(check its spelling; if only ssh knows the name, pass --rendezvous-addr ADDRESS): ";
    let (_, cause) = line.split_once(remedy).unwrap_or_else(|| panic!("{line}"));
    assert!(!cause.is_empty(), "{line}");
    let args = ["--rendezvous-addr", "127.0.0.1", "--host", "localhost,a", "sleep", "1000"];
    let done = run(&[&["--agent", "/no/such/agent"], &args[..]].concat());
    assert_eq!(done.code(), 125, "{done:?}");
    assert!(done.last_line().contains("cannot start '/no/such/agent' for host a"), "{done:?}");
}

#[test]
fn agents_that_send_invalid_data_are_ended_and_quoted() {
    // A greeting, then reports that no node agent of rank 1 sends.
    let reports = [
        ("\\004\\000\\000\\000\\003\\000\\000\\000", "reports on rank 0, which does not run"),
        ("\\001\\000\\000\\000\\002", "reports input that was not sent to it"),
        ("\\377\\377\\377\\377", "a message of 4294967295 bytes exceeds the limit"),
        ("\\001\\000\\000\\000\\177", "not a message: "),
    ];
    for (bytes, words) in reports {
        let text = format!(
            "#!/bin/sh\nprintf '\\n\\001ringfold node agent 5\\n{bytes}'; exec sleep 1000\n"
        );
        let agent = Script::new(&text);
        let done = run_on(&agent, &["--grace", "0", "--host", "localhost,b", "sleep", "1000"]);
        assert_eq!(done.code(), 125, "{done:?}");
        let line = done.last_line();
        assert!(line.starts_with("ringrun: host b is lost: ") && line.contains(words), "{line}");
    }
    // Text that would clear a terminal.
    let agent = Script::new("#!/bin/sh\nprintf 'no \\033[2J route'; exit 7\n");
    let done = run_on(&agent, &["--host", "b", "true"]);
    assert!(done.last_line().contains("after: no \\u{1b}[2J route"), "{done:?}");
}

#[test]
fn an_agent_that_never_answers_is_given_up() {
    let agent = Script::new("#!/bin/sh\nexec sleep 1000\n");
    let args = ["--grace", "0", "--host-timeout", "1", "--host", "localhost,b", "sleep", "1000"];
    let done = run_on(&agent, &args);
    assert_eq!(done.code(), 125, "{done:?}");
    let line = done.last_line();
    assert!(
        line.contains("host b is lost: no data from it") && line.contains("' for 1 s;"),
        "{line}"
    );
}

#[test]
fn many_hosts_need_no_more_files_than_a_shell_allows() {
    let agent = Script::agent();
    let hosts = (0..40).map(|at| format!("h{at}")).collect::<Vec<_>>().join(",");
    let script = "ulimit -Sn 64; exec \"$0\" --agent \"$1\" --rendezvous-addr 127.0.0.1 \
                  --host \"$2\" true";
    let mut command = Command::new("sh");
    command.args(["-c", script, env!("CARGO_BIN_EXE_ringrun"), agent.path(), &hosts]);
    let done = Outcome::of(&mut command);
    assert_eq!((done.code(), &*done.stderr), (0, ""));
}

#[test]
fn the_launcher_is_killed_and_so_is_every_host() {
    let agent = Script::agent();
    let mark = mark();
    let script = format!("setsid sleep {mark} & echo ready; wait");
    let args = ["--agent", agent.path(), "--rendezvous-addr", "127.0.0.1"];
    let args = [&args[..], &["--host", "a:2,b,localhost", "sh", "-c", &script]].concat();
    let mut job = Job::start(&mut ringrun(&args));
    job.lines(4);
    job.signal(Signal::KILL);
    assert_eq!(job.wait(), -9);
    assert_gone(&mark);
}

#[test]
fn a_lost_host_is_named() {
    let agent = Script::agent();
    let mark = mark();
    let script = format!("echo ready; exec sleep {mark}");
    let args = ["--agent", agent.path(), "--rendezvous-addr", "127.0.0.1", "--grace", "0"];
    let args = [&args[..], &["--host", "a,b", "sh", "-c", &script]].concat();
    let job = Job::start(&mut ringrun(&args));
    job.lines(2);
    kill(children(job.id())[1], Signal::KILL);
    let done = job.outcome();
    assert_eq!(done.code(), 125, "{done:?}");
    assert!(done.last_line().starts_with("ringrun: host b is lost: "), "{done:?}");
    assert_gone(&mark);
}

/// Two node agents of a job share this host, and one of them is killed.
#[test]
fn a_lost_host_leaves_the_others_their_grace() {
    let agent = Script::agent();
    let folder = Folder::new();
    let file = folder.path().join("end");
    let script = format!(
        "echo ready; until [ -e {} ]; do sleep 0.05; done; echo rank $RINGFOLD_RANK has ended",
        file.display()
    );
    let args = ["--agent", agent.path(), "--rendezvous-addr", "127.0.0.1", "--grace", "30"];
    let args = [&args[..], &["--host", "a,b", "sh", "-c", &script]].concat();
    let job = Job::start(&mut ringrun(&args));
    job.lines(2);
    // A stopped guardian leaves the end of the processes to the sentinel.
    let guardian = children(job.id())[0];
    let node_agent = children(guardian)[0];
    let rank_and_sentinel = children(node_agent);
    kill(guardian, Signal::STOP);
    kill(node_agent, Signal::KILL);
    assert_ended(&rank_and_sentinel);
    kill(guardian, Signal::CONT);
    std::fs::write(&file, "").unwrap();
    let done = job.outcome();
    assert_eq!((done.code(), &*done.stdout), (125, "ready\nready\nrank 1 has ended\n"), "{done:?}");
}

#[test]
fn ssh_is_the_default_agent() {
    // Like the real ssh it takes options and a host, and passes the rest to a shell as one line.
    let text = "#!/bin/sh\nwhile [ \"${1#-}\" != \"$1\" ]; do\n\
                [ $1 = -o ] && shift; shift; done\nPLAYED=$1; export PLAYED; shift\n\
                exec sh -c \"$*\"\n";
    let folder = Folder::new();
    folder.program("ssh", text);
    // A path that a shell would split.
    let odd = folder.at("it's ringrun");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_ringrun"), &odd).unwrap();

    let remote = ["--remote-ringrun", &odd, "--rendezvous-addr", "127.0.0.1"];
    let program = ["--host", "me@a,b", "sh", "-c", "echo $PLAYED \"$RINGFOLD_RANK\""];
    let path = format!("{}:/usr/bin:/bin", folder.path().display());
    let mut command = ringrun(&[&remote[..], &program[..]].concat());
    let done = Outcome::of(command.env("PATH", path));
    assert_eq!(done.lines(), ["b 1", "me@a 0"], "{done:?}");
}

/// Two hosts, and a switch that a launcher can run on.
fn hosts() -> Option<Namespaces> {
    let net = Namespaces::star("10.77.0", 2)?;
    net.ip("-n @s addr add 10.77.0.254/24 dev br0");
    Some(net)
}

#[test]
fn network_namespaces_are_hosts() {
    let Some(net) = hosts() else { return };
    let mark = mark();
    let hosts = format!("{}:2,{}:1", net.name("h0"), net.name("h1"));
    let script = "exec 3<>/dev/tcp/${RINGFOLD_RENDEZVOUS%:*}/${RINGFOLD_RENDEZVOUS##*:} || exit 5
        ip -o -4 addr show dev eth0 | awk -v r=$RINGFOLD_RANK '{print r, $4}'";
    let agent = ["--agent", "ip netns exec", "--rendezvous-addr", "10.77.0.254"];
    let start = |script: &str| {
        let mut command = net.command("s", env!("CARGO_BIN_EXE_ringrun"));
        Job::start(command.args(agent).args(["--host", &hosts, "bash", "-c", script]))
    };
    let done = start(script).outcome();
    assert_eq!(done.code(), 0, "{done:?}");
    assert_eq!(done.lines(), ["0 10.77.0.1/24", "1 10.77.0.1/24", "2 10.77.0.2/24"], "{done:?}");

    let mut job = start(&format!("setsid sleep {mark} & echo ready; wait"));
    job.lines(3);
    job.signal(Signal::KILL);
    job.wait();
    assert_gone(&mark);
}

#[test]
fn an_address_that_sockets_would_take_is_not_this_host() {
    let Some(net) = hosts() else { return };
    // There every bind succeeds, so only the interfaces show which addresses are the host's own.
    net.ip("netns exec @h0 sysctl -qw net.ipv4.ip_nonlocal_bind=1");
    let agent = Script::agent();
    let mut command = net.command("h0", env!("CARGO_BIN_EXE_ringrun"));
    command.args(["--agent", agent.path(), "--rendezvous-addr", "127.0.0.1"]);
    command.args(["--host", "10.77.0.1,192.0.2.7", "sh", "-c"]);
    let done = Outcome::of(command.arg("echo $RINGFOLD_RANK ${PLAYED:-here}"));
    assert_eq!(done.lines(), ["0 here", "1 192.0.2.7"], "{done:?}");
}
