//! A training job. Its losses and its accuracy do not depend on the number of ranks or on the
//! transport, except for the order of summation.

use std::collections::BTreeMap;
use std::process::Command;
use std::time::Duration;

use ringfold_harness::{Job, kill, program};
use rustix::process::Signal;

/// Enough epochs to learn, and to show a wrong gradient.
const EPOCHS: usize = 12;

/// Allowed relative difference between two losses of one epoch. Rounding is about 1e-7 in a step
/// and grows with each step.
const LOSS_TOLERANCE: f64 = 1e-4;

/// Allowed difference between two accuracies: one of the 359 held-out images.
const ACCURACY_TOLERANCE: f64 = 1.5 / 359.0;

/// The least share of held-out images that are recognised after `EPOCHS`.
const ACCURACY_MIN: f64 = 0.95;

/// The deadline of a job.
const LIMIT: Duration = Duration::from_secs(240);

/// The output of a training job.
#[derive(Debug)]
struct Learned {
    /// The loss of each epoch.
    losses: Vec<f64>,
    accuracy: f64,
}

fn train(ranks: usize, transport: &str) -> Learned {
    trained(ranks, transport, EPOCHS)
}

/// Trains on a number of ranks.
fn trained(ranks: usize, transport: &str, epochs: usize) -> Learned {
    let job = Job::start(
        Command::new(program::binary("ringrun"))
            .args(["-n", &ranks.to_string()])
            .arg(program::example("train"))
            .args(["--epochs", &epochs.to_string()])
            .env("RINGFOLD_TRANSPORT", transport),
    );
    let outcome = job.finish(LIMIT);
    assert!(outcome.status.success(), "{ranks} ranks over {transport}: {outcome:?}");
    learned(&outcome.stdout)
}

fn learned(text: &str) -> Learned {
    let number = |line: &str, index| {
        let word = line.split(' ').nth(index).unwrap_or_default();
        word.parse::<f64>().unwrap_or_else(|_| panic!("{word:?} is not a number in {line:?}"))
    };
    let lines = |word: &'static str| text.lines().filter(move |line| line.starts_with(word));
    let accuracies: Vec<_> = lines("accuracy ").map(|line| number(line, 1)).collect();
    let [accuracy] = accuracies[..] else { panic!("there must be one accuracy in\n{text}") };
    Learned { losses: lines("epoch ").map(|line| number(line, 3)).collect(), accuracy }
}

fn training_is_the_same_over(transport: &str) {
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
fn training_is_the_same_over_shared_memory() {
    training_is_the_same_over("shm");
}

#[test]
fn training_is_the_same_over_tcp() {
    training_is_the_same_over("tcp");
}

/// A rank is killed three times, rank 0 among them. New processes take their places, the others go
/// on in theirs, and the model is the one of a training without failures.
#[test]
fn training_goes_on_after_failures() {
    let epochs = 5 * EPOCHS;
    let train = program::example("train");
    let mut command = Command::new(program::binary("ringrun"));
    command.args(["-n", "4", "--restart", "9", "--tag-output"]);
    command.args(["sh", "-c", "echo pid $$; exec \"$@\"", "sh"]).arg(&train);
    let job = Job::start(command.args(["--epochs", &epochs.to_string()]));
    let (mut pids, mut starts) = (BTreeMap::new(), Vec::new());
    let (mut losses, mut kills) = (BTreeMap::new(), vec![(20, 1), (10, 0), (2, 2)]);
    let accuracy = loop {
        let line = job.lines(1).remove(0);
        let Some((rank, said)) = line.strip_prefix('[').and_then(|it| it.split_once(']')) else {
            continue;
        };
        let rank: u32 = rank.trim().parse().unwrap();
        match said.split_whitespace().collect::<Vec<_>>()[..] {
            ["pid", pid] => {
                pids.insert(rank, pid.parse::<u32>().unwrap());
                starts.push(rank);
            }
            ["epoch", epoch, "loss", loss] => {
                let epoch: usize = epoch.parse().unwrap();
                losses.insert(epoch, loss.parse::<f64>().unwrap());
                if let Some((_, victim)) = kills.pop_if(|(after, _)| epoch >= *after) {
                    kill(pids[&victim], Signal::KILL);
                }
            }
            ["accuracy", accuracy, ..] => break accuracy.parse::<f64>().unwrap(),
            _ => {}
        }
    };
    let outcome = job.finish(LIMIT);
    assert!(outcome.status.success(), "{outcome:?}");
    assert_eq!(starts.split_off(4), [2, 0, 1], "each dead rank, and no other, starts again");
    let alone = trained(1, "shm", epochs);
    assert_eq!(losses.len(), epochs);
    for (a, b) in alone.losses.iter().zip(losses.values()) {
        assert!((a - b).abs() / a <= LOSS_TOLERANCE, "after failures: {b}, without: {a}");
    }
    assert!((alone.accuracy - accuracy).abs() <= ACCURACY_TOLERANCE, "{accuracy}: {alone:?}");
}
