//! `fork`, `vfork`, `clone` of processes: made by the library, while it runs.
//!
//! The program's level-1 tables are shared, frozen, and copied on demand by whoever writes first
//! (`memory::fault`); what ExOS itself writes all the time is copied at once. The child goes on
//! from a copy of slot 0 with rax = 0, on fresh handler stacks.

use crate::capabilities::FAMILY_SLOT;
use crate::errno::{Answer, Errno, RESTART_ALWAYS, from_kernel};
use crate::fs::region::{Heritage, Region};
use crate::layout::{
    APPLICATION_PAGE, CHILD_PAGES, FIRST_THREAD, HEAP, HEAP_END, PRIVATE, PRIVATE_END, STACKS,
    TEXT, stack_tops, thread_area,
};
use crate::library::{self, DATA, TABLE_SPAN};
use crate::memory::areas::{Area, Kind, WRITE};
use crate::memory::fault::{self, choice};
use crate::memory::frames;
use crate::memory::space::space;
use crate::memory::tables::{Batch, has_leaf_table};
use crate::page::{HELD, ProcessPage};
use crate::posix_timers::Timers;
use crate::process::{Child, Orders, Process};
use crate::signal::bit;
use crate::start::Lent;
use crate::thread::Thread;
use crate::wait::sleep_deaf;
use crate::{group_list, groups, identity, lock, page, start, thread, threads, user};
use abi::domain::Property;
use abi::id::{AccountId, DomainId, EnvId};
use abi::layout::PAGE_SIZE;
use abi::memory::WRITABLE;
use abi::setup::{EnvSetup, FLAG_BORROW};
use alloc::vec::Vec;
use linux_raw_sys::general as linux;
use xok::call::{self, OWN, Refused};
use xok::upcall::Slot;

/// Writable pages that a table may have for a child to get copies of them, and a table of its own:
/// for so many that costs less than to share the table and take it apart at the first store, which
/// parent and child soon make where stack and variables are.
const FEW_PAGES: u64 = 16;
/// Words of `struct clone_args`.
const ARGUMENTS: usize = 11;

/// What `clone` and its kin ask for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Request {
    /// `CLONE_…`
    pub flags: u64,
    /// The child's stack pointer, 0: the parent's.
    pub stack: u64,
    /// Where the parent finds the child's pid.
    pub parent_tid: u64,
    /// Where the child finds it.
    pub child_tid: u64,
    /// The child's FS base, with `CLONE_SETTLS`.
    pub tls: u64,
}

impl Request {
    /// Has it this flag, or one of these?
    pub fn has(&self, flag: u32) -> bool {
        self.flags & u64::from(flag) != 0
    }
}

/// What a program is told that cannot have another environment.
pub fn refused((error, _): Refused) -> Errno {
    match from_kernel(error) {
        // Out of environments, domains or frames is EAGAIN to a process that forks.
        Errno::ENOMEM => Errno::EAGAIN,
        other => other,
    }
}

/// What that is to a process that forks, whatever table or memory is full.
fn full(errno: Errno) -> Errno {
    if matches!(errno, Errno::ENFILE | Errno::ENOMEM) { Errno::EAGAIN } else { errno }
}

/// `clone(flags, stack, parent_tid, child_tid, tls)`
pub fn clone(process: &mut Process, slot: &Slot, words: [u64; 6]) -> Answer {
    let [flags, stack, parent_tid, child_tid, tls, _] = words;
    fork(process, slot, Request { flags, stack, parent_tid, child_tid, tls })
}

/// `clone3(arguments, size)`
pub fn clone3(process: &mut Process, slot: &Slot, address: u64, size: u64) -> Answer {
    let known = (ARGUMENTS * 8) as u64;
    if size < 64 {
        return Err(Errno::EINVAL);
    }
    if size > PAGE_SIZE {
        return Err(Errno::E2BIG);
    }
    let mut bytes = alloc::vec![0; size.max(known) as usize];
    user::read_bytes(address, bytes.get_mut(..size as usize).ok_or(Errno::EINVAL)?)?;
    // What is not known yet must not be asked for.
    if bytes.iter().skip(ARGUMENTS * 8).any(|&byte| byte != 0) {
        return Err(Errno::E2BIG);
    }
    let mut words = [0; ARGUMENTS];
    for (word, bytes) in words.iter_mut().zip(bytes.chunks_exact(8)) {
        *word = u64::from_le_bytes(bytes.try_into().unwrap_or_default());
    }
    let [flags, _, child_tid, parent_tid, signal, stack, stack_size, tls, set_tid, tids, _] = words;
    let is_thread = flags & u64::from(linux::CLONE_THREAD | linux::CLONE_PARENT) != 0;
    let wrong = flags & u64::from(linux::CSIGNAL | linux::CLONE_DETACHED) != 0
        || flags >> 32 != 0
        || signal > 64
        || is_thread && signal != 0
        || (stack == 0) != (stack_size == 0)
        || set_tid != 0
        || tids != 0;
    if wrong {
        return Err(Errno::EINVAL);
    }
    let stack = if stack == 0 { 0 } else { stack.wrapping_add(stack_size) };
    fork(process, slot, Request { flags: flags | signal, stack, parent_tid, child_tid, tls })
}

