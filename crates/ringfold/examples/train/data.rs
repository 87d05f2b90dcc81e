//! The handwritten digits: parsed, scaled to 0..1, and split into a training set and a test set.

/// The pixels of an image.
pub(crate) const PIXELS: usize = 64;

/// The number of digits.
pub(crate) const CLASSES: usize = 10;

/// Every fifth image belongs to the test set.
const HELD_OUT: usize = 5;

/// One handwritten digit.
pub(crate) struct Image {
    /// The ink of each pixel, row by row, from 0 to 1.
    pub(crate) pixels: [f32; PIXELS],
    /// The digit that the image shows.
    pub(crate) label: usize,
}

/// The data set.
pub(crate) struct Digits {
    /// The training set.
    pub(crate) train: Vec<Image>,
    /// The test set.
    pub(crate) test: Vec<Image>,
}

impl Digits {
    /// Parses the data set, which is compiled into the program.
    pub(crate) fn load() -> Self {
        let mut digits = Self { train: Vec::new(), test: Vec::new() };
        for (index, line) in include_str!("../digits/digits.txt").lines().enumerate() {
            let held_out = index % HELD_OUT == HELD_OUT - 1;
            let set = if held_out { &mut digits.test } else { &mut digits.train };
            set.push(parse(line));
        }
        digits
    }
}

fn parse(line: &str) -> Image {
    let (pixels, label) = line.split_at(PIXELS);
    let mut image = Image { pixels: [0.0; PIXELS], label: number(label.trim()) };
    for (pixel, digit) in image.pixels.iter_mut().zip(pixels.bytes()) {
        *pixel = f32::from(base_17(digit)) / 16.0;
    }
    image
}

fn base_17(digit: u8) -> u8 {
    match digit {
        b'0'..=b'9' => digit - b'0',
        b'a'..=b'g' => digit - b'a' + 10,
        _ => panic!("digits.txt: {:?} is no pixel", char::from(digit)),
    }
}

fn number(text: &str) -> usize {
    match text.parse() {
        Ok(label) if label < CLASSES => label,
        _ => panic!("digits.txt: {text:?} is no label"),
    }
}
