//! A sheet of SVG: shapes and labels, with the area of each label.

use std::fmt::Write as _;

/// Width of a character over the size of its font. Labels use a monospaced font.
const ADVANCE: f64 = 0.61;

/// A sheet. `finish` sets its size.
#[derive(Default)]
pub(super) struct Canvas {
    body: String,
    /// The areas of labels; tests check that they do not overlap.
    pub(super) labels: Vec<(Area, String)>,
}

/// A rectangle: left, top, width and height.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(in crate::topo) struct Area {
    pub(in crate::topo) x: f64,
    pub(in crate::topo) y: f64,
    pub(in crate::topo) w: f64,
    pub(in crate::topo) h: f64,
}

/// The style of a shape.
#[derive(Clone, Copy)]
pub(super) struct Look<'a> {
    pub(super) fill: &'a str,
    pub(super) stroke: &'a str,
    pub(super) width: f64,
    pub(super) is_dashed: bool,
}

/// The style of a label.
#[derive(Clone, Copy)]
pub(super) struct Font<'a> {
    pub(super) size: f64,
    pub(super) color: &'a str,
    pub(super) is_bold: bool,
}

impl Font<'_> {
    /// Returns the width of a text.
    pub(super) fn width(&self, text: &str) -> f64 {
        self.size * ADVANCE * f64::from(u32::try_from(text.chars().count()).unwrap_or(u32::MAX))
    }

    /// Returns the number of characters that fit into a width.
    pub(super) fn room(&self, width: f64) -> usize {
        let one = self.size * ADVANCE;
        (1..1000).take_while(|count| f64::from(*count) * one <= width).count()
    }
}

impl Area {
    pub(super) fn middle(&self) -> (f64, f64) {
        (self.x + self.w / 2.0, self.y + self.h / 2.0)
    }
}

impl Canvas {
    pub(super) fn rect(&mut self, Area { x, y, w, h }: Area, look: Look<'_>) {
        let attributes = look.attributes();
        self.line(&format!(
            r#"<rect x="{x:.1}" y="{y:.1}" width="{w:.1}" height="{h:.1}" rx="4" {attributes}/>"#
        ));
    }

    pub(super) fn stroke(&mut self, from: (f64, f64), to: (f64, f64), look: Look<'_>) {
        let (attributes, (x1, y1), (x2, y2)) = (look.attributes(), from, to);
        self.line(&format!(
            r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" {attributes}/>"#
        ));
    }

    /// Draws a line that bends towards the point `over`.
    pub(super) fn bend(
        &mut self,
        from: (f64, f64),
        over: (f64, f64),
        to: (f64, f64),
        look: Look<'_>,
    ) {
        let (attributes, (x1, y1), (x2, y2), (x3, y3)) = (look.attributes(), from, over, to);
        self.line(&format!(
            r#"<path d="M{x1:.1} {y1:.1} Q{x2:.1} {y2:.1} {x3:.1} {y3:.1}" {attributes}/>"#
        ));
    }

    pub(super) fn dot(&mut self, (x, y): (f64, f64), color: &str) {
        self.line(&format!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="3" fill="{color}"/>"#));
    }

    /// Draws a label with its left end and base line at a point.
    pub(super) fn label(&mut self, (x, y): (f64, f64), font: Font<'_>, text: &str) {
        if text.is_empty() {
            return;
        }
        let Font { size, color, is_bold } = font;
        let weight = if is_bold { r#" font-weight="bold""# } else { "" };
        let area = Area { x, y: y - size * 0.8, w: font.width(text), h: size };
        self.labels.push((area, text.to_owned()));
        let text = escaped(text);
        self.line(&format!(
            r#"<text x="{x:.1}" y="{y:.1}" font-size="{size}" fill="{color}"{weight}>{text}</text>"#
        ));
    }

    /// Draws a label that is centred at a point, with its base line there.
    pub(super) fn centred(&mut self, (x, y): (f64, f64), font: Font<'_>, text: &str) {
        self.label((x - font.width(text) / 2.0, y), font, text);
    }

    /// Returns the sheet as the text of a file.
    pub(super) fn finish(self, width: f64, height: f64) -> String {
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width:.0} {height:.0}\" \
             font-family=\"DejaVu Sans Mono, Menlo, Consolas, monospace\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"#ffffff\"/>\n{}</svg>\n",
            self.body
        )
    }

    fn line(&mut self, element: &str) {
        writeln!(self.body, "{element}").unwrap_or_default();
    }
}

impl<'a> Look<'a> {
    /// The style of a shape with a border.
    pub(super) const fn filled(fill: &'a str, stroke: &'a str) -> Self {
        Self { fill, stroke, width: 1.0, is_dashed: false }
    }

    /// The style of a line.
    pub(super) const fn drawn(stroke: &'a str, width: f64) -> Self {
        Self { fill: "none", stroke, width, is_dashed: false }
    }

    /// Returns this style with a dashed stroke.
    pub(super) const fn dashed(self) -> Self {
        Self { is_dashed: true, ..self }
    }

    fn attributes(&self) -> String {
        let Self { fill, stroke, width, is_dashed } = self;
        let dashes = if *is_dashed { r#" stroke-dasharray="4 3""# } else { "" };
        format!(r#"fill="{fill}" stroke="{stroke}" stroke-width="{width}"{dashes}"#)
    }
}

/// Escapes a text for XML. Characters that XML forbids become `?`.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for character in text.chars() {
        match character {
            '&' => escaped += "&amp;",
            '<' => escaped += "&lt;",
            '>' => escaped += "&gt;",
            '"' => escaped += "&quot;",
            it if it.is_control() || matches!(it, '\u{fffe}' | '\u{ffff}') => escaped.push('?'),
            it => escaped.push(it),
        }
    }
    escaped
}

/// Returns colour `at` of `of` evenly spread colours from orange to purple. Red marks faults.
/// `shade` 0 is full, and higher shades are lighter.
pub(super) fn color(at: usize, of: usize, shade: u8) -> String {
    let fraction = |part: usize, whole: usize| {
        let [part, whole] = [part, whole].map(|it| u32::try_from(it).unwrap_or(u32::MAX));
        f64::from(part) / f64::from(whole.max(1))
    };
    let hue = 0.5 + fraction(at, of) * 5.0;
    let (full, light) = (0.72, 0.16 * f64::from(shade.min(3)));
    let channel = |shift: f64| {
        let distance = (hue - shift).rem_euclid(6.0);
        let distance = distance.min(6.0 - distance);
        let value = (2.0 - distance).clamp(0.0, 1.0) * full;
        // Green is bright, so it is darkened for white text.
        let value = if shift == 2.0 { value * 0.78 } else { value };
        format!("{:02x}", byte(0.06 + value + (0.94 - value) * light))
    };
    format!("#{}{}{}", channel(0.0), channel(2.0), channel(4.0))
}

/// Returns a fraction of 255.
fn byte(fraction: f64) -> u32 {
    (0..=255).take_while(|value| f64::from(*value) <= fraction * 255.0).last().unwrap_or(0)
}
