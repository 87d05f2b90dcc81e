//! Loans of memory to calls that outlast the function that started them.
//!
//! The owner of lent memory cannot be used until the loan has ended: [`lend`] takes it, and
//! [`Owner::take`] gives it back then. So a forgotten or dropped owner leaves no dangling memory.
//! Borrowed memory has no such owner. [`borrow_input`] and [`borrow_output`] lend it to a call that
//! blocks, and [`lend_in_scope`] to calls that end before a scope does.

use std::cell::UnsafeCell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ringfold_transport::Process;

/// The memory of a started call. Its owner gets the memory back when the loan is dropped.
pub struct Loan {
    /// Bytes that the call reads. `None` if the call is in place.
    input: Option<NonNull<[u8]>>,
    /// Bytes that the call writes, and reads in place.
    output: NonNull<[u8]>,
    /// `None` for borrowed memory.
    part: Option<Part>,
}

// SAFETY: the loan has exclusive use of memory whose owner is `Send`.
unsafe impl Send for Loan {}

impl Loan {
    /// The memory, as the call's input and output. Without an input the call is in place.
    #[must_use]
    pub const fn memory(&mut self) -> (Option<&[u8]>, &mut [u8]) {
        // SAFETY: `lend` has borrowed these bytes from the owner. `Shared` keeps the owner in its
        // place and unused until the loan ends. The borrow of other bytes outlasts the loan.
        // `&mut self` keeps the loan's users apart.
        unsafe {
            let input = match self.input {
                Some(input) => Some(input.as_ref()),
                None => None,
            };
            (input, self.output.as_mut())
        }
    }
}

impl Loan {
    /// Makes borrowed memory of the owner a part of this loan, which lasts until all parts have
    /// ended.
    pub fn extend_to(&self, borrowed: &mut Self) {
        let owner = self.part.as_ref().and_then(|part| part.0.as_ref());
        borrowed.part = owner.map(|owner| Part::new(Arc::clone(owner)));
    }
}

impl fmt::Debug for Loan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loan").finish_non_exhaustive()
    }
}

/// Lends bytes that a blocking call reads. The engine of `ringfold` drops the loan before the call
/// returns. After a panic the guard of the call does.
#[must_use]
#[inline]
pub fn borrow_input(bytes: &[u8]) -> Loan {
    borrow_buffers(Some(bytes), &mut [])
}

/// Lends bytes that a blocking call writes, as [`borrow_input`] does.
#[must_use]
#[inline]
pub fn borrow_output(bytes: &mut [u8]) -> Loan {
    borrow_buffers(None, bytes)
}

/// Lends the input and the output of a blocking call, as [`borrow_input`] does. Without an input
/// the call is in place.
#[must_use]
#[inline]
pub fn borrow_buffers(input: Option<&[u8]>, output: &mut [u8]) -> Loan {
    Loan { input: input.map(NonNull::from), output: NonNull::from(output), part: None }
}

/// The owner of lent memory. Nobody can use it until the loan has ended.
pub struct Owner<B> {
    shared: Arc<Shared<B>>,
    /// Shows the memory to lend.
    view: Box<View<B>>,
}

type View<B> = dyn for<'b> Fn(&'b mut B) -> (Option<&'b [u8]>, &'b mut [u8]) + Send + Sync;

impl<B> Owner<B> {
    /// The value. `None` while the loan lasts, and after it was taken.
    ///
    /// In a child of `fork` the loan is over: the threads that used it exist in the parent only.
    pub fn value(&mut self) -> Option<&mut B> {
        // SAFETY: this is the one `Owner`, borrowed by `&mut`.
        unsafe { self.shared.unused() }?.as_mut()
    }

    /// Takes the value back. `None` where [`value`](Self::value) is.
    pub fn take(&mut self) -> Option<B> {
        // SAFETY: this is the one `Owner`, borrowed by `&mut`.
        unsafe { self.shared.unused() }?.take()
    }
}

impl<B: Send + 'static> Owner<B> {
    /// Lends the memory again. `None` where [`value`](Self::value) is, and in a child of `fork`.
    pub fn lend(&mut self) -> Option<Loan> {
        let Self { shared, view } = self;
        // SAFETY: this is the one `Owner`, borrowed by `&mut`.
        let value = unsafe { shared.unused() }?.as_mut().filter(|_| shared.process.is_this())?;
        Some(shared.loan(view(value)))
    }
}

