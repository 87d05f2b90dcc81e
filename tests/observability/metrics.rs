//! Metrics of running jobs, over HTTP and in a file.

use std::fs;
use std::io::Write as _;
use std::net::TcpListener;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ringfold_harness::{Folder, Home, Job, Ranks, free_port, http_page, needed};
use rustix::process::Signal;

use crate::{LONG, ringfold};

/// Asks again and again until `is_enough` of the answer.
pub(crate) fn until<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    let begin = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(begin.elapsed() < LONG, "it does not come");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Four ranks that call so often with 1 MiB over TCP, and then sleep until `stop` exists.
fn counted(metrics: &str, times: &str, stop: &str) -> Ranks {
    counted_by(4, "262144", &[("RINGFOLD_TRANSPORT", "tcp")], [metrics, times, stop])
}

fn counted_by(
    ranks: usize,
    elements: &str,
    settings: &[(&str, &str)],
    [metrics, times, stop]: [&str; 3],
) -> Ranks {
    let ranks = Ranks::start(ranks, |_, command| {
        command.args(["counted", elements, times, stop]);
        command.envs(settings.iter().copied()).env("RINGFOLD_METRICS", metrics);
    });
    ranks.wait_for("counted");
    ranks
}

/// The number of the job of these ranks.
fn job_of(ranks: &Ranks) -> String {
    let seen = ringfold(&["inspect", &ranks.0[0].id().to_string()]);
    let text = String::from_utf8_lossy(&seen.stdout).into_owned();
    text.split(' ').nth(1).unwrap_or_else(|| panic!("{seen:?}")).to_owned()
}

/// The samples of a metric of a job: the labels and the value of each.
fn samples(page: &str, name: &str, job: &str) -> Vec<(String, f64)> {
    let own = format!("{name}{{job_id=\"{job}\",");
    let lines = page.lines().filter_map(|line| line.strip_prefix(&own)?.rsplit_once("} "));
    lines.map(|(labels, value)| (labels.to_owned(), value.parse().unwrap())).collect()
}

/// The value of a label.
fn label<'a>(labels: &'a str, name: &str) -> &'a str {
    let rest = labels.split_once(&format!("{name}=\"")).unwrap_or_else(|| panic!("{labels}")).1;
    rest.split('"').next().unwrap()
}

