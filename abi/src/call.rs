//! The one table of calls: number, arguments, errors, and what each protects.
//!
//! `rax` holds the number in its low 16 bits, the index of the capability used in bits 16–23, and
//! for transfers the target in its high half. Each row names its errors; `NoSuchCall`,
//! `BadArgument` and, where a capability is needed, `NoSuchCapability` and `NotPermitted` come
//! with every row. `Atomic`: done or refused. `Restartable`: registers are advanced and
//! the instruction runs again. `Continued`: the rest is a `Pending` of the object.
//!
//! The answer is in `rax` (0, or the error) and `rdx`; `rcx` and `r11` are the processor's. The
//! argument registers `rdi`, `rsi`, `r8`, `r9` and `r10` are as they were or 0. All others, the
//! flags and the vector registers stay as they are; what a transfer does is said there.

use crate::error::Error;
use crate::id::{AccountId, DomainId, EnvId, FilterId, Frame, RegionId, RingId};
use crate::word::{UserAddress, Which, Word};

/// How a call ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completion {
    /// Done or refused in one go.
    Atomic,
    /// May advance its argument registers and run again.
    Restartable,
    /// Ends later: the caller waits, or the object's rest is worked off in pieces.
    Continued,
}

/// A row as tools see it: the manual, the tracer, the fuzzer.
#[derive(Clone, Copy, Debug)]
pub struct Entry {
    /// Its number.
    pub number: u16,
    /// Its name.
    pub name: &'static str,
    /// What it does.
    pub doc: &'static str,
    /// Argument names and types, in the order of the registers.
    pub arguments: &'static [(&'static str, &'static str)],
    /// Does `rax` name a capability?
    pub capability: bool,
    /// How it ends.
    pub completion: Completion,
    /// Its own errors.
    pub errors: &'static [Error],
}

/// What is done with a decoded call ([`Call::visit`]).
pub trait Visitor {
    /// What comes of it.
    type Output;
    /// Does it. To be inlined, or there is no gain.
    fn visit(self, call: Call) -> Self::Output;
}

macro_rules! calls {
    ($( $(#[doc = $doc:literal])+ $number:literal $name:ident
        { $($arg:ident: $ty:ty),* $(,)? } $capability:ident $completion:ident
        errors [$($error:ident),* $(,)?]; )+) => {
        /// A decoded call.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Call { $( $(#[doc = $doc])+ $name { $(
            /// See the row.
            $arg: $ty ),* } ),+ }

        /// Numbers of the calls.
        #[allow(non_upper_case_globals, missing_docs)]
        pub mod number { $( pub const $name: u16 = $number; )+ }

        impl Call {
            /// Reads a call from the registers; form is checked here and nowhere else. The error
            /// comes with the position of the argument refused.
            pub fn decode(number: u16, words: [u64; 6]) -> Result<Self, (Error, u64)> {
                struct Itself;
                impl Visitor for Itself {
                    type Output = Call;
                    #[inline(always)]
                    fn visit(self, call: Call) -> Call {
                        call
                    }
                }
                Self::visit(number, words, Itself)
            }

            /// As [`Call::decode`], handing the call to `visitor`: a copy of it for each row, in
            /// which the row is known, so that nothing asks again which call it is.
            #[inline(always)]
            pub fn visit<V: Visitor>(
                number: u16,
                words: [u64; 6],
                visitor: V,
            ) -> Result<V::Output, (Error, u64)> {
                let mut position = 0;
                #[allow(unused_mut, unused_variables, unused_assignments)]
                let mut take = || { let word = words[position]; position += 1; word };
                match number {
                    $( $number => {
                        $( let word = take();
                           let Some($arg) = <$ty as Word>::from_word(word) else {
                               return Err((Error::BadArgument, position as u64 - 1));
                           }; )*
                        Ok(visitor.visit(Self::$name { $($arg),* }))
                    } )+
                    _ => Err((Error::NoSuchCall, u64::from(number))),
                }
            }

            /// Writes a call to the registers. Where the call is known, nothing is left of it.
            #[inline(always)]
            pub fn encode(self) -> (u16, [u64; 6]) {
                #[allow(unused_mut)]
                let mut words = [0; 6];
                match self { $( Self::$name { $($arg),* } => {
                    #[allow(unused_mut, unused_variables)]
                    let mut slots = words.iter_mut();
                    $( if let Some(slot) = slots.next() { *slot = $arg.to_word(); } )*
                    ($number, words)
                } )+ }
            }
        }

        /// Every call, in order of its number.
        pub const TABLE: &[Entry] = &[ $( Entry {
            number: $number,
            name: stringify!($name),
            doc: concat!($($doc, "\n"),+),
            arguments: &[$((stringify!($arg), stringify!($ty))),*],
            capability: capability!($capability),
            completion: Completion::$completion,
            errors: &[$(Error::$error),*],
        } ),+ ];
    };
}

