//! Every host meets every other, some at a time, and both try their NICs.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use ringfold::{Communicator, Config};
use ringfold_bootstrap::{Secret, discover};
use ringfold_types::Rank;
use serde::{Deserialize, Serialize};

use super::flows;
use super::line::{self, Door, Flow, Tokens};
use super::nic::End;
use super::progress::Progress;
use crate::rounds::rounds;
use crate::share::share;

/// Rounds at most; hosts that do not meet are not measured with each other.
const ROUNDS_MAX: usize = 32;
/// Rounds with flows. A flow takes a fraction of a second, and there are many in a round.
const FLOW_ROUNDS_MAX: usize = 8;

/// A probe between two NICs, those of the low end first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Probe {
    pub(super) ends: [usize; 2],
    pub(super) nics: [usize; 2],
    /// Nanoseconds of 8 bytes one way; nothing if no answer came.
    pub(super) nanos: Option<u64>,
}

/// Flows that ran at once, as one of both ends saw them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Carried {
    pub(super) ends: [usize; 2],
    /// The number of the step in the round, by which both ends' words come together.
    pub(super) step: usize,
    /// By flow: its NICs and its result; nothing if it broke.
    pub(super) flows: Vec<([usize; 2], Option<Flow>)>,
}

/// The results of all rounds.
#[derive(Clone, Debug, Default)]
pub(super) struct Tried {
    pub(super) probes: Vec<Probe>,
    pub(super) carried: Vec<Carried>,
    /// Every host met every other.
    pub(super) is_all: bool,
}

/// All that ranks need to meet.
pub(super) struct Tour<'a> {
    ends: &'a [End],
    /// This rank's place among them; nothing if another rank measures on its host.
    own: Option<usize>,
    secret: Secret,
    /// Distinguishes this run from others with the same secret.
    nonce: String,
}

/// The meeting that this rank takes part in.
struct Meeting<'a> {
    tour: &'a Tour<'a>,
    round: usize,
    ends: [usize; 2],
    is_low: bool,
    /// By own NIC.
    doors: Vec<io::Result<(Door, SocketAddr)>>,
    /// By NIC of the other end.
    theirs: Vec<Option<SocketAddr>>,
}

impl<'a> Tour<'a> {
    pub(super) fn new(
        config: &Config,
        comm: &mut Communicator,
        ends: &'a [End],
    ) -> anyhow::Result<Self> {
        let variable = |name: &str| config.environment.get(name).cloned();
        let secret = discover(&variable)?.secret(&variable, config.join_timeout)?;
        let mut nonce = [0_u8; 32];
        getrandom::fill(&mut nonce).map_err(io::Error::other)?;
        comm.broadcast(&mut nonce, Rank(0))?;
        let nonce = nonce.iter().map(|byte| format!("{byte:02x}")).collect();
        let own = ends.iter().position(|end| end.rank == comm.rank());
        Ok(Self { ends, own, secret, nonce })
    }

    /// Measures. Every rank calls this.
    pub(super) fn all(&self, comm: &mut Communicator) -> anyhow::Result<Tried> {
        let is_all = rounds(self.ends.len(), usize::MAX).len() <= ROUNDS_MAX;
        let rounds = rounds(self.ends.len(), ROUNDS_MAX);
        let mut progress = Progress::new(comm.rank() == Rank(0), rounds.len());
        let (mut probes, mut carried) = (Vec::new(), Vec::new());
        for (number, round) in rounds.enumerate() {
            progress.next_round();
            let meeting = self.meeting(comm, number, &round)?;
            let own = self.probe(comm, &round, meeting.as_ref(), &mut progress)?;
            let found: Vec<Probe> = share(comm, &own)?.concat();
            if number < FLOW_ROUNDS_MAX {
                let own = self.flow(comm, &round, meeting.as_ref(), &found, &mut progress)?;
                carried.extend(share(comm, &own)?.concat());
            }
            probes.extend(found);
        }
        Ok(Tried { probes, carried, is_all })
    }

