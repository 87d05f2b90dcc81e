//! The launcher's end of the link to one host: starts the node agent there and exchanges messages
//! with it.

use std::ffi::{OsStr, OsString};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ringfold_types::{Chain, Rank};
use rustix::process::{Signal, kill_process_group};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;

use crate::admit::{Admission, Restarts, printable};
use crate::frame::{Decoder, encode};
use crate::guardian::GUARDIAN;
use crate::guardian::HANGUP_GRACE;
use crate::heartbeat::{Heartbeat, SilenceTimer};
use crate::job::Job;
use crate::message::{Down, HostOrder, Up};
use crate::printer::Piece;
use crate::process_tree::{self, DYING};
use crate::supervisor::Event;

/// The help text about agents.
pub const AGENT_HELP: &str = "\
The agent starts a command on another host. It is called as

    AGENT... HOST RINGRUN --ringfold-guardian

and must run `RINGRUN --ringfold-guardian` on HOST with its own standard input and output \
connected to that process, byte for byte, until it ends. When the agent dies or its input ends, \
the input of the process must end too. Output before the answer of RINGRUN is ignored. AGENT is \
split at white space. By default it is `ssh -T -x -o BatchMode=yes -o ServerAliveInterval=15 --`; \
`--agent 'ip netns exec'` takes hosts to be network namespaces of this machine. The secret of the \
job and the command to run travel over standard input, never in arguments. Both ends send \
heartbeats, so that a connection that breaks without notice is detected after --host-timeout.";

/// The command of the default agent. The last word ends the options, so that ssh takes the next one
/// for the host.
const SSH: [&str; 8] =
    ["ssh", "-T", "-x", "-o", "BatchMode=yes", "-o", "ServerAliveInterval=15", "--"];

/// The most bytes to read from a node agent at once.
const READ_BYTES: usize = 64 * 1024;

/// The time for a reader to make room for output when the job must end soon. Output of a host that
/// it does not take in this time is dropped, because the reports of the ranks' ends wait behind it.
const SLOW_READER: Duration = Duration::from_millis(200);

/// The channels that the tasks of all hosts share.
#[derive(Clone, Debug)]
pub(crate) struct HostChannels {
    pub(crate) events: mpsc::UnboundedSender<Event>,
    pub(crate) pieces: mpsc::Sender<Piece>,
    /// Notified when rank 0 has room for input.
    pub(crate) input_taken: Arc<Notify>,
    /// Whether the job must end soon, even if the reader of its output is slow.
    pub(crate) hurry: watch::Receiver<bool>,
}

/// A started node agent. Dropping `orders` makes it end, and then `task` ends.
#[derive(Debug)]
pub(crate) struct Link {
    pub(crate) orders: mpsc::UnboundedSender<Down>,
    /// Closes both pipes. The guardian then ends the job on its host, and `task` ends within
    /// `AGENT_GRACE`.
    pub(crate) hang_up: Arc<Notify>,
    pub(crate) task: JoinHandle<()>,
}

/// The time for an agent to end by itself after its pipes are closed: enough for a guardian.
const AGENT_GRACE: Duration =
    HANGUP_GRACE.saturating_add(DYING).saturating_add(Duration::from_secs(1));

/// The command line of a node agent.
pub(crate) fn node_agent_command(
    job: &Job,
    host: &str,
    is_local: bool,
) -> std::io::Result<Vec<OsString>> {
    if is_local {
        let program = job.local_node_agent.clone().unwrap_or_else(|| "/proc/self/exe".into());
        return Ok(vec![program.into(), GUARDIAN.into()]);
    }
    let node_agent = match &job.remote_node_agent {
        Some(path) => path.clone(),
        None => std::env::current_exe()?,
    };
    let mut words = Vec::<OsString>::new();
    if job.agent.is_empty() {
        // The shell on the other host splits the words that ssh passes on.
        words.extend(SSH.map(OsString::from));
        words.extend([host.into(), shell_quote(node_agent.as_os_str()), GUARDIAN.into()]);
    } else {
        words.extend(job.agent.iter().map(OsString::from));
        words.extend([host.into(), node_agent.into(), GUARDIAN.into()]);
    }
    Ok(words)
}

