//! Figures of metrics with 64 ranks.

use std::fs;
use std::time::{Duration, Instant};

use ringfold_harness::{Ranks, free_port, http_page};

use crate::metrics::until;

const RANKS: usize = 64;

/// The time of each part of a comparison.
const PART: Duration = Duration::from_secs(20);

/// The CPU time of the threads for metrics of all ranks, and of all threads.
fn cpu(ranks: &Ranks) -> [Duration; 2] {
    let mut used = [0; 2];
    for task in ranks.0.iter().flat_map(|job| fs::read_dir(format!("/proc/{}/task", job.id()))) {
        for task in task.flatten().map(|task| task.path()) {
            let read = |name| fs::read_to_string(task.join(name)).unwrap_or_default();
            let nanos: u64 = read("schedstat").split(' ').next().unwrap().parse().unwrap_or(0);
            used[0] += if read("comm").starts_with("ringfold-metric") { nanos } else { 0 };
            used[1] += nanos;
        }
    }
    used.map(Duration::from_nanos)
}

/// Prints figures of `tests/long records`.
#[test]
#[ignore = "it takes two minutes: tests/long records"]
fn a_scrape_each_second_takes_little() {
    let port = free_port();
    let ranks = Ranks::start(RANKS, |_, command| {
        command.args(["pace", "200"]).env("RINGFOLD_TRANSPORT", "shm");
        command.env("RINGFOLD_METRICS", format!("127.0.0.1:{port}"));
    });
    ranks.wait_for("started");
    let page = until(|| http_page(port, "/metrics").filter(|page| page.contains("rank=\"63\"")));
    println!("{RANKS} ranks, a page of {} bytes each second", page.len());
    let mut percents = [Vec::new(), Vec::new()];
    for is_scraped in [false, true].repeat(3) {
        let (before, begin) = (cpu(&ranks), Instant::now());
        while begin.elapsed() < PART {
            if is_scraped {
                assert!(http_page(port, "/metrics").is_some());
            }
            std::thread::sleep(Duration::from_secs(1));
        }
        let (after, took) = (cpu(&ranks), begin.elapsed().as_secs_f64());
        let percent = |index: usize| 100.0 * (after[index] - before[index]).as_secs_f64() / took;
        let (own, all) = (percent(0), percent(1));
        println!("scraped: {is_scraped}; metrics take {own:.3} % of a CPU; all threads {all:.1} %");
        percents[usize::from(is_scraped)].push(own);
    }
    let [without, with] = percents.map(|it| it.iter().sum::<f64>() / it.len() as f64);
    println!("a scrape each second takes {:.3} % of a CPU more", with - without);
    assert!(with - without < 1.0, "under 1 % is asked for");
}
