//! One function for each request: arguments checked, data fetched and delivered.

use abi::id::{EnvId, RegionId};
use alloc::borrow::Cow;
use alloc::vec::Vec;
use linux_raw_sys::general as raw;
use unix::Errno;
use unix::attributes::{ATTRIBUTES_BYTES, Attributes, Credentials, KIND_MASK};
use unix::dirents::Packer;
use unix::path::NAME_MAX;
use unix::protocol::{
    AT_END, BY_SEAL, CHANGE_GID, CHANGE_MODE, CHANGE_MOUNT, CHANGE_OWNER, CHANGE_READ,
    CHANGE_TOUCH, CHANGE_UID, CHANGE_WRITTEN, DATA, DATA_BYTES, INLINE_BYTES, NAME_FIRST,
    NAME_SECOND, Operation, Request, TARGET, TRANSFER_BYTES, WALK_BYTES, outcome, unpack_inline,
};
use unix::tree::{Change, Id, Kind, Outcome, Tree, Walk};

use crate::clients::{Clients, deliver, fetch};
use crate::seals::{self, Seals};
use crate::{shown, versions};

type Answer = Result<[u64; 4], Errno>;

/// Answers one request.
pub fn answer(
    (tree, seals): (&mut Tree, &Seals<'_>),
    clients: &mut Clients,
    caller: EnvId,
    region: RegionId,
    request: &Request,
) -> Answer {
    let [a, b, c, d] = request.arguments;
    let who = &request.who;
    match request.operation {
        Operation::Walk => walk((tree, seals), region, who, [a, b, c, d]),
        Operation::Open => open((tree, seals), clients, caller, who, [a, b, c]),
        Operation::Create => create((tree, seals), clients, caller, region, who, [a, b, c, d]),
        Operation::Read => {
            seals.check(tree, who, (a, d), seals::READ)?;
            read(tree, clients, region, [a, b, c])
        }
        Operation::Write => {
            seals.check(tree, who, (a, d), seals::WRITE)?;
            write(tree, clients, region, who, [a, b, c])
        }
        Operation::Truncate => {
            seals.check(tree, who, (a, d), seals::WRITE)?;
            versions::begin(a);
            if c == 0 {
                tree.truncate(a, b, who)?
            } else {
                tree.lengthen(a, b, who)?
            }
            done()
        }
        Operation::Attributes => {
            deliver(region, DATA, &tree.attributes(a)?.to_bytes())?;
            done()
        }
        Operation::List => {
            seals.check(tree, who, (a, d), seals::READ)?;
            let mut packer = Packer::with_room(c.min(DATA_BYTES) as usize)?;
            tree.list(a, b, &mut packer)?;
            let bytes = packer.finish();
            deliver(region, DATA, &bytes)?;
            Ok([bytes.len() as u64, 0, 0, 0])
        }
        // The server's own: locks, sockets and terminals are no part of the tree.
        Operation::Lock
        | Operation::SocketBind
        | Operation::SocketConnect
        | Operation::SocketAccept
        | Operation::SocketListen
        | Operation::SocketSend
        | Operation::TerminalMake
        | Operation::TerminalOpen
        | Operation::TerminalList
        | Operation::TerminalAttributes
        | Operation::TerminalChange => Err(Errno::ENOSYS),
        Operation::MakeDirectory => {
            let name = name(region, NAME_FIRST, b)?;
            Ok([tree.make_directory(a, &name, c as u32, who)?, 0, 0, 0])
        }
        Operation::Remove => {
            let mut short = [0; INLINE_BYTES];
            let name = short_or_sent(region, NAME_FIRST, (b, NAME_MAX), [c, d], &mut short)?;
            if b >> 32 != 0 {
                tree.remove_directory(a, &name, who)?;
            } else {
                tree.unlink(a, &name, who)?;
            }
            done()
        }
        Operation::Rename => {
            let old = name(region, NAME_FIRST, c & 0xffff_ffff)?;
            let new = name(region, NAME_SECOND, c >> 32)?;
            tree.rename((a, &old), (b, &new), d as u32, who)?;
            done()
        }
        Operation::Link => {
            let name = name(region, NAME_FIRST, c)?;
            tree.link(a, b, &name, who)?;
            done()
        }
        Operation::MakeLink => {
            let name = name(region, NAME_FIRST, b)?;
            let target = data(region, c)?;
            Ok([tree.make_link(a, &name, &target, who)?, 0, 0, 0])
        }
        Operation::ReadLink => {
            let target = tree.target(a)?;
            deliver(region, DATA, target)?;
            Ok([target.len() as u64, 0, 0, 0])
        }
        Operation::Change => change(tree, region, a, b, who),
        Operation::Space => {
            let space = tree.space();
            Ok([space.blocks, space.blocks_free, space.files, space.files_free])
        }
        Operation::Room => {
            let maker = (b != 0).then_some(who.uid);
            if maker.is_none() && tree.attributes(a)?.uid != who.uid {
                // No user waits for the ends of another one's files.
                return done();
            }
            Ok([tree.room_to_come(a, maker, c)?.unwrap_or(0), 0, 0, 0])
        }
        Operation::Fifo => {
            if tree.attributes(a)?.kind() != raw::S_IFIFO || b > 1 {
                return Err(Errno::EINVAL);
            }
            tree.check(a, who, if b == 0 { 2 } else { 4 })?;
            let fresh = !clients.has_fifo(a);
            let pipe = clients.fifo(caller, (a, b as u16), who)?;
            if fresh {
                tree.hold(a)?;
            }
            Ok([pipe.0, 0, 0, 0])
        }
        Operation::Holder => {
            clients.holders.add(caller, a)?;
            done()
        }
        Operation::Seal => seals.pass(request.arguments),
        Operation::Show => shown::request(tree, caller, who, [a, b, c]),
        Operation::Make => {
            let mut short = [0; INLINE_BYTES];
            let name = short_or_sent(region, NAME_FIRST, (b, NAME_MAX), [c, d], &mut short)?;
            make((tree, seals), who, a, &name, (b >> 32) as u32)
        }
        Operation::Access if b & BY_SEAL != 0 => {
            let sealed = tree.attributes(a).is_ok() && seals.permits(c, a, b & 7);
            if sealed { done() } else { Err(Errno::EACCES) }
        }
        Operation::Access => {
            tree.check(a, who, b as u32 & 7)?;
            done()
        }
    }
}

fn done() -> Answer {
    Ok([0; 4])
}

/// So many zeroes, to be written over.
fn zeroes(count: usize) -> Result<Vec<u8>, Errno> {
    let mut bytes = unix::map::vector(count)?;
    bytes.resize(count, 0);
    Ok(bytes)
}

fn data(region: RegionId, bytes: u64) -> Result<Vec<u8>, Errno> {
    if bytes > DATA_BYTES {
        return Err(Errno::ENAMETOOLONG);
    }
    let mut data = zeroes(bytes as usize)?;
    fetch(region, DATA, &mut data)?;
    Ok(data)
}

fn name(region: RegionId, offset: u64, bytes: u64) -> Result<Vec<u8>, Errno> {
    if bytes > NAME_MAX as u64 {
        return Err(Errno::ENAMETOOLONG);
    }
    let mut name = zeroes(bytes as usize)?;
    fetch(region, offset, &mut name)?;
    Ok(name)
}

/// The name or path of `bytes` bytes in two arguments or in the region; at most `most`.
fn short_or_sent<'a>(
    region: RegionId,
    offset: u64,
    (bytes, most): (u64, usize),
    words: [u64; 2],
    short: &'a mut [u8; INLINE_BYTES],
) -> Result<Cow<'a, [u8]>, Errno> {
    let len = bytes as u32 as usize;
    if len > most {
        return Err(Errno::ENAMETOOLONG);
    }
    if len <= INLINE_BYTES {
        *short = unpack_inline(words);
        return Ok(Cow::Borrowed(&short[..len]));
    }
    let mut sent = zeroes(len)?;
    fetch(region, offset, &mut sent)?;
    Ok(Cow::Owned(sent))
}

