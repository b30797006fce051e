//! What the victim does: steps made from a seed, before any of them is done.
//!
//! A step names what earlier ones made by numbers of its own (`Slot`), so that the script is the
//! same whatever ids, frames and positions the kernel gives out. Where the victim's data goes in, a
//! step takes it from its `Secret`: no answer and no choice may depend on it.

use super::ground::{
    APPLICATION, ARENA, ARENA_PAGES, BUFFER, MAC, OTHER, Request, SAVE, USER, value,
};
use super::{Random, mixed};
use abi::call::Call;
use abi::filter::FilterProgram;
use abi::id::{AccountId, DomainId, EnvId, Frame};
use abi::layout::PAGE_SIZE;
use abi::memory::{ANY_FRAME, CLEARED, Item, NO_EXECUTE, Operation, SOURCE, WRITABLE};
use abi::region::{NO_PEER, Step as RingStep};
use abi::setup::field;
use abi::word::{UserAddress, Which};

/// Pages that steps allocate, write and give back.
pub(super) const HEAP: u64 = ARENA + 0x10_0000;
pub(super) const HEAP_PAGES: u64 = 12;
/// Pages in a table of their own, which a child shares.
pub(super) const FORKED: u64 = ARENA + 0x80_0000;
/// Where packets arrive: the owner's word and the buffer.
pub(super) const RING: u64 = ARENA + 2 * PAGE_SIZE;
/// Where the word is that a sent packet decrements; the packet is behind it.
const PENDING: u64 = ARENA + 3 * PAGE_SIZE;
/// Where words for regions come from and go.
const WORDS: u64 = ARENA + 4 * PAGE_SIZE;
/// A page for whatever a step needs.
const PLAIN: u64 = ARENA + 5 * PAGE_SIZE;

/// What the victim keeps to itself.
#[derive(Clone, Copy)]
pub(super) struct Secret(pub u64);

impl Secret {
    /// A word of it; `salt` says which.
    pub(super) fn word(self, salt: u64) -> u64 {
        mixed(self.0 ^ salt.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }
}

/// The answer of an earlier step.
pub(super) type Slot = usize;

/// What a call is made from.
pub(super) struct Scene<'a> {
    pub(super) slots: &'a [u64],
    pub(super) secret: Secret,
    pub(super) now: u64,
    /// The victim's own.
    pub(super) account: AccountId,
    /// The frame behind each page of the heap.
    pub(super) frame: &'a dyn Fn(u64) -> u64,
}

impl Scene<'_> {
    pub(super) fn id<T: abi::word::Word>(&self, slot: Slot) -> T {
        value(self.slots[slot])
    }
}

/// What is compared of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    /// Error and value.
    All,
    /// The error; the value is what a slot is for.
    As(Slot),
    /// The error alone.
    Error,
    /// Nothing: others may do the same.
    Nothing,
}

type Make = Box<dyn Fn(&Scene) -> Request>;

/// One thing that the victim does.
pub(super) enum Step {
    /// A call, until it does not say one of these errors any more.
    Call { what: &'static str, keep: Keep, make: Make },
    /// Fills a page with its data.
    Fill { page: u64, salt: u64 },
    /// Stores one word.
    Store { address: u64, word: u64 },
    /// Looks at a page.
    Read { page: u64 },
    /// Asks the server.
    Ask { salt: u64 },
    /// A packet comes for it from the wire.
    Packet { salt: u64 },
    /// Waits until what it has sent has gone.
    Sent,
    /// Looks at everything.
    Look,
}

/// A script under way.
pub(super) struct Script {
    pub(super) random: Random,
    pub(super) steps: Vec<Step>,
    pub(super) slots: usize,
    salt: u64,
    large: bool,
}

impl Script {
    /// So many pieces, and then all that the account may have; with pages to fold, or without.
    pub(super) fn new(seed: u64, pieces: u64, large: bool) -> Self {
        let mut script = Self { random: Random(seed), steps: vec![], slots: 0, salt: 0, large };
        script.begin();
        for piece in 1..=pieces {
            script.piece();
            if piece % 16 == 0 {
                script.steps.push(Step::Look);
            }
        }
        script.steps.push(Step::Look);
        script.take_everything();
        script
    }

    pub(super) fn slot(&mut self) -> Slot {
        self.slots += 1;
        self.slots - 1
    }

    pub(super) fn salt(&mut self) -> u64 {
        self.salt += 1;
        self.salt
    }

    pub(super) fn make(
        &mut self,
        what: &'static str,
        keep: Keep,
        make: impl Fn(&Scene) -> Request + 'static,
    ) {
        self.steps.push(Step::Call { what, keep, make: Box::new(make) });
    }

