//! Making and ending threads (clone(2), exit(2)), and what one asks of another.
//!
//! A thread is one more environment in the domain, with an area of its own (`crate::layout`). Its
//! record is nobody's, so that its death concerns nobody. The first thread's environment is the
//! process to everybody else: posts, deaths of children and the timer come to it, its state is the
//! process's. So it stays until the last thread has ended, and does what only it can do (`obey`).
//!
//! An area cannot be given back by the thread that stands on it: the next thread that is made or
//! ends does so, once the kernel has forgotten the environment.

use crate::errno::{Answer, Errno};
use crate::exec;
use crate::fork::{self, Request};
use crate::futex;
use crate::layout::{APPLICATION_PAGE, STACKS, THREAD_BYTES, THREADS_MAX, thread_area};
use crate::library::{self, DATA};
use crate::lock;
use crate::memory::frames;
use crate::memory::space::space;
use crate::memory::tables::Batch;
use crate::process::Process;
use crate::signal::deliver;
use crate::thread::{self, NO_ALTERNATE, Thread};
use crate::user;
use crate::wait::{Wait, sleep_until};
use abi::id::{AccountId, DomainId, EnvId};
use abi::layout::PAGE_SIZE;
use abi::published::{EnvRecord, EnvState};
use abi::word::Which;
use alloc::boxed::Box;
use alloc::vec::Vec;
use linux_raw_sys::general as linux;
use xok::call::{self, OWN, Refused};
use xok::upcall::Slot;

/// Areas kept for the next threads.
const SPARE_MAX: usize = 8;

/// The thread areas of a space.
#[derive(Clone, Debug, Default)]
pub struct Places {
    used: [u64; THREADS_MAX / 64],
    /// Mapped, and nobody's.
    spare: Vec<u64>,
    leaving: Vec<Leaving>,
}

/// A thread that has ended, or is about to.
#[derive(Clone, Debug)]
struct Leaving {
    id: EnvId,
    number: u64,
    _thread: Box<Thread>,
}

impl Places {
    /// A number that nobody has.
    pub fn take(&mut self) -> Result<u64, Errno> {
        if let Some(number) = self.spare.pop() {
            return Ok(number);
        }
        for (at, word) in self.used.iter_mut().enumerate() {
            // Number 0 is the first thread's of a program's life.
            let free = if at == 0 { !*word & !1 } else { !*word };
            if free != 0 {
                *word |= 1 << free.trailing_zeros();
                return Ok(at as u64 * 64 + u64::from(free.trailing_zeros()));
            }
        }
        Err(Errno::EAGAIN)
    }

    /// Gives a number back whose area is mapped no more.
    pub fn give_back(&mut self, number: u64) {
        if let Some(word) = self.used.get_mut(number as usize / 64) {
            *word &= !(1 << (number % 64));
        }
    }
}

/// Takes the areas of threads that have ended.
fn reap() {
    let places = &mut space().places;
    let mut at = 0;
    while at < places.leaving.len() {
        if xok::published::env(places.leaving[at].id).is_some() {
            at += 1;
            continue;
        }
        let number = places.leaving.swap_remove(at).number;
        if places.spare.len() < SPARE_MAX {
            places.spare.push(number);
        } else if drop_area(number).is_ok() {
            places.give_back(number);
        }
    }
}

/// Unmaps the area of a thread that has ended.
pub fn drop_area(number: u64) -> Result<(), Refused> {
    let area = thread_area(number);
    let mut batch = Batch::own();
    for page in library::present_pages(area, area + THREAD_BYTES) {
        batch.unmap(1, page)?;
    }
    batch.send()
}

/// Maps what is missing of an area.
fn map_area(area: u64) -> Result<(), Refused> {
    if xok::own::leaf(area).is_some() {
        return Ok(());
    }
    let mut batch = Batch::own();
    batch.own_tables_to(area)?;
    batch.send()?;
    let (top, _) = STACKS[0];
    for page in [area, area + APPLICATION_PAGE, area + top - PAGE_SIZE] {
        batch.allocate(page, DATA)?;
    }
    for (top, _) in &STACKS[1..3] {
        batch.allocate(area + top - PAGE_SIZE, DATA)?;
    }
    batch.send()
}

