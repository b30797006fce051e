//! The process table: what each process says of itself in its application page, for all to read.
//!
//! Written by its owner alone, so these words are claims (decisions 6): who acts on them (the
//! terminal's server, `kill`) has the kernel check the act itself. `ps` and `/proc` read nothing
//! else.

/// First word of a page that a Linux process has filled: "EXOSPROC".
pub const MAGIC: u64 = u64::from_le_bytes(*b"EXOSPROC");
/// First word of the page of a thread that is not the first of its process: "EXOSTHRD". The second
/// word is the pid.
pub const THREAD_MAGIC: u64 = u64::from_le_bytes(*b"EXOSTHRD");
/// Bytes of the command line kept.
pub const COMMAND_BYTES: usize = 1024;
/// Bytes of the executable's path kept.
pub const PATH_BYTES: usize = 256;
/// Bytes of the list of open files.
pub const FILES_BYTES: usize = 1408;
/// Number of the working directory in that list.
pub const DIRECTORY: u16 = 0xffff;
/// Number of the root directory, where that is not the machine's.
pub const ROOT_DIRECTORY: u16 = 0xfffe;
/// Limits of resources that there are (`RLIM_NLIMITS`).
pub const LIMITS: usize = 16;
/// Files that a process says it has open itself.
pub const HELD: usize = 16;
/// In place of a file: whatever the memory file server has made.
pub const HELD_ANY: u64 = u64::MAX;
/// Children that a process has put into groups, and have not followed, of which its page tells.
pub const PLACED: usize = 16;
/// Groups of its set that a process shows.
pub const GROUPS_SHOWN: usize = 32;
/// Linux calls counted.
pub const CALLS: usize = 480;

/// The page.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ProcessPage {
    /// [`MAGIC`]
    pub magic: u64,
    /// Parent.
    pub parent: u32,
    /// Process group.
    pub group: u32,
    /// Session.
    pub session: u32,
    /// Threads.
    pub threads: u32,
    /// Real user.
    pub user: u32,
    /// Effective user.
    pub effective_user: u32,
    /// Real group id.
    pub group_id: u32,
    /// Effective group id.
    pub effective_group_id: u32,
    /// Signal that stopped it, 0: it runs.
    pub stop_signal: u32,
    /// Times it was stopped.
    pub stop_count: u32,
    /// Times it was continued.
    pub continue_count: u32,
    /// Open descriptors.
    pub descriptors: u32,
    /// Name (`PR_SET_NAME`), padded with zeros.
    pub name: [u8; 16],
    /// Bytes promised to the program.
    pub virtual_bytes: u64,
    /// The terminal that it has as its session's: 0 none, 1 the console, else its number + 2.
    pub terminal: u32,
    /// Nice value.
    pub nice: i32,
    /// Has it executed a program since it was forked?
    pub executed: u32,
    /// Bytes of `command`.
    pub command_len: u32,
    /// Bytes of `path`.
    pub path_len: u32,
    /// Others of its user are refused a look at it (`PR_SET_DUMPABLE`).
    pub undumpable: u32,
    /// Region that its environment lies in, 0: none. It is not shown here, where all may read.
    pub environment: u64,
    /// Arguments, each with its NUL.
    pub command: [u8; COMMAND_BYTES],
    /// The executable.
    pub path: [u8; PATH_BYTES],
    /// Calls answered with ENOSYS, by number, up to 255.
    pub unsupported: [u8; CALLS],
    /// Bytes of `files`.
    pub files_len: u32,
    /// Bytes of the environment.
    pub environment_len: u32,
    /// File mode mask.
    pub umask: u32,
    /// Groups in `groups`.
    pub groups_len: u32,
    /// Saved user.
    pub saved_user: u32,
    /// The user that it acts by with files (setfsuid(2)).
    pub file_user: u32,
    /// Saved group id.
    pub saved_group_id: u32,
    /// The group that it acts by with files.
    pub file_group_id: u32,
    /// The first groups of its set, in ascending order.
    pub groups: [u32; GROUPS_SHOWN],
    /// Open files: number (16 bits), bytes of the name (8 bits), name; as far as they fit.
    pub files: [u8; FILES_BYTES],
    /// The shared futex that the thread sleeps for: the word's physical address, 0: none.
    pub futex: u64,
    /// Files of the memory file server that are open without its having been told: their `st_ino`,
    /// 0: none. It looks here before it ends a file that has lost its last name.
    pub held: [u64; HELD],
    /// Soft and hard limit of each resource (getrlimit(2)).
    pub limits: [[u64; 2]; LIMITS],
    /// The region of that terminal's settings, if it has a number.
    pub terminal_settings: u64,
    /// The last order of its parent's that it has followed, or that its own came after.
    pub followed: u32,
    /// Orders that it has given its children.
    pub orders: u32,
    /// Those that have not been followed, as far as they fit.
    pub placed: [Placed; PLACED],
    /// The user whose word group and session are, if that is not its own, plus 1: the starter's of
    /// the set-id program that it is or descends from.
    pub told_by: u32,
}

