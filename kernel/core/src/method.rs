//! Protected methods: functions that alone reach a region's bytes (decision 0023, thesis98 M-16).
//!
//! Functions are bound before anybody is attached. Attachments to a region with methods are of a
//! kind of their own ([`BY_METHOD`]), which no other operation on regions finds: that is why its
//! bytes are reached by methods alone.
//!
//! ```text
//!  region ──► table of methods, a frame of type Code      window: pages of compiled code
//!             word 0  page 16, pages 8, roles 8, slots 16, bound 1 ──►  page …
//!             word 1  budget 32, offset 16, length 16
//! ```
//! Whoever calls sees nothing of what a method does until all of it is done: it works on a copy.

use crate::answer::{Answer, Refusal};
use crate::count::Count;
use crate::index::{AccountIndex, DomainIndex, EnvIndex};
use crate::machine::Machine;
use crate::region::{self, BY_METHOD};
use crate::state::State;
use crate::work::{self, cost};
use crate::workshop::{self, Downloads, Request};
use crate::{account, capability, env, forgetting, frame, left, window};
use abi::capability::CONTROL;
use abi::error::Error;
use abi::id::{AccountId, Frame, RegionId};
use abi::layout::PAGE_SIZE;
use abi::limits::{
    METHOD_PAGES, METHOD_SLOTS, METHOD_STATE_BYTES, METHOD_STEPS, METHODS, Resource,
};
use abi::method::{BINDING_BYTES, Binding, PARTS, Part, refused};
use abi::published::{Category, FrameType};
use abi::word::Which;
use code::argument::{Argument, Outcome};
use code::instruction::SLOT_BYTES;
use code::signature::AREA_BYTES_MIN;

/// Functions that a table has room for.
const FUNCTIONS: usize = METHODS * PARTS;
/// Bit of a function's first word: it is bound.
const BOUND: u64 = 1 << 63;

/// A function of a method, as the table has it.
#[derive(Clone, Copy, Debug)]
struct Function {
    page: usize,
    pages: usize,
    roles: u8,
    slots: u32,
    budget: u32,
    offset: u32,
    length: u32,
}

impl Function {
    fn from_words([first, second]: [u64; 2]) -> Option<Self> {
        (first & BOUND != 0).then_some(Self {
            page: usize::from(first as u16),
            pages: usize::from((first >> 16) as u8),
            roles: (first >> 24) as u8,
            slots: u32::from((first >> 32) as u16),
            budget: second as u32,
            offset: u32::from((second >> 32) as u16),
            length: u32::from((second >> 48) as u16),
        })
    }

    fn to_words(self) -> [u64; 2] {
        let first = self.page as u64
            | (self.pages as u64) << 16
            | u64::from(self.roles) << 24
            | u64::from(self.slots) << 32
            | BOUND;
        let part = u64::from(self.offset) << 32 | u64::from(self.length) << 48;
        [first, u64::from(self.budget) | part]
    }

    /// The most steps of a run.
    fn steps(&self) -> u32 {
        self.slots.saturating_add(self.budget)
    }
}

fn place(table: Frame, number: usize) -> u64 {
    table.address() + 16 * number as u64
}

fn load<M: Machine>(machine: &M, table: Frame, number: usize) -> Option<Function> {
    if table.0 == 0 {
        return None;
    }
    let at = place(table, number);
    Function::from_words([machine.word(at), machine.word(at + 8)])
}

fn function<M: Machine>(machine: &M, table: Frame, method: usize, part: Part) -> Option<Function> {
    load(machine, table, method * PARTS + part as usize)
}

/// `MethodBind`: `bytes` holds a `Binding` and the program. `None`: the call runs again.
pub fn bind<M: Machine>(
    state: &mut State,
    machine: &mut M,
    caller: EnvIndex,
    capability: u8,
    (region, slots): (RegionId, u64),
    bytes: &[u8],
) -> Option<Answer> {
    let checked = check(state, machine, caller, capability, region, slots, bytes);
    let request = match checked {
        Ok(request) => request,
        Err(refusal) => return Some(Err(refusal)),
    };
    let end = BINDING_BYTES + request.slots * SLOT_BYTES;
    let Some(program) = bytes.get(BINDING_BYTES..end) else {
        return Some(Err(Error::BadAddress.into()));
    };
    let entered = workshop::enter(state, machine, caller, &request, program);
    match entered.and_then(|()| workshop::advance(state, machine)) {
        Ok(None) => None,
        Ok(Some(length)) => Some(install(state, machine, &request, length)),
        Err(refusal) => Some(Err(refusal)),
    }
}

