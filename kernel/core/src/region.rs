//! Software regions: operations, roles, attachments (decisions 6, xok97 XK-6).
//!
//! A region's words are reached by the kernel only, so an operation ([`crate::operate`]) is one
//! hold of the lock. Attachments are records of one table: the first ones are list heads, one for
//! each domain, the others are free or in one domain's list.

use crate::answer::{Answer, Refusal};
use crate::bytes::u32_at;
use crate::machine::Machine;
use crate::operate::Piece;
use crate::state::State;
use crate::work::{self, cost};
use crate::{account, capability, domain, env, frame, method, operate, predicate, sched};
use abi::capability::{Name, READ, WRITE};
use abi::error::Error;
use abi::extent;
use abi::id::{AccountId, DomainId, Frame, RegionId};
use abi::layout::PAGE_SIZE;
use abi::limits::{REGION_FRAMES, REGION_INLINE_BYTES, REGION_ROLES, Resource};
use abi::published::{FrameType, RegionRecord, Table};
use abi::region::{Place, STEP_BESIDE, STEP_IN, Step, role_writes};
use abi::word::Which;

/// Attachments of one domain to one region in one role.
const COUNT_MAX: u32 = 1 << 20;
/// Set in the role of each attachment to a region with methods, which is only for calling them:
/// whoever looks for one to operate by finds none.
pub(crate) const BY_METHOD: u8 = REGION_ROLES as u8;

/// The private half of a record.
#[derive(Clone, Copy, Debug, Default)]
pub struct Region {
    /// Generation of the id that is in use or comes next.
    pub generation: u32,
    /// Who may attach.
    pub guard: Name,
    /// Frames that count, 0: the region is the 64 bytes in the kernel's table.
    pub count: u8,
    /// Somebody has been attached once.
    pub used: bool,
    /// Environments that wait for it, and the one that began last.
    pub(crate) waiters: u16,
    pub(crate) waiter: u16,
    /// A predicate has named a word of it.
    pub(crate) watched: bool,
    /// A domain that is known to be attached in each role, 0: look.
    pub(crate) known: [u16; REGION_ROLES],
    /// The last steps that were allowed: one that does not wait, and one that may.
    pub(crate) allowed: [Allowed; 2],
    /// Words in its first frame, all that it has if there is none.
    pub(crate) words: u16,
    /// The table of its methods, 0: it has none ([`crate::method`]).
    pub(crate) methods: Frame,
    /// Physical address of its first byte, a multiple of `REGION_INLINE_BYTES`.
    pub(crate) first: u64,
    /// Its frames.
    pub frames: [Frame; REGION_FRAMES],
}

/// What of a step along a ring is the same each time, and that it was allowed: nothing of it can
/// become wrong but that the domain is attached.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Allowed {
    /// Two of the call's words ([`Step::to_words`]).
    which: u64,
    words: u64,
    /// Physical addresses of the word that moves and of the one beside it.
    moves: u64,
    beside: u64,
    /// Whose step it was; who drops an attachment to the region makes it forgotten.
    domain: u16,
}

impl Region {
    /// May a domain that is known to be attached make a step that begins with these words? Then the
    /// physical addresses of the one that moves and of the one beside it. Whether the step's bytes
    /// lie in the region is not looked at. `place`: where such a one is remembered.
    #[inline(always)]
    pub(crate) fn allows(
        &mut self,
        record: &RegionRecord,
        domain: usize,
        place: usize,
        [which, words]: [u64; 2],
    ) -> Option<(u64, u64)> {
        let last = &self.allowed[place];
        let again =
            last.which == which && last.words == words && usize::from(last.domain) == domain;
        if again || self.look_at(record, domain, place, [which, words]) {
            let last = &self.allowed[place];
            return Some((last.moves, last.beside));
        }
        None
    }

