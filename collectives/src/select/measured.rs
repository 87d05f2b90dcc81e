//! The times that calls took on a machine, and their text form. `ringfold tune` writes the text,
//! and `RINGFOLD_PLAN` names the file.

use alloc::vec::Vec;
use core::fmt;
use core::str::FromStr;
use core::time::Duration;

use ringfold_topology::Layout;
use ringfold_types::limits::{PLAN_ROWS_MAX, RANKS_MAX};
use ringfold_types::{Amount, Call, Collective};

use crate::algorithm::Algorithm;
use crate::schedule::Form;
use crate::wire::among_all;

/// Times of calls by several algorithms, for some numbers of ranks and hosts and some sizes.
///
/// The text form has one measurement per line, in any order. `#` begins a comment:
///
/// ```text
/// collective ranks hosts bytes algorithm nanoseconds
/// ```
///
/// `bytes` are those of the larger of a rank's two buffers, as in nccl-tests. Names and sizes have
/// the spellings that flags take, as in `all_reduce` and `64K`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Measurements {
    rows: Vec<Row>,
}

/// One measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Row {
    /// The collective.
    pub collective: Collective,
    /// Number of ranks.
    pub ranks: usize,
    /// Number of hosts.
    pub hosts: usize,
    /// Bytes of the larger of a rank's two buffers.
    pub bytes: usize,
    /// The name of the algorithm.
    pub algorithm: &'static str,
    /// Nanoseconds that one call took.
    pub nanos: u64,
}

/// A line that is not a measurement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidMeasurements {
    /// The number of the line, counted from 1.
    pub line: usize,
    /// The expected content of the line.
    pub wanted: &'static str,
}

impl Measurements {
    /// Adds a measurement. It replaces an earlier one of the same call and algorithm.
    pub fn add(&mut self, row: Row) {
        let kind = |row: &Row| (row.collective, row.ranks, row.hosts, row.bytes, row.algorithm);
        match self.rows.binary_search_by_key(&kind(&row), kind) {
            Ok(at) => self.rows[at] = row,
            Err(at) => self.rows.insert(at, row),
        }
    }

    /// Drops all measurements with this number of ranks and hosts.
    pub fn drop_shape(&mut self, ranks: usize, hosts: usize) {
        self.rows.retain(|row| (row.ranks, row.hosts) != (ranks, hosts));
    }

    /// All measurements, sorted by collective, ranks, hosts, bytes and algorithm.
    #[must_use]
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// The measurements closest to `call`: with the same number of ranks and hosts, at the nearest
    /// size. Empty for reductions of short floats whose partial results travel as accumulators,
    /// unlike those of the measured f32.
    #[must_use]
    pub fn closest(&self, call: &Call, layout: &Layout) -> &[Row] {
        let (ranks, hosts) = (layout.size(), layout.hosts());
        let bytes = buffer_bytes(call, ranks);
        let is_short = call.data_type.is_short_float() && call.collective.reduces();
        if is_short && among_all(call, layout) == Form::Accumulator {
            return &[];
        }
        let group = self.rows.iter().filter(|row| {
            (row.collective, row.ranks, row.hosts) == (call.collective, ranks, hosts)
        });
        // The distance of two sizes is their quotient.
        let distance = |row: &&Row| {
            let (a, b) = (row.bytes.max(1) as u128, bytes.max(1) as u128);
            (a.max(b) << 32) / a.min(b)
        };
        let Some(nearest) = group.min_by_key(distance) else { return &[] };
        let is_same = |row: &Row| {
            (row.collective, row.ranks, row.hosts, row.bytes)
                == (nearest.collective, ranks, hosts, nearest.bytes)
        };
        let start = self.rows.iter().position(is_same).unwrap_or(0);
        let len = self.rows[start..].iter().take_while(|row| is_same(row)).count();
        &self.rows[start..start + len]
    }

    /// The fastest measured algorithm for such a call that is `allowed`.
    pub(super) fn fastest(
        &self,
        call: &Call,
        layout: &Layout,
        allowed: impl Fn(&Algorithm) -> bool,
    ) -> Option<&'static Algorithm> {
        let known = |row: &Row| {
            let algorithm = Algorithm::named(row.collective, row.algorithm)?;
            allowed(algorithm).then_some((row.nanos, algorithm))
        };
        let allowed = self.closest(call, layout).iter().filter_map(known);
        allowed.min_by_key(|(nanos, _)| *nanos).map(|(_, algorithm)| algorithm)
    }
}

/// Bytes of the larger of a rank's two buffers.
#[must_use]
pub fn buffer_bytes(call: &Call, ranks: usize) -> usize {
    let elements = call.input_len(ranks).max(call.output_len(ranks));
    elements.saturating_mul(call.data_type.bytes())
}

impl Row {
    /// The time that one call took.
    #[must_use]
    pub const fn time(&self) -> Duration {
        Duration::from_nanos(self.nanos)
    }
}

impl FromStr for Measurements {
    type Err = InvalidMeasurements;

    fn from_str(text: &str) -> Result<Self, InvalidMeasurements> {
        let mut all = Self::default();
        for (index, line) in text.lines().enumerate() {
            let line_number = index + 1;
            let wanted = |wanted| InvalidMeasurements { line: line_number, wanted };
            let data = line.split('#').next().unwrap_or_default();
            if data.trim().is_empty() {
                continue;
            }
            if all.rows.len() == PLAN_ROWS_MAX {
                return Err(wanted("no more measurements than limits::PLAN_ROWS_MAX"));
            }
            all.add(row(data).map_err(wanted)?);
        }
        Ok(all)
    }
}

