//! Software regions: operations, roles, attachments (decisions 6, xok97 XK-6).
//!
//! A region's words are reached by the kernel only, so an operation ([`crate::operate`]) is one
//! hold of the lock. Who is attached is found by [`crate::attachment`]'s trees; a region that no
//! domain has attached to yet is in a list of its maker's.

use crate::answer::{Answer, Refusal};
use crate::attachment::{Attachment, Attachments};
use crate::bytes::u32_at;
use crate::count::Count;
use crate::guests::Guests;
use crate::identity::{self, Serial};
use crate::index::{DomainIndex, EnvIndex, RegionIndex, Slots, kind};
use crate::machine::Machine;
use crate::operate::Piece;
use crate::places::{BLOCK, Places};
use crate::state::State;
use crate::step::Allowed;
use crate::work::{self, cost};
use crate::{
    account, capability, domain, env, fifo, frame, method, operate, predicate, principal, sched,
};
use abi::capability::{CONTROL, Name, READ, WRITE};
use abi::error::Error;
use abi::extent;
use abi::id::{AccountId, DomainId, Frame, RegionId};
use abi::layout::PAGE_SIZE;
use abi::limits::{DOMAINS, REGION_FRAMES, REGION_INLINE_BYTES, REGION_ROLES, Resource};
use abi::published::{FrameType, RegionRecord, Table};
use abi::region::{AS_DOMAIN, KINDS, ONE_GUEST, Place, role_writes};
use abi::word::Which;

/// Attachments of one domain to one region in one role.
const COUNT_MAX: u32 = 1 << 20;
/// Set in the role of each attachment to a region with methods, which is only for calling them:
/// whoever looks for one to operate by finds none.
pub(crate) const BY_METHOD: u8 = REGION_ROLES as u8;

/// The private half of a record.
#[derive(Clone, Copy, Debug, Default)]
pub struct Region {
    /// Which region of this place it is, or the next one will be.
    pub serial: Serial,
    /// Who may attach.
    pub guard: Name,
    /// Which of those that may are let in.
    pub(crate) guests: Guests,
    /// The number in the fresh name that its maker had.
    pub(crate) maker: u64,
    /// Frames that count, 0: the region is the 64 bytes in the kernel's table.
    pub count: u8,
    /// Somebody has been attached once.
    pub used: bool,
    /// Environments that wait for it, and the one that began last.
    pub(crate) waiters: u16,
    pub(crate) waiter: u16,
    /// A predicate has named a word of it.
    pub(crate) watched: bool,
    /// A predicate has named its published record, or that of an earlier one of this place.
    pub(crate) record_watched: bool,
    /// A domain that is known to be attached in each role, 0: look.
    pub(crate) known: [u16; REGION_ROLES],
    /// The last steps that were allowed: one that does not wait, and one that may.
    pub(crate) allowed: [Allowed; 2],
    /// Nobody may be attached who could change it: it is a set of groups.
    pub(crate) sealed: bool,
    /// Places of domains where it is held as groups: while there are any, it does not end because
    /// nobody is attached.
    pub(crate) holders: u16,
    /// Words in its first frame, all that it has if there is none.
    pub(crate) words: u16,
    /// Bytes of data if it is a fifo, else 0.
    pub(crate) fifo: fifo::Capacity,
    /// The table of its methods, 0: it has none ([`crate::method`]).
    pub(crate) methods: Frame,
    /// Physical address of its first byte, a multiple of `REGION_INLINE_BYTES`.
    pub(crate) first: u64,
    /// Its frames.
    pub frames: [Frame; REGION_FRAMES],
    /// The first of its attachments; while it has had none, its neighbours among its maker's.
    pub(crate) attachments: u16,
    pub(crate) unused: [u16; 2],
}

/// The private half of the table.
pub struct Regions {
    /// By index; index 0 is never used.
    pub slots: Slots<kind::Region, Region>,
    /// Who is attached.
    pub(crate) attachments: Attachments,
    /// Which indices are taken.
    places: Places<{ DOMAINS / BLOCK }>,
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
        let attachments = Attachments::new(attachments, domains);
        Self { slots: Slots::new(slots), attachments, places: Places::new(), words }
    }
}

/// The index of a living region.
#[inline]
pub fn find(state: &State, id: RegionId) -> Result<RegionIndex, Error> {
    identity::find(state.published.regions, id).map(RegionIndex::new).ok_or(Error::NoSuchRegion)
}

