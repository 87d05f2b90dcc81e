//! Starts under any launcher and lists the ranks, as in `mpiexec -n 4 roll_call`. Shows whether the
//! ranks find each other without the rest of ringfold.

use std::error::Error;
use std::io::Write;
use std::time::Duration;

use ringfold_bootstrap::{Control, Options, discover};

#[expect(clippy::disallowed_methods, reason = "a program, which reads its environment")]
fn main() -> Result<(), Box<dyn Error>> {
    let variable = |name: &str| std::env::var(name).ok();
    let timeout = Duration::from_secs(20);
    let mut identity = discover(&variable)?;
    let secret = identity.secret(&variable, timeout)?;
    let mut out = std::io::stdout();
    let (launcher, job, source) = (identity.launcher, identity.job.clone(), identity.source());
    let peer_info = format!("{source} pid {}", std::process::id()).into_bytes();
    let options = Options { timeout, ..Options::default() };
    let (control, peer_infos) = Control::join(identity, secret, peer_info, options)?;
    if control.rank().0 == 0 {
        writeln!(out, "{} ranks, started by {launcher}, job {job}", control.size())?;
        for (rank, peer_info) in peer_infos.iter().enumerate() {
            writeln!(out, "rank {rank}: {}", String::from_utf8_lossy(peer_info))?;
        }
    }
    Ok(control.leave().map_err(|cause| cause.to_string())?)
}
