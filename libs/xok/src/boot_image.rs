//! The boot image, mapped whole into one's space, read-only.
//!
//! # Safety
//! Makes a slice of the pages mapped here; the image's frames are never written nor freed.
#![allow(unsafe_code)]

use crate::call::Refused;
use crate::memory::Space;
use abi::id::Frame;
use abi::layout::{LIBRARY, PAGE_SIZE};
use abi::memory::NO_EXECUTE;

/// Where the image is mapped.
pub const IMAGE: u64 = LIBRARY + 0x1000_0000;

/// First frame of the image and its length in bytes.
pub fn place() -> (Frame, u64) {
    let directory = crate::published::directory();
    (Frame(directory.image_frame as u32), directory.image_bytes)
}

/// Maps the image with the capability at `capability` (READ over the image's name).
pub fn map(capability: u8) -> Result<&'static [u8], Refused> {
    let (first, bytes) = place();
    let mut space = Space::of(abi::id::DomainId::NONE, capability);
    space.map(IMAGE, first, bytes.div_ceil(PAGE_SIZE), NO_EXECUTE)?;
    // SAFETY: just mapped for good; image frames do not change.
    Ok(unsafe { core::slice::from_raw_parts(IMAGE as *const u8, bytes as usize) })
}