    /// A call without ids, its answer compared as a whole.
    fn plain(&mut self, what: &'static str, call: Call, capability: u16, memory: &[u64]) {
        let request = Request::new(call, capability, memory);
        self.make(what, Keep::All, move |_| request.clone());
    }

    pub(super) fn item(&mut self, what: &'static str, keep: Keep, into: Option<Slot>, item: Item) {
        self.make(what, keep, move |scene| {
            let domain = into.map_or(DomainId::NONE, |slot| scene.id(slot));
            Request::new(update(domain), 0, &words(&item))
        });
    }

    /// What lasts: filters, and a region that others would like to read.
    fn begin(&mut self) {
        let ring = self.ring();
        for port in [5, 6] {
            self.filter(ring, port);
        }
        self.item("Table", Keep::All, None, table(2, FORKED));
        for page in 0..3 {
            self.item("Allocate", Keep::Error, None, fresh(FORKED + page * PAGE_SIZE, 0));
            let salt = self.salt();
            self.steps.push(Step::Fill { page: FORKED + page * PAGE_SIZE, salt });
        }
        for inline in [true, false] {
            let (region, salt) = (self.region(u64::from(!inline)), self.salt());
            self.operate(region, salt, (0, 1), 0);
        }
        self.steps.push(Step::Fill { page: PLAIN, salt: 1 });
        self.steps.push(Step::Look);
    }

    fn piece(&mut self) {
        match self.random.below(16) {
            0..=1 => self.memory(),
            2 if self.large => self.fold(),
            2 => self.memory(),
            3 => self.regions(),
            4 => self.ring_step(),
            5 => self.thread(),
            6 => self.fork(),
            7 => self.predicate(),
            8 => self.posts(),
            9 => self.packets(),
            10 => self.capabilities(),
            11 => self.method(),
            12 => self.slices(),
            13..=14 => self.accounts(),
            _ => {
                let salt = self.salt();
                self.steps.push(Step::Ask { salt });
            }
        }
    }

    fn memory(&mut self) {
        let first = HEAP + self.random.below(HEAP_PAGES - 4) * PAGE_SIZE;
        let more = self.random.below(4);
        let mut item = fresh(first, CLEARED);
        item.more = more as u16;
        self.item("Allocate", Keep::Error, None, item);
        self.steps.push(Step::Read { page: first + more * PAGE_SIZE });
        let salt = self.salt();
        self.steps.push(Step::Fill { page: first, salt });
        match self.random.below(5) {
            0 => {
                let value = first & SOURCE | WRITABLE | NO_EXECUTE;
                let item = Item { value, ..at(Operation::Map, HEAP + HEAP_PAGES * PAGE_SIZE) };
                self.item("Map", Keep::Error, None, item);
                self.steps.push(Step::Read { page: item.address });
                let item = at(Operation::Unmap, item.address);
                self.item("Unmap", Keep::Error, None, item);
            }
            1 => {
                for value in [NO_EXECUTE, NO_EXECUTE | WRITABLE] {
                    let item = Item { value, ..at(Operation::Protect, first) };
                    self.item("Protect", Keep::Error, None, item);
                }
            }
            2 => {
                let flags = self.random.below(2) as u16;
                self.make("FrameRevoke", Keep::All, move |scene| {
                    let frame = Frame((scene.frame)(first) as u32);
                    Request::new(Call::FrameRevoke { frame, flags }, 0, &[])
                });
            }
            3 => {
                let item = Item { more: more as u16, ..at(Operation::Unmap, first) };
                self.item("Unmap", Keep::Error, None, item);
            }
            _ => {}
        }
        self.steps.push(Step::Read { page: first });
    }

    fn region(&mut self, frames: u64) -> Slot {
        let region = self.slot();
        let call = Call::RegionAlloc { frames: UserAddress(BUFFER), count: frames };
        let request = Request::new(call, 0, &[u64::MAX]);
        self.make("RegionAlloc", Keep::As(region), move |_| request.clone());
        self.attach(region, 0);
        region
    }

    pub(super) fn attach(&mut self, region: Slot, role: u16) {
        self.make("RegionAttach", Keep::All, move |scene| {
            let (region, domain) = (scene.id(region), DomainId::NONE);
            Request::new(Call::RegionAttach { region, role, domain }, 0, &[])
        });
    }

    pub(super) fn detach(&mut self, region: Slot, role: u16) {
        self.make("RegionDetach", Keep::All, move |scene| {
            Request::new(Call::RegionDetach { region: scene.id(region), role }, 0, &[])
        });
    }

