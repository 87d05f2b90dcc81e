//! Versions, unique ids, and the ways to make a communicator.
#![allow(unsafe_code)]

use std::ffi::c_char;

use ringfold::{Communicator, Config, Rank, UniqueId};
use ringfold_foreign::made_ids;

use crate::comm::give;
use crate::fault::{Fault, reported};
use crate::memory;
use crate::store::CallerStore;
use crate::types::{
    RINGFOLD_UNIQUE_ID_BYTES, RINGFOLD_VERSION, ringfold_comm_t, ringfold_result, ringfold_store,
    ringfold_unique_id,
};

/// The version of the library, as RINGFOLD_VERSION is that of the header.
#[unsafe(no_mangle)]
pub const extern "C" fn ringfold_version() -> u32 {
    RINGFOLD_VERSION
}

/// Refuses the header of another version. Before version 1, each minor version has an interface of
/// its own; from then on, a library knows the headers of all earlier minor versions.
fn check_version(header: u32) -> Result<(), Fault> {
    let [header_api, own_api] = [header, RINGFOLD_VERSION].map(|version| version / 1000);
    let fits = match header_api / 1000 {
        0 => header_api == own_api,
        major => major == own_api / 1000 && header_api <= own_api,
    };
    if fits {
        return Ok(());
    }
    let print = |version: u32| {
        format!("{}.{}.{}", version / 1_000_000, version / 1000 % 1000, version % 1000)
    };
    Err(Fault {
        result: ringfold_result::RINGFOLD_ERROR_VERSION,
        message: format!(
            "the program has the header of version {} and the library of version {}; compile the \
             program again, or install the library of its version",
            print(header),
            print(RINGFOLD_VERSION)
        ),
    })
}

fn config() -> Result<Config, Fault> {
    Ok(Config::from_env().map_err(ringfold::Error::from)?)
}

/// Joins the group of ranks that a launcher started: ringrun, torchrun, srun or mpiexec. Without a
/// launcher the process becomes a group of one. Every rank must call it. Blocks until all ranks
/// have joined. Pass RINGFOLD_VERSION first. Settings are those of the environment.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_init(
    version: u32,
    comm: *mut ringfold_comm_t,
) -> ringfold_result {
    let make = || {
        check_version(version)?;
        Ok(Some(Communicator::init_with(&config()?)?))
    };
    // SAFETY: the caller points to memory of a handle.
    unsafe { give(comm, make) }
}

/// Makes the id of a group, with a fresh secret, and reserves a port for rank 0. Call it in the
/// process of rank 0, and pass the text on to the other ranks. An id is good for one communicator.
/// An id that is not used holds its port until the process ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_unique_id_create(
    version: u32,
    id: *mut ringfold_unique_id,
) -> ringfold_result {
    reported(|| {
        check_version(version)?;
        // SAFETY: the caller points to memory of an id.
        let id = unsafe { memory::out(id, "id") }?;
        let made = UniqueId::new(&config()?)?;
        let text = made.to_string();
        assert!(text.len() < RINGFOLD_UNIQUE_ID_BYTES, "the text of an id has {}", text.len());
        let mut bytes = [0; RINGFOLD_UNIQUE_ID_BYTES];
        for (place, byte) in bytes.iter_mut().zip(text.bytes()) {
            *place = byte as c_char;
        }
        id.write(ringfold_unique_id { text: bytes });
        made_ids().push(made);
        Ok(())
    })
}

/// Joins the group of `size` ranks that share an id, as `rank`, without a launcher. Everything else
/// is as for ringfold_init.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_init_with_id(
    version: u32,
    id: *const ringfold_unique_id,
    rank: u32,
    size: u32,
    comm: *mut ringfold_comm_t,
) -> ringfold_result {
    let make = || {
        check_version(version)?;
        // SAFETY: the caller points to an id.
        let id = unsafe { memory::unique_id(id) }?;
        Ok(Some(Communicator::init_with_id(&config()?, &id, Rank(rank), size as usize)?))
    };
    // SAFETY: the caller points to memory of a handle.
    unsafe { give(comm, make) }
}

/// Joins the ranks of a running job, which call ringfold_comm_grow with this id. Blocks until they
/// admit this process. Rank 0 is never a newcomer, so it can broadcast the state of the job.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_init_as_newcomer(
    version: u32,
    id: *const ringfold_unique_id,
    comm: *mut ringfold_comm_t,
) -> ringfold_result {
    let make = || {
        check_version(version)?;
        // SAFETY: the caller points to an id.
        let id = unsafe { memory::unique_id(id) }?;
        Ok(Some(Communicator::init_as_newcomer(&config()?, &id)?))
    };
    // SAFETY: the caller points to memory of a handle.
    unsafe { give(comm, make) }
}

/// Joins the group of `size` ranks that share a key-value store, as `rank`, without a launcher. The
/// store is only used during the call. The n-th call of one rank meets the n-th call of the others.
/// Everything else is as for ringfold_init.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ringfold_init_with_store(
    version: u32,
    store: *const ringfold_store,
    rank: u32,
    size: u32,
    comm: *mut ringfold_comm_t,
) -> ringfold_result {
    let make = || {
        check_version(version)?;
        // SAFETY: the caller points to a store.
        let store = unsafe { memory::slice(store, 1, "store") }?;
        // SAFETY: the caller's functions do what the header asks of them.
        let store = unsafe { CallerStore::new(&store[0]) }?;
        let size = size as usize;
        Ok(Some(Communicator::init_with_store(&config()?, store, Rank(rank), size)?))
    };
    // SAFETY: the caller points to memory of a handle.
    unsafe { give(comm, make) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::{RINGFOLD_VERSION_MAJOR, RINGFOLD_VERSION_MINOR, RINGFOLD_VERSION_PATCH};

    #[test]
    fn the_header_has_the_version_of_the_crate() {
        let own =
            format!("{RINGFOLD_VERSION_MAJOR}.{RINGFOLD_VERSION_MINOR}.{RINGFOLD_VERSION_PATCH}");
        assert_eq!(own, env!("CARGO_PKG_VERSION"));
        assert_eq!(ringfold_version(), RINGFOLD_VERSION);
    }

    #[test]
    fn headers_of_other_versions_are_refused() {
        assert!(check_version(RINGFOLD_VERSION).is_ok());
        assert!(check_version(RINGFOLD_VERSION + 1).is_ok(), "another patch");
        for other in [0, RINGFOLD_VERSION + 1000, RINGFOLD_VERSION + 1_000_000, u32::MAX] {
            let Err(fault) = check_version(other) else { panic!("{other}") };
            assert_eq!(fault.result, ringfold_result::RINGFOLD_ERROR_VERSION);
        }
        let Err(fault) = check_version(2_003_004) else { panic!() };
        assert!(fault.message.contains("the header of version 2.3.4 and"), "{}", fault.message);
    }
}
