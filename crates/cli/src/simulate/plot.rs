//! The plots of `--svg`: bus bandwidth by size and by hosts, or the heat of links.

use ringfold_types::Amount;

use super::answer::Answer;
use super::cell::{Cell, Size, bandwidths};
use super::heat;
use super::svg::Picture;
use crate::units;

/// Pixels: a plot, and the room around it.
const PLOT: [f64; 2] = [430.0, 270.0];
const LEFT: f64 = 64.0;
const BETWEEN: f64 = 76.0;
const ABOVE: f64 = 40.0;
const BELOW: f64 = 66.0;
const WIDTH: f64 = LEFT + 2.0 * PLOT[0] + BETWEEN + 24.0;

/// Lines of points over an axis of powers of two.
struct Plot<'a> {
    title: String,
    /// The name of the axis, and the values that it shows with their names.
    axis: &'static str,
    marks: Vec<(usize, String)>,
    points: Vec<Point<'a>>,
}

/// A call by an algorithm.
struct Point<'a> {
    x: usize,
    algorithm: &'a str,
    is_chosen: bool,
    bus: f64,
    words: String,
}

/// The picture of all answers: bus bandwidth by size if there are several, and by hosts if all
/// fabrics differ in these. Otherwise it is the heat of each fabric's links.
pub(super) fn picture(answers: &[Answer]) -> String {
    let mut picture = Picture::new(WIDTH);
    let collective = answers[0].question.collective;
    let by_size = answers.iter().filter(|it| it.sizes.len() > 1).map(by_size);
    let by_size: Vec<Plot<'_>> = by_size.collect();
    let by_hosts = by_hosts(answers);
    if by_size.is_empty() && by_hosts.is_empty() {
        answers.iter().for_each(|it| heat::draw(&mut picture, it, WIDTH));
        return picture.finish(&format!("{collective}: links by the time for which they are full"));
    }
    let mut names: Vec<&str> = Vec::new();
    for point in by_size.iter().chain(&by_hosts).flat_map(|plot| &plot.points) {
        if !names.contains(&point.algorithm) {
            names.push(point.algorithm);
        }
    }
    picture.height += 16.0;
    let title = format!("{collective}: bus bandwidth (GB/s)");
    picture.text([LEFT, picture.height], "start", "title", &title);
    // Plots by size share their vertical axis.
    let ends = |plots: &[Plot<'_>]| {
        let all = plots.iter().flat_map(|it| &it.points).map(|it| it.bus);
        all.fold([f64::MAX, 0.0], |[low, high], it| [it.min(low), it.max(high)])
    };
    let shared = ends(&by_size);
    let plots = by_size.iter().map(|it| (it, shared));
    let plots = plots.chain(by_hosts.iter().map(|it| (it, ends(std::slice::from_ref(it)))));
    let plots: Vec<(&Plot<'_>, [f64; 2])> = plots.collect();
    for row in plots.chunks(2) {
        let top = picture.height + ABOVE;
        for (column, (plot, ends)) in row.iter().enumerate() {
            let left = LEFT + column as f64 * (PLOT[0] + BETWEEN);
            plot.draw(&mut picture, [left, top], *ends, &names);
        }
        picture.height = top + PLOT[1] + BELOW;
    }
    picture.legend(LEFT, &names, "ringfold's choice");
    picture.finish(&title)
}

fn by_size(answer: &Answer) -> Plot<'_> {
    let sizes = &answer.sizes;
    let step = sizes.len().div_ceil(10);
    let marks = sizes.iter().step_by(step).map(|it| (it.bytes, Amount(it.bytes).to_string()));
    Plot {
        title: answer.title(),
        axis: "bytes of the larger buffer of a rank",
        marks: marks.collect(),
        points: sizes.iter().flat_map(|size| points(answer, size, size.bytes)).collect(),
    }
}

