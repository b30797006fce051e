//! The ways out of the kernel: whoever calls from the last bytes of the lower half goes on nowhere.
//!
//! Behind the last page is no address. A `syscall` at its end would go on there, and the processor
//! would fault in the kernel, on the program's stack. So that page is mapped by nothing; and a call
//! that would go on outside of what programs may name is not served, but a foreign one.
//!
//! # Safety
//! Assembly that runs in a domain of its own: it calls often, so that the kernel's short ways are
//! open, then once more from the last bytes. Volatile looks at pages that this domain shares with
//! it.
#![allow(unsafe_code)]

use super::roles;
use crate::assistant;
use crate::expect;
use crate::faults;
use crate::judge::{Failure, Ground, SCRATCH};
use abi::call::number;
use abi::error::Error;
use abi::id::{AccountId, DomainId, EnvId, Frame, RegionId};
use abi::layout::{PAGE_SIZE, PROGRAM_END};
use abi::memory::Operation;
use abi::published::{CpuRecord, Table};
use abi::region::Step;
use abi::setup::{EnvSetup, field};
use abi::upcall::{Cause, Slot, offset};
use alloc::format;
use alloc::string::String;
use core::arch::global_asm;
use core::mem::offset_of;
use xok::call::{self, OWN, Refused};
use xok::clock::now_ns;
use xok::memory::{DATA, Space, item};
use xok::published;

/// The page that no program may name, its 2 MiB, and the last one that it may.
const LAST: u64 = PROGRAM_END - PAGE_SIZE;
const TOP: u64 = PROGRAM_END - (2 << 20);
const LAST_USED: u64 = LAST - PAGE_SIZE;
/// Here, and in the other domain: its code, two save areas, the first with its orders.
const CODE: u64 = SCRATCH;
const SAVE: u64 = SCRATCH + PAGE_SIZE;
const CALLEE: u64 = SAVE + PAGE_SIZE;
const PAGES: u64 = 3;
const ORDERS: u64 = 0x800;
/// The pages whose table is to be shared: their last one holds a `syscall` in its last bytes.
const SOURCE: u64 = SCRATCH + (4 << 20);
const SYSCALL: [u8; 2] = [0x0f, 0x05];
/// How often a call is made before: the short ways are open then.
const CALLS: u64 = 50;
/// What the foreign entry ends with.
const WENT_UP: u64 = 0x600d;

global_asm!(
    ".section .text.exits, \"ax\"",
    ".balign 16",
    ".global exits_begin, exits_end",
    "exits_begin:",
    ".macro exits_arguments",
    "mov rax, [rbx + 16]",
    "mov rdi, [rbx + 24]",
    "mov rsi, [rbx + 32]",
    "mov rdx, [rbx + 40]",
    "mov r10, [rbx + 48]",
    "mov r8, [rbx + 56]",
    "mov r9, [rbx + 64]",
    ".endm",
    // rdi: how often, where at last, then a call. Its stack pointer is an address of the kernel's.
    "mov rbx, rdi",
    "mov rbp, [rbx]",
    "1: exits_arguments",
    "syscall",
    "dec rbp",
    "jnz 1b",
    "exits_arguments",
    "movabs rsp, 0xffff80000dead000",
    "jmp [rbx + 8]",
    // The handler: ends with the cause.
    ".org exits_begin + {handler}",
    "xor edi, edi",
    "mov eax, {destroy}",
    "syscall",
    "hlt",
    ".org exits_begin + {foreign}",
    "mov esi, {went_up}",
    "xor edi, edi",
    "mov eax, {destroy}",
    "syscall",
    "hlt",
    // The callee sleeps until it is called, and replies to each.
    ".org exits_begin + {accept}",
    "xor edi, edi",
    "xor esi, esi",
    "xor edx, edx",
    "mov r10d, 1",
    "mov eax, {sleep}",
    "syscall",
    "hlt",
    ".org exits_begin + {reply}",
    "mov eax, ecx",
    "shl rax, 32",
    "or rax, {transfer}",
    "bts rax, {reply_bit}",
    "syscall",
    "hlt",
    "exits_end:",
    handler = const HANDLER,
    foreign = const FOREIGN,
    accept = const ACCEPT,
    reply = const REPLY,
    went_up = const WENT_UP,
    destroy = const number::EnvDestroy,
    sleep = const number::Sleep,
    transfer = const number::TransferSync,
    reply_bit = const abi::call::TRANSFER_REPLY.trailing_zeros(),
);

unsafe extern "C" {
    static exits_begin: u8;
    static exits_end: u8;
}

const HANDLER: u64 = 0x100;
const FOREIGN: u64 = 0x140;
const ACCEPT: u64 = 0x180;
const REPLY: u64 = 0x1c0;

fn said(why: Refused) -> Failure {
    format!("{why:?}")
}

