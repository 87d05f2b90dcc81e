//! Draws leaf switches with direct cables, as in a torus, in rows and columns or in a circle.

use std::collections::BTreeSet;
use std::f64::consts::TAU;

use ringfold_topology::fabric::{Cable, Classification, Fabric, Kind};

use super::super::picture::Picture;
use super::super::switches::{levels, name, shorten};
use super::canvas::{Area, Canvas, Look};
use super::style::{DARK, GREY, WHITE};

/// A graph of more switches would be unreadable.
const SWITCHES_MAX: usize = 128;

/// The most characters of a switch's name.
const LABEL_MAX: usize = 16;

const HEIGHT: f64 = 26.0;

/// Switches with their places, and the cables between them.
pub(super) struct Graph {
    boxes: Vec<(Area, String)>,
    /// Pairs of boxes.
    cables: BTreeSet<(usize, usize)>,
    pub(super) width: f64,
    height: f64,
}

impl Graph {
    /// Returns `None` if most cables lead to higher switches, or if there are too many switches.
    pub(super) fn of(fabric: &Fabric, found: &Classification, picture: &Picture) -> Option<Self> {
        let levels = levels(fabric);
        let is_direct = |cable: &&Cable| cable.ends.iter().all(|(at, _)| levels[*at] == 1);
        let direct = fabric.cables.iter().filter(is_direct).count();
        let count = fabric.switches.len();
        if direct * 2 <= fabric.cables.len() || count > SWITCHES_MAX {
            return None;
        }
        let order = in_order(picture, count);
        let mut box_of = vec![0; count];
        order.iter().enumerate().for_each(|(at, switch)| box_of[*switch] = at);
        let pairs = fabric.cables.iter().map(|cable| cable.ends.map(|(at, _)| box_of[at]));
        let cables: BTreeSet<_> =
            pairs.map(|[a, b]| (a.min(b), a.max(b))).filter(|(a, b)| a != b).collect();
        let names: Vec<String> =
            order.iter().map(|at| shorten(&name(&fabric.switches[*at]), LABEL_MAX)).collect();
        let widest = names.iter().map(|name| WHITE.width(name)).fold(0.0, f64::max) + 14.0;
        let dims = match &found.kind.value {
            Kind::Torus { dims } | Kind::HyperX { dims } => &dims[..],
            _ => &[],
        };
        let places = grid(dims, count, &cables)
            .map(|places| spread(&places, widest))
            .unwrap_or_else(|| circle(count, widest));
        let area = |(x, y): (f64, f64)| Area { x, y, w: widest, h: HEIGHT };
        let boxes: Vec<_> = places.into_iter().map(area).zip(names).collect();
        let ends = boxes.iter().map(|(area, _)| (area.x + area.w, area.y + area.h));
        let (width, height) =
            ends.fold((0.0, 0.0), |(w, h): (f64, f64), (x, y)| (w.max(x), h.max(y)));
        Some(Self { boxes, cables, width, height: height + HEIGHT })
    }

    /// Draws the graph at `x` and `y`, and returns its lower edge.
    pub(super) fn draw(&self, canvas: &mut Canvas, x: f64, y: f64) -> f64 {
        let y = y + HEIGHT;
        let moved = |area: &Area| Area { x: area.x + x, y: area.y + y, ..*area };
        for (one, other) in &self.cables {
            let (from, to) =
                (moved(&self.boxes[*one].0).middle(), moved(&self.boxes[*other].0).middle());
            let look = Look::drawn(GREY, 1.4);
            match self.passes_others(*one, *other) {
                Some((dx, dy)) => {
                    let middle = ((from.0 + to.0) / 2.0 + dx, (from.1 + to.1) / 2.0 + dy);
                    canvas.bend(from, middle, to, look);
                }
                None => canvas.stroke(from, to, look),
            }
        }
        for (area, name) in &self.boxes {
            let area = moved(area);
            canvas.rect(area, Look::filled(DARK, "#ffffff"));
            let (x, y) = area.middle();
            canvas.centred((x, y + 4.0), WHITE, name);
        }
        y + self.height
    }

