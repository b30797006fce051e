//! The `syscall` instruction, and one function for each call of `abi::call`.
//!
//! # Safety
//! This file holds the instruction itself. It touches only registers; what a call does to memory
//! (unmapping a page, say) is the business of those who make that call, and their names say so.
#![allow(unsafe_code)]

use abi::call::{
    CAPABILITY_SHIFT, Call, REVOKE_LATER, TRANSFER_REPLY, TRANSFER_SHIFT, TRANSFER_WAIT, number,
};
use abi::domain::Property;
use abi::error::Error;
use abi::id::{AccountId, DomainId, EnvId, FilterId, Frame, RegionId, RingId};
use abi::memory::Item;
use abi::region::{AS_DOMAIN, FIFO, ONE_GUEST, Place, RegionOperation, RegionWait, Step};
use abi::setup::EnvSetup;
use abi::word::{UserAddress, Which};
use core::arch::asm;

/// What was refused, and the number that explains it (`rdx`).
pub type Refused = (Error, u64);

/// The capability in slot 0: the domain's own fresh name.
pub const OWN: u8 = 0;

/// Makes `call`, naming the capability at index `capability`. Where it stands the call is known,
/// and little is left of its encoding.
#[inline(always)]
pub fn make(call: Call, capability: u8) -> Result<u64, Refused> {
    let (number, words) = call.encode();
    raw(u64::from(number) | u64::from(capability) << CAPABILITY_SHIFT, words)
}

/// Makes whatever call `rax` and the argument registers say.
#[inline]
pub fn raw(rax: u64, words: [u64; 6]) -> Result<u64, Refused> {
    let (error, value): (u64, u64);
    // SAFETY: the kernel changes rax, rdx and the caller-saved registers listed; memory only as the
    // call's documentation says.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") rax => error,
            inlateout("rdi") words[0] => _,
            inlateout("rsi") words[1] => _,
            inlateout("rdx") words[2] => value,
            inlateout("r10") words[3] => _,
            inlateout("r8") words[4] => _,
            inlateout("r9") words[5] => _,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    match Error::from_number(error) {
        None => Ok(value),
        Some(error) => Err((error, value)),
    }
}

fn at<T: ?Sized>(place: *const T) -> UserAddress {
    UserAddress(place.cast::<u8>() as u64)
}

/// `Yield`: gives the rest of the slice to `to` ([`EnvId::NONE`]: to whoever is next).
#[inline]
pub fn yield_to(to: EnvId) -> Result<u64, Refused> {
    make(Call::Yield { to }, 0)
}

/// `Sleep`: until the predicate, a posted bit, an event bit or the deadline; why (`upcall::woken`).
#[inline]
pub fn sleep(deadline: u64, posted: u64, events: u64, flags: u64) -> Result<u64, Refused> {
    make(Call::Sleep { deadline, posted, events, flags }, 0)
}

/// `Post`: bits to another environment.
#[inline]
pub fn post(capability: u8, env: EnvId, bits: u64) -> Result<u64, Refused> {
    make(Call::Post { env, bits }, capability)
}

/// `EnvHold`
pub fn env_hold(capability: u8, env: EnvId) -> Result<u64, Refused> {
    make(Call::EnvHold { env }, capability)
}

/// `EnvRelease`
pub fn env_release(capability: u8, env: EnvId) -> Result<u64, Refused> {
    make(Call::EnvRelease { env }, capability)
}

/// `EnvDestroy`
pub fn env_destroy(capability: u8, env: EnvId, word: u64) -> Result<u64, Refused> {
    make(Call::EnvDestroy { env, word }, capability)
}

/// Ends oneself with `word`.
pub fn exit(word: u64) -> ! {
    loop {
        // Nobody else can be running this environment, so the call does not come back.
        let _ = make(Call::EnvDestroy { env: EnvId::NONE, word }, OWN);
    }
}

/// `EnvAlloc` with any index and vector frame.
pub fn env_alloc(capability: u8, domain: DomainId, account: AccountId) -> Result<EnvId, Refused> {
    let call = Call::EnvAlloc { which: Which::Any, domain, account, vector: Which::Any };
    make(call, capability).map(|id| EnvId(id as u32))
}

/// `EnvSet`
pub fn env_set(capability: u8, env: EnvId, fields: u64, setup: &EnvSetup) -> Result<u64, Refused> {
    make(Call::EnvSet { env, fields, setup: at(setup) }, capability)
}

