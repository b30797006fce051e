//! What a user hides from the process table is ended like its processes.

use crate::{Seen, Test, expect, libc};
use abi::call::Call;
use abi::domain::NO_NAME;
use abi::id::{AccountId, DomainId, EnvId};
use abi::setup::{EnvSetup, FLAG_SLICE_END, field};
use abi::word::{UserAddress, Which};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use unix::process_page::ProcessPage;
use xok::published;
use xok::services::{self, Service};

/// What holds.
pub const TESTS: [Test; 5] = [
    ("hidden_programs_are_killed", hidden_programs_are_killed),
    ("visitors_elsewhere_keep_no_parent", visitors_elsewhere_keep_no_parent),
    ("the_killed_leave_no_environments", the_killed_leave_no_environments),
    ("numbers_of_servers_are_nobody", numbers_of_servers_are_nobody),
    ("enduser_ends_all_of_a_user", enduser_ends_all_of_a_user),
];

/// A user that no other test has programs of: all of them are ended.
const BOB: u32 = 61_107;
const KILL: i32 = 9;
/// `ESRCH`
const NO_SUCH_PROCESS: i32 = 3;
/// Where the effective user's name is.
const USER: u8 = 2;
/// A hidden program ends by itself after this, so that a failure is one.
const PATIENCE: Duration = Duration::from_secs(20);
/// Environments that one thread has at one time.
const SPINNERS: usize = 6;
/// How often a process is killed while it makes environments.
const ROUNDS: usize = 96;
/// It is ended within this.
const LIMIT: Duration = Duration::from_secs(5);

/// A program of BOB's: its process, an environment that it has made, and their domains.
#[derive(Clone, Copy)]
struct Hidden {
    process: i32,
    made: EnvId,
    domains: [DomainId; 2],
}

extern "C" fn spin() -> ! {
    loop {
        std::hint::spin_loop();
    }
}

/// Makes an environment of one's own domain, without a page.
fn make_spinner(door: door::Door) -> Option<EnvId> {
    make_spinner_at(door, stack_page())
}

/// A page for the stack of an environment that has no handler of faults.
fn stack_page() -> u64 {
    let page = libc::private(1);
    libc::bytes(page, 1)[0] = 1;
    page
}

/// The same, with a stack of which nothing is used.
fn make_spinner_at(door: door::Door, stack: u64) -> Option<EnvId> {
    let rip = spin as *const () as u64;
    // Both pages are there.
    std::hint::black_box(libc::words(rip & !7, 1)[0].load(Ordering::Relaxed));
    let rsp = stack + 4096;
    let setup = EnvSetup { rip, rsp, flags: FLAG_SLICE_END, ..EnvSetup::default() };
    let fields = field::RIP | field::RSP | field::FLAGS;
    let (which, vector) = (Which::Any, Which::Any);
    let (domain, account) = (DomainId::NONE, AccountId::NONE);
    let make = Call::EnvAlloc { which, domain, account, vector };
    let env = EnvId(libc::kernel(door, make).ok()? as u32);
    let setup = UserAddress(&raw const setup as u64);
    libc::kernel(door, Call::EnvSet { env, fields, setup }).ok()?;
    libc::kernel(door, Call::EnvRelease { env }).ok()?;
    Some(env)
}

/// Makes an environment in a domain that is the program's own name's, and empty: it stops there.
fn make_alone(door: door::Door) -> Option<EnvId> {
    let (which, account, root, vector) = (Which::Any, AccountId::NONE, Which::Any, Which::Any);
    let make = Call::DomainAlloc { which, account, root, window: 0, bytes: u64::MAX };
    let domain = DomainId(libc::kernel(door, make).ok()?);
    let make = Call::EnvAlloc { which, domain, account, vector };
    let env = EnvId(libc::kernel(door, make).ok()? as u32);
    libc::kernel(door, Call::EnvRelease { env }).ok()?;
    Some(env)
}

