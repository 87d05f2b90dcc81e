//! Key-value stores of callers, by which ranks meet without a launcher.

use std::error::Error as StdError;
use std::thread;
use std::time::{Duration, Instant};

use ringfold_bootstrap::{JoinError, ParentGroup};
use ringfold_types::{Chain, Rank};

use crate::config::Config;
use crate::error::Error;
use crate::setup::InitError;
use crate::unique_id::UniqueId;

/// The beginning of every key, with the version of the keys and values.
const PREFIX: &str = "ringfold/1";

/// The beginning of the value that stands in place of an id if rank 0 has failed. Its reason
/// follows.
const FAILED: &str = "failed: ";

/// The shortest and the longest pause between two looks at a key. It is an eighth of the wait.
const PAUSES: (Duration, Duration) = (Duration::from_micros(100), Duration::from_millis(20));

/// The error of a caller's store, of any type.
pub type StoreError = Box<dyn StdError + Send + Sync>;

/// A key-value store that all ranks of a group share, such as torch's `Store` or etcd.
///
/// [`Communicator::init_with_store`](crate::Communicator::init_with_store) makes a group of ranks
/// that share one. It calls these methods on the caller's thread. The store holds the secret of the
/// group, so only the ranks may read it.
pub trait KeyValueStore {
    /// Stores `value` under `key`, in place of an earlier value. Returns when any rank would read
    /// the new value.
    ///
    /// # Errors
    /// The store did not accept the value.
    fn set(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError>;

    /// The value under `key`, or `None` if no rank has set it. Does not wait for the key.
    ///
    /// # Errors
    /// The store did not answer.
    fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>, StoreError>;

    /// Waits until a rank has set `key`, for at most `timeout`, and returns its value.
    ///
    /// # Errors
    /// The time is over, or the store did not answer.
    fn wait(&mut self, key: &str, timeout: Duration) -> Result<Vec<u8>, StoreError>;
}

impl<S: KeyValueStore + ?Sized> KeyValueStore for &mut S {
    fn set(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError> {
        (**self).set(key, value)
    }

    fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
        (**self).get(key)
    }

