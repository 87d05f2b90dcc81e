//! Makes a window: memory that all ranks of a host have mapped.

use std::io;
use std::time::Duration;

use ringfold_collectives::Progress;
use ringfold_transport::Window;

use super::block_on::Work;
use crate::error::CallError;
use crate::router::Router;
use crate::watch::Watch;

/// The time between the first two checks for peers' parts of a window. It doubles with each check:
/// many ranks that check often slow down the ranks that still make their parts.
const RECHECK: Duration = Duration::from_micros(200);

/// The longest time between two checks for peers' parts.
const RECHECK_MAX: Duration = Duration::from_millis(20);

/// The creation of a window. Each rank makes its part and passes it to the peers.
pub(crate) struct Sharing {
    made: Option<io::Result<Window>>,
    recheck: Duration,
}

impl Sharing {
    /// Makes this rank's part and passes it to the peers.
    pub(crate) fn begin(router: &mut Router, bytes: usize) -> Result<Self, CallError> {
        let Some(memory) = router.windows() else {
            unreachable!("every rank has just said that it shares memory")
        };
        memory.begin_window(bytes)?;
        Ok(Self { made: None, recheck: RECHECK })
    }

    /// The window with all ranks' parts.
    ///
    /// # Errors
    /// The reason why a part is missing.
    pub(crate) fn end(self) -> io::Result<Window> {
        self.made.unwrap_or_else(|| unreachable!("sharing ends when it is done"))
    }
}

impl Work for Sharing {
    fn advance(&mut self, router: &mut Router, _: &Watch, _: usize) -> Result<Progress, CallError> {
        if self.made.is_none()
            && let Some(memory) = router.windows()
        {
            self.made = memory.finish_window()?;
        }
        Ok(if self.made.is_some() { Progress::Done } else { Progress::Idle })
    }

    fn park_limit(&mut self) -> Duration {
        let recheck = self.recheck;
        self.recheck = RECHECK_MAX.min(recheck * 2);
        recheck
    }
}
