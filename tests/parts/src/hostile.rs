//! Attackers beside victims: programs without rights make any call, with any words.
//!
//! ```text
//! parts-tests hostile SEED SECONDS
//! ```
//! Victims are scripts of unmodified programs, and clients of Cheetah. Each is run first without
//! attackers; what it prints then it must print in every later run. Attackers live for a moment
//! each and are killed, in the midst of whatever they do. At the end the machine's tables and free
//! frames are what they were, and a victim that shares a processor with an attacker has its half.

use crate::attacker::{self, KINDS, Tally};
use crate::libc;
use abi::call::Call;
use abi::id::EnvId;
use abi::published::{AccountRecord, EnvRecord, RegionRecord, Table};
use abi::word::UserAddress;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use xok::published;

/// The slot of ExOS's by which user 0's processes write to the kernel's log.
const LOG_SLOT: u8 = 4;
/// How long an attacker lives.
const LIFE: Duration = Duration::from_millis(150);
/// Attackers at one time.
const ATTACKERS: usize = 3;
/// How long victims run without attackers first.
const WARM: Duration = Duration::from_secs(2);
/// How long a run of a victim may take.
const HUNG: Duration = Duration::from_secs(120);
/// How long the machine may take to be what it was.
const SETTLING: Duration = Duration::from_secs(15);
/// How long nothing has to change before the machine counts as at rest: servers let go of clients
/// that have ended when they look for them, which init has them do once in a second.
const REST: Duration = Duration::from_secs(4);
/// How long a victim computes beside one attacker.
const SHARED: Duration = Duration::from_millis(1500);
/// How often that is tried before it counts as too little.
const TRIES: usize = 4;
/// What it must have of that, of a processor that two share.
const LEAST_SHARE: f64 = 0.45;
/// Free frames that may be missing afterwards: heaps keep some, and Cheetah what some two hundred
/// connections in TIME-WAIT have, 500 pages, which is the most that it has of them.
const FRAMES_KEPT: u64 = 768;

/// Scripts whose output is the same each time. `$V` is a directory of one's own.
const VICTIMS: [&str; 3] = [
    "mkdir -p $V && cd $V && for i in $(seq 40); do echo line $i >f$i; done; cat f* | md5sum
     ls | wc -l; ln f1 g && mv g h && cat h; tar c . | tar t | sort | md5sum
     cp f2 /tmp/$$.copy && rm /tmp/$$.copy
     seq 3000 | sort -r | head -n 1500 | md5sum; cd / && rm -r $V && ls $V 2>/dev/null | wc -l",
    "for i in $(seq 12); do (exit $i); echo $?; done
     sleep 100 & kill $!; wait $! 2>/dev/null; echo $?
     for i in $(seq 8); do seq $i 500 | tr 1 2 | awk '{s+=$1} END {print s}'; done
     trap 'echo caught' USR1; kill -USR1 $$
     (trap '' TERM; sh -c 'kill -TERM $PPID'; echo there) | cat",
    "for page in $PAGES; do wget -q -O - http://127.0.0.1$page | md5sum; done",
];

/// What is left of the machine's tables and memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Census {
    /// Environments, domains, accounts, regions, filters, rings.
    used: [usize; 6],
    frames_free: u64,
}

impl Census {
    fn take() -> Self {
        let of = |table| {
            let records = 0..published::table(table).count as usize;
            // The id is the first word of each.
            let id = |at: &usize| published::record::<u32>(table, *at).is_some_and(|id| id != 0);
            records.filter(id).count()
        };
        let tables = [
            Table::Envs,
            Table::Domains,
            Table::Accounts,
            Table::Regions,
            Table::Filters,
            Table::Rings,
        ];
        Self { used: tables.map(of), frames_free: published::directory().frames_free }
    }

    /// Waits until the tables do not change any more, then counts.
    fn at_rest() -> Result<Self, String> {
        let until = Instant::now() + SETTLING;
        let (mut last, mut since) = (Self::take(), Instant::now());
        while since.elapsed() < REST {
            std::thread::sleep(Duration::from_millis(50));
            let now = Self::take();
            if now.used != last.used {
                since = Instant::now();
            }
            last = now;
            if Instant::now() > until {
                return Err(format!("the machine does not come to rest: {last:?}"));
            }
        }
        Ok(last)
    }

