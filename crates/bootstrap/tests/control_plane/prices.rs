//! The CPU time of rank 0, from which the control plane's model in virtual time takes its prices.

use std::fs;
use std::thread;

use ringfold_bootstrap::Control;
use rustix::time::{ClockId, clock_gettime};

use crate::world::{Job, TIME_LIMIT, leave};

/// Jobs of these sizes differ in the ranks alone.
const SIZES: [u32; 2] = [128, 256];
/// Exchanges of each length.
const EXCHANGES: u32 = 20;
/// The bytes of a rank in an exchange.
const LENGTHS: [usize; 2] = [1, 1_000];
/// Rank 0 gets them from all ranks, and sends those of all to so many.
const CHILDREN: u32 = 8;
/// Marks that rank 0 sends along all connections.
const MARKS: u32 = 100;

/// The CPU time of the control thread, and of the whole process, in nanoseconds.
fn cpu_ns() -> [i64; 2] {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    let mut control = 0;
    for task in fs::read_dir("/proc/self/task").unwrap() {
        let task = task.unwrap().path();
        if fs::read_to_string(task.join("comm")).is_ok_and(|name| name.trim() == "ringfold-ctl") {
            let stat = fs::read_to_string(task.join("schedstat")).unwrap();
            control = stat.split(' ').next().unwrap().parse().unwrap();
        }
    }
    [control, time.tv_sec * 1_000_000_000 + time.tv_nsec]
}

fn exchange(control: &Control, length: usize) {
    for _ in 0..EXCHANGES {
        let all = control.exchange(vec![7; length], TIME_LIMIT).unwrap();
        assert_eq!(all.len(), control.size());
    }
}

/// Joins as rank 0, and prints the CPU time of each part in nanoseconds.
#[expect(clippy::print_stdout, reason = "standard output is how it reports")]
pub(crate) fn count(job: &Job, rank: u32) {
    let mut times = vec![cpu_ns()];
    let (control, _) = job.join(rank).unwrap();
    times.push(cpu_ns());
    for length in LENGTHS {
        exchange(&control, length);
        times.push(cpu_ns());
    }
    for _ in 0..MARKS {
        assert!(control.catch_up());
    }
    times.push(cpu_ns());
    let parts = times.windows(2).flat_map(|two| [two[1][0] - two[0][0], two[1][1] - two[0][1]]);
    let parts: Vec<String> = parts.map(|part| part.to_string()).collect();
    println!("cpu: {}", parts.join(" "));
    control.leave().unwrap();
}

/// The CPU time of a job's rank 0 in nanoseconds, of each part: of the control thread, and in all.
fn counted(size: u32) -> Vec<f64> {
    let job = Job::new(size as usize);
    let mut first = job.counting_process(0);
    let controls = job.joined(&(1..size).collect::<Vec<_>>());
    thread::scope(|scope| {
        for control in &controls {
            scope.spawn(|| LENGTHS.iter().for_each(|length| exchange(control, *length)));
        }
    });
    let parts = first.line("cpu: ");
    leave(controls);
    parts.split(' ').map(|part| part.parse().unwrap()).collect()
}

#[test]
#[ignore = "prints prices: see tests/long"]
fn prices_of_rank_0() {
    let [few, many] = SIZES.map(counted);
    let ranks = f64::from(SIZES[1] - SIZES[0]);
    let per_rank = |part: usize| (many[part] - few[part]) / ranks / 1e3;
    println!("join: {:.0} us of the control thread", per_rank(0));
    println!("join: {:.0} us of its helpers", per_rank(1) - per_rank(0));
    let messages = 2.0 * f64::from(EXCHANGES);
    let [own, all] = [2, 3].map(|part| per_rank(part) / messages);
    println!("a short message: {own:.1} us of the control thread");
    println!("a short message: {:.1} us of its helpers", all - own);
    let [own, all] = [6, 7].map(|part| per_rank(part) / f64::from(MARKS));
    println!("a mark: {own:.1} us of the control thread");
    println!("a mark: {:.1} us of its helpers", all - own);
    let bytes = f64::from(EXCHANGES * SIZES[1] * (1 + CHILDREN) * (LENGTHS[1] - LENGTHS[0]) as u32);
    let [own, all] = [2, 3].map(|part| (many[part + 2] - many[part]) / bytes);
    println!("a byte: {own:.2} ns of the control thread");
    println!("a byte: {:.2} ns of its helpers", all - own);
}
