//! Ranks that go on after failures, by smaller and smaller communicators.

use std::path::Path;
use std::time::Instant;

use ringfold::{Communicator, Error, Rank, ReduceOp};

/// All-reduces known numbers, and shrinks after each failure, until the file `stop` exists. Prints
/// each epoch with the identities of its ranks.
pub(super) fn survive(mut comm: Communicator, stop: &str) -> Result<(), Error> {
    println!("started");
    loop {
        match work(&mut comm, Path::new(stop)) {
            Ok(()) => return Ok(()),
            Err(Error::Failed(failure)) => println!("cause {}", failure.cause),
            Err(error) => return Err(error),
        }
        let began = Instant::now();
        let next = comm.shrink()?;
        let identities: Vec<String> =
            (0..next.size()).map(|rank| next.identity(Rank::at(rank)).to_string()).collect();
        let (epoch, took) = (next.epoch(), began.elapsed().as_micros());
        println!("epoch {epoch} of {} in {took} us", identities.join(" "));
        comm = next;
    }
}

/// Adds up the identities of the ranks, until the file `stop` exists for rank 0.
fn work(comm: &mut Communicator, stop: &Path) -> Result<(), Error> {
    let own = f64::from(comm.identity(comm.rank()).0);
    let all: f64 = (0..comm.size()).map(|rank| f64::from(comm.identity(Rank::at(rank)).0)).sum();
    let mut values = vec![0.0; 1 << 12];
    loop {
        values.fill(own);
        comm.all_reduce(&mut values, ReduceOp::Sum)?;
        assert!(values.iter().all(|value| *value == all), "the sum of {all}");
        let mut is_over = [u8::from(stop.exists())];
        comm.broadcast(&mut is_over, Rank(0))?;
        if is_over == [1] {
            return Ok(());
        }
    }
}
