//! Prints the bytes that a call moves across each level of a fabric.

use std::fmt::{self, Write as _};
use std::io::{self, Write};

use ringfold_collectives::Schedule;
use ringfold_collectives::crossing::{Load, measured};
use ringfold_topology::Level;
use ringfold_types::limits::LINK_BYTES_MIN;

use super::args::Question;

/// Prints the bytes of all ranks together, by algorithm and level.
pub(super) fn table(text: &mut dyn Write, question: &Question) -> io::Result<()> {
    write!(text, "\n  {:<20}", "bytes of all ranks")?;
    Level::ALL.iter().try_for_each(|level| write!(text, " {:>18}", level.to_string()))?;
    writeln!(text, " {:>18}", "off their rail")?;
    for algorithm in question.algorithms().into_iter().filter(|it| it.works_anywhere()) {
        let ranks = 0..question.layout.size();
        let schedule = |rank| question.schedule(algorithm, &question.plan(rank, LINK_BYTES_MIN));
        let crossing = measured(ranks.map(schedule), &question.layout);
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

/// Prints the messages that an algorithm's schedules send, and their bytes.
pub(super) fn lines(text: &mut String, question: &Question, schedules: &[Schedule]) -> fmt::Result {
    let crossing = measured(schedules, &question.layout);
    let levels = Level::ALL.map(|level| (level.to_string(), crossing.at(level)));
    let off_rail = ("off their rail".to_owned(), crossing.off_rail);
    let mut head = "crosses";
    for (name, Load { messages, bytes }) in levels.into_iter().chain([off_rail]) {
        let s = if messages == 1 { "" } else { "s" };
        writeln!(text, "  {head:<8} {name:<18}  {messages} message{s}, {bytes} B")?;
        head = "";
    }
    Ok(())
}
