//! PCI addresses as text.

use std::fmt;
use std::str::FromStr;

/// A PCI address: domain, bus, device and function. As text `0000:c1:00.0`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "wire", derive(serde::Serialize, serde::Deserialize))]
pub struct PciAddress {
    /// The domain, usually 0.
    pub domain: u32,
    /// The bus.
    pub bus: u8,
    /// The device, below 32.
    pub device: u8,
    /// The function, below 8.
    pub function: u8,
}

/// A text that is not a PCI address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidPciAddress;

impl FromStr for PciAddress {
    type Err = InvalidPciAddress;

    fn from_str(text: &str) -> Result<Self, InvalidPciAddress> {
        let parts = || {
            let (domain, rest) = text.split_once(':')?;
            let (bus, rest) = rest.split_once(':')?;
            let (device, function) = rest.split_once('.')?;
            let hex = |text: &str, digits: std::ops::RangeInclusive<usize>| {
                let is_hex = text.bytes().all(|byte| byte.is_ascii_hexdigit());
                let number = (is_hex && digits.contains(&text.len())).then_some(text)?;
                u32::from_str_radix(number, 16).ok()
            };
            let byte = |number: u32, end: u32| u8::try_from(number).ok().filter(|_| number < end);
            Some(Self {
                domain: hex(domain, 4..=8)?,
                bus: byte(hex(bus, 2..=2)?, 256)?,
                device: byte(hex(device, 2..=2)?, 32)?,
                function: byte(hex(function, 1..=1)?, 8)?,
            })
        };
        parts().ok_or(InvalidPciAddress)
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { domain, bus, device, function } = self;
        f.pad(&format!("{domain:04x}:{bus:02x}:{device:02x}.{function:x}"))
    }
}

impl fmt::Display for InvalidPciAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a PCI address such as 0000:c1:00.0")
    }
}

impl std::error::Error for InvalidPciAddress {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_and_written() {
        for text in ["0000:c1:00.0", "ffff:ff:1f.7", "10000:01:02.3", "3436:00:00.0"] {
            assert_eq!(text.parse::<PciAddress>().unwrap().to_string(), text);
        }
        for text in ["", "c1:00.0", "0000:c1:00", "0000:c1:20.0", "0000:c1:00.8", "0:c1:00.0"] {
            assert_eq!(text.parse::<PciAddress>(), Err(InvalidPciAddress), "{text}");
        }
        for text in ["0000:+1:00.0", "0000:c1:00.0 ", "pci0000:c0", "0000:c1:00.00"] {
            assert_eq!(text.parse::<PciAddress>(), Err(InvalidPciAddress), "{text}");
        }
    }
}
