//! Tensor-parallel inference: every rank has a part of each layer of a transformer, and
//! `all_reduce_window` sums the parts of a layer's output twice a layer, for each token.
//!
//! ```text
//! ringrun -n 4 target/release/examples/inference --texts 16 --words 64
//! ```
//!
//! The model has random weights, which depend on no number of ranks. So any number of ranks that
//! divides its heads goes on with the same words, up to ties within rounding. Each part of an
//! output lies in a window from the beginning, and the sum copies nothing on one host. With
//! `--copies` it lies in ordinary memory. Rank 0 prints each text as numbers of words, and how many
//! words a second came.
#![expect(clippy::print_stdout, reason = "the program prints its results")]

mod model;

use std::env;
use std::error::Error;
use std::time::Instant;

use ringfold::{Communicator, Rank, ReduceOp, Window};

use crate::model::{Layer, Model, WIDTH, WORDS, normal};

/// The words with which each text begins.
const PROMPT: usize = 8;

fn main() -> Result<(), Box<dyn Error>> {
    let options = Options::parse(env::args().skip(1))?;
    let mut comm = Communicator::init()?;
    let mut model = Model::new(comm.rank().index(), comm.size(), options.texts)?;
    let mut sums = Sums::new(&mut comm, &options)?;
    let mut texts: Vec<Vec<usize>> = (0..options.texts).map(prompt).collect();
    let mut begin = Instant::now();
    for place in 0..PROMPT + options.words - 1 {
        if place == PROMPT {
            // The first new word has read the whole prompt.
            begin = Instant::now();
        }
        let words: Vec<usize> = texts.iter().map(|text| text[place]).collect();
        let mut hidden = model.vectors(&words);
        for layer in &mut model.layers {
            for half in [Layer::attend, Layer::apply_units] {
                half(layer, &normal(&hidden), sums.values_mut());
                sums.reduce(&mut comm)?;
                hidden.iter_mut().zip(sums.values_mut()).for_each(|(value, sum)| *value += *sum);
            }
        }
        if place + 1 >= PROMPT {
            texts.iter_mut().zip(model.next(&hidden)).for_each(|(text, word)| text.push(word));
        }
    }
    if comm.rank() == Rank(0) {
        for text in &texts {
            println!("text {text:?}");
        }
        let words = (options.words - 1) * options.texts;
        let rate = words as f64 / begin.elapsed().as_secs_f64();
        println!("{rate:.1} words/s with {} ranks", comm.size());
    }
    Ok(())
}

/// The beginning of a text.
fn prompt(text: usize) -> Vec<usize> {
    (0..PROMPT).map(|place| (31 * text + 7 * place + 1) % WORDS).collect()
}

/// The memory in which the ranks sum their parts.
enum Sums {
    /// Memory that all ranks of the host have mapped.
    Window(Window<f32>),
    /// Ordinary memory.
    Memory(Vec<f32>),
}

impl Sums {
    /// Memory for one vector of each text. Every rank must call it.
    fn new(comm: &mut Communicator, options: &Options) -> Result<Self, ringfold::Error> {
        let len = options.texts * WIDTH;
        Ok(if options.copies {
            Self::Memory(vec![0.0; len])
        } else {
            Self::Window(comm.alloc(len)?)
        })
    }

    fn values_mut(&mut self) -> &mut [f32] {
        match self {
            Self::Window(window) => window,
            Self::Memory(values) => values,
        }
    }

    /// Sums the values of all ranks.
    fn reduce(&mut self, comm: &mut Communicator) -> Result<(), ringfold::Error> {
        match self {
            Self::Window(window) => comm.all_reduce_window(window, .., ReduceOp::Sum),
            Self::Memory(values) => comm.all_reduce(values, ReduceOp::Sum),
        }
    }
}

/// The command line.
struct Options {
    texts: usize,
    words: usize,
    copies: bool,
}

impl Options {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Self, Box<dyn Error>> {
        let mut options = Self { texts: 1, words: 32, copies: false };
        while let Some(flag) = args.next() {
            let into = match &*flag {
                "--texts" => &mut options.texts,
                "--words" => &mut options.words,
                "--copies" => {
                    options.copies = true;
                    continue;
                }
                _ => return Err("usage: inference [--texts 1] [--words 32] [--copies]".into()),
            };
            let value = args.next().unwrap_or_default();
            let number = value.parse().ok().filter(|number| (1..=4096).contains(number));
            *into =
                number.ok_or_else(|| format!("{flag} {value:?}: give a number from 1 to 4096"))?;
        }
        Ok(options)
    }
}
