//! Programs that act for their file's owner, or are hidden from their starter: how they begin.
//!
//! ```text
//!  old life   block in a region ──► setidd ──► a domain with a head and the block
//!             passes the regions of its open files there, moves in (`exec::leave`)
//!  next life  [`confine`], [`load_program`], `Files::load_offered`: of the block it believes what
//!             the old life could have made so, and what makes no difference
//! ```
//! The old life gets nothing of the next one but the way in: docs/decisions/0044-set-id.md.

use abi::error::Error;
use abi::id::{DomainId, EnvId};
use abi::layout::PAGE_SIZE;
use abi::setup::EnvSetup;
use alloc::vec;
use alloc::vec::Vec;
use unix::path::Canonical;
use unix::set_id::{self, BLOCK_MAX, File, Head, Ids, Request};
use xok::call;
use xok::services::{self, Service};

use crate::errno::{Answer, Errno, from_kernel};
use crate::exec;
use crate::fs::node::Node;
use crate::fs::open_file::OpenFile;
use crate::fs::region::{self, Heritage, Region};
use crate::fs::whose::Whose;
use crate::fs::{image_files, saved, terminal};
use crate::layout::{PROGRAM, PROGRAM_END};
use crate::library;
use crate::page::{self, Mark};
use crate::process::{NextLife, Process};
use crate::signal::sender;
use crate::start_block::{self, Command};
use crate::thread;
use crate::{group_list, identity};

/// Role in which the old life writes its block.
const WRITER: u16 = 0;
/// Bytes of a program read at a time.
const PIECE: u64 = 16 * PAGE_SIZE;
/// Descriptors that are taken over are below this one.
const DESCRIPTORS_MAX: u64 = 65_536;
/// What the names of ExOS's own variables begin with: the starter does not rule the library.
const OWN_VARIABLES: &[u8] = b"XOK_";

fn ids_of(process: &Process) -> Ids {
    Ids { users: process.users, groups: process.groups }
}

/// Does the program act for others than the process does, or may the process not read it? Its file,
/// then.
pub fn applies(process: &Process, command: &Command, hidden: bool) -> Option<Node> {
    let (node, attributes) = command.origin?;
    let ids = ids_of(process);
    (hidden || ids.after(&attributes).differ_from(&ids)).then_some(node)
}

fn file_of(node: Node) -> File {
    match node {
        Node::Image(index) => File { kind: set_id::IMAGE, number: index.into() },
        Node::Memory(number) => File { kind: set_id::MEMORY, number },
        _ => File { kind: set_id::OTHER, number: 0 },
    }
}

fn node_of(file: File) -> Option<Node> {
    match file.kind {
        set_id::IMAGE => u32::try_from(file.number).ok().map(Node::Image),
        set_id::MEMORY => Some(Node::Memory(file.number)),
        _ => None,
    }
}

/// Executes a set-id program: in a domain that the set-id server builds.
#[inline(never)]
pub fn execute(process: &mut Process, command: Command, node: Node) -> Answer {
    let mut next = exec::next_of(process);
    if process.own_groups {
        // The domain that it goes from is its lender's, and so are the groups that it would bring.
        group_list::confirm(&mut next)?;
    }
    if next.files.root.path != Canonical::default() || !next.files.can_be_offered() {
        return Err(Errno::EPERM);
    }
    // Who reads and writes them then is somebody else.
    let (_, attributes) = command.origin.ok_or(Errno::EPERM)?;
    let after = ids_of(process).after(&attributes);
    process.files.seal_for(identity::for_files(process));
    // Offsets move to where the block then says they are; its domain is not there yet.
    let heir = (DomainId::NONE, [after.users[1], after.groups[1]]);
    next.files.attach(&mut Heritage::none(), Some(heir))?;
    let block = start_block::write(&next, thread::own().blocked, &command);
    let region = offer(&block)?;
    let users = [process.users[0], process.users[1]];
    let groups = [process.groups[0], process.groups[1]];
    let request = Request {
        process: process.id.0,
        file: file_of(node),
        directory: file_of(next.files.directory.node),
        users,
        groups,
        region: region.id.0,
        bytes: block.len(),
    };
    let domain = ask(&request);
    region.detach();
    let domain = domain?;
    let mut heritage = Heritage::of(domain);
    next.files.attach(&mut heritage, None)?;
    group_list::attach(process, &mut heritage)?;
    heritage.send()?;
    // What is set there is the server's; nothing that is said here counts.
    let life = NextLife { domain, setup: EnvSetup::default(), fields: 0 };
    drop((command, block, heritage));
    exec::leave(process, next, &life)
}

/// Puts the block where the server reads it.
fn offer(block: &[u8]) -> Result<Region, Errno> {
    if block.len() > BLOCK_MAX {
        return Err(Errno::E2BIG);
    }
    let region = Region { id: region::make_for(block.len())?, role: WRITER };
    region.attach()?;
    for (offset, piece) in (0..).step_by(PAGE_SIZE as usize).zip(block.chunks(PAGE_SIZE as usize)) {
        if let Err(errno) = region.copy_in(offset, piece, &[], &[]) {
            region.detach();
            return Err(errno);
        }
    }
    Ok(region)
}

