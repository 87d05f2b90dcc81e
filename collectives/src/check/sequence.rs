//! Calls that follow each other on shared links, signals and staging buffers.

use alloc::vec::Vec;

use super::flaw::{Conditions, Flaw};
use super::provider::Offloading;
use super::shared::Shared;
use super::world::World;
use crate::schedule::Schedule;

/// Proves calls that follow each other. Each has the schedules of all ranks, in rank order. A rank
/// begins its next call when it has ended the one before, independent of its peers. Messages of a
/// later call queue behind those of the earlier ones on their link.
///
/// This covers every timing, as for [`check`](super::check()): a rank's calls are one longer
/// program, and its lanes wait for each other between them.
///
/// # Errors
/// The first flaw that the run meets.
///
/// # Panics
/// If a call has no schedules, or the numbers of ranks differ.
pub fn check_sequence(calls: &[Vec<Schedule>], conditions: Conditions) -> Result<(), Flaw> {
    let mut shared = Shared::before(calls.iter().map(Vec::as_slice), false);
    let has_races = shared.races.is_some();
    let mut worlds: Vec<World<'_>> = Vec::new();
    for (number, schedules) in calls.iter().enumerate() {
        worlds.push(World::of_sequence(
            number,
            schedules,
            conditions,
            Offloading::Always,
            has_races,
        ));
    }
    // The call that each rank is in, and whether it has begun.
    let mut at = alloc::vec![(0, false); shared.links.len()];
    let mut moved = true;
    while core::mem::take(&mut moved) {
        for (index, (number, has_begun)) in at.iter_mut().enumerate() {
            while let Some(world) = worlds.get_mut(*number) {
                core::mem::swap(&mut world.shared, &mut shared);
                if !core::mem::replace(has_begun, true) {
                    world.begin(index);
                }
                let progress = world.advance(index);
                let is_done = world.nodes[index].stepper.is_done();
                if is_done {
                    world.leave(index);
                }
                core::mem::swap(&mut world.shared, &mut shared);
                moved |= progress? || is_done;
                if !is_done {
                    break;
                }
                (*number, *has_begun) = (*number + 1, false);
            }
        }
    }
    for world in &worlds {
        if world.nodes.iter().any(|node| !node.stepper.is_done()) {
            return Err(world.deadlock());
        }
        world.verify_results()?;
    }
    let Some(last) = worlds.last_mut() else { return Ok(()) };
    last.shared = shared;
    last.verify_links()?;
    last.verify_accesses()
}
