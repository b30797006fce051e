//! The sites of a page that have a safe form, found by decoding forward from function starts.
//!
//! A function's instructions follow each other from its first address on; what is met this way is
//! an instruction, and what lies inside one is not. A signal trampoline keeps its `syscall` as it
//! is: unwinders know it by its bytes.

use alloc::vec::Vec;
use core::ops::Range;
use yaxpeax_arch::{Decoder, LengthedInstruction, U8Reader};
use yaxpeax_x86::long_mode::{InstDecoder, Instruction, Opcode, Operand, RegSpec, register_class};

use crate::object::{Function, Object};
use crate::{PAGE_SIZE, SYSCALL_BYTES};

/// Bytes of a jump that reaches any stub.
const JUMP_BYTES: u64 = 5;
/// Bytes of the short jump that takes a `syscall`'s place.
const SHORT_JUMP_BYTES: u64 = 2;
/// How far a short jump reaches.
const SHORT_REACH: u64 = 127;
/// Functions end at the next multiple of this at least: padding is no longer.
const ALIGNMENT: u64 = 16;
/// Most bytes of one function that are decoded.
const FUNCTION_MAX: u64 = 64 << 10;
/// `rt_sigreturn`
const SIGRETURN: u64 = 15;
const SYSCALL: [u8; 2] = [0x0f, 0x05];
const INT3: u8 = 0xcc;

/// How a site becomes a jump.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// The instruction before the `syscall` makes place.
    Displaced {
        /// Its address.
        at: u64,
    },
    /// The `syscall` becomes a short jump to padding.
    Padded {
        /// The padding's address.
        padding: u64,
    },
}

/// A site that can be rewritten; addresses are those of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Site {
    /// The `syscall`.
    pub syscall: u64,
    /// What becomes of it.
    pub form: Form,
    /// The number that the instruction before it loads, if it does.
    pub number: Option<u64>,
    /// Does the displaced instruction reach memory from its own address on?
    pub(crate) relative: bool,
}

/// An instruction as far as it matters here.
struct Step<'a> {
    at: u64,
    bytes: &'a [u8],
    instruction: Instruction,
}

impl Step<'_> {
    fn end(&self) -> u64 {
        self.at + self.bytes.len() as u64
    }

    /// Does nothing come here from the one before it?
    fn ends_flow(&self) -> bool {
        matches!(self.instruction.opcode(), Opcode::JMP | Opcode::RETURN | Opcode::UD2)
    }

    fn is_padding(&self) -> bool {
        self.instruction.opcode() == Opcode::NOP || self.bytes == [INT3]
    }

    /// Where a direct branch goes.
    fn target(&self) -> Option<u64> {
        let opcode = self.instruction.opcode();
        let branches = opcode.is_jcc()
            || matches!(
                opcode,
                Opcode::JMP
                    | Opcode::CALL
                    | Opcode::LOOP
                    | Opcode::LOOPZ
                    | Opcode::LOOPNZ
                    | Opcode::JRCXZ
                    | Opcode::XBEGIN
            );
        let distance = match self.instruction.operand(0) {
            Operand::ImmediateI8 { imm } => i64::from(imm),
            Operand::ImmediateI32 { imm } => i64::from(imm),
            _ => return None,
        };
        branches.then(|| self.end().wrapping_add_signed(distance))
    }

    /// The number that it puts into rax.
    fn number(&self) -> Option<u64> {
        match *self.bytes {
            [0xb8, a, b, c, d] => Some(u64::from(u32::from_le_bytes([a, b, c, d]))),
            [0x48, 0xc7, 0xc0, a, b, c, d] => {
                Some(i64::from(i32::from_le_bytes([a, b, c, d])) as u64)
            }
            _ => None,
        }
    }

    /// Does it do the same elsewhere? Whether its last four bytes must be changed for that.
    fn movable(&self) -> Option<bool> {
        let plain = matches!(
            self.instruction.opcode(),
            Opcode::MOV
                | Opcode::MOVZX
                | Opcode::MOVSX
                | Opcode::MOVSXD
                | Opcode::LEA
                | Opcode::ADD
                | Opcode::SUB
                | Opcode::AND
                | Opcode::OR
                | Opcode::XOR
                | Opcode::CMP
                | Opcode::TEST
                | Opcode::NOP
        );
        if !plain || self.instruction.prefixes.gs() || self.instruction.prefixes.lock() {
            return None;
        }
        let mut relative = false;
        for number in 0..self.instruction.operand_count() {
            match self.instruction.operand(number) {
                Operand::Disp { base, disp } if base == RegSpec::RIP => {
                    // With an immediate behind it, the distance is not at the end.
                    relative = self.bytes.ends_with(&disp.to_le_bytes());
                    if !relative || self.instruction.operand_count() != 2 || number == 0 {
                        return None;
                    }
                }
                Operand::Disp { base, .. } | Operand::MemDeref { base }
                    if matches!(base.class(), register_class::RIP | register_class::EIP) =>
                {
                    return None;
                }
                _ => {}
            }
        }
        Some(relative)
    }
}

