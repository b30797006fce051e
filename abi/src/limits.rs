//! Every ceiling in the system. A loop over what a program sent is bounded by a number here.

/// Processors.
pub const CPUS: usize = 8;
/// Slice positions of one processor's vector.
pub const SLICES: usize = 128;
/// Length of one slice.
pub const SLICE_NS: u64 = 10_000_000;
/// Where there are several processors: how far apart an account's calls are, on average, that have
/// all of them forget their translations (`EnvSet` of an application page, `EnvMove`,
/// `FrameRevoke`) …
pub const FORGET_NS: u64 = 20_000;
/// … and how many may come at once.
pub const FORGETS_AT_ONCE: u64 = 64;
/// Capabilities of one domain.
pub const CAPABILITIES: usize = 16;
/// Components of a capability's name.
pub const NAME_COMPONENTS: usize = 6;
/// What an index can name, nobody among them: as many environments there are at most.
pub const INDICES: usize = 1 << crate::id::INDEX_BITS;
/// Domains, and regions, at most, nobody among them.
pub const DOMAINS: usize = 1 << 12;
/// Accounts.
pub const ACCOUNTS: usize = 256;
/// Items a batch handles before it looks for interrupts and re-executes.
pub const BATCH: usize = 64;
/// Entries of one frame whose accessed bits are looked at for its age: those entered last.
pub const AGE_ENTRIES: usize = 64;
/// Frames that sharing a table may copy instead.
pub const SHARE_COPIES: usize = 16;
/// Leaves of such a table that are not the boot image's.
pub const SHARE_LEAVES: usize = 64;
/// Items of one batch in all.
pub const BATCH_ITEMS: u64 = 1 << 16;
/// Bytes that one call copies from or to program memory at most.
pub const COPY_BYTES: usize = 4096;
/// Bytes that one region operation copies at most.
pub const REGION_COPY_BYTES: usize = 16 * 4096;
/// Pieces of long work (destroying, revoking) done before others get the processor.
pub const WORK_PIECES: usize = 64;
/// Frames of one region: 64 KiB of data, and one for the words about them.
pub const REGION_FRAMES: usize = 17;
/// Bytes of a region without frames, kept in the kernel's region table.
pub const REGION_INLINE_BYTES: usize = 64;
/// Roles in which domains attach to a region.
pub const REGION_ROLES: usize = 4;
/// Places of one `RegionPass`.
pub const REGION_PLACES: usize = 64;
/// Compares, and writes, of one region operation.
pub const REGION_WORDS: usize = 4;
/// Methods of one region.
pub const METHODS: usize = 4;
/// Bytes of a region that has methods: one frame.
pub const METHOD_STATE_BYTES: u64 = 4096;
/// Slots of one function of a method.
pub const METHOD_SLOTS: usize = 256;
/// Steps of one call: slots and budgets of a method's functions, all in all.
pub const METHOD_STEPS: u32 = 2000;
/// Pages of the kernel's window that one compiled function takes at most.
pub const METHOD_PAGES: usize = 7;
/// Atoms of one wakeup predicate.
pub const PREDICATE_ATOMS: usize = 32;
/// Sleepers whose predicates one kernel exit evaluates.
pub const PREDICATES_PER_EXIT: usize = 32;
/// Atoms of one packet filter.
pub const FILTER_ATOMS: usize = 16;
/// Last byte of a packet that a filter may test, plus one.
pub const FILTER_BYTES: usize = 128;
/// Buffers of one ring.
pub const RING_ENTRIES: usize = 64;
/// Pieces of one packet to send.
pub const TRANSMIT_PIECES: usize = 16;
/// Bytes of the largest packet, Ethernet header included.
pub const PACKET_BYTES: usize = 1514;
/// First bytes of a packet to send that the kernel copies, so that what was checked is sent.
pub const TRANSMIT_HEADER: usize = 128;
/// Faults that may nest in one environment.
pub const UPCALL_DEPTH: usize = 4;
/// Senders remembered by a save area.
pub const SENDERS: usize = 8;
/// Donations followed from a slice to the environment that runs on it.
pub const DONATIONS: usize = 8;

/// What an account limits and counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Resource {
    /// Frames of any type.
    Frames = 0,
    /// Environments.
    Envs = 1,
    /// Domains.
    Domains = 2,
    /// Slice positions.
    Slices = 3,
    /// Regions, and functions bound to them.
    Regions = 4,
    /// Packet filters.
    Filters = 5,
    /// Rings.
    Rings = 6,
    /// Pins: references by predicates, rings and transmissions.
    Pins = 7,
    /// Attachments of domains to regions.
    Attachments = 8,
    /// Accounts right below.
    Accounts = 9,
    /// Tables that large pages stand for.
    Folds = 10,
    /// Pages of the kernel's window with compiled code.
    Code = 11,
    /// Places in the devices' queues: of a packet its head takes one, and each piece behind that.
    Sends = 12,
    /// Retractions under way.
    Retractions = 13,
    /// Cells that predicates are compiled into.
    Cells = 14,
}

/// How many resources an account counts.
pub const RESOURCES: usize = 15;