macro_rules! capability {
    (guarded) => {
        true
    };
    (own) => {
        false
    };
}

calls! {
    /// Gives the rest of the slice to `to` (0: to whoever is next). Protects nobody: anyone may
    /// yield to anyone. `rdx`: 0.
    0 Yield { to: EnvId } own Atomic errors [NoSuchEnv, WrongState];
    /// Sleeps until the predicate holds, a posted bit of `posted` or an event bit of `events` is
    /// set, or nanoseconds since boot reach `deadline` (0: never). `flags` bit 0: accept transfers
    /// meanwhile. `rdx`: why (`upcall::woken`).
    1 Sleep { deadline: u64, posted: u64, events: u64, flags: u64 } own Continued errors [TimedOut];
    /// Transfers control to the environment in the high half of `rax`, at its sync entry, donating
    /// this and all later slices until it transfers back. Every register but rcx (the caller's
    /// id) and r11 arrives; who gets a reply keeps its own stack pointer and finds 0 in rax. `rax`
    /// bit 62 (`TRANSFER_REPLY`): a reply and nothing else, refused (`Busy`) unless the target
    /// waits for the caller's; the caller accepts transfers from then on. Bit 63
    /// (`TRANSFER_WAIT`): a target with a sync entry that is ready, but accepts no transfer, or
    /// that waits for one that is ready, gets the caller's slices until it accepts, and then the
    /// call begins anew (`WrongState`: the caller has no turns of its own, or the target no sync
    /// entry). If it runs on another processor the call is refused (`Busy`), and the environment
    /// that has called so longest, and goes on calling, is the next to be accepted.
    2 TransferSync {} own Continued errors [NoSuchEnv, Busy, Dead, WrongState];
    /// As `TransferSync`, donating only the rest of this slice, at the async entry.
    3 TransferAsync {} own Atomic errors [NoSuchEnv, Busy];
    /// Or-s `bits` into the target's `pending`, notes the sender, makes a sleeper ready,
    /// interrupts a target that runs unmasked. Needs CONTROL over the environment's guard, or
    /// SIGNAL over a name that its domain is signalled by (`DomainSet`), unless both are in one
    /// domain.
    4 Post { env: EnvId, bits: u64 } guarded Atomic errors [NoSuchEnv];
    /// Takes `env` (0: oneself) off the processors. Needs what `Post` needs.
    5 EnvHold { env: EnvId } guarded Atomic errors [NoSuchEnv, WrongState];
    /// Gives a held or new `env` back to the processors. Needs what `Post` needs; for a new one
    /// SIGNAL is not enough. With the first environment that is released in a domain its builder's
    /// rights over the domain end.
    6 EnvRelease { env: EnvId } guarded Atomic errors [NoSuchEnv, WrongState];
    /// Ends `env` (0: oneself) with `word`; the record stays until its holder forgets it. The last
    /// environment of a domain takes the domain with it. Needs what `Post` needs.
    7 EnvDestroy { env: EnvId, word: u64 } guarded Continued errors [NoSuchEnv];
    /// Makes an environment in `domain`, charged to `account` and guarded by the capability's name;
    /// allocates `vector` for its vector state. It runs after `EnvSet` and `EnvRelease`. The
    /// caller holds its record; never released, it ends with it. Needs CONTROL over the domain
    /// unless own or being built. `rdx`: its id.
    8 EnvAlloc { which: Which, domain: DomainId, account: AccountId, vector: Which } guarded Atomic
        errors [NoSuchDomain, NoSuchAccount, Taken, Exhausted, OverQuota, NoSuchFrame];
    /// Sets the fields of `env` (0: oneself, at home) named by `fields` from an `EnvSetup`. On
    /// several processors this with an application page, `EnvMove` and `FrameRevoke` begin anew
    /// until the account may interrupt the others again (`limits::FORGET_NS`).
    9 EnvSet { env: EnvId, fields: u64, setup: UserAddress } guarded Continued
        errors [NoSuchEnv, WrongState, BadAddress];
    /// Moves oneself into `domain` and goes on there as the `EnvSetup` says: `exec`. Needs CONTROL
    /// over the domain. The old domain ends with its last environment.
    /// Posts and events that wait come along. At home only.
    10 EnvMove { domain: DomainId, fields: u64, setup: UserAddress } guarded Continued
        errors [NoSuchDomain, WrongState, BadAddress, Pinned];
    /// Forgets a dead environment whose record the caller, or another one of its domain, holds.
    /// `rdx`: its word.
    11 EnvForget { env: EnvId } own Atomic errors [NoSuchEnv, WrongState];
    /// Gives the record (and the news of the death) of `env`, held by the caller or another one of
    /// its domain, to another holder: one at home there, or one with
    /// [`FLAG_TAKES_RECORDS`](crate::setup::FLAG_TAKES_RECORDS). 0: no holder; the record goes when
    /// `env`, which has been released, dies.
    12 EnvEntrust { env: EnvId, holder: EnvId } own Atomic errors [NoSuchEnv, WrongState];
    /// Makes a domain with an empty root table in `root`, guarded by the capability's name, whose
    /// native window is `[window, window + bytes)`, as far as the program's half or the library's
    /// slot goes, in which it begins (calls from elsewhere are foreign), charged to `account` (0 or
    /// the caller's own, else CONTROL over the account's name). Its slot 0 gets a fresh name,
    /// `[NAME_FRESH, serial]`, which no other capability dominates but the empty name's, with ALL
    /// rights. The names that it is signalled by are the caller's domain's. The caller's domain is
    /// its builder: until the first environment in it is released, or moves in, it may do what
    /// WRITE and CONTROL over its guard allow. It ends with the caller's domain while no
    /// environment has been in it. `rdx`: its id.
    13 DomainAlloc { which: Which, account: AccountId, root: Which, window: u64, bytes: u64 }
        guarded Atomic
        errors [NoSuchAccount, NoSuchDomain, Taken, Exhausted, OverQuota, NoSuchFrame];
    /// Stops the domain's environments and drops all it holds. Needs CONTROL over its guard.
    14 DomainDestroy { domain: DomainId } guarded Continued errors [NoSuchDomain];
    /// Changes page-table entries of `domain` (0: own), item by item; needs WRITE over its guard
    /// unless own. `rdx`: the old entry if `count` is 1, else items done (r10, 0 at first, counts
    /// those of rounds before); with an error, items done in the low half and the error's own
    /// number in the high half.
    15 TableUpdate { domain: DomainId, items: UserAddress, count: u64 } guarded Restartable
        errors [NoSuchDomain, NoSuchFrame, Taken, Exhausted, OverQuota, Pinned, WrongType, NoTable,
                NotEmpty, WrongState, BadAddress, TooLarge, Changed,
                NotPresent];
    /// Breaks everybody's bindings to `frame`: entries, rings, predicates, save areas (who has none
    /// stops at the next fault), application pages, the console's ring. Needs CONTROL over its
    /// guard: who may only write it does not own it. From now on nobody can bind it anew. `flags`
    /// bit 0 ([`REVOKE_LATER`]): answers when a few entries have been broken; accounts break what
    /// their tables have in their turns, and the oldest entry goes last, behind all other bindings.
    /// `rdx`: 1 if that goes on, and the frame is nobody's to have until it is over; else 0.
    16 FrameRevoke { frame: Frame, flags: u16 } guarded Continued errors [NoSuchFrame, WrongType];
    /// Enters a capability derived from the one named into `slot` of `domain` (0: own; else the one
    /// named has DERIVE, and it or that in slot 0 has WRITE over the domain's guard): `extend`
    /// (0..=3) components from `components` (16 bits each, lowest first) appended, `rights` a
    /// subset. `WouldBlock`: the name is just now being taken back from that list (call
    /// `CapabilityRetract`); what is entered after that stays.
    17 CapabilityDerive { domain: DomainId, slot: u16, extend: u16, components: u64, rights: u16 }
        guarded Atomic errors [NoSuchDomain, TooLarge, WouldBlock];
    /// Empties `slot` of one's own list.
    18 CapabilityDrop { slot: u16 } own Atomic errors [];
    /// Makes an account below `parent`, its limits all zero. Needs CONTROL over the parent's name.
    /// `rdx`: its id; its name is the capability's followed by `NAME_ACCOUNT + index`.
    /// `NotPresent`: the processor keeps no two users apart (`FEATURE_USERS`).
    19 AccountAlloc { which: Which, parent: AccountId } guarded Atomic
        errors [NoSuchAccount, Taken, Exhausted, NotPresent];
    /// Sets the limit of one resource, and how much of it is kept for the account and those below,
    /// which the one above it must be able to pay: nothing else can make a charge within that
    /// fail. The first account's limit is the machine, at most. Needs CONTROL over the account's
    /// name.
    20 AccountLimit { account: AccountId, resource: u16, limit: u32, reserve: u32 } guarded Atomic
        errors [NoSuchAccount, OverQuota];
    /// Destroys everything charged to the account and those below. Needs CONTROL over its name. The
    /// first account has the machine: nothing destroys it (`NotPermitted`).
    21 AccountDestroy { account: AccountId } guarded Continued errors [NoSuchAccount];
    /// Gives `env` a slice position of `cpu` (any: the first free one). Needs CONTROL over its
    /// guard. `rdx`: the position.
    22 SliceAlloc { cpu: u16, position: Which, env: EnvId } guarded Atomic
        errors [NoSuchDevice, NoSuchEnv, Taken, Exhausted, OverQuota];
    /// Frees a slice position. Needs CONTROL over its owner's guard.
    23 SliceFree { cpu: u16, position: u32 } guarded Atomic errors [NoSuchDevice];
    /// Makes a region of `count` frames whose numbers (any: all ones) lie at `frames` as `u32`, or
    /// of 64 bytes when `count` is 0; guarded by the capability's name, or as the caller's domain
    /// is with `region::AS_DOMAIN` added to `count`. With `region::FIFO` added its roles put bytes
    /// in and take them out, by steps alone; with `region::ONE_GUEST` one domain alone attaches by
    /// a capability. `rdx`: its id.
    24 RegionAlloc { frames: UserAddress, count: u64 } guarded Atomic
        errors [BadAddress, Taken, Exhausted, OverQuota, NoSuchFrame, TooLarge];
    /// Attaches `domain` (0: own; else WRITE over its guard, or being built) in `role`: because the
    /// caller's domain made the region or is itself attached in that role, or by the capability
    /// named: READ and WRITE over its guard, for a role that only reads READ or CONTROL. By a
    /// capability one domain comes into a region of `region::ONE_GUEST`, once; then it is `Taken`.
    25 RegionAttach { region: RegionId, role: u16, domain: DomainId } guarded Atomic
        errors [NoSuchRegion, NoSuchDomain, Taken, Exhausted, OverQuota];
    /// Takes one attachment of one's own back; a region nobody is attached to ends.
    26 RegionDetach { region: RegionId, role: u16 } own Atomic errors [NoSuchRegion];
    /// Does a `RegionOperation`: compare, copy, write. `rdx` with `Changed`: the word found.
    27 RegionOperate { operation: UserAddress } own Restartable
        errors [NoSuchRegion, BadAddress, Changed, TooLarge];
    /// Downloads the wakeup predicate (0 atoms: none), replacing the last one. At home only.
    28 PredicateSet { atoms: UserAddress, count: u64 } own Atomic
        errors [BadAddress, NoSuchRegion, TooLarge, OverQuota, WrongState];
    /// Sets `EVENT_TIMER` when nanoseconds since boot reach `deadline` (0: never). At home only.
    29 TimerSet { deadline: u64 } own Atomic errors [WrongState];
    /// Makes a receive ring of `RingEntry`s. `rdx`: its id.
    30 RingAlloc { entries: UserAddress, count: u64 } own Atomic
        errors [BadAddress, Exhausted, OverQuota, TooLarge, WrongType];
    /// Replaces entry `index` of a ring of one's own.
    31 RingModify { ring: RingId, index: u64, entry: UserAddress } own Atomic
        errors [NoSuchRing, BadAddress, TooLarge, WrongType, OverQuota];
    /// Ends a ring in the kernel's view; filters that point at it drop.
    32 RingFree { ring: RingId } own Atomic errors [NoSuchRing];
    /// Inserts a `FilterProgram`, guarded by the capability's name, of a domain that holds WRITE
    /// over the interface. `rdx`: its id.
    33 FilterInsert { program: UserAddress } guarded Atomic
        errors [BadAddress, NoSuchRing, NoSuchFilter, NoSuchDevice, Overlap, TableFull, OverQuota,
                TooLarge];
    /// Drops one reference of one's own; the last one removes the filter.
    34 FilterDrop { filter: FilterId } own Atomic errors [NoSuchFilter];
    /// Adds a reference for `domain` (0: own; else the capability named or that in slot 0 has WRITE
    /// over the domain's guard). Needs WRITE over the filter's guard.
    35 FilterReference { filter: FilterId, domain: DomainId } guarded Atomic
        errors [NoSuchFilter, NoSuchDomain, Exhausted, OverQuota];
    /// Sends the filter's packets to another ring of one's own. Needs WRITE over its guard.
    36 FilterRing { filter: FilterId, ring: RingId } guarded Atomic
        errors [NoSuchFilter, NoSuchRing];
    /// Queues one packet gathered from `count` `Piece`s, without copying; the 64-bit word at
    /// `pending` is decremented when it has been sent. One to the interface's own address is
    /// distributed by the filters here. Needs WRITE over the interface. `rdx`: 1 if it was such a
    /// packet and nobody's filter wanted it. `WouldBlock`: others have to be sent first.
    37 NetTransmit { interface: u16, pieces: UserAddress, count: u64, pending: UserAddress } guarded
        Atomic errors [NoSuchDevice, BadAddress, WouldBlock, TooLarge, OverQuota];
    /// Writes bytes to a console stream (0 the terminal, 1 the error stream, 2 the kernel's log).
    /// Needs WRITE over the console. `rdx`: bytes taken.
    38 ConsoleWrite { stream: u16, bytes: UserAddress, len: u64 } guarded Restartable
        errors [BadAddress, NoSuchDevice];
    /// Makes the page at `page` the console's input ring (`published` by nobody): words head
    /// (kernel's) and tail (owner's), then 4,080 bytes; arrivals set `EVENT_CONSOLE`. Needs READ
    /// over the console. 0: none.
    39 ConsoleRing { page: u64 } guarded Atomic errors [BadAddress, Taken, WrongType];
    /// 64 random bits in `rdx`.
    40 Entropy {} own Atomic errors [NotPresent];
    /// Ends the machine with a status (0–255), `how` 0 power off, 1 reset. Needs WRITE over power.
    41 MachineEnd { how: u16, status: u16 } guarded Atomic errors [];
    /// Has these kinds of events (`trace::Kind::bit`) recorded from now on, on all processors; 0:
    /// none. Needs WRITE over the trace.
    42 TraceSet { kinds: u64 } guarded Atomic errors [];
    /// Does the operation of a `RegionWait`. If a compare fails while its word is unchanged and its
    /// peers are there, sleeps until one of both is otherwise, then begins anew. Ends with
    /// `WouldBlock` when a posted bit of `posted` or an event bit of `events` is set (`rdx`: why,
    /// `upcall::woken`), with `TimedOut` when nanoseconds since boot reach `deadline` (0: never).
    43 RegionAwait { wait: UserAddress, deadline: u64, posted: u64, events: u64 } own Restartable
        errors [NoSuchRegion, BadAddress, Changed, TooLarge, WouldBlock, TimedOut];
    /// Word number `word` (0, 1, or 2, the seal) of the token for the capability named: plain data,
    /// which anybody may carry. Needs DERIVE in it. `rdx`: the word.
    44 CapabilityToken { word: u16 } guarded Atomic errors [NotPresent];
    /// Enters the capability that a token says into `slot` of one's own list. `NotPermitted`: it is
    /// not what this kernel sealed, or it has been retracted since. `WouldBlock` as
    /// `CapabilityDerive`.
    45 CapabilityEnter { slot: u16, first: u64, second: u64, seal: u64 } own Atomic
        errors [NotPermitted, NotPresent, WouldBlock];
    /// Takes back all capabilities at or below the name of the one named, extended by `components`
    /// (0..=3, as in `CapabilityDerive`), from all lists but one's own, and all tokens of that
    /// name and those below (of a domain's fresh name, all below that). What is bound by them stays
    /// bound. Needs CONTROL in it; names of users and groups stay with all that hold them. An
    /// account has one under way at a time.
    46 CapabilityRetract { extend: u16, components: u64 } guarded Restartable
        errors [TooLarge, OverQuota];
    /// A `region::Step`: if the word that moves is `from`, and (`STEP_BESIDE`) the one beside it is
    /// `beside`, copies and moves it on by the bytes copied. `rdx` with `Changed`: the word found.
    47 RegionStep {
        which: u64, address: u64, piece: u64, words: u64, from: u64, beside: u64,
    } own Restartable errors [NoSuchRegion, BadAddress, Changed, TooLarge];
    /// The same, the word beside it being where the step ends. While that word is `from`, too, and
    /// the peers are there, sleeps until one of both is otherwise, then begins anew; ends with
    /// `WouldBlock` as `RegionAwait` does, at a bit of `posted` or of the step's events.
    48 RegionStepOrWait {
        which: u64, address: u64, piece: u64, words: u64, from: u64, posted: u64,
    } own Restartable errors [NoSuchRegion, BadAddress, Changed, TooLarge, WouldBlock];
    /// Enters the capabilities of one's own in the slots that `slots` names, a bit each, into the
    /// same slots of `domain`, with all their rights; empty ones are passed over. Each has DERIVE
    /// (else `rdx` is its slot), and the one named WRITE over the domain's guard. `rdx`: the slots
    /// entered. `WouldBlock` as `CapabilityDerive`.
    49 CapabilityPass { domain: DomainId, slots: u16 } guarded Atomic
        errors [NoSuchDomain, WouldBlock];
    /// Binds a function to a region of one frame or less that nobody has been attached to yet: the
    /// `Binding` at `binding`, and `slots` slots of program behind it. Needs CONTROL over the
    /// region's guard. It is verified and compiled in pieces; `WouldBlock`: another caller's is
    /// just now. The region's account pays a frame for each page of code, one for the region's
    /// first function, and a region for each function.
    50 MethodBind { region: RegionId, binding: UserAddress, slots: u64 } guarded Restartable
        errors [NoSuchRegion, BadAddress, WrongState, TooLarge, Taken, NotVerified, Exhausted,
                OverQuota, WouldBlock];
    /// Calls a method of a region that one's domain is attached to in `role`, with three words.
    /// `rdx`: the body's result; with `Refused`, see `method::refused`.
    51 MethodCall { region: RegionId, method: u16, role: u16, first: u64, second: u64, third: u64 }
        own Atomic errors [NoSuchRegion, NotPermitted, Refused];
    /// Attaches `domain` to the regions of one's own, in the roles, that `count` `region::Place`s
    /// name, one after the other, as a fork does. Needs WRITE over its guard. `rdx`: those done
    /// (r10, 0 at first, counts those of rounds before), also with an error. The domain of
    /// the guest that `domain` admits (`DomainSet`) needs no right.
    52 RegionPass { domain: DomainId, places: UserAddress, count: u64 } guarded Restartable
        errors [NoSuchDomain, NoSuchRegion, BadAddress, Exhausted, OverQuota, TooLarge];
    /// Goes on in `domain`, at the entry point that it names (`DomainSet`): one environment with
    /// several protection domains (the papers' `CIDswitch`). Needs CONTROL over its guard, or over
    /// the fresh name that it was made with, by which it lets others in; no right to go home, where
    /// the caller goes on behind the call by which it left, with the stack pointer, FS and GS base
    /// that it had. rsi, rdx, r8, r9 and r10 are a message; rdi is the domain left, rcx the
    /// caller's id, rax 0; all others are cleared, the vector registers too. Away from home it gets
    /// no upcall: events wait, and a fault brings it home with `Dead`, `rdx`: the cause. Nor may it
    /// be set, moved or entrusted there, or reply to a caller of its home. Its home, the domain
    /// that it was made in or moved to, does not end meanwhile; whoever destroys the home or the
    /// domain visited ends the caller. A domain that has only been visited is its maker's as
    /// before.
    53 DomainSwitch { domain: DomainId } guarded Atomic
        errors [NoSuchDomain, WrongState, Dead];
    /// Does `domain` hold a capability that dominates the user or group (`NAME_USER`,
    /// `NAME_GROUP`) `number`, or the group in its set (`domain::SET_OF_GROUPS`: there alone), or
    /// in its list (`domain::GROUPS_OF_LIST`: there alone)?
    /// `NotPermitted`: it does not. `rdx`: the domain's published count of changes to what it
    /// holds, so that the answer may be kept until that moves.
    54 DomainHolds { domain: DomainId, kind: u16, number: u32 } own Atomic
        errors [NoSuchDomain, NotPermitted];
    /// Sets `property` of `domain` (0: own; else one that the caller builds; account: of any) as
    /// `domain::Property` says.
    55 DomainSet { domain: DomainId, property: u16, value: u64 } guarded Atomic
        errors [NoSuchDomain, NoSuchAccount, NoSuchRegion, NoSuchEnv, WrongState, OverQuota,
                BadAddress];
}