impl<B> fmt::Debug for Owner<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owner").finish_non_exhaustive()
    }
}

struct Shared<B> {
    value: UnsafeCell<Option<B>>,
    /// The parts of the loan that have not ended.
    parts: AtomicUsize,
    process: Process,
}

// SAFETY: while the loan lasts, only the loan uses the memory of `value`. Then only the one `Owner`
// does. The count orders both.
unsafe impl<B: Send> Sync for Shared<B> {}

impl<B> Shared<B> {
    fn new(value: B) -> Arc<Self> {
        let (value, process) = (UnsafeCell::new(Some(value)), Process::this());
        Arc::new(Self { value, parts: AtomicUsize::new(0), process })
    }

    /// The value, unless it is lent.
    ///
    /// # Safety
    /// The caller is the one `Owner`, and borrows it by `&mut` for as long as the result.
    #[expect(clippy::mut_from_ref, reason = "the contract of the function")]
    unsafe fn unused(&self) -> Option<&mut Option<B>> {
        let is_lent = self.parts.load(Ordering::Acquire) > 0 && self.process.is_this();
        // SAFETY: the loan has ended, and by the contract nobody else comes here.
        (!is_lent).then(|| unsafe { &mut *self.value.get() })
    }
}

impl<B: Send> Shared<B> {
    /// A loan of memory of the value, which nobody else uses until the loan ends.
    fn loan<'s>(self: &Arc<Self>, (input, output): (Option<&[u8]>, &mut [u8])) -> Loan
    where
        B: 's,
    {
        let owner: Arc<dyn Counts + Send + Sync + 's> = Arc::<Self>::clone(self);
        // SAFETY: only the lifetime differs. The loan ends before the scope of a value that may
        // borrow it, so its owner lives then. The value may outlive the scope in `Owner` only,
        // which keeps the lifetime.
        let owner: Arc<dyn Counts + Send + Sync> = unsafe { std::mem::transmute(owner) };
        Loan { part: Some(Part::new(owner)), ..borrow_buffers(input, output) }
    }
}

/// A part of a loan that has not ended. `None` while it is dropped.
struct Part(Option<Arc<dyn Counts + Send + Sync>>);

/// The count of a loan's parts.
trait Counts {
    fn parts(&self) -> &AtomicUsize;
}

impl<B> Counts for Shared<B> {
    fn parts(&self) -> &AtomicUsize {
        &self.parts
    }
}

impl Part {
    fn new(owner: Arc<dyn Counts + Send + Sync>) -> Self {
        owner.parts().fetch_add(1, Ordering::Relaxed);
        Self(Some(owner))
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        let Some(owner) = self.0.take() else { return };
        owner.parts().fetch_sub(1, Ordering::Release);
        // This may drop a value whose request was dropped. Its panic must not keep the thread from
        // the ends of other calls.
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(owner))) {
            std::mem::forget(panic);
        }
    }
}

/// Lends the memory that `view` shows of `value`: the input of a call, and its output. Without an
/// input the call is in place.
pub fn lend<B: Send + 'static>(
    value: B,
    view: impl for<'b> Fn(&'b mut B) -> (Option<&'b [u8]>, &'b mut [u8]) + Send + Sync + 'static,
) -> (Loan, Owner<B>) {
    lend_in_scope(value, view)
}

/// Lends the memory of a value that may borrow it, as [`lend`] does. A scope of `ringfold` ends
/// only after the loan, also when it panics: it keeps the borrows of the value until then.
pub fn lend_in_scope<'s, B: Send + 's>(
    value: B,
    view: impl for<'b> Fn(&'b mut B) -> (Option<&'b [u8]>, &'b mut [u8]) + Send + Sync + 'static,
) -> (Loan, Owner<B>) {
    let shared = Shared::new(value);
    // SAFETY: nobody else has the new `shared`.
    let value = unsafe { shared.unused() }.and_then(Option::as_mut);
    let Some(value) = value else { unreachable!("the value was just put there") };
    // The borrow lasts until the loan ends: until then nobody moves, uses or drops the value.
    let loan = shared.loan(view(value));
    (loan, Owner { shared, view: Box::new(view) })
}