    /// The environments, accounts and regions there are, to be told where they are not what they
    /// were.
    fn listed() -> String {
        let envs = (1..published::table(Table::Envs).count as usize)
            .filter_map(|at| published::record::<EnvRecord>(Table::Envs, at))
            .filter(|record| record.id != 0);
        let envs = envs.map(|env| {
            let EnvRecord { id, state, domain, account, holder, killer, born_ns, .. } = env;
            format!("{id} in {domain} of {account}: state {state}, {holder}'s, {killer} {born_ns}")
        });
        let accounts = (1..published::table(Table::Accounts).count as usize)
            .filter_map(|at| published::record::<AccountRecord>(Table::Accounts, at))
            .filter(|record| record.id != 0);
        let accounts =
            accounts.map(|one| format!("account {} below {}: {:?}", one.id, one.parent, one.used));
        let regions = (1..published::table(Table::Regions).count as usize)
            .filter_map(|at| published::record::<RegionRecord>(Table::Regions, at))
            .filter(|record| record.id != 0);
        let regions = regions.map(|one| {
            let RegionRecord { id, account, domain, bytes, attached, .. } = one;
            format!("region {id} of {domain}, {account}: {bytes} bytes, attached {attached:?}")
        });
        envs.chain(accounts).chain(regions).collect::<Vec<_>>().join("; ")
    }

    /// Is nothing missing that was there before?
    fn is_as(&self, before: &Self) -> bool {
        self.used == before.used && self.frames_free + FRAMES_KEPT >= before.frames_free
    }
}

/// A victim at work.
struct Victim {
    number: usize,
    child: Child,
    begun: Instant,
}

fn start(number: usize, run: u64) -> Result<Victim, String> {
    let place = format!("/tmp/victim-{number}-{run}");
    let child = Command::new("/bin/busybox")
        .args(["sh", "-c", VICTIMS[number]])
        .env_clear()
        .envs([("PATH", "/bin"), ("V", &place), ("PAGES", "/ /index.html /none")])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let child = child.map_err(|why| format!("victim {number} cannot begin: {why}"))?;
    Ok(Victim { number, child, begun: Instant::now() })
}

/// What it printed, its errors and its status.
fn end(victim: Victim) -> Result<Vec<u8>, String> {
    let output = victim.child.wait_with_output().map_err(|why| format!("{why}"))?;
    let mut all = output.stdout;
    all.extend(output.stderr);
    all.extend(format!("status {:#x}\n", output.status.into_raw()).bytes());
    Ok(all)
}

fn is_over(victim: &mut Victim) -> bool {
    !matches!(victim.child.try_wait(), Ok(None))
}

/// What each victim prints when nobody attacks.
fn references() -> Result<Vec<Vec<u8>>, String> {
    (0..VICTIMS.len()).map(|number| end(start(number, 0)?)).collect()
}

