//! Loans of memory to calls that outlast the function that started them.
//!
//! The owner of lent memory cannot be used until the loan has ended: [`lend`] takes it, and
//! [`Owner::take`] gives it back then. So a forgotten or dropped owner leaves no dangling memory.
//! Borrowed memory has no such owner. [`borrow_input`] and [`borrow_output`] lend it to a call that
//! blocks, and [`lend_in_scope`] to calls that end before a scope does.

use std::cell::UnsafeCell;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ringfold_transport::Process;

/// The memory of a started call. Its owner gets the memory back when the loan is dropped.
pub struct Loan {
    /// Bytes that the call reads. `None` if the call is in place.
    input: Option<NonNull<[u8]>>,
    /// Bytes that the call writes, and reads in place.
    output: NonNull<[u8]>,
    /// `None` for borrowed memory.
    owner: Option<Arc<dyn Ends + Send + Sync>>,
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

impl fmt::Debug for Loan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Loan").finish_non_exhaustive()
    }
}

impl Drop for Loan {
    fn drop(&mut self) {
        if let Some(owner) = &self.owner {
            owner.end();
        }
    }
}

/// Lends bytes that a blocking call reads. The engine of `ringfold` drops the loan before the call
/// returns. After a panic the guard of the call does.
#[must_use]
#[inline]
pub fn borrow_input(bytes: &[u8]) -> Loan {
    Loan { input: Some(NonNull::from(bytes)), output: NonNull::from(&mut []), owner: None }
}

/// Lends bytes that a blocking call writes, as [`borrow_input`] does.
#[must_use]
#[inline]
pub fn borrow_output(bytes: &mut [u8]) -> Loan {
    Loan { input: None, output: NonNull::from(bytes), owner: None }
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
    is_lent: AtomicBool,
    process: Process,
}

// SAFETY: while the loan lasts, only the loan uses the memory of `value`. Then only the one `Owner`
// does. The flag orders both.
unsafe impl<B: Send> Sync for Shared<B> {}

impl<B> Shared<B> {
    /// The value, unless it is lent.
    ///
    /// # Safety
    /// The caller is the one `Owner`, and borrows it by `&mut` for as long as the result.
    #[expect(clippy::mut_from_ref, reason = "the contract of the function")]
    unsafe fn unused(&self) -> Option<&mut Option<B>> {
        let is_lent = self.is_lent.load(Ordering::Acquire) && self.process.is_this();
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
        self.is_lent.store(true, Ordering::Relaxed);
        let (input, output) = (input.map(NonNull::from), NonNull::from(output));
        let owner: Arc<dyn Ends + Send + Sync + 's> = Arc::<Self>::clone(self);
        // SAFETY: only the lifetime differs. The loan ends before the scope of a value that may
        // borrow it, so its owner lives then. The value may outlive the scope in `Owner` only,
        // which keeps the lifetime.
        let owner: Arc<dyn Ends + Send + Sync> = unsafe { std::mem::transmute(owner) };
        Loan { input, output, owner: Some(owner) }
    }
}

/// The end of a loan.
trait Ends {
    fn end(&self);
}

impl<B> Ends for Shared<B> {
    fn end(&self) {
        self.is_lent.store(false, Ordering::Release);
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
    let shared = Arc::new(Shared {
        value: UnsafeCell::new(Some(value)),
        is_lent: AtomicBool::new(false),
        process: Process::this(),
    });
    // SAFETY: nobody else has the new `shared`.
    let value = unsafe { &mut *shared.value.get() };
    let Some(value) = value else { unreachable!("the value was just put there") };
    // The borrow lasts until the loan ends: until then nobody moves, uses or drops the value.
    let loan = shared.loan(view(value));
    (loan, Owner { shared, view: Box::new(view) })
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