    /// Compares word 1 with what was written last if there was anything, copies, writes.
    fn operate(&mut self, region: Slot, salt: u64, (compares, writes): (u64, u64), copy: u64) {
        self.make("RegionOperate", Keep::All, move |scene| {
            let mut words = [0; 23];
            let (before, after) =
                (scene.secret.word(salt.wrapping_sub(1)), scene.secret.word(salt));
            words[0] = scene.slots[region];
            let what = compares << 32 | writes << 40 | copy << 48;
            (words[1], words[2], words[3]) = (WORDS, 16, 32 | what);
            (words[4], words[5]) = (8, before);
            (words[12], words[13]) = (8, after);
            Request::new(Call::RegionOperate { operation: UserAddress(BUFFER) }, 0, &words)
        });
    }

    fn regions(&mut self) {
        let frames = self.random.below(2);
        let region = self.region(frames);
        let first = self.salt();
        self.steps.push(Step::Fill { page: WORDS, salt: first });
        self.operate(region, first, (0, 1), 2);
        let second = self.salt();
        self.operate(region, second, (1, 1), 1);
        self.steps.push(Step::Read { page: WORDS });
        self.detach(region, 0);
    }

    /// Bytes along a ring in a region, there and back.
    fn ring_step(&mut self) {
        let (region, salt) = (self.region(1), self.salt());
        self.steps.push(Step::Fill { page: WORDS, salt });
        for (flags, from) in [(abi::region::STEP_IN, 0_u64), (0, 64)] {
            self.make("RegionStep", Keep::All, move |scene| {
                let step = RingStep {
                    peer: NO_PEER,
                    flags,
                    len: 64,
                    offset: 256,
                    moves: 2,
                    beside: 3,
                    ..RingStep::default()
                };
                let [which, piece, words] = step.to_words();
                let (which, address) = (which | scene.slots[region], WORDS + 512);
                let call = Call::RegionStep { which, address, piece, words, from, beside: 0 };
                Request::new(call, 0, &[])
            });
        }
        self.steps.push(Step::Read { page: WORDS });
        self.detach(region, 0);
    }

    /// Another environment, made, mostly started, posted to, ended and forgotten.
    fn thread(&mut self) {
        let thread = self.environment(None);
        if !self.random.one_in(4) {
            self.about("EnvRelease", thread, |env| Call::EnvRelease { env });
            self.make("Yield", Keep::Nothing, move |scene| {
                Request::new(Call::Yield { to: scene.id(thread) }, 0, &[])
            });
            let (bits, hold) = (1 << self.random.below(60), self.random.one_in(2));
            self.about("Post", thread, move |env| Call::Post { env, bits });
            if hold {
                self.about("EnvHold", thread, |env| Call::EnvHold { env });
            }
        }
        let word = self.random.next();
        self.about("EnvDestroy", thread, move |env| Call::EnvDestroy { env, word });
        self.about("EnvForget", thread, |env| Call::EnvForget { env });
    }

    fn about(&mut self, what: &'static str, env: Slot, call: impl Fn(EnvId) -> Call + 'static) {
        self.make(what, Keep::All, move |scene| Request::new(call(scene.id(env)), 0, &[]));
    }

    /// An environment with pages at fixed places, in this domain or in one's own.
    fn environment(&mut self, domain: Option<Slot>) -> Slot {
        let env = self.slot();
        let (save, any) = (SAVE + 0x8_0000, Which::Any);
        if domain.is_none() {
            for page in [save, save + APPLICATION] {
                self.item("Allocate", Keep::Error, None, fresh(page, CLEARED));
            }
        }
        self.make("EnvAlloc", Keep::As(env), move |scene| {
            let domain = domain.map_or(DomainId::NONE, |slot| scene.id(slot));
            let account = AccountId::NONE;
            let call = Call::EnvAlloc { which: any, domain, account, vector: any };
            Request::new(call, 0, &[])
        });
        self.make("EnvSet", Keep::All, move |scene| {
            let mut setup = [0x1000; 16];
            (setup[3], setup[4], setup[10]) = (0, save, 0);
            (setup[11], setup[12], setup[13]) = (save, save + APPLICATION, 0);
            let fields = ((1 << 14) - 1) & !field::FOREIGN_ENTRY;
            let call = Call::EnvSet { env: scene.id(env), fields, setup: UserAddress(BUFFER) };
            Request::new(call, 0, &setup)
        });
        env
    }

