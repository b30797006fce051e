//! Where downloaded functions are verified and compiled: one at a time, in pieces.
//!
//! ```text
//!  the caller's bytes ── read once ──► program ── verify ── compile ──► native ──► frames
//!                                      └──── as much as a hold has room for ────┘
//! ```
//! The call runs again until its function is done; nothing of it is anywhere but here till then.
//! A job whose caller does not come back is another one's to push aside. Accounts begin jobs in the
//! order in which they have asked: who begins one after the other waits behind those refused
//! meanwhile.

use crate::account;
use crate::answer::Refusal;
use crate::compiled::Cells;
use crate::identity::Thread;
use crate::index::{AccountIndex, EnvIndex};
use crate::machine::Machine;
use crate::state::State;
use crate::work::{self, cost};
use abi::error::Error;
use abi::id::{AccountId, RegionId};
use abi::layout::PAGE_SIZE;
use abi::limits::{METHOD_PAGES, METHOD_SLOTS, METHOD_STATE_BYTES, Resource, SLICE_NS};
use abi::method::Part;
use code::compiler::{Compilation, FRAME_BYTES_MAX, SLOT_BYTES_MAX};
use code::instruction::SLOT_BYTES;
use code::signature::{Dialect, Parameter, Rights, Signature, WORD};
use code::verifier::{Point, Progress, Verification};

const PROGRAM: usize = METHOD_SLOTS * SLOT_BYTES;
const _: () = assert!(METHOD_SLOTS * SLOT_BYTES_MAX + FRAME_BYTES_MAX <= NATIVE);
const NATIVE: usize = METHOD_PAGES * PAGE_SIZE as usize;
const STATE: usize = METHOD_STATE_BYTES as usize;

/// Slots that the verifier has work space for.
pub const POINTS: usize = METHOD_SLOTS;
/// Bytes of the other work space: a program, its compiled form, a region's bytes, a part of them.
pub const BYTES: usize = PROGRAM + NATIVE + 2 * STATE;

/// Slots that are looked at between two looks at the work done.
const PIECE: usize = 8;
/// After so long a caller that has not come back has lost its place.
const PATIENCE_NS: u64 = 2 * SLICE_NS;

/// What is known of downloaded code, and the room to work on it.
pub struct Downloads {
    /// The frame in each page of [`crate::window`].
    pub(crate) pages: &'static mut [u32],
    /// Compiled predicates.
    pub(crate) cells: Cells,
    points: &'static mut [Point],
    program: &'static mut [u8],
    native: &'static mut [u8],
    /// The region that a method is called on, and the copy of the part that it may change.
    pub(crate) state: &'static mut [u8],
    pub(crate) part: &'static mut [u8],
    job: Option<Job>,
}

impl Request {
    fn parameters(&self) -> [Parameter; 5] {
        parameters(self.part, self.bytes, self.length)
    }
}

impl Downloads {
    /// Nothing has been downloaded: [`window::PAGES`](crate::window::PAGES) pages, cells for
    /// predicates, [`POINTS`] points, [`BYTES`] bytes.
    pub fn new(
        pages: &'static mut [u32],
        cells: Cells,
        points: &'static mut [Point],
        bytes: &'static mut [u8],
    ) -> Self {
        let (program, rest) = bytes.split_at_mut(PROGRAM);
        let (native, rest) = rest.split_at_mut(NATIVE);
        let (state, part) = rest.split_at_mut(STATE);
        Self { pages, cells, points, program, native, state, part, job: None }
    }
}

/// What is asked for: all of it must be the same when the call runs again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub region: RegionId,
    pub method: usize,
    pub part: Part,
    pub roles: u8,
    pub budget: u32,
    /// What of the region is the method's.
    pub offset: u32,
    pub length: u32,
    /// All bytes of it.
    pub bytes: u32,
    pub slots: usize,
}

/// What a function of a method is given: a region of so many `bytes`, so many of them its own.
pub(crate) fn parameters(part: Part, bytes: u32, length: u32) -> [Parameter; 5] {
    let rights = if part == Part::Body { Rights::Write } else { Rights::Read };
    [Parameter::area(bytes, Rights::Read), Parameter::area(length, rights), WORD, WORD, WORD]
}

/// The signature of such parameters: nothing to call, nothing but inputs.
pub(crate) fn signature(parameters: &[Parameter], budget: u32) -> Signature<'_> {
    Signature { parameters, calls: &[], budget, dialect: Dialect::Deterministic }
}

/// A function on its way.
struct Job {
    owner: Thread,
    request: Request,
    progress: Progress,
    /// It is verified, and is being compiled.
    compilation: Option<Compilation>,
    /// When its caller was last here.
    seen_ns: u64,
}

/// Since when an account waits to begin a job, 0: it does not, and when it has last asked.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Queued {
    since_ns: u64,
    seen_ns: u64,
}

impl Queued {
    /// Does it wait still? Its turn to ask again comes once in a round, which has a slice for each
    /// account at least.
    fn waits(&self, now: u64, accounts: u32) -> bool {
        let patience = PATIENCE_NS * (u64::from(accounts) + 1);
        self.since_ns != 0 && now.saturating_sub(self.seen_ns) < patience
    }
}

