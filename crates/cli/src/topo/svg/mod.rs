//! Draws a fabric as SVG: higher switches on top, each group of hosts below its leaf switches, a
//! line for each rail. The file needs no other files.

mod block;
mod canvas;
mod graph;
mod style;

use std::collections::{BTreeMap, BTreeSet};

use ringfold_topology::fabric::{Classification, Fabric};

use self::block::Drawn;
use self::canvas::{Area, Canvas, Font, Look};
use self::style::{DARK, GREY, RED, TEXT, TITLE, WHITE};
use super::picture::Picture;
use super::switches::{folded, levels, shorten};
use super::text;

/// With more hosts than this, hosts that look alike share a row.
const HOSTS_MAX: usize = 128;

/// A level with more switches is one box.
const BOXES_MAX: usize = 16;

/// Wider pictures put groups into several lines, with labels in place of cables to higher switches.
const LINE_WIDTH_MAX: f64 = 3200.0;

/// The most groups to draw; the rest are counted.
const BLOCKS_MAX: usize = 64;
/// The most oddities to list; the rest are counted.
const ODDITIES_MAX: usize = 24;

const MARGIN: f64 = 20.0;
const WIDTH_MIN: f64 = 720.0;
const GAP: f64 = 24.0;
const LEVEL_HEIGHT: f64 = 96.0;

/// Returns the fabric as the text of an SVG file.
pub(super) fn fabric(fabric: &Fabric, found: &Classification) -> String {
    let Sheet { canvas, width, height } = Sheet::draw(fabric, found);
    canvas.finish(width, height)
}

/// Returns the area and text of each label, and the width and height of the sheet.
#[cfg(test)]
pub(super) fn labels(fabric: &Fabric, found: &Classification) -> (Vec<(Area, String)>, [f64; 2]) {
    let Sheet { canvas, width, height } = Sheet::draw(fabric, found);
    (canvas.labels, [width, height])
}

/// A drawing and its size.
struct Sheet {
    canvas: Canvas,
    width: f64,
    height: f64,
}

impl Sheet {
    fn draw(fabric: &Fabric, found: &Classification) -> Self {
        let picture = Picture::of(fabric, found, text::count_hosts(fabric) > HOSTS_MAX);
        let blocks: Vec<Drawn<'_>> = picture
            .blocks
            .iter()
            .take(BLOCKS_MAX)
            .map(|block| Drawn::new(fabric, &picture, block))
            .collect();
        let mut canvas = Canvas::default();
        let step = blocks.iter().map(|block| block.width).fold(0.0, f64::max) + GAP;
        let abreast = (1..=blocks.len().max(1))
            .take_while(|count| number(*count) * step - GAP <= LINE_WIDTH_MAX)
            .last();
        let abreast = abreast.unwrap_or(1);
        let is_one_line = blocks.len() <= abreast;
        let lines: Vec<&[Drawn<'_>]> = blocks.chunks(abreast).collect();
        let graph = graph::Graph::of(fabric, found, &picture);
        let rows = upper(fabric, graph.is_some());
        let width = number(abreast.min(blocks.len())) * step - GAP;
        let widest = width.max(WIDTH_MIN);
        let boxes = rows.iter().map(|row| row.iter().map(|it| it.width() + GAP).sum::<f64>());
        let graph_width = graph.as_ref().map_or(0.0, |graph| graph.width);
        let inner = boxes.fold(widest, f64::max).max(graph_width);
        let mut y = header(&mut canvas, fabric, found, inner);
        if let Some(graph) = &graph {
            y = graph.draw(&mut canvas, MARGIN + (inner - graph.width) / 2.0, y) + GAP;
        }
        let mut areas: BTreeMap<usize, Area> = BTreeMap::new();
        for row in &rows {
            place(row, inner, y, &mut areas);
            y += LEVEL_HEIGHT;
        }
        let mut tops = Vec::new();
        for line in &lines {
            let mut x = MARGIN + (inner - width) / 2.0;
            for block in *line {
                block.heads(x, y, &mut areas);
                tops.push((block, x, y));
                x += step;
            }
            y += line.iter().map(|block| block.height).fold(0.0, f64::max) + GAP;
        }
        if is_one_line && graph.is_none() {
            cables(&mut canvas, fabric, &picture, &areas);
        }
        for row in &rows {
            row.iter().for_each(|upper| upper.draw(&mut canvas, &areas));
        }
        for (block, x, y) in tops {
            let above = if is_one_line || graph.is_some() { String::new() } else { block.above() };
            block.draw(&mut canvas, x, y, &above);
        }
        let left = picture.blocks.len().saturating_sub(BLOCKS_MAX);
        if left > 0 {
            canvas.label((MARGIN, y), TEXT, &format!("and {}", text::many(left, "more group")));
            y += GAP;
        }
        y = oddities(&mut canvas, found, inner, y);
        Self { canvas, width: inner + 2.0 * MARGIN, height: y + MARGIN }
    }
}

/// Draws the lines above the picture, and returns their lower edge.
fn header(canvas: &mut Canvas, fabric: &Fabric, found: &Classification, width: f64) -> f64 {
    let mut y = MARGIN + TITLE.size;
    let kind = format!("{} ({})", text::kind(&found.kind.value), found.kind.certainty);
    canvas.label((MARGIN, y), TITLE, &shorten(&kind, TITLE.room(width)));
    let mut lines = vec![text::size(fabric)];
    lines.push(format!(
        "{} ({}), {} ({}), {} ({})",
        match found.rails.value {
            0 => "no rails".to_owned(),
            rails => text::many(rails.into(), "rail"),
        },
        found.rails.certainty,
        text::many(found.planes.value.into(), "plane"),
        found.planes.certainty,
        text::many(found.subnets.value as usize, "subnet"),
        found.subnets.certainty,
    ));
    lines.push(format!("because: {}", found.kind.because));
    for line in lines {
        y += 18.0;
        canvas.label((MARGIN, y), TEXT, &shorten(&line, TEXT.room(width)));
    }
    y + GAP
}

/// A box above the leaf switches: one switch, or all switches of a level.
struct Upper {
    switches: Vec<usize>,
    name: String,
}

impl Upper {
    fn width(&self) -> f64 {
        WHITE.width(&self.name) + 20.0
    }

