//! What of a script asks for what few programs do: downloaded code, large pages, accounts, slices.

use super::ground::Request;
use super::ground::{ACCOUNT, BUFFER, LARGE};
use super::script::{FORKED, Keep, Script, Step, at, table};
use abi::call::Call;
use abi::id::EnvId;
use abi::layout::PAGE_SIZE;
use abi::limits::Resource;
use abi::memory::{Item, NO_EXECUTE, Operation, WRITABLE};
use abi::word::{UserAddress, Which};

impl Script {
    /// A function that answers what it adds to.
    pub(super) fn method(&mut self) {
        let region = self.slot();
        let call = Call::RegionAlloc { frames: UserAddress(BUFFER), count: 0 };
        self.make("RegionAlloc", Keep::As(region), move |_| Request::new(call, 0, &[u64::MAX]));
        self.make("MethodBind", Keep::All, move |scene| {
            // r0 = [r1]; r3 += r0; [r2] = r3; exit.
            let program = [0x1079, 0x030f, 0x327b, 0x95];
            let memory = [&[0xf_0000, 8 << 32], &program[..]].concat();
            let (region, binding) = (scene.id(region), UserAddress(BUFFER));
            Request::new(Call::MethodBind { region, binding, slots: 4 }, 0, &memory)
        });
        self.attach(region, 0);
        for _ in 0..2 {
            let salt = self.salt();
            self.make("MethodCall", Keep::All, move |scene| {
                let (region, first) = (scene.id(region), scene.secret.word(salt));
                let (method, role, second, third) = (0, 0, 0, 0);
                let call = Call::MethodCall { region, method, role, first, second, third };
                Request::new(call, 0, &[])
            });
        }
        self.detach(region, 0);
        // Its page of code is given back some time.
        self.steps.push(Step::Look);
    }

    /// 512 pages become a large one, and pages again, by itself or as one of them changes.
    pub(super) fn fold(&mut self) {
        let page = LARGE + self.random.below(512) * PAGE_SIZE;
        let salt = self.salt();
        let fold = Item { level: 2, ..at(Operation::Fold, LARGE) };
        self.item("Fold", Keep::Error, None, fold);
        self.steps.push(Step::Fill { page, salt });
        let item = match self.random.below(3) {
            0 => Item { value: NO_EXECUTE, ..at(Operation::Protect, page) },
            1 => Item { level: 2, ..at(Operation::Unfold, LARGE) },
            _ => Item { level: 2, ..at(Operation::Fold, LARGE) },
        };
        self.item("while folded", Keep::Error, None, item);
        self.steps.push(Step::Read { page });
        let value = NO_EXECUTE | WRITABLE;
        self.item("Protect", Keep::Error, None, Item { value, ..at(Operation::Protect, page) });
    }

    /// An account below its own, with something kept for it; a domain that this one pays for; their
    /// end.
    pub(super) fn accounts(&mut self) {
        let (child, domain) = (self.slot(), self.slot());
        self.make("AccountAlloc", Keep::As(child), move |scene| {
            let call = Call::AccountAlloc { which: Which::Any, parent: scene.account };
            Request::new(call, ACCOUNT, &[])
        });
        let (limit, reserve) = (4 + self.random.below(4) as u32, self.random.below(4) as u32);
        for resource in [Resource::Frames, Resource::Domains] {
            let (resource, reserve) = (resource as u16, reserve / (1 + 3 * resource as u32));
            self.make("AccountLimit", Keep::All, move |scene| {
                let account = scene.id(child);
                let call = Call::AccountLimit { account, resource, limit, reserve };
                Request::new(call, ACCOUNT, &[])
            });
        }
        self.make("DomainAlloc", Keep::As(domain), move |scene| {
            let (which, root, account) = (Which::Any, Which::Any, scene.id(child));
            let call = Call::DomainAlloc { which, account, root, window: 0, bytes: u64::MAX };
            Request::new(call, ACCOUNT, &[])
        });
        self.item("Table for an account", Keep::All, Some(domain), table(4, FORKED));
        if self.random.one_in(2) {
            self.end(domain);
        }
        self.make("AccountDestroy", Keep::All, move |scene| {
            let account = scene.id(child);
            Request::new(Call::AccountDestroy { account }, ACCOUNT, &[])
        });
        self.steps.push(Step::Look);
    }

    pub(super) fn slices(&mut self) {
        let (slot, cpu) = (self.slot(), self.random.below(2) as u16);
        self.make("SliceAlloc", Keep::As(slot), move |_| {
            let call = Call::SliceAlloc { cpu, position: Which::Any, env: EnvId::NONE };
            Request::new(call, 0, &[])
        });
        self.make("SliceFree", Keep::All, move |scene| {
            let call = Call::SliceFree { cpu, position: scene.slots[slot] as u32 };
            Request::new(call, 0, &[])
        });
    }
}
