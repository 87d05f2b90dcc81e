//! The outcome of many cases, as a table.

use std::collections::BTreeMap;
use std::fmt;

use crate::design::Row;
use crate::grade::{Grade, Mark};
use crate::truth::Case;

#[derive(Debug, Default)]
struct Line {
    cases: usize,
    right: usize,
    kind: BTreeMap<Mark, usize>,
    members: BTreeMap<Mark, usize>,
    /// Cases in which hosts are grouped correctly, of those that have groups.
    groups: [usize; 2],
    lies: usize,
}

#[derive(Debug, Default)]
pub(crate) struct Table {
    lines: BTreeMap<Row, Line>,
    /// Descriptions of the cases that were not right.
    wrong: Vec<String>,
}

impl Table {
    pub(crate) fn add(&mut self, case: &Case, grade: &Grade, answer: &str) {
        let line = self.lines.entry(case.row).or_default();
        line.cases += 1;
        line.right += usize::from(grade.is_right());
        *line.kind.entry(grade.kind).or_default() += 1;
        *line.members.entry(grade.members).or_default() += 1;
        line.lies += usize::from(grade.is_lie());
        if let Some(is_right) = grade.groups {
            line.groups[0] += usize::from(is_right);
            line.groups[1] += 1;
        }
        let has_wrong_groups = case.is_intact() && grade.groups == Some(false);
        if !grade.is_right() || grade.is_lie() || has_wrong_groups {
            let Grade { kind, members, groups, lies } = grade;
            let marks = format!("kind {kind:?}, members {members:?}, groups {groups:?}");
            let (design, damage) = (&case.design, &case.damage);
            let kinds = &case.truth.kinds;
            let seed = case.seed;
            self.wrong.push(format!(
                "seed {seed}: {marks}, lies {lies:?}\n    {kinds:?}\n    {design:?}\n    \
                 {damage:?}\n    {answer}"
            ));
        }
    }

    pub(crate) fn cases(&self) -> usize {
        self.lines.values().map(|line| line.cases).sum()
    }

    /// Cases in which kind and rail membership are right.
    pub(crate) fn right(&self) -> usize {
        self.lines.values().map(|line| line.right).sum()
    }

    /// Cases in which a wrong answer is called certain.
    pub(crate) fn lies(&self) -> usize {
        self.lines.values().map(|line| line.lies).sum()
    }

    pub(crate) fn groups(&self) -> [usize; 2] {
        [0, 1].map(|index| self.lines.values().map(|line| line.groups[index]).sum())
    }

    /// The first cases that were not right.
    pub(crate) fn examples(&self, count: usize) -> String {
        self.wrong.iter().take(count).map(|line| format!("{line}\n")).collect()
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{:<20}{:>6}{:>7} |{:^40} |{:^40} | groups",
            "", "cases", "right", "kind", "rail membership"
        )?;
        write!(f, "{:<33} |", "")?;
        for _ in 0..2 {
            write!(
                f,
                "{:>8}{:>8}{:>8}{:>10}{:>9} |",
                "certain", "likely", "unknown", "wrong", "LIE"
            )?;
        }
        writeln!(f)?;
        for (row, line) in &self.lines {
            write!(f, "{:<20}{:>6}{:>7} |", format!("{row:?}"), line.cases, line.right)?;
            for marks in [&line.kind, &line.members] {
                for (mark, width) in Mark::ALL.iter().zip([8; 5]) {
                    write!(f, "{:>width$}", marks.get(mark).copied().unwrap_or(0))?;
                }
                write!(f, " |")?;
            }
            writeln!(f, " {}/{}", line.groups[0], line.groups[1])?;
        }
        let [grouped, of] = self.groups();
        writeln!(
            f,
            "{} of {} right, {} wrong and called certain, groups {grouped} of {of}",
            self.right(),
            self.cases(),
            self.lies()
        )
    }
}
