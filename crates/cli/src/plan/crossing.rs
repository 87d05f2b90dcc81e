//! Prints the bytes that a call moves across each level of a fabric.

use std::fmt::{self, Write as _};
use std::io::{self, Write};

use ringfold_collectives::crossing::{Crossing, Load, measured};
use ringfold_collectives::{Algorithm, Schedule};
use ringfold_topology::Level;
use ringfold_types::limits::LINK_BYTES_MIN;

use super::args::Question;

/// Prints the bytes of all ranks together, by algorithm and level.
pub(super) fn table(text: &mut dyn Write, question: &Question) -> io::Result<()> {
    write!(text, "\n  {:<20}", "bytes of all ranks")?;
    Level::ALL.iter().try_for_each(|level| write!(text, " {:>18}", level.to_string()))?;
    writeln!(text, " {:>18}", "off their rail")?;
    let anywhere = |algorithm: &&Algorithm| algorithm.works_anywhere();
    for algorithm in question.algorithms().into_iter().filter(anywhere) {
        let crossing = stated(question, algorithm);
        write!(text, "  {:<20}", algorithm.name)?;
        Level::ALL
            .iter()
            .try_for_each(|level| write!(text, " {:>18}", crossing.at(*level).bytes))?;
        writeln!(text, " {:>18}", crossing.off_rail.bytes)?;
    }
    writeln!(
        text,
        "Messages cross spines between leaf groups and between rails of a group. Messages"
    )?;
    writeln!(text, "between ranks without a common rail are off their rail.")
}

/// Prints the bytes that one algorithm states and the bytes that its schedules send.
pub(super) fn lines(
    text: &mut String,
    question: &Question,
    algorithm: &Algorithm,
    schedules: &[Schedule],
) -> fmt::Result {
    let [stated, measured] = [stated(question, algorithm), measured(schedules, &question.layout)];
    let rows = Level::ALL.map(|level| (level.to_string(), loads(&stated, &measured, level)));
    let off_rail = ("off their rail".to_owned(), [stated.off_rail, measured.off_rail]);
    let mut head = "crosses";
    for (name, [stated, measured]) in rows.into_iter().chain([off_rail]) {
        write!(text, "  {head:<8} {name:<18}  {}", words(measured))?;
        if stated != measured && algorithm.works_anywhere() {
            write!(text, " (stated {})", words(stated))?;
        }
        writeln!(text)?;
        head = "";
    }
    Ok(())
}

/// The messages of a call, as the algorithm states them, or as its schedules send blocks of
/// different lengths.
fn stated(question: &Question, algorithm: &Algorithm) -> Crossing {
    if question.blocks.is_none() {
        return algorithm.crossing(&question.call, &question.layout);
    }
    let ranks = 0..question.layout.size();
    let schedule = |rank| question.schedule(algorithm, &question.plan(rank, LINK_BYTES_MIN));
    measured(&ranks.map(schedule).collect::<Vec<_>>(), &question.layout)
}

const fn loads(stated: &Crossing, measured: &Crossing, level: Level) -> [Load; 2] {
    [stated.at(level), measured.at(level)]
}

fn words(Load { messages, bytes }: Load) -> String {
    format!("{messages} message{}, {bytes} B", if messages == 1 { "" } else { "s" })
}
