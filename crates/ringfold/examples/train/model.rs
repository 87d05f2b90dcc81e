//! The classifier: one hidden layer, cross-entropy, gradient descent with momentum.
//!
//! One vector holds all parameters, and one vector all gradients. So one call sums the gradients of
//! a step over all ranks.

use crate::data::{CLASSES, Image, PIXELS};
use crate::random::Random;

/// The width of the hidden layer.
const HIDDEN: usize = 32;

/// The indices at which the parts begin in the vector of parameters. A layer has its weights,
/// output by output, and then its biases.
const HIDDEN_BIASES: usize = HIDDEN * PIXELS;
const OUTPUT: usize = HIDDEN_BIASES + HIDDEN;
const OUTPUT_BIASES: usize = OUTPUT + CLASSES * HIDDEN;

/// The number of parameters.
const PARAMETERS: usize = OUTPUT_BIASES + CLASSES;

const LEARNING_RATE: f32 = 0.1;
const MOMENTUM: f32 = 0.9;

/// The gradient of the summed loss of a batch. The last element is the loss itself, so one call
/// sums both.
pub(crate) struct Gradient(Vec<f32>);

impl Gradient {
    /// The gradient of an empty batch.
    pub(crate) fn zero() -> Self {
        Self(vec![0.0; PARAMETERS + 1])
    }

    /// The elements of the gradient and the loss, for the sum over the ranks.
    pub(crate) fn values_mut(&mut self) -> &mut [f32] {
        &mut self.0
    }

    /// The loss, summed over the batch.
    pub(crate) fn loss(&self) -> f32 {
        self.0[PARAMETERS]
    }

    /// Resets to the gradient of an empty batch.
    pub(crate) fn clear(&mut self) {
        self.0.fill(0.0);
    }
}

/// The parameters, and then their momentum.
pub(crate) struct Model(Vec<f32>);

impl Model {
    /// A model with random weights and zero biases.
    pub(crate) fn new(random: &mut Random) -> Self {
        let mut values = vec![0.0; 2 * PARAMETERS];
        let layers = [(0..HIDDEN_BIASES, PIXELS), (OUTPUT..OUTPUT_BIASES, HIDDEN)];
        for (weights, inputs) in layers {
            let reach = (3.0 / inputs as f32).sqrt();
            for weight in &mut values[weights] {
                *weight = reach * (2.0 * random.unit() - 1.0);
            }
        }
        Self(values)
    }

    /// The parameters and their momentum, for the broadcast to every rank.
    pub(crate) fn values(&self) -> &[f32] {
        &self.0
    }

    /// Replaces the parameters and their momentum.
    pub(crate) fn set_values(&mut self, values: &[f32]) {
        self.0.copy_from_slice(values);
    }

    /// Adds the gradient of one image to `sum`.
    pub(crate) fn learn(&self, image: &Image, sum: &mut Gradient) {
        let hidden = self.hidden(image);
        // The derivative of the loss by a score is its probability, minus 1 at the true label.
        let mut by_score = softmax(self.scores(&hidden));
        sum.0[PARAMETERS] -= by_score[image.label].max(f32::MIN_POSITIVE).ln();
        by_score[image.label] -= 1.0;

        let weights = self.0[OUTPUT..OUTPUT_BIASES].chunks_exact(HIDDEN);
        let mut by_hidden = [0.0; HIDDEN];
        for (slope, weights) in by_score.iter().zip(weights) {
            add_scaled(&mut by_hidden, *slope, weights);
        }
        for (slope, value) in by_hidden.iter_mut().zip(hidden) {
            *slope *= 1.0 - value * value;
        }
        let (first, second) = sum.0.split_at_mut(OUTPUT);
        add_outer(first, &by_hidden, &image.pixels);
        add_outer(second, &by_score, &hidden);
    }

    /// Takes a step along the gradient of a batch of `images` images.
    pub(crate) fn step(&mut self, gradient: &Gradient, images: usize) {
        let rate = LEARNING_RATE / images as f32;
        let (parameters, velocities) = self.0.split_at_mut(PARAMETERS);
        for ((parameter, velocity), slope) in parameters.iter_mut().zip(velocities).zip(&gradient.0)
        {
            *velocity = MOMENTUM * *velocity - rate * slope;
            *parameter += *velocity;
        }
    }

    /// The digit with the highest score.
    pub(crate) fn guess(&self, image: &Image) -> usize {
        let scores = self.scores(&self.hidden(image));
        (0..CLASSES).max_by(|&a, &b| scores[a].total_cmp(&scores[b])).unwrap_or(0)
    }

    fn hidden(&self, image: &Image) -> [f32; HIDDEN] {
        layer(&self.0[..OUTPUT], &image.pixels).map(f32::tanh)
    }

    fn scores(&self, hidden: &[f32; HIDDEN]) -> [f32; CLASSES] {
        layer(&self.0[OUTPUT..PARAMETERS], hidden)
    }
}

/// The outputs of a layer before its activation function.
fn layer<const OUTPUTS: usize>(parameters: &[f32], inputs: &[f32]) -> [f32; OUTPUTS] {
    let (weights, biases) = parameters.split_at(OUTPUTS * inputs.len());
    let mut outputs = [0.0; OUTPUTS];
    let rows = weights.chunks_exact(inputs.len()).zip(biases);
    for (output, (row, bias)) in outputs.iter_mut().zip(rows) {
        *output = bias + row.iter().zip(inputs).map(|(weight, input)| weight * input).sum::<f32>();
    }
    outputs
}

/// Adds a layer's gradient: the `slopes` of its outputs times its `inputs`, and the slopes for the
/// biases.
fn add_outer(sum: &mut [f32], slopes: &[f32], inputs: &[f32]) {
    let (weights, biases) = sum.split_at_mut(slopes.len() * inputs.len());
    for ((row, bias), slope) in weights.chunks_exact_mut(inputs.len()).zip(biases).zip(slopes) {
        add_scaled(row, *slope, inputs);
        *bias += slope;
    }
}

fn add_scaled(sum: &mut [f32], factor: f32, values: &[f32]) {
    for (sum, value) in sum.iter_mut().zip(values) {
        *sum += factor * value;
    }
}

fn softmax(mut scores: [f32; CLASSES]) -> [f32; CLASSES] {
    let largest = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    scores = scores.map(|score| (score - largest).exp());
    let total = scores.iter().sum::<f32>();
    scores.map(|score| score / total)
}