/// `EnvMove`: comes back only when refused.
pub fn env_move(capability: u8, domain: DomainId, fields: u64, setup: &EnvSetup) -> Refused {
    match make(Call::EnvMove { domain, fields, setup: at(setup) }, capability) {
        Err(refused) => refused,
        Ok(value) => (Error::WrongState, value),
    }
}

/// `EnvForget`: the word a dead environment left.
pub fn env_forget(env: EnvId) -> Result<u64, Refused> {
    make(Call::EnvForget { env }, 0)
}

/// `EnvEntrust`
pub fn env_entrust(env: EnvId, holder: EnvId) -> Result<u64, Refused> {
    make(Call::EnvEntrust { env, holder }, 0)
}

/// `DomainAlloc` with any index and root frame.
pub fn domain_alloc(
    capability: u8,
    account: AccountId,
    window: u64,
    bytes: u64,
) -> Result<DomainId, Refused> {
    let (which, root) = (Which::Any, Which::Any);
    let call = Call::DomainAlloc { which, account, root, window, bytes };
    make(call, capability).map(DomainId)
}

/// `DomainDestroy`
pub fn domain_destroy(capability: u8, domain: DomainId) -> Result<u64, Refused> {
    make(Call::DomainDestroy { domain }, capability)
}

/// `TableUpdate`
pub fn table_update(capability: u8, domain: DomainId, items: &[Item]) -> Result<u64, Refused> {
    let call = Call::TableUpdate { domain, items: at(items.as_ptr()), count: items.len() as u64 };
    make(call, capability)
}

/// `FrameRevoke`
pub fn frame_revoke(capability: u8, frame: Frame) -> Result<u64, Refused> {
    make(Call::FrameRevoke { frame, flags: 0 }, capability)
}

/// `FrameRevoke`, whose end the caller does not wait for; 1: that is later.
pub fn frame_revoke_later(capability: u8, frame: Frame) -> Result<u64, Refused> {
    make(Call::FrameRevoke { frame, flags: REVOKE_LATER }, capability)
}

/// Components as a call carries them: how many, and three at most in a word, lowest first.
fn pack(components: &[u16]) -> (u16, u64) {
    let parts = components.iter().enumerate().take(3);
    let packed = parts.fold(0, |sum, (at, &part)| sum | u64::from(part) << (16 * at));
    (components.len() as u16, packed)
}

/// `CapabilityDerive`
pub fn capability_derive(
    capability: u8,
    domain: DomainId,
    slot: u16,
    extend: &[u16],
    rights: u8,
) -> Result<u64, Refused> {
    let (extend, components) = pack(extend);
    let rights = u16::from(rights);
    once_taken_back(Call::CapabilityDerive { domain, slot, extend, components, rights }, capability)
}

/// Makes a call that enters capabilities, again while their names are being taken back from the
/// list: each refusal does a piece of that.
fn once_taken_back(call: Call, capability: u8) -> Result<u64, Refused> {
    loop {
        match make(call, capability) {
            Err((Error::WouldBlock, _)) => {}
            answer => return answer,
        }
    }
}

/// `DomainHolds`: does `domain` act for the user or group `number`? The count of changes to what it
/// holds.
pub fn domain_holds(domain: DomainId, kind: u16, number: u32) -> Result<u64, Refused> {
    make(Call::DomainHolds { domain, kind, number }, OWN)
}

/// `DomainSet`
pub fn domain_set(
    capability: u8,
    domain: DomainId,
    property: Property,
    value: u64,
) -> Result<u64, Refused> {
    make(Call::DomainSet { domain, property: property as u16, value }, capability)
}

/// `CapabilityPass`: the slots entered, a bit each.
pub fn capability_pass(capability: u8, domain: DomainId, slots: u16) -> Result<u64, Refused> {
    once_taken_back(Call::CapabilityPass { domain, slots }, capability)
}

/// `CapabilityToken`: the token for a capability of one's own, to be carried anywhere.
pub fn capability_token(capability: u8) -> Result<[u64; 3], Refused> {
    let word = |word| make(Call::CapabilityToken { word }, capability);
    Ok([word(0)?, word(1)?, word(2)?])
}

/// `CapabilityEnter`
pub fn capability_enter(slot: u16, [first, second, seal]: [u64; 3]) -> Result<u64, Refused> {
    once_taken_back(Call::CapabilityEnter { slot, first, second, seal }, 0)
}