    #[cold]
    fn look_at(
        &mut self,
        record: &RegionRecord,
        domain: usize,
        place: usize,
        [which, words]: [u64; 2],
    ) -> bool {
        let step = Step::from_words([which, 0, words]);
        let allows = step.region != 0
            && step.region == record.id
            && role_writes(step.role)
            && usize::from(self.known[usize::from(step.role)]) == domain
            && step.flags & !(STEP_IN | STEP_BESIDE) == 0
            && step.peer.wrapping_add(1) <= REGION_ROLES as u8
            && step.moves.max(step.beside) < self.words;
        if allows {
            let word = |number: u16| self.first | u64::from(number) << 3;
            let (moves, beside) = (word(step.moves), word(step.beside));
            self.allowed[place] = Allowed { which, words, moves, beside, domain: domain as u16 };
        }
        allows
    }
}

/// One domain's attachments to one region in one role.
#[derive(Clone, Copy, Debug, Default)]
pub struct Attachment {
    /// Next in the domain's list or in the free list, 0: last.
    next: u16,
    /// Index of the region.
    region: u16,
    /// The role, and [`BY_METHOD`].
    role: u8,
    /// The region's generation then.
    generation: u32,
    /// How often (of a head: regions the domain made that nobody has attached to yet).
    count: u32,
}

/// The private half of the table.
pub struct Regions {
    /// By index; index 0 is never used.
    pub slots: &'static mut [Region],
    /// Attachments; the first ones are the domains' list heads.
    attachments: &'static mut [Attachment],
    free: u16,
    /// No index below this one is free.
    lowest: usize,
    /// Physical address of the inline words, `limits::REGION_INLINE_BYTES` for each index, in
    /// frames of the kernel's that only `Machine::word` and its kin reach.
    words: u64,
}

impl Regions {
    /// An empty table: `attachments` has one record for each domain index and those to share.
    pub fn new(
        slots: &'static mut [Region],
        attachments: &'static mut [Attachment],
        domains: usize,
        words: u64,
    ) -> Self {
        let count = attachments.len();
        for (at, attachment) in attachments.iter_mut().enumerate().skip(domains) {
            attachment.next = if at + 1 < count { at as u16 + 1 } else { 0 };
        }
        let free = if domains < count { domains as u16 } else { 0 };
        Self { slots, attachments, free, lowest: 1, words }
    }
}

/// The index of a living region.
#[inline]
pub fn find(state: &State, id: RegionId) -> Result<usize, Error> {
    let index = id.index();
    match state.published.regions.get(index) {
        Some(record) if index != 0 && record.id == id.0 => Ok(index),
        _ => Err(Error::NoSuchRegion),
    }
}

/// Do `len` bytes at `offset` lie in the region?
#[inline]
pub fn within(state: &State, index: usize, offset: u64, len: u64) -> bool {
    let bytes = u64::from(state.published.regions[index].bytes);
    extent::within(offset, len, bytes)
}

/// The physical address of a byte of the region.
#[inline]
pub fn physical(state: &State, index: usize, offset: u64) -> u64 {
    let slot = &state.regions.slots[index];
    if slot.count == 0 {
        return state.regions.words + (index * REGION_INLINE_BYTES) as u64 + offset;
    }
    let frame = slot.frames[(offset / PAGE_SIZE) as usize];
    frame.address() + offset % PAGE_SIZE
}

/// The attachment of a domain to a region in a role, and the one before it in the list.
fn attachment(state: &State, domain: usize, index: usize, role: u8) -> Option<(usize, usize)> {
    let generation = state.regions.slots[index].generation;
    let list = &state.regions.attachments;
    let mut before = domain;
    for _ in 0..list.len() {
        let at = usize::from(list[before].next);
        if at == 0 {
            return None;
        }
        let found = &list[at];
        if usize::from(found.region) == index
            && found.role == role
            && found.generation == generation
        {
            return Some((before, at));
        }
        before = at;
    }
    None
}

/// As [`attached`], at a glance if the domain is the one that asked last.
#[inline(always)]
pub(crate) fn attached_again(state: &mut State, domain: usize, index: usize, role: u8) -> bool {
    let known = state.regions.slots[index].known[usize::from(role)];
    usize::from(known) == domain || look_again(state, domain, index, role)
}

fn look_again(state: &mut State, domain: usize, index: usize, role: u8) -> bool {
    let found = attachment(state, domain, index, role).is_some();
    if found {
        state.regions.slots[index].known[usize::from(role)] = domain as u16;
    }
    found
}