/// Starts a node agent and sends it `order`.
///
/// # Errors
/// The command cannot be started.
pub(crate) fn start(
    words: &[OsString],
    host: usize,
    order: HostOrder,
    channels: HostChannels,
) -> std::io::Result<Link> {
    let (program, args) = words.split_first().ok_or_else(|| std::io::Error::other("no command"))?;
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .process_group(0)
        .spawn()?;
    let (Some(stdin), Some(stdout)) = (child.stdin.take(), child.stdout.take()) else {
        return Err(std::io::Error::other("no pipes"));
    };
    let mut agent = Agent { child };
    let command = program.display().to_string();
    let (silence, admission) = (order.silence, Admission::of(&order.ranks));
    let (pieces, restarts) = (admission.piece_out(), admission.restarts());
    let (orders, orders_rx) = mpsc::unbounded_channel();
    // The receiver belongs to the task below, which has not begun.
    orders.send(Down::Start(Box::new(order))).ok();
    let hang_up = Arc::new(Notify::new());
    let hung_up = Arc::clone(&hang_up);
    let task = tokio::spawn(async move {
        let greeted = AtomicBool::new(false);
        let reports = read_reports(stdout, silence, admission, &greeted, (host, &channels));
        // The first to end closes the pipes of the others.
        let link_end = tokio::select! {
            link_end = reports => link_end,
            () = write_orders(stdin, orders_rx, silence, &greeted, (&pieces, &restarts)) => {
                LinkEnd::Closed
            }
            () = hung_up.notified() => LinkEnd::Closed,
        };
        // The printer waits for every holder of the other channels.
        let HostChannels { events, .. } = channels;
        let lost = |status: &str| {
            let why = link_end.explain(&command, status);
            events.send(Event::HostLost { host, why })
        };
        // The receiver is gone when the job is over. An agent that may never end is not waited for.
        if let LinkEnd::Silent(_) | LinkEnd::Invalid(_) = link_end {
            lost("").ok();
            agent.end().await;
        } else {
            let status = agent.end().await;
            lost(&status).ok();
        }
    });
    Ok(Link { orders, hang_up, task })
}

/// Passes on orders, and heartbeats between them, even after the node agent stops reading. Returns
/// only if the job is over before any node agent has answered.
async fn write_orders(
    mut stdin: ChildStdin,
    mut orders: mpsc::UnboundedReceiver<Down>,
    silence: Option<Duration>,
    greeted: &AtomicBool,
    (piece_out, restarts): (&AtomicBool, &Restarts),
) {
    let mut beat = Heartbeat::within(silence);
    let mut open = true;
    loop {
        let order = tokio::select! {
            order = orders.recv(), if open => match order {
                Some(order) => order,
                None if !greeted.load(Ordering::Relaxed) => return,
                None => {
                    open = false;
                    Down::End
                }
            },
            () = beat.next() => Down::Heartbeat,
        };
        // No order sent here is too long: only the first could be, and it was checked.
        let Ok(frame) = encode(&order) else { continue };
        if let Down::Input(_) = order {
            piece_out.store(true, Ordering::Relaxed);
        }
        if let Down::Restart(rank) = order {
            restarts.expect(rank);
        }
        if stdin.write_all(&frame).await.is_err() {
            // The node agent is gone. The end of its reports shows that as well.
            return std::future::pending().await;
        }
    }
}

/// Why there are no more reports from a host.
enum LinkEnd {
    /// The node agent has closed its output.
    Closed,
    /// The agent printed this text and closed its output, without any message of a node agent.
    NotStarted(String),
    /// The node agent has ended its ranks, for this reason.
    Left(String),
    /// The reports were invalid.
    Invalid(String),
    /// Nothing came for this long.
    Silent(Duration),
}

/// Reads reports until the node agent is gone, or sends an invalid one.
async fn read_reports(
    mut stdout: ChildStdout,
    limit: Option<Duration>,
    mut admission: Admission,
    greeted: &AtomicBool,
    (host, channels): (usize, &HostChannels),
) -> LinkEnd {
    let mut decoder = Decoder::after_greeting();
    let mut buffer = vec![0; READ_BYTES];
    let mut silence = SilenceTimer::at_most(limit);
    let (mut left, mut drops_output) = (None, false);
    loop {
        let count = tokio::select! {
            biased;
            read = stdout.read(&mut buffer) => read.unwrap_or(0),
            () = silence.expired() => return LinkEnd::Silent(limit.unwrap_or_default()),
        };
        silence.reset();
        if count == 0 {
            break;
        }
        decoder.push(&buffer[..count]);
        loop {
            let report = match decoder.next() {
                Ok(Some(report)) => report,
                Ok(None) => break,
                Err(error) => return LinkEnd::Invalid(Chain(&error).to_string()),
            };
            match admission.admit(report) {
                Ok(Up::Leaving { why }) => left = Some(why),
                Ok(Up::Output { .. }) if drops_output => {}
                Ok(report) => drops_output |= !pass_on(report, host, channels).await,
                Err(error) => return LinkEnd::Invalid(error.to_string()),
            }
        }
        greeted.store(decoder.chatter().is_none(), Ordering::Relaxed);
    }
    match (decoder.chatter(), left) {
        (Some(said), _) => LinkEnd::NotStarted(printable(&said)),
        (None, Some(why)) => LinkEnd::Left(why),
        (None, None) => LinkEnd::Closed,
    }
}

