//! The tests, a line each on standard output; the status says whether all passed.

use crate::{leaks, linux, memory, pipes, shown, sites, threads, witness};
use abi::id::EnvId;
use abi::layout::LIBRARY;
use abi::memory::{ADDRESS, PRESENT, WRITABLE};
use abi::published::{EnvRecord, EnvState, FrameRecord, FrameType, Table};
use core::fmt::Write;
use xok::{own, published};

const PATH: &core::ffi::CStr = c"/xok/exos-tests";

struct Out;

impl Write for Out {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        linux::print(text);
        Ok(())
    }
}

/// What a test saw: a remark of three numbers, or what is wrong with them.
pub type Seen = Result<[u64; 3], (&'static str, [u64; 3])>;

macro_rules! expect {
    ($condition:expr, $what:literal, $($number:expr),*) => {{
        let mut numbers = [0_u64; 3];
        for (place, number) in numbers.iter_mut().zip([$($number as u64),*]) { *place = number; }
        if !$condition { return Err(($what, numbers)); }
    }};
}

/// A test's name and what runs it.
type Test = (&'static str, fn() -> Seen);

/// Runs the suite, or what an argument asks for.
pub fn run(argument: Option<&[u8]>) -> ! {
    if argument == Some(b"report") {
        report();
    }
    if argument == Some(b"witness") {
        witness::run();
    }
    let tests: [Test; 14] = [
        ("fork_is_a_library", fork_is_a_library),
        ("fork_copies_on_demand", fork_copies_on_demand),
        ("library_text_is_one_copy", library_text_is_one_copy),
        ("process_table_is_mapped", process_table_is_mapped),
        ("foreign_page_write_faults", foreign_page_write_faults),
        ("exec_loads_on_demand", exec_loads_on_demand),
        ("fresh_pages_are_zero", memory::fresh_pages_are_zero),
        ("killed_writer_is_an_end", pipes::killed_writer_is_an_end),
        ("killed_reader_breaks_the_pipe", pipes::killed_reader_breaks_the_pipe),
        ("hot_calls_leave_the_kernel_alone", sites::hot_calls_leave_the_kernel_alone),
        ("shown_pages_go_with_their_file", shown::shown_pages_go_with_their_file),
        ("ended_clients_leave_no_region", leaks::ended_clients_leave_no_region),
        ("killed_process_takes_its_threads", threads::killed_process_takes_its_threads),
        ("threads_leave_nothing", threads::threads_leave_nothing),
    ];
    let mut failed = 0;
    for (name, test) in tests {
        let _ = match test() {
            Ok(numbers) => writeln!(Out, "test exos/{name} ... ok {numbers:?}"),
            Err((what, numbers)) => {
                failed += 1;
                writeln!(Out, "test exos/{name} ... FAILED {what} {numbers:?}")
            }
        };
    }
    let _ = writeln!(Out, "exos tests: {} passed, {failed} failed", tests.len() - failed);
    linux::exit(u8::from(failed != 0))
}

pub fn calls_of(number: u16) -> u64 {
    published::call_record(number.into()).count
}

fn free() -> u64 {
    published::directory().frames_free
}

/// Memory with every page touched.
fn touched(pages: u64) -> Result<u64, (&'static str, [u64; 3])> {
    let at = linux::memory(pages).ok_or(("mmap", [pages, 0, 0]))?;
    for page in 0..pages {
        linux::store(at + page * 4096, page as u8);
    }
    Ok(at)
}

pub fn release(at: u64, pages: u64) {
    linux::call(11, [at, pages * 4096, 0, 0, 0, 0]);
}

/// xok97 T21, thesis98 Z-82: a fork of a thousand pages is a handful of table calls.
fn fork_is_a_library() -> Seen {
    const PAGES: u64 = 1024;
    let at = touched(PAGES)?;
    let before = calls_of(abi::call::number::TableUpdate);
    let made = calls_of(abi::call::number::DomainAlloc);
    let child = linux::fork();
    if child == 0 {
        linux::exit(7);
    }
    let status = linux::wait(child);
    let updates = calls_of(abi::call::number::TableUpdate) - before;
    let domains = calls_of(abi::call::number::DomainAlloc) - made;
    release(at, PAGES);
    expect!(child > 0 && status == 7 << 8, "fork and wait", child, status);
    expect!(domains == 1, "domains made by the library", domains);
    expect!(updates < PAGES / 8, "table calls for a thousand pages", updates, PAGES);
    // The mark that the library keeps for copy-on-write is in the entries' software bits.
    Ok([updates, PAGES, domains])
}

/// thesis98 Z-60: the pages are copied when they are written, not at the fork.
fn fork_copies_on_demand() -> Seen {
    const PAGES: u64 = 1024;
    const WRITTEN: u64 = 32;
    let at = touched(PAGES)?;
    let (reader, writer) = linux::pipe().ok_or(("pipe", [0; 3]))?;
    let before = free();
    let child = linux::fork();
    if child == 0 {
        let at_start = free();
        for page in 0..WRITTEN {
            linux::store(at + page * 4096, 0xaa);
        }
        let written = at_start - free().min(at_start);
        let seen = (0..WRITTEN).all(|page| linux::load(at + page * 4096) == 0xaa)
            && linux::load(at + (PAGES - 1) * 4096) == (PAGES - 1) as u8;
        linux::send(writer, at_start);
        linux::send(writer, if seen { written } else { u64::MAX });
        linux::exit(0);
    }
    let at_start = linux::receive(reader).ok_or(("no word from the child", [0; 3]))?;
    let written = linux::receive(reader).ok_or(("no word from the child", [0; 3]))?;
    linux::wait(child);
    let untouched = (0..PAGES).all(|page| linux::load(at + page * 4096) == page as u8);
    linux::close(reader);
    linux::close(writer);
    release(at, PAGES);
    let copied = before - at_start.min(before);
    expect!(copied < PAGES / 4, "frames taken by the fork itself", copied, PAGES);
    expect!(
        (WRITTEN..WRITTEN + 16).contains(&written),
        "frames taken by the child's stores",
        written,
        WRITTEN
    );
    expect!(untouched, "the parent sees what the child wrote",);
    Ok([copied, written, PAGES])
}

/// The frame of the library's first text page, from one's own page table.
fn library_frame() -> u64 {
    own::leaf(LIBRARY).map_or(0, |entry| (entry & ADDRESS) >> 12)
}

/// xok97 T25: one physical copy of the library's text in all processes, not writable.
fn library_text_is_one_copy() -> Seen {
    const CHILDREN: usize = 6;
    let (reader, writer) = linux::pipe().ok_or(("pipe", [0; 3]))?;
    let mut children = [0; CHILDREN];
    for child in &mut children {
        *child = linux::fork();
        if *child == 0 {
            linux::send(writer, library_frame());
            linux::pause();
            linux::exit(0);
        }
    }
    let own_frame = library_frame();
    let mut same = 0;
    for _ in children {
        same += u64::from(linux::receive(reader) == Some(own_frame));
    }
    let entry = own::leaf(LIBRARY).unwrap_or(0);
    let record: FrameRecord =
        published::record(Table::Frames, own_frame as usize).unwrap_or_default();
    for child in children {
        linux::kill(child, 9);
        linux::wait(child);
    }
    linux::close(reader);
    linux::close(writer);
    expect!(own_frame != 0 && same == CHILDREN as u64, "processes with the frame", same, own_frame);
    expect!(entry & PRESENT != 0 && entry & WRITABLE == 0, "the entry is", entry);
    expect!(record.kind == FrameType::Image as u8, "the frame's type", record.kind);
    Ok([own_frame, same, record.references.into()])
}

/// xok97 T23, thesis98 Z-84: the process table is read without a call: state, holder, names.
fn process_table_is_mapped() -> Seen {
    let child = linux::fork();
    if child == 0 {
        loop {
            linux::pause();
        }
    }
    let me = linux::pid();
    let index = EnvId(me as u32).index();
    let made = || published::record::<EnvRecord>(Table::Envs, index).map_or(0, |own| own.entries);
    let before = made();
    let (mut found, mut living) = (0, 0);
    for index in 0..published::table(Table::Envs).count as usize {
        let record: EnvRecord = published::record(Table::Envs, index).unwrap_or_default();
        if record.id == 0 || record.state == EnvState::Dead as u32 {
            continue;
        }
        living += 1;
        let has_page = published::application_word(index, 0).is_some_and(|word| word != 0);
        found += u64::from(
            u64::from(record.id) == child as u64 && u64::from(record.holder) == me && has_page,
        );
    }
    let after = made();
    linux::kill(child, 9);
    linux::wait(child);
    expect!(found == 1, "the child in the table", found, living, me);
    expect!(linux::parent() != 0, "getppid", linux::parent());
    expect!(after == before, "kernel entries while reading", after - before, living);
    Ok([living, after - before, 0])
}

/// xok97 T23: a store into another process's entry of the table faults.
fn foreign_page_write_faults() -> Seen {
    let parent = EnvId(linux::pid() as u32).index() as u64;
    let page = published::application_page(parent as usize).ok_or(("no page", [parent, 0, 0]))?;
    let child = linux::fork();
    if child == 0 {
        linux::store(page, 1);
        linux::exit(1);
    }
    let status = linux::wait(child);
    expect!(status & 0x7f == 11, "the writer's wait status", status);
    Ok([status.into(), 0, 0])
}

/// Bytes of constants and data that nothing touches: 1 MiB each.
const IDLE: usize = 1 << 20;
static IDLE_CONSTANTS: [u8; IDLE] = [0x5a; IDLE];
static IDLE_DATA: core::sync::atomic::AtomicU64 = core::sync::atomic::AtomicU64::new(1);

/// thesis98 Z-83: exec takes frames for what is touched, not for the whole image.
fn exec_loads_on_demand() -> Seen {
    let (reader, writer) = linux::pipe().ok_or(("pipe", [0; 3]))?;
    // The new program writes to descriptor 9.
    linux::call(33, [writer, 9, 0, 0, 0, 0]);
    let before = free();
    let child = linux::fork();
    if child == 0 {
        linux::run_self(PATH, c"report");
        linux::exit(1);
    }
    let after = linux::receive(reader);
    let idle = linux::receive(reader);
    linux::wait(child);
    for file in [reader, writer, 9] {
        linux::close(file);
    }
    let after = after.ok_or(("no word from the new program", [0; 3]))?;
    let taken = before - after.min(before);
    let pages = (IDLE / 4096) as u64;
    expect!(
        taken < pages,
        "frames taken by fork and exec of an image of so many pages",
        taken,
        pages
    );
    let loaded = idle.ok_or(("no second word", [0; 3]))?;
    expect!(loaded <= pages / 2, "entries for constants nobody touched", loaded, pages);
    Ok([taken, loaded, pages])
}

/// What the new program sees of itself: free frames, and entries present for the idle constants.
fn report() -> ! {
    IDLE_DATA.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
    linux::send(9, free());
    let first = IDLE_CONSTANTS.as_ptr() as u64;
    let present =
        (0..IDLE as u64 / 4096).filter(|page| own::leaf(first + page * 4096).is_some()).count();
    linux::send(9, present as u64);
    linux::exit(0)
}