/// The registers that a child begins with; what it has to know of itself travels with them
/// (`start::child`).
pub fn context(slot: &Slot, request: &Request, id: EnvId) -> Slot {
    let mut context = *slot;
    context.rax = 0;
    if request.stack != 0 {
        context.rsp = request.stack;
    }
    context.free[start::CHILD_ID] = u64::from(id.0);
    context.free[start::CHILD_CLEAR_TID] =
        if request.has(linux::CLONE_CHILD_CLEARTID) { request.child_tid } else { 0 };
    context
}

/// Makes the child a request asks for.
pub fn fork(process: &mut Process, slot: &Slot, request: Request) -> Answer {
    threads::check_flags(&request)?;
    if request.has(linux::CLONE_THREAD) {
        return threads::spawn(process, slot, &request);
    }
    // The kernel lets the maker alone wait for what it has made.
    if request.has(linux::CLONE_PARENT) {
        return Err(Errno::EINVAL);
    }
    let lends = request.has(linux::CLONE_VM);
    if lends && !request.has(linux::CLONE_VFORK) {
        return Err(Errno::ENOSYS);
    }
    let (child, lent) = if lends {
        let (child, lent) = lend(process, slot, &request).map_err(full)?;
        (child, Some(lent))
    } else {
        crate::net::hand_over::share(process).map_err(full)?;
        (copy(process, slot, &request).map_err(full)?, None)
    };
    process.children.push(Child { id: child, ..Child::default() });
    if request.has(linux::CLONE_PARENT_SETTID) {
        user::write_value(request.parent_tid, &child.0)?;
    }
    if !thread::own().is_first() {
        // A child is its parent's first thread's: that is the parent's pid. Both are there.
        let _ = call::env_entrust(child, process.id);
    }
    if let Err(answer) = call::env_release(OWN, child) {
        process.children.pop();
        return Err(refused(answer));
    }
    if let Some(lent) = lent {
        let number = lent.number();
        await_leaving(process, child);
        start::drop_lent(lent);
        reclaim(number);
    }
    // The child first: it soon executes something else, and what we write then is ours alone again.
    let _ = call::yield_to(child);
    Ok(u64::from(child.0))
}

/// The page of a child of `process`.
fn child_page(process: &Process) -> ProcessPage {
    groups::follow(process);
    let mut page = *page::own();
    page.parent = process.id.0;
    page.stop_signal = 0;
    page.stop_count = 0;
    page.continue_count = 0;
    page.executed = 0;
    page.forget_orders();
    // The child of a vfork uses its parent's open files as long as that has them.
    page.held = [0; HELD];
    page
}

/// Makes the child's save area and its page in `CHILD_PAGES`. What the last child's had there is
/// written over: it is the same words for all.
fn fill_own_pages(
    page: &ProcessPage,
    child: *const Thread,
    area: u64,
    context: &Slot,
) -> Result<(), Refused> {
    library::child_pages()?;
    fill_save_area(CHILD_PAGES, child, area, context);
    frames::put(CHILD_PAGES + PAGE_SIZE, 0, page::bytes_of(page));
    Ok(())
}

/// Fills the page of zeros, or of an earlier save area, seen at `seen`, which is (to be) the save
/// area at `area`.
pub fn fill_save_area(seen: u64, child: *const Thread, area: u64, context: &Slot) {
    start::prepare_save_area(seen, area, stack_tops(area));
    thread::enter_slot_zero(seen, context);
    thread::enter_thread(seen, child);
    thread::save_vector_at(seen);
}