/// All bytes that so many ranks send in a call by this algorithm, as `ringfold plan` says.
fn planned(ranks: &str, bytes: &str, algorithm: &str) -> f64 {
    let seen = ringfold(&["plan", "allreduce", "-n", ranks, "-b", bytes, "-a", algorithm]);
    let text = String::from_utf8_lossy(&seen.stdout).into_owned();
    let (_, rest) = text.split_once("all together send ").unwrap_or_else(|| panic!("{seen:?}"));
    rest.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn counters_are_those_of_the_plan() {
    let folder = Folder::new();
    let (stop, port, begin) = (folder.at("stop"), free_port(), Instant::now());
    let ranks = counted(&format!("127.0.0.1:{port}"), "1000", &stop);
    let job = job_of(&ranks);
    // The records of the last calls may be behind their ends by a moment.
    let page = until(|| {
        let page = http_page(port, "/metrics")?;
        let counts = samples(&page, "ringfold_call_duration_seconds_count", &job);
        let of_calls = counts.iter().filter(|it| label(&it.0, "collective") == "allreduce");
        (of_calls.map(|it| it.1).sum::<f64>() == 4000.0).then_some(page)
    });
    let counts = samples(&page, "ringfold_call_duration_seconds_count", &job);
    let mut calls = counts.iter().filter(|it| label(&it.0, "collective") == "allreduce");
    let (labels, count) = calls.next().unwrap();
    assert_eq!((label(labels, "size"), *count), ("1MiB", 1000.0));
    let algorithm = label(labels, "algorithm");
    assert_eq!(calls.count(), 3, "one series for each other rank");
    let sent = samples(&page, "ringfold_sent_bytes_total", &job);
    assert!(sent.iter().all(|it| label(&it.0, "transport") == "tcp"), "{sent:?}");
    let (sent, planned) =
        (sent.iter().map(|it| it.1).sum::<f64>(), 1000.0 * planned("4", "1M", algorithm));
    assert!((sent - planned).abs() < 0.01 * planned, "{sent} sent, {planned} planned");
    let of_ranks = |metric| {
        let all = samples(&page, metric, &job);
        assert_eq!(all.len(), 4, "{metric}");
        all.iter().map(|it| it.1).sum::<f64>()
    };
    assert_eq!(of_ranks("ringfold_failovers_total"), 0.0);
    let sums = samples(&page, "ringfold_call_duration_seconds_sum", &job);
    let (waited, took) =
        (of_ranks("ringfold_wait_seconds_total"), sums.iter().map(|it| it.1).sum());
    let most = 4.0 * begin.elapsed().as_secs_f64();
    assert!(0.0 < waited && waited < most, "{waited} s waited, {most} s at most");
    assert!(0.0 < took && took < most, "{took} s in calls, {most} s at most");
    let buckets = samples(&page, "ringfold_call_duration_seconds_bucket", &job);
    let last = buckets.iter().filter(|it| label(&it.0, "le") == "+Inf").map(|it| it.1);
    assert_eq!(last.sum::<f64>(), counts.iter().map(|it| it.1).sum::<f64>());
    assert!(page.ends_with("# EOF\n"));
    prometheus_takes(&page, port, &job);
    fs::write(&stop, "").unwrap();
    for outcome in ranks.finish(LONG) {
        assert!(outcome.status.success() && outcome.stderr.is_empty(), "{outcome:?}");
    }
}

/// Most of these calls end in their first exchange. Their ends have no time.
#[test]
fn short_calls_count_once_with_their_bytes() {
    let folder = Folder::new();
    let (stop, port) = (folder.at("stop"), free_port());
    let metrics = format!("127.0.0.1:{port}");
    let settings =
        [("RINGFOLD_TRANSPORT", "shm"), ("RINGFOLD_ALGO", "allreduce:recursive_doubling")];
    let ranks = counted_by(2, "64", &settings, [&metrics, "1000", &stop]);
    let job = job_of(&ranks);
    let of_calls = |page: &str, metric| {
        let mut all = samples(page, metric, &job);
        all.retain(|it| label(&it.0, "collective") == "allreduce");
        all
    };
    let page = until(|| {
        let page = http_page(port, "/metrics")?;
        let counts = of_calls(&page, "ringfold_call_duration_seconds_count");
        (counts.iter().map(|it| it.1).sum::<f64>() >= 2000.0).then_some(page)
    });
    let counts = of_calls(&page, "ringfold_call_duration_seconds_count");
    assert_eq!(counts.iter().map(|it| it.1).sum::<f64>(), 2000.0);
    let planned = 1000.0 * planned("2", "256", label(&counts[0].0, "algorithm"));
    // A rank that leaves a call without a poll has so much of its short messages not counted yet.
    let late = 2.0 * 64.0 * 1024.0;
    let sent: f64 = samples(&page, "ringfold_sent_bytes_total", &job).iter().map(|it| it.1).sum();
    // Beside them goes what the ranks say before and after their calls.
    assert!(planned - late <= sent && sent < 1.02 * planned, "{sent} sent, {planned} planned");
    fs::write(&stop, "").unwrap();
    for outcome in ranks.finish(LONG) {
        assert!(outcome.status.success() && outcome.stderr.is_empty(), "{outcome:?}");
    }
}

/// Prometheus finds no fault with the page.
fn check(page: &str) {
    let mut tool = Command::new("promtool");
    tool.args(["check", "metrics"]).stdin(Stdio::piped()).stderr(Stdio::piped());
    let mut tool = tool.spawn().unwrap();
    tool.stdin.take().unwrap().write_all(page.as_bytes()).unwrap();
    let said = tool.wait_with_output().unwrap();
    // It takes the older format, in which the help of a counter has another name.
    let said = String::from_utf8_lossy(&said.stderr).into_owned();
    assert!(said.lines().all(|line| line.ends_with("_total no help text")), "{said}");
}

/// Prometheus finds no fault with the page, and scrapes it itself.
fn prometheus_takes(page: &str, port: u16, job: &str) {
    if !needed::are_there("prometheus", &["prometheus", "promtool"]) {
        return;
    }
    check(page);
    let (folder, own) = (Folder::new(), free_port());
    let config = folder.file(
        "prometheus.yml",
        format!(
            "global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: ringfold\n  \
             static_configs:\n  - targets: ['127.0.0.1:{port}']\n"
        ),
    );
    let mut server = Command::new("prometheus");
    server.arg(format!("--config.file={config}"));
    server.arg(format!("--storage.tsdb.path={}", folder.at("data")));
    server.arg(format!("--web.listen-address=127.0.0.1:{own}"));
    let server = Job::start(&mut server);
    // The query, with all but letters, digits and underscores in hexadecimal.
    let query = format!(
        "sum(ringfold_call_duration_seconds_count{{job_id=\"{job}\",collective=\"allreduce\"}})"
    );
    let query = query.bytes().fold(String::new(), |text, byte| {
        let plain = byte.is_ascii_alphanumeric() || byte == b'_';
        text + &if plain { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    });
    let answer = until(|| {
        http_page(own, &format!("/api/v1/query?query={query}"))
            .filter(|it| it.contains("\"value\""))
    });
    assert!(answer.contains("\"4000\""), "{answer}");
    drop(server);
}

#[test]
fn another_process_goes_on_when_that_with_the_port_ends() {
    let folder = Folder::new();
    let (stop, port) = (folder.at("stop"), free_port());
    let ranks = counted(&port.to_string(), "10", &stop);
    let job = job_of(&ranks);
    let ranks_seen = || {
        let page = http_page(port, "/metrics")?;
        let waited = samples(&page, "ringfold_wait_seconds_total", &job);
        Some(waited.iter().map(|it| label(&it.0, "rank").to_owned()).collect::<Vec<_>>())
    };
    until(|| ranks_seen().filter(|it| *it == ["0", "1", "2", "3"]));
    // One of them has the port, whichever it is.
    for (rank, left) in [(2, 3), (0, 2), (3, 1)] {
        ranks.0[rank].signal(Signal::KILL);
        until(|| ranks_seen().filter(|it| it.len() == left));
    }
    assert_eq!(ranks_seen(), Some(vec!["1".to_owned()]));
    fs::write(&stop, "").unwrap();
}

#[test]
fn a_taken_port_costs_one_warning() {
    let folder = Folder::new();
    let stop = folder.file("stop", "");
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let ranks = counted(&format!(":{port}"), "10", &stop);
    let outcomes = ranks.finish(LONG);
    assert!(outcomes.iter().all(|it| it.status.success()), "{outcomes:?}");
    let warning = format!("RINGFOLD_METRICS=127.0.0.1:{port} is not served, and the job goes on");
    let warned: Vec<_> = outcomes.iter().filter(|it| it.stderr.contains(&warning)).collect();
    // Another process may begin after the end of the first one.
    assert!(!warned.is_empty(), "{outcomes:?}");
    assert!(warned.iter().all(|it| it.stderr.matches(&warning).count() == 1), "{outcomes:?}");
}

#[test]
fn metrics_go_to_a_file() {
    let folder = Folder::new();
    let (stop, file) = (folder.at("stop"), folder.at("ringfold.prom"));
    let ranks = counted(&file, "10", &stop);
    let job = job_of(&ranks);
    until(|| {
        let page = fs::read_to_string(&file).ok()?;
        assert!(page.ends_with("# EOF\n"), "{page}");
        let counts = samples(&page, "ringfold_call_duration_seconds_count", &job);
        (counts.iter().map(|it| it.1).sum::<f64>() == 44.0).then_some(())
    });
    fs::write(&stop, "").unwrap();
    assert!(ranks.finish(LONG).iter().all(|it| it.status.success()));
}

/// Three ranks call 10 times with 1 MiB over an aggregator.
#[test]
fn an_aggregator_has_metrics() {
    let (folder, home, port, begin) = (Folder::new(), Home::new(), free_port(), Instant::now());
    let aggregator = home.aggregator_with(&[], |command| {
        command.env("RINGFOLD_METRICS", port.to_string());
    });
    let stop = folder.at("stop");
    let job = Job::start(&mut home.ranks(3, &aggregator.at, &["counted", "262144", "10", &stop]));
    (0..3).for_each(|_| drop(job.line("counted")));
    let at = &aggregator.at;
    let own = |page: &str, name: &str| -> Vec<(String, f64)> {
        let head = format!("{name}{{aggregator=\"{at}\"");
        let lines = page.lines().filter_map(|line| line.strip_prefix(&head)?.rsplit_once("} "));
        lines.map(|(labels, value)| (labels.to_owned(), value.parse().unwrap())).collect()
    };
    // The parts of ten calls, and no bytes for barriers. The numbers of groups are as old as a
    // beat.
    let parts = f64::from(3 * 10 * (1 << 20));
    let page = until(|| {
        http_page(port, "/metrics").filter(|page| {
            own(page, "ringfold_received_bytes_total").iter().any(|it| it.1 >= parts)
        })
    });
    let one = |name| match &own(&page, name)[..] {
        [(labels, value)] => (labels.clone(), *value),
        other => panic!("{name}: {other:?}"),
    };
    assert_eq!(one("ringfold_groups").1, 1.0);
    assert_eq!(one("ringfold_received_bytes_total").1, parts);
    let chunks = home.chunks(at)[0];
    assert!(chunks > 10 && one("ringfold_reductions_total").1 == chunks as f64, "{chunks}");
    let (labels, sent) = one("ringfold_sent_bytes_total");
    assert_eq!(label(&labels, "transport"), "tcp");
    assert!(parts < sent && sent < 1.01 * parts, "{sent} bytes sent");
    assert_eq!(one("ringfold_failovers_total").1, 0.0);
    let waited = one("ringfold_wait_seconds_total").1;
    assert!(0.0 < waited && waited < begin.elapsed().as_secs_f64(), "{waited} s");
    let memory = one("ringfold_memory_bytes").1;
    assert!(home.stats(at).contains(&format!("pool: {memory} of ")), "{memory}");
    if needed::are_there("prometheus", &["prometheus", "promtool"]) {
        check(&page);
    }
    fs::write(&stop, "").unwrap();
    assert!(job.finish(LONG).status.success());
    until(|| http_page(port, "/metrics").filter(|page| own(page, "ringfold_groups")[0].1 == 0.0));
}

#[test]
fn wrong_places_are_refused_before_any_rank_joins() {
    let folder = Folder::new();
    let missing = folder.at("no/folder/metrics");
    for wrong in ["0", "70000", "somewhere:1", &missing] {
        let mut command = Command::new(ringfold_harness::program::own("rank"));
        command.args(["rich", "8"]).env("RINGFOLD_METRICS", wrong);
        let outcome = Job::start(&mut command).finish(LONG);
        let text = format!("{}{}", outcome.stdout, outcome.stderr);
        assert!(!outcome.status.success() && text.contains("RINGFOLD_METRICS"), "{outcome:?}");
    }
}
