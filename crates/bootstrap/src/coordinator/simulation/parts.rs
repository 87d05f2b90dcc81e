//! The parts of the table: what happens in each, and its row.

use std::fmt::Write as _;

use super::*;

impl World {
    /// Begins a part of which the traffic counts by itself.
    pub(super) fn begin(&mut self) -> u64 {
        (self.sent, self.received) = Default::default();
        self.now
    }

    /// All ranks join, and begin at once.
    async fn join(&mut self) -> Row {
        for rank in 1..self.size {
            let turn = turn(Rank(rank)).as_nanos() as u64;
            self.at(turn + LATENCY_NS, Happening::Connects(rank, 0));
        }
        self.run(|world| world.members.iter().all(|member| member.has_joined)).await;
        self.row("Join", 0, String::new())
    }

    /// All ranks exchange bytes.
    async fn exchange(&mut self) -> Row {
        let begun = self.begin();
        for rank in 0..self.size {
            self.send_up(begun, rank, ToCoordinator::Contribute(1, vec![7; CONTRIBUTION]));
        }
        self.run(|world| world.members.iter().all(|member| member.has_exchanged)).await;
        self.row("Exchange 60 B each", begun, String::new())
    }

    pub(super) fn row(&self, part: &'static str, begun: u64, outcome: String) -> Row {
        let (size, took_ms) = (self.size, (self.now - begun) / MS);
        Row { size, part, took_ms, sent: self.sent, received: self.received, outcome }
    }

    /// The network parts for 3 s while ranks exchange bytes. No connection ends.
    async fn part(&mut self) -> Row {
        self.parted = [self.now, self.now + 3 * S];
        let row = self.exchange().await;
        assert!(self.members.iter().all(|member| member.cause.is_none()));
        Row { part: "Exchange, parted for 3 s", outcome: "no failure".to_owned(), ..row }
    }

    /// The network parts for 3 s. After 1 s all links between its sides break, on all ranks. Those
    /// apart from rank 0 give it up.
    async fn part_and_break(&mut self) -> Row {
        let begun = self.begin();
        self.parted = [begun, begun + 3 * S];
        self.run(|world| world.now >= begun + S).await;
        for rank in 0..self.size {
            let (peer, cause) = ((rank ^ RACK) % self.size, "no path answers".to_owned());
            self.reports(self.now, rank, FailureReport::Link { peer, cause });
        }
        let row = self.cause("Links break, parted for 3 s", begun).await;
        assert!(row.outcome.starts_with("the connection from rank "), "{}", row.outcome);
        row
    }

    /// Waits until all ranks that live have the failure cause, which must be the same one.
    pub(super) async fn cause(&mut self, part: &'static str, begun: u64) -> Row {
        let lives = |member: &&Member| !(member.is_dead || member.is_off || member.is_stopped);
        self.run(|world| world.members.iter().filter(lives).all(|it| it.cause.is_some())).await;
        let mut causes: Vec<&String> =
            self.members.iter().filter(lives).filter_map(|member| member.cause.as_ref()).collect();
        causes.sort_unstable();
        causes.dedup();
        let shown: String = format!("{causes:?}").chars().take(500).collect();
        assert_eq!(causes.len(), 1, "{part} of {} ranks: {shown}", self.size);
        self.row(part, begun, causes[0].clone())
    }

    /// These ranks die. Every survivor reports a broken link to one of them, if `all_report`.
    async fn deaths(&mut self, part: &'static str, dead: &[u32], all_report: bool) -> Row {
        let begun = self.begin();
        for rank in dead {
            self.member(*rank).is_dead = true;
            self.carry(begun, [*rank, 0], 0, Letter::Closed(*rank));
        }
        for rank in (0..self.size).filter(|rank| all_report && !dead.contains(rank)) {
            let peer = dead[rank as usize % dead.len()];
            let cause = "the connection was reset by the peer".to_owned();
            self.reports(begun + LATENCY_NS, rank, FailureReport::Link { peer, cause });
        }
        self.cause(part, begun).await
    }

    /// A rack loses its power, so that no connection ends. Links to it break at once on all ranks.
    async fn rack_off(&mut self) -> Row {
        let begun = self.begin();
        let rack = self.rack();
        rack.iter().for_each(|rank| self.member(*rank).is_off = true);
        for rank in (0..self.size).filter(|rank| !rack.contains(rank)) {
            let peer = rack[rank as usize % rack.len()];
            let cause = "no path answers".to_owned();
            self.reports(begun, rank, FailureReport::Link { peer, cause });
        }
        self.cause("64 ranks lose power", begun).await
    }

