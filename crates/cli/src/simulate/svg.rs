//! Pictures as SVG, for light and dark pages.
//!
//! The writer is our own: libraries for plots write each colour into each shape, so one picture
//! cannot suit both kinds of page.

use std::fmt::Write;

/// Okabe and Ito's colours, which colour-blind readers can distinguish, and two more.
const COLOURS: [&str; 9] = [
    "#0072b2", "#e69f00", "#009e73", "#d55e00", "#cc79a7", "#56b4e9", "#8c8c2c", "#7a5195",
    "#888888",
];

const STYLE: &str = "
text { font: 12px sans-serif; fill: #3d444d }
.title { font-size: 15px; font-weight: bold }
.page { fill: #fff }
.grid { stroke: #888; stroke-opacity: .25 }
.axis { stroke: #888 }
.line { fill: none; stroke-width: 2; stroke-linejoin: round }
.choice { fill: none; stroke: #3d444d; stroke-width: 1.5 }
.idle { fill: #888; fill-opacity: .15 }
.full { fill: #d55e00 }
@media (prefers-color-scheme: dark) {
  text { fill: #c9d1d9 }
  .page { fill: #0d1117 }
  .choice { stroke: #c9d1d9 }
}
";

/// Pixels of a character, in the mean.
const CHARACTER: f64 = 7.0;

/// A picture that grows downwards.
pub(super) struct Picture {
    width: f64,
    pub(super) height: f64,
    body: String,
}

impl Picture {
    /// An empty one of this width, with a margin at the top.
    pub(super) fn new(width: f64) -> Self {
        Self { width, height: 12.0, body: String::new() }
    }

    pub(super) fn text(&mut self, [x, y]: [f64; 2], anchor: &str, class: &str, words: &str) {
        let words = escaped(words);
        self.add(&format!(
            r#"<text x="{x:.1}" y="{y:.1}" text-anchor="{anchor}" class="{class}">{words}</text>"#
        ));
    }

    pub(super) fn rule(&mut self, [x1, y1]: [f64; 2], [x2, y2]: [f64; 2], class: &str) {
        self.add(&format!(
            r#"<line x1="{x1:.1}" y1="{y1:.1}" x2="{x2:.1}" y2="{y2:.1}" class="{class}"/>"#
        ));
    }

    /// A rectangle of this opacity. Browsers show the words beside the pointer.
    pub(super) fn cell(
        &mut self,
        [x, y]: [f64; 2],
        [width, height]: [f64; 2],
        (class, opacity): (&str, f64),
        words: &str,
    ) {
        let words = escaped(words);
        let size = format!(r#"width="{width:.2}" height="{height:.1}""#);
        let opacity = match class {
            "idle" => String::new(),
            _ => format!(r#" fill-opacity="{opacity:.2}""#),
        };
        let rect = format!(r#"<rect x="{x:.2}" y="{y:.1}" {size} class="{class}"{opacity}>"#);
        self.add(&format!("{rect}<title>{words}</title></rect>"));
    }

    /// A line of the colour of this number, dashed beyond the last colour.
    pub(super) fn line(&mut self, places: &[[f64; 2]], number: usize) {
        let points: Vec<String> = places.iter().map(|[x, y]| format!("{x:.1},{y:.1}")).collect();
        let (points, colour) = (points.join(" "), colour(number));
        let dashes = if number < COLOURS.len() { "" } else { r#" stroke-dasharray="6 4""# };
        self.add(&format!(
            r#"<polyline points="{points}" stroke="{colour}" class="line"{dashes}/>"#
        ));
    }

    /// A point of a line, with a ring around it if it is the choice.
    pub(super) fn dot(&mut self, [x, y]: [f64; 2], number: usize, is_chosen: bool, words: &str) {
        let (words, colour) = (escaped(words), colour(number));
        let at = format!(r#"cx="{x:.1}" cy="{y:.1}""#);
        self.add(&format!(r#"<circle {at} r="3" fill="{colour}"><title>{words}</title></circle>"#));
        if is_chosen {
            self.add(&format!(r#"<circle {at} r="6.5" class="choice"/>"#));
        }
    }

    /// The names of lines with their colours, and the ring of the choice, from `left` on.
    pub(super) fn legend(&mut self, left: f64, names: &[&str], of_ring: &str) {
        self.height += 8.0;
        let (mut x, y) = (left, self.height);
        let mut line = y;
        for (number, name) in names.iter().copied().chain([of_ring]).enumerate() {
            let takes = 54.0 + CHARACTER * name.len() as f64;
            if x > left && x + takes > self.width {
                (x, line) = (left, line + 22.0);
            }
            let middle = line - 4.0;
            if number < names.len() {
                self.line(&[[x, middle], [x + 24.0, middle]], number);
                self.dot([x + 12.0, middle], number, false, name);
            } else {
                self.add(&format!(
                    r#"<circle cx="{:.1}" cy="{middle:.1}" r="6.5" class="choice"/>"#,
                    x + 12.0
                ));
            }
            self.text([x + 30.0, line], "start", "", name);
            x += takes;
        }
        self.height = line + 14.0;
    }

    fn add(&mut self, element: &str) {
        self.body += element;
        self.body.push('\n');
    }

    /// The text of the file.
    pub(super) fn finish(self, title: &str) -> String {
        let Self { width, height, body } = self;
        let (size, title) = (format!("{width:.0} {height:.0}"), escaped(title));
        let mut text = String::new();
        write!(
            text,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {size}\" width=\"{width:.0}\" \
             height=\"{height:.0}\">\n<title>{title}</title>\n<style>{STYLE}</style>\n\
             <rect width=\"100%\" height=\"100%\" class=\"page\"/>\n{body}</svg>\n"
        )
        .ok();
        text
    }
}

fn colour(number: usize) -> &'static str {
    COLOURS[number % COLOURS.len()]
}

fn escaped(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