/// Is the domain attached in this role?
pub fn attached(state: &State, domain: usize, index: usize, role: u8) -> bool {
    attachment(state, domain, index, role).is_some()
}

/// Is the domain attached in any role?
pub fn attached_any(state: &State, domain: usize, index: usize) -> bool {
    (0..REGION_ROLES as u8).any(|role| attached(state, domain, index, role))
}

/// `RegionAlloc`: `bytes` holds the numbers of the frames asked for.
pub fn allocate<M: Machine>(
    state: &mut State,
    machine: &mut M,
    caller: usize,
    capability: u8,
    count: u64,
    bytes: &[u8],
) -> Answer {
    let own = env::domain(state, caller).index();
    let guard = domain::capability(state, own, capability)?.name;
    if count > REGION_FRAMES as u64 {
        return Err(Refusal::new(Error::TooLarge, REGION_FRAMES as u64));
    }
    let payer = domain::account(state, own);
    let lowest = state.regions.lowest;
    let table = &state.published.regions;
    let index = (lowest..table.len()).find(|&at| table[at].id == 0).ok_or(Error::Exhausted)?;
    account::charge(state, payer, Resource::Regions, 1)?;
    let mut frames = [Frame::default(); REGION_FRAMES];
    for at in 0..count as usize {
        let which = match u32_at(bytes, 4 * at) {
            u32::MAX => Which::Any,
            number => Which::This(number),
        };
        match frame::allocate(state, machine, which, payer, guard, FrameType::Region) {
            Ok(frame) => frames[at] = frame,
            Err(refusal) => {
                for frame in &frames[..at] {
                    frame::release(state, *frame);
                }
                account::uncharge(state, payer, Resource::Regions, 1);
                return Err(refusal);
            }
        }
    }
    state.regions.lowest = index + 1;
    let generation = state.regions.slots[index].generation;
    state.regions.slots[index] =
        Region { generation, guard, count: count as u8, frames, ..Region::default() };
    state.regions.slots[index].first = physical(state, index, 0);
    let id = RegionId::new(index as u16, generation);
    let size = if count == 0 { REGION_INLINE_BYTES as u64 } else { count * PAGE_SIZE };
    state.regions.slots[index].words = (size.min(PAGE_SIZE) / 8) as u16;
    state.published.regions[index] = RegionRecord {
        id: id.0,
        account: state.published.accounts[payer].id,
        domain: domain::id(state, own).0,
        bytes: size as u32,
        ..RegionRecord::default()
    };
    if count == 0 {
        for word in 0..REGION_INLINE_BYTES as u64 / 8 {
            let at = physical(state, index, 8 * word);
            machine.word_set(at, 0);
        }
    }
    state.regions.attachments[own].count += 1;
    Ok(u64::from(id.0))
}

/// `RegionAttach`.
pub fn attach(
    state: &mut State,
    caller: usize,
    capability: u8,
    id: RegionId,
    role: u16,
    target: DomainId,
) -> Answer {
    let index = find(state, id)?;
    let asked = check_role(role)?;
    let role = asked | kind(state, index);
    let own = env::domain(state, caller).index();
    let target = domain::find_or_own(state, own, target)?;
    if target != own {
        capability::check(state, own, capability, domain::guard(state, target), WRITE)?;
    }
    if !attached(state, own, index, role) {
        let rights = if role_writes(asked) { READ | WRITE } else { READ };
        let guard = state.regions.slots[index].guard;
        capability::check(state, own, capability, &guard, rights)?;
    }
    enter(state, target, index, role)?;
    Ok(0)
}

/// `RegionPass`: the index of the domain that may be attached by the capability at `capability`.
pub(crate) fn receiver(
    state: &State,
    own: usize,
    capability: u8,
    id: DomainId,
) -> Result<usize, Error> {
    let target = domain::find(state, id)?;
    capability::check(state, own, capability, domain::guard(state, target), WRITE)?;
    Ok(target)
}

