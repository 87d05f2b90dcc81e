//! Trains for some steps. If a rank fails, a survivor saves the state, and the next job continues.
#![expect(clippy::print_stdout, reason = "the program prints its results")]
#![expect(clippy::print_stderr, reason = "the program prints its errors")]

use std::error::Error;
use std::process::ExitCode;
use std::time::Duration;
use std::{fs, io, thread};

use ringfold::{Communicator, Failure, FailureCause, Rank, ReduceOp};

const FILE: &str = "checkpoint.txt";
const STEPS: u32 = 400;
const TARGET: f32 = 3.0;

/// All that a later job needs.
struct State {
    step: u32,
    weight: f32,
}

impl State {
    fn load() -> io::Result<Self> {
        let text = match fs::read_to_string(FILE) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => "0 0".to_owned(),
            text => text?,
        };
        let (step, weight) = text.trim().split_once(' ').ok_or(io::ErrorKind::InvalidData)?;
        let (step, weight) = (step.parse().ok(), weight.parse().ok());
        let (step, weight) = step.zip(weight).ok_or(io::ErrorKind::InvalidData)?;
        Ok(Self { step, weight })
    }

    /// The file has the earlier state or this one, never a part.
    fn save(&self) -> io::Result<()> {
        let temporary = format!("{FILE}.new");
        fs::write(&temporary, format!("{} {}\n", self.step, self.weight))?;
        fs::rename(&temporary, FILE)
    }
}

fn main() -> Result<ExitCode, Box<dyn Error>> {
    let mut comm = Communicator::init()?;
    let mut state = State { step: 0, weight: 0.0 };
    // Rank 0 alone reads the file, so all ranks begin with the same state.
    if comm.rank() == Rank(0) {
        state = State::load()?;
        println!("begins at step {}", state.step);
    }
    let trained = start(&mut comm, &mut state).and_then(|()| train(&mut comm, &mut state));
    match trained {
        Ok(()) => {
            if comm.rank() == Rank(0) {
                println!("the weight is {:.3} after {} steps", state.weight, state.step);
            }
            comm.leave()?;
            Ok(ExitCode::SUCCESS)
        }
        Err(ringfold::Error::Failed(failure)) => {
            rescue(&comm, &state, &failure)?;
            Ok(ExitCode::FAILURE)
        }
        Err(error) => Err(error.into()),
    }
}

/// Gives all ranks the state of rank 0.
fn start(comm: &mut Communicator, state: &mut State) -> Result<(), ringfold::Error> {
    let mut step = [state.step];
    let mut weight = [state.weight];
    comm.broadcast(&mut step, Rank(0))?;
    comm.broadcast(&mut weight, Rank(0))?;
    *state = State { step: step[0], weight: weight[0] };
    Ok(())
}

fn train(comm: &mut Communicator, state: &mut State) -> Result<(), ringfold::Error> {
    while state.step < STEPS {
        // The buffer of a failed call is undefined. So it is none of the state.
        let mut gradient = [state.weight - TARGET];
        thread::sleep(Duration::from_millis(5));
        comm.all_reduce(&mut gradient, ReduceOp::Avg)?;
        state.weight -= 0.05 * gradient[0];
        state.step += 1;
        if comm.rank() == Rank(0) && state.step == 10 {
            println!("step 10");
        }
    }
    Ok(())
}

/// Saves the state on one survivor. All survivors know the same cause, so they agree on which.
fn rescue(comm: &Communicator, state: &State, failure: &Failure) -> io::Result<()> {
    let lost: Vec<Rank> = match &*failure.cause {
        FailureCause::Died { who } => vec![who.rank],
        FailureCause::Silent { ranks, .. } => ranks.iter().map(|it| it.rank).collect(),
        // The next job would fail in the same way.
        FailureCause::Mismatch { .. }
        | FailureCause::Message { .. }
        | FailureCause::Tags { .. } => return Ok(()),
        _ => Vec::new(),
    };
    let survivors = (0..comm.size()).map(Rank::at).filter(|rank| !lost.contains(rank));
    if survivors.min() == Some(comm.rank()) {
        eprintln!("{failure}");
        state.save()?;
        eprintln!("rank {} has saved step {}", comm.rank(), state.step);
    }
    Ok(())
}