/// A plot for each size. None if two fabrics have as many hosts.
fn by_hosts(answers: &[Answer]) -> Vec<Plot<'_>> {
    let mut answers: Vec<&Answer> = answers.iter().collect();
    answers.sort_by_key(|it| it.hosts());
    if answers.len() < 2 || answers.windows(2).any(|it| it[0].hosts() == it[1].hosts()) {
        return Vec::new();
    }
    let fabrics: Vec<&str> = answers.iter().map(|it| it.question.place.as_str()).collect();
    let fabrics = match fabrics[..] {
        [first, .., last] => format!("{first} to {last}"),
        _ => String::new(),
    };
    let plot = |at: usize| {
        let each = answers.iter().map(|answer| (*answer, &answer.sizes[at]));
        let size = Amount(answers[0].sizes[at].bytes);
        Plot {
            title: format!("{size} on {fabrics}"),
            axis: "hosts",
            marks: answers.iter().map(|it| (it.hosts(), it.hosts().to_string())).collect(),
            points: each.flat_map(|(it, size)| points(it, size, it.hosts())).collect(),
        }
    };
    (0..answers[0].sizes.len()).map(plot).filter(|it| !it.points.is_empty()).collect()
}

/// The calls of a size. Those without bytes have no bandwidth.
fn points<'a>(answer: &Answer, size: &'a Size, x: usize) -> impl Iterator<Item = Point<'a>> {
    let ranks = answer.question.job.layout.size();
    size.cells.iter().filter_map(move |Cell { algorithm, outcome }| {
        let time_ps = outcome.as_ref().ok()?.time_ps;
        let [_, bus] = bandwidths(&size.call, size.bytes, ranks, time_ps);
        let (bytes, time) = (Amount(size.bytes), units::time(time_ps));
        let words = format!("{algorithm}, {bytes}, {ranks} ranks: {time}, {bus:.3} GB/s");
        let is_chosen = *algorithm == size.chosen;
        (bus > 0.0).then_some(Point { x, algorithm, is_chosen, bus, words })
    })
}

impl Plot<'_> {
    /// Draws it with its upper left corner at this place. `ends` are the least and the greatest
    /// bandwidth of its vertical axis.
    fn draw(&self, picture: &mut Picture, [left, top]: [f64; 2], ends: [f64; 2], names: &[&str]) {
        let [width, height] = PLOT;
        picture.text([left, top - 12.0], "start", "", &self.title);
        let [low, high] = [ends[0] / 1.25, ends[1] * 1.25].map(f64::log10);
        let logs = self.marks.iter().map(|(x, _)| *x).chain(self.points.iter().map(|it| it.x));
        let logs = logs.map(|x| (x as f64).log2());
        let [first, last] =
            logs.fold([f64::MAX, 0.0], |[low, high], it| [it.min(low), it.max(high)]);
        let across = |x: usize| {
            let part = ((x as f64).log2() - first) / (last - first).max(1e-9);
            left + 14.0 + part * (width - 28.0)
        };
        let up = |y: f64| top + height - (y.log10() - low) / (high - low) * height;
        for (x, name) in &self.marks {
            let x = across(*x);
            picture.rule([x, top], [x, top + height], "grid");
            picture.text([x, top + height + 18.0], "middle", "", name);
        }
        let steps: &[f64] = if high - low <= 2.2 { &[1.0, 2.0, 5.0] } else { &[1.0] };
        for power in -12..=12 {
            for mark in steps.iter().map(|step| step * 10_f64.powi(power)) {
                if (low..=high).contains(&mark.log10()) {
                    let y = up(mark);
                    picture.rule([left, y], [left + width, y], "grid");
                    picture.text([left - 6.0, y + 4.0], "end", "", &number(mark));
                }
            }
        }
        let bottom = top + height;
        picture.rule([left, bottom], [left + width, bottom], "axis");
        picture.text([left + width / 2.0, bottom + 36.0], "middle", "", self.axis);
        for (at, name) in names.iter().enumerate() {
            let points = self.points.iter().filter(|it| it.algorithm == *name);
            let places: Vec<_> = points.clone().map(|it| [across(it.x), up(it.bus)]).collect();
            picture.line(&places, at);
            for (point, place) in points.zip(places) {
                picture.dot(place, at, point.is_chosen, &point.words);
            }
        }
    }
}

/// A mark of an axis, without zeros at its end.
fn number(mark: f64) -> String {
    let decimals = if mark >= 1.0 { 0 } else { 9 };
    let text = format!("{mark:.decimals$}");
    if decimals > 0 { text.trim_end_matches('0').to_owned() } else { text }
}
