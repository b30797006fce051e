//! Every order in which processors can ask each other to forget translations.
//!
//! Nobody goes on too early, and nobody waits for ever.

mod tried;

use abi::atomic::{Atomic, Ordering};
use lockfree::mailbox::Mailbox;
use loom::cell::Cell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU64;
use loom::thread;
use tried::{Tried, try_all};

type Word = Tried<AtomicU64>;

/// Processors, and a page that each of them may take from the other.
struct Machine {
    boxes: [Mailbox<Word>; 2],
    /// Whether the page of this processor is mapped: an entry of a page table.
    entries: [Word; 2],
    pages: [Cell<bool>; 2],
    ended: Word,
}

impl Machine {
    fn new() -> Self {
        let boxes = std::array::from_fn(|_| Mailbox::new(Word::default(), Word::default()));
        let entries = [(); 2].map(|()| Word::default());
        let pages = [(); 2].map(|()| Cell::new(false));
        Self { boxes, entries, pages, ended: Word::default() }
    }

    /// A program on this processor looks at its page, by the translation it has, or by the entry.
    fn touch(&self, cpu: usize, translation: &mut Option<bool>) {
        let gone = || self.entries[cpu].load(Ordering::Relaxed) != 0;
        if !*translation.get_or_insert_with(gone) {
            // Loom complains if somebody changes it meanwhile.
            assert!(!self.pages[cpu].get(), "somebody else's");
        }
    }

    /// The flush's interrupt, or a processor that waits. It may use what it has until it is gone.
    fn serve(&self, cpu: usize, translation: &mut Option<bool>) {
        self.boxes[cpu].serve(|| {
            if translation.is_some() {
                self.touch(cpu, translation);
            }
            *translation = None;
        });
    }

    /// Takes the other one's page: the entry, then the translations, then the page is somebody's.
    fn take(&self, cpu: usize, translation: &mut Option<bool>) {
        let other = 1 - cpu;
        self.entries[other].swap(1, Ordering::SeqCst);
        let request = self.boxes[other].ask();
        while !self.boxes[other].has_answered(request) {
            self.serve(cpu, translation);
            Word::pause();
        }
        self.pages[other].set(true);
    }

    /// Is interrupted until everybody has ended.
    fn end(&self, cpu: usize, translation: &mut Option<bool>) {
        self.ended.fetch_add(1, Ordering::SeqCst);
        while self.ended.load(Ordering::SeqCst) < 2 {
            self.serve(cpu, translation);
            Word::pause();
        }
    }
}

fn meet(switches: usize, parties: [fn(&Machine, usize, &mut Option<bool>); 2]) {
    try_all(switches, move || {
        let machine = Arc::new(Machine::new());
        let other = machine.clone();
        let run = move |machine: &Machine, cpu: usize| {
            let mut translation = None;
            parties[cpu](machine, cpu, &mut translation);
            machine.end(cpu, &mut translation);
        };
        let second = thread::spawn(move || run(&other, 1));
        run(&machine, 0);
        second.join().expect("the second processor");
    });
}

#[test]
fn a_page_is_given_on_when_nobody_has_its_translation() {
    meet(
        4,
        [Machine::take, |machine, cpu, translation| {
            for _ in 0..3 {
                machine.touch(cpu, translation);
                machine.serve(cpu, translation);
            }
        }],
    );
}

#[test]
fn two_that_ask_each_other_both_go_on() {
    let asker = |machine: &Machine, cpu: usize, translation: &mut Option<bool>| {
        machine.touch(cpu, translation);
        machine.take(cpu, translation);
        machine.touch(cpu, translation);
    };
    meet(3, [asker, asker]);
}

/// Two requests of one processor: each is answered by a flush that began behind it, and sees why.
#[test]
fn an_older_answer_is_none() {
    try_all(4, || {
        let mailbox = Arc::new(Mailbox::new(Word::default(), Word::default()));
        let (changed, seen) = (Arc::new(Word::default()), Arc::new(Cell::new(0)));
        let (other, there, sees) = (mailbox.clone(), changed.clone(), seen.clone());
        let server = thread::spawn(move || {
            while !other.has_answered(2) {
                other.serve(|| sees.set(there.load(Ordering::Relaxed)));
                Word::pause();
            }
        });
        for change in 1..=2 {
            changed.store(change, Ordering::Relaxed);
            let request = mailbox.ask();
            while !mailbox.has_answered(request) {
                Word::pause();
            }
            assert_eq!(seen.get(), change, "flushed too early");
        }
        server.join().expect("the server");
    });
}