/// How a child begins: `start::child` on its first handler stack.
pub fn child_setup(area: u64, request: &Request) -> (EnvSetup, u64) {
    let fs_base = if request.has(linux::CLONE_SETTLS) {
        request.tls
    } else if thread::has_fsgsbase() {
        thread::fs_base()
    } else {
        thread::own().fs_base
    };
    let tid = if request.has(linux::CLONE_CHILD_SETTID) { request.child_tid } else { 0 };
    let entry = xok::upcall::entry();
    let setup = EnvSetup {
        rip: start::child_entry(),
        rsp: area + STACKS[0].0,
        argument: tid,
        fs_base,
        gs_base: area,
        fault_entry: entry,
        event_entry: entry,
        foreign_entry: xok::upcall::foreign_entry(),
        flags: FLAG_BORROW,
        save_area: area,
        application_page: area + APPLICATION_PAGE,
        ..EnvSetup::default()
    };
    (setup, crate::library::START_FIELDS)
}

/// A domain with the native window of ExOS, our inherited capabilities, our open files, which it
/// uses as `ids`, and one region more, if there is one.
pub fn new_domain(
    process: &Process,
    ids: [u32; 2],
    more: Option<Region>,
) -> Result<DomainId, Errno> {
    let domain = bare_domain(process)?;
    let mut heritage = Heritage::of(domain);
    let attached = process.files.attach(&mut heritage, Some((domain, ids))).and_then(|()| {
        more.iter().try_for_each(|region| heritage.add(region))?;
        group_list::attach(process, &mut heritage)?;
        heritage.send()?;
        group_list::pass(process, domain)
    });
    if let Err(errno) = attached {
        // The domain has no environment yet; nothing else is left of it.
        let _ = call::domain_destroy(OWN, domain);
        return Err(errno);
    }
    Ok(domain)
}

/// A domain with the native window of ExOS and what the process's ids keep.
fn bare_domain(process: &Process) -> Result<DomainId, Errno> {
    let (guard, bytes) = (identity::guard_slot(process), start::text_bytes());
    let domain = call::domain_alloc(guard, AccountId::NONE, TEXT, bytes).map_err(refused)?;
    // The domain is ours to build: nothing can be refused.
    if process.private || process.closed {
        // Its user's account pays, and the user reads what that account's frames had.
        let _ = call::domain_set(OWN, domain, Property::Secret, 1);
    }
    if process.closed {
        let _ = call::domain_set(OWN, domain, Property::Guard, 0);
    }
    if let Err(errno) = identity::pass(process, domain) {
        // The domain has no environment yet; nothing else is left of it.
        let _ = call::domain_destroy(OWN, domain);
        return Err(errno);
    }
    Ok(domain)
}

/// A child with a space of its own.
fn copy(process: &Process, slot: &Slot, request: &Request) -> Result<EnvId, Errno> {
    let domain = new_domain(process, identity::for_files(process), crate::environment::region())?;
    let built =
        copy_into(process, domain, slot, request).and_then(|env| no_signal_came().map(|()| env));
    if built.is_err() {
        let _ = call::domain_destroy(OWN, domain);
    }
    built
}

/// A signal to our group that came before the child could be seen in it has met us alone. As on
/// Linux, it is taken first, and the fork starts again.
fn no_signal_came() -> Result<(), Errno> {
    let signals = xok::upcall::pending() & !bit(linux::SIGCHLD);
    if signals == 0 { Ok(()) } else { Err(RESTART_ALWAYS) }
}

fn copy_into(
    process: &Process,
    domain: DomainId,
    slot: &Slot,
    request: &Request,
) -> Result<EnvId, Errno> {
    populate_shared()?;
    let env = call::env_alloc(OWN, domain, AccountId::NONE).map_err(refused)?;
    copy_library(&child_page(process), domain, &context(slot, request, env))
        .and_then(|mut batch| copy_program(&mut batch))
        .map_err(refused)?;
    let (setup, fields) = child_setup(FIRST_THREAD, request);
    call::env_set(OWN, env, fields, &setup).map_err(refused)?;
    Ok(env)
}

/// A domain and an environment that will keep our sockets (`net::keeper`), nothing in them yet.
pub fn begin_keeper(process: &Process) -> Result<(DomainId, EnvId), Errno> {
    let domain = bare_domain(process)?;
    // Those that share its sockets ring at it, whatever users they become.
    match call::env_alloc(FAMILY_SLOT, domain, AccountId::NONE) {
        Ok(env) => Ok((domain, env)),
        Err(answer) => {
            let _ = call::domain_destroy(OWN, domain);
            Err(refused(answer))
        }
    }
}