    /// Opens a door on each NIC, and learns of the other end's.
    fn meeting(
        &self,
        comm: &mut Communicator,
        round: usize,
        pairs: &[(usize, usize)],
    ) -> anyhow::Result<Option<Meeting<'_>>> {
        let own = pairs.iter().find(|pair| self.own.is_some_and(|it| pair.0 == it || pair.1 == it));
        let nics = own.and(self.own).map_or(&[][..], |own| &self.ends[own].nics);
        let doors: Vec<_> = nics.iter().map(Door::open).collect();
        let addresses: Vec<Option<SocketAddr>> =
            doors.iter().map(|door| door.as_ref().ok().map(|(_, address)| *address)).collect();
        let mut all = share(comm, &addresses)?;
        let Some(&(low, high)) = own else { return Ok(None) };
        let is_low = self.own == Some(low);
        let other = self.ends[if is_low { high } else { low }].rank;
        let theirs = std::mem::take(&mut all[other.index()]);
        Ok(Some(Meeting { tour: self, round, ends: [low, high], is_low, doors, theirs }))
    }

    /// Tries every NIC with every NIC of the other end, each in one probe at a time.
    fn probe(
        &self,
        comm: &mut Communicator,
        pairs: &[(usize, usize)],
        meeting: Option<&Meeting<'_>>,
        progress: &mut Progress,
    ) -> anyhow::Result<Vec<Probe>> {
        let nics = |end: usize| self.ends[end].nics.len();
        let most = |pair: &(usize, usize)| nics(pair.0).max(nics(pair.1));
        let steps = pairs.iter().map(most).max().unwrap_or(0);
        let mut found = Vec::new();
        for step in 0..steps {
            progress.show("probes", step, steps);
            if let Some(meeting) = meeting {
                let [low, high] = meeting.ends.map(nics);
                let most = low.max(high);
                let other = |nic: usize| [nic, (nic + step) % most];
                let tried = (0..low).map(other).filter(|pair| step < most && pair[1] < high);
                let tried: Vec<_> = tried.collect();
                let times = meeting.at_once(step, &tried, |meeting, label, pair| {
                    line::trips(&mut meeting.line(label, pair)?, meeting.is_low)
                });
                let probe = |(nics, time): (&[usize; 2], io::Result<Duration>)| Probe {
                    ends: meeting.ends,
                    nics: *nics,
                    nanos: time.ok().and_then(|time| u64::try_from(time.as_nanos()).ok()),
                };
                if meeting.is_low {
                    found.extend(tried.iter().zip(times).map(probe));
                }
            }
            share(comm, &true)?;
            // Each NIC of the end with fewer was in a probe.
            let fewer = |pair: &(usize, usize)| nics(pair.0).min(nics(pair.1));
            progress.tried(pairs.iter().filter(|pair| step < most(pair)).map(fewer).sum());
        }
        Ok(found)
    }

    /// Measures each rail alone, and each two at once.
    fn flow(
        &self,
        comm: &mut Communicator,
        pairs: &[(usize, usize)],
        meeting: Option<&Meeting<'_>>,
        probes: &[Probe],
        progress: &mut Progress,
    ) -> anyhow::Result<Vec<Carried>> {
        let chosen = |ends: [usize; 2]| {
            let answered = probes.iter().filter(|it| it.ends == ends && it.nanos.is_some());
            flows::choose(&answered.map(|probe| probe.nics).collect::<BTreeSet<_>>())
        };
        let count = |pair: &(usize, usize)| flows::steps(chosen([pair.0, pair.1]).len()).len();
        let steps = pairs.iter().map(count).max().unwrap_or(0);
        let of_meeting = meeting.map(|meeting| {
            let chosen = chosen(meeting.ends);
            let steps = flows::steps(chosen.len());
            (meeting, chosen, steps)
        });
        let mut found = Vec::new();
        for step in 0..steps {
            progress.show("flows", step, steps);
            if let Some((meeting, chosen, steps)) = &of_meeting
                && let Some(at_once) = steps.get(step)
            {
                let nics: Vec<_> = at_once.iter().map(|flow| chosen[*flow]).collect();
                // Labels of probes and of flows differ.
                let results = meeting.at_once(usize::MAX - step, &nics, |meeting, label, pair| {
                    let mut stream = meeting.line(label, pair)?;
                    let run = if meeting.is_low { line::send } else { line::receive };
                    run(&mut stream)
                });
                let flows = nics.into_iter().zip(line::flows(&results)).collect();
                found.push(Carried { ends: meeting.ends, step, flows });
            }
            share(comm, &true)?;
        }
        Ok(found)
    }
}

impl Meeting<'_> {
    /// Runs the same on several pairs of NICs at once.
    fn at_once<T: Send>(
        &self,
        step: usize,
        pairs: &[[usize; 2]],
        run: impl Fn(&Self, &str, [usize; 2]) -> io::Result<T> + Sync,
    ) -> Vec<io::Result<T>> {
        let (run, round) = (&run, self.round);
        let [low, high] = self.ends;
        thread::scope(|scope| {
            let threads: Vec<_> = pairs
                .iter()
                .map(|&pair| {
                    let [one, other] = pair;
                    let nonce = &self.tour.nonce;
                    let label = format!("{nonce} {round} {step} {low} {high} {one} {other}");
                    scope.spawn(move || run(self, &label, pair))
                })
                .collect();
            let panicked = |_| Err(io::Error::other("the thread of a probe panicked"));
            threads.into_iter().map(|thread| thread.join().unwrap_or_else(panicked)).collect()
        })
    }

    /// A connection between two NICs: the low end dials.
    fn line(&self, label: &str, [low, high]: [usize; 2]) -> io::Result<std::net::TcpStream> {
        let token = |end| self.tour.secret.derive(&["measure", label, end]);
        let tokens = Tokens { low: token("low"), high: token("high") };
        let own = &self.tour.ends[self.ends[usize::from(!self.is_low)]].nics;
        if self.is_low {
            let closed = || io::Error::other("the other end does not listen there");
            let to = self.theirs.get(high).copied().flatten().ok_or_else(closed)?;
            return line::dial(&own[low], to, &tokens);
        }
        match &self.doors[high] {
            Ok((door, _)) => door.accept(&tokens),
            Err(error) => Err(error.kind().into()),
        }
    }
}