/// A terminal, as the page of a process says that it is its session's. Numbers of pseudo-terminals
/// come again, the names of regions do not: a process whose terminal was hung up has none of the
/// later ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Mark {
    /// 0 none, 1 the console, else the number + 2.
    pub number: u32,
    /// The region of its settings; 0: the console's.
    pub settings: u64,
}

impl Mark {
    /// No terminal.
    pub const NONE: Self = Self { number: 0, settings: 0 };
    /// The console.
    pub const CONSOLE: Self = Self { number: 1, settings: 0 };

    /// The pseudo-terminal of this number and these settings.
    pub fn of(number: u32, settings: u64) -> Self {
        Self { number: number.saturating_add(2), settings }
    }
}

/// A child that its parent has put into a group: the child writes its own page alone, so it is told
/// here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Placed {
    /// The child.
    pub child: u32,
    /// Its group.
    pub group: u32,
    /// The number of the order, from 1.
    pub order: u32,
}

impl Placed {
    /// No order.
    pub const NONE: Self = Self { child: 0, group: 0, order: 0 };

    /// The last of these orders that is for `child`.
    pub fn last_for(orders: &[Self], child: u32) -> Option<Self> {
        let for_it = orders.iter().filter(|order| order.child == child && order.order != 0);
        for_it.copied().max_by_key(|order| order.order)
    }

    /// Where an order for `child` goes: where its last one is, or one that is done with, or else
    /// the oldest.
    pub fn place_for(orders: &[Self], child: u32, is_done: impl Fn(&Self) -> bool) -> usize {
        let first = |of: &dyn Fn(&Self) -> bool| orders.iter().position(of);
        let oldest = || (0..orders.len()).min_by_key(|&at| orders[at].order);
        first(&|order| order.child == child)
            .or_else(|| first(&|order| order.order == 0 || is_done(order)))
            .or_else(oldest)
            .unwrap_or(0)
    }
}

const _: () = assert!(size_of::<ProcessPage>() <= 4096);

/// A nice value, or the next that can be (setpriority(2)): a page says what its owner likes.
pub fn nice_that_can_be(nice: i32) -> i32 {
    nice.clamp(-20, 19)
}

fn prefix(bytes: &[u8], len: u32) -> &[u8] {
    bytes.get(..len as usize).unwrap_or(bytes)
}

impl ProcessPage {
    /// All zero: no process's.
    pub const EMPTY: Self = Self {
        magic: 0,
        parent: 0,
        group: 0,
        session: 0,
        threads: 0,
        user: 0,
        effective_user: 0,
        group_id: 0,
        effective_group_id: 0,
        stop_signal: 0,
        stop_count: 0,
        continue_count: 0,
        descriptors: 0,
        name: [0; 16],
        virtual_bytes: 0,
        terminal: 0,
        nice: 0,
        executed: 0,
        command_len: 0,
        path_len: 0,
        undumpable: 0,
        environment: 0,
        command: [0; COMMAND_BYTES],
        path: [0; PATH_BYTES],
        unsupported: [0; CALLS],
        files_len: 0,
        environment_len: 0,
        umask: 0,
        groups_len: 0,
        saved_user: 0,
        file_user: 0,
        saved_group_id: 0,
        file_group_id: 0,
        groups: [0; GROUPS_SHOWN],
        files: [0; FILES_BYTES],
        futex: 0,
        held: [0; HELD],
        limits: [[0; 2]; LIMITS],
        terminal_settings: 0,
        followed: 0,
        orders: 0,
        placed: [Placed::NONE; PLACED],
        told_by: 0,
    };

    /// The terminal of its session.
    pub fn mark(&self) -> Mark {
        Mark { number: self.terminal, settings: self.terminal_settings }
    }

    /// Says which terminal is that of its session.
    pub fn set_mark(&mut self, mark: Mark) {
        (self.terminal, self.terminal_settings) = (mark.number, mark.settings);
    }

    /// Becomes a child's, which has no orders yet.
    pub fn forget_orders(&mut self) {
        (self.followed, self.orders) = (0, 0);
        self.placed = [Placed::NONE; PLACED];
    }

    /// The name up to its first NUL.
    pub fn name(&self) -> &[u8] {
        let end = self.name.iter().position(|&byte| byte == 0).unwrap_or(self.name.len());
        &self.name[..end]
    }

    /// Arguments, each with its NUL.
    pub fn command(&self) -> &[u8] {
        prefix(&self.command, self.command_len)
    }

    /// Groups of its set, as far as they are shown.
    pub fn groups(&self) -> &[u32] {
        self.groups.get(..self.groups_len as usize).unwrap_or(&self.groups)
    }