/// What one place of [`pass`] costs at most, for domains with so many attachments.
pub(crate) fn pass_cost(state: &State, own: usize, target: usize) -> u32 {
    let length = |domain: usize| state.published.domains[domain].attachments;
    cost::ATTACH + cost::LOOK * (length(own) + length(target))
}

/// `RegionPass`, one place: attaches the domain at `target` as the one at `own` is.
pub(crate) fn pass(
    state: &mut State,
    own: usize,
    target: usize,
    place: Place,
) -> Result<(), Refusal> {
    let index = find(state, RegionId(place.region))?;
    let asked = u16::try_from(place.role).map_err(|_| Error::BadArgument)?;
    let role = check_role(asked)? | kind(state, index);
    if !attached(state, own, index, role) {
        return Err(Error::NotPermitted.into());
    }
    enter(state, target, index, role)
}

/// Attaches a domain that may be.
fn enter(state: &mut State, target: usize, index: usize, role: u8) -> Result<(), Refusal> {
    match attachment(state, target, index, role) {
        Some((_, at)) if state.regions.attachments[at].count == COUNT_MAX => {
            return Err(Error::Exhausted.into());
        }
        Some((_, at)) => state.regions.attachments[at].count += 1,
        None => add(state, target, index, role)?,
    }
    state.published.regions[index].attached[usize::from(role % BY_METHOD)] += 1;
    if !core::mem::replace(&mut state.regions.slots[index].used, true) {
        let maker = DomainId(state.published.regions[index].domain).index();
        state.regions.attachments[maker].count -= 1;
    }
    touched(state, index);
    Ok(())
}

/// What is set in the roles of those attached to the region at `index`.
fn kind(state: &State, index: usize) -> u8 {
    if state.regions.slots[index].methods.0 == 0 { 0 } else { BY_METHOD }
}

#[inline]
pub(crate) fn check_role(role: u16) -> Result<u8, Refusal> {
    match u8::try_from(role) {
        Ok(role) if usize::from(role) < REGION_ROLES => Ok(role),
        _ => Err(Refusal::new(Error::BadArgument, 1)),
    }
}

fn add(state: &mut State, domain: usize, index: usize, role: u8) -> Result<(), Refusal> {
    let at = state.regions.free;
    if at == 0 {
        return Err(Error::Exhausted.into());
    }
    account::charge(state, domain::account(state, domain), Resource::Regions, 1)?;
    state.published.domains[domain].attachments += 1;
    let generation = state.regions.slots[index].generation;
    let list = &mut state.regions.attachments;
    state.regions.free = list[usize::from(at)].next;
    let next = core::mem::replace(&mut list[domain].next, at);
    let region = index as u16;
    list[usize::from(at)] = Attachment { next, region, role, generation, count: 1 };
    Ok(())
}

/// `RegionDetach`.
pub fn detach(state: &mut State, caller: usize, id: RegionId, role: u16) -> Answer {
    let index = find(state, id)?;
    let role = check_role(role)? | kind(state, index);
    let own = env::domain(state, caller).index();
    let (before, at) = attachment(state, own, index, role).ok_or(Error::NotPermitted)?;
    state.regions.attachments[at].count -= 1;
    if state.regions.attachments[at].count == 0 {
        remove(state, own, before, at);
    }
    drop_count(state, index, role, 1);
    Ok(0)
}

/// Takes a record out of a domain's list.
fn remove(state: &mut State, domain: usize, before: usize, at: usize) {
    state.published.domains[domain].attachments -= 1;
    let list = &mut state.regions.attachments;
    let Attachment { next, region, role, .. } = list[at];
    // Of this region, or of one that has its place by now.
    let slot = &mut state.regions.slots[usize::from(region)];
    slot.known[usize::from(role % BY_METHOD)] = 0;
    slot.allowed = Default::default();
    // It may be the one that has left.
    state.envs.slots[usize::from(slot.waiter)].wait.piece = Piece::default();
    list[before].next = next;
    list[at] = Attachment { next: state.regions.free, ..Attachment::default() };
    state.regions.free = at as u16;
    account::uncharge(state, domain::account(state, domain), Resource::Regions, 1);
}