/// Do `len` bytes at `offset` lie in the region?
#[inline]
pub fn within(state: &State, index: RegionIndex, offset: u64, len: u64) -> bool {
    let bytes = u64::from(state.published.regions[index].bytes);
    extent::within(offset, len, bytes)
}

/// The physical address of a byte of the region.
#[inline]
pub fn physical(state: &State, index: RegionIndex, offset: u64) -> u64 {
    let slot = &state.regions.slots[index];
    if slot.count == 0 {
        return state.regions.words + (index.at() * REGION_INLINE_BYTES) as u64 + offset;
    }
    let frame = slot.frames[(offset / PAGE_SIZE) as usize];
    frame.address() + offset % PAGE_SIZE
}

/// The attachment of a domain to a region in a role.
fn attachment(state: &State, domain: DomainIndex, index: RegionIndex, role: u8) -> Option<usize> {
    let serial = state.regions.slots[index].serial;
    state.regions.attachments.find(domain, index.at(), role, serial)
}

/// As [`attached`], at a glance if the domain is the one that asked last.
#[inline(always)]
pub(crate) fn attached_again(
    state: &mut State,
    domain: DomainIndex,
    index: RegionIndex,
    role: u8,
) -> bool {
    let known = state.regions.slots[index].known[usize::from(role)];
    DomainIndex::from(known) == domain || look_again(state, domain, index, role)
}

fn look_again(state: &mut State, domain: DomainIndex, index: RegionIndex, role: u8) -> bool {
    let found = attachment(state, domain, index, role).is_some();
    if found {
        state.regions.slots[index].known[usize::from(role)] = domain.link();
    }
    found
}

/// Is the domain attached in this role?
pub fn attached(state: &State, domain: DomainIndex, index: RegionIndex, role: u8) -> bool {
    attachment(state, domain, index, role).is_some()
}

/// Is the domain attached in any role?
pub fn attached_any(state: &State, domain: DomainIndex, index: RegionIndex) -> bool {
    let serial = state.regions.slots[index].serial;
    state.regions.attachments.any(domain, index.at(), BY_METHOD, serial)
}

/// `RegionAlloc`: `bytes` holds the numbers of the frames asked for.
pub fn allocate<M: Machine>(
    state: &mut State,
    machine: &mut M,
    caller: EnvIndex,
    capability: u8,
    asked: u64,
    bytes: &[u8],
) -> Answer {
    let own = DomainIndex::from(env::domain(state, caller));
    let named = domain::capability(state, own, capability)?.name;
    let guard = if asked & AS_DOMAIN == 0 { named } else { *domain::guard(state, own) };
    let guests = Guests::of(asked);
    let (count, asked) = (asked & !KINDS, asked & !(AS_DOMAIN | ONE_GUEST));
    if count > REGION_FRAMES as u64 {
        return Err(Refusal::new(Error::TooLarge, REGION_FRAMES as u64));
    }
    let fifo = if asked == count { 0 } else { fifo::capacity(count)? };
    let payer = domain::account(state, own);
    account::check(state, payer, Resource::Regions, 1)?;
    let is_free = |at: usize| {
        let index = RegionIndex::new(at);
        let serial = state.regions.slots[index].serial;
        state.published.regions[index].id == 0 && !serial.is_spent()
    };
    let lowest = state.regions.places.lowest(state.published.regions.len(), is_free);
    let index = RegionIndex::new(lowest.ok_or(Error::Exhausted)?);
    account::count(state, payer, Resource::Regions, 1);
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
    state.regions.places.take(index.at());
    let Region { serial, record_watched, .. } = state.regions.slots[index];
    let (maker, count) = (domain::made(state, own), count as u8);
    let place = Region { serial, record_watched, ..Region::default() };
    state.regions.slots[index] = Region { guard, guests, maker, count, fifo, frames, ..place };
    state.regions.slots[index].first = physical(state, index, 0);
    let id = RegionId::new(index.link(), serial.number());
    let inline = REGION_INLINE_BYTES as u64;
    let size = if count == 0 { inline } else { u64::from(count) * PAGE_SIZE };
    state.regions.slots[index].words = (size.min(PAGE_SIZE) / 8) as u16;
    state.published.regions[index] = RegionRecord {
        id: id.0,
        account: state.published.accounts[payer].id,
        domain: domain::id(state, own).0,
        bytes: size as u32,
        ..RegionRecord::default()
    };
    if count == 0 {
        for word in 0..inline / 8 {
            let at = physical(state, index, 8 * word);
            machine.word_set(at, 0);
        }
    }
    begin_unused(state, own, index);
    Ok(id.0)
}

