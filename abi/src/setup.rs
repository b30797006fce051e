//! What an environment is told to be: entry points, first registers (call `EnvSet`, `EnvMove`).

/// The fields; `fields` of the call says which count, bit n for the n-th word.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct EnvSetup {
    /// Where it runs next (only an environment that has not started, or oneself by `EnvMove`).
    pub rip: u64,
    /// Stack pointer there.
    pub rsp: u64,
    /// `rdi` there.
    pub argument: u64,
    /// FS base.
    pub fs_base: u64,
    /// GS base; the library's convention is the address of the save area.
    pub gs_base: u64,
    /// Exceptions arrive here (`rdi` slot, `rsi` cause, `rdx` address).
    pub fault_entry: u64,
    /// Posted bits, slice notifications and packets arrive here, in the same form.
    pub event_entry: u64,
    /// A `syscall` outside the native window arrives here; 0: it is a fault.
    pub foreign_entry: u64,
    /// Synchronous transfers arrive here.
    pub sync_entry: u64,
    /// Asynchronous transfers arrive here.
    pub async_entry: u64,
    /// `FLAG_…` below.
    pub flags: u64,
    /// Address of the save area, page-aligned, in the environment's domain; only before it
    /// starts, or by `EnvMove`.
    pub save_area: u64,
    /// Address of the application page, page-aligned, in the environment's domain; as above.
    pub application_page: u64,
    /// The guard: capability index whose name becomes it. Who has CONTROL over that may do to the
    /// environment what `Post`, `EnvHold`, `EnvRelease` and `EnvDestroy` do, also without SIGNAL.
    pub guard: u64,
    /// Address of its queue of events ([`Queue`](crate::queue::Queue)), in the part of its save
    /// area that the kernel never writes else, a multiple of 8; 0: it has none.
    pub queue: u64,
    /// Zero.
    pub zero: u64,
}

const _: () = assert!(core::mem::size_of::<EnvSetup>() == 128);

/// Wants the slice-start event.
pub const FLAG_SLICE_START: u64 = 1;
/// Wants the slice-end event and switches its own context: it saves what it likes, and yields. The
/// time until then is taken from its next slices: each whole one is forfeited, a part shortens the
/// next. Where other accounts wait it has one slice more at a time, and its account forfeits as
/// much. One that has let go at none of nine ends is destroyed. Without the flag the kernel
/// switches; so it does, without the event, at the end of time that is lent, and where other
/// accounts wait, if the slice has been put off already or the account owes a turn.
pub const FLAG_SLICE_END: u64 = 2;
/// Others woken by an event may borrow the rest of its slices (the default in ExOS).
pub const FLAG_BORROW: u64 = 4;
/// Saves its own vector registers: gets the initial state whenever it is switched to, and what it
/// leaves in them is lost, also where the end of a slice is not told ([`FLAG_SLICE_END`]).
pub const FLAG_OWN_VECTOR: u64 = 8;
/// Has no turns: runs on the time that others give it, by yielding or transferring to it. What it
/// is woken for waits until then, and no critical section holds the end of that time off. For
/// whoever is scheduled by a program; not together with [`FLAG_SLICE_END`].
pub const FLAG_GIVEN_TIME: u64 = 16;
/// Has no vector registers, nor those of the x87: what uses them faults (`Cause::NoDevice`), and
/// no switch saves or restores them for it. They are in the initial state when it takes the flag
/// back, and for whoever gets a transfer from it.
pub const FLAG_NO_VECTOR: u64 = 32;
/// Any domain may make it the holder of its environments' records (`EnvEntrust`); it is to look at
/// the dead ones and forget them. Without the flag only its own domain may.
pub const FLAG_TAKES_RECORDS: u64 = 64;

/// Bit of each field in the call's `fields` argument.
pub mod field {
    /// `rip`
    pub const RIP: u64 = 1 << 0;
    /// `rsp`
    pub const RSP: u64 = 1 << 1;
    /// `argument`
    pub const ARGUMENT: u64 = 1 << 2;
    /// `fs_base`
    pub const FS_BASE: u64 = 1 << 3;
    /// `gs_base`
    pub const GS_BASE: u64 = 1 << 4;
    /// `fault_entry`
    pub const FAULT_ENTRY: u64 = 1 << 5;
    /// `event_entry`
    pub const EVENT_ENTRY: u64 = 1 << 6;
    /// `foreign_entry`
    pub const FOREIGN_ENTRY: u64 = 1 << 7;
    /// `sync_entry`
    pub const SYNC_ENTRY: u64 = 1 << 8;
    /// `async_entry`
    pub const ASYNC_ENTRY: u64 = 1 << 9;
    /// `flags`
    pub const FLAGS: u64 = 1 << 10;
    /// `save_area`
    pub const SAVE_AREA: u64 = 1 << 11;
    /// `application_page`
    pub const APPLICATION_PAGE: u64 = 1 << 12;
    /// `guard`
    pub const GUARD: u64 = 1 << 13;
    /// `queue`
    pub const QUEUE: u64 = 1 << 14;
    /// What a running environment may change of itself.
    pub const WHILE_RUNNING: u64 = FS_BASE
        | GS_BASE
        | FAULT_ENTRY
        | EVENT_ENTRY
        | FOREIGN_ENTRY
        | SYNC_ENTRY
        | ASYNC_ENTRY
        | FLAGS
        | GUARD
        | QUEUE;
}
