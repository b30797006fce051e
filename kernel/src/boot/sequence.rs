//! Boot as a list: the first half on the boot stack, the second on processor 0's own.
//!
//! ```text
//!  words of the command line that are the kernel's; the rest is for the first program
//!  log=debugcon   the log goes to port 0xe9, not to the serial line
//!  init=PATH      the first program, /xok/init without it
//!  delay=US       random delays where processors meet, up to so many microseconds (`delay`)
//!  trace=WORD,... what the trace records from the beginning: `kernel_core::trace`
//!  provoke=WHAT   a mistake on purpose (`provoke`)
//!  poison=1       the kernel's stacks are filled with poison whenever it is left (`entry`)
//!  mitigations=   auto, off or all: what is done about processors that run ahead (`mitigate`)
//! ```

use core::sync::atomic::{AtomicBool, Ordering};

use abi::call::CALLS_MAX;
use abi::capability::{NAME_IMAGE, Name};
use abi::layout::PAGE_SIZE;
use abi::limits::SLICES;
use abi::memory::ADDRESS;
use abi::published::{
    Category, Directory, FEATURE_ENTROPY, FEATURE_FSGSBASE, FEATURE_SELF_SNOOP, FEATURE_SMAP,
    FEATURE_USERS, FEATURE_XSAVE, FrameType, Table, clock_source,
};
use image::archive::Archive;
use image::elf::Plan;
use kernel_core::boot::{Parts, Sizes};
use kernel_core::index::CpuIndex;
use kernel_core::loader::{Loaded, Range};
use kernel_core::state::State;
use kernel_core::trace::Asked;
use kernel_core::{frame, slice, speculation};

use super::memory_map::MemoryMap;
use super::start_info;
use crate::cpu::Cpu;
use crate::features::{self, Features};
use crate::lock::Lock;
use crate::paging::{Tables, image_parts};
use crate::platform::{Platform, Sleep, apic, clock, io_apic::IoApics, pic, smp};
use crate::run::Hold;
use crate::{
    bases, carve, console, cpu, delay, descriptors, devices, entropy, entry, hardware, log,
    mitigate, physical, power, provoke, run, shootdown, user, vector, virtio,
};

/// The first program: the kernel starts nothing else.
const INIT: &str = "/xok/init";
/// The status of a machine that could not begin: no image, or a bad one.
const NO_BEGINNING: u8 = 1;

/// What the first half hands to the second and to the other processors.
#[derive(Clone, Copy)]
struct Boot {
    platform: Platform,
    features: Features,
    image: Range,
    clock_how: &'static str,
    io_apics: IoApics,
    trampoline: Option<u64>,
    sizes: Sizes,
    memory_bytes: u64,
}

static BOOT: Lock<Option<Boot>> = Lock::new(None);
/// What the loader left. Held by the first half, then by the second one.
static LOADED: Lock<Loaded> = Lock::new(Loaded::empty());
static READY: AtomicBool = AtomicBool::new(false);

/// Is the state set and every processor counted?
pub fn everything_is_ready() -> bool {
    READY.load(Ordering::Acquire)
}

/// The first processor, on the boot stack, with the first 4 GiB mapped.
pub extern "C" fn start(start_info: u64, magic: u32) -> ! {
    console::initialize();
    let mut info = LOADED.lock();
    let told = start_info::read(start_info, magic, &mut info);
    let command_line = info.command_line();
    // First of all, so that whatever ends the machine can switch it off.
    let platform = probe(info.rsdp);
    if let Err(error) = told {
        log!("what the loader left: {error}");
        power::end(NO_BEGINNING)
    }
    if word_is_there(command_line, "log=debugcon") {
        log::use_debugcon();
    }
    let image = check_image(&info);
    let asked = value_of(command_line, "mitigations=");
    let Some(asked) = speculation::Asked::parse(asked) else {
        log!("mitigations={}: auto, off or all", asked.unwrap_or_default());
        power::end(NO_BEGINNING)
    };
    let features = Features::probe(asked);
    features::enable(&features);
    use_features(&features);
    let clock_how = clock::calibrate(&features, platform.timer_port);

    let mut memory = MemoryMap::new(info.memory());
    let trampoline = trampoline_page(&memory);
    let [text, _, data] = image_parts();
    let own = Range { start: text.0, end: data.1 };
    memory.reserve(Range::of(0, 1 << 20));
    memory.reserve(own);
    memory.reserve(image);
    memory.count_taken(Category::Image, own.end - own.start);

    let mut tables = Tables::new(&mut memory);
    tables.map_image(&mut memory);
    tables.map_direct(&mut memory);
    hardware::set_master(tables.root());
    tables.load();
    let io_apics = map_devices(&platform, &mut tables, &mut memory);
    virtio::probe(&platform, &info, &mut tables, &mut memory);
    let sizes = Sizes::for_frames((memory.end() / PAGE_SIZE) as usize);
    let changes = cpu::Changes {
        poisons: value_of(command_line, "poison=").is_some(),
        smap: features.smap,
        speculation: features.speculation,
    };
    let asked = Asked::parse(value_of(command_line, "trace="));
    let asked = asked.within(memory.bytes(), platform.cpu_count);
    let trace = carve::Trace { cpus: platform.cpu_count, asked };
    let parts = carve::carve(&mut memory, &mut tables, &sizes, &trace);
    for index in 0..platform.cpu_count {
        cpu::build(&mut tables, &mut memory, index, &changes);
        shootdown::register(index, platform.cpus[index]);
    }
    let boot = Boot {
        platform,
        features,
        image,
        clock_how,
        io_apics,
        trampoline,
        sizes,
        memory_bytes: memory.bytes(),
    };
    first_state(parts, &boot, &memory, command_line);
    *BOOT.lock() = Some(boot);
    drop(info);
    begin(0)
}