fn row(data: &str) -> Result<Row, &'static str> {
    let words: Vec<&str> = data.split_whitespace().collect();
    let [collective, ranks, hosts, bytes, algorithm, nanos] = words[..] else {
        return Err("collective ranks hosts bytes algorithm nanoseconds");
    };
    let collective: Collective =
        collective.parse().map_err(|_| "a collective as the first word")?;
    let count = |word: &str| {
        word.parse()
            .ok()
            .filter(|count| (1..=RANKS_MAX).contains(count))
            .ok_or("a number of ranks and one of hosts, in range")
    };
    let (ranks, hosts) = (count(ranks)?, count(hosts)?);
    let algorithm = Algorithm::named(collective, algorithm)
        .ok_or("an algorithm of the collective as the fifth word")?;
    Ok(Row {
        collective,
        ranks,
        hosts,
        bytes: bytes
            .parse()
            .map(|Amount(it)| it)
            .map_err(|_| "a number of bytes as the fourth word")?,
        algorithm: algorithm.name,
        nanos: nanos.parse().map_err(|_| "a number of nanoseconds as the last word")?,
    })
}

impl fmt::Display for Measurements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "# collective ranks hosts bytes algorithm nanoseconds")?;
        self.rows.iter().try_for_each(|row| {
            let Row { collective, ranks, hosts, bytes, algorithm, nanos } = row;
            writeln!(f, "{collective} {ranks} {hosts} {bytes} {algorithm} {nanos}")
        })
    }
}

impl fmt::Display for InvalidMeasurements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: expected {}", self.line, self.wanted)
    }
}

impl core::error::Error for InvalidMeasurements {}

#[cfg(test)]
mod tests {
    use alloc::string::ToString;

    use ringfold_types::{DataType, Rank, ReduceOp, Wire};

    use super::*;
    use crate::select::{Constraints, select};

    const TEXT: &str = "
        allreduce 4 1 1024 one_shot 900   # small
        allreduce 4 1 1024 ring 2000
        allreduce 4 1 65536 one_shot 90000
        allreduce 4 1 65536 ring 40000
        allreduce 4 1 65536 tree 30000
    ";

    fn call(bytes: usize) -> Call {
        let (collective, op) = (Collective::AllReduce, ReduceOp::Sum);
        Call {
            collective,
            count: bytes / 4,
            data_type: DataType::F32,
            op,
            root: Rank(0),
            wire: Wire::default(),
        }
    }

    #[test]
    fn the_fastest_at_the_nearest_size_is_chosen() {
        let measured: Measurements = TEXT.parse().unwrap();
        let chosen = |bytes, ranks, constraints: &str| {
            let constraints = constraints.parse().unwrap();
            select(&call(bytes), &Layout::one_host(ranks), &constraints, &measured).name
        };
        for (bytes, name) in
            [(4, "one_shot"), (8188, "one_shot"), (8196, "tree"), (1 << 30, "tree")]
        {
            assert_eq!(chosen(bytes, 4, "^bruck"), name, "{bytes}");
        }
        assert_eq!(chosen(1 << 20, 4, "allreduce:ring,one_shot"), "ring");
        let unmeasured = select(
            &call(1 << 20),
            &Layout::one_host(5),
            &Constraints::default(),
            &Measurements::default(),
        );
        assert_eq!(chosen(1 << 20, 5, "^bruck"), unmeasured.name, "priced where none is measured");
        assert_eq!(chosen(1 << 20, 4, "allreduce:two_shot"), "two_shot", "nor that is allowed");
    }

    #[test]
    fn short_floats_are_priced() {
        let measured: Measurements = TEXT.parse().unwrap();
        let short = Call { data_type: DataType::F16, ..call(1024) };
        assert!(measured.closest(&short, &Layout::one_host(4)).is_empty());
    }

    #[test]
    fn text_is_read_as_it_was_written() {
        let measured: Measurements = TEXT.parse().unwrap();
        assert_eq!(measured.rows().len(), 5);
        let spelled = "all_reduce 4 1 1K ONE-SHOT 900\nAllReduce 4 1 64KB tree 30000\n";
        let spelled: Measurements = spelled.parse().unwrap();
        assert!(spelled.rows().iter().all(|row| measured.rows().contains(row)), "{spelled}");
        assert_eq!(measured.to_string().parse(), Ok(measured));
    }

    #[test]
    fn nonsense_names_its_line() {
        for (text, wanted) in [
            ("allreduce 4 1 8 ring", "collective ranks"),
            ("scattered 4 1 8 ring 5", "a collective"),
            ("allreduce 0 1 8 ring 5", "a number of ranks"),
            ("allreduce 4 1 8 bruck 5", "an algorithm"),
            ("allreduce 4 1 8X ring 5", "bytes"),
            ("allreduce 4 1 8 ring -5", "nanoseconds"),
        ] {
            let error = alloc::format!("# fine\n{text}").parse::<Measurements>().unwrap_err();
            assert_eq!(error.line, 2);
            assert!(error.wanted.contains(wanted), "{error}");
        }
    }
}
