//! Executes the programs of all ranks in one process, on real numbers and with the kernels of the
//! library.
//!
//! Each rank is a stepper with buffers of its own, and a link is a queue of messages. So a result
//! has the bits that it would have in a job. Beside each element the executor keeps the longest
//! ways of the inputs in it: how often they were added and rounded so far.

use std::collections::{HashMap, VecDeque};

use anyhow::{Context, bail, ensure};
use ringfold_collectives::{
    Exchanged, Form, Ports, Program, Progress, Reduction, Source, Stepper, Stores,
};
use ringfold_reduce::{Form as KernelForm, Kernel, Operand};
use ringfold_types::{Buffer, DataType, Rank, Slice};

/// The operations on the way of an input to a result. For several inputs, the most of each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Way {
    /// Roundings from the accumulator to an element.
    pub(super) roundings: u32,
    /// Additions in the accumulator.
    pub(super) additions: u32,
}

impl Way {
    /// The longest of both ways, in each kind of operation.
    pub(super) fn longest(self, other: Self) -> Self {
        Self {
            roundings: self.roundings.max(other.roundings),
            additions: self.additions.max(other.additions),
        }
    }
}

/// Numbers of one data type in either form.
pub(super) struct Numbers<'k> {
    kernel: &'k Kernel,
    form: Form,
    bytes: Vec<u8>,
    ways: Vec<Way>,
}

impl<'k> Numbers<'k> {
    /// `len` zeros.
    fn zeros(kernel: &'k Kernel, form: Form, len: usize) -> Self {
        let bytes = vec![0; len * width(kernel, form)];
        Self { kernel, form, bytes, ways: vec![Way::default(); len] }
    }

    /// The elements nearest to `values`, as inputs that no operation has touched.
    pub(super) fn rounded(kernel: &'k Kernel, values: &[f32]) -> Self {
        let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
        let mut numbers = Self::zeros(kernel, Form::Element, values.len());
        let operands = [Operand::accumulators(&bytes)];
        kernel.combine(&mut numbers.bytes, KernelForm::Element, &operands);
        numbers
    }

    /// The numbers as `f32`, which represents all of them.
    pub(super) fn values(&self) -> Vec<f32> {
        let mut bytes = vec![0; self.ways.len() * DataType::F32.bytes()];
        self.kernel.combine(&mut bytes, KernelForm::Accumulator, &[self.operand()]);
        let (words, _) = bytes.as_chunks();
        words.iter().map(|word| f32::from_le_bytes(*word)).collect()
    }

    /// The ways of each number.
    pub(super) fn ways(&self) -> &[Way] {
        &self.ways
    }

    fn operand(&self) -> Operand<'_> {
        Operand::Bytes { bytes: &self.bytes, form: kernel_form(self.form) }
    }

    fn read(&self, slice: Slice) -> Self {
        let width = width(self.kernel, self.form);
        let bytes = self.bytes[slice.offset * width..slice.end() * width].to_vec();
        Self { bytes, ways: self.ways[slice.offset..slice.end()].to_vec(), ..*self }
    }

    fn write(&mut self, at: usize, numbers: &Self) {
        let width = width(self.kernel, self.form);
        let end = at + numbers.ways.len();
        self.bytes[at * width..end * width].copy_from_slice(&numbers.bytes);
        self.ways[at..end].copy_from_slice(&numbers.ways);
    }
}

fn width(kernel: &Kernel, form: Form) -> usize {
    kernel_form(form).bytes(kernel.data_type())
}

const fn kernel_form(form: Form) -> KernelForm {
    match form {
        Form::Element => KernelForm::Element,
        Form::Accumulator => KernelForm::Accumulator,
    }
}