/// `RegionAttach`.
pub fn attach(
    state: &mut State,
    caller: EnvIndex,
    capability: u8,
    id: RegionId,
    role: u16,
    target: DomainId,
) -> Answer {
    let index = find(state, id)?;
    let asked = check_role(role)?;
    let role = asked | kind(state, index);
    let own = DomainIndex::from(env::domain(state, caller));
    let target = domain::find_or_own(state, own, target)?;
    if target != own {
        may_attach(state, own, capability, target)?;
    }
    // One that has taken another name since is as good as another domain.
    let made = state.regions.slots[index].maker == domain::made(state, own);
    let comes = !made && !attached(state, own, index, role);
    if comes {
        let Region { guard, guests, .. } = state.regions.slots[index];
        let held = capability::get(state, own, capability)?;
        // Who may enter the domains of a user may look at what they share.
        let looks = !role_writes(asked) && held.dominates(&guard, CONTROL);
        let rights = if role_writes(asked) { READ | WRITE } else { READ };
        if !looks && !held.dominates(&guard, rights) {
            return Err(Error::NotPermitted.into());
        }
        guests.check()?;
    }
    enter(state, target, index, role)?;
    if comes {
        state.regions.slots[index].guests.came();
    }
    Ok(0)
}

/// `RegionPass`: the index of the domain that may be attached by the capability at `capability`, or
/// because it waits for a guest from the domain at `own`, which brings what it has.
pub(crate) fn receiver(
    state: &State,
    own: DomainIndex,
    capability: u8,
    id: DomainId,
) -> Result<DomainIndex, Error> {
    let target = domain::find(state, id)?;
    if !principal::awaits(state, target, own) {
        may_attach(state, own, capability, target)?;
    }
    Ok(target)
}

/// May the domain at `own` attach the one at `target`?
fn may_attach(
    state: &State,
    own: DomainIndex,
    capability: u8,
    target: DomainIndex,
) -> Result<(), Error> {
    let named = capability::get(state, own, capability)?;
    domain::may_write(state, own, target, &named).then_some(()).ok_or(Error::NotPermitted)
}