/// What `rax` carries besides the number.
pub const CAPABILITY_SHIFT: u32 = 16;
/// Bit of `rax` in a synchronous transfer: a reply that accepts the next transfer, and no call
/// where the target has ended meanwhile and its id is another environment's.
pub const TRANSFER_REPLY: u64 = 1 << 62;
/// Bit of `rax` in a synchronous transfer: if the target is ready, but accepts no transfer now, the
/// caller waits until it does. Means nothing in a reply.
pub const TRANSFER_WAIT: u64 = 1 << 63;
/// Shift of the target in `rax` of a transfer; the two bits above an id are [`TRANSFER_REPLY`] and
/// [`TRANSFER_WAIT`].
pub const TRANSFER_SHIFT: u32 = 32;

/// The target in `rax` of a transfer.
pub const fn transfer_target(word: u64) -> crate::id::EnvId {
    crate::id::EnvId((word >> TRANSFER_SHIFT) as u32 & 0x3fff_ffff)
}
/// Bit of `FrameRevoke`'s flags: do not wait for the end.
pub const REVOKE_LATER: u16 = 1;

/// Bit of `Sleep`'s flags: accept transfers while asleep.
pub const SLEEP_ACCEPT: u64 = 1;
/// "As many rows as one can recite."
pub const CALLS_MAX: usize = 64;

const _: () = assert!(TABLE.len() <= CALLS_MAX);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_dense() {
        for (at, entry) in TABLE.iter().enumerate() {
            assert_eq!(usize::from(entry.number), at, "{}", entry.name);
        }
    }

    #[test]
    fn what_is_encoded_decodes_to_itself() {
        let call = Call::Post { env: EnvId::new(7, 3), bits: 1 << 63 };
        let (number, words) = call.encode();
        assert_eq!(Call::decode(number, words), Ok(call));
        let call = Call::SliceAlloc { cpu: 1, position: Which::Any, env: EnvId::NONE };
        let (number, words) = call.encode();
        assert_eq!(Call::decode(number, words), Ok(call));
    }

    #[test]
    fn a_word_with_high_bits_is_refused_with_its_position() {
        let (number, mut words) = Call::SliceFree { cpu: 0, position: 5 }.encode();
        words[1] |= 1 << 40;
        assert_eq!(Call::decode(number, words), Err((Error::BadArgument, 1)));
        assert_eq!(Call::decode(999, [0; 6]), Err((Error::NoSuchCall, 999)));
    }
}