/// Fills it with a copy of the library's half as it is now, the program's left out. Its page is
/// no Linux process's: it is in no process table and hears no signal.
pub fn build_keeper(domain: DomainId, env: EnvId) -> Result<(), Errno> {
    let built = copy_library(&ProcessPage::EMPTY, domain, &Slot::default())
        .and_then(|mut batch| batch.send())
        .and_then(|()| {
            let (setup, fields) = child_setup(FIRST_THREAD, &Request::default());
            let setup = EnvSetup { rip: start::keeper_entry(), ..setup };
            call::env_set(FAMILY_SLOT, env, fields, &setup)
        });
    built.map(|_| ()).map_err(refused)
}

/// The library slot of the child: the batch to go on with comes back.
///
/// Until that is sent nothing may be allocated. A page that the heap grew by meanwhile would not be
/// the child's, and of two pages one would be older than the other: its heap would be torn.
fn copy_library(page: &ProcessPage, domain: DomainId, context: &Slot) -> Result<Batch, Refused> {
    fill_own_pages(page, thread::own(), FIRST_THREAD, context)?;
    let mut batch = Batch::of(domain);
    library::shared_parts(&mut batch)?;
    library::child_area(&mut batch, FIRST_THREAD)?;
    let mut table = PRIVATE & !(TABLE_SPAN - 1);
    for (start, end) in [(PRIVATE, PRIVATE_END), (HEAP, HEAP_END)] {
        library::each_present_page(start, end, |page| {
            if page & !(TABLE_SPAN - 1) != table {
                table = page & !(TABLE_SPAN - 1);
                batch.table(2, table)?;
            }
            batch.copy(page, page, DATA)
        })?;
    }
    Ok(batch)
}

/// Shares the program's half with the child. Nothing is allocated ([`copy_library`]).
fn copy_program(batch: &mut Batch) -> Result<(), Refused> {
    // Which upper tables the child has already: those on the way to the last address.
    let mut made: [Option<u64>; 2] = [None, None];
    let mut done = 0;
    let shared_space = lock::is_shared();
    let space = space();
    let areas = space.areas.all();
    for (number, area) in areas.iter().enumerate() {
        let mut at = (area.start & !(TABLE_SPAN - 1)).max(done);
        while at < area.end {
            let next = at + TABLE_SPAN;
            if has_leaf_table(at) {
                upper_tables(batch, at, &mut made)?;
                // They are in order, and none before this one reaches into the table.
                let within = areas.iter().skip(number).take_while(|area| area.start < next);
                if within.clone().any(|area| area.kind == Kind::Shared) {
                    copy_table(batch, areas, at)?;
                } else if shared_space || !within.clone().any(|area| area.protection & WRITE != 0) {
                    // Another thread's stores must not come between two copies; and where nobody
                    // stores, a table of one's own is of no use.
                    batch.share(at)?;
                } else {
                    batch.share_or_copy(at, FEW_PAGES)?;
                }
            } else if let Err(missing) = xok::own::entry(at, 2) {
                // Nothing below a whole upper entry: on to the next one.
                let span = TABLE_SPAN << (9 * (u32::from(missing) - 2));
                at = (at & !(span - 1)) + span;
                done = at;
                continue;
            }
            at = next;
            done = next;
        }
    }
    batch.send()
}

fn upper_tables(batch: &mut Batch, at: u64, made: &mut [Option<u64>; 2]) -> Result<(), Refused> {
    for (place, level) in made.iter_mut().zip([4_u8, 3]) {
        let prefix = at >> (12 + 9 * (u32::from(level) - 1));
        if *place != Some(prefix) {
            batch.table(level, at)?;
            *place = Some(prefix);
        }
    }
    Ok(())
}

/// A table with `MAP_SHARED` pages is not frozen: those stay writable for both, the others are
/// taken from both.
fn copy_table(batch: &mut Batch, areas: &[Area], table: u64) -> Result<(), Refused> {
    batch.table(2, table)?;
    let mut own = Batch::own();
    library::each_present_page(table, table + TABLE_SPAN, |page| {
        let Some(leaf) = xok::own::leaf(page) else { return Ok(()) };
        let found = areas.iter().find(|area| area.start <= page && page < area.end);
        let Some(area) = found else { return Ok(()) };
        let writable = leaf & WRITABLE != 0;
        if area.kind == Kind::Shared {
            let choice = choice(area.protection, writable) | fault::keeps(area.kind);
            return batch.map(page, page, choice);
        }
        batch.map(page, page, choice(area.protection, false))?;
        if writable { own.protect(page, choice(area.protection, false)) } else { Ok(()) }
    })?;
    own.send()
}

