//! The servers: each a native program of the image, with the capabilities it asks for.

use abi::capability::{
    CONTROL, DERIVE, DEVICE_CONSOLE, DEVICE_NETWORK, DEVICE_TRACE, NAME_ACCOUNT, NAME_DEVICE,
    NAME_IMAGE, READ, WRITE,
};
use abi::id::{DomainId, EnvId};
use abi::published::{EnvRecord, EnvState, InterfaceRecord, Table};
use abi::upcall::EVENT_CHILD;
use image::elf::Plan;
use xok::call::{self, OWN, Refused};
use xok::services::Service;
use xok::spawn::{self, Gift};

use crate::programs::Image;
use crate::publish;
use crate::settings::Settings;
use crate::terminal::Terminal;

/// The first component of the first account's name: guard of all Linux processes.
pub const ACCOUNT: u16 = NAME_ACCOUNT + 1;

/// A capability derived from init's root name.
pub const fn gift(slot: u16, extend: &'static [u16], rights: u8) -> Gift<'static> {
    Gift { from: OWN, slot, extend, rights }
}

const CONSOLE: &[u16] = &[NAME_DEVICE, DEVICE_CONSOLE];
const NETWORK: &[u16] = &[NAME_DEVICE, DEVICE_NETWORK];
const TRACE: &[u16] = &[NAME_DEVICE, DEVICE_TRACE];
/// Nanoseconds that the tracer gets for what it has not sent yet.
const TRACER_NS: u64 = 60_000_000_000;
const IMAGE: &[u16] = &[NAME_IMAGE];
const PROCESSES: &[u16] = &[ACCOUNT];

/// Starts a server, if the image has it; `prepare` gets its domain before it runs.
fn start(
    image: &Image,
    name: &str,
    gifts: &[Gift],
    prepare: impl FnOnce(DomainId) -> Result<(), Refused>,
) -> Option<EnvId> {
    let Some(file) = image.file(&alloc::format!("/xok/{name}")) else {
        xok::log!(OWN, "init: no {name} in the image");
        return None;
    };
    let plan = match Plan::parse_in(file.bytes, 0x1000..u64::MAX) {
        Ok(plan) => plan,
        Err(error) => {
            xok::log!(OWN, "init: {name}: {error}");
            return None;
        }
    };
    let started = spawn::native(&plan, file.bytes, Some(file.frame()), &[], gifts)
        .and_then(|spawned| prepare(spawned.domain).map(|()| spawned.env))
        .and_then(|env| call::env_release(OWN, env).map(|_| env));
    match started {
        Ok(env) => Some(env),
        Err((error, number)) => {
            xok::log!(OWN, "init: {name}: {} ({number})", error.name());
            None
        }
    }
}

fn publish_env(service: Service, env: Option<EnvId>) {
    publish::set(service, env.map_or(0, |env| u64::from(env.0)));
}

/// Starts what every Linux process needs: the terminal and the files.
pub fn start_own(image: &Image, terminal: &Terminal) {
    let gifts = [gift(1, CONSOLE, READ | WRITE), gift(2, PROCESSES, READ | WRITE | CONTROL)];
    let ttyd = start(image, "ttyd", &gifts, |domain| terminal.attach_server(domain));
    publish_env(Service::Terminal, ttyd);

    let gifts = [
        gift(1, IMAGE, READ),
        gift(2, PROCESSES, READ | WRITE | CONTROL | DERIVE),
        gift(3, CONSOLE, WRITE),
    ];
    publish_env(
        Service::Files,
        start(image, "tmpfsd", &gifts, |domain| terminal.attach_table(domain)),
    );
}

/// Starts what the network needs, if the machine is on one.
pub fn start_network(image: &Image, settings: &Settings) {
    let interface: Option<InterfaceRecord> = xok::published::record(Table::Interfaces, 0);
    let present = interface.is_some_and(|interface| interface.present != 0);
    let Some(address) = settings.address.filter(|_| present) else { return };
    publish::set(Service::Address, u64::from(address.address));
    publish::set(Service::Prefix, u64::from(address.prefix));
    publish::set(Service::Gateway, u64::from(address.gateway));
    let gifts = [gift(1, NETWORK, READ | WRITE), gift(3, CONSOLE, WRITE)];
    publish_env(Service::Addresses, start(image, "arpd", &gifts, |_| Ok(())));
    let gifts = [gift(1, NETWORK, READ | WRITE), gift(2, IMAGE, READ), gift(3, CONSOLE, WRITE)];
    publish_env(Service::Web, start(image, "cheetah", &gifts, |_| Ok(())));
}

/// Starts what sends the trace out, if the command line asks for one; before everybody else.
pub fn start_tracer(image: &Image, settings: &Settings) -> Option<EnvId> {
    if !settings.trace {
        return None;
    }
    let gifts = [gift(1, TRACE, WRITE), gift(3, CONSOLE, WRITE)];
    let tracer = start(image, "traced", &gifts, |_| Ok(()));
    publish_env(Service::Tracer, tracer);
    tracer
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