    /// Shows the first of these.
    pub fn show_groups(&mut self, numbers: &[u32]) {
        let shown = numbers.len().min(GROUPS_SHOWN);
        self.groups = [0; GROUPS_SHOWN];
        self.groups[..shown].copy_from_slice(&numbers[..shown]);
        self.groups_len = shown as u32;
    }

    /// Empties the list of open files.
    pub fn clear_files(&mut self) {
        self.files_len = 0;
    }

    /// Adds an open file; a long name loses its beginning. What does not fit is left out.
    pub fn add_file(&mut self, number: u16, name: &[u8]) {
        let name = &name[name.len().saturating_sub(255)..];
        let at = (self.files_len as usize).min(FILES_BYTES);
        let end = at + 3 + name.len();
        let Some(place) = self.files.get_mut(at..end) else { return };
        place[..2].copy_from_slice(&number.to_le_bytes());
        place[2] = name.len() as u8;
        place[3..].copy_from_slice(name);
        self.files_len = end as u32;
    }

    /// Enters an open file where its number belongs, if the list is whole so far; else `false`.
    pub fn enter_file(&mut self, number: u16, name: &[u8]) -> bool {
        let mut at = None;
        let mut count = 0;
        for (place, entry) in self.places() {
            count += 1;
            if entry < ROOT_DIRECTORY && entry > number && at.is_none() {
                at = Some(place);
            }
        }
        if count != self.descriptors + 1 {
            return false;
        }
        let (len, before) = (self.files_len as usize, self.files_len);
        self.add_file(number, name);
        if self.files_len == before {
            return false;
        }
        if let Some(at) = at {
            let end = self.files_len as usize;
            self.files[at..end].rotate_right(end - len);
        }
        self.descriptors += 1;
        true
    }

    /// Takes an open file out of the list, if the list is whole; else `false`.
    pub fn leave_file(&mut self, number: u16) -> bool {
        let end = (self.files_len as usize).min(FILES_BYTES);
        let mut range = None;
        let mut count = 0;
        for (place, entry) in self.places() {
            count += 1;
            if entry == number && number < ROOT_DIRECTORY {
                let name = self.files.get(place + 2).copied().unwrap_or(0);
                range = Some((place, (place + 3 + usize::from(name)).min(end)));
            }
        }
        let Some((from, to)) = range.filter(|_| count == self.descriptors + 1) else {
            return false;
        };
        self.files.copy_within(to..end, from);
        self.files_len = (end - (to - from)) as u32;
        self.descriptors -= 1;
        true
    }

    /// Where each entry of the list of open files begins, and its number.
    fn places(&self) -> impl Iterator<Item = (usize, u16)> + '_ {
        let list = prefix(&self.files, self.files_len);
        let mut at = 0;
        core::iter::from_fn(move || {
            let head = list.get(at..at + 3)?;
            let place = at;
            at += 3 + usize::from(head[2]);
            Some((place, u16::from_le_bytes([head[0], head[1]])))
        })
    }

    /// The open files.
    pub fn files(&self) -> impl Iterator<Item = (u16, &[u8])> {
        let mut rest = prefix(&self.files, self.files_len);
        core::iter::from_fn(move || {
            let (head, after) = rest.split_at_checked(3)?;
            let (name, next) = after.split_at_checked(usize::from(head[2]))?;
            rest = next;
            Some((u16::from_le_bytes([head[0], head[1]]), name))
        })
    }

    /// The executable's path.
    pub fn path(&self) -> &[u8] {
        prefix(&self.path, self.path_len)
    }
}

/// What a process or thread is called: at most 16 bytes, shown with `?` for what isn't visible.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Name([u8; 16]);

impl Name {
    /// The name of these bytes, up to the first NUL.
    pub fn of(bytes: &[u8]) -> Self {
        let mut name = [0; 16];
        for (place, byte) in name.iter_mut().zip(bytes.iter().take_while(|byte| **byte != 0)) {
            *place = if byte.is_ascii_graphic() { *byte } else { b'?' };
        }
        Self(name)
    }

    /// Has it no byte?
    pub fn is_empty(&self) -> bool {
        self.0[0] == 0
    }
}

/// A name as text of a page in HTML: no part of it is markup.
#[derive(Clone, Copy, Debug)]
pub struct Html(pub Name);

impl core::fmt::Display for Html {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        self.0.0.iter().take_while(|byte| **byte != 0).try_for_each(|&byte| match byte {
            b'<' => f.write_str("&lt;"),
            b'>' => f.write_str("&gt;"),
            b'&' => f.write_str("&amp;"),
            b'"' => f.write_str("&quot;"),
            byte => write!(f, "{}", char::from(byte)),
        })
    }
}