/// Another processor, on the boot stack.
pub extern "C" fn start_other() -> ! {
    if let Some(boot) = BOOT.lock().as_ref() {
        features::enable(&boot.features);
    }
    Tables::load_root(hardware::master());
    begin(smp::starting())
}

/// Sets this processor's own things up and leaves the boot stack.
fn begin(index: usize) -> ! {
    let cpu = Cpu::of(index);
    cpu.initialize(index);
    descriptors::load(cpu);
    apic::enable();
    entry::begin(cpu)
}

/// The rest, on processor 0's own stack.
pub fn second_half(cpu: &'static Cpu) {
    let boot = BOOT.lock().expect("the first half hands over");
    let info = LOADED.lock();
    let line = info.command_line();
    apic::calibrate_timer();
    if console::serial_present() {
        let (global, flags) = boot.platform.isa_interrupt(console::COM1_IRQ);
        boot.io_apics.route(global, flags, apic::id(), devices::SERIAL_VECTOR);
    }
    let running = match boot.trampoline {
        Some(page) if boot.platform.cpu_count > 1 => smp::start(&boot.platform, page),
        _ => 1,
    };
    virtio::route(&boot.io_apics, apic::id());
    let mut hold = Hold::take(cpu);
    if let Some(mac) = virtio::net::mac() {
        kernel_core::net::attach(&mut hold.state, 0, mac);
    }
    count_processors(&mut hold.state, &boot, running);
    say(&boot, &hold.state, running);
    provoke::provoke(cpu, line);
    if let Some(us) = value_of(line, "delay=").and_then(|us| us.parse().ok()) {
        delay::enable(us, clock::hz());
    }
    start_init(&mut hold, &boot, line);
    drop(hold);
    if console::serial_present() {
        console::enable_interrupt();
    }
    READY.store(true, Ordering::Release);
}

fn word_is_there(line: &str, word: &str) -> bool {
    line.split_ascii_whitespace().any(|found| found == word)
}

/// What stands behind a key, the `=` included; the last one counts.
fn value_of<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.split_ascii_whitespace().rev().find_map(|word| word.strip_prefix(key))
}

/// The boot image is there and whole, or this is the end.
fn check_image(info: &Loaded) -> Range {
    let Some(range) = info.image else {
        log!("no boot image: start with -initrd, or by GRUB with module2");
        power::end(NO_BEGINNING)
    };
    if !range.start.is_multiple_of(PAGE_SIZE) {
        log!("boot image: not at a page's beginning ({:#x})", range.start);
        power::end(NO_BEGINNING)
    }
    if let Err(error) = Archive::open(image_bytes(range)) {
        log!("{error}");
        power::end(NO_BEGINNING)
    }
    range
}

fn image_bytes(image: Range) -> &'static [u8] {
    physical::bytes(image.start, image.end - image.start)
}

fn use_features(features: &Features) {
    if features.smap {
        user::use_smap();
    }
    mitigate::set(&features.speculation);
    if features.fsgsbase {
        bases::use_instructions();
    }
    if features.rdrand {
        entropy::use_rdrand();
    }
    let bytes = features::vector_bytes();
    assert!(u64::from(bytes) <= vector::VECTOR_BYTES, "vector state of {bytes} bytes");
}