/// Executes the programs of all ranks, which use links only. Returns the output of each rank.
///
/// # Errors
/// A program needs other memory than its rank's, or waits for ever.
pub(super) fn execute<'k>(
    programs: &[Program],
    kernel: &'k Kernel,
    inputs: Vec<Numbers<'k>>,
) -> anyhow::Result<Vec<Numbers<'k>>> {
    let zeros = |form, len| Numbers::zeros(kernel, form, len);
    let node = |(program, input): (&Program, _)| Node {
        input,
        output: zeros(Form::Element, program.call().output_len(program.size())),
        scratch: zeros(Form::Accumulator, program.scratch_len()),
        rounded: zeros(Form::Element, program.rounded_len()),
    };
    let nodes = programs.iter().zip(inputs).map(node).collect();
    let mut world = World { kernel, nodes, links: HashMap::new() };
    let mut steppers: Vec<Stepper> = programs.iter().map(|_| Stepper::new()).collect();
    for (stepper, program) in steppers.iter_mut().zip(programs) {
        stepper.start(program);
    }
    let mut moved = true;
    while std::mem::take(&mut moved) {
        for (rank, (stepper, program)) in steppers.iter_mut().zip(programs).enumerate() {
            if !stepper.is_done() {
                let mut ports = RankPorts { world: &mut world, rank };
                moved |= stepper.advance(program, &mut ports, usize::MAX)? != Progress::Idle;
            }
        }
    }
    let waiting = steppers.iter().position(|stepper| !stepper.is_done());
    ensure!(waiting.is_none(), "rank {} waits for ever", waiting.unwrap_or_default());
    Ok(world.nodes.into_iter().map(|node| node.output).collect())
}

struct World<'k> {
    kernel: &'k Kernel,
    nodes: Vec<Node<'k>>,
    /// The messages on the way, by sender, receiver and lane.
    links: HashMap<(usize, usize, usize), VecDeque<Message<'k>>>,
}

/// The memory of one rank.
struct Node<'k> {
    input: Numbers<'k>,
    output: Numbers<'k>,
    scratch: Numbers<'k>,
    rounded: Numbers<'k>,
}

struct Message<'k> {
    numbers: Numbers<'k>,
    /// Elements that the receiver has taken.
    taken: usize,
}

impl Message<'_> {
    fn left(&self) -> usize {
        self.numbers.ways.len() - self.taken
    }
}

impl<'k> Node<'k> {
    fn buffer(&mut self, buffer: Buffer) -> anyhow::Result<&mut Numbers<'k>> {
        Ok(match buffer {
            Buffer::Input => &mut self.input,
            Buffer::Output => &mut self.output,
            Buffer::Scratch => &mut self.scratch,
            Buffer::Rounded => &mut self.rounded,
            Buffer::Staging => bail!("the algorithm needs shared memory"),
        })
    }
}

/// The ports of one rank.
struct RankPorts<'w, 'k> {
    world: &'w mut World<'k>,
    rank: usize,
}

impl<'k> RankPorts<'_, 'k> {
    fn buffer(&mut self, buffer: Buffer) -> anyhow::Result<&mut Numbers<'k>> {
        self.world.nodes[self.rank].buffer(buffer)
    }

    /// Elements at the front of the link from a rank that came in one message.
    fn arrived(&self, from: Rank, lane: usize) -> usize {
        let link = self.world.links.get(&(from.index(), self.rank, lane));
        link.and_then(VecDeque::front).map_or(0, Message::left)
    }

    /// Takes `len` elements that have arrived from a rank.
    fn take(&mut self, from: Rank, lane: usize, len: usize) -> anyhow::Result<Numbers<'k>> {
        let link = self.world.links.get_mut(&(from.index(), self.rank, lane));
        let link = link.context("no message has arrived")?;
        let message = link.front_mut().context("no message has arrived")?;
        let taken = message.numbers.read(Slice::new(Buffer::Input, message.taken, len));
        message.taken += len;
        if message.left() == 0 {
            link.pop_front();
        }
        Ok(taken)
    }
}

impl Ports for RankPorts<'_, '_> {
    type Error = anyhow::Error;

    /// Leaves the exchange to the two operations that it stands for.
    fn exchange(&mut self, _: Rank, _: Slice, _: Slice) -> anyhow::Result<Exchanged> {
        Ok(Exchanged::Nothing)
    }

