//! The victim at work: its script, step by step, and what it sees.

use crate::index::EnvIndex;

use super::ground::{AFTER, Ground, LARGE, MAC, Request, SAVE};
use super::script::{FORKED, HEAP, HEAP_PAGES, Keep, Scene, Script, Secret, Step, filled};
use super::{mixed, view};
use crate::dispatch::Outcome;
use crate::machine::Machine;
use crate::tests::SYNC;
use crate::{env, net};
use abi::call::{Call, SLEEP_ACCEPT, TRANSFER_REPLY, TRANSFER_SHIFT, number};
use abi::error::Error;
use abi::layout::PAGE_SIZE;
use abi::limits::RESOURCES;
use abi::upcall::offset;
use abi::word::Word;
use std::collections::HashMap;

/// Pages that are asked for when all is to be taken.
pub(super) const MOST: u64 = 180;
/// How often a call that would block is repeated at most.
const PATIENCE: u32 = 20_000;
/// The page of the save areas that environments have which come and go: what is written there hangs
/// on when they run.
const PASSING: u64 = SAVE + 0x8_0000;

/// What the victim has seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    /// What a call answered.
    Answer { what: &'static str, error: Option<Error>, value: u64 },
    /// What a page holds, in one word; `None`: it is not there.
    Page { page: u64, holds: Option<u64> },
    /// What the server replied.
    Reply([u64; 6]),
    /// What its account uses of each resource.
    Room([u32; RESOURCES]),
    /// All pages: where, whether it may be written, the first page that shows its frame, contents.
    Memory(Vec<(u64, bool, u64, u64)>),
}

pub(super) struct Victim {
    script: Script,
    secret: Secret,
    at: usize,
    slots: Vec<u64>,
    /// The call that it waits in.
    waits: Option<Request>,
    repeated: u32,
    pub(super) trace: Vec<Seen>,
}

impl Victim {
    pub(super) fn new(script: Script, secret: Secret) -> Self {
        let slots = vec![0; script.slots];
        Self { script, secret, at: 0, slots, waits: None, repeated: 0, trace: vec![] }
    }

    /// Has it claimed its packets?
    pub(super) fn has_begun(&self) -> bool {
        self.trace.len() > 2
    }

    pub(super) fn is_done(&self) -> bool {
        self.at >= self.script.steps.len()
    }

    /// One of its environments has the processor.
    pub(super) fn act(&mut self, ground: &mut Ground, cpu: usize, index: usize) {
        ground.compute(index, self.secret.word(self.at as u64));
        let (main, server) = (ground.victim.envs[0], ground.victim.envs[1]);
        if index == main {
            return self.go_on(ground, cpu, index);
        }
        if index == server {
            return serve(ground, cpu, index);
        }
        let sleep = Call::Sleep { deadline: 0, posted: 0, events: 0, flags: 0 };
        ground.call(cpu, index, &Request::new(sleep, 0, &[]));
    }

    fn go_on(&mut self, ground: &mut Ground, cpu: usize, index: usize) {
        if let Some(mut request) = self.waits.take() {
            let context = *ground.parts().1.context(index);
            if context.rip != AFTER {
                assert_eq!(context.rip, AFTER - 2, "an upcall though it masks them");
                request.words = ground.words(index);
                let outcome = ground.call(cpu, index, &request);
                return self.made(ground, index, request, outcome);
            }
            self.answered(ground, index, (context.rax, context.rdx));
        }
        while let Some(step) = self.script.steps.get(self.at) {
            let request = match step {
                Step::Call { make, .. } => {
                    let frame =
                        |page| ground.page(index, page).map_or(0, |leaf| leaf.frame.0.into());
                    let (slots, secret, now) = (&self.slots[..], self.secret, ground.now());
                    let account = ground.victim.account;
                    make(&Scene { slots, secret, now, account, frame: &frame })
                }
                Step::Ask { salt } => self.question(ground, *salt),
                _ => {
                    self.by_itself(ground, index);
                    self.at += 1;
                    continue;
                }
            };
            let outcome = ground.call(cpu, index, &request);
            return self.made(ground, index, request, outcome);
        }
        // Done: it leaves the processor to others.
        let sleep = Call::Sleep { deadline: 0, posted: 0, events: 0, flags: 0 };
        ground.call(cpu, index, &Request::new(sleep, 0, &[]));
    }

    fn question(&self, ground: &Ground, salt: u64) -> Request {
        let server = env::id(ground.state(), EnvIndex::new(ground.victim.envs[1])).to_word();
        let word = u64::from(number::TransferSync) | server << TRANSFER_SHIFT;
        let words = [0, 1, 2, 3, 4, 5].map(|at| filled(self.secret, salt, at));
        Request { word, words, memory: vec![] }
    }

    fn made(&mut self, ground: &mut Ground, index: usize, mut request: Request, outcome: Outcome) {
        match outcome {
            Outcome::Answer(error, value) => self.answered(ground, index, (error, value)),
            Outcome::Again => {
                request.words = ground.words(index);
                ground.parts().1.context(index).again();
                self.waits = Some(request);
            }
            Outcome::Left | Outcome::Enter(_) => self.waits = Some(request),
            Outcome::Fault(_) | Outcome::Restart | Outcome::Moved => panic!("{outcome:?}"),
        }
    }