/// A usable page below 1 MiB.
fn trampoline_page(memory: &MemoryMap) -> Option<u64> {
    (1..0x9f).rev().map(|number| number * PAGE_SIZE).find(|&page| {
        let inside = |range: &Range| range.start <= page && page + PAGE_SIZE <= range.end;
        memory.usable().iter().any(inside)
    })
}

/// What the firmware says, with the port remembered that switches the machine off. A register in
/// memory is mapped later: until then the machine is reset instead.
fn probe(rsdp: u64) -> Platform {
    let platform = Platform::probe(rsdp);
    match platform.sleep {
        Sleep::Unknown | Sleep::Memory(..) => {}
        Sleep::Port(port, value) => power::remember_port(port, value, true),
        Sleep::BytePort(port, value) => power::remember_port(port, u16::from(value), false),
    }
    platform
}

/// Maps the registers of interrupt controllers, and of what switches the machine off; no device
/// interrupts from here on.
fn map_devices(platform: &Platform, tables: &mut Tables, memory: &mut MemoryMap) -> IoApics {
    let mut map = |address, len| tables.map_device(memory, address, len);
    apic::set_registers(map(platform.local_apic, PAGE_SIZE));
    if let Sleep::Memory(address, value) = platform.sleep {
        power::remember_register(map(address, 1), value);
    }
    pic::silence();
    IoApics::map(platform, map)
}

/// Frames, directory and census as the state begins.
fn first_state(parts: Parts, boot: &Boot, memory: &MemoryMap, command_line: &str) {
    let mut state = State::new(parts);
    let frames = |range: &Range| (range.start / PAGE_SIZE) as u32..(range.end / PAGE_SIZE) as u32;
    // Everything above the first MiB that isn't free is the kernel's, or the image.
    let end = boot.image.end.next_multiple_of(PAGE_SIZE);
    let image = Range { start: boot.image.start, end };
    let mut kernel = 0;
    for range in memory.usable() {
        let mut start = range.start.max(1 << 20);
        while start < range.end {
            let is_ahead = |taken: &&Range| taken.start >= start && taken.start < range.end;
            let others = memory.free().iter().chain([&image]).filter(is_ahead);
            let next = others.min_by_key(|other| other.start);
            let end = next.map_or(range.end, |next| next.start);
            let own = frames(&Range { start, end });
            kernel += own.len();
            frame::claim(&mut state, own, FrameType::Kernel, Name::ROOT);
            start = next.map_or(end, |next| next.end);
        }
    }
    frame::claim(&mut state, frames(&image), FrameType::Image, Name::of(&[NAME_IMAGE]));
    for range in memory.free() {
        frame::donate(&mut state, frames(range));
    }
    fill_directory(state.published.directory, boot, command_line);
    state.published.directory.payload_forced = ADDRESS & !(memory.end().next_power_of_two() - 1);
    fill_census(&mut state, memory, kernel);
    run::set_state(state);
}

/// Processors and the clock, once all have started.
fn count_processors(state: &mut State, boot: &Boot, running: usize) {
    state.published.directory.cpus = running as u32;
    for index in 0..running {
        state.published.cpus[index].apic = boot.platform.cpus[index];
        state.published.cpus[index].longest_call = u64::MAX;
        // It may go on later than the first program; who gets a slice of it waits as long.
        slice::start_cpu(state, CpuIndex::new(index));
    }
    let each = running as u64;
    state.published.directory.tables[Table::Cpus as usize].count = running as u32;
    state.published.directory.tables[Table::Slices as usize].count = (running * SLICES) as u32;
    state.published.directory.tables[Table::Calls as usize].count = (running * CALLS_MAX) as u32;
    let counted = [
        (Category::Image, 1),
        (Category::Stacks, each),
        (Category::ExceptionStacks, each * cpu::EXCEPTION_STACKS.len() as u64),
        (Category::PerCpu, each),
    ];
    for (category, objects) in counted {
        state.published.census[category as usize].objects = objects;
    }
    let (base_tsc, multiplier, shift) = clock::parameters();
    let clock = &mut *state.published.clock;
    (clock.base_tsc, clock.multiplier, clock.shift) = (base_tsc, multiplier, shift);
    clock.tsc_mhz = (clock::hz() / 1_000_000) as u32;
    clock.wall_ns = clock::wall_seconds()
        .map_or(0, |seconds| (seconds * 1_000_000_000).saturating_sub(clock::now_ns()));
    let steady = boot.features.invariant_tsc || boot.features.tcg || running == 1;
    clock.source = if steady { clock_source::TSC } else { clock_source::TICK };
}

