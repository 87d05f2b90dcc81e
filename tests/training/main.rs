//! A real training job: the curve of its loss and what it has learned do not depend on how many
//! ranks share the work, nor on how they are connected, but for the order of summation.

use std::process::Command;
use std::time::Duration;

use ringfold_tests::{Job, program};

/// Enough to learn, and for a wrong gradient to show.
const EPOCHS: usize = 12;

/// Relative difference between two losses of one epoch. Rounding is about 1e-7 a step and grows
/// from step to step.
const LOSS_TOLERANCE: f64 = 1e-4;

/// Difference between two accuracies: one of the 359 held-out images may sit on the fence.
const ACCURACY_TOLERANCE: f64 = 1.5 / 359.0;

/// The share of held-out images that are recognised after `EPOCHS`.
const ACCURACY_MIN: f64 = 0.95;

/// Longer than any machine takes, shorter than anyone waits.
const LIMIT: Duration = Duration::from_secs(240);

/// What a training job prints.
#[derive(Debug)]
struct Learned {
    /// By epoch.
    losses: Vec<f64>,
    accuracy: f64,
}

/// Trains on so many ranks.
fn train(ranks: usize, transport: &str) -> Learned {
    let job = Job::start(
        Command::new(program::binary("ringrun"))
            .args(["-n", &ranks.to_string()])
            .arg(program::example("train"))
            .args(["--epochs", &EPOCHS.to_string()])
            .env("RINGFOLD_TRANSPORT", transport),
    );
    let outcome = job.finish(LIMIT);
    assert!(outcome.status.success(), "{ranks} ranks over {transport}: {outcome:?}");
    learned(&outcome.stdout)
}

fn learned(text: &str) -> Learned {
    let number = |line: &str, index| {
        let word = line.split(' ').nth(index).unwrap_or_default();
        word.parse::<f64>().unwrap_or_else(|_| panic!("{word:?} is no number in {line:?}"))
    };
    let lines = |word: &'static str| text.lines().filter(move |line| line.starts_with(word));
    let accuracies: Vec<_> = lines("accuracy ").map(|line| number(line, 1)).collect();
    let [accuracy] = accuracies[..] else { panic!("not one accuracy in\n{text}") };
    Learned { losses: lines("epoch ").map(|line| number(line, 3)).collect(), accuracy }
}

fn the_same_is_learned_over(transport: &str) {
    let alone = train(1, transport);
    assert_eq!(alone.losses.len(), EPOCHS);
    assert!(alone.losses.last() < alone.losses.first(), "{alone:?}");
    assert!(alone.accuracy >= ACCURACY_MIN, "{alone:?}");
    for ranks in [2, 3, 4] {
        let together = train(ranks, transport);
        assert_eq!(together.losses.len(), EPOCHS);
        for (a, b) in alone.losses.iter().zip(&together.losses) {
            let off = (a - b).abs() / a;
            assert!(off <= LOSS_TOLERANCE, "{ranks} ranks: {b}, alone: {a}");
        }
        let off = (alone.accuracy - together.accuracy).abs();
        assert!(off <= ACCURACY_TOLERANCE, "{ranks} ranks: {together:?}, alone: {alone:?}");
    }
}

#[test]
fn the_same_is_learned_over_shared_memory() {
    the_same_is_learned_over("shm");
}

#[test]
fn the_same_is_learned_over_tcp() {
    the_same_is_learned_over("tcp");
}