/// Says of itself that it is no process, and that it is signalled by no name, if so.
fn hide(door: door::Door, by_no_name: bool) -> bool {
    for half in [0, 4] {
        super::say(std::mem::offset_of!(ProcessPage, magic) + half, 0);
    }
    let (domain, value) = (DomainId::NONE, NO_NAME << 8 | NO_NAME);
    let set = || libc::kernel(door, Call::DomainSet { domain, property: 0, value });
    !by_no_name || set().is_ok()
}

/// Starts one.
fn start(
    door: door::Door,
    make: impl Fn(door::Door) -> Option<EnvId>,
    by_no_name: bool,
) -> Result<Hidden, String> {
    let word: &AtomicU64 = &libc::words(libc::shared(1), 1)[0];
    let process = libc::spawn(|| {
        let made = if libc::become_user(BOB) { make(door) } else { None };
        let made = made.filter(|_| hide(door, by_no_name));
        word.store(made.map_or(1, |env| u64::from(env.0)), Ordering::SeqCst);
        let began = Instant::now();
        while made.is_some() && began.elapsed() < PATIENCE {
            std::thread::yield_now();
        }
        7
    });
    while word.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    let made = EnvId(word.load(Ordering::SeqCst) as u32);
    let both = [EnvId(process as u32), made].map(published::env_domain);
    let domains = both.map(|domain| domain.unwrap_or(DomainId::NONE));
    expect(!both.contains(&None), || "it has made no environment".into())?;
    Ok(Hidden { process, made, domains })
}

/// Has all of it ended, soon? Ends it by the kernel's call if not.
fn has_ended(door: door::Door, hidden: Hidden) -> bool {
    let began = Instant::now();
    let lives =
        || [EnvId(hidden.process as u32), hidden.made].map(published::env_lives).contains(&true);
    while lives() && began.elapsed() < LIMIT {
        std::thread::sleep(Duration::from_millis(5));
    }
    let ended = !lives();
    if !ended {
        for domain in hidden.domains {
            let _ = libc::kernel_by(door, Call::DomainDestroy { domain }, USER);
        }
    }
    libc::wait(hidden.process);
    ended
}

/// A program that shows no process, and an environment of its: the same user's SIGKILL to all ends
/// both, and user 0's to the number of either.
fn hidden_programs_are_killed(door: door::Door) -> Seen {
    let by_user = |_: Hidden| {
        libc::wait(libc::spawn(|| {
            if libc::become_user(BOB) {
                libc::send(-1, KILL);
            }
            0
        }));
    };
    let by_process = |hidden: Hidden| libc::send(hidden.process, KILL);
    let by_made = |hidden: Hidden| libc::send(hidden.made.0 as i32, KILL);
    let ways: [(&str, &dyn Fn(Hidden)); 3] = [
        ("its user's signal to all", &by_user),
        ("user 0's to the process", &by_process),
        ("user 0's to what it made", &by_made),
    ];
    for (name, way) in ways {
        let hidden = start(door, make_spinner, false)?;
        way(hidden);
        expect(has_ended(door, hidden), || format!("not ended by {name}"))?;
    }
    Ok(String::new())
}

/// Makes environments of one's own domain and ends them again, without end.
fn churn(door: door::Door) {
    let (mut made, stack) = (VecDeque::new(), stack_page());
    loop {
        made.extend(make_spinner_at(door, stack));
        if made.len() > SPINNERS
            && let Some(env) = made.pop_front()
        {
            let _ = libc::kernel(door, Call::EnvDestroy { env, word: 0 });
            let _ = libc::kernel(door, Call::EnvForget { env });
        }
    }
}

