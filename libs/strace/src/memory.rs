//! Arguments of calls about memory.

use linux_raw_sys::general as linux;

use crate::Call;
use crate::kind::Kind;
use crate::names;
use crate::text::Text;

/// Flags of `mmap`: a kind, then bits.
pub fn map_flags(text: &mut Text, call: &Call<'_>, at: usize) {
    let flags = call.words[at] & 0xffff_ffff;
    let kinds = u64::from(linux::MAP_TYPE);
    text.choice(flags & kinds, names::MAP_KIND);
    if flags & !kinds != 0 {
        text.push("|");
        text.flags(flags & !kinds, names::MAP);
    }
}

/// The offset of `mmap`: zero without a prefix.
pub fn offset(text: &mut Text, call: &Call<'_>, at: usize) {
    match call.words[at] {
        0 => text.push("0"),
        offset => text.put(format_args!("{offset:#x}")),
    }
}

/// The new address of `mremap`, where it is asked for.
pub fn moved_to(call: &Call<'_>) -> Kind {
    let fixed = u64::from(linux::MREMAP_FIXED | linux::MREMAP_DONTUNMAP);
    if call.words[3] & fixed != 0 { Kind::Pointer } else { Kind::Nothing }
}

/// What `mincore` filled: a byte for each page.
pub fn residence(text: &mut Text, call: &Call<'_>, at: usize) {
    let pages = call.words[1].div_ceil(4096);
    let start = call.words[at];
    text.list(pages, |text, page| {
        let mut byte = [0];
        if call.memory.read(start + page, &mut byte) && byte[0] & 1 != 0 {
            text.push("1");
        } else {
            text.push("0");
        }
    });
}
