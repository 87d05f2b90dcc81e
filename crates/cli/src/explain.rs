//! `ringfold explain`: the algorithm of a call, and the reason for the choice.

use std::fmt::Write;
use std::time::Duration;

use anyhow::ensure;
use ringfold::config::measurements;
use ringfold_collectives::Algorithm;
use ringfold_collectives::cost::price;
use ringfold_collectives::select::{Row, is_possible};
use ringfold_types::Amount;

use crate::{plan, prices, units};

/// The command line.
#[derive(clap::Args)]
#[group(skip)]
pub(crate) struct Args {
    #[command(flatten)]
    question: plan::Args,
    /// A file that `ringfold tune` wrote, as for RINGFOLD_PLAN [default: estimates only]
    #[arg(long, value_name = "FILE")]
    plan: Option<String>,
}

/// Returns a table of candidates and the reason for the choice.
pub(crate) fn answer(args: &Args) -> anyhow::Result<String> {
    let question = args.question.question()?;
    ensure!(question.algorithm.is_none(), "--algorithm: `ringfold plan` prints one algorithm");
    let measured = args.plan.as_deref().map(measurements).transpose()?.unwrap_or_default();
    let layout = &question.layout;
    let chosen = question.chosen(&measured);
    let typical = question.measured_call();
    let rows = typical.map_or(&[][..], |call| measured.closest(&call, layout));
    let mut text = String::new();
    writeln!(text, "{} on {}", question.text(), question.place())?;
    writeln!(text, "  {:<20} {:>12} {:>12}", "algorithm", "estimated", "measured")?;
    let possible =
        |algorithm: &&Algorithm| is_possible(algorithm, &question.even_call(algorithm), layout);
    let estimate = |algorithm: &Algorithm| {
        let call = question.even_call(algorithm);
        let price = || price(algorithm, &call, layout, question.chunk());
        algorithm.has_estimate(layout).then(price)
    };
    let mut lower = Vec::new();
    for algorithm in question.algorithms().into_iter().filter(possible) {
        let of_this = estimate(algorithm);
        if of_this.is_some_and(|it| estimate(chosen).is_some_and(|chosen| it < chosen)) {
            lower.push(algorithm.name);
        }
        let estimate = of_this.map_or_else(|| "-".to_owned(), text_of);
        let time = rows.iter().find(|row| row.algorithm == algorithm.name).map(Row::time);
        let time = time.map_or_else(|| "-".to_owned(), text_of);
        let mark = if algorithm.name == chosen.name { '*' } else { ' ' };
        writeln!(text, "{mark} {:<20} {:>12} {time:>12}", algorithm.name, estimate)?;
    }
    let lowest = match &lower[..] {
        [] => "its estimate is the lowest".to_owned(),
        some => {
            let some = some.join(" and ");
            format!("its estimate is the lowest after {some}, whose estimates do not decide here")
        }
    };
    let why = match rows.iter().find(|row| row.algorithm == chosen.name) {
        Some(row) => format!(
            "it was the fastest in the measurement with a buffer of {} (the call has {})",
            Amount(row.bytes),
            Amount(question.buffer_bytes())
        ),
        None if !chosen.has_estimate(layout) => {
            "two ranks with a core each copy such messages from each other's memory, if the \
             system permits it and it is fast; RINGFOLD_SHM_CMA=0 turns that off"
                .to_owned()
        }
        None if measured.rows().is_empty() => {
            format!("{lowest}; `ringfold tune` measures the candidates")
        }
        None => {
            format!("{lowest}; the plan has no measurement of a candidate for such a call")
        }
    };
    writeln!(text, "* {} is chosen: {why}", chosen.name)?;
    text += &prices::table(layout, |class| question.is_supposed(class));
    let (cpus, from) = (layout.occupancy().cpus, question.cpus_from());
    writeln!(text, "  {:<20} {:>12} {:>12} {cpus:>12}   {from}", "CPUs of a host", "", "")?;
    Ok(text)
}

fn text_of(time: Duration) -> String {
    units::time(u64::try_from(time.as_nanos().saturating_mul(1000)).unwrap_or(u64::MAX))
}