fn word(address: u64) -> u64 {
    // SAFETY: in pages that the tests below have mapped.
    unsafe { (address as *const u64).read_volatile() }
}

fn store(address: u64, bytes: impl Iterator<Item = u8>) {
    for (at, byte) in bytes.enumerate() {
        // SAFETY: as above, for writing.
        unsafe { ((address + at as u64) as *mut u8).write_volatile(byte) }
    }
}

fn frame(address: u64) -> Result<Frame, Failure> {
    xok::own::frame(address).ok_or(String::from("no frame"))
}

/// A domain that runs the code above, and a page with a `syscall` in its last bytes.
struct Other {
    domain: DomainId,
}

impl Other {
    fn new() -> Result<Self, Failure> {
        let mut own = Space::own();
        let domain = call::domain_alloc(OWN, AccountId::NONE, 0, u64::MAX).map_err(said)?;
        own.allocate_zeroed(CODE, PAGES, DATA).map_err(said)?;
        let page = SOURCE + 511 * PAGE_SIZE;
        own.allocate_zeroed(page, 1, DATA).map_err(said)?;
        store(page + PAGE_SIZE - 2, SYSCALL.into_iter());
        let (begin, end) = (&raw const exits_begin, &raw const exits_end);
        // SAFETY: the assembly's own bytes.
        let code = (0..end as usize - begin as usize).map(|at| unsafe { *begin.add(at) });
        store(CODE, code);
        // It is run there, and written no more.
        own.push(item(Operation::Protect, 1, page, 0, 0)).map_err(said)?;
        own.flush().map_err(said)?;
        let mut space = Space::of(domain, OWN);
        space.map(CODE, frame(CODE)?, 1, 0).map_err(said)?;
        for page in [SAVE, CALLEE] {
            space.map(page, frame(page)?, 1, DATA).map_err(said)?;
        }
        space.tables_to(TOP, 2).map_err(said)?;
        Ok(Self { domain })
    }

    /// An environment there.
    fn env(&self, mut setup: EnvSetup) -> Result<EnvId, Failure> {
        let env = call::env_alloc(OWN, self.domain, AccountId::NONE).map_err(said)?;
        (setup.fault_entry, setup.gs_base) = (CODE + HANDLER, setup.save_area);
        let fields = field::RIP
            | field::RSP
            | field::ARGUMENT
            | field::FAULT_ENTRY
            | field::FOREIGN_ENTRY
            | field::SYNC_ENTRY
            | field::GS_BASE
            | field::SAVE_AREA;
        call::env_set(OWN, env, fields, &setup).map_err(said)?;
        call::env_release(OWN, env).map_err(said)?;
        Ok(env)
    }

    /// Has it make a call often, then once more from the `syscall` at `at`: the word it leaves, and
    /// where its handler saw it.
    fn call_from(&self, at: u64, foreign: u64, call: [u64; 7]) -> Result<(u64, u64), Failure> {
        let orders = [CALLS, at].into_iter().chain(call);
        store(SAVE, core::iter::repeat_n(0, ORDERS as usize));
        store(SAVE + ORDERS, orders.flat_map(u64::to_le_bytes));
        let env = self.env(EnvSetup {
            rip: CODE,
            argument: SAVE + ORDERS,
            foreign_entry: foreign,
            save_area: SAVE,
            ..EnvSetup::default()
        })?;
        let left = assistant::wait(env)?;
        Ok((left, word(SAVE + (offset::SLOTS + offset_of!(Slot, rip)) as u64)))
    }

    fn end(self) -> Result<(), Failure> {
        let _ = call::domain_destroy(OWN, self.domain);
        let mut own = Space::own();
        own.unmap(CODE, PAGES).map_err(said)?;
        own.push(item(Operation::Unmap, 2, SOURCE, 0, 0)).map_err(said)?;
        own.flush().map_err(said)
    }
}

/// No item maps the page, by itself or with its table.
fn nothing_maps_it(other: &Other) -> Result<(), Failure> {
    let page = frame(SOURCE + 511 * PAGE_SIZE)?;
    let map = item(Operation::Map, 1, LAST, page.0, 0);
    let share = item(Operation::Share, 2, TOP, 0, SOURCE);
    // With copies of what is writable there.
    let copy = item(Operation::Share, 2, TOP, 0, SOURCE + 8);
    for (what, domain, item) in [
        ("mapped", other.domain, map),
        ("mapped here", DomainId::NONE, map),
        ("copied", other.domain, copy),
        ("shared", other.domain, share),
    ] {
        let done = call::table_update(OWN, domain, &[item]).map_err(|(error, _)| error);
        expect!(done.is_err_and(|error| error == Error::BadAddress), "{what}: {done:?}");
    }
    Ok(())
}

