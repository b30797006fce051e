//! Which user has which account, kept where the server's next life finds it.
//!
//! The notes lie in a region that init makes and attaches each life to: nobody else writes or reads
//! there. What stands in them is the server's own word, and counts only as long as the kernel
//! publishes an account of that id.
//!
//! ```text
//!   region  │ 0 │ 1 │ 2: id, user │ 3: id, user │ …     at the account's index; id 0: none
//! ```

use abi::id::{AccountId, RegionId};
use abi::limits::ACCOUNTS;
use abi::published::{AccountRecord, Table};
use abi::region::{COPY_NONE, COPY_OUT, RegionOperation, WordAt};
use xok::call::{self, Refused};
use xok::published;

/// Bytes of a note: the account's id, then the user.
const NOTE: usize = 16;

/// A user, and the account that it has.
#[derive(Clone, Copy)]
pub struct Note {
    pub user: u32,
    pub account: AccountId,
}

/// All of them, by the account's index.
pub struct Notes {
    region: RegionId,
    notes: [Option<Note>; ACCOUNTS],
    /// The last that were struck out, round and round: which user a child was that is waited for
    /// late, or a signal's sender that has ended, is told by the account that has paid for it. A
    /// user's account goes once in a look, so no user pushes the others' out.
    gone: [Option<Note>; ACCOUNTS],
    next_gone: usize,
}

/// The account as it is published, if it is there still.
pub fn record(account: AccountId) -> Option<AccountRecord> {
    let record: Option<AccountRecord> = published::record(Table::Accounts, account.index());
    record.filter(|record| record.id == account.0)
}

impl Notes {
    /// What the former life has noted.
    pub fn read(region: RegionId) -> Result<Self, Refused> {
        let mut words = [[0_u64; 2]; ACCOUNTS];
        let operation = RegionOperation {
            region: region.0,
            direction: COPY_OUT,
            address: words.as_mut_ptr() as u64,
            len: (ACCOUNTS * NOTE) as u32,
            ..RegionOperation::default()
        };
        call::region_operate(&operation)?;
        let notes = core::hint::black_box(words).map(|[id, user]| {
            let note = Note { user: user as u32, account: AccountId(id) };
            (id != 0 && record(note.account).is_some()).then_some(note)
        });
        Ok(Self { region, notes, gone: [None; ACCOUNTS], next_gone: 0 })
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = Note> {
        self.notes.iter().flatten().copied()
    }

    /// The one of the account at this index.
    pub fn at(&self, index: usize) -> Option<Note> {
        self.notes.get(index).copied().flatten()
    }

    /// The user's account.
    pub fn of(&self, user: u32) -> Option<AccountId> {
        self.iter().find(|note| note.user == user).map(|note| note.account)
    }

    /// The user that has this account, or had it.
    pub fn whose(&self, account: AccountId) -> Option<u32> {
        let note = self.at(account.index()).filter(|note| note.account == account);
        note.or_else(|| self.of_gone(account)).map(|note| note.user)
    }

    fn of_gone(&self, account: AccountId) -> Option<Note> {
        self.gone.iter().flatten().copied().find(|note| note.account == account)
    }

    /// Notes one more: both words of it or none.
    pub fn add(&mut self, note: Note) -> Result<(), Refused> {
        self.write(note.account, [note.account.0, note.user.into()])?;
        self.notes[note.account.index()] = Some(note);
        Ok(())
    }

    /// Strikes a note out.
    pub fn remove(&mut self, account: AccountId) {
        // The region lives as long as init does; and an account that has gone counts for nothing.
        let _ = self.write(account, [0; 2]);
        if let Some(note) = self.notes[account.index()].take() {
            self.gone[self.next_gone] = Some(note);
            self.next_gone = (self.next_gone + 1) % ACCOUNTS;
        }
    }

    fn write(&self, account: AccountId, [id, user]: [u64; 2]) -> Result<(), Refused> {
        let offset = (account.index() * NOTE) as u64;
        let mut operation = RegionOperation {
            region: self.region.0,
            direction: COPY_NONE,
            writes: 2,
            ..RegionOperation::default()
        };
        operation.write[0] = WordAt { offset, value: id };
        operation.write[1] = WordAt { offset: offset + 8, value: user };
        call::region_operate(&operation).map(|_| ())
    }
}
