//! The package of ringfold for Python: the module `ringfold._ringfold`.
//!
//! Each method converts its arguments, calls the crate `ringfold`, and converts the result. The
//! files in `python/ringfold` make a package of the module.
//!
//! * `init`: the ways to make a communicator; `store` wraps the caller's key-value store;
//! * `communicator`: the class of communicators; `call_group`: calls that are performed together;
//! * `collectives`: their methods, from tables; `messages`: the methods of messages, and
//!   `message` what they tell of one;
//! * `call`: from the arguments of a method to a call; `uneven`: the same for parts of any lengths;
//!   `element`: types and operations by name;
//! * `memory`: buffers and addresses of the caller; `dlpack`: tensors; `format`: the types of their
//!   elements; `region`: the errors of invalid memory;
//! * `window`: windows; `registration`: registered memory; `user_op`: operations of the user;
//!   `profile`: the parts of the time of calls;
//! * `queue`: the order of a communicator's calls; `prepared`: calls that are started many times;
//!   `ended`: the thread that learns of their ends;
//! * `handle`: waits, which signals interrupt; `fault`: exceptions.

mod call;
mod call_group;
mod collectives;
mod communicator;
mod dlpack;
mod element;
mod ended;
mod fault;
mod format;
mod handle;
mod init;
mod memory;
mod message;
mod messages;
mod prepared;
mod profile;
mod queue;
mod region;
mod registration;
mod store;
mod uneven;
mod user_op;
mod window;

use pyo3::prelude::*;

/// The native module of the package `ringfold`, which imports its names.
#[pymodule(gil_used = true)]
mod _ringfold {
    use pyo3::prelude::*;
    use pyo3::types::IntoPyDict;

    #[pymodule_export]
    use crate::call_group::CallGroup;
    #[pymodule_export]
    use crate::communicator::Communicator;
    #[pymodule_export]
    use crate::element::PreMulSum;
    #[pymodule_export]
    use crate::handle::Handle;
    #[pymodule_export]
    use crate::init::{
        close_all, init, init_as_newcomer, init_with_id, init_with_store, subset_with_store,
        unique_id,
    };
    #[pymodule_export]
    use crate::message::Message;
    #[pymodule_export]
    use crate::prepared::Prepared;
    #[pymodule_export]
    use crate::profile::{Profile, ProfiledCalls};
    #[pymodule_export]
    use crate::registration::Registration;
    #[pymodule_export]
    use crate::user_op::UserOp;
    #[pymodule_export]
    use crate::window::Window;

    #[pymodule_export]
    #[expect(non_upper_case_globals, reason = "Python's name")]
    const __version__: &str = env!("CARGO_PKG_VERSION");

    /// Takes the locks of the process before a fork.
    #[pyfunction]
    fn hold_for_fork() {
        crate::init::hold_for_fork();
    }

    /// Ends a fork in the parent.
    #[pyfunction]
    fn end_fork() {
        crate::init::end_fork();
    }

    /// Counts a fork, in the child: communicators of the parent then refuse calls.
    #[pyfunction]
    fn count_fork() {
        crate::queue::forked();
        crate::init::end_fork();
    }

    #[pymodule_init]
    fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
        let py = module.py();
        let hooks = [
            ("before", module.getattr("hold_for_fork")?),
            ("after_in_parent", module.getattr("end_fork")?),
            ("after_in_child", module.getattr("count_fork")?),
        ];
        let hooks = hooks.into_py_dict(py)?;
        py.import("os")?.call_method("register_at_fork", (), Some(&hooks))?;
        Ok(())
    }
}
