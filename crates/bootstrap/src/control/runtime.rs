//! The control thread of this process: one event loop for the control tasks of all communicators.
//!
//! Sockets belong to the network of the thread that makes them. So threads that have entered
//! another network have a control thread there.

use std::future::Future;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle};
use std::{fs, io, process};

use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;

/// The control thread. It ends when the last communicator of the process has left.
#[derive(Debug)]
pub(crate) struct ControlRuntime {
    handle: Handle,
    namespace: Namespace,
    /// `None` only while dropping.
    thread: Option<Thread>,
}

#[derive(Debug)]
struct Thread {
    /// The thread ends when this is dropped.
    stays: oneshot::Sender<()>,
    ends: JoinHandle<()>,
}

/// The namespace of a control thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Namespace {
    /// A child made by `fork` has copies of its parent's values, but no control thread.
    process: u32,
    /// The number of the network namespace.
    network: Option<u64>,
}

impl Namespace {
    /// The namespace of the calling thread.
    fn here() -> Self {
        let network = fs::metadata("/proc/thread-self/ns/net").map(|it| it.ino()).ok();
        Self { process: process::id(), network }
    }
}

static RUNNING: Mutex<Vec<Weak<ControlRuntime>>> = Mutex::new(Vec::new());

impl ControlRuntime {
    /// The control thread of this process and network. Starts it unless it runs.
    ///
    /// # Errors
    /// The system refuses a thread or its descriptors.
    pub(crate) fn shared() -> io::Result<Arc<Self>> {
        let here = Namespace::here();
        let mut running = RUNNING.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all = running.iter().filter_map(Weak::upgrade);
        if let Some(ours) = all.find(|it| it.namespace == here) {
            return Ok(ours);
        }
        running.retain(|it| it.strong_count() > 0);
        let started = Arc::new(Self::start(here)?);
        running.push(Arc::downgrade(&started));
        Ok(started)
    }

    fn start(namespace: Namespace) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let handle = runtime.handle().clone();
        let (stays, until) = oneshot::channel::<()>();
        let ends = thread::Builder::new().name("ringfold-ctl".into()).spawn(move || {
            runtime.block_on(until).unwrap_or_default();
            // A pending name look-up must not delay the end.
            runtime.shutdown_background();
        })?;
        Ok(Self { handle, namespace, thread: Some(Thread { stays, ends }) })
    }

    /// Runs a task on the control thread.
    pub(crate) fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        self.handle.spawn(task);
    }
}

impl Drop for ControlRuntime {
    fn drop(&mut self) {
        let Some(thread) = self.thread.take() else { return };
        if self.namespace.process != process::id() {
            // The thread is that of the parent.
            return std::mem::forget(thread);
        }
        drop(thread.stays);
        if thread.ends.join().is_err() {
            tracing::error!("the control thread panicked");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn tasks_share_one_thread_until_the_last_user_is_gone() {
        let (tell, told) = mpsc::channel();
        let users = [(); 2].map(|()| ControlRuntime::shared().unwrap());
        for user in &users {
            let tell = tell.clone();
            user.spawn(async move { tell.send(thread::current().id()).unwrap() });
        }
        assert_eq!(told.recv().unwrap(), told.recv().unwrap());
        let [first, last] = users;
        assert!(Arc::ptr_eq(&first, &last));
        drop(first);
        // It serves on after one user has gone.
        last.spawn(async move { tell.send(thread::current().id()).unwrap() });
        told.recv().unwrap();
    }
}