/// Fewer are attached; with the last one the region ends.
fn drop_count(state: &mut State, index: usize, role: u8, count: u32) {
    let record = &mut state.published.regions[index];
    record.attached[usize::from(role % BY_METHOD)] -= u64::from(count);
    let left = record.attached.iter().any(|&count| count != 0);
    touched(state, index);
    if !left {
        end(state, index);
    }
}

/// Ends a region: its frames go, its id finds nothing.
fn end(state: &mut State, index: usize) {
    let slot = state.regions.slots[index];
    let account = AccountId(state.published.regions[index].account).index();
    if !slot.used {
        let maker = DomainId(state.published.regions[index].domain).index();
        state.regions.attachments[maker].count -= 1;
    }
    for frame in &slot.frames[..usize::from(slot.count)] {
        frame::release(state, *frame);
    }
    if slot.methods.0 != 0 {
        method::end(state, slot.methods);
    }
    account::uncharge(state, account, Resource::Regions, 1);
    let generation = (slot.generation + 1) % abi::id::GENERATIONS;
    state.regions.slots[index] = Region { generation, ..Region::default() };
    state.published.regions[index] = RegionRecord::default();
    state.regions.lowest = state.regions.lowest.min(index);
}

/// A domain ends: its attachments go, and the regions it made that nobody ever attached to, while
/// there is room; are they all gone?
pub fn detach_all(state: &mut State, domain: usize) -> bool {
    while state.regions.attachments[domain].next != 0 {
        if !work::room(state, cost::REGION) {
            return false;
        }
        work::spend(state, cost::REGION);
        let at = usize::from(state.regions.attachments[domain].next);
        let Attachment { region, role, generation, count, .. } = state.regions.attachments[at];
        remove(state, domain, domain, at);
        let index = usize::from(region);
        if state.regions.slots[index].generation == generation
            && state.published.regions[index].id != 0
        {
            drop_count(state, index, role, count);
        }
    }
    let id = state.published.domains[domain].id;
    for index in 1..state.regions.slots.len() {
        if state.regions.attachments[domain].count == 0 {
            break;
        }
        if !work::room(state, cost::REGION) {
            return false;
        }
        work::spend(state, cost::LOOK);
        let record = &state.published.regions[index];
        if record.id != 0 && record.domain == id && !state.regions.slots[index].used {
            work::spend(state, cost::REGION);
            end(state, index);
        }
    }
    state.regions.attachments[domain].count == 0
}

/// Ends the region at `index`, whoever is attached, if there is one.
pub(crate) fn destroy(state: &mut State, index: usize) {
    if state.published.regions[index].id != 0 {
        work::spend(state, cost::REGION);
        touched(state, index);
        end(state, index);
    }
}

/// Attachments a domain pays for.
#[cfg(test)]
pub(crate) fn records(state: &State, domain: usize) -> usize {
    let list = &state.regions.attachments;
    let next = |&at: &usize| Some(usize::from(list[at].next)).filter(|&at| at != 0);
    core::iter::successors(next(&domain), next).count()
}

/// What must hold of attachments: each region's record counts those of all domains.
#[cfg(test)]
pub(crate) fn check(state: &State) {
    let list = &state.regions.attachments;
    let mut counted = std::vec![[0; REGION_ROLES]; state.regions.slots.len()];
    for domain in 1..state.published.domains.len() {
        let next = |&at: &usize| Some(usize::from(list[at].next)).filter(|&at| at != 0);
        for at in core::iter::successors(next(&domain), next) {
            let Attachment { region, role, generation, count, .. } = list[at];
            if state.regions.slots[usize::from(region)].generation == generation {
                counted[usize::from(region)][usize::from(role % BY_METHOD)] += u64::from(count);
            }
        }
    }
    for (index, counted) in counted.iter().enumerate() {
        assert_eq!(state.published.regions[index].attached, *counted, "region {index}");
    }
}

/// Its record has changed: whoever waits for it or watches it is looked at.
pub(crate) fn touched(state: &mut State, index: usize) {
    let class = predicate::published_bit(Table::Regions, index);
    if state.regions.slots[index].waiters > 0 {
        operate::watch_waiter(state, index);
        state.sched.watched |= class;
    }
    sched::touched(state, class);
}