/// Are these flags of `clone` possible together? (clone(2), "EINVAL")
pub fn check_flags(request: &Request) -> Result<(), Errno> {
    let has = |flag: u32| request.flags & u64::from(flag) != 0;
    let namespaces = linux::CLONE_NEWNS
        | linux::CLONE_NEWCGROUP
        | linux::CLONE_NEWUTS
        | linux::CLONE_NEWIPC
        | linux::CLONE_NEWUSER
        | linux::CLONE_NEWPID
        | linux::CLONE_NEWNET;
    let alone = has(linux::CLONE_SIGHAND) && !has(linux::CLONE_VM)
        || has(linux::CLONE_THREAD) && !has(linux::CLONE_SIGHAND);
    // There are no namespaces to make, and no descriptors for processes.
    if alone || has(namespaces) || has(linux::CLONE_PIDFD) {
        return Err(Errno::EINVAL);
    }
    let shares = linux::CLONE_FS | linux::CLONE_FILES;
    let partly = request.flags & u64::from(shares) != u64::from(shares);
    if has(linux::CLONE_THREAD) && (partly || has(linux::CLONE_VFORK)) {
        return Err(Errno::ENOSYS);
    }
    Ok(())
}

/// `clone` with `CLONE_THREAD`.
pub fn spawn(process: &mut Process, slot: &Slot, request: &Request) -> Answer {
    if process.borrows_space {
        return Err(Errno::EAGAIN);
    }
    reap();
    let number = space().places.take()?;
    let built = build(process, number, slot, request);
    let Ok(id) = built else {
        if drop_area(number).is_ok() {
            space().places.give_back(number);
        }
        return built.map(|_| 0);
    };
    lock::share();
    if let Err(refused) = call::env_release(OWN, id) {
        undo(process, id);
        return Err(fork::refused(refused));
    }
    // Its death concerns nobody. Refused if it has died already, and its record with it.
    let _ = call::env_entrust(id, EnvId::NONE);
    publish(process);
    Ok(u64::from(id.0))
}

fn build(
    process: &mut Process,
    number: u64,
    slot: &Slot,
    request: &Request,
) -> Result<EnvId, Errno> {
    let area = thread_area(number);
    map_area(area).map_err(fork::refused)?;
    let id = call::env_alloc(OWN, DomainId::NONE, AccountId::NONE).map_err(fork::refused)?;
    let mut thread = thread::own().forked(process, id, number);
    thread.alternate = NO_ALTERNATE;
    if request.has(linux::CLONE_CHILD_CLEARTID) {
        thread.clear_tid = request.child_tid;
    }
    let thread = process.threads.add(thread);
    frames::zero(area);
    frames::zero(area + APPLICATION_PAGE);
    let head = crate::page::thread_head(process.id).map(u64::to_le_bytes);
    frames::put(area + APPLICATION_PAGE, 0, head.as_flattened());
    fork::fill_save_area(area, thread.as_ptr(), area, &fork::context(slot, request, id));
    let (setup, fields) = fork::child_setup(area, request);
    let told = if request.has(linux::CLONE_PARENT_SETTID) {
        user::write_value(request.parent_tid, &id.0)
    } else {
        Ok(())
    };
    let set = told
        .and_then(|()| call::env_set(OWN, id, fields, &setup).map(|_| ()).map_err(fork::refused));
    if let Err(errno) = set {
        undo(process, id);
        return Err(errno);
    }
    place(id, number);
    Ok(id)
}

/// Takes back a thread that has not begun.
fn undo(process: &mut Process, id: EnvId) {
    drop(process.threads.remove(id));
    let _ = call::env_destroy(OWN, id, 0);
    let _ = call::env_forget(id);
}

/// Spreads threads over the processors: the first one elsewhere than its maker. Who gets no slice
/// position there shares its maker's.
fn place(id: EnvId, number: u64) {
    let cpus = u64::from(xok::published::directory().cpus);
    let here = xok::published::env(thread::own().id).map_or(0, |record| record.cpu);
    let cpu = number % cpus.max(1);
    if cpu != u64::from(here) {
        let _ = call::slice_alloc(OWN, cpu as u16, Which::Any, id);
    }
}

/// Says in the process's page how many threads it has.
fn publish(process: &mut Process) {
    crate::page::own().threads = process.threads.count() as u32;
}

/// `exit(code)`: the end of a thread; of the process, if it is the last.
pub fn exit(process: &mut Process, code: u64) -> ! {
    let others = process.threads.all().filter(|thread| !thread.ended).count() > 1;
    if !others {
        let first = thread::own().is_first() || process.threads.count() == 1;
        let status = if first { crate::exit::exited(code) } else { process.orders.status };
        crate::exit::end(process, status);
    }
    if process.traced {
        crate::trace::ended(crate::exit::exited(code));
    }
    give_up(process);
    let own = thread::own();
    if own.is_first() {
        own.ended = true;
        own.blocked = !0;
        process.orders.status = crate::exit::exited(code);
        loop {
            // Until the last thread destroys us, with the status of the process.
            let _ = sleep_until(process, &Wait::new(), 0);
        }
    }
    reap();
    let (id, number) = (own.id, own.number);
    process.ended_ns += crate::time::thread_ns(id);
    if let Some(thread) = process.threads.remove(id) {
        space().places.leaving.push(Leaving { id, number, _thread: thread });
    }
    publish(process);
    lock::leave_if_ours();
    call::exit(0)
}