    /// A domain that shares a table and a capability, with an environment in it; then its end.
    fn fork(&mut self) {
        let domain = self.slot();
        let (which, account) = (Which::Any, AccountId::NONE);
        self.make("DomainAlloc", Keep::As(domain), move |_| {
            let call =
                Call::DomainAlloc { which, account, root: which, window: 0, bytes: u64::MAX };
            Request::new(call, 0, &[])
        });
        for (level, address) in [(4, FORKED), (3, FORKED), (2, SAVE)] {
            self.item("Table of a child", Keep::All, Some(domain), table(level, address));
        }
        let share = Item { level: 2, value: FORKED, ..at(Operation::Share, FORKED) };
        self.item("Share", Keep::Error, Some(domain), share);
        for page in [SAVE + 0x8_0000, SAVE + 0x8_0000 + APPLICATION] {
            self.item("Allocate for a child", Keep::Error, Some(domain), fresh(page, CLEARED));
        }
        self.make("CapabilityPass", Keep::All, move |scene| {
            Request::new(
                Call::CapabilityPass { domain: scene.id(domain), slots: 1 << USER },
                0,
                &[],
            )
        });
        if self.random.one_in(2) {
            let child = self.environment(Some(domain));
            self.about("EnvRelease", child, |env| Call::EnvRelease { env });
            self.end(domain);
            self.about("EnvForget", child, |env| Call::EnvForget { env });
        } else {
            self.end(domain);
        }
        self.steps.push(Step::Read { page: FORKED });
    }

    pub(super) fn end(&mut self, domain: Slot) {
        self.make("DomainDestroy", Keep::All, move |scene| {
            Request::new(Call::DomainDestroy { domain: scene.id(domain) }, 0, &[])
        });
    }

    /// A wait that is over at once: for a word of a page or of a region; and one that is not.
    fn predicate(&mut self) {
        let salt = self.salt();
        let (region, watch) = (self.region(0), self.random.one_in(2));
        self.operate(region, salt, (0, 1), 0);
        self.steps.push(Step::Fill { page: WORDS, salt });
        self.make("PredicateSet", Keep::All, move |scene| {
            let [source, place, right] = match watch {
                true => [2, 8, scene.secret.word(salt)],
                false => [1, WORDS, filled(scene.secret, salt, 0)],
            };
            let kinds = 1 | source << 8 | 1 << 24;
            let call = Call::PredicateSet { atoms: UserAddress(BUFFER), count: 1 };
            Request::new(call, 0, &[kinds, scene.slots[region], place, right, 0])
        });
        let sleep = Call::Sleep { deadline: 0, posted: 0, events: 0, flags: 0 };
        self.plain("Sleep with a predicate", sleep, 0, &[]);
        let none = Call::PredicateSet { atoms: UserAddress(BUFFER), count: 0 };
        self.plain("PredicateSet", none, 0, &[]);
        self.detach(region, 0);
    }

    /// Posts to itself, with bits that nobody else is to know; sleeps until a time.
    fn posts(&mut self) {
        let salt = self.salt();
        self.make("Post", Keep::All, move |scene| {
            let bits = scene.secret.word(salt) | 1;
            Request::new(Call::Post { env: EnvId::NONE, bits }, 0, &[])
        });
        let sleep = Call::Sleep { deadline: 0, posted: 1, events: 0, flags: 0 };
        self.plain("Sleep", sleep, 0, &[]);
        let after = self.random.below(3_000_000);
        self.make("Sleep until", Keep::All, move |scene| {
            let deadline = scene.now + after;
            Request::new(Call::Sleep { deadline, posted: 0, events: 0, flags: 0 }, 0, &[])
        });
    }

    fn ring(&mut self) -> Slot {
        let ring = self.slot();
        let entries = [RING, RING + 64, 512];
        let call = Call::RingAlloc { entries: UserAddress(BUFFER), count: 1 };
        let request = Request::new(call, 0, &entries);
        self.make("RingAlloc", Keep::As(ring), move |_| request.clone());
        ring
    }

    /// A filter for packets with this byte behind the addresses.
    fn filter(&mut self, ring: Slot, kind: u64) {
        let filter = self.slot();
        self.make("FilterInsert", Keep::As(filter), move |scene| {
            let mut program = [0; size_of::<FilterProgram>() / 8];
            (program[0], program[1]) = (1 << 32, scene.slots[ring]);
            (program[3], program[4]) = (12 | 0xff00_0000 << 32, kind << 24);
            Request::new(Call::FilterInsert { program: UserAddress(BUFFER) }, 0, &program)
        });
    }

