//! A second protection domain of this program: code in it sees only what it is shown.
//!
//! ```text
//!   home                          compartment          run(body, words)
//!   code, data                    the same, to read    one environment: its slices go along;
//!   lent pages                    the same             its upcalls, its stack and what it holds
//!   keys, stack, save area        (nothing)            stay at home
//!   call::domain_switch ────────► entry stub ─ body ─► home, or a fault ──► behind the call
//! ```
//! Neither side has to trust the other one. Code in the compartment, though it be hostile, runs
//! where its entry stub lets it and on a stack of its own; it comes home to the one place where it
//! was left, by a message of one word or a fault. It may keep the processor, or end this
//! environment: whoever must go on without it has another one.
//!
//! # Safety
//! Holds the entry stub's assembly, and its address.
#![allow(unsafe_code)]

use crate::call::{self, OWN, Refused};
use crate::memory::{DATA, Space, item};
use crate::own;
use crate::start::{SAVE_AREA, STACK_PAGES, STACK_TOP};
use abi::call::number;
use abi::domain::Property;
use abi::id::{AccountId, DomainId};
use abi::layout::{LIBRARY, PAGE_SIZE, PROGRAM_SLOTS};
use abi::memory::{ANY_FRAME, NO_EXECUTE, Operation, PRESENT, WRITABLE, from_source};
use core::arch::global_asm;
use core::ops::Range;

/// Where the compartment's stack is: where this program has its own one, which is not shown.
const STACK: Range<u64> = STACK_TOP - STACK_PAGES * PAGE_SIZE..STACK_TOP;

/// What runs there: a function of three words. It has what it is shown, no heap and no handlers.
pub type Body = extern "C" fn(u64, u64, u64) -> u64;

unsafe extern "C" {
    fn xok_compartment_entry();
}

global_asm!(
    ".section .text.xok_compartment, \"ax\"",
    ".global xok_compartment_entry",
    // rdi: the domain left, where this goes when it is done; rsi: the body; rdx, r8, r9: its words.
    "xok_compartment_entry:",
    "mov rsp, {stack}",
    "push rdi",
    "push rdi",
    "mov rax, rsi",
    "mov rdi, rdx",
    "mov rsi, r8",
    "mov rdx, r9",
    "call rax",
    "pop rdi",
    "mov rsi, rax",
    "mov eax, {switch}",
    "syscall",
    // Home is where it came from: it is not refused.
    "ud2",
    stack = const STACK.end,
    switch = const number::DomainSwitch,
);

/// A domain that this program goes to and comes back from.
pub struct Compartment {
    domain: DomainId,
    space: Space,
}

/// Which of the program's pages are shown, and how.
struct Shown<'a> {
    hidden: &'a [Range<u64>],
    lent: &'a [Range<u64>],
}

impl Compartment {
    /// One that sees, to read and to execute what can be executed here, all pages that there are
    /// now but for those in `hidden`, the stack and the save area. Those in `lent` it has with the
    /// rights that they have here. Pages mapped later are seen only where they are mapped.
    pub fn but_for(hidden: &[Range<u64>], lent: &[Range<u64>]) -> Result<Self, Refused> {
        let domain = call::domain_alloc(OWN, AccountId::NONE, 0, u64::MAX)?;
        // From here on it goes with this value.
        let mut made = Self { domain, space: Space::of(domain, OWN) };
        let entry = xok_compartment_entry as *const () as u64;
        call::domain_set(OWN, domain, Property::Entry, entry)?;
        let shown = Shown { hidden, lent };
        let slots = (0..PROGRAM_SLOTS as u64).map(|slot| slot << 39);
        for first in slots.chain([LIBRARY]) {
            shown.enter(&mut made.space, first, 4, true)?;
        }
        made.space.allocate_zeroed(STACK.start, STACK_PAGES, DATA)?;
        made.space.flush()?;
        Ok(made)
    }

    /// Its space, to show it more or something else.
    pub fn space(&mut self) -> &mut Space {
        &mut self.space
    }

    /// Its id.
    pub fn domain(&self) -> DomainId {
        self.domain
    }

    /// Runs `body` there, with these words; what it answers. `Dead`: it has ended by a fault, whose
    /// cause is the number. Not by two environments at a time: there is one stack.
    pub fn run(&mut self, body: Body, [first, second, third]: [u64; 3]) -> Result<u64, Refused> {
        let message = [body as usize as u64, first, second, third, 0];
        call::domain_switch(OWN, self.domain, message).map(|answer| answer[0])
    }
}

impl Drop for Compartment {
    fn drop(&mut self) {
        // No visit is under way: this runs at home.
        let _ = call::domain_destroy(OWN, self.domain);
    }
}

impl Shown<'_> {
    /// Shows what the entry of `level` for `address` leads to; `writable`: so are those above.
    fn enter(
        &self,
        space: &mut Space,
        address: u64,
        level: u8,
        writable: bool,
    ) -> Result<(), Refused> {
        let Ok(entry) = own::entry(address, level) else { return Ok(()) };
        if entry & PRESENT == 0 || level == 1 && self.hides(address) {
            return Ok(());
        }
        let writable = writable && entry & WRITABLE != 0;
        if level == 1 {
            space.tables_to(address, 1)?;
            let lent = writable && self.lent.iter().any(|range| range.contains(&address));
            let choice = entry & NO_EXECUTE | if lent { WRITABLE } else { 0 };
            let source = from_source(address, choice);
            return space.push(item(Operation::Map, 1, address, ANY_FRAME, source));
        }
        let below = PAGE_SIZE << (9 * (level - 2));
        (0..512).try_for_each(|at| self.enter(space, address + at * below, level - 1, writable))
    }

    fn hides(&self, address: u64) -> bool {
        let own = address == SAVE_AREA || STACK.contains(&address);
        own || self.hidden.iter().any(|range| range.contains(&address))
    }
}