/// May the caller bind this function, whatever it does?
fn check<M: Machine>(
    state: &State,
    machine: &M,
    caller: EnvIndex,
    capability: u8,
    id: RegionId,
    slots: u64,
    bytes: &[u8],
) -> Result<Request, Refusal> {
    let index = region::find(state, id)?;
    let slot = &state.regions.slots[index];
    let domain = DomainIndex::from(env::domain(state, caller));
    capability::check(state, domain, capability, &slot.guard, CONTROL)?;
    if slot.used {
        return Err(Error::WrongState.into());
    }
    let state_bytes = state.published.regions[index].bytes;
    if u64::from(state_bytes) > METHOD_STATE_BYTES {
        return Err(Refusal::new(Error::TooLarge, METHOD_STATE_BYTES));
    }
    if slots > METHOD_SLOTS as u64 {
        return Err(Refusal::new(Error::TooLarge, METHOD_SLOTS as u64));
    }
    let asked = read(bytes);
    let bad = Refusal::new(Error::BadArgument, 1);
    let part = Part::from_number(asked.part).ok_or(bad)?;
    let method = usize::from(asked.method);
    if method >= METHODS || asked.zero != 0 || asked.roles >= 1 << abi::limits::REGION_ROLES {
        return Err(bad);
    }
    let table = slot.methods;
    if function(machine, table, method, part).is_some() {
        return Err(Error::Taken.into());
    }
    let body = function(machine, table, method, Part::Body);
    let (offset, length) = match (part, body) {
        (Part::Body, _) => (asked.offset, asked.length),
        _ if asked.roles != 0 || asked.offset != 0 || asked.length != 0 => return Err(bad),
        (_, None) => return Err(Error::WrongState.into()),
        (_, Some(body)) => (body.offset, body.length),
    };
    if length < AREA_BYTES_MIN || !region::within(state, index, offset.into(), length.into()) {
        return Err(Error::BadAddress.into());
    }
    let parts = [Part::Body, Part::Before, Part::After];
    let bound = parts.iter().filter_map(|&part| function(machine, table, method, part));
    let steps = bound.fold(slots as u32, |sum, other| sum.saturating_add(other.steps()));
    if steps.saturating_add(asked.budget) > METHOD_STEPS {
        return Err(Refusal::new(Error::TooLarge, METHOD_STEPS.into()));
    }
    let (roles, budget) = (asked.roles, asked.budget);
    let (bytes, slots) = (state_bytes, slots as usize);
    Ok(Request { region: id, method, part, roles, budget, offset, length, bytes, slots })
}

fn read(bytes: &[u8]) -> Binding {
    let [method, part, roles, zero, ..] = crate::bytes::u32_at(bytes, 0).to_le_bytes();
    let [budget, offset, length] = [4, 8, 12].map(|at| crate::bytes::u32_at(bytes, at));
    Binding { method, part, roles, zero, budget, offset, length }
}

/// The function in the workshop becomes the region's.
fn install<M: Machine>(
    state: &mut State,
    machine: &mut M,
    request: &Request,
    length: usize,
) -> Answer {
    let index = region::find(state, request.region)?;
    let payer = AccountIndex::from(AccountId(state.published.regions[index].account));
    let guard = state.regions.slots[index].guard;
    let mut table = state.regions.slots[index].methods;
    let pages = length.div_ceil(PAGE_SIZE as usize);
    account::check(state, payer, Resource::Code, pages as u32)?;
    let first = window::find(state, pages).ok_or(Error::Exhausted)?;
    account::charge(state, payer, Resource::Regions, 1)?;
    // The table, if there is none yet, then the pages.
    let mut frames = [Frame::default(); METHOD_PAGES + 1];
    let count = pages + usize::from(table.0 == 0);
    for at in 0..count {
        let kind = FrameType::Code;
        match frame::allocate(state, machine, Which::Any, payer, guard, kind) {
            Ok(frame) => frames[at] = frame,
            Err(refusal) => {
                frames[..at].iter().for_each(|&frame| frame::release(state, frame));
                account::uncharge(state, payer, Resource::Regions, 1);
                return Err(refusal);
            }
        }
    }
    let mut code = &frames[..count];
    if table.0 == 0 {
        (table, code) = (frames[0], &frames[1..count]);
        state.regions.slots[index].methods = table;
    }
    account::count(state, payer, Resource::Code, pages as u32);
    let (_, native) = workshop::product(state, request.slots, length);
    for (frame, piece) in code.iter().zip(native.chunks(PAGE_SIZE as usize)) {
        machine.fill(frame.address(), piece);
    }
    window::show(state, machine, first, code, request.slots);
    let Request { roles, budget, offset, length, .. } = *request;
    let slots = request.slots as u32;
    let function = Function { page: first, pages, roles, slots, budget, offset, length };
    let at = place(table, request.method * PARTS + request.part as usize);
    machine.words_set(at, &function.to_words());
    state.published.census[Category::Code as usize].objects += 1;
    Ok(0)
}