/// Passes on a report. Returns whether later output may be passed on too.
async fn pass_on(report: Up, host: usize, channels: &HostChannels) -> bool {
    let event = match report {
        Up::Output { rank, stream, bytes } => {
            let mut hurry = channels.hurry.clone();
            let slow = async {
                // Without a sender the job is over.
                hurry.wait_for(|hurry| *hurry).await.ok();
                tokio::time::sleep(SLOW_READER).await;
            };
            let piece = Piece { rank: Some(rank), stream, bytes };
            return tokio::select! {
                biased;
                // Fails only if the job is being given up.
                sent = channels.pieces.send(piece) => sent.is_ok(),
                () = slow => false,
            };
        }
        Up::InputTaken => {
            channels.input_taken.notify_one();
            return true;
        }
        Up::Started { rank, pid } => Event::Started { rank: Rank(rank), pid },
        Up::Exited { rank, status } => Event::Exited { rank: Rank(rank), status },
        Up::Refused { rank, refusal } => Event::Refused { rank: Rank(rank), refusal },
        Up::Ready => Event::Ready { host },
        Up::Leaving { .. } | Up::Heartbeat => return true,
    };
    channels.events.send(event).ok();
    true
}

/// The process that connects this one to a node agent. On this host it is the guardian itself.
/// Dropping this kills its process group.
struct Agent {
    child: Child,
}

impl LinkEnd {
    /// Why the host is lost. Its agent `command` has ended with `status`.
    fn explain(&self, command: &str, status: &str) -> String {
        match self {
            Self::Closed => format!("ringrun there ended ({status})"),
            Self::NotStarted(said) if said.is_empty() => {
                format!("'{command}' ended ({status}) before ringrun answered there")
            }
            Self::NotStarted(said) => format!("'{command}' ended ({status}) after: {said}"),
            Self::Invalid(said) => format!("invalid data from it through '{command}': {said}"),
            Self::Left(why) => format!("ringrun there ended its ranks: {why}"),
            Self::Silent(limit) => format!(
                "no data from it through '{command}' for {} s; if it is only slow, increase \
                 --host-timeout",
                limit.as_secs_f64()
            ),
        }
    }
}

impl Agent {
    /// Waits until the process has ended, or kills it after `AGENT_GRACE`. Returns its status as
    /// text.
    async fn end(&mut self) -> String {
        if tokio::time::timeout(AGENT_GRACE, self.child.wait()).await.is_err() {
            self.kill();
        }
        match self.child.wait().await {
            Ok(status) => status.to_string(),
            Err(error) => error.to_string(),
        }
    }

    fn kill(&self) {
        // The child is not reaped yet, so no other process has its number.
        if let Some(group) = self.child.id().and_then(process_tree::pid_of) {
            kill_process_group(group, Signal::KILL).unwrap_or_default();
        }
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        self.kill();
    }
}

fn shell_quote(word: &OsStr) -> OsString {
    let mut quoted = OsString::from("'");
    quoted.push(word.to_string_lossy().replace('\'', r"'\''"));
    quoted.push("'");
    quoted
}

#[cfg(test)]
mod tests {
    use super::{node_agent_command, shell_quote};
    use crate::job::Job;

    #[test]
    fn commands() {
        let mut job = Job::new("x");
        job.remote_node_agent = Some("/opt/my tools/ringrun".into());
        let words = node_agent_command(&job, "n1", false).unwrap();
        assert_eq!(words[0], "ssh");
        assert_eq!(
            words[words.len() - 4..],
            ["--", "n1", "'/opt/my tools/ringrun'", "--ringfold-guardian"]
        );
        job.agent = vec!["ip".into(), "netns".into(), "exec".into()];
        let words = node_agent_command(&job, "n1", false).unwrap();
        let expected =
            ["ip", "netns", "exec", "n1", "/opt/my tools/ringrun", "--ringfold-guardian"];
        assert_eq!(words, expected);
        assert_eq!(node_agent_command(&job, "n1", true).unwrap()[0], "/proc/self/exe");
        assert_eq!(shell_quote("it's".as_ref()), r"'it'\''s'");
    }
}
