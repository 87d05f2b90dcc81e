//! All calls on a fabric.

use ringfold_collectives::Algorithm;
use ringfold_collectives::select::{Constraints, Measurements, buffer_bytes, select};
use ringfold_types::Call;

use super::bar::Bar;
use super::cell::{Cell, Size};
use super::question::Question;

/// A fabric, and the calls on it.
pub(super) struct Answer {
    pub(super) question: Question,
    pub(super) sizes: Vec<Size>,
}

impl Answer {
    /// Runs all calls of a question.
    pub(super) fn of(question: Question, bar: &Bar) -> anyhow::Result<Self> {
        let size = |call: &Call| {
            let (layout, any) = (&question.job.layout, Constraints::default());
            let chosen = select(call, layout, &any, &Measurements::default()).name;
            let run = |it: &&'static Algorithm| Cell::of(&question, call, it, bar);
            let cells: anyhow::Result<Vec<Cell>> = question.algorithms.iter().map(run).collect();
            let bytes = buffer_bytes(call, layout.size());
            Ok(Size { call: *call, bytes, chosen, cells: cells? })
        };
        let sizes = question.calls.iter().map(size).collect::<anyhow::Result<_>>()?;
        Ok(Self { question, sizes })
    }

    pub(super) fn hosts(&self) -> usize {
        self.question.job.layout.hosts()
    }

    /// The fabric, with the number of its ranks and hosts.
    pub(super) fn title(&self) -> String {
        let layout = &self.question.job.layout;
        let (place, ranks, hosts) = (&self.question.place, layout.size(), layout.hosts());
        let class = if hosts > 1 { layout.links_between() } else { layout.prices().within() };
        let others = match self.question.job.streams() {
            0 => String::new(),
            streams => format!(", streams of other jobs: {streams}"),
        };
        format!("{place}: {ranks} ranks on {hosts} hosts, {class}{others}")
    }
}