/// Starts a process of BOB's that has some threads more, which make environments. Its first thread
/// does so too, or (`ends`) ends by the kernel's call alone. The process, and its domain.
fn start_churning(door: door::Door, threads: usize, ends: bool) -> Result<(i32, DomainId), String> {
    let words: &[AtomicU64] = libc::words(libc::shared(1), 2);
    let process = libc::spawn(|| {
        if !libc::become_user(BOB) {
            return 1;
        }
        let spawn = |_| std::thread::Builder::new().spawn(move || churn(door)).is_ok();
        let all = (0..threads).all(spawn) && make_spinner(door).is_some();
        words[0].store(1 + u64::from(all), Ordering::SeqCst);
        while words[1].load(Ordering::SeqCst) == 0 {
            std::thread::yield_now();
        }
        if ends {
            let env = EnvId(std::process::id());
            let _ = libc::kernel(door, Call::EnvDestroy { env, word: 0 });
        }
        churn(door);
        2
    });
    while words[0].load(Ordering::SeqCst) == 0 && libc::is_alive(process) {
        std::thread::yield_now();
    }
    let has_begun = words[0].load(Ordering::SeqCst) == 2;
    let domain = published::env_domain(EnvId(process as u32)).unwrap_or(DomainId::NONE);
    words[1].store(1, Ordering::SeqCst);
    expect(has_begun, || "it has made no environment".into())?;
    while ends && libc::is_alive(process) {
        std::thread::yield_now();
    }
    Ok((process, domain))
}

/// How many environments there are in a domain.
fn environments(domain: DomainId) -> u32 {
    published::domain(domain).map_or(0, |record| record.envs)
}

/// SIGKILL ends all environments of a process's, also those that it makes meanwhile, and those that
/// its first one has left.
fn the_killed_leave_no_environments(door: door::Door) -> Seen {
    for round in 0..ROUNDS {
        let (threads, ends) = ([0, 1, 4][round % 3], round % 8 == 7);
        let (process, domain) = start_churning(door, threads, ends)?;
        std::thread::sleep(Duration::from_micros(1 + 370 * (round as u64 % 16)));
        libc::send(process, KILL);
        let began = Instant::now();
        while environments(domain) != 0 && began.elapsed() < LIMIT {
            std::thread::sleep(Duration::from_millis(1));
        }
        let left = environments(domain);
        if left != 0 {
            let _ = libc::kernel_by(door, Call::DomainDestroy { domain }, USER);
        }
        let status = libc::wait(process);
        expect(left == 0, || format!("round {round}: {left} environments live on"))?;
        expect(ends || status == KILL, || format!("round {round}: status {status:#x}"))?;
    }
    Ok(String::new())
}

/// A process whose domain admits visitors, which spin there; the process, and the domain.
fn start_host(door: door::Door) -> Result<(i32, DomainId), String> {
    let word: &AtomicU64 = &libc::words(libc::shared(1), 1)[0];
    let host = libc::spawn(|| {
        let value = spin as *const () as u64;
        let admits = Call::DomainSet { domain: DomainId::NONE, property: 7, value };
        let admits = libc::kernel(door, admits).is_ok();
        // The page is there.
        std::hint::black_box(libc::words(value & !7, 1)[0].load(Ordering::Relaxed));
        word.store(1 + u64::from(admits), Ordering::SeqCst);
        std::thread::sleep(PATIENCE);
        7
    });
    while word.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    let domain = published::env_domain(EnvId(host as u32));
    let admits = word.load(Ordering::SeqCst) == 2;
    Ok((host, domain.filter(|_| admits).ok_or("no visitor is admitted")?))
}

