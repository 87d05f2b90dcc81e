//! Measures the cost of joining: N ranks, as threads of this process, join over loopback. Prints
//! the time until all have joined, as in `join_cost 64 256 1024`.

use std::error::Error;
use std::io::Write;
use std::net::TcpListener;
use std::thread;
use std::time::{Duration, Instant};

use ringfold_bootstrap::{Control, Identity, Launcher, Options, Rendezvous, Secret, SecretSource};
use ringfold_types::Rank;
use ringfold_types::limits::PEER_INFO_BYTES_MAX;

fn main() -> Result<(), Box<dyn Error>> {
    for size in std::env::args().skip(1) {
        let size: usize = size.parse()?;
        let took = join(size)?;
        writeln!(std::io::stdout(), "{size:5} ranks joined in {took:.3?}")?;
    }
    Ok(())
}

fn join(size: usize) -> Result<Duration, Box<dyn Error>> {
    let secret = Secret::generate()?;
    let port = TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port();
    let began = Instant::now();
    let ranks: Vec<_> = (0..size)
        .map(|rank| {
            let identity = Identity {
                rank: Rank::at(rank),
                size,
                job: "cost".into(),
                rendezvous: Rendezvous::Ports {
                    hosts: vec!["127.0.0.1".into()],
                    named_by: "the example",
                    ports: vec![port],
                },
                launcher: Launcher::Torchrun,
                secret_source: SecretSource::None,
            };
            let (secret, peer_info) = (secret.clone(), vec![7; PEER_INFO_BYTES_MAX]);
            let options = Options { timeout: Duration::from_secs(300), ..Options::default() };
            thread::spawn(move || Control::join(identity, secret, peer_info, options))
        })
        .collect();
    let mut controls = Vec::new();
    for rank in ranks {
        controls.push(rank.join().map_err(|_| "a rank panicked")??.0);
    }
    let took = began.elapsed();
    let leaving: Vec<_> =
        controls.into_iter().map(|control| thread::spawn(move || control.leave())).collect();
    for rank in leaving {
        rank.join().map_err(|_| "a rank panicked")?.map_err(|cause| cause.to_string())?;
    }
    Ok(took)
}