    /// What arrives, and what is sent.
    fn packets(&mut self) {
        self.steps.push(Step::Store { address: RING, word: 0 });
        let salt = self.salt();
        self.steps.push(Step::Packet { salt });
        self.steps.push(Step::Read { page: RING });
        let salt = self.salt();
        self.steps.push(Step::Sent);
        self.steps.push(Step::Fill { page: PENDING, salt });
        self.steps.push(Step::Store { address: PENDING, word: 1 });
        self.steps.push(Step::Store { address: PENDING + 64, word: MAC ^ 1 | 0x0002 << 48 });
        self.steps.push(Step::Store { address: PENDING + 72, word: 0x05_0900_0000 });
        let (pieces, pending) = (UserAddress(BUFFER), UserAddress(PENDING));
        let call = Call::NetTransmit { interface: 0, pieces, count: 2, pending };
        self.plain("NetTransmit", call, OTHER, &[PENDING + 64, 200, WORDS, 300]);
        let call = Call::ConsoleWrite { stream: 0, bytes: UserAddress(BUFFER), len: 8 };
        self.plain("ConsoleWrite", call, OTHER, &[u64::from_le_bytes(*b"a victim")]);
    }

    /// A name below one's own, as a token and back, and taken away again.
    fn capabilities(&mut self) {
        let (domain, components) = (DomainId::NONE, 1 + self.random.below(9));
        let derive = Call::CapabilityDerive { domain, slot: 5, extend: 1, components, rights: 15 };
        self.plain("CapabilityDerive", derive, 0, &[]);
        let words = [self.slot(), self.slot(), self.slot()];
        for (slot, word) in words.into_iter().zip(0..) {
            let call = Call::CapabilityToken { word };
            let keep = Keep::As(slot);
            self.make("CapabilityToken", keep, move |_| Request::new(call, 5, &[]));
        }
        self.plain("CapabilityDrop", Call::CapabilityDrop { slot: 5 }, 0, &[]);
        for taken in [false, true] {
            self.make("CapabilityEnter", Keep::All, move |scene| {
                let [first, second, seal] = words.map(|slot| scene.slots[slot]);
                Request::new(Call::CapabilityEnter { slot: 6, first, second, seal }, 0, &[])
            });
            if !taken {
                let call = Call::CapabilityRetract { extend: 1, components };
                self.plain("CapabilityRetract", call, 0, &[]);
            }
        }
        self.make("Entropy", Keep::Error, |_| Request::new(Call::Entropy {}, 0, &[]));
    }

    /// All that the limits allow.
    fn take_everything(&mut self) {
        for page in 0..super::victim::MOST {
            let item = fresh(ARENA + 0x10_0000 + (64 + page) * PAGE_SIZE, 0);
            self.item("Allocate to the limit", Keep::Error, None, item);
        }
        self.steps.push(Step::Look);
        let (any, account, domain) = (Which::Any, AccountId::NONE, DomainId::NONE);
        let item = Item { more: 59, ..at(Operation::Unmap, ARENA + 0x10_0000 + 64 * PAGE_SIZE) };
        self.item("Unmap", Keep::Error, None, item);
        let frames = UserAddress(BUFFER);
        for call in [
            Call::RegionAlloc { frames, count: 0 },
            Call::EnvAlloc { which: any, domain, account, vector: any },
            Call::DomainAlloc { which: any, account, root: any, window: 0, bytes: 0 },
            Call::SliceAlloc { cpu: 1, position: any, env: EnvId::NONE },
        ] {
            for _ in 0..42 {
                self.make("to the limit", Keep::Error, move |_| Request::new(call, 0, &[]));
            }
        }
        self.steps.push(Step::Look);
    }
}

fn update(domain: DomainId) -> Call {
    Call::TableUpdate { domain, items: UserAddress(BUFFER), count: 1 }
}

pub(super) fn at(operation: Operation, address: u64) -> Item {
    let operation = operation as u8;
    Item { operation, level: 1, more: 0, frame: ANY_FRAME, address, value: 0 }
}

fn fresh(address: u64, cleared: u64) -> Item {
    Item { value: WRITABLE | NO_EXECUTE | cleared, ..at(Operation::Allocate, address) }
}

pub(super) fn table(level: u8, address: u64) -> Item {
    Item { level, value: u64::from(ANY_FRAME), ..at(Operation::Table, address) }
}

fn words(item: &Item) -> [u64; 3] {
    let low = u64::from(item.operation) | u64::from(item.level) << 8 | u64::from(item.more) << 16;
    [low | u64::from(item.frame) << 32, item.address, item.value]
}

/// Word `at` of a page filled with this salt.
pub(super) fn filled(secret: Secret, salt: u64, at: u64) -> u64 {
    secret.word(salt << 16 | at)
}

const _: () = assert!(ARENA_PAGES > 5);