/// The account at `payer` may begin a job, or waits behind those that have waited longer.
fn in_turn(state: &mut State, payer: AccountIndex, now: u64) -> Result<(), Refusal> {
    let accounts = state.published.accounts[account::FIRST].used[Resource::Accounts as usize];
    let own = state.accounts.records[payer].queued;
    let since = if own.waits(now, accounts) { own.since_ns } else { u64::MAX };
    let all = (1..state.published.accounts.len()).map(AccountIndex::new);
    work::spend(state, cost::LOOK * all.len() as u32);
    let before = |index: AccountIndex| {
        let other = state.accounts.records[index].queued;
        other.since_ns < since && other.waits(now, accounts)
    };
    if all.into_iter().any(before) {
        wait(state, payer, now);
        return Err(Error::WouldBlock.into());
    }
    state.accounts.records[payer].queued = Queued::default();
    Ok(())
}

/// The account at `payer` waits to begin a job.
fn wait(state: &mut State, payer: AccountIndex, now: u64) {
    let accounts = state.published.accounts[account::FIRST].used[Resource::Accounts as usize];
    let queued = &mut state.accounts.records[payer].queued;
    if !queued.waits(now, accounts) {
        queued.since_ns = now.max(1);
    }
    queued.seen_ns = now;
}

/// Begins a job for the environment at `caller`, or goes on with it, if it is the same still.
pub(crate) fn enter<M: Machine>(
    state: &mut State,
    machine: &mut M,
    caller: EnvIndex,
    request: &Request,
    program: &[u8],
) -> Result<(), Refusal> {
    let (owner, now) = (Thread::of(state, caller), machine.now_ns());
    let payer = AccountIndex::from(AccountId(state.published.envs[caller].account));
    work::spend(state, cost::TRANSFER);
    let others = state.downloads.job.as_ref().filter(|job| job.owner != owner);
    if let Some(job) = others
        && job.owner.living(state).is_some()
        && now.saturating_sub(job.seen_ns) < PATIENCE_NS
    {
        wait(state, payer, now);
        return Err(Error::WouldBlock.into());
    }
    let Downloads { program: kept, job, .. } = &mut state.downloads;
    if let Some(job) = job
        && job.owner == owner
        && job.request == *request
        && kept[..program.len()].as_chunks::<8>().0 == program.as_chunks::<8>().0
    {
        job.seen_ns = now;
        return Ok(());
    }
    *job = None;
    in_turn(state, payer, now)?;
    let Downloads { points, program: kept, job, .. } = &mut state.downloads;
    kept[..program.len()].copy_from_slice(program);
    let parameters = request.parameters();
    let signature = signature(&parameters, request.budget);
    let program = &kept[..program.len()];
    let progress = Verification::begin(program, &signature, points).map_err(not_verified)?.pause();
    *job = Some(Job { owner, request: *request, progress, compilation: None, seen_ns: now });
    Ok(())
}

fn not_verified(error: code::error::Error) -> Refusal {
    Refusal::new(Error::NotVerified, error.at as u64 | u64::from(error.why.number()) << 32)
}

/// Goes on with the job while there is room; how many bytes it became, if it is done.
pub(crate) fn advance<M: Machine>(
    state: &mut State,
    machine: &mut M,
) -> Result<Option<usize>, Refusal> {
    loop {
        if !work::room(state, cost::SLOTS) {
            return Ok(None);
        }
        work::spend(state, cost::SLOTS);
        let done = piece(state, machine);
        if !matches!(done, Ok(None)) {
            state.downloads.job = None;
            return done;
        }
    }
}

fn piece<M: Machine>(state: &mut State, machine: &mut M) -> Result<Option<usize>, Refusal> {
    let Downloads { points, program, native, job: Some(job), .. } = &mut state.downloads else {
        return Ok(None);
    };
    let parameters = job.request.parameters();
    let signature = signature(&parameters, job.request.budget);
    let program = &program[..job.request.slots * SLOT_BYTES];
    let points = &mut points[..job.request.slots];
    let mut verification = Verification::resume(program, &signature, points, job.progress);
    let Some(mut compilation) = job.compilation else {
        if verification.advance(PIECE).map_err(not_verified)? {
            let seed = machine.random().unwrap_or(job.seen_ns);
            job.compilation = Some(Compilation::begin(seed));
        }
        job.progress = verification.pause();
        return Ok(None);
    };
    // It has come to its end: that is what a compilation begins with.
    let Some(mut verified) = verification.finish() else { return Ok(None) };
    let compiled = compilation.advance(&mut verified, native, PIECE);
    job.compilation = Some(compilation);
    compiled.map_err(|_| Refusal::new(Error::TooLarge, METHOD_PAGES as u64))
}

/// The program of the job that was done last, and what it became.
pub(crate) fn product(state: &State, slots: usize, length: usize) -> (&[u8], &[u8]) {
    let Downloads { program, native, .. } = &state.downloads;
    (&program[..slots * SLOT_BYTES], &native[..length])
}
