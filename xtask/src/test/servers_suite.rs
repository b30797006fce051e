//! Servers that stay: what becomes of programs when a server of theirs ends, or has no memory.
//!
//! `provoke-server=NAME:MISTAKE:MILLISECONDS` has a server make a mistake in each of its lives
//! (`xok::beat`); the programs wait until they notice.

use std::time::Duration;

use super::exos_suite::parts;
use crate::boot_image::Extra;
use crate::failure::Result;
use crate::machine::{Counting, Machine};
use crate::run::{self, Captured, Job};
use crate::tally::{Tally, Test, Verdict};

/// How long a boot may take.
const LIMIT: Duration = Duration::from_secs(150);
/// How long one that counts: the longest takes a minute of a processor that it has for itself.
const COUNTING: Duration = Duration::from_secs(600);

const TESTS: [Test; 29] = [
    ("servers/files_after_an_end", || files("end", "ended with 0x700")),
    ("servers/files_after_a_panic", || files("panic", "panic: ")),
    ("servers/files_after_a_fault", || files("fault", "fault ")),
    ("servers/files_after_a_loop", || files("spin", "does not answer")),
    ("servers/files_after_a_sleep", || files("sleep", "does not answer")),
    ("servers/files_after_a_pause", paused),
    ("servers/terminal_after_an_end", || terminal("end", "init: ttyd ended")),
    ("servers/terminal_after_a_loop", || terminal("spin", "init: ttyd does not answer")),
    ("servers/accounts_after_an_end", accounts),
    ("servers/files_delay_nobody", || delays("files")),
    ("servers/files_are_served_in_turn", || delays("files_beside")),
    ("servers/files_delay_nobody_beside_programs", || delays("files_programs")),
    ("servers/files_delay_nobody_beside_ends", || delays("files_ends")),
    ("servers/files_delay_nobody_beside_a_crowd", || delays("files_crowd")),
    ("servers/files_delay_nobody_beside_another_processor", elsewhere),
    ("servers/many_entries_delay_nobody", || delays_in("files_entries", "256M")),
    ("servers/holders_delay_nobody", || delays_in("holders", "4G")),
    ("servers/groups_delay_nobody", || delays_in("groups", "4G")),
    ("servers/users_delay_nobody", || delays_in("users", "4G")),
    ("servers/sleepers_delay_nobody", || delays_in("sleepers", "4G")),
    ("servers/terminals_delay_nobody", || delays_in("terminals", "4G")),
    ("servers/foregrounds_delay_nobody", || delays_in("terminals_crowd", "4G")),
    ("servers/turns_are_left_to_others", || delays("turns")),
    ("servers/requests_take_no_turns_of_servers", || delays("turns_requests")),
    ("servers/web_requests_delay_nobody", || delays("web")),
    ("servers/addresses_after_an_end", || network("arpd")),
    ("servers/web_after_an_end", || network("cheetah")),
    ("servers/web_without_memory", starved),
    ("servers/set_id_without_memory", set_id_starved),
];

/// Runs those that are wanted.
pub fn run(tally: &mut Tally) -> Result<()> {
    tally.run(&TESTS);
    Ok(())
}

/// A shell script beside a server that makes this mistake.
fn script(provoked: &str, script: &str) -> Result<Captured> {
    let words = ["busybox", "sh", "-c", script].map(String::from);
    let settings = vec![("provoke-server".to_string(), provoked.to_string())];
    let program = Some(("/bin/busybox".to_string(), words.to_vec()));
    let job = Job { settings, program, limit: Some(LIMIT), ..Job::default() };
    let image = run::make_image(&job)?;
    run::capture(&job, &image.path, None, |_| {})
}

fn judge(captured: &Captured, output: &str, error: &str) -> Verdict {
    let text = String::from_utf8_lossy(&captured.output);
    let errors = String::from_utf8_lossy(&captured.error);
    if captured.status == Some(0) && text == output && errors.contains(error) {
        return Ok(String::new());
    }
    Err(format!("status {:?}, output {text:?}, errors {errors:?}", captured.status))
}

/// Who had a file open gets EIO, and the boot image's files are there again; of the old ones none
/// is. What the server said at its end, and what init says of it, is on standard error.
fn files(mistake: &str, words: &str) -> Result<Verdict> {
    let text = r#"
        exec 3>/tmp/kept
        while wrong=$( (echo x >&3) 2>&1 ); do sleep 0.05; done
        echo "${wrong##*: }"
        cat /tmp/kept 2>/dev/null && echo still there
        echo new >/tmp/new && cat /tmp/new
        ls -d /tmp /home /root
    "#;
    let captured = script(&format!("tmpfsd:{mistake}:4000"), text)?;
    Ok(judge(&captured, "Input/output error\nnew\n/home\n/root\n/tmp\n", words))
}

/// A server that is asked for a beat right behind one, and has nothing to do then, has not lost the
/// question: it stays, and so do its files.
fn paused() -> Result<Verdict> {
    let text = "echo kept >/tmp/kept; sleep 14; cat /tmp/kept";
    let captured = script("tmpfsd:pause:4000", text)?;
    let verdict = judge(&captured, "kept\n", "");
    let errors = String::from_utf8_lossy(&captured.error);
    Ok(if errors.contains("started again") { Err(errors.into_owned()) } else { verdict })
}