/// The page behind the last one is mapped by nothing, and who jumps there has a page fault.
pub fn last_page_is_not_mapped(_: &Ground) -> Result<String, Failure> {
    let other = Other::new()?;
    nothing_maps_it(&other)?;
    let at = LAST + PAGE_SIZE - 2;
    let (cause, rip) = other.call_from(at, 0, [0xffff, 0, 0, 0, 0, 0, 0])?;
    expect!((cause, rip) == (Cause::PageFault as u64, at), "cause {cause:#x}, rip {rip:#x}");
    other.end()?;
    Ok(String::new())
}

/// The same by an assistant that has nothing but its fresh name.
pub fn last_page_by_a_stranger(ground: &Ground) -> Result<String, Failure> {
    let one = assistant::spawn(ground.image, roles::TRY_THE_LAST_PAGE, [0; 6], &[])?;
    let word = assistant::finish(one)?;
    expect!(word == WENT_UP, "{word:#x}");
    Ok(String::new())
}

/// The stranger's part.
pub fn play_stranger() -> u64 {
    match last_page_is_not_mapped(&Ground { image: &[] }) {
        Ok(_) => WENT_UP,
        Err(why) => {
            xok::log!(OWN, "a stranger: {why}");
            0
        }
    }
}

/// Calls in the last bytes that a program may name would go on in the page that it may not: each
/// way out of the kernel is tried, behind a call that goes on at once, a step, a switch.
pub fn behind_the_last_page(_: &Ground) -> Result<String, Failure> {
    let other = Other::new()?;
    let page = frame(SOURCE + 511 * PAGE_SIZE)?;
    let mut space = Space::of(other.domain, OWN);
    // The tables that lead to those of level 1 are there.
    [4, 3].into_iter().for_each(|level| space.note_table(LAST_USED, level));
    space.map(LAST_USED, page, 1, 0).map_err(said)?;
    let region = call::region_alloc(OWN, &[]).map_err(said)?;
    call::region_attach(OWN, region, 0, other.domain).map_err(said)?;
    let callee = other.env(EnvSetup {
        rip: CODE + ACCEPT,
        sync_entry: CODE + REPLY,
        save_area: CALLEE,
        ..EnvSetup::default()
    })?;
    super::sched::until_accepts(callee)?;
    for (what, call) in calls(region, callee) {
        let at = LAST - 2;
        let seen = other.call_from(at, 0, call)?;
        expect!(seen == (Cause::Foreign as u64, LAST), "{what}: {seen:x?}");
        // With a foreign entry it goes up by that.
        let (left, _) = other.call_from(at, CODE + FOREIGN, call)?;
        let rcx = word(SAVE + 0x40);
        expect!((left, rcx) == (WENT_UP, LAST), "{what}: {left:#x}, rcx {rcx:#x}");
    }
    call::env_destroy(OWN, callee, 0).map_err(said)?;
    let _ = assistant::wait(callee)?;
    other.end()?;
    Ok(String::new())
}

/// A call for each way out.
fn calls(region: RegionId, callee: EnvId) -> [(&'static str, [u64; 7]); 5] {
    let step = Step { region: region.0, peer: 255, beside: 1, ..Step::NONE };
    let [which, piece, words] = step.to_words();
    [
        ("refused", [0xffff, 0, 0, 0, 0, 0, 0]),
        ("timer", [number::TimerSet.into(), 0, 0, 0, 0, 0, 0]),
        ("step", [number::RegionStep.into(), which, SAVE, piece, words, 0, 0]),
        ("transfer", [xok::call::transfer_rax(callee), 0, 0, 0, 0, 0, 0]),
        ("yield", [number::Yield.into(), 0, 0, 0, 0, 0, 0]),
    ]
}

/// Whoever sets AC lifts SMAP for itself, not for the kernel: each kind of entry clears it there, a
/// handler begins without it, and the program has it when it goes on. The kernel looks at it
/// wherever it takes more than entry code.
pub fn entries_clear_ac(_: &Ground) -> Result<String, Failure> {
    let interrupts = || {
        let record = |cpu| published::record::<CpuRecord>(Table::Cpus, cpu).unwrap_or_default();
        (0..published::table(Table::Cpus).count as usize)
            .map(|cpu| record(cpu).interrupts)
            .sum::<u64>()
    };
    faults::alignment_check(true);
    // By entry code alone, and at length: whether the kernel has a page is looked at there.
    faults::illegal_many(100);
    let loaded = faults::load(abi::layout::DIRECT_MAP);
    let stepped = faults::debug();
    let (before, begin) = (interrupts(), now_ns());
    while interrupts() == before && now_ns() - begin < 5_000_000_000 {
        core::hint::spin_loop();
    }
    let came = interrupts() - before;
    let kept = faults::alignment_check(false);
    expect!(loaded.is_none(), "the kernel's memory was read");
    expect!(stepped, "no single step: {:?}", faults::seen());
    expect!(came > 0, "no interrupt came");
    expect!(kept, "the program lost its flag");
    Ok(format!("({came} interrupts)"))
}
