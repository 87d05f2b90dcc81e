//! Memory that stays registered with devices.
#![allow(unsafe_code)]

use ringfold::{Communicator, Error, Registration, is_readable};

use crate::region::Region;

/// Registers memory of the caller with the RDMA devices of a rank, if there are any, as
/// [`Communicator::register`] does. The caller keeps the memory until the registration is dropped.
///
/// # Errors
/// As for [`Communicator::register`]. [`Error::Argument`] if this process cannot read the memory.
pub fn register(
    communicator: &mut Communicator,
    region: Region,
) -> Result<Option<Registration>, Error> {
    let (address, bytes) = (region.start().addr(), region.bytes());
    if bytes > 0 && !is_readable(address, bytes) {
        return Err(Error::Argument {
            rank: communicator.rank(),
            call: "register",
            what: format!(
                "this process cannot read the {bytes} bytes at {address:#x}; register memory of \
                 the CPU, not of a GPU"
            ),
        });
    }
    // SAFETY: the caller has bytes there, which can be read. Registering accesses none of them, and
    // the slice ends with this call.
    Ok(communicator.register(unsafe { region.slice_mut() })?.into_registration())
}
