//! The result of a simulated call.

use ringfold_topology::Level;
use ringfold_types::Rank;

use crate::event::Cpu;
use crate::job::Job;
use crate::programs::Programs;
use crate::whole::whole;
use crate::wires::Wires;

/// The result of a simulated call. Times are in picoseconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Outcome {
    /// Until the last rank has ended.
    pub time_ps: u64,
    /// The part of the time in which the CPUs of the ranks had nothing to do, in the mean.
    pub idle: f64,
    /// Bytes of messages, by the level that they cross.
    pub levels: [usize; Level::ALL.len()],
    /// The links of the fabric that carried anything: those first that held the call up longest.
    pub links: Vec<LinkUse>,
    /// Number of events.
    pub events: u64,
    /// `Programs::chunks` and `Programs::rounds`.
    pub chunks: usize,
    /// Both are 1 unless the programs were made coarser.
    pub rounds: usize,
    /// The ranks that were simulated. Each stands for all that do the same at the same time.
    pub standing: usize,
}

/// The use of a direction of a cable.
#[derive(Clone, Debug, PartialEq)]
pub struct LinkUse {
    /// Its name: from where to where.
    pub name: String,
    /// Bytes that it carried.
    pub bytes: u64,
    /// Its bytes over those that it could have carried in the time of the call.
    pub used: f64,
    /// The time for which it was full while it had messages of the call.
    pub full_ps: u64,
}

impl Outcome {
    pub(crate) fn of(
        job: &Job,
        programs: &Programs,
        wires: &mut Wires<'_>,
        cpus: &[Cpu],
        events: u64,
    ) -> Self {
        let time_ps = cpus.iter().map(|cpu| cpu.free).max().unwrap_or(0);
        let ranks = (0..cpus.len()).map(Rank::at);
        let busy: u64 = ranks.map(|rank| cpus[wires.fold.rank(rank).index()].busy_ps).sum();
        let all = time_ps.saturating_mul(cpus.len() as u64).max(1);
        let mut links: Vec<LinkUse> = Vec::new();
        let all_used = wires.flows.used(time_ps);
        for (number, link) in job.network.links().iter().enumerate() {
            let used = all_used[wires.fold.link(number)];
            if used.bytes >= 0.5 {
                let could = link.rate as f64 * time_ps as f64 / 1e12;
                let (name, bytes) = (link.name.clone(), whole(used.bytes));
                let part = if could > 0.0 { used.bytes / could } else { 0.0 };
                links.push(LinkUse { name, bytes, used: part, full_ps: used.full_ps });
            }
        }
        links.sort_by_key(|it| (std::cmp::Reverse(it.full_ps), std::cmp::Reverse(it.bytes)));
        let idle = 1.0 - busy as f64 / all as f64;
        let Programs { chunks, rounds, .. } = *programs;
        let standing = wires.fold.standing().filter(|rank| rank.index() < cpus.len()).count();
        let levels = wires.levels;
        Self { time_ps, idle, levels, links, events, chunks, rounds, standing }
    }
}
