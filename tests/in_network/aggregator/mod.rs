//! `ringfold aggregate` as a process: clients that break its rules, its pool of memory, and the
//! quick start of `docs/in-network.md`.
//!
//! Two tests have commands of their own. The first compares the speed of a job with and without
//! hostile clients. The second takes five minutes, or `RINGFOLD_TEST_SECONDS` at compile time:
//!
//! ```text
//! cargo test --release -p ringfold-tests --test in_network slow_down -- --ignored --nocapture
//! cargo test --release -p ringfold-tests --test in_network soak -- --ignored --nocapture
//! ```

mod hostile;
mod member;
mod page;
mod pool;
mod server;
mod soak;

use std::time::Duration;

/// The deadline of each step, for a loaded machine.
const DEADLINE: Duration = Duration::from_secs(60);