/// Asks the server; the domain that it has built.
fn ask(request: &Request) -> Result<DomainId, Errno> {
    let server = EnvId(services::get(Service::SetId) as u32);
    if server.is_none() {
        return Err(Errno::EPERM);
    }
    match call::transfer_when_free(server, request.to_words()) {
        Ok([0, domain, ..]) => Ok(DomainId(domain)),
        Ok([number, ..]) => Err(Errno(u16::try_from(number).unwrap_or(5))),
        // It has ended, and init starts another one.
        Err((Error::NoSuchEnv | Error::Dead, _)) => Err(Errno::EAGAIN),
        Err((error, _)) => Err(from_kernel(error)),
    }
}

/// The first step of the next life: who it is, says the server; the rest is bounded.
pub fn confine(process: &mut Process, command: &mut Command, head: &Head) -> Result<(), Errno> {
    process.id = EnvId(head.process);
    (process.users, process.groups) = (head.ids.users, head.ids.groups);
    process.listed = (process.users, process.groups);
    process.payer = head.ids.users[0];
    (process.private, process.told_group, process.traced) = (true, true, false);
    process.closed = false;
    (command.image, command.handed_over) = (None, 0);
    command.environment.retain(|text| !text.starts_with(OWN_VARIABLES));
    if command.arguments.is_empty() {
        command.arguments.push(Vec::new());
    }
    for (soft, hard) in &mut process.limits.0 {
        *soft = (*soft).min(*hard);
    }
    // A time that far ahead never comes, and sums with it stay numbers.
    const NEVER: u64 = 1 << 62;
    process.timer = (process.timer.0.min(NEVER), process.timer.1.min(NEVER));
    process.timers.bound(NEVER);
    process.children_ns = process.children_ns.min(NEVER);
    let own = process.id.0;
    process
        .children
        .retain(|child| xok::published::env(child.id).is_some_and(|record| record.holder == own));
    // Who has sent what waits is the old life's word, too.
    process.signals.pending.retell(sender::UNNAMED);
    // Into what group they were put is the old life's word.
    process.children.iter_mut().for_each(|child| (child.group, child.order) = (0, 0));
    group_list::confirm(process)
}

/// The descriptor table that the old life wrote, as far as it may be taken over.
pub fn load_files(process: &mut Process, bytes: &[u8], head: &Head) -> Result<(), Errno> {
    let directory = node_of(head.directory);
    process.files = saved::load_offered(bytes, directory, DESCRIPTORS_MAX)?;
    // Whose a pipe is is the old life's word: here it is the starter's.
    for description in process.files.descriptions() {
        if let OpenFile::Pipe(pipe) = &description.file {
            pipe.whose.set(Whose::of([process.users[0], process.groups[0]]));
        }
    }
    let page = page::own();
    // How its page shows them to others is the old life's word.
    page.show_groups(&group_list::numbers(&process.more_groups)?);
    // The terminal of its session is another user's word: one that it does not have open is none,
    // and the console if it is not attached to that.
    let has_it = match page.terminal {
        0 => true,
        1 => terminal::has_console(),
        _ => process.files.terminal(page.mark()).is_some(),
    };
    if !has_it {
        page.set_mark(Mark::NONE);
    }
    Ok(())
}

/// Finds the program, which must be what the server saw, before and after it is read.
pub fn load_program(
    process: &mut Process,
    command: &mut Command,
    head: &Head,
) -> Result<(), Errno> {
    let node = node_of(head.file).ok_or(Errno::ENOEXEC)?;
    match node {
        Node::Image(index) => {
            let entry = image_files::entry(index).ok_or(Errno::EIO)?;
            command.image = Some((entry.data_offset, entry.size));
        }
        Node::Memory(id) => {
            look(process, node, head)?;
            read(process, (id, head.seal), head.size)?;
            look(process, node, head)?;
            command.handed_over = head.size;
        }
        _ => return Err(Errno::ENOEXEC),
    }
    let said = Canonical::from_canonical(command.path.as_bytes());
    let path = saved::confirmed(&process.files, node, &said);
    command.path = alloc::string::String::from_utf8_lossy(path.as_bytes()).into_owned();
    process.executable.clone_from(&command.path);
    process.program = Some(node);
    process.hidden = !node.attributes(&process.files)?.permits(&process.files.who(), 4);
    Ok(())
}

/// A file that is not what the server saw is not run.
fn look(process: &Process, node: Node, head: &Head) -> Result<(), Errno> {
    let attributes = node.attributes(&process.files)?;
    if head.is_unchanged(&attributes) { Ok(()) } else { Err(Errno::EAGAIN) }
}

/// Reads the file to where the loader finds it.
fn read(process: &Process, file: (u64, u64), size: u64) -> Result<(), Errno> {
    if size > PROGRAM_END - PROGRAM {
        return Err(Errno::ENOMEM);
    }
    let client = process.files.client_to_move(PIECE)?;
    let mut piece = vec![0; PIECE as usize];
    let mut done = 0;
    while done < size {
        let len = (size - done).min(PIECE) as usize;
        let mut filled = 0;
        while filled < len {
            let count = client.read(file, done + filled as u64, &mut piece[filled..len])?;
            if count == 0 {
                return Err(Errno::EAGAIN);
            }
            filled += count;
        }
        library::hand_over(DomainId::NONE, PROGRAM + done, &piece[..len])
            .map_err(|(error, _)| from_kernel(error))?;
        done += len as u64;
    }
    Ok(())
}
