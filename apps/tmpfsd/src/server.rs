//! The server as `xok::server` drives it.

use abi::id::EnvId;
use unix::Errno;
use unix::protocol::{self, Operation, Request};
use unix::tree::{Limits, Tree};
use xok::call::Message;
use xok::clock;
use xok::published;
use xok::server::Serve;

use crate::clients::Clients;
use crate::file_locks::FileLocks;
use crate::requests;
use crate::seed;
use crate::sockets::Sockets;
use crate::{shown, terminals, versions};

/// Inodes for each page that files may fill, and at least this many.
const INODES_MIN: u64 = 1024;

/// The file system and its clients.
pub struct Server {
    tree: Tree,
    clients: Clients,
    locks: FileLocks,
    sockets: Sockets,
}

fn now() -> u64 {
    clock::wall_ns().unwrap_or_else(clock::now_ns)
}

impl Server {
    /// A file system of at most half of the memory, filled from the boot image.
    pub fn new() -> Self {
        let pages = published::directory().frames_usable / 2;
        let limits = Limits { pages, inodes: pages.max(INODES_MIN) };
        let mut tree = Tree::new(limits, now());
        seed::fill(&mut tree);
        versions::open();
        let (clients, locks, sockets) = Default::default();
        Self { tree, clients, locks, sockets }
    }

    fn answer(&mut self, caller: EnvId, message: &Message) -> Result<[u64; 4], Errno> {
        let request = Request::from_words(message)?;
        self.tree.set_now(now());
        let region = self.clients.transport(caller, request.region)?;
        let [first, second, third, _] = request.arguments;
        let arguments = [first, second, third];
        match request.operation {
            Operation::Lock => return self.locks.request(caller, request.arguments),
            Operation::SocketBind => {
                return self.sockets.bind(&self.tree, (caller, region), arguments);
            }
            Operation::SocketConnect => {
                let ends = (caller, region);
                return self.sockets.connect(&self.tree, ends, &request.who, arguments);
            }
            Operation::SocketAccept => return self.sockets.accept(caller, [first, second]),
            Operation::TerminalMake => return terminals::open_master(caller),
            Operation::TerminalOpen => return terminals::open_slave(caller, first),
            Operation::TerminalList => return terminals::list(),
            _ => {}
        }
        let answer = requests::answer(&mut self.tree, &mut self.clients, caller, region, &request);
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
        self.clients.sweep(&mut self.tree);
        self.tree.settle(|node| self.clients.has_holder(node));
        self.tree.take_retired(shown::retire);
    }

    fn events(&mut self) -> u64 {
        // No event is expected; what came is taken so that the next sleep sleeps.
        xok::upcall::take_events();
        xok::upcall::take_pending();
        self.sockets.sweep();
        self.sockets.watch();
        0
    }
}