    fn wait(&mut self, key: &str, timeout: Duration) -> Result<Vec<u8>, StoreError> {
        (**self).wait(key, timeout)
    }
}

/// Shares a fresh unique id among the `size` ranks of a store, which then `join` by it in the time
/// that is left. Rank 0 makes and publishes it, and the other ranks wait for it. If rank 0 fails,
/// it publishes the reason.
///
/// Each rank counts its groups in the store, so the n-th of one rank meets the n-th of the others.
/// The ranks may be some of a `parent` group.
pub(crate) fn share_id<T>(
    config: &Config,
    mut store: impl KeyValueStore,
    (rank, size): (Rank, usize),
    parent: Option<&ParentGroup>,
    join: impl FnOnce(UniqueId, Duration) -> Result<T, Error>,
) -> Result<T, Error> {
    if rank.index() >= size {
        return Err(InitError::from(JoinError::Invalid { rank, size }).into());
    }
    let began = Instant::now();
    let failed = |action, key: &str| {
        let key = key.to_owned();
        move |source| InitError::Store { rank, action, key, source }
    };
    let joins = format!("{PREFIX}/joins/{rank}");
    let count = store.get(&joins).map_err(failed("get", &joins))?;
    let count = count.map_or(Ok(0), |text| parse(&text)).map_err(failed("read", &joins))?;
    let next = (u64::from(count) + 1).to_string();
    store.set(&joins, next.as_bytes()).map_err(failed("set", &joins))?;
    let key = format!("{PREFIX}/id/{count}");
    if rank == Rank(0) {
        let joined = UniqueId::new(config).and_then(|id| {
            store.set(&key, id.to_string().as_bytes()).map_err(failed("set", &key))?;
            join(id, config.join_timeout)
        });
        if let Err(error) = &joined {
            let told = store.set(&key, format!("{FAILED}{}", Chain(error)).as_bytes());
            told.unwrap_or_else(|e| tracing::debug!("rank 0 told nobody that it failed: {e}"));
        }
        return joined;
    }
    let text = match parent {
        None => store.wait(&key, config.join_timeout).map_err(failed("wait for", &key))?,
        Some(parent) => loop {
            if let Some(text) = store.get(&key).map_err(failed("get", &key))? {
                break text;
            }
            if let Some(error) = parent.error(rank) {
                return Err(InitError::from(error).into());
            }
            let (waited, limit) = (began.elapsed(), config.join_timeout);
            if waited >= limit {
                let late = format!("no value within {limit:?}").into();
                return Err(failed("wait for", &key)(late).into());
            }
            thread::sleep((waited / 8).clamp(PAUSES.0, PAUSES.1));
        },
    };
    if let Some(reason) = text.strip_prefix(FAILED.as_bytes()) {
        let reason = String::from_utf8_lossy(reason).into_owned();
        return Err(InitError::from(JoinError::Peer { peer: Rank(0), reason }).into());
    }
    let id = parse_id(&text).map_err(failed("read", &key))?;
    join(id, config.join_timeout.saturating_sub(began.elapsed()))
}

fn parse(text: &[u8]) -> Result<u32, StoreError> {
    Ok(std::str::from_utf8(text)?.parse()?)
}

fn parse_id(text: &[u8]) -> Result<UniqueId, StoreError> {
    Ok(std::str::from_utf8(text)?.parse()?)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::{Arc, Condvar, Mutex};

    use ringfold_types::ReduceOp;

    use super::*;
    use crate::communicator::Communicator;

    type Values = BTreeMap<String, Vec<u8>>;

    /// A store of the threads of this process.
    #[derive(Clone, Default)]
    struct Memory(Arc<(Mutex<Values>, Condvar)>);

    impl KeyValueStore for Memory {
        fn set(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError> {
            self.0.0.lock().unwrap().insert(key.to_owned(), value.to_owned());
            self.0.1.notify_all();
            Ok(())
        }

        fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
            Ok(self.0.0.lock().unwrap().get(key).cloned())
        }

        fn wait(&mut self, key: &str, timeout: Duration) -> Result<Vec<u8>, StoreError> {
            let all = self.0.0.lock().unwrap();
            let is_missing = |all: &mut Values| !all.contains_key(key);
            let (all, _) = self.0.1.wait_timeout_while(all, timeout, is_missing).unwrap();
            all.get(key).cloned().ok_or_else(|| format!("no value within {timeout:?}").into())
        }
    }

    /// A store that fails at keys with this text.
    struct Broken(Memory, &'static str);

    impl Broken {
        fn check(&self, key: &str) -> Result<(), StoreError> {
            if key.contains(self.1) { Err("the store is down".into()) } else { Ok(()) }
        }
    }

    impl KeyValueStore for Broken {
        fn set(&mut self, key: &str, value: &[u8]) -> Result<(), StoreError> {
            self.check(key)?;
            self.0.set(key, value)
        }

        fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>, StoreError> {
            self.check(key)?;
            self.0.get(key)
        }

        fn wait(&mut self, key: &str, timeout: Duration) -> Result<Vec<u8>, StoreError> {
            self.check(key)?;
            self.0.wait(key, timeout)
        }
    }

    fn config(seconds: u64) -> Config {
        Config { join_timeout: Duration::from_secs(seconds), ..Config::default() }
    }

    fn failure(store: impl KeyValueStore, rank: u32) -> (String, String) {
        let error = Communicator::init_with_store(&config(1), store, Rank(rank), 2).unwrap_err();
        let Error::Init(init) = &error else { panic!("{error}") };
        let InitError::Store { source, .. } = &**init else { panic!("{error}") };
        (error.to_string(), source.to_string())
    }

    #[test]
    fn ranks_meet_by_a_store_again_and_again() {
        let store = Memory::default();
        thread::scope(|scope| {
            for rank in (0..4).rev() {
                let mut store = store.clone();
                scope.spawn(move || {
                    for round in 0..3 {
                        let (config, rank) = (config(60), Rank(rank));
                        let comm = Communicator::init_with_store(&config, &mut store, rank, 4);
                        let mut comm = comm.unwrap();
                        let mut value = [rank.0 + round];
                        comm.all_reduce(&mut value, ReduceOp::Sum).unwrap();
                        assert_eq!((comm.rank(), value), (rank, [6 + 4 * round]));
                    }
                });
            }
        });
        assert!(store.0.0.lock().unwrap().keys().all(|key| key.starts_with("ringfold/1/")));
    }

    /// Runs ranks in threads, each with its communicator of all and a store of their own.
    fn with_parent<R: Send>(run: impl Fn(Communicator, Memory) -> R + Sync) -> Vec<R> {
        let (all, some) = (Memory::default(), Memory::default());
        thread::scope(|scope| {
            let ranks = (0..3).map(|rank| {
                let (all, some, run) = (all.clone(), some.clone(), &run);
                scope.spawn(move || {
                    let comm = Communicator::init_with_store(&config(60), all, Rank(rank), 3);
                    run(comm.unwrap(), some)
                })
            });
            let ranks: Vec<_> = ranks.collect();
            ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
        })
    }

    #[test]
    fn a_subset_meets_without_the_others() {
        let found = with_parent(|mut comm, some| {
            let (aborter, pair) = (comm.aborter(), [Rank(2), Rank(0)]);
            let subset = |ranks: &[Rank]| {
                Communicator::subset_with_store(&config(60), some.clone(), &aborter, ranks)
            };
            let sum = (comm.rank() != Rank(1)).then(|| {
                let mut child = subset(&pair).unwrap();
                let mut sum = [comm.rank().0 + 1];
                child.all_reduce(&mut sum, ReduceOp::Sum).unwrap();
                (child.rank(), sum)
            });
            let wrong = [&[comm.rank(), comm.rank()][..], &[]]
                .map(|ranks| subset(ranks).unwrap_err().to_string());
            assert!(wrong[0].contains("is in the list twice"), "{wrong:?}");
            assert!(wrong[1].contains("the list lacks this rank"), "{wrong:?}");
            comm.barrier().unwrap();
            sum
        });
        assert_eq!(found, [Some((Rank(1), [4])), None, Some((Rank(0), [4]))]);
    }

    #[test]
    fn the_wait_for_a_member_ends_when_it_leaves_or_fails() {
        for (is_abort, text) in [
            (false, "rank 0 did not join, since rank 1 of the parent group has left it"),
            (true, "rank 0 did not join, since the parent group has failed: rank 1 gave up"),
        ] {
            // Each pair has a store of its own.
            let found = with_parent(|mut comm, _| {
                // An abort may reach the others before their barrier ends.
                let met = comm.barrier();
                assert!(is_abort || met.is_ok(), "{met:?}");
                if comm.rank() == Rank(1) {
                    if is_abort {
                        comm.abort("a test");
                    }
                    return String::new();
                }
                // Rank 0 listens for its partner, and rank 2 waits for the partner's address.
                let (aborter, own) = (comm.aborter(), comm.rank());
                let pair = if own == Rank(0) { [own, Rank(1)] } else { [Rank(1), own] };
                let began = Instant::now();
                let joined = Communicator::subset_with_store(
                    &config(600),
                    Memory::default(),
                    &aborter,
                    &pair,
                );
                assert!(began.elapsed() < Duration::from_secs(60), "it waited too long");
                let error = joined.expect_err("nobody joins").to_string();
                error.replace("rank 1 did not", "rank 0 did not")
            });
            for rank in [0, 2] {
                assert!(found[rank].starts_with(text), "{found:?}");
            }
        }
    }

    #[test]
    fn a_store_that_fails_is_an_error_with_the_key_and_the_rank() {
        for (at, rank, text) in [
            ("joins", 0, "rank 0 cannot get the key \"ringfold/1/joins/0\""),
            ("id", 0, "rank 0 cannot set the key \"ringfold/1/id/0\""),
            ("id", 1, "rank 1 cannot wait for the key \"ringfold/1/id/0\""),
        ] {
            let (error, source) = failure(Broken(Memory::default(), at), rank);
            assert!(error.starts_with(text) && source == "the store is down", "{error}: {source}");
        }
        let (error, source) = failure(Memory::default(), 1);
        assert!(error.contains("rank 1 cannot wait for the key"), "{error}");
        assert!(error.contains("rank 0 sets it when it joins by the same store"), "{error}");
        assert_eq!(source, "no value within 1s");
        for (count, text) in
            [("4294967295", "no value within 1s"), ("4294967296", "number too large")]
        {
            let mut worn = Memory::default();
            worn.set("ringfold/1/joins/1", count.as_bytes()).unwrap();
            let (_, source) = failure(worn, 1);
            assert!(source.starts_with(text), "{source}");
        }
        let mut foreign = Memory::default();
        foreign.set("ringfold/1/id/0", b"x").unwrap();
        let (error, source) = failure(foreign, 1);
        assert!(error.starts_with("rank 1 cannot read the key \"ringfold/1/id/0\""), "{error}");
        assert!(source.starts_with("not a unique id"), "{source}");
    }

    #[test]
    fn the_others_learn_at_once_why_rank_0_failed() {
        let fails = |name: &str, rank_0: &Config, is_late: bool| {
            let (mut store, began) = (Memory::default(), Instant::now());
            let join = |config: &Config, rank| {
                let joined = Communicator::init_with_store(config, store.clone(), Rank(rank), 2);
                joined.expect_err("nobody joins").to_string()
            };
            let (first, other) = thread::scope(|scope| {
                let other = (!is_late).then(|| scope.spawn(|| join(&config(600), 1)));
                let first = join(rank_0, 0);
                let other = other.map(|other| other.join().unwrap());
                (first, other.unwrap_or_else(|| join(&config(600), 1)))
            });
            assert!(began.elapsed() < Duration::from_secs(60), "{name}: it waited too long");
            let start = format!("rank 0 cannot join: {first}");
            assert!(other.starts_with(&start), "{name}: {first} / {other}");
            assert!(store.get("ringfold/1/id/0").unwrap().unwrap().starts_with(b"failed: "));
        };
        let socket_ifname = Some("no-interface".to_owned());
        let unsuitable = Config { socket_ifname, ..config(600) };
        fails("before it has an id", &unsuitable, false);
        // Nobody joins rank 0 in time, and rank 1 comes after that.
        fails("after it has published its id", &config(1), true);
    }

    #[test]
    fn a_rank_beyond_the_size_does_not_touch_the_store() {
        let store = Memory::default();
        let error = Communicator::init_with_store(&config(1), store.clone(), Rank(2), 2);
        assert!(error.unwrap_err().to_string().starts_with("rank 2 of 2 is invalid"));
        assert!(store.0.0.lock().unwrap().is_empty());
    }
}
