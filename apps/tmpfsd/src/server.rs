//! The server as `xok::server` drives it.

use abi::id::{DomainId, EnvId, RegionId};
use unix::Errno;
use unix::attributes::Credentials;
use unix::handles::Handles;
use unix::protocol::{self, Operation, Request};
use unix::tree::{Limits, Tree};
use xok::call::{self, Message};
use xok::clock;
use xok::published;
use xok::server::Serve;

use crate::clients::{Clients, domain_of};
use crate::file_locks::FileLocks;
use crate::principals::Principals;
use crate::requests;
use crate::seals::{self, Seals};
use crate::seed;
use crate::sockets::Sockets;
use crate::terminals::Terminals;
use crate::{holders, shown, terminals, versions};

/// Inodes for each page that files may fill, and at least this many.
const INODES_MIN: u64 = 1024;

/// Pages of files that have ended given back at a time, with a request and between requests.
const PAGES_A_REQUEST: usize = 32;
/// See [`PAGES_A_REQUEST`].
const PAGES_A_PIECE: usize = 256;
/// Nanoseconds for others between two pieces.
const PAUSE_NS: u64 = 200_000;
/// Nanoseconds between two looks whether pages have been taken from those that saw them.
const LEFT_NS: u64 = 10_000_000;
/// Nanoseconds between two looks at all clients, at least.
const SWEEP_NS: u64 = 500_000_000;

/// The file system and its clients.
pub struct Server {
    tree: Tree,
    clients: Clients,
    locks: FileLocks,
    sockets: Sockets,
    principals: Principals,
    terminals: Terminals,
    seals: unix::seals::Seals,
    handles: Handles,
    /// When all clients were looked at last.
    swept_ns: u64,
}

fn now() -> u64 {
    clock::wall_ns().unwrap_or_else(clock::now_ns)
}

impl Server {
    /// A file system of at most half of the memory, filled from the boot image; `life`: how many
    /// there were before it.
    pub fn new(life: u64) -> Result<Self, Errno> {
        let pages = published::directory().frames_usable / 2;
        let limits = Limits { pages, inodes: pages.max(INODES_MIN) };
        let mut tree = Tree::new(limits, now(), life, shown::OTHERS)?;
        seed::fill(&mut tree);
        versions::open(life);
        let (clients, locks, sockets, principals, terminals) = Default::default();
        let seals = unix::seals::Seals::new(seals::key);
        let handles = Handles::new(seals::key());
        let swept_ns = 0;
        Ok(Self { tree, clients, locks, sockets, principals, terminals, seals, handles, swept_ns })
    }

    /// Answers a request, in which and in whose answer files have handles for names.
    fn answer(&mut self, caller: EnvId, message: &Message) -> Result<[u64; 4], Errno> {
        let mut request = Request::from_words(message)?;
        let domain = domain_of(caller).ok_or(Errno::ESRCH)?;
        let (asked, told) = request.operation.handles();
        if asked > 0 {
            request.arguments[0] = self.handles.file(domain.index(), request.arguments[0]);
        }
        if asked > 1 {
            request.arguments[1] = self.handles.file(domain.index(), request.arguments[1]);
        }
        let mut results = self.serve((caller, domain), request)?;
        for word in results.iter_mut().take(told.end).skip(told.start) {
            *word = self.handles.handle(domain.index(), *word);
        }
        Ok(results)
    }

    fn serve(
        &mut self,
        (caller, domain): (EnvId, DomainId),
        mut request: Request,
    ) -> Result<[u64; 4], Errno> {
        let (who, asker) = self.principals.check(&self.seals, domain, &request.who)?;
        request.who = who;
        let seals = Seals { all: &self.seals, asker };
        self.tree.set_now(now());
        let region = self.clients.transport(domain, request.region, &self.sockets)?;
        let [first, second, third, _] = request.arguments;
        let arguments = [first, second, third];
        match request.operation {
            Operation::Lock => {
                let (files, ends) = ((&self.tree, &seals), (caller, region));
                return self.locks.request(files, ends, &request.who, request.arguments);
            }
            Operation::SocketBind => {
                let files = (&self.tree, &self.clients);
                return self.sockets.bind(files, (caller, region), &request.who, arguments);
            }
            Operation::SocketConnect => {
                let files = (&self.tree, &seals, &self.clients);
                let ends = (caller, region);
                return self.sockets.connect(files, ends, &request.who, request.arguments);
            }
            Operation::SocketAccept => return self.sockets.accept(caller, [first, second]),
            Operation::SocketListen => {
                return self.sockets.listen(caller, &request.who, [first, second]);
            }
            Operation::SocketSend => {
                let [_, _, _, ids] = request.arguments;
                let sender = Credentials::of(ids as u32, (ids >> 32) as u32);
                let (sender, _) = self.principals.check(&self.seals, domain, &sender)?;
                let (files, ends) = ((&self.tree, &seals), (caller, region));
                return self.sockets.send(files, ends, [&request.who, &sender], arguments);
            }
            Operation::TerminalMake => {
                return self.terminals.open_master(caller, region, &request.who);
            }
            Operation::TerminalOpen => {
                let asked = [first, second, request.arguments[2]];
                return self.terminals.open_slave(caller, region, &request.who, asked);
            }
            Operation::TerminalList => return terminals::list(),
            Operation::TerminalAttributes => return self.terminals.attributes([first, second]),
            Operation::TerminalChange => {
                return self.terminals.change(&request.who, request.arguments);
            }
            // The region of the open file.
            Operation::Open if self.sockets.have(RegionId(third)) => return Err(Errno::EPERM),
            Operation::Create if self.sockets.have(RegionId(request.arguments[3])) => {
                return Err(Errno::EPERM);
            }
            _ => {}
        }
        let answer =
            requests::answer((&mut self.tree, &seals), &mut self.clients, caller, region, &request);
        self.tree.take_changed(versions::advance);
        // After the words: whoever says now that it holds a file looks at them once more.
        versions::finish();
        answer
    }
}

impl Serve for Server {
    fn request(&mut self, caller: EnvId, message: &mut Message) {
        let result = self.answer(caller, message);
        *message = protocol::reply(result);
        self.clients.sweep_some(&mut self.tree);
        let look = self.clients.holders.look(&mut self.tree, holders::A_REQUEST, PAUSE_NS);
        if look != 0 {
            // After a request nothing else ends the server's sleep.
            let _ = call::timer_set(look);
        }
        let more = self.tree.work(PAGES_A_REQUEST);
        self.sockets.hurry(more);
    }

    fn events(&mut self) -> u64 {
        // No event is expected; what came is taken so that the next sleep sleeps.
        xok::upcall::take_events();
        xok::upcall::take_pending();
        self.sockets.sweep();
        // Init wakes the server once a second.
        let now = clock::now_ns();
        if now >= self.swept_ns + SWEEP_NS || self.clients.leaves_some {
            self.clients.sweep(&mut self.tree);
            self.swept_ns = now;
        }
        self.sockets.watch();
        // Clients come in between: the server sleeps after each piece.
        self.sockets.hurry(false);
        let look = self.clients.holders.look(&mut self.tree, holders::A_PIECE, PAUSE_NS);
        if self.tree.work(PAGES_A_PIECE) {
            return clock::now_ns() + PAUSE_NS;
        }
        if self.clients.leaves_some || self.sockets.leaves_some {
            return clock::now_ns() + PAUSE_NS;
        }
        let left = if self.tree.is_left_by_pages() { clock::now_ns() + LEFT_NS } else { 0 };
        clock::earlier(look, left)
    }
}
