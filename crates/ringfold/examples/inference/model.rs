//! A transformer with random weights, split over the ranks.
//!
//! A rank has some heads of each layer's attention, and some of its hidden units. Of the matrices
//! that lead to them it has those rows, and of the ones that lead back those columns. Its products
//! with the latter are a part of the layer's output, which is the sum over all ranks.

use std::ops::Range;

/// The elements of a token's vector.
pub(crate) const WIDTH: usize = 512;

/// The number of different words.
pub(crate) const WORDS: usize = 1024;

const LAYERS: usize = 4;
const HEADS: usize = 8;

/// The elements of a head's query, key or value.
const HEAD: usize = WIDTH / HEADS;

/// The hidden units of a layer.
const UNITS: usize = 4 * WIDTH;

/// How much less a word counts for each word between, in the attention of all heads.
const FADING: f32 = 0.05;

/// The lanes of a dot product.
const LANES: usize = 8;

/// This rank's part of the model, and the texts so far.
pub(crate) struct Model {
    /// A vector for each word, the same on all ranks.
    words: Matrix,
    pub(crate) layers: Vec<Layer>,
}

impl Model {
    /// The part of a rank, for this number of texts.
    pub(crate) fn new(rank: usize, ranks: usize, texts: usize) -> Result<Self, String> {
        if !HEADS.is_multiple_of(ranks) {
            return Err(format!("{ranks} ranks cannot share {HEADS} heads; start 1, 2, 4 or 8"));
        }
        let mut random = Random(1);
        let words = Matrix::new(&mut random, [WORDS, WIDTH], [0..WORDS, 0..WIDTH]);
        let part = |all: usize| rank * all / ranks..(rank + 1) * all / ranks;
        let layers = (0..LAYERS).map(|_| Layer::new(&mut random, &part, texts)).collect();
        Ok(Self { words, layers })
    }

    /// The vectors of some words.
    pub(crate) fn vectors(&self, words: &[usize]) -> Vec<f32> {
        words.iter().flat_map(|word| self.words.row(*word)).copied().collect()
    }

    /// The most likely word to follow each vector.
    pub(crate) fn next(&self, hidden: &[f32]) -> Vec<usize> {
        normal(hidden).chunks_exact(WIDTH).map(|vector| self.likeliest(vector)).collect()
    }

    fn likeliest(&self, vector: &[f32]) -> usize {
        let mut scores = vec![0.0; WORDS];
        self.words.times(vector, &mut scores);
        (0..WORDS).max_by(|&a, &b| scores[a].total_cmp(&scores[b])).unwrap_or(0)
    }
}

/// A rank's part of a layer.
pub(crate) struct Layer {
    /// For queries, keys and values.
    attention: [Matrix; 3],
    /// From the heads back to the vector.
    heads: Matrix,
    /// To the hidden units, and back.
    units: [Matrix; 2],
    /// The keys and the values of each text.
    read: Vec<[Vec<f32>; 2]>,
}

impl Layer {
    fn new(random: &mut Random, part: &impl Fn(usize) -> Range<usize>, texts: usize) -> Self {
        let (heads, units) = (part(HEADS), part(UNITS));
        let heads = heads.start * HEAD..heads.end * HEAD;
        let mut to = |all, own| Matrix::new(random, [all, WIDTH], [own, 0..WIDTH]);
        let attention = [0, 1, 2].map(|_| to(WIDTH, heads.clone()));
        let up = to(UNITS, units.clone());
        let mut back = |all, own| Matrix::new(random, [WIDTH, all], [0..WIDTH, own]);
        let (heads, down) = (back(WIDTH, heads), back(UNITS, units));
        Self { attention, heads, units: [up, down], read: vec![Default::default(); texts] }
    }