/// `CapabilityRetract` of all below the capability's name extended by `components`.
pub fn capability_retract(capability: u8, components: &[u16]) -> Result<u64, Refused> {
    let (extend, packed) = pack(components);
    make(Call::CapabilityRetract { extend, components: packed }, capability)
}

/// `CapabilityDrop`
pub fn capability_drop(slot: u16) -> Result<u64, Refused> {
    make(Call::CapabilityDrop { slot }, 0)
}

/// `SliceAlloc`
pub fn slice_alloc(capability: u8, cpu: u16, position: Which, env: EnvId) -> Result<u64, Refused> {
    make(Call::SliceAlloc { cpu, position, env }, capability)
}

/// `SliceFree`
pub fn slice_free(capability: u8, cpu: u16, position: u32) -> Result<u64, Refused> {
    make(Call::SliceFree { cpu, position }, capability)
}

/// `RegionAlloc`
pub fn region_alloc(capability: u8, frames: &[u32]) -> Result<RegionId, Refused> {
    let call = Call::RegionAlloc { frames: at(frames.as_ptr()), count: frames.len() as u64 };
    make(call, capability).map(RegionId)
}

/// `RegionAlloc` of a fifo: one frame for its words and a power of two of frames for its data.
pub fn fifo_alloc(capability: u8, frames: &[u32]) -> Result<RegionId, Refused> {
    let count = frames.len() as u64 | FIFO;
    make(Call::RegionAlloc { frames: at(frames.as_ptr()), count }, capability).map(RegionId)
}

/// `RegionAlloc`, guarded as one's own domain is; `kind`: 0, or that of a fifo.
pub fn closed_region_alloc(frames: &[u32], kind: u64) -> Result<RegionId, Refused> {
    let count = frames.len() as u64 | kind | AS_DOMAIN;
    make(Call::RegionAlloc { frames: at(frames.as_ptr()), count }, OWN).map(RegionId)
}

/// `RegionAlloc` of a region to which one other domain attaches by a capability, the first.
pub fn one_guest_region_alloc(capability: u8, frames: &[u32]) -> Result<RegionId, Refused> {
    let count = frames.len() as u64 | ONE_GUEST;
    make(Call::RegionAlloc { frames: at(frames.as_ptr()), count }, capability).map(RegionId)
}

/// `RegionAttach`
pub fn region_attach(
    capability: u8,
    region: RegionId,
    role: u16,
    domain: DomainId,
) -> Result<u64, Refused> {
    make(Call::RegionAttach { region, role, domain }, capability)
}

/// `RegionPass`: at most `REGION_PLACES`.
pub fn region_pass(capability: u8, domain: DomainId, places: &[Place]) -> Result<u64, Refused> {
    let (count, places) = (places.len() as u64, at(places.as_ptr()));
    make(Call::RegionPass { domain, places, count }, capability)
}

/// `RegionDetach`
pub fn region_detach(region: RegionId, role: u16) -> Result<u64, Refused> {
    make(Call::RegionDetach { region, role }, 0)
}

/// `RegionOperate`. A program page that is missing faults here, at this call.
#[inline]
pub fn region_operate(operation: &RegionOperation) -> Result<u64, Refused> {
    make(Call::RegionOperate { operation: at(operation) }, 0)
}

/// `RegionAwait`: as [`region_operate`], but sleeps instead of failing.
#[inline]
pub fn region_await(
    wait: &RegionWait,
    deadline: u64,
    posted: u64,
    events: u64,
) -> Result<u64, Refused> {
    make(Call::RegionAwait { wait: at(wait), deadline, posted, events }, 0)
}

/// `RegionStep`: copies and moves a word of a ring on if it is `from` and, with `STEP_BESIDE`, the
/// one beside it `beside`. A program page that is missing faults here, at this call.
#[inline]
pub fn region_step(step: &Step, address: u64, from: u64, beside: u64) -> Result<u64, Refused> {
    let [which, piece, words] = step.to_words();
    make(Call::RegionStep { which, address, piece, words, from, beside }, 0)
}

/// `RegionStepOrWait`: as [`region_step`], but sleeps while the word beside it is `from`, too.
#[inline]
pub fn region_step_or_wait(
    step: &Step,
    address: u64,
    from: u64,
    posted: u64,
) -> Result<u64, Refused> {
    let [which, piece, words] = step.to_words();
    make(Call::RegionStepOrWait { which, address, piece, words, from, posted }, 0)
}

