//! Performs the operations of a program: moves its bytes by the transports and combines them.

use ringfold_collectives::{Exchanged, Form, Ports, Reduction, Source, Stores};
use ringfold_reduce::{Kernel, Line, Operand};
use ringfold_transport::{Link, copy, copy_non_temporal, sent};
use ringfold_types::limits::SOURCES_MAX;
use ringfold_types::{Buffer, Collective, Lane, Rank, Slice, Way};

use super::buffer_map::{BufferMap, LocalSource};
use crate::buffers::Buffers;
use crate::error::CallError;
use crate::router::Router;
use crate::timing::Timing;
use crate::watch::Watch;
use ringfold_innetwork::member::LaneReduction;

/// The most sources of a reduction with a small operand table, which is cheaper to set up.
const FEW: usize = 4;

/// The ports of one call.
pub(super) struct CallPorts<'r, 'a, T> {
    pub(super) router: &'r mut Router,
    pub(super) watch: &'r Watch,
    pub(super) kernel: &'r Kernel,
    /// The tag of the call's messages and signals. All ranks compute the same.
    pub(super) tag: u32,
    pub(super) buffers: &'r mut BufferMap<'a>,
    /// The chunks that each lane hands over to a provider.
    pub(super) handed: &'r [Option<LaneReduction>],
    pub(super) timing: T,
}

impl<T: Timing> Ports for CallPorts<'_, '_, T> {
    type Error = CallError;

    fn exchange(&mut self, with: Rank, src: Slice, dst: Slice) -> Result<Exchanged, CallError> {
        let (mut line, input) = (Line([0; size_of::<Line>()]), self.buffers.read(src));
        let own = &mut line.0[..input.len()];
        copy(own, input);
        let output = self.buffers.write(dst);
        copy(output, own);
        let mut buffers = Buffers::InPlace(output);
        let exchanged = self.router.exchange(self.kernel, self.tag, with, &mut buffers, 0);
        if exchanged != ringfold_transport::Exchanged::Nothing {
            sent(Way::Shm, own.len());
        }
        Ok(stepped(exchanged))
    }

    #[inline]
    fn send(
        &mut self,
        lane: usize,
        to: Rank,
        src: Slice,
        rendezvous: bool,
    ) -> Result<usize, CallError> {
        let (link, bytes) = (link(to, lane), self.buffers.read(src));
        let sent = if rendezvous {
            self.router.send_rendezvous(link, self.tag, bytes)?
        } else {
            self.router.to(link).send(link, self.tag, bytes)?
        };
        Ok(sent >> self.buffers.shift(Form::of(src.buffer)))
    }

    fn expect(&mut self, lane: usize, from: Rank, skip: usize, dst: Slice) -> bool {
        let link = link(from, lane);
        self.router.to(link).expect(link, self.tag, skip, self.buffers.write(dst))
    }

    #[inline]
    fn receive(
        &mut self,
        lane: usize,
        from: Rank,
        dst: Slice,
        stores: Stores,
    ) -> Result<usize, CallError> {
        if stores == Stores::Streaming {
            return self.receive_streaming(lane, from, dst);
        }
        let link = link(from, lane);
        let shift = self.buffers.shift(Form::of(dst.buffer));
        let received = self.router.recv(link, self.tag, self.buffers.write(dst))?;
        match received {
            None => Ok(0),
            Some(received) if received.tag == self.tag => Ok(received.bytes >> shift),
            Some(_) => Err(CallError::Foreign(from)),
        }
    }

    fn copy(&mut self, _: usize, src: Slice, dst: Slice, stores: Stores) -> Result<(), CallError> {
        if dst.buffer == Buffer::Staging {
            // Peers read the staging buffer, and may write to it in the next call.
            self.watch.check_abort_after_pause()?;
        }
        self.buffers.copy(src, dst, stores);
        Ok(())
    }

    #[inline]
    fn reduce(&mut self, lane: usize, reduction: Reduction<'_>) -> Result<usize, CallError> {
        let Reduction { sources, done, in_lines, .. } = reduction;
        if in_lines && done == 0 {
            let reduced = if sources.len() <= FEW {
                self.reduce_lines::<FEW>(lane, reduction)?
            } else {
                self.reduce_lines::<SOURCES_MAX>(lane, reduction)?
            };
            if let Some(reduced) = reduced {
                return Ok(reduced);
            }
        }
        if sources.len() <= FEW {
            self.reduce_bytes::<FEW>(lane, reduction)
        } else {
            self.reduce_bytes::<SOURCES_MAX>(lane, reduction)
        }
    }