fn fill_directory(directory: &mut Directory, boot: &Boot, command_line: &str) {
    directory.magic = abi::published::MAGIC;
    directory.version = abi::published::VERSION;
    directory.frames = boot.sizes.frames as u64;
    directory.image_frame = boot.image.start / PAGE_SIZE;
    directory.image_bytes = boot.image.end - boot.image.start;
    directory.vector_bytes = features::vector_bytes();
    directory.vector_features = features::xcr0() as u32;
    let when = |on: bool, bit: u64| if on { bit } else { 0 };
    directory.features = when(boot.features.smap && boot.features.smep, FEATURE_SMAP)
        | when(boot.features.fsgsbase, FEATURE_FSGSBASE)
        | when(entropy::present(), FEATURE_ENTROPY)
        | when(boot.features.xsave, FEATURE_XSAVE)
        | when(boot.features.self_snoop, FEATURE_SELF_SNOOP)
        | when(boot.features.speculation.takes_users, FEATURE_USERS);
    let line = command_line.as_bytes();
    directory.command_line_len = line.len() as u64;
    directory.command_line[..line.len()].copy_from_slice(line);
}

/// Every byte that the kernel took, by category; the sum is the frames of type `Kernel`.
fn fill_census(state: &mut State, memory: &MemoryMap, kernel: usize) {
    let mut sum = 0;
    for (number, record) in state.published.census.iter_mut().enumerate() {
        record.bytes = memory.taken_by_number(number);
        sum += record.bytes;
    }
    assert_eq!(sum, kernel as u64 * PAGE_SIZE, "the census doesn't add up");
}

/// The one boot line, and the rule of the tables.
fn say(boot: &Boot, state: &State, running: usize) {
    let features = &boot.features;
    let plural = if running == 1 { "" } else { "s" };
    log!(
        "{running} cpu{plural}, {} MiB, {}, {}, apic timer {} MHz, tsc {} MHz ({}), \
         {} {}{}{}, rng {}, net {}{}",
        boot.memory_bytes.div_ceil(1 << 20),
        if boot.platform.acpi { "acpi" } else { "mp table" },
        if apic::is_x2apic() { "x2apic" } else { "xapic" },
        apic::timer_hz() / 1_000_000,
        clock::hz() / 1_000_000,
        boot.clock_how,
        if features.xsave { "xsave" } else { "fxsave" },
        features::vector_bytes(),
        if features.smap { ", smap" } else { "" },
        if features.fsgsbase { ", fsgsbase" } else { "" },
        entropy::source(),
        if virtio::net::mac().is_some() { "virtio" } else { "none" },
        features.speculation,
    );
    log!(
        "kernel {} KiB; {} envs and domains, {} regions, {} filters and rings ({})",
        state.published.census.iter().map(|record| record.bytes).sum::<u64>() / 1024,
        boot.sizes.envs,
        boot.sizes.regions,
        boot.sizes.filters,
        Sizes::RULE,
    );
    if !entropy::present() {
        log!(
            "no RDRAND, no virtio-rng: no tokens; file handles can be guessed, so users may reach \
             files in directories that they may not search"
        );
    }
    if boot.platform.cpus_left_out != 0 {
        log!(
            "{} processors are left out: the limit is {}",
            boot.platform.cpus_left_out,
            abi::limits::CPUS
        );
    }
}

/// Makes the first program's environment, or this is the end.
fn start_init(hold: &mut Hold, boot: &Boot, command_line: &str) {
    let archive = Archive::open_checked(image_bytes(boot.image)).expect("checked before");
    let init = value_of(command_line, "init=").unwrap_or(INIT);
    let Some(entry) = archive.lookup(init) else {
        log!("the boot image has no {init}");
        power::end(NO_BEGINNING)
    };
    let plan = match Plan::parse(archive.data(&entry)) {
        Ok(plan) => plan,
        Err(error) => {
            log!("{init}: {error}");
            power::end(NO_BEGINNING)
        }
    };
    let Hold { state, hardware, .. } = hold;
    let file = boot.image.start + entry.data_offset;
    if let Err(error) = kernel_core::boot::start_init(state, hardware, &plan, file) {
        log!("{init}: {error}");
        power::end(NO_BEGINNING)
    }
}