/// The attributes and the words that `Walk` brings.
fn shown(attributes: &Attributes, walk: &Walk) -> [u8; WALK_BYTES] {
    let mut bytes = [0; WALK_BYTES];
    let (first, rest) = bytes.split_at_mut(ATTRIBUTES_BYTES);
    first.copy_from_slice(&attributes.to_bytes());
    let seen = walk.seen.get(..walk.seen_count).unwrap_or(&[]);
    let words = core::iter::once(seen.len() as u64);
    let words = words.chain(seen.iter().map(|&node| versions::seen(node)));
    for (place, word) in rest.chunks_exact_mut(8).zip(words) {
        place.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// Does the asker follow the link at which the walk has ended?
fn follows(tree: &Tree, walk: &Walk, link: &Attributes, who: &Credentials) -> Result<bool, Errno> {
    Ok(link.may_be_followed(&tree.attributes(walk.parent)?, who))
}

fn walk(
    (tree, seals): (&Tree, &Seals<'_>),
    region: RegionId,
    who: &Credentials,
    [start, bytes, first, second]: [u64; 4],
) -> Answer {
    let mut short = [0; INLINE_BYTES];
    let most = DATA_BYTES as usize;
    let path = short_or_sent(region, DATA, (bytes, most), [first, second], &mut short)?;
    let walk = tree.walk(start, &path, who)?;
    let attributes = tree.attributes(walk.node)?;
    let outcome = match walk.outcome {
        Outcome::Done => outcome::DONE,
        Outcome::Link if follows(tree, &walk, &attributes, who)? => outcome::LINK,
        Outcome::Link => outcome::STRANGERS_LINK,
        Outcome::Up => outcome::UP,
        Outcome::Missing => outcome::MISSING,
    };
    if bytes >> 32 != 0 && walk.outcome != Outcome::Missing {
        let seal = seals.permitted((walk.node, &attributes), who, seals::READ | seals::WRITE);
        let attributes = Attributes { seal, ..attributes };
        deliver(region, DATA, &shown(&attributes, &walk))?;
    }
    let mut target_len = 0;
    if walk.outcome == Outcome::Link {
        let target = tree.target(walk.node)?;
        deliver(region, TARGET, target)?;
        target_len = target.len() as u64;
    }
    let result = outcome | u64::from(attributes.mode) << 32;
    Ok([result, walk.node, walk.parent, walk.used as u64 | target_len << 32])
}

fn open(
    (tree, seals): (&mut Tree, &Seals<'_>),
    clients: &mut Clients,
    caller: EnvId,
    who: &Credentials,
    [node, flags, description]: [u64; 3],
) -> Answer {
    let flags = flags as u32;
    let attributes = tree.attributes(node)?;
    let writes = flags & raw::O_ACCMODE != raw::O_RDONLY;
    if flags & raw::O_PATH != 0 {
        hold(tree, clients, caller, description, node)?;
        return Ok([attributes.size, 0, 0, 0]);
    }
    let mask = match flags & raw::O_ACCMODE {
        raw::O_RDONLY => 4,
        raw::O_WRONLY => 2,
        _ => 6,
    };
    let empties = flags & raw::O_TRUNC != 0;
    if attributes.is_directory() && (writes || empties) {
        return Err(Errno::EISDIR);
    }
    // Who empties a file writes it, whatever else it is opened for.
    tree.check(node, who, if empties { mask | 2 } else { mask })?;
    if empties && attributes.kind() == raw::S_IFREG {
        versions::begin(node);
        tree.truncate(node, 0, who)?;
    }
    hold(tree, clients, caller, description, node)?;
    let seal = seals.permitted((node, &attributes), who, mask.into());
    Ok([tree.attributes(node)?.size, seal, 0, 0])
}

fn hold(
    tree: &mut Tree,
    clients: &mut Clients,
    caller: EnvId,
    description: u64,
    node: Id,
) -> Result<(), Errno> {
    if description == 0 {
        return Ok(());
    }
    if clients.watches(RegionId(description), node)? {
        return Ok(());
    }
    tree.hold(node)?;
    clients.watch(caller, RegionId(description), node).inspect_err(|_| tree.release(node))
}

fn create(
    (tree, seals): (&mut Tree, &Seals<'_>),
    clients: &mut Clients,
    caller: EnvId,
    region: RegionId,
    who: &Credentials,
    [directory, bytes, mode, description]: [u64; 4],
) -> Answer {
    let name = name(region, NAME_FIRST, bytes)?;
    let mode = mode as u32;
    let kind = match mode & KIND_MASK {
        0 | raw::S_IFREG => Kind::File,
        raw::S_IFIFO => Kind::Fifo,
        raw::S_IFSOCK => Kind::Socket,
        _ => return Err(Errno::EPERM),
    };
    let node = tree.create(directory, &name, kind, mode, who)?;
    hold(tree, clients, caller, description, node)?;
    Ok([node, seals.made(node), 0, 0])
}

fn make(
    (tree, seals): (&mut Tree, &Seals<'_>),
    who: &Credentials,
    directory: Id,
    name: &[u8],
    mode: u32,
) -> Answer {
    let errno = match tree.create(directory, name, Kind::File, mode, who) {
        Ok(node) => return Ok([node, 0, seals.made(node), node + 1]),
        Err(errno) => errno,
    };
    // Who may make a name may search for it; others are told of it if they may.
    tree.check_search(directory, who)?;
    match tree.child(directory, name) {
        Some(node) if errno == Errno::EEXIST => Ok([node, 1, 0, node + 1]),
        _ => Err(errno),
    }
}

fn read(
    tree: &mut Tree,
    clients: &mut Clients,
    region: RegionId,
    [node, offset, bytes]: [u64; 3],
) -> Answer {
    let buffer = clients.buffer(bytes.min(TRANSFER_BYTES) as usize)?;
    let count = tree.read(node, offset, buffer)?;
    deliver(region, DATA, &buffer[..count])?;
    Ok([count as u64, 0, 0, 0])
}

fn write(
    tree: &mut Tree,
    clients: &mut Clients,
    region: RegionId,
    who: &Credentials,
    [node, offset, bytes]: [u64; 3],
) -> Answer {
    if bytes > TRANSFER_BYTES {
        return Err(Errno::EINVAL);
    }
    let buffer = clients.buffer(bytes as usize)?;
    fetch(region, DATA, buffer)?;
    let offset = if offset == AT_END { tree.attributes(node)?.size } else { offset };
    versions::begin(node);
    let count = tree.write(node, offset, buffer, who)? as u64;
    Ok([count, offset + count, 0, 0])
}

fn change(tree: &mut Tree, region: RegionId, node: Id, which: u64, who: &Credentials) -> Answer {
    let bytes = data(region, 40)?;
    let word = |at: usize| {
        let mut word = [0; 8];
        word.copy_from_slice(&bytes[at * 8..at * 8 + 8]);
        u64::from_le_bytes(word)
    };
    if which == CHANGE_MOUNT {
        tree.remount(node, word(0), who)?;
        return done();
    }
    let given = |bit, at| (which & bit != 0).then(|| word(at));
    let change = Change {
        mode: given(CHANGE_MODE, 0).map(|word| word as u32),
        uid: given(CHANGE_UID, 1).map(|word| word as u32),
        gid: given(CHANGE_GID, 2).map(|word| word as u32),
        owner: which & CHANGE_OWNER != 0,
        read_ns: given(CHANGE_READ, 3),
        written_ns: given(CHANGE_WRITTEN, 4),
        touch: which & CHANGE_TOUCH != 0,
    };
    tree.change(node, &change, who)?;
    done()
}