    fn send(&mut self, lane: usize, to: Rank, src: Slice, _: bool) -> anyhow::Result<usize> {
        let numbers = self.buffer(src.buffer)?.read(src);
        let link = self.world.links.entry((self.rank, to.index(), lane)).or_default();
        link.push_back(Message { numbers, taken: 0 });
        Ok(src.len)
    }

    fn receive(&mut self, lane: usize, from: Rank, dst: Slice, _: Stores) -> anyhow::Result<usize> {
        let len = dst.len.min(self.arrived(from, lane));
        if len > 0 {
            let numbers = self.take(from, lane, len)?;
            ensure!(numbers.form == Form::of(dst.buffer), "a message of another form");
            self.buffer(dst.buffer)?.write(dst.offset, &numbers);
        }
        Ok(len)
    }

    fn copy(&mut self, _: usize, src: Slice, dst: Slice, _: Stores) -> anyhow::Result<()> {
        let numbers = self.buffer(src.buffer)?.read(src);
        ensure!(numbers.form == Form::of(dst.buffer), "a copy to another form");
        self.buffer(dst.buffer)?.write(dst.offset, &numbers);
        Ok(())
    }

    fn reduce(
        &mut self,
        lane: usize,
        Reduction { dst, sources, done, .. }: Reduction<'_>,
    ) -> anyhow::Result<usize> {
        let arrived = sources.iter().filter_map(|source| match *source {
            Source::Wire(from, _) => Some(self.arrived(from, lane)),
            Source::Local(_) | Source::Peer(..) => None,
        });
        let len = arrived.fold(dst.len, usize::min);
        if len == 0 {
            return Ok(0);
        }
        let mut terms = Vec::with_capacity(sources.len());
        for source in sources {
            terms.push(match *source {
                Source::Wire(from, form) => {
                    let numbers = self.take(from, lane, len)?;
                    ensure!(numbers.form == form, "a message of another form");
                    numbers
                }
                Source::Local(all) => self.buffer(all.buffer)?.read(all.skip(done).take(len)),
                Source::Peer(..) => bail!("the algorithm needs shared memory"),
            });
        }
        let sum = sum(self.world.kernel, Form::of(dst.buffer), &terms);
        self.buffer(dst.buffer)?.write(dst.offset, &sum);
        Ok(len)
    }

    fn reduce_to_all(&mut self, _: usize, _: Slice, _: &[Source], _: Stores) -> anyhow::Result<()> {
        bail!("the algorithm needs windows")
    }

    fn put(&mut self, _: usize, _: Rank, _: Slice) -> anyhow::Result<()> {
        bail!("the algorithm needs windows")
    }

    fn get(&mut self, _: usize, _: Rank, _: Slice, _: Slice, _: Stores) -> anyhow::Result<()> {
        bail!("the algorithm needs shared memory")
    }

    fn signal(&mut self, _: usize) -> anyhow::Result<()> {
        bail!("the algorithm needs shared memory")
    }

    fn wait(&mut self, _: usize, _: Rank) -> anyhow::Result<bool> {
        bail!("the algorithm needs shared memory")
    }

    fn swap(&mut self) -> anyhow::Result<()> {
        bail!("the algorithm needs shared memory")
    }
}

/// The sum of all terms, from left to right, in `form`.
fn sum<'k>(kernel: &'k Kernel, form: Form, terms: &[Numbers<'k>]) -> Numbers<'k> {
    let operands: Vec<Operand<'_>> = terms.iter().map(Numbers::operand).collect();
    let mut sum = Numbers::zeros(kernel, form, terms.first().map_or(0, |term| term.ways.len()));
    kernel.combine(&mut sum.bytes, kernel_form(form), &operands);
    let additions = u32::try_from(terms.len() - 1).unwrap_or(u32::MAX);
    // An element alone changes its form, but not its value.
    let is_exact = matches!(terms, [Numbers { form: Form::Element, .. }]);
    let is_rounded = kernel.data_type().is_short_float() && form == Form::Element && !is_exact;
    for (at, way) in sum.ways.iter_mut().enumerate() {
        *way = terms.iter().fold(*way, |way, term| way.longest(term.ways[at]));
        way.additions += additions;
        way.roundings += u32::from(is_rounded);
    }
    sum
}
