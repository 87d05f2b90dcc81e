//! Data-parallel training: every rank computes the gradient of its share of each batch,
//! `all_reduce` sums the gradients, and all ranks take the same step.
//!
//! ```text
//! ringrun -n 4 target/release/examples/train --epochs 30
//! ```
//!
//! A batch has the same images for every number of ranks, so the loss differs only by the order of
//! summation. Rank 0 prints the loss of each epoch and, at the end, the accuracy on the test set.
//!
//! If a rank fails, the others go on in their processes, where the launcher lets them. Under
//! `ringrun --restart 9` a new process takes the place of the dead one, and gets the state of the
//! training from rank 0.
#![expect(clippy::print_stdout, reason = "the program prints its results")]
#![expect(clippy::print_stderr, reason = "the program prints its errors")]

mod data;
mod model;
mod random;

use std::env;
use std::error::Error;
use std::time::Duration;

use ringfold::{Communicator, Rank, ReduceOp};

use crate::data::{Digits, Image};
use crate::model::{Gradient, Model};
use crate::random::Random;

/// The images of a batch, over all ranks.
const BATCH: usize = 64;

/// How long the survivors wait for a new process.
const REPLACEMENT: Duration = Duration::from_secs(10);

fn main() -> Result<(), Box<dyn Error>> {
    let epochs = epochs(env::args().skip(1))?;
    let digits = Digits::load();
    let mut comm = Communicator::init()?;
    let mut training = Training::new();
    while let Err(error) = training.run(&mut comm, &digits, epochs) {
        let ringfold::Error::Failed(failure) = error else { return Err(error.into()) };
        if comm.rank() == Rank(0) {
            eprintln!("goes on after a failure: {}", failure.cause);
        }
        comm = comm.shrink()?;
        // Other launchers start no processes.
        if let Ok(Some(larger)) = comm.wait_for_replacement(REPLACEMENT) {
            comm = larger;
        }
    }
    Ok(())
}

/// The state of the training. A failure finds ranks before and after a step, so all of it moves at
/// once, when the step is sure.
struct Training {
    model: Model,
    epoch: u32,
    /// The next batch of the epoch, and the loss of those before it.
    batch: u32,
    loss: f32,
}

impl Training {
    /// The same seed makes equal models.
    fn new() -> Self {
        Self { model: Model::new(&mut Random::new(1)), epoch: 1, batch: 0, loss: 0.0 }
    }

    /// Trains until the end, from the state of rank 0.
    fn run(
        &mut self,
        comm: &mut Communicator,
        digits: &Digits,
        epochs: u32,
    ) -> Result<(), ringfold::Error> {
        self.share(comm)?;
        while self.epoch <= epochs {
            let loss = self.finish_epoch(comm, &digits.train)?;
            if comm.rank() == Rank(0) {
                println!("epoch {} loss {loss:.6}", self.epoch);
            }
            (self.epoch, self.batch, self.loss) = (self.epoch + 1, 0, 0.0);
        }
        let recognised = recognised(comm, &self.model, &digits.test)?;
        if comm.rank() == Rank(0) {
            let (images, ranks) = (digits.test.len(), comm.size());
            let accuracy = f64::from(recognised) / images as f64;
            println!("accuracy {accuracy:.4} ({recognised} of {images}) with {ranks} ranks");
        }
        Ok(())
    }

    /// Gives all ranks the state of rank 0.
    fn share(&mut self, comm: &mut Communicator) -> Result<(), ringfold::Error> {
        let mut values = self.model.values().to_vec();
        // A broadcast keeps all bits.
        values.extend([f32::from_bits(self.epoch), f32::from_bits(self.batch), self.loss]);
        comm.broadcast(&mut values, Rank(0))?;
        if let [model @ .., epoch, batch, loss] = &values[..] {
            self.model.set_values(model);
            (self.epoch, self.batch, self.loss) = (epoch.to_bits(), batch.to_bits(), *loss);
        }
        Ok(())
    }

    /// Learns from the rest of `images`, and returns the mean loss of the epoch.
    fn finish_epoch(
        &mut self,
        comm: &mut Communicator,
        images: &[Image],
    ) -> Result<f32, ringfold::Error> {
        let mut order: Vec<&Image> = images.iter().collect();
        Random::new(1 + u64::from(self.epoch)).shuffle(&mut order);
        let mut gradient = Gradient::zero();
        for batch in order.chunks(BATCH).skip(self.batch as usize) {
            gradient.clear();
            for image in batch.iter().skip(comm.rank().index()).step_by(comm.size()) {
                self.model.learn(image, &mut gradient);
            }
            comm.all_reduce(gradient.values_mut(), ReduceOp::Sum)?;
            self.model.step(&gradient, batch.len());
            self.batch += 1;
            self.loss += gradient.loss();
        }
        Ok(self.loss / images.len() as f32)
    }
}

/// The number of images that all ranks together recognise. Each rank tests its share.
fn recognised(
    comm: &mut Communicator,
    model: &Model,
    images: &[Image],
) -> Result<u32, ringfold::Error> {
    let share = images.iter().skip(comm.rank().index()).step_by(comm.size());
    let mut recognised = [0_u32];
    for image in share {
        recognised[0] += u32::from(model.guess(image) == image.label);
    }
    comm.all_reduce(&mut recognised, ReduceOp::Sum)?;
    Ok(recognised[0])
}

/// The number of epochs: that after `--epochs`, or 30.
fn epochs(mut args: impl Iterator<Item = String>) -> Result<u32, Box<dyn Error>> {
    match (args.next().as_deref(), args.next(), args.next()) {
        (None, ..) => Ok(30),
        (Some("--epochs"), Some(number), None) => Ok(number.parse()?),
        _ => Err("usage: train [--epochs NUMBER]".into()),
    }
}