/// `MethodCall`.
pub fn call<M: Machine>(
    state: &mut State,
    machine: &mut M,
    caller: EnvIndex,
    id: RegionId,
    (method, role): (u16, u16),
    words: [u64; 3],
) -> Answer {
    let index = region::find(state, id)?;
    let method = usize::from(method);
    if method >= METHODS {
        return Err(Refusal::new(Error::BadArgument, 1));
    }
    let role = region::check_role(role).map_err(|_| Refusal::new(Error::BadArgument, 2))?;
    let domain = DomainIndex::from(env::domain(state, caller));
    if !region::attached(state, domain, index, role | BY_METHOD) {
        return Err(Error::NotPermitted.into());
    }
    let table = state.regions.slots[index].methods;
    let body = function(machine, table, method, Part::Body);
    let body = body.ok_or(Refusal::new(Error::BadArgument, 1))?;
    if body.roles & 1 << role == 0 {
        return Err(Error::NotPermitted.into());
    }
    let bytes = state.published.regions[index].bytes;
    let first = region::physical(state, index, 0);
    let Downloads { state: all, part: copy, .. } = &mut state.downloads;
    let (all, copy) = (&mut all[..bytes as usize], &mut copy[..body.length as usize]);
    machine.read(first, all);
    copy.copy_from_slice(&all[body.offset as usize..][..copy.len()]);
    let mut result = 0;
    for part in [Part::Before, Part::Body, Part::After] {
        let Some(function) = function(machine, table, method, part) else { continue };
        let parameters = workshop::parameters(part, bytes, body.length);
        let signature = workshop::signature(&parameters, function.budget);
        let own = if part == Part::Body { Argument::Write(copy) } else { Argument::Read(copy) };
        let [a, b, c] = words.map(Argument::Word);
        let arguments = &mut [Argument::Read(all), own, a, b, c];
        let value = match machine.code_run(function.page, &signature, arguments) {
            Outcome::Returned(value) if part == Part::Body || value != 0 => value,
            ended => return Err(Refusal::new(Error::Refused, part as u64 | why(ended) << 8)),
        };
        if part == Part::Body {
            result = value;
        }
    }
    machine.fill(first + u64::from(body.offset), copy);
    let operations = &mut state.published.regions[index].operations;
    *operations = operations.wrapping_add(1);
    region::touched(state, index);
    Ok(result)
}

fn why(ended: Outcome) -> u64 {
    match ended {
        Outcome::Returned(_) => refused::DISAGREED,
        Outcome::Outside => refused::OUTSIDE,
        Outcome::Exhausted => refused::BUDGET,
    }
}

/// A region ends: its table waits for [`work`], which has the machine to show its code no more.
pub(crate) fn end(state: &mut State, table: Frame) {
    let account = left::worker(state.published.frames[table.0 as usize].account.into());
    let next = core::mem::replace(&mut state.accounts.records[account].left.methods, table.0);
    state.frames.records[table.0 as usize].set_next(next);
    left::mark(state, account);
}

/// Takes the functions of an account's regions that have ended out of the window while there is
/// room; is there more?
pub(crate) fn work<M: Machine>(state: &mut State, machine: &mut M, account: AccountIndex) -> bool {
    while state.accounts.records[account].left.methods != 0 {
        if !work::room(state, cost::METHODS) {
            return true;
        }
        work::spend(state, cost::METHODS);
        let table = Frame(state.accounts.records[account].left.methods);
        let next = state.frames.records[table.0 as usize].next();
        state.accounts.records[account].left.methods = next;
        state.frames.records[table.0 as usize].set_next(0);
        let payer = AccountIndex::from(state.published.frames[table.0 as usize].account);
        for number in 0..FUNCTIONS {
            let Some(function) = load(machine, table, number) else { continue };
            window::hide(state, machine, function.page..function.page + function.pages);
            forgetting::note(state, account);
            account::uncharge(state, payer, Resource::Regions, 1);
            account::uncharge(state, payer, Resource::Code, function.pages as u32);
            state.published.census[Category::Code as usize].objects.less(1);
        }
        frame::release(state, table);
    }
    false
}

/// The frames of a table and its functions, each held once, and how many functions there are.
#[cfg(test)]
pub(crate) fn held<M: Machine>(state: &State, machine: &M, table: Frame) -> (Vec<Frame>, usize) {
    let bound = (0..FUNCTIONS).filter_map(|number| load(machine, table, number));
    let mut frames = vec![table];
    let mut count = 0;
    for function in bound {
        let pages = function.page..function.page + function.pages;
        frames.extend(state.downloads.pages[pages].iter().map(|&frame| Frame(frame)));
        count += 1;
    }
    (frames, count)
}