    /// Reads a vector of each text, and writes this rank's part of the attention's output.
    pub(crate) fn attend(&mut self, inputs: &[f32], part: &mut [f32]) {
        let own = self.heads.columns;
        let texts = inputs.chunks_exact(WIDTH).zip(part.chunks_exact_mut(WIDTH));
        for ((input, part), [keys, values]) in texts.zip(&mut self.read) {
            let [query, key, value] = self.attention.each_ref().map(|matrix| {
                let mut output = vec![0.0; own];
                matrix.times(input, &mut output);
                output
            });
            keys.extend(key);
            values.extend(value);
            let mut mixed = vec![0.0; own];
            for head in (0..own).step_by(HEAD).map(|begin| begin..begin + HEAD) {
                let of = |row: &[f32]| dot(&row[head.clone()], &query[head.clone()]);
                let scores = keys.chunks_exact(own).rev().zip(0_u16..);
                let scores = scores.map(|(row, age)| of(row) / 8.0 - FADING * f32::from(age));
                for (weight, row) in softmax(scores).zip(values.chunks_exact(own).rev()) {
                    let mixed = mixed[head.clone()].iter_mut().zip(&row[head.clone()]);
                    mixed.for_each(|(sum, value)| *sum += weight * value);
                }
            }
            self.heads.times(&mixed, part);
        }
    }

    /// Writes this rank's part of the hidden units' output.
    pub(crate) fn apply_units(&mut self, inputs: &[f32], part: &mut [f32]) {
        let [up, down] = &self.units;
        let mut hidden = vec![0.0; down.columns];
        for (input, part) in inputs.chunks_exact(WIDTH).zip(part.chunks_exact_mut(WIDTH)) {
            up.times(input, &mut hidden);
            hidden.iter_mut().for_each(|unit| *unit = unit.max(0.0));
            down.times(&hidden, part);
        }
    }
}

/// The rows and columns of a matrix that a rank has.
struct Matrix {
    columns: usize,
    values: Vec<f32>,
}

impl Matrix {
    /// The own rows and columns of a random matrix.
    fn new(random: &mut Random, [rows, columns]: [usize; 2], own: [Range<usize>; 2]) -> Self {
        let reach = (3.0 / columns as f32).sqrt();
        let mut values = Vec::with_capacity(own[0].len() * own[1].len());
        for row in 0..rows {
            for column in 0..columns {
                // Every rank draws all numbers, so the whole matrix is the same for all of them.
                let value = reach * random.next();
                if own[0].contains(&row) && own[1].contains(&column) {
                    values.push(value);
                }
            }
        }
        Self { columns: own[1].len(), values }
    }

    fn row(&self, row: usize) -> &[f32] {
        &self.values[row * self.columns..][..self.columns]
    }

    /// Writes the products of each row and the input.
    fn times(&self, input: &[f32], output: &mut [f32]) {
        for (output, row) in output.iter_mut().zip(self.values.chunks_exact(self.columns)) {
            *output = dot(row, input);
        }
    }
}

/// Random numbers: xorshift64* (Vigna, 2016).
struct Random(u64);

impl Random {
    /// A number from -1 to 1.
    fn next(&mut self) -> f32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let bits = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 40;
        // An f32 holds 24 bits without rounding.
        bits as f32 / (1 << 23) as f32 - 1.0
    }
}

/// The vectors with a mean square of 1.
pub(crate) fn normal(vectors: &[f32]) -> Vec<f32> {
    let scaled = vectors.chunks_exact(WIDTH).flat_map(|vector| {
        let scale = (WIDTH as f32 / dot(vector, vector)).sqrt();
        vector.iter().map(move |value| scale * value)
    });
    scaled.collect()
}

/// The weights of scores, which add up to 1.
fn softmax(scores: impl Iterator<Item = f32>) -> impl Iterator<Item = f32> {
    let scores: Vec<f32> = scores.collect();
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let weights: Vec<f32> = scores.iter().map(|score| (score - largest).exp()).collect();
    let total: f32 = weights.iter().sum();
    weights.into_iter().map(move |weight| weight / total)
}

/// The sum of products. Its lanes are sums of their own, so the compiler may use vectors.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    let mut sums = [0.0; LANES];
    for (a, b) in a.chunks_exact(LANES).zip(b.chunks_exact(LANES)) {
        for (sum, (a, b)) in sums.iter_mut().zip(a.iter().zip(b)) {
            *sum += a * b;
        }
    }
    sums.iter().sum()
}
