//! The heat of links: those of each level, coloured by the part of the time for which they are
//! full.

use std::collections::{BTreeMap, HashMap};

use ringfold_sim::LinkUse;

use super::answer::Answer;
use super::svg::Picture;
use crate::units;

/// Pixels: the names of levels, the cells, and a row of them.
const LEFT: f64 = 190.0;
const RIGHT: f64 = 210.0;
const ROW: f64 = 30.0;
/// The most cells of a row. A cell stands for the fullest of several links beyond.
const CELLS_MAX: usize = 320;
const SCALE: usize = 5;

/// Draws the links of a fabric under the call by ringfold's choice, or by the only algorithm.
pub(super) fn draw(picture: &mut Picture, answer: &Answer, width: f64) {
    let [size] = &answer.sizes[..] else { return };
    let done = size.cells.iter().filter_map(|it| Some((it.algorithm, it.outcome.as_ref().ok()?)));
    let (chosen, fastest) = (size.chosen, done.clone().min_by_key(|it| it.1.time_ps));
    let found = done.clone().find(|(name, _)| *name == chosen).or(fastest);
    let Some((algorithm, outcome)) = found else { return };
    let is_choice = if algorithm == chosen { " (ringfold's choice)" } else { "" };
    let time = units::time(outcome.time_ps);
    let title = format!("{} by {algorithm}{is_choice}: {time}", size.call);
    picture.height += 18.0;
    picture.text([24.0, picture.height], "start", "title", &title);
    picture.height += 20.0;
    picture.text([24.0, picture.height], "start", "", &answer.title());
    picture.height += 16.0;
    let used: HashMap<&str, &LinkUse> =
        outcome.links.iter().map(|it| (it.name.as_str(), it)).collect();
    let mut rows: BTreeMap<_, Vec<(&str, Option<&LinkUse>)>> = BTreeMap::new();
    for link in answer.question.job.network.links() {
        let levels @ [from, to] = link.levels;
        // First the way up, then that between equals, and the way down.
        let order = if from > to { usize::MAX - from } else { from };
        let link = (link.name.as_str(), used.get(link.name.as_str()).copied());
        rows.entry((from.cmp(&to), order, levels)).or_default().push(link);
    }
    let mut each = 1;
    for ((.., [from, to]), links) in rows {
        let top = picture.height;
        let label = format!("{} to {}, {} links", level(from), level(to), links.len());
        picture.text([LEFT - 10.0, top + 15.0], "end", "", &label);
        let of_cell = links.len().div_ceil(CELLS_MAX);
        each = of_cell.max(each);
        let cells = links.len().div_ceil(of_cell);
        let wide = (width - LEFT - RIGHT) / cells as f64;
        let gap = if wide > 4.0 { 1.0 } else { 0.0 };
        let part = |link: &LinkUse| link.full_ps as f64 / outcome.time_ps.max(1) as f64;
        for (at, links) in links.chunks(of_cell).enumerate() {
            let place = [LEFT + at as f64 * wide, top];
            let size = [wide - gap, ROW - 8.0];
            match fullest(links) {
                None => picture.cell(place, size, ("idle", 1.0), &format!("{}: idle", links[0].0)),
                Some(link) => {
                    let (full, of_bytes) = (part(link) * 100.0, link.used * 100.0);
                    let words = format!("{}: full {full:.0} %, used {of_bytes:.0} %", link.name);
                    picture.cell(place, size, ("full", opacity(part(link))), &words);
                }
            }
        }
        if let Some(link) = fullest(&links) {
            let words = format!("{:.0} % {}", part(link) * 100.0, link.name);
            picture.text([width - RIGHT + 8.0, top + 15.0], "start", "", &words);
        }
        picture.height += ROW;
    }
    picture.height += 6.0;
    let (top, wide) = (picture.height, 54.0);
    picture.text([LEFT - 10.0, top + 13.0], "end", "", "part of the time full");
    picture.cell([LEFT, top], [wide, 18.0], ("idle", 1.0), "no bytes");
    picture.text([LEFT + wide / 2.0, top + 34.0], "middle", "", "no bytes");
    for at in 0..SCALE {
        let part = at as f64 / (SCALE - 1) as f64;
        let x = LEFT + (at + 1) as f64 * (wide + 4.0) + 16.0;
        let words = format!("{:.0} %", part * 100.0);
        picture.cell([x, top], [wide, 18.0], ("full", opacity(part)), &words);
        picture.text([x + wide / 2.0, top + 34.0], "middle", "", &words);
    }
    if each > 1 {
        let words = format!("A cell is the fullest of up to {each} links side by side.");
        let x = LEFT + (SCALE + 1) as f64 * (wide + 4.0) + 40.0;
        picture.text([x, top + 13.0], "start", "", &words);
    }
    picture.height += 60.0;
}

fn fullest<'l>(links: &[(&str, Option<&'l LinkUse>)]) -> Option<&'l LinkUse> {
    links.iter().filter_map(|(_, link)| *link).max_by_key(|link| link.full_ps)
}

/// A link that carries bytes and is never full can be told from an idle one.
fn opacity(part: f64) -> f64 {
    0.08 + 0.92 * part.min(1.0)
}

fn level(number: usize) -> String {
    match number {
        0 => "host".into(),
        1 => "leaf".into(),
        2 => "spine".into(),
        3 => "core".into(),
        _ => format!("level {number}"),
    }
}