/// `RegionPass`, one place: attaches the domain at `target` as the one at `own` is.
pub(crate) fn pass(
    state: &mut State,
    own: DomainIndex,
    target: DomainIndex,
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

/// Is a domain attached to the region with this id, in whatever role?
pub(crate) fn has(state: &State, domain: DomainIndex, id: RegionId) -> bool {
    find(state, id).is_ok_and(|index| attached_any(state, domain, index))
}

/// Makes the region at `index` one that stays as it is. It has no methods, nobody is attached who
/// could change it, and the domain at `holder` is attached, so that it lasts.
pub(crate) fn seal(
    state: &mut State,
    index: RegionIndex,
    holder: DomainIndex,
) -> Result<(), Refusal> {
    let writers = (0..REGION_ROLES).filter(|&role| role_writes(role as u8));
    let record = &state.published.regions[index];
    let written = writers.into_iter().any(|role| record.attached[role] != 0);
    if written || state.regions.slots[index].methods.0 != 0 || !attached_any(state, holder, index) {
        return Err(Error::WrongState.into());
    }
    state.regions.slots[index].sealed = true;
    Ok(())
}

/// Attaches a domain that may be.
fn enter(
    state: &mut State,
    target: DomainIndex,
    index: RegionIndex,
    role: u8,
) -> Result<(), Refusal> {
    if state.regions.slots[index].sealed && role_writes(role) {
        return Err(Error::WrongState.into());
    }
    match attachment(state, target, index, role) {
        Some(at) => {
            let count = &mut state.regions.attachments.at(at).count;
            if *count == COUNT_MAX {
                return Err(Error::Exhausted.into());
            }
            *count += 1;
        }
        None => add(state, target, index, role)?,
    }
    state.published.regions[index].attached[usize::from(role % BY_METHOD)] += 1;
    if !core::mem::replace(&mut state.regions.slots[index].used, true) {
        end_unused(state, index);
    }
    counted(state, index);
    Ok(())
}

/// What is set in the roles of those attached to the region at `index`.
fn kind(state: &State, index: RegionIndex) -> u8 {
    if state.regions.slots[index].methods.0 == 0 { 0 } else { BY_METHOD }
}

#[inline]
pub(crate) fn check_role(role: u16) -> Result<u8, Refusal> {
    match u8::try_from(role) {
        Ok(role) if usize::from(role) < REGION_ROLES => Ok(role),
        _ => Err(Refusal::new(Error::BadArgument, 1)),
    }
}

fn add(
    state: &mut State,
    domain: DomainIndex,
    index: RegionIndex,
    role: u8,
) -> Result<(), Refusal> {
    let payer = domain::account(state, domain);
    account::check(state, payer, Resource::Attachments, 1)?;
    if !state.regions.attachments.has_room() {
        return Err(Error::Exhausted.into());
    }
    account::count(state, payer, Resource::Attachments, 1);
    state.published.domains[domain].attachments += 1;
    let slot = &mut state.regions.slots[index];
    let (serial, count) = (slot.serial, 1);
    let (domain, region) = (domain.link(), index.link());
    let new = Attachment { domain, region, role, serial, count, ..Attachment::default() };
    state.regions.attachments.insert(new, &mut slot.attachments);
    Ok(())
}

/// `RegionDetach`.
pub fn detach(state: &mut State, caller: EnvIndex, id: RegionId, role: u16) -> Answer {
    let index = find(state, id)?;
    let role = check_role(role)? | kind(state, index);
    let own = DomainIndex::from(env::domain(state, caller));
    let at = attachment(state, own, index, role).ok_or(Error::NotPermitted)?;
    let count = &mut state.regions.attachments.at(at).count;
    count.less(1);
    if *count == 0 {
        remove(state, at);
    }
    drop_count(state, index, role, 1);
    Ok(0)
}

/// Takes a record out of its domain's tree and its region's list.
fn remove(state: &mut State, at: usize) {
    let Attachment { domain, region, role, .. } = *state.regions.attachments.at(at);
    let domain = DomainIndex::from(domain);
    state.published.domains[domain].attachments.less(1);
    let slot = &mut state.regions.slots[region.into()];
    slot.known[usize::from(role % BY_METHOD)] = 0;
    slot.allowed = Default::default();
    // It may be the one that has left.
    state.envs.slots[EnvIndex::from(slot.waiter)].wait.piece = Piece::default();
    state.regions.attachments.remove(at, &mut slot.attachments);
    account::uncharge(state, domain::account(state, domain), Resource::Attachments, 1);
}

/// Takes all that one record says back; with the last one the region ends.
fn remove_whole(state: &mut State, at: usize) {
    let Attachment { region, role, count, .. } = *state.regions.attachments.at(at);
    remove(state, at);
    drop_count(state, region.into(), role, count);
}

/// A region that nobody has attached to goes into its maker's list of such ones.
fn begin_unused(state: &mut State, maker: DomainIndex, index: RegionIndex) {
    let first = &mut state.regions.attachments.head(maker).beside[0];
    let after = core::mem::replace(first, index.link());
    state.regions.slots[index].unused = [0, after];
    if after != 0 {
        state.regions.slots[after.into()].unused[0] = index.link();
    }
}

/// It leaves that list: somebody has attached to it, or it ends.
fn end_unused(state: &mut State, index: RegionIndex) {
    let maker = DomainIndex::from(DomainId(state.published.regions[index].domain));
    let [before, after] = core::mem::take(&mut state.regions.slots[index].unused);
    match before {
        0 => state.regions.attachments.head(maker).beside[0] = after,
        before => state.regions.slots[before.into()].unused[1] = after,
    }
    if after != 0 {
        state.regions.slots[after.into()].unused[0] = before;
    }
}

/// Fewer are attached; with the last one the region ends.
fn drop_count(state: &mut State, index: RegionIndex, role: u8, count: u32) {
    let record = &mut state.published.regions[index];
    record.attached[usize::from(role % BY_METHOD)].less(u64::from(count));
    counted(state, index);
    end_unless_used(state, index);
}

/// A domain holds the region at `index` as groups.
pub(crate) fn hold(state: &mut State, index: RegionIndex) {
    state.regions.slots[index].holders += 1;
}

/// A domain does no longer.
pub(crate) fn let_go(state: &mut State, index: RegionIndex) {
    state.regions.slots[index].holders.less(1);
    end_unless_used(state, index);
}

/// Ends a region that nobody is attached to any more, nor holds as groups.
fn end_unless_used(state: &mut State, index: RegionIndex) {
    let attached = state.published.regions[index].attached.iter().any(|&count| count != 0);
    if !attached && state.regions.slots[index].holders == 0 {
        end(state, index);
    }
}

/// Ends a region: its frames go, its id finds nothing.
fn end(state: &mut State, index: RegionIndex) {
    let slot = state.regions.slots[index];
    let account = AccountId(state.published.regions[index].account).into();
    if !slot.used {
        end_unused(state, index);
    }
    for frame in &slot.frames[..usize::from(slot.count)] {
        frame::release(state, *frame);
    }
    if slot.methods.0 != 0 {
        method::end(state, slot.methods);
    }
    account::uncharge(state, account, Resource::Regions, 1);
    // What a predicate says of its words is true from now on.
    if slot.watched {
        touched(state, index);
    }
    let serial = slot.serial.next();
    let record_watched = slot.record_watched;
    state.regions.slots[index] = Region { serial, record_watched, ..Region::default() };
    state.published.regions[index] = RegionRecord::default();
    if !serial.is_spent() {
        state.regions.places.give_back(index.at());
    }
}

/// A domain ends: its attachments go, the groups that it holds, and the regions it made that nobody
/// ever attached to, while there is room; are they all gone?
pub fn detach_all(state: &mut State, domain: DomainIndex) -> bool {
    loop {
        let at = state.regions.attachments.some_of(domain);
        let unused = state.regions.attachments.head(domain).beside[0];
        if at == 0 && unused == 0 && !principal::has_groups(state, domain) {
            return true;
        }
        if !work::room(state, cost::REGION) {
            return false;
        }
        work::spend(state, cost::REGION);
        if at != 0 {
            remove_whole(state, at);
        } else if !principal::leave_one(state, domain) {
            end(state, unused.into());
        }
    }
}

/// Ends the region at `index`, if there is one, with everybody's attachments, while there is room;
/// are they all gone?
pub(crate) fn destroy(state: &mut State, index: RegionIndex) -> bool {
    while state.published.regions[index].id != 0 {
        if !work::room(state, cost::REGION) {
            return false;
        }
        work::spend(state, cost::REGION);
        match usize::from(state.regions.slots[index].attachments) {
            0 => end(state, index),
            at => remove_whole(state, at),
        }
    }
    true
}

/// Attachments a domain pays for.
#[cfg(test)]
pub(crate) fn records(state: &State, domain: DomainIndex) -> usize {
    state.regions.attachments.of(domain).len()
}

/// What must hold of attachments: each region's record counts those of all domains, and no one is
/// to a region that has ended.
#[cfg(test)]
pub(crate) fn check(state: &State) {
    let mut counted = std::vec![[0; REGION_ROLES]; state.regions.slots.len()];
    for domain in (1..state.published.domains.len()).map(DomainIndex::new) {
        for one in state.regions.attachments.of(domain) {
            let Attachment { region, role, serial, count, .. } = one;
            assert_eq!(state.regions.slots[region.into()].serial, serial, "it has ended");
            counted[usize::from(region)][usize::from(role % BY_METHOD)] += u64::from(count);
        }
    }
    for (index, counted) in counted.iter().enumerate() {
        assert_eq!(state.published.regions[index].attached, *counted, "region {index}");
    }
    principal::check(state);
}

/// More are attached to it, or fewer, as with each fork. The classes of records are few: that of a
/// record that no predicate names has sleepers in it that watch other words.
fn counted(state: &mut State, index: RegionIndex) {
    let slot = &state.regions.slots[index];
    if slot.waiters > 0 || slot.record_watched {
        touched(state, index);
    }
}

/// Its record has changed: whoever waits for it or watches it is looked at.
pub(crate) fn touched(state: &mut State, index: RegionIndex) {
    let class = predicate::published_bit(Table::Regions, index.at());
    if state.regions.slots[index].waiters > 0 {
        operate::watch_waiter(state, index);
        state.sched.watched |= class;
    }
    sched::touched(state, class);
}
