//! `ringfold plan`: a schedule as a table that a person can follow, and its proof.

mod args;
mod crossing;
mod grid;
mod layout;
mod list;
mod proof;
mod timeline;

use std::fmt::Write;

use anyhow::bail;
use ringfold_collectives::{Algorithm, Schedule};
use ringfold_types::limits::{LINK_BYTES_MIN, POSTED_MAX, STEPS_MAX};

use crate::amount::Amount;
use args::Question;
use proof::Verdict;

pub(crate) use args::Args;

/// Steps of all ranks together that are proven and printed; more would take minutes.
const STEPS_SHOWN: usize = 2_000_000;

/// What to print.
pub(crate) struct Answer {
    pub(crate) text: String,
    /// Whether nothing printed is known to be wrong.
    pub(crate) is_sound: bool,
}

/// Answers the question that `args` ask.
pub(crate) fn answer(args: &Args) -> anyhow::Result<Answer> {
    let question = args.question()?;
    match question.algorithm {
        Some(algorithm) => explain(&question, algorithm),
        None => Ok(Answer { text: list::algorithms(&question)?, is_sound: true }),
    }
}

/// One algorithm: what it costs, whether it is right, and step by step what happens.
fn explain(question: &Question, algorithm: &Algorithm) -> anyhow::Result<Answer> {
    let schedules = schedules(question, algorithm)?;
    let verdict = proof::prove(&schedules);
    let mut text = String::new();
    head(&mut text, question, algorithm, &verdict)?;
    if question.layout.has_fabric() {
        crossing::lines(&mut text, question, algorithm, &schedules)?;
    }
    let is_sound = matches!(verdict, Verdict::Proven(_));
    match question.rank {
        _ if is_sound => {
            let timeline = timeline::timeline(&schedules);
            writeln!(text)?;
            grid::print(&mut text, &timeline, question)?;
        }
        // What is flawed may wait for ever, so it has no timeline.
        Some(rank) => write!(text, "\n{}", schedules[rank.index()])?,
        None => schedules.iter().try_for_each(|schedule| write!(text, "\n{schedule}"))?,
    }
    Ok(Answer { text, is_sound })
}

/// The schedules of all ranks, if they are few enough steps.
fn schedules(question: &Question, algorithm: &Algorithm) -> anyhow::Result<Vec<Schedule>> {
    let size = question.layout.size();
    // An upper bound for any algorithm: some cut into what links accept by themselves.
    let plan = question.plan(0, LINK_BYTES_MIN);
    let piece = if size > POSTED_MAX { plan.chunk.min(plan.eager()) } else { plan.chunk };
    let pieces = question.call.count.div_ceil(piece);
    let mut all = Vec::new();
    let mut steps = pieces.saturating_mul(size + POSTED_MAX);
    if steps <= STEPS_MAX {
        steps = 0;
        for rank in 0..size {
            let schedule = (algorithm.schedule)(&question.plan(rank, LINK_BYTES_MIN));
            steps += schedule.lanes().iter().map(Vec::len).sum::<usize>();
            all.push(schedule);
            if steps > STEPS_SHOWN {
                break;
            }
        }
    }
    if steps > STEPS_SHOWN {
        bail!(
            "more than {STEPS_SHOWN} steps to prove and print; ask for fewer ranks (-n), a smaller \
             message (-b) or larger chunks (--chunk, now {})",
            Amount(question.chunk_bytes())
        );
    }
    Ok(all)
}

fn head(
    text: &mut String,
    question: &Question,
    algorithm: &Algorithm,
    verdict: &Verdict,
) -> anyhow::Result<()> {
    let Question { call, layout, .. } = question;
    let size = layout.size();
    let ranks = if size == 1 { "1 rank" } else { &format!("{size} ranks") };
    writeln!(text, "{call} on {ranks} by {}", algorithm.name)?;
    writeln!(text, "  chunks   {}", question.chunks())?;
    let stated = (algorithm.stated)(call, layout);
    let amount = |elements| question.elements(elements);
    write!(
        text,
        "  stated   {}, the busiest rank sends {}",
        steps(stated.steps),
        amount(stated.sent)
    )?;
    match verdict {
        Verdict::Proven(cost) => {
            if cost.measured != stated {
                write!(text, "\n           (where counts divide evenly, in one chunk)")?;
            }
            let measured = cost.measured;
            write!(
                text,
                "\n  proven   {}, the busiest rank sends {}, {} B; all together send {} B",
                steps(measured.steps),
                amount(measured.sent),
                cost.bytes_busiest,
                cost.bytes_all
            )?;
            writeln!(text, "\n           {}", proof::meaning(call.collective))?;
        }
        Verdict::Flawed { in_place, offers, flaw } => {
            let place = if *in_place { "in place" } else { "out of place" };
            let links =
                if *offers { ", with messages offered in their sender's memory" } else { "" };
            writeln!(text, "\n  flaw     {place}{links}: {flaw}")?;
        }
    }
    Ok(())
}

fn steps(steps: usize) -> String {
    format!("{steps} step{}", if steps == 1 { "" } else { "s" })
}
