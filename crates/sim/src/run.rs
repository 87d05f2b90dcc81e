//! The loop of events.

use ringfold_collectives::{Program, Stepper};
use ringfold_types::Rank;

use crate::colours::fold;
use crate::event::{Cpu, Event, NoEnd};
use crate::flows::NEVER;
use crate::fold::Fold;
use crate::job::Job;
use crate::network::Routing;
use crate::outcome::Outcome;
use crate::programs::Programs;
use crate::rank::Turn;
use crate::wires::Wires;

/// For each rank that stands for others, so many looks at events pass between two at the progress.
const LOOKS_EACH: usize = 8;

/// Runs the programs of all ranks from the moment at which all begin at once.
///
/// # Errors
/// The call does not end.
///
/// # Panics
/// If there are not as many programs as ranks.
pub fn simulate(job: &Job, programs: &Programs, routing: Routing) -> Result<Outcome, NoEnd> {
    job.progress.begin(1);
    run(job, programs, routing, fold(job, programs, routing))
}

/// The same for the ranks that stand for all.
pub(crate) fn run(
    job: &Job,
    programs: &Programs,
    routing: Routing,
    fold: Fold,
) -> Result<Outcome, NoEnd> {
    let of_ranks = &programs.of_ranks;
    let size = job.layout.size();
    assert_eq!(of_ranks.len(), size, "a program for each rank");
    let mut steppers: Vec<Stepper> = (0..size).map(|_| Stepper::new()).collect();
    for rank in fold.standing() {
        let Some(stepper) = steppers.get_mut(rank.index()) else { continue };
        let program = &of_ranks[rank.index()];
        match job.layout.aggregation() {
            Some(_) => stepper.start_with_provider(program),
            None => stepper.start(program),
        }
    }
    let (mut cpus, mut count, mut now) = (vec![Cpu::default(); size], 0, 0);
    let mut woken: Vec<Rank> = fold.standing().collect();
    let mut wires = Wires::new(job, programs, routing, Some(fold));
    wires.connect_all(programs, &woken);
    let mut events = Vec::new();
    let standing = woken.iter().copied().filter(|rank| rank.index() < size);
    let standing: Vec<usize> = standing.map(Rank::index).collect();
    let all = standing.iter().flat_map(|at| of_ranks[*at].lanes()).map(|lane| lane.len()).sum();
    job.progress.begin(all);
    for look in 1_usize.. {
        // Seldom enough to take no time.
        if look.is_multiple_of(LOOKS_EACH * standing.len()) {
            let left = |at: &usize| left(&steppers[*at], &of_ranks[*at]);
            job.progress.set(all - standing.iter().map(left).sum::<usize>());
        }
        woken.sort_unstable();
        woken.dedup();
        for rank in woken.drain(..) {
            let at = rank.index();
            match steppers.get_mut(at) {
                Some(it) => turn(now, rank, it, &of_ranks[at], &mut cpus[at], &mut wires),
                None => wires.aggregate(now, rank),
            }
        }
        wires.flows.settle(now, &mut wires.queue);
        let Some(at) = wires.take(&mut events) else { break };
        now = at;
        while !events.is_empty() {
            for event in events.drain(..) {
                count += wires.count(event) as u64;
                match event {
                    Event::Arrived(number, bytes) => {
                        woken.push(wires.arrived(number as usize, bytes));
                    }
                    Event::Signalled(rank, lane) => {
                        wires.signalled(rank, lane as usize);
                        woken.extend((0..size).map(Rank::at).filter(|other| *other != rank));
                    }
                    Event::Left(_) if now >= NEVER => return Err(NoEnd::Late),
                    Event::Left(flow) => wires.left(now, flow as usize),
                    Event::Woken(rank) => woken.push(rank),
                }
            }
            wires.queue.take_more(&mut events);
        }
    }
    if let Some(parted) = wires.parted {
        return Err(parted);
    }
    if let Some(at) = steppers.iter().position(|stepper| !stepper.is_done()) {
        return Err(NoEnd::Waiting(Rank::at(at)));
    }
    Ok(Outcome::of(job, programs, &mut wires, &cpus, count))
}

/// The operations that a rank has not done.
fn left(stepper: &Stepper, program: &Program) -> usize {
    stepper.waiting().map(|it| program.lanes()[it.lane].len().saturating_sub(it.at)).sum()
}

/// Lets a rank do what it can until an operation takes time.
fn turn(
    now: u64,
    rank: Rank,
    stepper: &mut Stepper,
    program: &Program,
    cpu: &mut Cpu,
    wires: &mut Wires<'_>,
) {
    if stepper.is_done() || cpu.free > now {
        // It goes on when its CPU is free.
        return;
    }
    let lanes = program.lanes().len().max(1);
    let mut idle = 0;
    while idle < lanes && !stepper.is_done() {
        let mut ports = Turn { rank, now, takes_ps: 0, program, wires };
        let Ok(moved) = stepper.advance_lane(program, cpu.lane, &mut ports, 1);
        let takes_ps = ports.takes_ps;
        if moved {
            idle = 0;
        } else {
            idle += 1;
            cpu.lane = (cpu.lane + 1) % lanes;
        }
        if takes_ps > 0 {
            (cpu.free, cpu.busy_ps) = (now + takes_ps, cpu.busy_ps + takes_ps);
            wires.at(cpu.free, Event::Woken(rank));
            return;
        }
    }
    if stepper.is_done() {
        cpu.free = now;
    }
}
