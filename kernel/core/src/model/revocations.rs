//! Frames that are taken from everybody, by one who waits for it or by all that map them.

use super::Model;
use super::act::gives;
use crate::account::FIRST;
use crate::index::AccountIndex;
use crate::{frame, revoke, table};
use abi::capability::{CONTROL, Capability};
use abi::id::Frame;
use std::vec::Vec;

impl Model {
    pub(super) fn revoke(&mut self) {
        let (caller, root) = (self.some_domain(), self.some_root());
        let (page, named) = (self.some_page(), self.some_capability(caller));
        self.revoke_page(root, page, &named);
    }

    /// Revokes what is at a page of the space with this root, if the capability may.
    pub(super) fn revoke_page(&mut self, root: Frame, page: u64, named: &Capability) {
        let Some(leaf) = table::look_up(&self.machine, root, page) else { return };
        if revoke::check(&self.state, named, leaf.frame).is_err() || self.hears_by(leaf.frame) {
            return;
        }
        let guard = frame::guard(&self.state, leaf.frame);
        assert!(gives(named, &guard.components[..usize::from(guard.length)], CONTROL));
        if self.random.one_in(2) {
            let left = revoke::begin_later(&mut self.state, &mut self.machine, leaf.frame);
            assert_eq!(left, revoke::under_way(&self.state, leaf.frame));
        } else {
            revoke::begin(&mut self.state, leaf.frame, FIRST);
            revoke::work(&mut self.state, &mut self.machine, FIRST);
        }
        if !revoke::under_way(&self.state, leaf.frame) {
            for ring in self.state.net.rings.iter() {
                assert!(ring.pins().all(|(frame, _)| frame != leaf.frame), "{leaf:?} in a ring");
            }
            let left = table::look_up(&self.machine, root, page);
            assert!(left.is_none_or(|left| left.frame != leaf.frame));
        }
    }

    /// Each frame that is being revoked is on one list, of an account that there is.
    pub(super) fn check_revocations(&self) {
        let mut revoking: Vec<Frame> = self.listed(|left| left.revoking);
        revoking.sort_unstable_by_key(|frame| frame.0);
        let marked = (0..self.frames as u32).map(Frame);
        let marked: Vec<Frame> =
            marked.filter(|&frame| self.state.frames.record(frame).revoking).collect();
        assert_eq!(revoking, marked, "listed, and marked");
        for index in 0..self.state.published.accounts.len() {
            let left = &self.state.accounts.record(AccountIndex::new(index)).left;
            if left.revoking == 0 {
                continue;
            }
            assert_ne!(self.state.published.accounts[index].id, 0, "{index} revokes, and is none");
            assert_eq!(self.state.frames.record(Frame(left.revoking_last)).next(), 0);
        }
    }
}
