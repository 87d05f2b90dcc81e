//! Prints a timeline: few ranks side by side, many ranks line by line.

use std::fmt::{self, Write};

use ringfold_types::Collective;

use super::args::Question;
use super::timeline::Timeline;

/// The most ranks side by side.
const COLUMNS_MAX: usize = 8;

/// The width, in characters, from which a column breaks its lines.
const WIDTH_WANTED: usize = 24;

/// Prints the part of a timeline that `question` asks for, and a legend.
pub(super) fn print(text: &mut String, timeline: &Timeline, question: &Question) -> fmt::Result {
    let size = question.layout.size();
    let shown = match question.rank {
        Some(rank) => rank.index()..rank.index() + 1,
        None => 0..size,
    };
    if timeline.is_empty() {
        return writeln!(text, "nothing to do");
    }
    if shown.len() > COLUMNS_MAX {
        by_lines(text, timeline)?;
    } else {
        let width = if shown.len() == 1 { usize::MAX } else { WIDTH_WANTED };
        side_by_side(text, timeline, shown, width)?;
    }
    let buffers = match question.call.collective {
        Collective::Barrier => "s holds a rank's tokens",
        _ => "in, out, s: a rank's input, output, scratch memory",
    };
    writeln!(text, "\n-> #r: send to rank r; = #r: receive from rank r; {buffers}.")?;
    if question.algorithm.is_some_and(ringfold_collectives::Algorithm::needs_windows) {
        writeln!(text, "#r.in, #r.out: rank r's input and output, accessed in place.")?;
    }
    if question.algorithm.is_some_and(ringfold_collectives::Algorithm::needs_staging) {
        writeln!(text, "staging, #r.staging: this rank's and rank r's staging buffer.")?;
    }
    if timeline.iter().flatten().flatten().any(|line| line == "signal all") {
        writeln!(text, "signal all: report progress to all ranks; wait #r: await its signal.")?;
    }
    writeln!(text, "A link carries one message in a step. Actions in a step are in order.")?;
    if timeline
        .iter()
        .flatten()
        .flatten()
        .any(|line| line.starts_with(|c: char| c.is_ascii_digit()))
    {
        writeln!(text, "0:, 1:, ...: lanes, which run independently.")?;
    }
    Ok(())
}

fn side_by_side(
    text: &mut String,
    timeline: &Timeline,
    shown: std::ops::Range<usize>,
    width_wanted: usize,
) -> fmt::Result {
    let wrapped = |cell: &Vec<String>| -> Vec<String> {
        cell.iter().flat_map(|line| wrap(line, width_wanted)).collect()
    };
    let rows: Vec<Vec<Vec<String>>> =
        timeline.iter().map(|row| row[shown.clone()].iter().map(wrapped).collect()).collect();
    let longest = |column: usize| {
        let lines = rows.iter().flat_map(|row| &row[column]).map(String::len);
        lines.max().unwrap_or(0).max("rank 000".len())
    };
    let widths: Vec<usize> = (0..shown.len()).map(longest).collect();
    let mut head = "step".to_string();
    for (rank, width) in shown.zip(&widths) {
        write!(head, "  {:<width$}", format!("rank {rank}"))?;
    }
    writeln!(text, "{}", head.trim_end())?;
    for (index, row) in rows.iter().enumerate() {
        let height = row.iter().map(Vec::len).max().unwrap_or(0);
        for line in 0..height {
            let mut printed =
                if line == 0 { format!("{:>4}", index + 1) } else { " ".repeat("step".len()) };
            for (cell, width) in row.iter().zip(&widths) {
                write!(printed, "  {:<width$}", cell.get(line).map_or("", String::as_str))?;
            }
            writeln!(text, "{}", printed.trim_end())?;
        }
    }
    Ok(())
}

fn by_lines(text: &mut String, timeline: &Timeline) -> fmt::Result {
    for (index, row) in timeline.iter().enumerate() {
        writeln!(text, "step {}", index + 1)?;
        for (rank, things) in row.iter().enumerate().filter(|(_, things)| !things.is_empty()) {
            writeln!(text, "  rank {rank:>4}  {}", things.join("; "))?;
        }
    }
    Ok(())
}

/// Breaks a line before operators to at most `width` characters, where operators allow it.
fn wrap(line: &str, width: usize) -> Vec<String> {
    let mut words = line.split(' ').peekable();
    let mut lines = Vec::new();
    let mut current = String::new();
    while let Some(word) = words.next() {
        let mut piece = word.to_string();
        while let Some(word) = words.next_if(|word| !OPERATORS.contains(word)) {
            piece = format!("{piece} {word}");
        }
        if current.is_empty() {
            current = piece;
        } else if current.len() + 1 + piece.len() <= width {
            current = format!("{current} {piece}");
        } else {
            lines.push(std::mem::replace(&mut current, format!("  {piece}")));
        }
    }
    lines.push(current);
    lines
}

/// Words at the beginning of a broken line, never at its end.
const OPERATORS: [&str; 7] = ["=", "->", "+", "*", "min", "max", "/"];

#[cfg(test)]
mod tests {
    use super::wrap;

    #[test]
    fn lines_break_before_operators() {
        assert_eq!(wrap("out[0..4] = #3 + in[0..4]", 24), ["out[0..4] = #3", "  + in[0..4]"]);
        assert_eq!(wrap("0: s[0..4] = #3 + #4", 10), ["0: s[0..4]", "  = #3", "  + #4"]);
        assert_eq!(wrap("in[0..1000] -> #3", 9), ["in[0..1000]", "  -> #3"]);
        assert_eq!(wrap("in[0..4] -> #3", 24), ["in[0..4] -> #3"]);
    }
}