/// Lends the memory that `borrow` borrows from `value` by [`borrow_buffers`] and its relatives.
/// The caller [extends](Loan::extend_to) the loan to all of these parts before it drops it.
pub fn lend_parts<B: Send + 'static, P>(
    value: B,
    borrow: impl for<'b> FnOnce(&'b mut B) -> P,
) -> (P, Loan, Owner<B>) {
    let shared = Shared::new(value);
    // SAFETY: nobody else has the new `shared`.
    let value = unsafe { shared.unused() }.and_then(Option::as_mut);
    let parts = value.map(borrow);
    let Some(parts) = parts else { unreachable!("the value was just put there") };
    let loan = shared.loan((None, &mut []));
    (parts, loan, Owner { shared, view: Box::new(|_| (None, &mut [])) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_owner_comes_back_when_its_loan_ends() {
        let (mut loan, mut owner) = lend((vec![1, 2], vec![0; 2]), |(input, output)| {
            (Some(input.as_slice()), output.as_mut_slice())
        });
        assert!(owner.take().is_none());
        let (input, output) = loan.memory();
        output.copy_from_slice(input.unwrap());
        drop(loan);
        assert_eq!(owner.take(), Some((vec![1, 2], vec![1, 2])));
        assert!(owner.take().is_none());
    }

    #[test]
    fn a_loan_ends_with_its_last_part() {
        let (parts, whole, mut owner) = lend_parts([[1_u8; 4], [2; 4]], |[one, other]| {
            [borrow_output(one), borrow_buffers(Some(&*other), &mut [])]
        });
        let [mut one, mut other] = parts;
        whole.extend_to(&mut one);
        whole.extend_to(&mut other);
        drop(whole);
        assert_eq!(other.memory().0, Some(&[2; 4][..]));
        drop(other);
        assert!(owner.value().is_none() && owner.lend().is_none());
        one.memory().1.fill(7);
        drop(one);
        assert_eq!(owner.take(), Some([[7; 4], [2; 4]]));
    }

    #[test]
    fn a_drop_that_panics_does_not_reach_the_end_of_the_loan() {
        struct Bad([u8; 4]);
        impl Drop for Bad {
            fn drop(&mut self) {
                std::panic::resume_unwind(Box::new("on purpose"));
            }
        }
        let (loan, owner) = lend(Bad([0; 4]), |bad| (None, &mut bad.0[..]));
        drop(owner);
        drop(loan);
    }

    #[test]
    fn memory_is_lent_again() {
        let (loan, mut owner) = lend(vec![0_u8; 2], |bytes| (None, bytes.as_mut_slice()));
        assert!(owner.value().is_none() && owner.lend().is_none());
        drop(loan);
        // The value may have moved its memory meanwhile.
        owner.value().unwrap().resize(1000, 7);
        let mut loan = owner.lend().unwrap();
        assert!(owner.lend().is_none() && owner.take().is_none());
        loan.memory().1[999] = 9;
        drop(loan);
        let value = owner.take().unwrap();
        assert_eq!((value.len(), value[2], value[999]), (1000, 7, 9));
        assert!(owner.lend().is_none());
    }

    #[test]
    fn a_loan_outlives_a_dropped_and_a_forgotten_owner() {
        let counted = Arc::new(());
        let value = || ([7_u8; 64], Arc::clone(&counted));
        let (mut loan, owner) = lend(value(), |(bytes, _)| (None, bytes.as_mut_slice()));
        drop(owner);
        loan.memory().1.fill(1);
        assert_eq!(Arc::strong_count(&counted), 2);
        drop(loan);
        assert_eq!(Arc::strong_count(&counted), 1);
        let (mut loan, owner) = lend(value(), |(bytes, _)| (None, bytes.as_mut_slice()));
        std::mem::forget(owner);
        std::thread::spawn(move || loan.memory().1.fill(2)).join().unwrap();
        assert_eq!(Arc::strong_count(&counted), 2, "forgotten memory is never freed");
    }
}
