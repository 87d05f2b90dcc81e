//! A server that answers as torch's `TCPStore` does, which torchrun's agent has.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

type Values = HashMap<Vec<u8>, Vec<u8>>;

/// A store of threads of this process. It serves until the process ends.
#[derive(Clone, Debug)]
pub struct TorchStore {
    address: SocketAddr,
    values: Arc<Mutex<Values>>,
}

impl TorchStore {
    /// Starts a store on a port of the loopback interface.
    ///
    /// # Panics
    /// If no port is free.
    #[must_use]
    pub fn start() -> Self {
        Self::start_after(|_| true)
    }

    /// Starts a store, after `is_served` has had its first client. It says whether that is served
    /// like the others.
    ///
    /// # Panics
    /// If no port is free.
    #[must_use]
    pub fn start_after(is_served: impl FnOnce(&mut TcpStream) -> bool + Send + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let address = listener.local_addr().expect("an address");
        let store = Self { address, values: Arc::default() };
        let served = store.clone();
        thread::spawn(move || {
            let mut first = Some(is_served);
            for mut stream in listener.incoming().flatten() {
                let (store, first) = (served.clone(), first.take());
                thread::spawn(move || {
                    if first.is_none_or(|is_served| is_served(&mut stream)) {
                        // A client that goes ends it.
                        store.serve(stream).unwrap_or_default();
                    }
                });
            }
        });
        store
    }

    /// Where it listens.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// The value of a key.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Vec<u8>> {
        self.with(|values| values.get(key.as_bytes()).cloned())
    }

    /// Stores a value.
    pub fn set(&self, key: &str, value: &[u8]) {
        self.with(|values| values.insert(key.into(), value.into()));
    }

    /// Forgets all values, as a store that begins anew.
    pub fn forget(&self) {
        self.with(HashMap::clear);
    }

    /// The variables by which torchrun tells its ranks of the store.
    #[must_use]
    pub fn variables(&self) -> [(&'static str, String); 5] {
        [
            ("MASTER_ADDR", self.address.ip().to_string()),
            ("MASTER_PORT", self.address.port().to_string()),
            ("TORCHELASTIC_RUN_ID", "none".into()),
            ("TORCHELASTIC_RESTART_COUNT", "0".into()),
            ("TORCHELASTIC_USE_AGENT_STORE", "True".into()),
        ]
    }

    fn with<T>(&self, use_values: impl FnOnce(&mut Values) -> T) -> T {
        use_values(&mut self.values.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Serves a client, for the requests that matter here. A client must validate itself. The
    /// server drops a client that sends an unknown request.
    fn serve(&self, mut stream: TcpStream) -> io::Result<()> {
        let mut opening = [0; 5];
        stream.read_exact(&mut opening)?;
        if opening != [0, 0xce, 0xf7, 0x85, 0x3c] {
            return Ok(());
        }
        loop {
            let mut request = [0];
            stream.read_exact(&mut request)?;
            let key = text(&mut stream)?;
            let answer = match request[0] {
                2 => {
                    let (expected, desired) = (text(&mut stream)?, text(&mut stream)?);
                    self.with(|values| compare_set(values, key, expected, desired))
                }
                _ => return Ok(()),
            };
            stream.write_all(&(answer.len() as u64).to_le_bytes())?;
            stream.write_all(&answer)?;
        }
    }
}

/// A text of at most 4 KiB.
fn text(stream: &mut TcpStream) -> io::Result<Vec<u8>> {
    let mut length = [0; 8];
    stream.read_exact(&mut length)?;
    let length = usize::try_from(u64::from_le_bytes(length)).unwrap_or(usize::MAX);
    let mut bytes = vec![0; length.min(4096)];
    stream.read_exact(&mut bytes)?;
    Ok(bytes)
}

fn compare_set(values: &mut Values, key: Vec<u8>, expected: Vec<u8>, desired: Vec<u8>) -> Vec<u8> {
    match values.get(&key) {
        None if !expected.is_empty() => expected,
        Some(is) if *is != expected => is.clone(),
        _ => {
            values.insert(key, desired.clone());
            desired
        }
    }
}