impl core::fmt::Display for Name {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let shown = self.0.iter().take_while(|byte| **byte != 0);
        shown.into_iter().try_for_each(|byte| write!(f, "{}", char::from(*byte)))
    }
}

/// The name in a page of which `word` loads single words, by their offset; `None`: no process's.
pub fn name_of(word: impl Fn(usize) -> Option<u64>) -> Option<Name> {
    if word(0) != Some(MAGIC) {
        return None;
    }
    let at = core::mem::offset_of!(ProcessPage, name);
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&word(at)?.to_le_bytes());
    bytes[8..].copy_from_slice(&word(at + 8)?.to_le_bytes());
    Some(Name::of(&bytes))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn names_are_read_word_by_word() {
        let mut words = [0_u64; 512];
        let at = core::mem::offset_of!(ProcessPage, name) / 8;
        words[at] = u64::from_le_bytes(*b"busy box");
        words[at + 1] = u64::from_le_bytes(*b"-static\n");
        let name = |words: [u64; 512]| name_of(|offset| words.get(offset / 8).copied());
        assert_eq!(name(words), None);
        words[0] = MAGIC;
        assert_eq!(name(words).map(|name| std::format!("{name}")), Some("busy?box-static?".into()));
        words[at + 1] = 0;
        words[at] = u64::from_le_bytes(*b"sh\0xxxxx");
        assert_eq!(name(words), Some(Name::of(b"sh")));
    }

    #[test]
    fn names_are_no_markup() {
        let html = |name: &[u8]| std::format!("{}", Html(Name::of(name)));
        assert_eq!(html(b"<b>a&\"b\""), "&lt;b&gt;a&amp;&quot;b&quot;");
        assert_eq!(html(b"sh\0<"), "sh");
    }

    #[test]
    fn the_last_order_for_a_child_counts() {
        let order = |child, group, order| Placed { child, group, order };
        let orders = [order(7, 71, 3), order(8, 80, 2), order(7, 70, 1), Placed::NONE];
        assert_eq!(Placed::last_for(&orders, 7), Some(orders[0]));
        assert_eq!(Placed::last_for(&orders, 8), Some(orders[1]));
        assert_eq!(Placed::last_for(&orders, 9), None);
        assert_eq!(Placed::last_for(&orders, 0), None, "an empty place is nobody's");
    }

    #[test]
    fn an_order_takes_the_place_of_one_that_is_done_with() {
        let order = |child, order| Placed { child, group: 1, order };
        let orders = [order(7, 3), order(8, 2), order(9, 4)];
        let never = |_: &Placed| false;
        assert_eq!(Placed::place_for(&orders, 9, |order| order.child == 7), 2, "its own");
        assert_eq!(Placed::place_for(&orders, 5, |order| order.child == 9), 2, "a done one");
        assert_eq!(Placed::place_for(&orders, 5, never), 1, "the oldest");
        let orders = [order(7, 3), Placed::NONE, order(9, 4)];
        assert_eq!(Placed::place_for(&orders, 5, never), 1, "an empty one");
    }

    #[test]
    fn open_files_come_and_go_one_by_one() {
        let mut page = ProcessPage::EMPTY;
        page.add_file(DIRECTORY, b"/tmp");
        for (number, name) in [(2, &b"two"[..]), (0, b"zero"), (1, b""), (7, b"seven")] {
            assert!(page.enter_file(number, name));
        }
        let numbers = |page: &ProcessPage| page.files().map(|file| file.0).collect::<Vec<_>>();
        assert_eq!(numbers(&page), [DIRECTORY, 0, 1, 2, 7]);
        assert!(page.leave_file(1) && page.leave_file(7) && !page.leave_file(7));
        let list: Vec<_> = page.files().collect();
        assert_eq!(list, [(DIRECTORY, &b"/tmp"[..]), (0, b"zero"), (2, b"two")]);
        assert_eq!(page.descriptors, 2);
        while page.enter_file(9, &[b'x'; 200]) {}
        assert_eq!(page.descriptors, 2 + 6, "what does not fit is not counted here");
        page.descriptors += 1;
        assert!(!page.leave_file(0), "the list is not whole");
    }

    #[test]
    fn open_files_are_listed_as_far_as_they_fit() {
        let mut page = ProcessPage::EMPTY;
        page.add_file(0, b"/dev/console");
        page.add_file(DIRECTORY, b"/");
        let list: Vec<_> = page.files().collect();
        assert_eq!(list, [(0, &b"/dev/console"[..]), (DIRECTORY, b"/")]);
        for number in 0..100 {
            page.add_file(number, &[b'x'; 300]);
        }
        assert_eq!(page.files().count(), 2 + 5);
        page.files_len = u32::MAX;
        assert!(page.files().count() >= 7);
        page.clear_files();
        assert_eq!(page.files().count(), 0);
    }
}
