//! The probe matrix: rounds pair the hosts, and each pair probes its NICs over TCP.

use std::collections::BTreeSet;

use ringfold::{Communicator, Config};
use ringfold_transport::trial;
use ringfold_types::Rank;
use serde::{Deserialize, Serialize};

use super::flows::{self, Flow};
use super::nic::Endpoint;
use super::progress::Progress;
use crate::gather::all_gather;
use crate::probe::{Pairing, Path, Prober};

/// The most rounds with flows. A flow takes a fraction of a second, and a round has many.
const FLOW_ROUNDS_MAX: usize = 8;

/// A probe between two NICs, the low end's first.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Probe {
    pub(super) ends: [usize; 2],
    pub(super) nics: [usize; 2],
    pub(super) is_answered: bool,
}

/// One end's report about flows that ran at once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Carried {
    pub(super) ends: [usize; 2],
    /// The number of the step in the round, which joins the reports of both ends.
    pub(super) step: usize,
    /// The NICs and the result of each flow; `None` if it broke.
    pub(super) flows: Vec<([usize; 2], Option<Flow>)>,
}

/// The results of all rounds.
#[derive(Clone, Debug, Default)]
pub(super) struct MatrixResults {
    pub(super) probes: Vec<Probe>,
    pub(super) carried: Vec<Carried>,
    /// Whether every host was paired with every other.
    pub(super) is_complete: bool,
}

/// A round of the matrix.
struct Round<'r, 'p> {
    ends: &'r [Endpoint],
    prober: &'r mut Prober<'p>,
    progress: &'r mut Progress,
    pairs: Vec<(usize, usize)>,
    pairing: Option<Pairing>,
}

/// Runs all rounds. Every rank calls this.
pub(super) fn probe(
    comm: &mut Communicator,
    config: &Config,
    ends: &[Endpoint],
) -> anyhow::Result<MatrixResults> {
    let is_first = comm.rank() == Rank(0);
    let mut prober = Prober::new(config, comm, ends.iter().map(|end| end.rank).collect())?;
    let rounds = prober.rounds();
    let mut progress = Progress::new(is_first, rounds.len());
    let (mut probes, mut carried) = (Vec::new(), Vec::new());
    for (number, pairs) in rounds.enumerate() {
        progress.next_round();
        let pairing = prober.pairing(&pairs);
        let (prober, progress) = (&mut prober, &mut progress);
        let mut round = Round { ends, prober, progress, pairs, pairing };
        let own = round.probe()?;
        let found: Vec<Probe> = all_gather(round.prober.comm, &own)?.concat();
        if number < FLOW_ROUNDS_MAX {
            let own = round.flow(&found)?;
            carried.extend(all_gather(round.prober.comm, &own)?.concat());
        }
        probes.extend(found);
    }
    Ok(MatrixResults { probes, carried, is_complete: prober.is_complete() })
}

impl Round<'_, '_> {
    /// Probes every NIC with every NIC of the peer. A NIC is in one probe at a time.
    fn probe(&mut self) -> anyhow::Result<Vec<Probe>> {
        let ends = self.ends;
        let nics = |end: usize| ends[end].nics.len();
        let most = |pair: &(usize, usize)| nics(pair.0).max(nics(pair.1));
        let steps = self.pairs.iter().map(most).max().unwrap_or(0);
        let mut found = Vec::new();
        for step in 0..steps {
            self.progress.show("probes", step, steps);
            let tried = self.pairing.map_or_else(Vec::new, |pairing| {
                let [low, high] = pairing.ends.map(nics);
                let most = low.max(high);
                let other = |nic: usize| [nic, (nic + step) % most];
                (0..low).map(other).filter(|pair| step < most && pair[1] < high).collect()
            });
            let results = self.prober.step(
                self.pairing,
                &paths(ends, self.pairing, &tried),
                trial::answer,
            )?;
            if let Some(Pairing { ends, is_low: true, .. }) = self.pairing {
                let probe = |(nics, result): (_, Result<_, _>)| Probe {
                    ends,
                    nics,
                    is_answered: result.is_ok(),
                };
                found.extend(tried.into_iter().zip(results).map(probe));
            }
            // Each NIC of the end with fewer NICs was in a probe.
            let fewer = |pair: &(usize, usize)| nics(pair.0).min(nics(pair.1));
            let pairs = self.pairs.iter().filter(|pair| step < most(pair));
            self.progress.probed(pairs.map(fewer).sum());
        }
        Ok(found)
    }

    /// Measures each rail alone, and each two rails at once.
    fn flow(&mut self, probes: &[Probe]) -> anyhow::Result<Vec<Carried>> {
        let chosen = |ends: [usize; 2]| {
            let answered = probes.iter().filter(|it| it.ends == ends && it.is_answered);
            flows::choose(&answered.map(|probe| probe.nics).collect::<BTreeSet<_>>())
        };
        let count = |pair: &(usize, usize)| flows::steps(chosen([pair.0, pair.1]).len()).len();
        let steps = self.pairs.iter().map(count).max().unwrap_or(0);
        let chosen = self.pairing.map_or_else(Vec::new, |pairing| chosen(pairing.ends));
        let own = flows::steps(chosen.len());
        let mut found = Vec::new();
        for step in 0..steps {
            self.progress.show("flows", step, steps);
            let at_once = own.get(step).map_or(&[][..], Vec::as_slice);
            let nics: Vec<_> = at_once.iter().map(|flow| chosen[*flow]).collect();
            let halves = self.prober.step(
                self.pairing,
                &paths(self.ends, self.pairing, &nics),
                flows::run,
            )?;
            if let Some(Pairing { ends, .. }) = self.pairing.filter(|_| !nics.is_empty()) {
                let flows = nics.into_iter().zip(flows::rates(&halves)).collect();
                found.push(Carried { ends, step, flows });
            }
        }
        Ok(found)
    }
}

/// Returns this rank's end of the path between each two NICs.
fn paths<'a>(ends: &'a [Endpoint], pairing: Option<Pairing>, nics: &[[usize; 2]]) -> Vec<Path<'a>> {
    let path = |pairing: Pairing, nics: &[usize; 2]| {
        let nic = &ends[pairing.own()].nics[nics[usize::from(!pairing.is_low)]];
        Path { address: nic.address, interface: Some(&nic.interface), rdma: None }
    };
    pairing.map_or_else(Vec::new, |pairing| nics.iter().map(|nics| path(pairing, nics)).collect())
}