/// A process that ends by the kernel's call and leaves a thread that visits another domain: its
/// parent hears of its end, and the thread ends.
fn visitors_elsewhere_keep_no_parent(door: door::Door) -> Seen {
    let (host, domain) = start_host(door)?;
    let words: &[AtomicU64] = libc::words(libc::shared(1), 2);
    let [word, refusal] = [&words[0], &words[1]];
    let parent = libc::spawn(|| {
        let child = libc::spawn(|| {
            std::thread::spawn(move || {
                let answer = libc::kernel_by(door, Call::DomainSwitch { domain }, USER);
                let (error, cause) = answer.map_or_else(|at| (at.0 as u64, at.1), |_| (0, 0));
                refusal.store(1 << 32 | error << 8 | cause, Ordering::SeqCst);
            });
            let began = Instant::now();
            while environments(domain) < 2 && began.elapsed() < LIMIT {
                std::thread::yield_now();
            }
            if environments(domain) == 2 {
                let env = EnvId(std::process::id());
                let _ = libc::kernel(door, Call::EnvDestroy { env, word: 0 });
            }
            2
        });
        word.store(1 + libc::wait(child) as u64, Ordering::SeqCst);
        0
    });
    let began = Instant::now();
    while word.load(Ordering::SeqCst) == 0 && began.elapsed() < 2 * LIMIT {
        std::thread::sleep(Duration::from_millis(1));
    }
    let status = word.load(Ordering::SeqCst);
    let left = environments(domain);
    for process in [parent, host] {
        libc::send(process, KILL);
        libc::wait(process);
    }
    expect(status != 0, || "the parent does not hear of its child's end".into())?;
    let refusal = refusal.load(Ordering::SeqCst);
    expect(status == 1, || format!("status {status:#x}: it visits no domain: {refusal:#x}"))?;
    expect(left == 1, || format!("{left} environments are in the domain visited"))?;
    Ok(String::new())
}

/// User 0's SIGKILL to a number that is a server's by mistake ends none, and finds nobody.
fn numbers_of_servers_are_nobody(_: door::Door) -> Seen {
    let server = EnvId(services::get(Service::Addresses) as u32);
    libc::send(server.0 as i32, KILL);
    let refusal = std::io::Error::last_os_error().raw_os_error();
    expect(published::env_lives(server), || "the server was ended".into())?;
    expect(refusal == Some(NO_SUCH_PROCESS), || format!("error {refusal:?}"))?;
    Ok(String::new())
}

/// `enduser` ends what hides and is signalled by no name, and a program that ends whatever it may
/// signal itself.
fn enduser_ends_all_of_a_user(door: door::Door) -> Seen {
    let run = |user: &str| {
        libc::wait(libc::spawn(|| {
            libc::execute("/xok/enduser", &["enduser".into(), user.into()], &[]);
            101
        }))
    };
    let bob = BOB.to_string();
    let makers: [fn(door::Door) -> Option<EnvId>; 2] = [make_spinner, make_alone];
    for (at, make) in makers.into_iter().enumerate() {
        let hidden = start(door, make, true)?;
        let status = run(&bob);
        let ended = has_ended(door, hidden);
        expect(status == 0 && ended, || format!("status {status:#x}, {at} ended {ended}"))?;
    }
    let began: &AtomicU64 = &libc::words(libc::shared(1), 1)[0];
    let killer = libc::spawn(|| {
        began.store(1 + u64::from(libc::become_user(BOB)), Ordering::SeqCst);
        let since = Instant::now();
        while since.elapsed() < PATIENCE {
            libc::send(-1, KILL);
        }
        7
    });
    while began.load(Ordering::SeqCst) == 0 {
        std::thread::yield_now();
    }
    let status = run(&bob);
    let killers = libc::wait(killer);
    expect(status == 0 && killers == KILL, || {
        format!("status {status:#x}, that of a program that ends others {killers:#x}")
    })?;
    // Without a user it says how it is called.
    for (refused, wanted) in
        [("root", 0x100), ("0", 0x100), ("nosuchuser", 0x100), ("61107x", 0x100), ("", 0x200)]
    {
        let status = run(refused);
        expect(status == wanted, || format!("enduser '{refused}': {status:#x}"))?;
    }
    let status = libc::wait(libc::spawn(|| {
        if !libc::become_user(BOB) {
            return 100;
        }
        libc::execute("/xok/enduser", &["enduser".into(), bob.clone()], &[]);
        101
    }));
    expect(status == 0x100, || format!("a user without rights: {status:#x}"))?;
    Ok(String::new())
}
