//! `ringfold top`: the calls and the state of all ranks of the jobs of this user on this host, and
//! a verdict on each job.
//!
//! * `groups`: the members of each group, from two looks at the records;
//! * `verdict`: the judgement on a group;
//! * `traffic`: the bytes that processes send, and their waiting; `view`: the view on a terminal.

mod groups;
mod traffic;
mod verdict;
mod view;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, IsTerminal as _};
use std::net::IpAddr;
use std::thread;
use std::time::Duration;

use ringfold::remove_old_records;
use ringfold_bootstrap::{FarHost, look_around, record_folder_digest};
use ringfold_transport::record_folder;

use self::groups::{Group, groups};
use self::traffic::{Sent, sent_by_all};
use self::verdict::{Health, Verdict, judge, seconds};
use crate::records::{Job, Process, State, described_message, jobs};

/// The time between the two looks, in which a healthy job ends calls.
const BETWEEN_LOOKS: Duration = Duration::from_millis(200);

/// The time that other hosts have for both looks.
const FAR_LIMIT: Duration = Duration::from_millis(850);

/// The command line.
#[derive(clap::Args)]
pub(crate) struct Args {
    /// The number or the name of a job, or the number of one of its processes
    /// [default: all jobs of this user on this host]
    job: Option<String>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Returns the state of the jobs with a verdict on each, and the exit status: 0 if all are healthy,
/// 10 if one computes, 11 if one is slow, 12 if one hangs.
pub(crate) fn answer(args: &Args) -> anyhow::Result<(String, u8)> {
    remove_old_records();
    let wanted = args.job.as_deref();
    if !args.json && io::stdin().is_terminal() && io::stdout().is_terminal() {
        let status = view::show(|| look(wanted, |seen| Ok(text(seen))))?;
        return Ok((String::new(), status));
    }
    let show = |seen: &[Seen<'_>]| if args.json { json(seen) } else { Ok(text(seen)) };
    look(wanted, show).map(|(text, worst)| (text, worst as u8))
}

/// Looks at the jobs, and shows them. Returns the worst verdict beside.
fn look(
    wanted: Option<&str>,
    show: impl FnOnce(&[Seen<'_>]) -> anyhow::Result<String>,
) -> anyhow::Result<(String, Health)> {
    let mut first = jobs(wanted)?;
    let (mut second, far) = thread::scope(|scope| {
        let look = |job: &Job| {
            let group = job.far_group()?;
            Some(scope.spawn(move || (group.id, look_around(&group, BETWEEN_LOOKS, FAR_LIMIT))))
        };
        let looking: Vec<_> = first.iter().map(look).collect();
        thread::sleep(BETWEEN_LOOKS);
        // A job that has ended meanwhile is left out.
        let second = jobs(wanted).unwrap_or_default();
        let far = looking.into_iter().map(|it| it.and_then(|it| it.join().ok()));
        (second, far.collect::<Vec<_>>())
    });
    let mut silent = BTreeMap::new();
    let here = record_folder_digest(&record_folder());
    for (earlier, far) in first.iter_mut().zip(far) {
        let (Some((id, far)), Some(job)) =
            (far, second.iter_mut().find(|it| it.number() == earlier.number()))
        else {
            continue;
        };
        for FarHost { address, looks: [before, after] } in far.seen {
            if after.folder != here {
                earlier.processes.extend(Process::far(address, before));
                job.processes.extend(Process::far(address, after));
            }
        }
        silent.insert(job.number(), Silent { id, hosts: far.silent, unknown: far.unknown });
    }
    let seen: Vec<_> = second
        .iter()
        .map(|job| {
            let earlier = first.iter().find(|it| it.number() == job.number());
            let silent = silent.remove(&job.number()).unwrap_or_default();
            Seen::new(job, &groups(earlier, job), silent, sent_by_all(earlier, job))
        })
        .collect();
    let worst = seen.iter().map(|it| it.verdict.health).max().unwrap_or(Health::Healthy);
    Ok((show(&seen)?, worst))
}

/// The ranks of a group that are not seen.
#[derive(Default)]
struct Silent {
    /// The number of the group.
    id: [u64; 2],
    /// The ranks by the address where they do not answer.
    hosts: BTreeMap<Option<IpAddr>, Vec<u64>>,
    /// Why no address is known.
    unknown: Option<String>,
}

impl Silent {
    fn ranks(&self) -> Vec<u64> {
        self.hosts.values().flatten().copied().collect()
    }

    /// A line for each host that does not answer.
    fn lines(&self) -> Vec<String> {
        let unknown = self.unknown.iter().map(|cause| format!("other hosts are not seen: {cause}"));
        let hosts = self.hosts.iter().map(|(address, ranks)| {
            let address = address.map_or_else(|| "an unknown host".to_owned(), |it| it.to_string());
            let ranks: Vec<_> = ranks.iter().map(u64::to_string).collect();
            format!("{address} does not answer: ranks {} are not seen", ranks.join(" "))
        });
        unknown.chain(hosts).collect()
    }
}

/// A job, its groups and its verdict.
struct Seen<'a> {
    job: &'a Job,
    silent: Silent,
    groups: Vec<(Group, Verdict)>,
    verdict: Verdict,
    sent: Vec<Sent>,
}

impl<'a> Seen<'a> {
    fn new(job: &'a Job, groups: &[Group], silent: Silent, sent: Vec<Sent>) -> Self {
        let judged = groups.iter().map(|it| {
            let unseen = if it.id == silent.id { silent.ranks() } else { Vec::new() };
            (it.clone(), judge(&it.members, it.size, &unseen))
        });
        let groups: Vec<_> = judged.collect();
        let worst = groups.iter().map(|(_, verdict)| verdict);
        // A rank that is late for two groups, and waits in none, holds both up.
        let worst = worst.max_by_key(|it| (it.health, !it.is_indirect)).cloned();
        let verdict = worst.unwrap_or_else(|| {
            let gone = job.processes.iter().filter(|it| it.state == Some(State::Gone)).count();
            let failures = job.processes.iter().flat_map(|it| it.record.failures.last());
            match (gone, failures.max_by_key(|event| event.at)) {
                (0, None) => Verdict::of(Health::Computing, "no rank is in a group".to_owned()),
                (0, Some(it)) => Verdict::of(Health::Hung, format!("failed: {}", it.text)),
                (_, None) => Verdict::of(
                    Health::Hung,
                    format!(
                        "{gone} ranks here were killed, or ended \
                        without leaving"
                    ),
                ),
                (_, Some(it)) => Verdict::of(Health::Hung, format!("ended after: {}", it.text)),
            }
        });
        Self { job, silent, groups, verdict, sent }
    }
}

fn text(seen: &[Seen<'_>]) -> String {
    let mut text = String::new();
    if seen.is_empty() {
        return "no job of this user runs on this host\n".to_owned();
    }
    for Seen { job, silent, groups, verdict, sent } in seen {
        let _ = writeln!(text, "{}", job.title());
        let _ = writeln!(text, "{}: {}", verdict.health.name(), verdict.sentence);
        let _ = writeln!(text, "{}", traffic::line(sent));
        silent.lines().iter().for_each(|line| text += &format!("{line}\n"));
        for (group, verdict) in groups {
            let Group { name, size, members, rows, .. } = group;
            let _ = writeln!(text, "\ngroup {name:?}, {size} ranks: {}", verdict.health.name());
            let _ = writeln!(
                text,
                "{:>6} {:<16} {:>8} {:<9} {:>8} {:>12} {:<16} {:>8} {:>8}  operation",
                "rank", "host", "PID", "state", "call", "bytes", "algorithm", "for", "waited"
            );
            for (member, row) in members.iter().zip(rows) {
                let late = if verdict.ranks.contains(&member.rank) { " <" } else { "" };
                let operation = match (&member.inside, &member.awaited, &member.elsewhere) {
                    (Some(_), ..) => row.text.clone(),
                    (None, Some(it), _) => {
                        format!("waits for {}", described_message(it.message))
                    }
                    (None, None, Some(call)) => format!("in {call}"),
                    (None, None, None) => format!("outside, after {}", row.text),
                };
                let age = member.awaited.map_or(member.age, |it| it.age);
                let bytes = row.bytes.map_or_else(|| "-".to_owned(), |it| it.to_string());
                let _ = writeln!(
                    text,
                    "{:>6} {:<16} {:>8} {:<9} {:>8} {bytes:>12} {:<16} {:>8} {:>8}  \
                    {operation}{late}",
                    member.rank,
                    member.host.as_deref().unwrap_or("-"),
                    member.pid,
                    member.state.name(),
                    format!("#{}", member.seq),
                    row.algorithm.unwrap_or("-"),
                    seconds(age),
                    seconds(row.waited),
                );
            }
        }
        text.push('\n');
    }
    text.pop();
    text
}

/// The traffic of each way.
fn ways(sent: &[Sent]) -> Vec<serde_json::Value> {
    let of_way = |Sent { way, rate, failovers }: &Sent| {
        serde_json::json!({
            "transport": way.transport(),
            "rail": way.rail(),
            "bytes_per_second": rate,
            "failovers": failovers,
        })
    };
    sent.iter().map(of_way).collect()
}

fn json(seen: &[Seen<'_>]) -> anyhow::Result<String> {
    let jobs: Vec<_> = seen
        .iter()
        .map(|Seen { job, silent, groups, verdict, sent }| {
            let groups: Vec<_> = groups
                .iter()
                .map(|(group, verdict)| {
                    let members = group.members.iter().zip(&group.rows).map(|(member, row)| {
                        serde_json::json!({
                            "rank": member.rank,
                            "host": member.host,
                            "pid": member.pid,
                            "state": member.state.name(),
                            "call": member.seq,
                            "inside": member.inside.is_some(),
                            "operation": row.text,
                            "bytes": row.bytes,
                            "algorithm": row.algorithm,
                            "seconds": member.age.as_secs_f64(),
                            "waited_seconds": row.waited.as_secs_f64(),
                            "sends": ways(&row.sent),
                            "awaits": member.awaited.map(|it| serde_json::json!({
                                "is_sent": it.message.is_sent,
                                "peer": it.message.peer,
                                "tag": it.message.tag,
                                "seconds": it.age.as_secs_f64(),
                            })),
                            "elsewhere": member.elsewhere,
                            "failure": member.failure,
                        })
                    });
                    serde_json::json!({
                        "name": group.name,
                        "size": group.size,
                        "verdict": verdict.health.name(),
                        "sentence": verdict.sentence,
                        "late": verdict.ranks,
                        "ranks": members.collect::<Vec<_>>(),
                    })
                })
                .collect();
            serde_json::json!({
                "job": job.number(),
                "verdict": verdict.health.name(),
                "sentence": verdict.sentence,
                "late": verdict.ranks,
                "unseen": silent.lines(),
                "sends": ways(sent),
                "groups": groups,
            })
        })
        .collect();
    Ok(serde_json::to_string_pretty(&serde_json::json!({ "jobs": jobs }))? + "\n")
}