/// All that a program writes comes out once, and in order, whoever shows it.
fn terminal(mistake: &str, words: &str) -> Result<Verdict> {
    let text = "for i in $(seq 400); do echo $i; usleep 30000; done";
    let captured = script(&format!("ttyd:{mistake}:3000"), text)?;
    let lines: String = (1..=400).map(|line| format!("{line}\n")).collect();
    Ok(judge(&captured, &lines, words))
}

/// Each user has the account that it had.
fn accounts() -> Result<Verdict> {
    const PROGRAM: &str = "/tmp/parts";
    let program = Some((PROGRAM.to_string(), vec![PROGRAM.into(), "accounts-kept".into()]));
    let settings = vec![("provoke-server".to_string(), "accountd:end:3000".to_string())];
    let extras = vec![Extra { host: parts()?.into(), guest: PROGRAM.into() }];
    let job = Job { settings, program, extras, limit: Some(LIMIT), ..Job::default() };
    let image = run::make_image(&job)?;
    let captured = run::capture(&job, &image.path, None, |_| {})?;
    Ok(judge(&captured, "Ok(\"\")\n", "init: accountd ended with 0x700"))
}

/// No client of a server delays another one, as `tests/parts/src/delays.rs` has it: on a machine
/// of one processor where a nanosecond is one instruction.
fn delays(part: &str) -> Result<Verdict> {
    delays_in(part, "512M")
}

/// The same with so much memory: tables grow with it.
fn delays_in(part: &str, memory: &str) -> Result<Verdict> {
    let counting = Some(Counting { plugin: None, settings: Vec::new(), seed: Some(1) });
    measure(part, Machine { counting, memory: memory.into(), ..Machine::default() }, "instructions")
}

/// The same on two processors, where requests are counted.
fn elsewhere() -> Result<Verdict> {
    let machine = Machine { cpus: 2, memory: "512M".into(), ..Machine::default() };
    measure("files_elsewhere", machine, "requests")
}

/// A part of `delays` on this machine, and what it counts.
fn measure(part: &str, machine: Machine, unit: &str) -> Result<Verdict> {
    const PROGRAM: &str = "/tmp/parts";
    let words = [PROGRAM, "delays", part].map(String::from);
    let job = Job {
        machine,
        program: Some((PROGRAM.to_string(), words.to_vec())),
        extras: vec![Extra { host: parts()?.into(), guest: PROGRAM.into() }],
        limit: Some(COUNTING),
        ..Job::default()
    };
    let image = run::make_image(&job)?;
    let captured = run::capture(&job, &image.path, None, |_| {})?;
    let text = String::from_utf8_lossy(&captured.output);
    let last = text.lines().last().and_then(|line| line.strip_prefix("delays: "));
    Ok(match last {
        Some(said) if captured.status == Some(0) => Ok(format!("({said} {unit})")),
        _ => {
            let errors = String::from_utf8_lossy(&captured.error);
            Err(format!("status {:?}, output {text}, errors {errors:?}", captured.status))
        }
    })
}

/// The network goes on with another server: addresses are found out, pages served.
fn network(server: &str) -> Result<Verdict> {
    let text = r#"
        page() { wget -q -O - http://127.0.0.1/status >/dev/null 2>&1; }
        until page; do sleep 0.1; done
        sleep 6
        until page; do sleep 0.1; done
        echo served
    "#;
    let captured = script(&format!("{server}:end:3000"), text)?;
    Ok(judge(&captured, "served\n", &format!("init: {server} ended")))
}

/// Connections come, and pages are asked for that take memory, while there is none for 4 s: a page
/// that was never made, and so has no memory of an earlier one's to be written in, is refused
/// (503), and the same server serves afterwards.
fn starved() -> Result<Verdict> {
    let text = r#"
        page() { timeout 2 wget -q -O - http://127.0.0.1/$1 >/dev/null 2>&1; }
        server() { /xok/xokstat ps | grep cheetah | { read -r id rest; echo $id; }; }
        until page status; do sleep 0.1; done
        before=$(server)
        ask() { printf "GET /$1 HTTP/1.1\r\nHost: x\r\n\r\n" | nc -w 3 127.0.0.1 80; }
        uptime() { cut -d . -f 1 /proc/uptime; }
        while [ $(uptime) -lt 4 ]; do sleep 0.1; done
        ask status/tables | grep -q "503 Service Unavailable" && echo refused
        while [ $(uptime) -lt 7 ]; do
            for n in $(seq 10); do ask status.json & done >/dev/null 2>&1
            sleep 0.3
        done
        until page status/tables; do sleep 0.1; done
        [ "$(server)" = "$before" ] && echo the same server
    "#;
    let captured = script("cheetah:starve:3000", text)?;
    Ok(judge(&captured, "refused\nthe same server\n", ""))
}

/// A set-id program starts, again and again, while its server gets no memory: what that needs it
/// has from its beginning on.
fn set_id_starved() -> Result<Verdict> {
    let text = r#"
        cd /tmp; cp /bin/busybox true; chmod 4755 true; cp /bin/busybox su; chmod 4755 su
        echo "ann:x:1000:1000:Ann:/:/bin/sh" >>/etc/passwd
        server() { /xok/xokstat ps | grep setidd | { read -r id rest; echo $id; }; }
        before=$(server)
        ./su ann -c 'n=0
            while [ $(cut -d . -f 1 /proc/uptime) -lt 4 ]; do ./true || exit 1; n=$((n + 1)); done
            [ $n -gt 10 ]' && echo all started
        [ "$(server)" = "$before" ] && echo the same server
    "#;
    let captured = script("setidd:starve:0", text)?;
    Ok(judge(&captured, "all started\nthe same server\n", ""))
}