/// The instructions of `code`, which begins at `at`, up to the first that is none.
fn steps(mut at: u64, mut code: &[u8]) -> impl Iterator<Item = Step<'_>> {
    let decoder = InstDecoder::default();
    core::iter::from_fn(move || {
        let mut instruction = Instruction::default();
        decoder.decode_into(&mut instruction, &mut U8Reader::new(code)).ok()?;
        let (bytes, rest) = code.split_at_checked(instruction.len().to_const() as usize)?;
        let step = Step { at, bytes, instruction };
        (at, code) = (step.end(), rest);
        Some(step)
    })
}

/// What is known of a page's sites.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Found {
    /// Those with a safe form, sorted by their address.
    pub sites: Vec<Site>,
    /// Those that keep the `syscall`.
    pub kept: Vec<u64>,
}

/// What a walk through one function finds on the page.
#[derive(Default)]
struct Walk {
    sites: Vec<Site>,
    without_form: Vec<u64>,
    untouchable: Vec<u64>,
    paddings: Vec<Range<u64>>,
    /// Where its direct branches go.
    targets: Vec<u64>,
    /// Was it decoded to its end, and does that end in a jump or a return?
    is_whole: bool,
}

/// The sites on the page at `page`.
pub fn sites(object: &Object<'_>, page: u64) -> Found {
    let mut functions = Vec::new();
    object.functions(page, page + PAGE_SIZE, &mut |function| functions.push(function));
    functions.sort_unstable();
    functions.dedup();
    let mut found = Found::default();
    let mut used: Vec<u64> = Vec::new();
    for function in &functions {
        if let Some(last) = last_candidate(object, function, page) {
            let mut walk = walk(object, function, page, last);
            let targets = core::mem::take(&mut walk.targets);
            walk.paddings.retain(|range| is_free(range, &targets, &functions));
            if walk.is_whole {
                walk.paddings.extend(behind(object, function.end, &functions, page));
            }
            enter(&mut found, &walk, &mut used);
        }
    }
    let Found { sites, kept } = &mut found;
    sites.sort_unstable_by_key(|site| site.syscall);
    // Functions may overlap, as the entries of one in assembly do.
    sites.dedup_by_key(|site| site.syscall);
    kept.sort_unstable();
    kept.dedup();
    kept.retain(|&at| sites.binary_search_by_key(&at, |site| site.syscall).is_err());
    found
}

/// Enters what one function has; each padding serves one site.
fn enter(found: &mut Found, walk: &Walk, used: &mut Vec<u64>) {
    found.sites.extend(&walk.sites);
    found.kept.extend(&walk.untouchable);
    for &syscall in &walk.without_form {
        if found.sites.iter().any(|site| site.syscall == syscall) {
            continue;
        }
        let mut starts = walk.paddings.iter().map(|range| range.start);
        let padding = starts.find(|at| !used.contains(at) && within_reach(syscall, *at));
        match padding {
            Some(padding) => {
                used.push(padding);
                let form = Form::Padded { padding };
                found.sites.push(Site { syscall, form, number: None, relative: false });
            }
            None => found.kept.push(syscall),
        }
    }
}

/// The last address of the function on this page that looks like a `syscall`.
fn last_candidate(object: &Object<'_>, function: &Function, page: u64) -> Option<u64> {
    let first = function.start.max(page);
    let last = function.end.min(page + PAGE_SIZE);
    let code = object.code(first)?.get(..(last - first) as usize)?;
    let place = code.windows(2).rposition(|pair| pair == SYSCALL)?;
    Some(first + place as u64)
}

