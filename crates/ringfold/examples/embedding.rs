//! Ranks without a launcher: a program that starts its workers itself.
//!
//! ```text
//! target/release/examples/embedding 4
//! ```
//!
//! The program is rank 0. It makes a unique id, starts the other ranks as child processes, and
//! passes the id over their standard input. A program with workers on other hosts passes the text
//! of the id by its own connections instead.
#![expect(clippy::print_stdout, reason = "the program prints its result")]

use std::env;
use std::error::Error;
use std::io::{Write as _, stdin};
use std::process::{Command, Stdio};

use ringfold::{Communicator, Config, Rank, ReduceOp, UniqueId};

/// The first argument of a child process; its rank and the number of ranks follow.
const WORKER: &str = "--worker";

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        [WORKER, rank, size] => {
            let mut id = String::new();
            stdin().read_line(&mut id)?;
            work(&id.parse()?, rank.parse()?, size.parse()?)
        }
        [] => start(4),
        [size] => start(size.parse()?),
        _ => Err("usage: embedding [RANKS]".into()),
    }
}

/// Starts the other ranks, and works as rank 0.
fn start(size: usize) -> Result<(), Box<dyn Error>> {
    let id = UniqueId::new(&Config::from_env()?)?;
    let mut workers = Vec::new();
    for rank in 1..size {
        let mut command = Command::new(env::current_exe()?);
        command.args([WORKER, &rank.to_string(), &size.to_string()]);
        let mut worker = command.stdin(Stdio::piped()).spawn()?;
        let mut input = worker.stdin.take().ok_or("the worker has no standard input")?;
        writeln!(input, "{id}")?;
        workers.push(worker);
    }
    work(&id, Rank(0), size)?;
    for mut worker in workers {
        let status = worker.wait()?;
        if !status.success() {
            return Err(format!("a worker failed: {status}").into());
        }
    }
    Ok(())
}

fn work(id: &UniqueId, rank: Rank, size: usize) -> Result<(), Box<dyn Error>> {
    let mut comm = Communicator::init_with_id(&Config::from_env()?, id, rank, size)?;
    let mut sum = [rank.0];
    comm.all_reduce(&mut sum, ReduceOp::Sum)?;
    if rank == Rank(0) {
        println!("{} ranks without a launcher: the sum is {}", comm.size(), sum[0]);
    }
    Ok(comm.leave()?)
}
