//! A topology file of `ibnetdiscover`.
#![no_main]

libfuzzer_sys::fuzz_target!(|rest: &[u8]| ringfold_fuzz::fabric("vendid=0x2c9\n", rest));