    fn draw(&self, canvas: &mut Canvas, areas: &BTreeMap<usize, Area>) {
        let Some(area) = self.switches.first().and_then(|at| areas.get(at)) else { return };
        canvas.rect(*area, Look::filled(DARK, DARK));
        let (x, y) = area.middle();
        canvas.centred((x, y + 4.0), WHITE, &self.name);
    }
}

/// Returns the boxes of switches without hosts, the highest level first.
fn upper(fabric: &Fabric, has_graph: bool) -> Vec<Vec<Upper>> {
    let levels = levels(fabric);
    let highest = levels.iter().copied().max().unwrap_or(0);
    let lowest = if has_graph { highest + 1 } else { 2 };
    let row = |level| {
        let here: Vec<usize> = (0..levels.len()).filter(|at| levels[*at] == level).collect();
        let one = |at: usize| Upper { switches: vec![at], name: folded(fabric, &[at]) };
        match here.len() {
            ..=BOXES_MAX => here.into_iter().map(one).collect(),
            count => {
                let name = format!("{} x{count}", folded(fabric, &here));
                vec![Upper { switches: here, name: shorten(&name, 60) }]
            }
        }
    };
    (lowest..=highest).rev().map(row).collect()
}

fn number(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

/// Spreads the boxes of a level over the width.
fn place(row: &[Upper], width: f64, y: f64, areas: &mut BTreeMap<usize, Area>) {
    let all: f64 = row.iter().map(Upper::width).sum();
    let gap = ((width - all) / number(row.len().max(1))).max(0.0);
    let mut x = MARGIN + gap / 2.0;
    for upper in row {
        let area = Area { x, y, w: upper.width(), h: 26.0 };
        areas.extend(upper.switches.iter().map(|at| (*at, area)));
        x += area.w + gap;
    }
}

/// Draws a line between each two boxes with a cable, in the colour of its rail.
fn cables(canvas: &mut Canvas, fabric: &Fabric, picture: &Picture, areas: &BTreeMap<usize, Area>) {
    let mut rail_of = BTreeMap::new();
    for block in &picture.blocks {
        for (column, switches) in block.heads.iter().enumerate() {
            for switch in switches {
                // A switch of several rails has no colour of its own.
                let rail = rail_of.entry(*switch).or_insert(Some(column));
                *rail = rail.filter(|rail| *rail == column);
            }
        }
    }
    let mut drawn = BTreeSet::new();
    for cable in &fabric.cables {
        let ends = cable.ends.map(|(switch, _)| (switch, areas.get(&switch)));
        let [(one, Some(first)), (other, Some(second))] = ends else { continue };
        let (low, high) = if first.y > second.y { (first, second) } else { (second, first) };
        let bits = |area: &Area| (area.x.to_bits(), area.y.to_bits());
        if low == high || !drawn.insert((bits(low), bits(high))) {
            continue;
        }
        let rail = [one, other].iter().find_map(|at| rail_of.get(at).copied().flatten());
        let color = rail.map_or_else(|| GREY.to_owned(), |rail| block::color_of(picture, rail));
        let (from, look) = ((low.middle().0, low.y), Look::drawn(&color, 0.8));
        if low.y > high.y {
            canvas.stroke(from, (high.middle().0, high.y + high.h), look);
        } else {
            // Both switches are on one level, so the cable bends over the boxes between them.
            let to = (high.middle().0, high.y);
            canvas.bend(from, ((from.0 + to.0) / 2.0, from.1 - LEVEL_HEIGHT / 2.0), to, look);
        }
    }
}

/// Draws a line for each oddity, and returns their lower edge.
fn oddities(canvas: &mut Canvas, found: &Classification, width: f64, mut y: f64) -> f64 {
    let font = Font { color: RED, ..TEXT };
    let lines = found.oddities.iter().map(|oddity| format!("! {}", oddity.what));
    let mut lines: Vec<String> = lines.take(ODDITIES_MAX).collect();
    let left = found.oddities.len().saturating_sub(ODDITIES_MAX);
    if left > 0 {
        lines.push(format!("and {left} more"));
    }
    for line in lines {
        y += 18.0;
        canvas.label((MARGIN, y), font, &shorten(&line, font.room(width)));
    }
    y
}
