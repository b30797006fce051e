//! What a new program finds on its stack (x86-64 psABI 3.4.1): arguments, environment, vector.

use alloc::vec::Vec;
use linux_raw_sys::auxvec;

/// Everything the stack is made of.
#[derive(Clone, Debug, Default)]
pub struct Contents<'a> {
    /// argv
    pub arguments: &'a [Vec<u8>],
    /// envp
    pub environment: &'a [Vec<u8>],
    /// `AT_EXECFN`
    pub asked: &'a [u8],
    /// `AT_RANDOM`
    pub random: [u8; 16],
    /// The auxiliary vector without the entries that point into the stack.
    pub vector: &'a [(u64, u64)],
}

/// A stack to be copied to its place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// rsp at the program's first instruction: where `bytes` begin.
    pub rsp: u64,
    /// The bytes, up to the top of the stack.
    pub bytes: Vec<u8>,
}

/// Lays a stack out that ends at `top` (a multiple of 16).
pub fn build(top: u64, contents: &Contents<'_>) -> Image {
    let mut strings = Vec::new();
    let put = |strings: &mut Vec<u8>, text: &[u8]| {
        let at = strings.len() as u64;
        strings.extend_from_slice(text);
        strings.push(0);
        at
    };
    let platform = put(&mut strings, b"x86_64");
    let asked = put(&mut strings, contents.asked);
    let mut arguments = Vec::with_capacity(contents.arguments.len());
    for text in contents.arguments {
        arguments.push(put(&mut strings, text));
    }
    let mut environment = Vec::with_capacity(contents.environment.len());
    for text in contents.environment {
        environment.push(put(&mut strings, text));
    }
    while !strings.len().is_multiple_of(16) {
        strings.push(0);
    }
    let random = strings.len() as u64;
    strings.extend_from_slice(&contents.random);
    let base = top - strings.len() as u64;

    let entries = contents.vector.len() + 4;
    let words = 1 + arguments.len() + 1 + environment.len() + 1 + 2 * entries;
    let rsp = (base - 8 * words as u64) & !15;
    let mut bytes = Vec::with_capacity((top - rsp) as usize);
    let mut word = |value: u64| bytes.extend_from_slice(&value.to_le_bytes());
    word(arguments.len() as u64);
    for at in &arguments {
        word(base + at);
    }
    word(0);
    for at in &environment {
        word(base + at);
    }
    word(0);
    for &(kind, value) in contents.vector {
        word(kind);
        word(value);
    }
    for (kind, value) in [
        (auxvec::AT_PLATFORM, base + platform),
        (auxvec::AT_EXECFN, base + asked),
        (auxvec::AT_RANDOM, base + random),
        (auxvec::AT_NULL, 0),
    ] {
        word(u64::from(kind));
        word(value);
    }
    bytes.resize((base - rsp) as usize, 0);
    bytes.extend_from_slice(&strings);
    Image { rsp, bytes }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn word(image: &Image, address: u64) -> u64 {
        let at = (address - image.rsp) as usize;
        let mut bytes = [0; 8];
        bytes.copy_from_slice(&image.bytes[at..at + 8]);
        u64::from_le_bytes(bytes)
    }

    fn string(image: &Image, address: u64) -> &[u8] {
        let at = (address - image.rsp) as usize;
        let rest = &image.bytes[at..];
        &rest[..rest.iter().position(|&byte| byte == 0).unwrap()]
    }

    #[test]
    fn a_program_finds_everything_by_its_stack_pointer() {
        for extra in 0..3 {
            let arguments: Vec<Vec<u8>> =
                (0..extra + 1).map(|n| alloc::format!("argument{n}").into_bytes()).collect();
            let environment = [b"HOME=/root".to_vec()];
            let contents = Contents {
                arguments: &arguments,
                environment: &environment,
                asked: b"/bin/sh",
                random: [7; 16],
                vector: &[(6, 4096)],
            };
            let top = 0x7fff_f000;
            let image = build(top, &contents);
            assert_eq!(image.rsp % 16, 0);
            assert_eq!(image.rsp + image.bytes.len() as u64, top);
            assert_eq!(word(&image, image.rsp), arguments.len() as u64);
            let mut at = image.rsp + 8;
            for argument in &arguments {
                assert_eq!(string(&image, word(&image, at)), &argument[..]);
                at += 8;
            }
            assert_eq!(word(&image, at), 0);
            at += 8;
            assert_eq!(string(&image, word(&image, at)), b"HOME=/root");
            at += 16;
            assert_eq!((word(&image, at), word(&image, at + 8)), (6, 4096));
            at += 16;
            let mut random = 0;
            while word(&image, at) != 0 {
                if word(&image, at) == u64::from(auxvec::AT_RANDOM) {
                    random = word(&image, at + 8);
                }
                at += 16;
            }
            assert_eq!(word(&image, random), 0x0707_0707_0707_0707);
        }
    }
}