/// Decodes a function and notes what is on the page: as far as `last`, and to its end if a site
/// needs padding.
fn walk(object: &Object<'_>, function: &Function, page: u64, last: u64) -> Walk {
    let mut walk = Walk::default();
    let len = function.end - function.start;
    let code = object.code(function.start).and_then(|code| code.get(..len as usize));
    let Some(code) = code.filter(|_| len <= FUNCTION_MAX) else { return walk };
    let on_page = |from: u64, to: u64| from >= page && to <= page + PAGE_SIZE;
    let mut before: Option<Step<'_>> = None;
    let mut padding: Option<Range<u64>> = None;
    for step in steps(function.start, code) {
        if step.at > last && walk.without_form.is_empty() {
            break;
        }
        if step.is_padding() {
            match &mut padding {
                Some(range) => range.end = step.end(),
                None if before.as_ref().is_some_and(Step::ends_flow) => {
                    padding = Some(step.at..step.end());
                }
                None => {}
            }
        } else {
            let fits = |range: &Range<u64>| {
                range.end - range.start >= JUMP_BYTES && on_page(range.start, range.end)
            };
            walk.paddings.extend(padding.take().filter(fits));
        }
        walk.targets.extend(step.target());
        if step.bytes == SYSCALL && on_page(step.at, step.end()) {
            match site(&step, before.as_ref(), page) {
                Some(Ok(site)) => walk.sites.push(site),
                Some(Err(())) => walk.without_form.push(step.at),
                None => walk.untouchable.push(step.at),
            }
        }
        before = Some(step);
    }
    if let Some(range) = padding
        && range.end - range.start >= JUMP_BYTES
        && on_page(range.start, range.end)
    {
        walk.paddings.push(range);
    }
    walk.is_whole = before.is_some_and(|step| step.end() == function.end && step.ends_flow());
    walk
}

/// What the instruction before a `syscall` makes of it: a site of form 1, one that needs padding,
/// or none that may be touched.
fn site(step: &Step<'_>, before: Option<&Step<'_>>, page: u64) -> Option<Result<Site, ()>> {
    let number = before.and_then(Step::number);
    if number == Some(SIGRETURN) {
        return None;
    }
    let displaced = before.filter(|before| before.bytes.len() as u64 >= JUMP_BYTES);
    let displaced = displaced.filter(|before| before.at >= page);
    let Some((before, relative)) = displaced.and_then(|step| Some((step, step.movable()?))) else {
        return Some(Err(()));
    };
    let form = Form::Displaced { at: before.at };
    Some(Ok(Site { syscall: step.at, form, number, relative }))
}

/// May padding inside a function be used: does no branch lead there, and no function begin there?
fn is_free(range: &Range<u64>, targets: &[u64], functions: &[Function]) -> bool {
    let begins = functions.iter().any(|function| range.contains(&function.start));
    !begins && !targets.iter().any(|target| range.contains(target))
}

/// The padding from `start`, where a function ends, to where the next may begin, if nobody else's
/// code is there.
fn behind(
    object: &Object<'_>,
    start: u64,
    functions: &[Function],
    page: u64,
) -> Option<Range<u64>> {
    let end = start.checked_next_multiple_of(ALIGNMENT)?;
    let on_page = start > page && end <= page + PAGE_SIZE;
    let overlaps = |other: &Function| other.start < end && start < other.end;
    if end - start < JUMP_BYTES || !on_page || functions.iter().any(overlaps) {
        return None;
    }
    let gap = object.code(start)?.get(..(end - start) as usize)?;
    let padding = steps(start, gap).take_while(Step::is_padding).last()?;
    (padding.end() == end).then_some(start..end)
}

fn within_reach(syscall: u64, padding: u64) -> bool {
    let from = syscall + SHORT_JUMP_BYTES;
    if padding >= from { padding - from <= SHORT_REACH } else { from - padding <= SHORT_REACH + 1 }
}

const _: () = assert!(SHORT_JUMP_BYTES == SYSCALL_BYTES);
