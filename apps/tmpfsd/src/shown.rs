//! Pages of files in the spaces of those who read them.
//!
//! The server enters its own pages, read-only, in its clients' tables, for which its capability
//! over all users' names is enough. Only a client's own domain is ever changed, and where
//! the client said: it can spoil nothing but its own space.

use abi::id::{DomainId, EnvId};
use abi::memory::{ANY_FRAME, Item, NO_EXECUTE, Operation, from_source};
use unix::Errno;
use unix::attributes::Credentials;
use unix::protocol::SHOWN_PAGES;
use unix::tree::{Others, PageBox, PageBytes, Tree};
use xok::call;
use xok::memory::item;

use crate::clients::{PROCESSES, domain_of, refused};
use crate::versions;

/// Bytes of a page.
const PAGE: u64 = abi::layout::PAGE_SIZE;

fn address_of(page: &PageBytes) -> u64 {
    core::ptr::from_ref(page) as u64
}

/// Serves `Show`.
pub fn request(
    tree: &mut Tree,
    caller: EnvId,
    who: &Credentials,
    [node, first, address]: [u64; 3],
) -> Result<[u64; 4], Errno> {
    tree.check(node, who, 4)?;
    let domain = domain_of(caller).ok_or(Errno::ESRCH)?;
    let mut items = [Item::default(); SHOWN_PAGES];
    let mut count = 0;
    for (place, at) in items.iter_mut().zip(0..) {
        let index = first.checked_add(at).ok_or(Errno::EINVAL)?;
        let Some(page) = tree.show(node, index)? else { break };
        let to = address.checked_add(at * PAGE).ok_or(Errno::EFAULT)?;
        let value = from_source(address_of(page), NO_EXECUTE);
        *place = item(Operation::Map, 1, to, ANY_FRAME, value);
        count += 1;
    }
    enter(domain, &items[..count])?;
    let size = tree.attributes(node)?.size;
    let noted = tree.note_read(node)?;
    tree.take_changed(versions::advance);
    Ok([count as u64, size, versions::seen(node), noted])
}

fn enter(domain: DomainId, items: &[Item]) -> Result<(), Errno> {
    if items.is_empty() {
        return Ok(());
    }
    call::table_update(PROCESSES, domain, items).map(|_| ()).map_err(refused)
}

/// A page is taken out of every space, and is free then.
pub const OTHERS: Others = Others { release: take_back, has_left: xok::heap::has_left };

/// Each page is progress that init is told of: the kernel has all processors forget it, and where
/// they do not run (those of a virtual machine on a busy host) that is as long as they wait.
fn take_back(page: PageBox) -> Option<u64> {
    xok::beat::beat();
    xok::heap::free_everywhere(page)
}
