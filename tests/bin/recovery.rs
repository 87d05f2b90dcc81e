//! Ranks that go on after failures, by smaller and smaller communicators, or by new ranks.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::path::Path;
use std::time::{Duration, Instant};

use ringfold::{Communicator, Error, FailureCause, Rank, ReduceOp};

/// How long the survivors wait for a new rank.
const REPLACEMENT: Duration = Duration::from_secs(5);

/// All-reduces known numbers, and shrinks after each failure, until the file `stop` exists. Prints
/// each epoch with the identities of its ranks. With `replaces` it waits for new ranks too.
pub(super) fn survive(mut comm: Communicator, stop: &str, replaces: bool) -> Result<(), Error> {
    println!("pid {}", std::process::id());
    println!("started");
    if comm.epoch() > 0 {
        tell(&comm, Instant::now());
    }
    loop {
        match work(&mut comm, Path::new(stop)) {
            Ok(()) => return Ok(()),
            Err(Error::Failed(failure)) => println!("cause {}", failure.cause),
            Err(error) => return Err(error),
        }
        let began = Instant::now();
        let mut next = comm.shrink()?;
        if replaces {
            match next.wait_for_replacement(REPLACEMENT) {
                Ok(Some(larger)) => next = larger,
                Ok(None) => println!("alone"),
                Err(Error::Failed(failure)) => println!("cause {}", failure.cause),
                Err(error) => return Err(error),
            }
        }
        tell(&next, began);
        comm = next;
    }
}

/// Prints the epoch of a communicator, the identities of its ranks and their hosts.
fn tell(comm: &Communicator, began: Instant) {
    let identities: Vec<String> =
        (0..comm.size()).map(|rank| comm.identity(Rank::at(rank)).to_string()).collect();
    let (epoch, took) = (comm.epoch(), began.elapsed().as_micros());
    println!("epoch {epoch} of {} in {took} us", identities.join(" "));
    let host = |rank| comm.layout().host(Rank::at(rank)).to_string();
    println!("hosts {}", (0..comm.size()).map(host).collect::<Vec<_>>().join(" "));
}

/// Agrees on flags until the file `stop` exists for a rank. Each flag lacks the bit of its rank,
/// so that a value tells whose flags count. Rank 1 revokes the communicator meanwhile. Prints the
/// number of values with a hash of them, and the number of ranks that go on.
pub(super) fn agree(mut comm: Communicator, stop: &str) -> Result<(), Error> {
    const END: u64 = 1 << 63;
    println!("started");
    let (own, all) = (1 << comm.rank().0, (1 << comm.size()) - 1);
    let (mut count, mut hash, mut counted) = (0, DefaultHasher::new(), all);
    loop {
        let is_over = Path::new(stop).exists();
        let value = comm.agree(!own & if is_over { !END } else { u64::MAX })?;
        value.hash(&mut hash);
        count += 1;
        let now = !value & all;
        assert!(now & own != 0 && now & !counted == 0, "{now:b} of {counted:b}");
        if count == 5 {
            if comm.rank().0 == 1 {
                comm.revoke();
            }
            // The test kills ranks only when all know that cause.
            is_revoked(&mut comm);
        }
        if now != counted || count == 5 {
            println!("counted {now:b}");
        }
        counted = now;
        if value & END == 0 {
            break;
        }
    }
    is_revoked(&mut comm);
    let next = comm.shrink()?;
    println!("agreed {count} values {:x}, {} ranks go on", hash.finish(), next.size());
    Ok(())
}

/// Calls until a call fails, as it must because somebody revokes the communicator.
fn is_revoked(comm: &mut Communicator) {
    let failure = loop {
        match comm.barrier() {
            Ok(()) => {}
            Err(Error::Failed(failure)) => break failure,
            Err(other) => panic!("it was revoked: {other}"),
        }
    };
    assert!(matches!(*failure.cause, FailureCause::Revoked { .. }), "{failure}");
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