/// Runs victims beside attackers until the time is up; how many runs of victims there were.
fn attack(
    (seed, most): (u64, usize),
    time: Duration,
    references: &[Vec<u8>],
    tally: Tally,
) -> Result<u64, String> {
    let begun = Instant::now();
    let mut victims: Vec<Victim> = Vec::new();
    let mut attackers: Vec<(i32, Instant)> = Vec::new();
    let (mut lives, mut runs) = (0, 0);
    let mut result = Ok(());
    loop {
        let over = begun.elapsed() >= time || result.is_err();
        attackers.retain(|&(pid, since)| {
            let lives = since.elapsed() < LIFE && !over && libc::is_alive(pid);
            if !lives {
                libc::send(pid, 9);
                libc::wait(pid);
            }
            lives
        });
        while !over && attackers.len() < most {
            attackers.push((attacker::start(seed, lives, tally)?, Instant::now()));
            lives += 1;
        }
        if let Some(victim) = victims.iter_mut().find(|victim| victim.begun.elapsed() > HUNG) {
            // What it has printed is told as that of one that ended otherwise.
            let _ = victim.child.kill();
        }
        let ended = victims.iter_mut().position(is_over);
        if let Some(at) = ended {
            let victim = victims.swap_remove(at);
            let (number, took) = (victim.number, victim.begun.elapsed());
            let printed = end(victim)?;
            runs += 1;
            if printed != references[number] && result.is_ok() {
                result = Err(format!(
                    "victim {number} printed after {took:?}: {:?} instead of {:?}",
                    String::from_utf8_lossy(&printed),
                    String::from_utf8_lossy(&references[number])
                ));
            }
        }
        for number in 0..VICTIMS.len() {
            if !over && !victims.iter().any(|victim| victim.number == number) {
                victims.push(start(number, runs + 1)?);
            }
        }
        if over && victims.is_empty() {
            return result.map(|()| runs);
        }
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn ran(id: u32) -> u64 {
    published::env(EnvId(id)).map_or(0, |record| record.run_ns)
}

/// What each of these has run.
fn ran_all(ids: &[u32]) -> Vec<u64> {
    ids.iter().map(|&id| ran(id)).collect()
}

/// What they have run since; one that has ended meanwhile, which nothing is published of any more,
/// counts as none.
fn ran_since(ids: &[u32], before: &[u64]) -> u64 {
    let each = ids.iter().zip(before);
    each.map(|(&id, before)| ran(id).saturating_sub(*before)).sum()
}

/// All environments there are but these.
fn others(but: [i32; 2]) -> Vec<u32> {
    let all = 1..published::table(Table::Envs).count as usize;
    let ids = all.filter_map(|at| published::record::<EnvRecord>(Table::Envs, at));
    ids.map(|record| record.id).filter(|&id| id != 0 && !but.contains(&(id as i32))).collect()
}

/// What of the time a victim that computes has had beside one attacker of this kind, on the same
/// processor.
fn share_beside(kind: u64, seed: u64, tally: Tally) -> Result<f64, String> {
    let victim = libc::spawn(|| {
        loop {
            std::hint::spin_loop()
        }
    });
    let mut number = kind;
    let mut attacker = attacker::start(seed, number, tally)?;
    let others = others([victim, attacker]);
    // Both are at home where we are: what we and the servers take is not what they share.
    let (begun, before) = (xok::clock::now_ns(), (ran(victim as u32), ran_all(&others)));
    let until = Instant::now() + SHARED;
    while Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
        if !libc::is_alive(attacker) {
            number += KINDS;
            attacker = attacker::start(seed, number, tally)?;
        }
    }
    let passed = xok::clock::now_ns() - begun;
    let own = ran(victim as u32).saturating_sub(before.0);
    let taken = ran_since(&others, &before.1);
    for pid in [attacker, victim] {
        libc::send(pid, 9);
        libc::wait(pid);
    }
    Ok(own as f64 / passed.saturating_sub(taken) as f64)
}

/// The least of all kinds. A busy host keeps a processor of the machine's waiting in the midst of a
/// turn, which counts as used: one that has had too little is tried again.
fn share(seed: u64, tally: Tally) -> Result<f64, String> {
    let mut least = f64::MAX;
    for kind in 0..KINDS {
        let mut had = 0.0_f64;
        for _ in 0..TRIES {
            had = had.max(share_beside(kind, seed, tally)?);
            if had >= LEAST_SHARE {
                break;
            }
        }
        least = least.min(had);
    }
    Ok(least)
}

fn texts(all: &[Vec<u8>]) -> String {
    all.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect()
}

/// Waits until Cheetah answers.
fn served() -> Result<(), String> {
    let script = "until wget -q -O - http://127.0.0.1/ >/dev/null 2>&1; do usleep 50000; done";
    let asked = Command::new("/bin/busybox").args(["timeout", "30", "sh", "-c", script]).status();
    if asked.is_ok_and(|status| status.success()) { Ok(()) } else { Err("no web server".into()) }
}

/// Everything once.
fn all(seed: u64, seconds: u64, tally: Tally) -> Result<String, String> {
    served()?;
    let references = references()?;
    let again = self::references()?;
    if references != again {
        return Err(format!("not the same twice: {}", texts(&references) + &texts(&again)));
    }
    // Victims beside each other first, so that what servers keep of clients is there before.
    attack((seed, 0), WARM, &references, tally)?;
    let before = Census::at_rest()?;
    let time = Duration::from_secs(seconds);
    let runs = attack((seed, ATTACKERS), time, &references, tally)?;
    let had = share(seed, tally)?;
    let until = Instant::now() + SETTLING;
    let mut after = Census::take();
    while !after.is_as(&before) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(50));
        after = Census::take();
    }
    let (calls, granted, unseen) = tally.sums();
    let said = format!("{calls} calls, {granted} granted, {runs} runs of victims, share {had:.2}");
    if !after.is_as(&before) {
        let listed = Census::listed();
        return Err(format!("{said}; before {before:?}, after {after:?}: {listed}"));
    }
    if had < LEAST_SHARE {
        return Err(format!("{said}: the victim has too little"));
    }
    if !unseen.is_empty() || runs < VICTIMS.len() as u64 {
        return Err(format!("{said}: never made: {unseen:?}"));
    }
    // Those who were there all the time.
    let last = self::references()?;
    if last != references {
        return Err(format!("afterwards: {}", texts(&last)));
    }
    Ok(format!(
        "{calls} calls, {granted} granted; {runs} runs of victims, none differed; tables as \
         before; least share of a processor {had:.2} ({LEAST_SHARE:.2} asked)"
    ))
}

/// `hostile SEED SECONDS`. The verdict goes to the kernel's log: the terminal is one of the things
/// that are attacked.
pub fn command(door: door::Door, words: &[String]) -> bool {
    let numbers: Vec<u64> = words.iter().filter_map(|word| word.parse().ok()).collect();
    let [seed, seconds] = numbers[..] else { return false };
    let verdict = all(seed, seconds, Tally::new());
    let text = match &verdict {
        Ok(said) => format!("hostile: ok {said}\n"),
        Err(why) => format!("hostile: FAILED {}\n", why.replace('\n', "\\n")),
    };
    let mut left = text.as_bytes();
    while let [_, ..] = left {
        let (bytes, len) = (UserAddress(left.as_ptr() as u64), left.len() as u64);
        match libc::kernel_by(door, Call::ConsoleWrite { stream: 2, bytes, len }, LOG_SLOT) {
            Ok(taken) => left = &left[(taken as usize).min(left.len())..],
            Err(_) => return false,
        }
    }
    verdict.is_ok()
}