/// Makes every page of `MAP_SHARED` areas present, as a page that comes later would be two.
fn populate_shared() -> Result<(), Errno> {
    let areas: Vec<Area> = space().areas.all().to_vec();
    for area in areas.iter().filter(|area| area.kind == Kind::Shared) {
        let mut page = area.start;
        while page < area.end {
            if !fault::is_present(page) {
                let error = if area.protection & WRITE != 0 { fault::ERROR_WRITE } else { 0 };
                // An area without any right has no pages to share.
                let _ = fault::program(page, error);
            }
            page += PAGE_SIZE;
        }
    }
    Ok(())
}

/// A child in our own space (`vfork`): a second process on our heap.
fn lend(process: &Process, slot: &Slot, request: &Request) -> Result<(EnvId, Lent), Errno> {
    let number = space().places.take()?;
    let lent = lend_to(process, number, slot, request);
    if lent.is_err() {
        reclaim(number);
    }
    lent
}

fn lend_to(
    process: &Process,
    number: u64,
    slot: &Slot,
    request: &Request,
) -> Result<(EnvId, Lent), Errno> {
    let own = xok::published::env(process.id).map_or(0, |record| record.domain);
    let domain = DomainId(own);
    let mut child = process.clone();
    child.children.clear();
    child.files.locked.clear();
    child.borrows_space = true;
    child.own_groups = false;
    child.left_own_group.set(false);
    child.lender = process.id.0;
    child.timer = (0, 0);
    child.timers = Timers::default();
    child.signals.pending.clear();
    child.events = 0;
    let env = call::env_alloc(OWN, domain, AccountId::NONE).map_err(refused)?;
    child.id = env;
    let area = thread_area(number);
    child.area = area;
    child.orders = Orders::default();
    let mut thread = thread::own().forked(core::ptr::null_mut(), env, number);
    if request.has(linux::CLONE_CHILD_CLEARTID) {
        thread.clear_tid = request.child_tid;
    }
    let lent = start::lend(child, thread);
    lock::share();
    let context = context(slot, request, env);
    let built = lend_area(process, lent.thread.as_ptr(), area, &context).and_then(|()| {
        let (setup, fields) = child_setup(area, request);
        call::env_set(OWN, env, fields, &setup)
    });
    let built = built.map_err(refused).and_then(|_| no_signal_came());
    if let Err(errno) = built {
        start::drop_lent(lent);
        let _ = call::env_destroy(OWN, env, 0);
        let _ = call::env_forget(env);
        return Err(errno);
    }
    Ok((env, lent))
}

fn lend_area(
    process: &Process,
    child: *const Thread,
    area: u64,
    context: &Slot,
) -> Result<(), Refused> {
    fill_own_pages(&child_page(process), child, area, context)?;
    let mut batch = Batch::own();
    batch.own_tables_to(area)?;
    library::child_area(&mut batch, area)?;
    batch.send()
}

/// Sleeps until the child has left our space: it moved into its own, or died.
fn await_leaving(process: &mut Process, child: EnvId) {
    use abi::predicate::Operator;
    use abi::published::{EnvRecord, EnvState};
    use core::mem::offset_of;
    use xok::published::{env_atom, env_word_atom};
    let Some(record) = xok::published::env(child) else { return };
    let dead = EnvState::Dead as u32;
    let atoms = [
        env_word_atom(child, offset_of!(EnvRecord, domain), Operator::NotEqual, record.domain),
        env_atom(child, offset_of!(EnvRecord, state), Operator::Equal, dead),
    ];
    let has_left = || {
        let now = xok::published::env(child);
        now.is_none_or(|now| now.domain != record.domain || now.state == dead)
    };
    sleep_deaf(process, &atoms, child, has_left);
}

/// Gives the thread area that a vfork child left back.
fn reclaim(number: u64) {
    if threads::drop_area(number).is_ok() {
        space().places.give_back(number);
    }
    threads::perhaps_alone();
}
