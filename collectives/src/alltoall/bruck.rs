//! Bruck: blocks for many ranks travel together, and reach their ranks in a logarithmic number of
//! rounds. For short messages.
//!
//! The digits of a block's distance, in a radix k, are its route. For each place of the digits, the
//! highest first, there is a round. In it a rank sends one message for each digit but 0, with all
//! blocks whose distance has this digit there, to the rank as far away as the digit's value. A
//! block that has further to go waits in scratch. The last message of its route puts it into place.
//!
//! The price is that blocks are sent several times, and packed each time. A small radix takes few
//! messages, and a large one few rounds and bytes. The cheapest for the call is used.
//!
//! In each round a rank waits only for messages of the same or an earlier round, and for the
//! receivers of its own messages in the round before.
//!
//! Steps: ceil(log n), in the radix. Sent by each rank: each block once for each digit of its
//! distance that is not 0.
//!
//! Source: Bruck, Ho, Kipnis, Upfal and Weathersby, "Efficient algorithms for all-to-all
//! communications in multiport message-passing systems", 1997.

use ringfold_topology::{Layout, Order};
use ringfold_types::{Call, Collective, Slice};

use super::linear::Blocks;
use crate::algorithm::{Algorithm, Moved, Needs, Pattern, ScheduleParams, Stated};
use crate::cost::cheapest;
use crate::pattern::digits::{moved, weights};
use crate::pattern::ring;
use crate::rails;
use crate::schedule::{Builder, Schedule};

pub(super) const ALGORITHM: Algorithm = Algorithm {
    pattern: Pattern::Variants(&RADICES),
    schedule: |plan| (cheapest(&RADICES, &plan.call, plan.layout).schedule)(plan),
    stated: |call, layout| (cheapest(&RADICES, call, layout).stated)(call, layout),
    stays_on_rail: |call, layout| (cheapest(&RADICES, call, layout).stays_on_rail)(call, layout),
    ..of_radix::<2>()
};

const RADICES: [Algorithm; 4] =
    [of_radix::<2>(), of_radix::<3>(), of_radix::<4>(), of_radix::<8>()];

const fn of_radix<const RADIX: usize>() -> Algorithm {
    Algorithm {
        collective: Collective::AllToAll,
        name: "bruck",
        needs: Needs::Links,
        pattern: Pattern::Rounds(|size| routes(size, RADIX).count()),
        schedule: schedule::<RADIX>,
        stated: stated::<RADIX>,
        // Every block that a rank sends is packed before.
        moved: Moved::sums,
        stays_on_rail: |_, layout| {
            let distances = routes(layout.size(), RADIX).map(|(weight, digit)| weight * digit);
            rails::around(layout, &Order::default(), distances)
        },
    }
}

/// The messages of a rank, as the weight and the digit of the blocks in each.
fn routes(size: usize, radix: usize) -> impl Iterator<Item = (usize, usize)> {
    let of_round = move |weight| (1..radix).map(move |digit| (weight, digit));
    let is_used = move |(weight, digit): &(usize, usize)| weight * digit < size;
    weights(size, radix).flat_map(of_round).filter(is_used)
}

fn stated<const RADIX: usize>(call: &Call, layout: &Layout) -> Stated {
    let size = layout.size();
    let of_route = |(weight, digit)| moved(size, RADIX, weight, digit).count();
    let blocks: usize = routes(size, RADIX).map(of_route).sum();
    Stated { steps: weights(size, RADIX).count(), sent: blocks * call.count }
}

fn schedule<const RADIX: usize>(plan: &ScheduleParams<'_>) -> Schedule {
    let (size, rank, count) = (plan.size(), plan.rank, plan.call.count);
    let mut steps = Builder::new(plan, ALGORITHM.name, 1);
    let blocks = Blocks::of(plan);
    let round = |weight| (1..RADIX).flat_map(move |digit| moved(size, RADIX, weight, digit));
    let longest = weights(size, RADIX).map(|weight| round(weight).count()).max().unwrap_or(0);
    let packed = steps.elements(longest * count);
    let waiting = steps.elements(if size > RADIX { size * count } else { 0 });
    let waits = |distance: usize| waiting.skip(distance * count).take(count);
    for weight in weights(size, RADIX) {
        let mut free = packed;
        for digit in 1..RADIX {
            let blocks = moved(size, RADIX, weight, digit).map(|distance| {
                // Before its first message a block is in the input.
                let is_first = distance < weight * RADIX;
                let input = || blocks.to(ring::after(rank, distance, size));
                if is_first { input() } else { waits(distance) }
            });
            let message = steps.pack(blocks, free);
            free = free.skip(message.len);
            steps.send(ring::after(rank, digit * weight, size), message);
        }
        for digit in 1..RADIX {
            let from = ring::before(rank, digit * weight, size);
            for distance in moved(size, RADIX, weight, digit) {
                let is_last = distance.is_multiple_of(weight);
                let output = || blocks.from(ring::before(rank, distance, size));
                steps.recv(from, if is_last { output() } else { waits(distance) });
            }
        }
    }
    let own: [Slice; 2] = [blocks.to(rank), blocks.from(rank)];
    steps.copy(own[0], own[1]);
    steps.build()
}
