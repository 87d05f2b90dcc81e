//! `ringfold simulate`: the time of a call on a fabric that need not exist.
//!
//! * `question`: the arguments; `cell`: one call by one algorithm; `text`, `json`: the answer.

mod cell;
mod json;
mod question;
mod text;

use ringfold_collectives::Algorithm;
use ringfold_collectives::select::{Constraints, Measurements, buffer_bytes, select};
use ringfold_types::Call;

use cell::{Cell, Size};
pub(crate) use question::Args;

/// Returns the answer as text.
pub(crate) fn answer(args: &Args) -> anyhow::Result<String> {
    let question = args.question()?;
    let size = |call: &Call| {
        let (layout, any) = (&question.job.layout, Constraints::default());
        let chosen = select(call, layout, &any, &Measurements::default()).name;
        let run = |it: &&'static Algorithm| Cell::of(&question, call, it);
        let cells: anyhow::Result<Vec<Cell>> = question.algorithms.iter().map(run).collect();
        let bytes = buffer_bytes(call, layout.size());
        Ok(Size { call: *call, bytes, chosen, cells: cells? })
    };
    let sizes: Vec<Size> = question.calls.iter().map(size).collect::<anyhow::Result<_>>()?;
    if args.json { json::answer(&question, &sizes) } else { text::answer(&question, &sizes) }
}
