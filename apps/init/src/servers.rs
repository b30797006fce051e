//! The servers: each a native program of the image, with the capabilities it asks for.

use abi::capability::{
    CONTROL, DERIVE, DEVICE_CONSOLE, DEVICE_NETWORK, DEVICE_POWER, DEVICE_TRACE, NAME_ACCOUNT,
    NAME_DEVICE, NAME_GROUP, NAME_IMAGE, NAME_USER, READ, SIGNAL, USER_RIGHTS, WRITE,
};
use abi::id::EnvId;
use abi::published::{EnvRecord, EnvState, InterfaceRecord, Table};
use abi::upcall::EVENT_CHILD;
use xok::call::{self, OWN};
use xok::services::Service;
use xok::spawn::Gift;

use crate::keeper::{self, Attach, Keeper, Server};
use crate::programs::Image;
use crate::publish;
use crate::settings::Settings;

/// A capability derived from init's root name.
pub const fn gift(slot: u16, extend: &'static [u16], rights: u8) -> Gift<'static> {
    Gift { from: OWN, slot, extend, rights }
}

const CONSOLE: &[u16] = &[NAME_DEVICE, DEVICE_CONSOLE];
const NETWORK: &[u16] = &[NAME_DEVICE, DEVICE_NETWORK];
const POWER: &[u16] = &[NAME_DEVICE, DEVICE_POWER];
const TRACE: &[u16] = &[NAME_DEVICE, DEVICE_TRACE];
/// Nanoseconds that the tracer gets for what it has not sent yet.
const TRACER_NS: u64 = 60_000_000_000;
const IMAGE: &[u16] = &[NAME_IMAGE];
/// All users: their processes' domains, and what these show each other.
const USERS: &[u16] = &[NAME_USER];
/// All groups.
const GROUPS: &[u16] = &[NAME_GROUP];
/// Below all users' name, and no user's: its number would mean "leave it as it is".
const NO_USER: &[u16] = &[NAME_USER, u16::MAX, u16::MAX];

/// The first account, and those below it.
const ACCOUNTS: &[u16] = &[NAME_ACCOUNT + 1];

/// Users' accounts.
static ACCOUNTD: Server = Server {
    name: "accountd",
    service: Service::Accounts,
    gifts: &[gift(1, ACCOUNTS, CONTROL), gift(3, CONSOLE, WRITE)],
    attach: Attach::Notes,
    counts_lives: false,
};

/// The terminal: what every Linux process needs.
static TTYD: Server = Server {
    name: "ttyd",
    service: Service::Terminal,
    gifts: &[gift(1, CONSOLE, READ | WRITE), gift(2, USERS, READ | WRITE | SIGNAL)],
    attach: Attach::Terminal,
    counts_lives: false,
};

/// The files, which it needs, too.
static TMPFSD: Server = Server {
    name: "tmpfsd",
    service: Service::Files,
    gifts: &[gift(1, IMAGE, READ), gift(2, USERS, READ | WRITE), gift(3, CONSOLE, WRITE)],
    attach: Attach::Table,
    counts_lives: true,
};

/// Builds the domains of set-id programs, whose capabilities are derived from these.
static SETIDD: Server = Server {
    name: "setidd",
    service: Service::SetId,
    gifts: &[
        gift(1, IMAGE, READ | DERIVE),
        gift(2, USERS, READ | WRITE | USER_RIGHTS),
        gift(3, NETWORK, WRITE | DERIVE),
        gift(4, CONSOLE, WRITE | DERIVE),
        gift(5, POWER, WRITE | DERIVE),
        gift(12, GROUPS, USER_RIGHTS),
        gift(13, NO_USER, USER_RIGHTS),
    ],
    attach: Attach::Nothing,
    counts_lives: true,
};

static ARPD: Server = Server {
    name: "arpd",
    service: Service::Addresses,
    gifts: &[gift(1, NETWORK, READ | WRITE), gift(3, CONSOLE, WRITE)],
    attach: Attach::Nothing,
    counts_lives: false,
};

static CHEETAH: Server = Server {
    name: "cheetah",
    service: Service::Web,
    gifts: &[gift(1, NETWORK, READ | WRITE), gift(2, IMAGE, READ), gift(3, CONSOLE, WRITE)],
    attach: Attach::Nothing,
    counts_lives: false,
};

static TRACED: Server = Server {
    name: "traced",
    service: Service::Tracer,
    gifts: &[gift(1, TRACE, WRITE), gift(3, CONSOLE, WRITE)],
    attach: Attach::Nothing,
    counts_lives: false,
};

/// Starts what every Linux process needs: the terminal and the files, and whoever gives accounts.
pub fn start_own(image: &Image, keeper: &mut Keeper) {
    keeper.start(image, &ACCOUNTD);
    keeper.start(image, &TTYD);
    keeper.start(image, &TMPFSD);
}

/// Starts what only some programs need.
pub fn start_others(image: &Image, settings: &Settings, keeper: &mut Keeper) {
    keeper.start(image, &SETIDD);
    start_network(image, settings, keeper);
}

/// Starts what the network needs, if the machine is on one.
fn start_network(image: &Image, settings: &Settings, keeper: &mut Keeper) {
    let interface: Option<InterfaceRecord> = xok::published::record(Table::Interfaces, 0);
    let present = interface.is_some_and(|interface| interface.present != 0);
    let Some(address) = settings.address.filter(|_| present) else { return };
    publish::set(Service::Address, u64::from(address.address));
    publish::set(Service::Prefix, u64::from(address.prefix));
    publish::set(Service::Gateway, u64::from(address.gateway));
    keeper.start(image, &ARPD);
    keeper.start(image, &CHEETAH);
}

/// Starts what sends the trace out, if the command line asks for one; before everybody else.
pub fn start_tracer(image: &Image, settings: &Settings) -> Option<EnvId> {
    if !settings.trace {
        return None;
    }
    keeper::start(image, &TRACED)
}

/// Lets the tracer send the rest before the machine ends.
pub fn end_tracer(tracer: Option<EnvId>) {
    let Some(env) = tracer else { return };
    let end = xok::clock::now_ns() + TRACER_NS;
    // It may have ended by itself.
    let _ = call::post(OWN, env, 1);
    let lives = |record: EnvRecord| {
        record.state != EnvState::Dead as u32 && record.state != EnvState::Stopped as u32
    };
    loop {
        xok::upcall::take_events();
        if !xok::published::env(env).is_some_and(lives) || xok::clock::now_ns() >= end {
            return;
        }
        // Whatever ends the sleep, the loop looks again.
        let _ = call::sleep(end, 0, EVENT_CHILD, 0);
    }
}
