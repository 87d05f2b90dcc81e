//! Draws a group of hosts: leaf switches above, a row for each host, a line down each rail.

use std::collections::{BTreeMap, BTreeSet};

use ringfold_topology::fabric::{Cable, Fabric};

use super::super::names::fold;
use super::super::picture::{Block, Cell, Picture, Row, State};
use super::super::switches::{folded, levels, shorten};
use super::super::text;
use super::canvas::{Area, Canvas, Font, Look, color};
use super::style::{DARK, GREY, ORANGE, RED, SMALL, WHITE};

const HEAD_HEIGHT: f64 = 36.0;
const ROW_HEIGHT: f64 = 30.0;
const CHIP_HEIGHT: f64 = 18.0;
const PADDING: f64 = 10.0;

/// The most characters of a label.
const LABEL_MAX: usize = 30;

/// A group with the sizes of its parts.
pub(super) struct Drawn<'a> {
    picture: &'a Picture,
    block: &'a Block,
    /// A label that names the higher switches above its leaf switches.
    above: String,
    names: Vec<String>,
    cells: Vec<Vec<String>>,
    label_width: f64,
    columns: Vec<f64>,
    heads: Vec<Head>,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// A box above one or several columns.
struct Head {
    columns: std::ops::Range<usize>,
    switches: Vec<usize>,
    title: String,
    name: String,
}

/// Returns the colour of a column.
pub(super) fn color_of(picture: &Picture, column: usize) -> String {
    let rails = picture.columns.iter().filter_map(|it| it.place).map(|place| place.rail);
    let all = usize::from(rails.max().unwrap_or(0)) + 1;
    match picture.columns.get(column).and_then(|column| column.place) {
        // Without rails, colours distinguish planes.
        Some(place) if all == 1 => color(place.plane.into(), picture.columns.len(), 0),
        Some(place) => color(place.rail.into(), all, place.plane),
        None => GREY.to_owned(),
    }
}

impl<'a> Drawn<'a> {
    pub(super) fn new(fabric: &Fabric, picture: &'a Picture, block: &'a Block) -> Self {
        let name = |row: &Row| match row.hosts.len() {
            1 => shorten(&row.hosts[0], LABEL_MAX),
            count => format!("{} x{count}", shorten(&fold(&row.hosts), LABEL_MAX)),
        };
        let names: Vec<String> = block.rows.iter().map(name).collect();
        let cell = |cell: &Cell| shorten(&text::cell(fabric, cell), LABEL_MAX);
        let cells: Vec<Vec<String>> =
            block.rows.iter().map(|row| row.cells.iter().map(cell).collect()).collect();
        let heads = heads(fabric, picture, block);
        let above = above(fabric, block);
        let title_width = SMALL.width(&block.title).max(SMALL.width(&above));
        let widest = names.iter().map(|name| SMALL.width(name)).fold(title_width, f64::max);
        let mut columns: Vec<f64> = (0..picture.columns.len())
            .map(|at| {
                let widths = cells.iter().map(|cells| SMALL.width(&cells[at]));
                widths.fold(0.0, f64::max) + 2.0 * PADDING
            })
            .collect();
        for head in &heads {
            let count = f64::from(u32::try_from(head.columns.len()).unwrap_or(1));
            let needed = WHITE.width(&head.name).max(BOLD.width(&head.title)) + 2.0 * PADDING;
            for width in &mut columns[head.columns.clone()] {
                *width = width.max(needed / count);
            }
        }
        let label_width = widest + 2.0 * PADDING;
        let width = label_width + columns.iter().sum::<f64>() + PADDING;
        let rows = f64::from(u32::try_from(names.len()).unwrap_or(u32::MAX));
        let height = HEAD_HEIGHT + PADDING + rows * ROW_HEIGHT;
        Self { picture, block, above, names, cells, label_width, columns, heads, width, height }
    }

    /// Adds the areas of the leaf switches, for a group that is drawn at `x` and `y`.
    pub(super) fn heads(&self, x: f64, y: f64, areas: &mut BTreeMap<usize, Area>) {
        for head in &self.heads {
            let area = self.area(head, x, y);
            areas.extend(head.switches.iter().map(|switch| (*switch, area)));
        }
    }

    fn area(&self, head: &Head, x: f64, y: f64) -> Area {
        let left = x + self.label_width + self.columns[..head.columns.start].iter().sum::<f64>();
        let w = self.columns[head.columns.clone()].iter().sum::<f64>() - 6.0;
        Area { x: left + 3.0, y, w, h: HEAD_HEIGHT }
    }

    /// Returns the horizontal middle of a column.
    fn middle(&self, x: f64, column: usize) -> f64 {
        let left = self.columns[..column].iter().sum::<f64>();
        x + self.label_width + left + self.columns[column] / 2.0
    }

    pub(super) fn above(&self) -> String {
        self.above.clone()
    }

    /// Draws the group at `x` and `y`, with `subtitle` below its title.
    pub(super) fn draw(&self, canvas: &mut Canvas, x: f64, y: f64, subtitle: &str) {
        let (x_text, middle) = (x + PADDING, y + HEAD_HEIGHT / 2.0);
        let up = if subtitle.is_empty() { 0.0 } else { 7.0 };
        canvas.label((x_text, middle + 4.0 - up), SMALL_BOLD, &self.block.title);
        canvas.label((x_text, middle + 4.0 + up), SMALL, subtitle);
        let top = y + HEAD_HEIGHT + PADDING;
        for (at, name) in self.names.iter().enumerate() {
            let y = top + ROW_HEIGHT * f64::from(u32::try_from(at).unwrap_or(u32::MAX));
            let area = Area { x, y, w: self.width, h: ROW_HEIGHT - 6.0 };
            canvas.rect(area, Look::filled("#eef1f5", "#b4bac4"));
            canvas.label((x + PADDING, y + 16.0), SMALL, name);
        }
        for head in &self.heads {
            self.head(canvas, head, x, y);
        }
        for (row, cells) in self.block.rows.iter().zip(&self.cells).enumerate() {
            let y = top + ROW_HEIGHT * f64::from(u32::try_from(row).unwrap_or(u32::MAX));
            let (row, cells) = cells;
            for (column, cell) in row.cells.iter().enumerate() {
                self.chip(canvas, (column, cell, &cells[column]), x, y);
            }
        }
    }