/// `MethodBind`: `binding` holds an `abi::method::Binding` and the program behind it, whose slots
/// are 8 bytes each.
pub fn method_bind(capability: u8, region: RegionId, binding: &[u8]) -> Result<u64, Refused> {
    let slots = (binding.len().saturating_sub(abi::method::BINDING_BYTES) / 8) as u64;
    make(Call::MethodBind { region, binding: at(binding.as_ptr()), slots }, capability)
}

/// `MethodCall`
#[inline]
pub fn method_call(
    region: RegionId,
    method: u16,
    role: u16,
    [first, second, third]: [u64; 3],
) -> Result<u64, Refused> {
    make(Call::MethodCall { region, method, role, first, second, third }, 0)
}

/// `PredicateSet`
pub fn predicate_set(atoms: &[abi::predicate::Atom]) -> Result<u64, Refused> {
    make(Call::PredicateSet { atoms: at(atoms.as_ptr()), count: atoms.len() as u64 }, 0)
}

/// `TimerSet`
pub fn timer_set(deadline: u64) -> Result<u64, Refused> {
    make(Call::TimerSet { deadline }, 0)
}

/// `RingAlloc`
pub fn ring_alloc(entries: &[abi::ring::RingEntry]) -> Result<RingId, Refused> {
    let call = Call::RingAlloc { entries: at(entries.as_ptr()), count: entries.len() as u64 };
    make(call, 0).map(RingId)
}

/// `RingFree`
pub fn ring_free(ring: RingId) -> Result<u64, Refused> {
    make(Call::RingFree { ring }, 0)
}

/// `FilterInsert`
pub fn filter_insert(
    capability: u8,
    program: &abi::filter::FilterProgram,
) -> Result<FilterId, Refused> {
    make(Call::FilterInsert { program: at(program) }, capability).map(FilterId)
}

/// `FilterDrop`
pub fn filter_drop(filter: FilterId) -> Result<u64, Refused> {
    make(Call::FilterDrop { filter }, 0)
}

/// `FilterReference`
pub fn filter_reference(
    capability: u8,
    filter: FilterId,
    domain: DomainId,
) -> Result<u64, Refused> {
    make(Call::FilterReference { filter, domain }, capability)
}

/// `FilterRing`
pub fn filter_ring(capability: u8, filter: FilterId, ring: RingId) -> Result<u64, Refused> {
    make(Call::FilterRing { filter, ring }, capability)
}

/// `NetTransmit`: `pending` is decremented when the packet has been sent.
pub fn net_transmit(
    capability: u8,
    interface: u16,
    pieces: &[abi::ring::Piece],
    pending: &core::sync::atomic::AtomicU64,
) -> Result<u64, Refused> {
    let call = Call::NetTransmit {
        interface,
        pieces: at(pieces.as_ptr()),
        count: pieces.len() as u64,
        pending: UserAddress(pending.as_ptr() as u64),
    };
    make(call, capability)
}

/// `ConsoleWrite`
pub fn console_write(capability: u8, stream: u16, bytes: &[u8]) -> Result<u64, Refused> {
    let call = Call::ConsoleWrite { stream, bytes: at(bytes.as_ptr()), len: bytes.len() as u64 };
    make(call, capability)
}

/// `ConsoleRing`
pub fn console_ring(capability: u8, page: u64) -> Result<u64, Refused> {
    make(Call::ConsoleRing { page }, capability)
}

/// `Entropy`
pub fn entropy() -> Result<u64, Refused> {
    make(Call::Entropy {}, 0)
}

/// `MachineEnd`
pub fn machine_end(capability: u8, how: u16, status: u16) -> Result<u64, Refused> {
    make(Call::MachineEnd { how, status }, capability)
}

/// `TraceSet`
pub fn trace_set(capability: u8, kinds: u64) -> Result<u64, Refused> {
    make(Call::TraceSet { kinds }, capability)
}

/// The six words that the stubs here carry in a transfer: rdi, rsi, rdx, r8, r9, r10.
pub type Message = [u64; 6];

/// `TransferSync`: sends `message`, waits for the reply. The callee gets, and may change, every
/// register; the stub saves what the calling convention keeps, the stack pointer in the save area.
/// A careful caller has no secret in its other registers.
pub fn transfer(to: EnvId, message: Message) -> Result<Message, Refused> {
    transfer_by(transfer_rax(to), message)
}

/// Pauses between calls of a server that runs on another processor: some 2 us.
const PAUSES: u32 = 16;