/// What others may wait for of a thread that ends: its futexes, its signals.
pub fn give_up(process: &mut Process) {
    let own = thread::own();
    leave_futexes(own);
    if own.clear_tid != 0 && user::write_value(own.clear_tid, &0_u32).is_ok() {
        futex::wake(own.clear_tid, 1, u32::MAX);
    }
    own.blocked = !0;
    process.choose(!0);
}

/// What a thread holds of robust futexes has a dead owner from now on.
pub fn leave_futexes(thread: &mut Thread) {
    futex::leave_robust(core::mem::take(&mut thread.robust), thread.id);
}

/// Does something to every other thread of the process, ended ones that have an environment
/// included.
pub fn each_other(process: &mut Process, act: impl Fn(u8, EnvId) -> Result<u64, Refused>) {
    let own = thread::own().id;
    for thread in process.threads.all().filter(|thread| thread.id != own) {
        // Refused: it has just died, or is held already.
        let _ = act(OWN, thread.id);
    }
}

/// Stops all other threads for good: they run no instruction of the program any more. The first
/// one, whose environment is the process's, is only held.
pub fn stop_others(process: &mut Process) {
    let (own, first) = (thread::own().id, process.id);
    let others: Vec<EnvId> =
        process.threads.all().map(|thread| thread.id).filter(|&id| id != own).collect();
    for id in others {
        if id == first {
            let _ = call::env_hold(OWN, id);
            process.threads.find(id).into_iter().for_each(leave_futexes);
            continue;
        }
        let _ = call::env_destroy(OWN, id, 0);
        if let Some(mut thread) = process.threads.remove(id) {
            leave_futexes(&mut thread);
            let number = thread.number;
            space().places.leaving.push(Leaving { id, number, _thread: thread });
        }
    }
}

/// Has `process.orders` carried out: at once if we are the first thread, else by it.
pub fn order(process: &mut Process) {
    if thread::own().is_first() {
        obey(process);
    } else {
        lock::ring(process.id);
    }
}

/// Carries out what others want of the first thread.
pub fn obey(process: &mut Process) {
    if !thread::own().is_first() {
        return;
    }
    if let Some(life) = process.orders.next_life.take() {
        exec::move_on(process, &life);
        // The old life is gone, and the new one did not take us.
        crate::exit::by_signal(process, linux::SIGKILL);
    }
    if core::mem::take(&mut process.orders.timer) {
        crate::time::set_timer(process);
    }
    let signal = core::mem::take(&mut process.orders.stop);
    if signal != 0 {
        deliver::stop(process, signal);
    }
}

/// In a fork child: its one thread is the first of a life of its own.
pub fn begin_alone(process: &mut Process) {
    lock::alone();
    space().places = Places::default();
    futex::begin_alone();
    let own = thread::own().id;
    let others: Vec<EnvId> =
        process.threads.all().map(|thread| thread.id).filter(|&id| id != own).collect();
    for id in others {
        drop(process.threads.remove(id));
    }
}

/// The other threads have ended, or a second process has left the space: if one environment is left
/// there, it needs no lock.
pub fn perhaps_alone() {
    if !is_alone() {
        let_leave();
    }
    if is_alone() {
        lock::alone();
    }
}

/// Is the running thread's environment the only one of its domain?
fn is_alone() -> bool {
    let own = xok::published::env(thread::own().id).unwrap_or_default();
    xok::published::domain(DomainId(own.domain)).is_some_and(|domain| domain.envs == 1)
}

/// Gives the processor to threads that have nothing to do any more but end. Whom they woke by their
/// last step took it from them before that, and they would have it again only at their next slice;
/// they take no lock any more.
fn let_leave() {
    for leaving in &space().places.leaving {
        let ready = |record: EnvRecord| record.state == EnvState::Ready as u32;
        if xok::published::env(leaving.id).is_some_and(ready) {
            // Refused when it has just begun to run elsewhere.
            let _ = call::yield_to(leaving.id);
        }
    }
}

/// A process that asks others to take part in its next life waits for it here.
pub fn await_the_end(process: &mut Process) -> ! {
    loop {
        let _ = sleep_until(process, &Wait::new(), 0);
    }
}