    /// Returns the bend of a cable around boxes of its row or column; `None` if none is in its way.
    fn passes_others(&self, one: usize, other: usize) -> Option<(f64, f64)> {
        let (a, b) = (self.boxes[one].0, self.boxes[other].0);
        let between = |low: f64, high: f64, at: f64| low.min(high) < at && at < low.max(high);
        let in_row = |area: &Area| area.y == a.y && between(a.x, b.x, area.x);
        let in_column = |area: &Area| area.x == a.x && between(a.y, b.y, area.y);
        let any = |is_in: &dyn Fn(&Area) -> bool| self.boxes.iter().any(|(area, _)| is_in(area));
        if a.y == b.y && any(&in_row) {
            return Some((0.0, -1.6 * HEIGHT));
        }
        (a.x == b.x && any(&in_column)).then_some((0.9 * a.w, 0.0))
    }
}

/// Returns switches in the order of their hosts. Switches without hosts come last.
fn in_order(picture: &Picture, count: usize) -> Vec<usize> {
    let mut order = Vec::new();
    let mut is_left = vec![true; count];
    for switch in picture.blocks.iter().flat_map(|block| block.heads.iter().flatten()) {
        if std::mem::take(&mut is_left[*switch]) {
            order.push(*switch);
        }
    }
    order.extend((0..count).filter(|at| is_left[*at]));
    order
}

/// Returns a grid in which most cables stay in one row or column; `None` if there is no such grid.
fn grid(dims: &[u32], count: usize, cables: &BTreeSet<(usize, usize)>) -> Option<Vec<Vec<usize>>> {
    let dims: Vec<usize> = dims.iter().map(|dim| *dim as usize).collect();
    if dims.len() < 2 || dims.iter().product::<usize>() != count {
        return None;
    }
    let reversed: Vec<usize> = dims.iter().rev().copied().collect();
    let ways = [(&dims, false), (&dims, true), (&reversed, false), (&reversed, true)];
    let score = |places: &[Vec<usize>]| {
        let differ = |one: &[usize], other: &[usize]| {
            one.iter().zip(other).filter(|(one, other)| one != other).count()
        };
        cables.iter().filter(|(one, other)| differ(&places[*one], &places[*other]) == 1).count()
    };
    let all = ways.map(|(dims, turns)| (0..count).map(|at| digits(at, dims, turns)).collect());
    let best: Vec<Vec<usize>> =
        all.into_iter().max_by_key(|places: &Vec<Vec<usize>>| score(places))?;
    (score(&best) * 2 > cables.len()).then_some(best)
}

/// Returns a number in mixed bases, with the last digit changing fastest. With `turns`, consecutive
/// numbers differ by one in one digit.
fn digits(at: usize, bases: &[usize], turns: bool) -> Vec<usize> {
    let mut digits = vec![0; bases.len()];
    let mut rest = at;
    for (digit, base) in digits.iter_mut().zip(bases).rev() {
        (*digit, rest) = (rest % base, rest / base);
    }
    if turns {
        let mut before = 0;
        for (digit, base) in digits.iter_mut().zip(bases) {
            let plain = *digit;
            if before % 2 == 1 {
                *digit = base - 1 - plain;
            }
            before = before * base + plain;
        }
    }
    digits
}

/// Returns the places of a grid. The first dimension goes down and the second across; each further
/// one sets such grids side by side.
fn spread(places: &[Vec<usize>], width: f64) -> Vec<(f64, f64)> {
    let number = |value: usize| f64::from(u32::try_from(value).unwrap_or(u32::MAX));
    let bases: Vec<usize> = (0..places[0].len())
        .map(|at| places.iter().map(|place| place[at]).max().unwrap_or(0) + 1)
        .collect();
    let step = (width + 40.0, HEIGHT + 44.0);
    let place = |digits: &Vec<usize>| {
        let mut grids = 0;
        for (digit, base) in digits.iter().zip(&bases).skip(2) {
            grids = grids * base + digit;
        }
        let across = number(grids * bases[1] + digits[1]) * step.0 + number(grids) * 40.0;
        (across, number(digits[0]) * step.1)
    };
    places.iter().map(place).collect()
}

/// Returns places on a circle that is wide enough for boxes not to touch.
fn circle(count: usize, width: f64) -> Vec<(f64, f64)> {
    let number = |value: usize| f64::from(u32::try_from(value).unwrap_or(u32::MAX));
    let radius = (number(count) * width.hypot(HEIGHT) * 1.15 / TAU).max(width);
    let place = |at: usize| {
        let angle = TAU * number(at) / number(count.max(1)) - TAU / 4.0;
        (radius * (1.0 + angle.cos()), radius * (1.0 + angle.sin()))
    };
    (0..count).map(place).collect()
}