    /// Draws a leaf switch with the lines of its rails.
    fn head(&self, canvas: &mut Canvas, head: &Head, x: f64, y: f64) {
        let area = self.area(head, x, y);
        let is_one = head.columns.len() == 1;
        let own = color_of(self.picture, head.columns.start);
        let fill = if is_one { own.as_str() } else { DARK };
        for column in head.columns.clone() {
            let color = color_of(self.picture, column);
            let from = (self.middle(x, column), y + HEAD_HEIGHT);
            let to = (from.0, y + self.height - ROW_HEIGHT / 2.0);
            if !self.block.rows.is_empty() && !head.switches.is_empty() {
                canvas.stroke(from, to, Look::drawn(&color, 2.0));
            }
        }
        let (middle, _) = area.middle();
        if head.switches.is_empty() {
            canvas.rect(area, Look::filled("#ffffff", fill).dashed());
            let font = Font { color: fill, ..BOLD };
            canvas.centred((middle, y + 22.0), font, &head.title);
        } else {
            canvas.rect(area, Look::filled(fill, fill));
            canvas.centred((middle, y + 15.0), BOLD, &head.title);
            canvas.centred((middle, y + 29.0), WHITE, &head.name);
        }
    }

    /// Draws a host's ports in a column.
    fn chip(&self, canvas: &mut Canvas, of: (usize, &Cell, &str), x: f64, y: f64) {
        let (column, cell, text) = of;
        let rail = color_of(self.picture, column);
        let middle = self.middle(x, column);
        let is_elsewhere = !cell.switches.is_empty() && !self.block.heads[column].is_empty();
        let (stroke, is_dashed) = match cell.state {
            State::Absent => (GREY, true),
            State::Down { .. } => (RED, true),
            State::Slow(_) => (ORANGE, false),
            State::Up if cell.is_odd || is_elsewhere => (RED, false),
            State::Up => (rail.as_str(), false),
        };
        let w = SMALL.width(text) + 10.0;
        let area = Area { x: middle - w / 2.0, y: y + 3.0, w, h: CHIP_HEIGHT };
        if is_elsewhere {
            self.astray(canvas, cell, (middle, y + 3.0 + CHIP_HEIGHT), x);
        }
        let is_wrong = stroke == RED || stroke == ORANGE;
        let look = Look::filled(if is_wrong { "#fdeaea" } else { "#ffffff" }, stroke);
        canvas.rect(area, if is_dashed { look.dashed() } else { look });
        let color = if stroke == rail { SMALL.color } else { stroke };
        canvas.centred((middle, y + 16.0), Font { color, ..SMALL }, text);
    }

    /// Draws a line from a port to the column of its actual switch, if that is in this group.
    fn astray(&self, canvas: &mut Canvas, cell: &Cell, (middle, y): (f64, f64), x: f64) {
        let on = |head: &&Head| head.switches.iter().any(|at| cell.switches.contains(at));
        for head in self.heads.iter().filter(on) {
            let to = self.middle(x, head.columns.start);
            canvas.stroke((middle, y + 1.5), (to, y + 1.5), Look::drawn(RED, 1.5));
            canvas.dot((to, y + 1.5), RED);
        }
    }
}

const BOLD: Font<'_> = Font { is_bold: true, ..WHITE };
const SMALL_BOLD: Font<'_> = Font { is_bold: true, ..SMALL };

fn above(fabric: &Fabric, block: &Block) -> String {
    let levels = levels(fabric);
    let own: BTreeSet<usize> = block.heads.iter().flatten().copied().collect();
    let other = |cable: &Cable| {
        let [(one, _), (other, _)] = cable.ends;
        let pairs = [(one, other), (other, one)];
        pairs.into_iter().find(|(low, _)| own.contains(low)).map(|(_, high)| high)
    };
    let higher: BTreeSet<usize> =
        fabric.cables.iter().filter_map(other).filter(|switch| levels[*switch] > 1).collect();
    let higher: Vec<usize> = higher.into_iter().collect();
    match &higher[..] {
        [] => String::new(),
        some => shorten(&format!("up to {}", folded(fabric, some)), LABEL_MAX),
    }
}

/// Returns a box for each switch. Adjacent columns with the same switch share its box.
fn heads(fabric: &Fabric, picture: &Picture, block: &Block) -> Vec<Head> {
    let mut heads: Vec<Head> = Vec::new();
    for (column, switches) in block.heads.iter().enumerate() {
        let title = &picture.columns[column].title;
        match heads.last_mut() {
            Some(head) if !switches.is_empty() && head.switches == *switches => {
                head.columns.end = column + 1;
                let first = &picture.columns[head.columns.start].title;
                head.title = format!("{first} - {title}");
            }
            _ => heads.push(Head {
                columns: column..column + 1,
                switches: switches.clone(),
                title: title.clone(),
                name: shorten(&folded(fabric, switches), LABEL_MAX),
            }),
        }
    }
    heads
}