    fn reduce_to_all(
        &mut self,
        _: usize,
        dst: Slice,
        sources: &[Source],
        stores: Stores,
    ) -> Result<(), CallError> {
        self.watch.check_abort_after_pause()?;
        let windows = self.buffers.windows_of_all(dst);
        let range = windows.range;
        let mut operands = [Operand::Destination; SOURCES_MAX];
        for (operand, source) in operands.iter_mut().zip(sources) {
            *operand = match (*source, windows.input) {
                (Source::Local(_), None) => Operand::Destination,
                (Source::Peer(of, _), None) => Operand::Other(windows.peers.place(of)),
                (Source::Local(_), Some((own, _))) => Operand::elements(own.read(range.clone())),
                (Source::Peer(of, _), Some((_, peers))) => {
                    Operand::elements(peers.read(of, range.clone()))
                }
                (Source::Wire(..), _) => unreachable!("windows are not on a wire"),
            };
        }
        let mut others: [&mut [u8]; SOURCES_MAX] = Default::default();
        let mut count = 0;
        for (other, part) in others.iter_mut().zip(windows.peers.write_all(&range)) {
            *other = part;
            count += 1;
        }
        let (into, others) = (windows.own.write(range), &mut others[..count]);
        let is_streaming = stores == Stores::Streaming;
        self.timing.combining(|| {
            self.kernel.combine_to_all(into, others, &operands[..sources.len()], is_streaming);
        });
        Ok(())
    }

    fn put(&mut self, _: usize, to: Rank, src: Slice) -> Result<(), CallError> {
        self.watch.check_abort_after_pause()?;
        self.buffers.put(to, src);
        Ok(())
    }

    fn get(
        &mut self,
        _: usize,
        from: Rank,
        src: Slice,
        dst: Slice,
        stores: Stores,
    ) -> Result<(), CallError> {
        self.buffers.get(from, src, dst, stores);
        Ok(())
    }

    #[inline]
    fn signal(&mut self, _: usize) -> Result<(), CallError> {
        self.router.signal(self.tag);
        Ok(())
    }

    #[inline]
    fn wait(&mut self, _: usize, from: Rank) -> Result<bool, CallError> {
        match self.router.signalled(from)? {
            None => Ok(false),
            Some(tag) if tag == self.tag => {
                self.router.take_signal(from);
                Ok(true)
            }
            Some(_) => Err(CallError::Foreign(from)),
        }
    }

    fn swap(&mut self) -> Result<(), CallError> {
        self.buffers.swap();
        Ok(())
    }

    fn post(&mut self, lane: usize, src: Slice, _: Slice) -> Result<bool, CallError> {
        let (Some(Some(handed)), Some(offload)) = (self.handed.get(lane), self.router.offload())
        else {
            return Ok(false);
        };
        Ok(match handed.reduction.collective {
            Collective::Barrier => offload.post(self.tag, handed, 0, &[]),
            _ => offload.post(self.tag, handed, src.len, self.buffers.read(src)),
        })
    }

    fn take_result(&mut self, lane: usize, dst: Slice) -> Result<bool, CallError> {
        let (Some(Some(handed)), Some(offload)) = (self.handed.get(lane), self.router.offload())
        else {
            return Ok(false);
        };
        let has_bytes = handed.reduction.collective != Collective::Barrier && dst.len > 0;
        let into = if has_bytes { self.buffers.write(dst) } else { &mut [] };
        Ok(offload.take(handed.group, into))
    }
}

/// Converts the progress of a transport's exchange for the stepper.
#[inline]
pub(crate) const fn stepped(exchanged: ringfold_transport::Exchanged) -> Exchanged {
    match exchanged {
        ringfold_transport::Exchanged::Nothing => Exchanged::Nothing,
        ringfold_transport::Exchanged::Sent => Exchanged::Sent,
        ringfold_transport::Exchanged::Both => Exchanged::Both,
    }
}

impl<T: Timing> CallPorts<'_, '_, T> {
    /// Copies received elements by non-temporal stores.
    fn receive_streaming(
        &mut self,
        lane: usize,
        from: Rank,
        dst: Slice,
    ) -> Result<usize, CallError> {
        let link = link(from, lane);
        let shift = self.buffers.shift(Form::of(dst.buffer));
        let Some(arrived) = arrived(self.router, self.tag, link)? else { return Ok(0) };
        let into = self.buffers.write(dst);
        let bytes = arrived.len().min(into.len());
        copy_non_temporal(&mut into[..bytes], &arrived[..bytes]);
        self.router.to(link).consume(link, bytes);
        Ok(bytes >> shift)
    }

