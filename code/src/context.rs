//! What compiled code is given: one block of memory, laid out as the code expects it.

use core::marker::PhantomData;
use core::mem::offset_of;

use crate::argument::{self, Argument, Mismatch, Outcome};
use crate::signature::{AREAS, PARAMETERS_MAX, Rights, STACK, STACK_BYTES, Signature};

/// How compiled code says that it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Ending {
    /// The result is in the context.
    Returned = 0,
    /// The budget is spent.
    Exhausted = 1,
    /// An access was outside.
    Outside = 2,
}

/// Where an area is, and how much of it may be read and written: 0 if it may not.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
struct Entry {
    base: u64,
    readable: u64,
    writable: u64,
    /// Entries are a power of two apart.
    unused: u64,
}

/// The block. It borrows the memory of the arguments for as long as it exists; the code runs on it
/// where it lies, so that it must not be moved between [`Context::prepare`] and the run.
#[derive(Debug)]
#[repr(C)]
pub struct Context<'m> {
    result: u64,
    budget: u64,
    calls: u64,
    /// Whoever runs the code finds its own here when a call comes.
    pub own: u64,
    arguments: [u64; PARAMETERS_MAX],
    areas: [Entry; AREAS],
    stack: [u64; STACK_BYTES as usize / 8],
    memory: PhantomData<&'m mut [u8]>,
}

pub(crate) const RESULT: i32 = offset_of!(Context, result) as i32;
pub(crate) const BUDGET: i32 = offset_of!(Context, budget) as i32;
pub(crate) const CALLS: i32 = offset_of!(Context, calls) as i32;
pub(crate) const ARGUMENTS: i32 = offset_of!(Context, arguments) as i32;
pub(crate) const AREAS_AT: i32 = offset_of!(Context, areas) as i32;
pub(crate) const STACK_AT: i32 = offset_of!(Context, stack) as i32;
pub(crate) const AREA_ENTRY: i32 = size_of::<Entry>() as i32;
pub(crate) const BASE: i32 = offset_of!(Entry, base) as i32;
pub(crate) const READABLE: i32 = offset_of!(Entry, readable) as i32;
pub(crate) const WRITABLE: i32 = offset_of!(Entry, writable) as i32;
// The compiled code shifts an area's number by this.
const _: () = assert!(AREA_ENTRY == 1 << 5);

impl<'m> Context<'m> {
    /// A context for one signature and its arguments. `calls` is the address of a table of
    /// functions, in the order of the signature's calls: `extern "sysv64" fn(*mut Context, u64 ×
    /// arguments) -> u64`, each of bounded time.
    ///
    /// # Errors
    /// An argument does not fit the signature.
    pub fn new(
        signature: &Signature,
        arguments: &'m mut [Argument],
        calls: u64,
    ) -> Result<Self, Mismatch> {
        argument::check(signature, arguments)?;
        let mut context = Self {
            result: 0,
            budget: u64::from(signature.budget),
            calls,
            own: 0,
            arguments: [0; PARAMETERS_MAX],
            areas: [Entry::default(); AREAS],
            stack: [0; STACK_BYTES as usize / 8],
            memory: PhantomData,
        };
        for (position, argument) in arguments.iter_mut().enumerate() {
            let base = match argument {
                Argument::Word(value) => {
                    context.arguments[position] = *value;
                    continue;
                }
                Argument::Read(memory) => memory.as_ptr().expose_provenance(),
                Argument::Write(memory) => memory.as_mut_ptr().expose_provenance(),
            };
            let Some((bytes, rights)) = signature.area(position + 1) else { continue };
            let writable = if rights == Rights::Write { u64::from(bytes) } else { 0 };
            let readable = u64::from(bytes);
            context.areas[position + 1] =
                Entry { base: base as u64, readable, writable, unused: 0 };
        }
        Ok(context)
    }

    /// Writes down where the context itself lies, now that it lies there; answers its address.
    pub fn prepare(&mut self) -> *mut Self {
        let stack = self.stack.as_mut_ptr().expose_provenance() as u64;
        let length = u64::from(STACK_BYTES);
        self.areas[STACK] = Entry { base: stack, readable: length, writable: length, unused: 0 };
        for entry in self.areas.iter_mut().filter(|entry| entry.readable == 0) {
            // An access that a wrong guess lets through goes to the first bytes of the stack.
            entry.base = stack;
        }
        self
    }

    /// What is left of the budget, which is for all runs of the context together; 0 once it is
    /// spent.
    pub fn budget(&self) -> u64 {
        self.budget
    }

    /// How the run ended, by the word that the code answered.
    pub fn outcome(&self, ending: u64) -> Outcome {
        match ending {
            ending if ending == Ending::Returned as u64 => Outcome::Returned(self.result),
            ending if ending == Ending::Exhausted as u64 => Outcome::Exhausted,
            _ => Outcome::Outside,
        }
    }
}