    fn answered(&mut self, ground: &mut Ground, index: usize, (error, value): (u64, u64)) {
        let error = Error::from_number(error);
        let step = &self.script.steps[self.at];
        let (what, keep) = match step {
            Step::Call { what, keep, .. } => (*what, *keep),
            _ => ("TransferSync", Keep::All),
        };
        let later = match error {
            Some(Error::WouldBlock | Error::Busy) => true,
            Some(Error::WrongState) => what == "EnvForget",
            _ => false,
        };
        if later {
            self.repeated += 1;
            assert!(self.repeated < PATIENCE, "{what} never comes to its end");
            return;
        }
        self.repeated = 0;
        let mut kept = value;
        if let Keep::As(slot) = keep {
            self.slots[slot] = if error.is_none() { value } else { 0 };
        }
        if keep != Keep::All && error.is_none() {
            kept = 0;
        }
        self.at += 1;
        match step {
            Step::Ask { .. } if error.is_none() => {
                self.trace.push(Seen::Reply(ground.words(index)));
            }
            _ if keep == Keep::Nothing => {}
            _ => self.trace.push(Seen::Answer { what, error, value: kept }),
        }
    }

    /// A step that is no call.
    fn by_itself(&mut self, ground: &mut Ground, index: usize) {
        match self.script.steps[self.at] {
            Step::Fill { page, salt } => {
                for at in 0..PAGE_SIZE / 8 {
                    ground.store(index, page + 8 * at, filled(self.secret, salt, at));
                }
            }
            Step::Store { address, word } => {
                ground.store(index, address, word);
            }
            Step::Read { page } => {
                let holds = ground.load_page(index, page).map(|words| digest(&words));
                self.trace.push(Seen::Page { page, holds });
            }
            Step::Packet { salt } => {
                let mut packet: Vec<u8> =
                    (0..20).flat_map(|at| filled(self.secret, salt, at).to_le_bytes()).collect();
                packet[..6].copy_from_slice(&MAC.to_le_bytes()[..6]);
                packet[6..14].copy_from_slice(&[2, 0, 0, 0, 0, 1, 5 + (salt % 2) as u8, 0]);
                let (state, machine) = ground.parts();
                net::receive(state, machine, 0, &packet);
            }
            Step::Sent => ground.send_all(),
            Step::Look => self.look(ground, index),
            Step::Call { .. } | Step::Ask { .. } => {}
        }
    }

    fn look(&mut self, ground: &mut Ground, index: usize) {
        ground.settle();
        for word in [offset::PENDING, offset::EVENTS] {
            ground.saved(index, word, 0);
        }
        let account = ground.victim.account.index();
        self.trace.push(Seen::Room(ground.state().published.accounts[account].used));
        let own = env::domain(ground.state(), EnvIndex::new(index)).index();
        let mut first = HashMap::new();
        let mut all = vec![];
        for (page, leaf) in view::leaves(ground, own) {
            if [PASSING, PASSING + super::ground::APPLICATION].contains(&page) {
                continue;
            }
            let shows = *first.entry(leaf.frame).or_insert(page);
            let mut words = ground.load_page(index, page).expect("it is there");
            if page & !0xf_ffff == SAVE {
                for timely in [offset::EVENTS, offset::HELD_OFF, offset::ACCEPTING] {
                    words[timely / 8] = 0;
                }
            }
            // What nobody has written since it was given out may be zeros or what the account
            // itself had left there.
            let told = !(HEAP + (HEAP_PAGES + 1) * PAGE_SIZE..FORKED).contains(&page)
                && !(LARGE..LARGE + 512 * PAGE_SIZE).contains(&page);
            let holds = if told { digest(&words) } else { 0 };
            all.push((page, leaf.writable, shows, holds));
        }
        self.trace.push(Seen::Memory(all));
    }
}

fn digest(words: &[u64]) -> u64 {
    words.iter().fold(0, |sum, &word| mixed(sum ^ word).wrapping_add(1))
}

/// The server replies to its own side; who else asks hears nothing of what it knows.
fn serve(ground: &mut Ground, cpu: usize, index: usize) {
    let context = *ground.parts().1.context(index);
    let sleep = Call::Sleep { deadline: 0, posted: 0, events: 0, flags: SLEEP_ACCEPT };
    if context.rip == SYNC {
        let main = env::id(ground.state(), EnvIndex::new(ground.victim.envs[0])).to_word();
        let mine = context.rcx == main;
        if !mine {
            // All registers are the message.
            ground.compute(index, 0);
        }
        let words = if mine { ground.words(index).map(|word| word ^ 0x5555) } else { [0; 6] };
        let word = u64::from(number::TransferSync) | context.rcx << TRANSFER_SHIFT;
        let reply = Request { word: word | TRANSFER_REPLY, words, memory: vec![] };
        match ground.call(cpu, index, &reply) {
            // Who asked has gone.
            Outcome::Answer(..) => {}
            _ => return,
        }
    }
    ground.call(cpu, index, &Request::new(sleep, 0, &[]));
}
