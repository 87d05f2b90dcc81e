//! `ringfold plan`: a schedule as a readable table, and its proof.

mod args;
mod crossing;
mod grid;
mod layout;
mod link;
mod list;
mod proof;
mod timeline;

use std::fmt::Write as _;
use std::io::Write;

use anyhow::bail;
use ringfold_collectives::{Algorithm, Form, Schedule};
use ringfold_types::Amount;
use ringfold_types::limits::{LINK_BYTES_MIN, POSTED_MAX, STEPS_MAX};

use args::Question;
use proof::Proof;

pub(crate) use args::{Args, elements};

/// The most steps of all ranks together that are proven and printed. More would take minutes.
const STEPS_SHOWN: usize = 2_000_000;

/// Answers the question that `args` ask. Writes each part of the answer to `out` as soon as it is
/// known. Returns whether the printed schedule has no flaw.
pub(crate) fn answer(args: &Args, out: &mut dyn Write) -> anyhow::Result<bool> {
    let question = args.question()?;
    match question.algorithm {
        Some(algorithm) => explain(&question, algorithm, out),
        None => list::algorithms(&question, out).map(|()| true),
    }
}

/// Prints one algorithm: its costs, its proof and its steps.
fn explain(
    question: &Question,
    algorithm: &Algorithm,
    out: &mut dyn Write,
) -> anyhow::Result<bool> {
    let schedules = schedules(question, algorithm)?;
    writeln!(out, "{} on {} by {}", question.text(), question.ranks(), algorithm.name)?;
    let mut text = String::new();
    let proof = proof::prove(&schedules);
    head(&mut text, question, algorithm, &proof)?;
    if question.layout.has_fabric() {
        crossing::lines(&mut text, question, &schedules)?;
    }
    let is_sound = matches!(proof, Proof::Proven(_));
    match question.rank {
        _ if is_sound => {
            let timeline = timeline::timeline(&schedules);
            writeln!(text)?;
            grid::print(&mut text, &timeline, question)?;
        }
        // A flawed schedule may wait for ever, so it has no timeline.
        Some(rank) => write!(text, "\n{}", schedules[rank.index()])?,
        None => schedules.iter().try_for_each(|schedule| write!(text, "\n{schedule}"))?,
    }
    out.write_all(text.as_bytes())?;
    Ok(is_sound)
}

/// Returns the schedules of all ranks. Fails if they have too many steps to print.
fn schedules(question: &Question, algorithm: &Algorithm) -> anyhow::Result<Vec<Schedule>> {
    let size = question.layout.size();
    // An upper bound for any algorithm: some cut messages to the eager size of links.
    let plan = question.plan(0, LINK_BYTES_MIN);
    let piece =
        if size > POSTED_MAX { plan.chunk.min(plan.eager(Form::Accumulator)) } else { plan.chunk };
    let pieces = question.call.count.div_ceil(piece);
    let mut all = Vec::new();
    let mut steps = pieces.saturating_mul(size + POSTED_MAX);
    if steps <= STEPS_MAX {
        steps = 0;
        for rank in 0..size {
            let schedule = question.schedule(algorithm, &question.plan(rank, LINK_BYTES_MIN));
            steps += schedule.lanes().iter().map(Vec::len).sum::<usize>();
            all.push(schedule);
            if steps > STEPS_SHOWN {
                break;
            }
        }
    }
    if steps > STEPS_SHOWN {
        bail!(
            "more than {STEPS_SHOWN} steps to prove and print; give fewer ranks (-n), a smaller \
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
    proof: &Proof,
) -> anyhow::Result<()> {
    let Question { call, layout, .. } = question;
    writeln!(text, "  chunks   {}", question.chunks())?;
    let stated = (algorithm.stated)(&question.even_call(algorithm), layout);
    let amount = |elements| question.elements(elements);
    write!(
        text,
        "  stated   {}, the busiest rank sends {}",
        steps(stated.steps),
        amount(stated.sent)
    )?;
    match proof {
        Proof::Proven(cost) => {
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
        Proof::Flawed { in_place, offers, flaw } => {
            let place = if *in_place { "in place" } else { "out of place" };
            let links =
                if *offers { ", with rendezvous sends from the sender's memory" } else { "" };
            writeln!(text, "\n  flaw     {place}{links}: {flaw}")?;
        }
    }
    Ok(())
}

fn steps(steps: usize) -> String {
    format!("{steps} step{}", if steps == 1 { "" } else { "s" })
}