    /// A rank is stopped, and the call of all others is overdue at once.
    async fn stop(&mut self) -> Row {
        let begun = self.begin();
        let stopped = self.size / 2 + 1;
        self.member(stopped).is_stopped = true;
        let seq = history().last().unwrap().seq;
        for rank in (0..self.size).filter(|rank| *rank != stopped) {
            self.reports(begun, rank, FailureReport::Overdue { seq });
        }
        let row = self.cause("A rank is stopped", begun).await;
        let named = format!("rank {stopped} (host node{:05}) does not answer", stopped / HOST);
        assert!(row.outcome.starts_with(&named), "{}", row.outcome);
        row
    }

    /// The ranks of a rack, as far from rank 0 as possible.
    fn rack(&self) -> Vec<u32> {
        let first = if self.size <= RACK { HOST } else { RACK };
        (first..self.size.min(first + RACK)).collect()
    }
}

/// A line of the table.
pub(super) struct Row {
    size: u32,
    part: &'static str,
    took_ms: u64,
    sent: Traffic,
    received: Traffic,
    outcome: String,
}

impl Row {
    fn line(&self) -> String {
        let mut line = format!("| {} | {} | {} ", self.size, self.part, self.took_ms);
        for Traffic { messages, bytes } in [self.sent, self.received] {
            write!(line, "| {messages} | {:.2} ", bytes as f64 / 1e6).unwrap();
        }
        let short = self.outcome.chars().take(100).collect::<String>();
        write!(line, "| {short} |").unwrap();
        line
    }
}

fn simulated<T>(part: impl Future<Output = T>) -> T {
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime.enable_time().start_paused(true).build().unwrap().block_on(part)
}

/// All parts for a job of so many ranks.
fn rows(size: u32) -> Vec<Row> {
    let joined = async |size| {
        let mut world = World::new(size);
        let row = world.join().await;
        (world, row)
    };
    let mut rows = Vec::new();
    simulated(async {
        let (mut world, joins) = joined(size).await;
        rows.push(joins);
        rows.push(world.exchange().await);
        rows.push(world.deaths("A rank dies", &[size / 2 + 1], false).await);
    });
    simulated(async {
        let mut world = joined(size).await.0;
        rows.push(world.deaths("A rank dies, all report", &[size / 2 + 1], true).await);
    });
    simulated(async {
        let mut world = joined(size).await.0;
        let rack = world.rack();
        rows.push(world.deaths("64 ranks die, all report", &rack, true).await);
    });
    simulated(async { rows.push(joined(size).await.0.rack_off().await) });
    simulated(async { rows.push(joined(size).await.0.stop().await) });
    simulated(async {
        rows.push(joined(size).await.0.regroup("Regroup after a death", &[size / 2 + 1]).await);
    });
    simulated(async {
        rows.push(joined(size).await.0.regroup("Regroup without rank 0", &[0]).await);
    });
    if size > RACK {
        simulated(async { rows.push(joined(size).await.0.part().await) });
        simulated(async { rows.push(joined(size).await.0.part_and_break().await) });
    }
    rows
}

/// Runs all parts, prints the table, and checks what must hold for every job.
fn check(sizes: &[u32]) {
    println!("| Ranks | Part | ms | Sent | MB | Received | MB | Outcome |");
    let mut late = Vec::new();
    for row in sizes.iter().flat_map(|size| rows(*size)) {
        let line = row.line();
        println!("{line}");
        let is_short = ["die", "lose", "stopped"].iter().any(|it| row.part.contains(it));
        let limit_ms = if is_short { 2_000 } else { 10_000 };
        if row.sent.bytes > 100_000_000 || row.took_ms > limit_ms {
            late.push(line);
        }
    }
    assert!(late.is_empty(), "too many bytes or too late: {late:#?}");
}

#[test]
fn joining_and_failing_take_few_bytes_and_little_virtual_time() {
    check(&[64, 1_024]);
    let lines = || rows(1_024).iter().map(Row::line).collect::<Vec<_>>();
    assert_eq!(lines(), lines());
}

/// Rank 0 has as much to do as that of 48,895 ranks.
#[test]
fn a_busy_rank_0_names_the_rank_that_does_not_answer_in_time() {
    simulated(async {
        let mut world = World::new(1_024);
        world.join().await;
        world.slow = 48;
        let row = world.stop().await;
        assert!(row.took_ms < 2_000, "{}", row.line());
    });
}

#[test]
#[ignore = "minutes: see tests/long"]
fn a_control_plane_of_48895_ranks() {
    check(&[64, 1_024, 9_216, 48_895]);
}