    /// Combines at most `N` sources that fit a cache line each. Returns `Some(0)` if a source has
    /// not arrived, and `None` if only a part of one has.
    #[inline]
    fn reduce_lines<const N: usize>(
        &mut self,
        lane: usize,
        Reduction { dst, sources, .. }: Reduction<'_>,
    ) -> Result<Option<usize>, CallError> {
        let bytes = dst.len << self.buffers.shift(Form::Element);
        let mut lines = [Line([0; size_of::<Line>()]); N];
        for (line, source) in lines.iter_mut().zip(sources) {
            let values = match *source {
                Source::Local(slice) => self.buffers.read(slice),
                Source::Wire(from, _) => {
                    let Some(values) = arrived(self.router, self.tag, link(from, lane))? else {
                        return Ok(Some(0));
                    };
                    let Some(values) = values.get(..bytes) else { return Ok(None) };
                    values
                }
                Source::Peer(..) => unreachable!("lines are in this rank's memory"),
            };
            copy(&mut line.0[..bytes], values);
        }
        self.timing.combining(|| {
            kernel_of(self.kernel, dst, &mut None)
                .combine_lines(self.buffers.write(dst), &lines[..sources.len()]);
        });
        self.consume(lane, sources, |_| bytes);
        Ok(Some(dst.len))
    }

    /// Combines at most `N` sources, as far as elements of all have arrived.
    fn reduce_bytes<const N: usize>(
        &mut self,
        lane: usize,
        Reduction { dst, sources, done, .. }: Reduction<'_>,
    ) -> Result<usize, CallError> {
        let (element, accumulator) =
            (self.buffers.shift(Form::Element), self.buffers.shift(Form::Accumulator));
        let shift = |form: Form| if form == Form::Element { element } else { accumulator };
        let mut on_wire: [&[u8]; N] = [&[]; N];
        let mut elements = dst.len;
        let mut is_shared = dst.buffer == Buffer::Staging;
        for (bytes, source) in on_wire.iter_mut().zip(sources) {
            match *source {
                Source::Wire(from, form) => {
                    let arrived = arrived(self.router, self.tag, link(from, lane))?;
                    let Some(arrived) = arrived else { return Ok(0) };
                    *bytes = arrived;
                    elements = elements.min(arrived.len() >> shift(form));
                }
                Source::Peer(_, slice) => is_shared |= slice.buffer != Buffer::Staging,
                Source::Local(_) => {}
            }
        }
        if elements == 0 {
            return Ok(0);
        }
        if is_shared {
            self.watch.check_abort_after_pause()?;
        }
        let parts = self.buffers.split(dst.take(elements));
        let mut operands = [Operand::Destination; N];
        for ((operand, source), arrived) in operands.iter_mut().zip(sources).zip(on_wire) {
            let (bytes, form) = match *source {
                Source::Wire(_, form) => (&arrived[..elements << shift(form)], form),
                Source::Local(whole) => match parts.find(whole.skip(done).take(elements)) {
                    LocalSource::Destination => continue,
                    LocalSource::Bytes(bytes) => (bytes, Form::of(whole.buffer)),
                },
                Source::Peer(of, whole) => {
                    let part = whole.skip(done).take(elements);
                    (parts.peer(of, part), Form::of(whole.buffer))
                }
            };
            *operand = Operand::Bytes { bytes, form: kernel_form(form) };
        }
        let form = kernel_form(Form::of(dst.buffer));
        self.timing.combining(|| {
            kernel_of(self.kernel, dst, &mut None).combine(
                parts.bytes,
                form,
                &operands[..sources.len()],
            );
        });
        self.consume(lane, sources, |form| elements << shift(form));
        Ok(elements)
    }

    /// Consumes `bytes` of each source on the wire.
    #[inline]
    fn consume(&mut self, lane: usize, sources: &[Source], bytes: impl Fn(Form) -> usize) {
        for source in sources {
            if let Source::Wire(from, form) = *source {
                let link = link(from, lane);
                self.router.to(link).consume(link, bytes(form));
            }
        }
    }
}

/// The kernel for results in `dst`. It divides averages only at their end.
#[inline]
fn kernel_of<'k>(kernel: &'k Kernel, dst: Slice, partial: &'k mut Option<Kernel>) -> &'k Kernel {
    match dst.buffer {
        Buffer::Rounded => partial.insert(kernel.partial()),
        _ => kernel,
    }
}

/// The bytes that have arrived on a link; `None` if none have.
#[inline]
fn arrived(router: &Router, tag: u32, link: Link) -> Result<Option<&[u8]>, CallError> {
    match router.readable(link)? {
        None => Ok(None),
        Some(fragment) if fragment.tag == tag => Ok(Some(fragment.bytes)),
        Some(_) => Err(CallError::Foreign(link.peer)),
    }
}

#[inline]
pub(super) fn link(peer: Rank, lane: usize) -> Link {
    #[expect(clippy::cast_possible_truncation, reason = "at most CHANNELS_MAX")]
    Link { peer, lane: Lane(lane as u8) }
}

const fn kernel_form(form: Form) -> ringfold_reduce::Form {
    match form {
        Form::Element => ringfold_reduce::Form::Element,
        Form::Accumulator => ringfold_reduce::Form::Accumulator,
    }
}
