//! Data-parallel training: every rank computes the gradient of its share of each batch,
//! `all_reduce` sums the gradients, and all ranks take the same step.
//!
//! ```text
//! ringrun -n 4 target/release/examples/train --epochs 30
//! ```
//!
//! A batch has the same images for every number of ranks, so the loss differs only by the order of
//! summation. Rank 0 prints the loss of each epoch and, at the end, the accuracy on the test set.
#![expect(clippy::print_stdout, reason = "the program prints its results")]

mod data;
mod model;
mod random;

use std::env;
use std::error::Error;

use ringfold::{Communicator, Rank, ReduceOp};

use crate::data::{Digits, Image};
use crate::model::{Gradient, Model};
use crate::random::Random;

/// The images of a batch, over all ranks.
const BATCH: usize = 64;

fn main() -> Result<(), Box<dyn Error>> {
    let epochs = epochs(env::args().skip(1))?;
    let digits = Digits::load();
    let mut comm = Communicator::init()?;

    let mut random = Random::new(1);
    let mut model = Model::new(&mut random);
    // The same seed makes equal models. A model that one rank reads from a file needs this
    // broadcast.
    comm.broadcast(model.parameters_mut(), Rank(0))?;

    let mut order: Vec<&Image> = digits.train.iter().collect();
    for epoch in 1..=epochs {
        random.shuffle(&mut order);
        let loss = train(&mut comm, &mut model, &order)?;
        if comm.rank() == Rank(0) {
            println!("epoch {epoch} loss {loss:.6}");
        }
    }

    let recognised = recognised(&mut comm, &model, &digits.test)?;
    if comm.rank() == Rank(0) {
        let (images, ranks) = (digits.test.len(), comm.size());
        let accuracy = f64::from(recognised) / images as f64;
        println!("accuracy {accuracy:.4} ({recognised} of {images}) with {ranks} ranks");
    }
    Ok(())
}

/// Goes once through `images` and returns the mean loss.
fn train(
    comm: &mut Communicator,
    model: &mut Model,
    images: &[&Image],
) -> Result<f32, ringfold::Error> {
    let mut gradient = Gradient::zero();
    let mut loss = 0.0;
    for batch in images.chunks(BATCH) {
        gradient.clear();
        for image in batch.iter().skip(comm.rank().index()).step_by(comm.size()) {
            model.learn(image, &mut gradient);
        }
        comm.all_reduce(gradient.values_mut(), ReduceOp::Sum)?;
        model.step(&gradient, batch.len());
        loss += gradient.loss();
    }
    Ok(loss / images.len() as f32)
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
fn epochs(mut args: impl Iterator<Item = String>) -> Result<usize, Box<dyn Error>> {
    match (args.next().as_deref(), args.next(), args.next()) {
        (None, ..) => Ok(30),
        (Some("--epochs"), Some(number), None) => Ok(number.parse()?),
        _ => Err("usage: train [--epochs NUMBER]".into()),
    }
}