/// As [`transfer`], to a server that may serve another client: this one's time is the server's
/// until it accepts. Never refused as `Busy`; while the server runs on another processor, or waits
/// for something itself, it is called again and again: the client that has called longest is the
/// next to be served.
#[inline]
pub fn transfer_when_free(to: EnvId, message: Message) -> Result<Message, Refused> {
    match transfer(to, message) {
        Err((refused @ (Error::Busy | Error::WrongState), _)) => {
            transfer_again(to, message, refused)
        }
        ended => ended,
    }
}

/// The same, refused once.
#[cold]
#[inline(never)]
fn transfer_again(to: EnvId, message: Message, refused: Error) -> Result<Message, Refused> {
    let (mut rax, mut refused) = (transfer_rax(to), refused);
    loop {
        if refused == Error::WrongState {
            // This environment has no turns of its own to wait in, or the server has only begun.
            let _ = yield_to(to);
        } else if rax == transfer_rax(to) {
            rax |= TRANSFER_WAIT;
        } else {
            (0..PAUSES).for_each(|_| core::hint::spin_loop());
        }
        match transfer_by(rax, message) {
            Err((again @ (Error::Busy | Error::WrongState), _)) => refused = again,
            ended => return ended,
        }
    }
}

#[inline(always)]
fn transfer_by(rax: u64, message: Message) -> Result<Message, Refused> {
    let (error, mut reply): (u64, Message) = (rax, message);
    let status: u64;
    // SAFETY: rbx and rbp are saved on the stack, whose pointer is saved at gs:TRANSFER_RSP (the
    // thread's own page); every other register is declared changed.
    unsafe {
        asm!(
            "push rbx",
            "push rbp",
            "mov gs:[{rsp_at}], rsp",
            "syscall",
            "mov rsp, gs:[{rsp_at}]",
            "pop rbp",
            "pop rbx",
            rsp_at = const crate::upcall::block::TRANSFER_RSP,
            inlateout("rax") error => status,
            inlateout("rdi") reply[0],
            inlateout("rsi") reply[1],
            inlateout("rdx") reply[2],
            inlateout("r8") reply[3],
            inlateout("r9") reply[4],
            inlateout("r10") reply[5],
            lateout("rcx") _, lateout("r11") _,
            lateout("r12") _, lateout("r13") _, lateout("r14") _, lateout("r15") _,
        );
    }
    match Error::from_number(status) {
        None => Ok(reply),
        Some(error) => Err((error, reply[2])),
    }
}

/// The words that go along with a visit: rsi, rdx, r8, r9, r10.
pub type Carried = [u64; 5];

/// `DomainSwitch` to a domain that comes back: what it brings home. `Dead`: a fault there has ended
/// the visit; the number is its cause. The kernel keeps the stack pointer, FS and GS base; flags
/// and vector registers, with their modes, are as after reset.
pub fn domain_switch(
    capability: u8,
    domain: DomainId,
    carried: Carried,
) -> Result<Carried, Refused> {
    let (number, _) = Call::DomainSwitch { domain }.encode();
    let rax = u64::from(number) | u64::from(capability) << CAPABILITY_SHIFT;
    let (mut back, status): (Carried, u64) = (carried, rax);
    let error: u64;
    // SAFETY: rbx and rbp are saved on the stack; every other register is declared changed. What
    // happens to memory is the business of the domain visited, as far as it has that memory.
    unsafe {
        asm!(
            "push rbx",
            "push rbp",
            "syscall",
            "pop rbp",
            "pop rbx",
            inlateout("rax") status => error,
            inlateout("rdi") domain.0 => _,
            inlateout("rsi") back[0],
            inlateout("rdx") back[1],
            inlateout("r8") back[2],
            inlateout("r9") back[3],
            inlateout("r10") back[4],
            lateout("r12") _, lateout("r13") _, lateout("r14") _, lateout("r15") _,
            clobber_abi("sysv64"),
        );
    }
    match Error::from_number(error) {
        None => Ok(back),
        Some(error) => Err((error, back[1])),
    }
}

/// `rax` of a transfer to `to`.
pub const fn transfer_rax(to: EnvId) -> u64 {
    number::TransferSync as u64 | (to.0 as u64) << TRANSFER_SHIFT
}

/// `rax` of a reply to `to`, which accepts the next transfer; it is never a call.
pub const fn reply_rax(to: EnvId) -> u64 {
    transfer_rax(to) | TRANSFER_REPLY
}
