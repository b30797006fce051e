//! How the kernel begins, and what it says when it cannot go on: a bad image, a fault of its own.

use std::path::PathBuf;
use std::time::Duration;

use image::archive::{Attributes, Builder};

use crate::boot_image;
use crate::failure::{Context, Result};
use crate::run::{self, Captured, Job};
use crate::tally::{Tally, Test, Verdict};
use crate::test::guest_suite::OPEN_MODEL;
use crate::workspace;

/// How long a boot may take.
const LIMIT: Duration = Duration::from_secs(120);

const TESTS: [Test; 15] = [
    ("boot/stack_overflow_is_named", || provoke("stack-overflow", "stack overflow")),
    ("boot/fall_off_the_stack_is_named", || provoke("stack-top", "fall off the stack's top")),
    ("boot/use_of_a_stack_given_up_is_named", kept_stack),
    ("boot/fault_in_the_kernel_is_named", || provoke("kernel-fault", "page fault in the kernel")),
    ("boot/kernel_text_is_read_only", || provoke("write-text", "page fault in the kernel")),
    ("boot/panic_ends_the_machine", || provoke("panic", "asked for")),
    ("boot/late_processors_are_there", late_processors),
    ("boot/no_random_numbers_are_told", no_random_numbers),
    ("boot/random_numbers_do_not_run_out", random_numbers_last),
    ("boot/second_users_are_refused", second_users),
    ("boot/image_cut_short_is_refused", image_cut_short),
    ("boot/image_with_wrong_checksum_is_refused", image_with_wrong_checksum),
    ("boot/missing_init_is_named", missing_init),
    ("boot/malformed_init_is_refused", malformed_init),
    ("boot/dynamic_init_is_refused", dynamic_init),
];

/// Runs those that are wanted.
pub fn run(tally: &mut Tally) -> Result<()> {
    tally.run(&TESTS);
    Ok(())
}

/// A mistake made on purpose by the kernel itself must end with these words, and no success.
fn provoke(mistake: &str, words: &str) -> Result<Verdict> {
    let job = job(&[("provoke", mistake)]);
    let image = run::make_image(&job)?;
    Ok(refused(&run::capture(&job, &image.path, None, |_| {})?, words))
}

/// l4stack 7: of what lay on the kernel's stack nothing is there when it is entered again, on a
/// machine that poisons: who uses it reads no address, and that is told.
fn kept_stack() -> Result<Verdict> {
    let mut job = job(&[("provoke", "kept-stack"), ("poison", "1")]);
    job.program = Some(("/bin/busybox".into(), ["busybox", "true"].map(String::from).to_vec()));
    let image = run::make_image(&job)?;
    Ok(refused(&run::capture(&job, &image.path, None, |_| {})?, "vector 13 "))
}

/// A processor that is counted has slices to be had before the first program runs, also if it is
/// the last to go on: the program asks for one at once, for somebody who then works there.
fn late_processors() -> Result<Verdict> {
    let work = [("init", "/xok/native-bench"), ("cpus", "100"), ("workers", "1")];
    let mut job = job(&[&work[..], &[("provoke", "late-processors")]].concat());
    job.machine.cpus = 2;
    let image = run::make_image(&job)?;
    let captured = run::capture(&job, &image.path, None, |_| {})?;
    let log = captured.log.join(" | ");
    let works = captured.status == Some(0) && log.contains("cpus control 1 ");
    Ok(if works && !log.contains("fatal ") { Ok(String::new()) } else { Err(log) })
}

/// Without RDRAND and virtio-rng the log says what is not kept then; with one of them nothing.
fn no_random_numbers() -> Result<Verdict> {
    let image = run::make_image(&Job::default())?;
    for (rng, told) in [(false, true), (true, false)] {
        let mut job = job(&[]);
        (job.machine.rng, job.machine.cpu) = (rng, Some("max,-la57,-rdrand".into()));
        job.program = Some(("/bin/busybox".into(), ["busybox", "true"].map(String::from).to_vec()));
        let captured = run::capture(&job, &image.path, None, |_| {})?;
        let log = captured.log.join(" | ");
        if captured.status != Some(0) || log.contains("no RDRAND, no virtio-rng") != told {
            return Ok(Err(format!("rng {rng}, status {:?}: {log}", captured.status)));
        }
    }
    Ok(Ok(String::new()))
}

/// A user that draws random numbers again and again has neither others go without nor the kernel
/// wait for a device that gives a kilobyte in a second.
fn random_numbers_last() -> Result<Verdict> {
    let mut job = job(&[]);
    (job.machine.slow_rng, job.machine.cpu) = (true, Some("max,-la57,-rdrand".into()));
    let script = "echo ann:x:1000:1000::/:/bin/sh >>/etc/passwd; read a b </proc/uptime; \
                  su ann -c 'dd if=/dev/urandom of=/dev/null bs=1k count=64 2>/dev/null; echo $?'; \
                  head -c 64 /dev/urandom | wc -c; \
                  read c d </proc/uptime; [ $((${c%.*} - ${a%.*})) -lt 10 ] && echo soon";
    let words = ["busybox", "sh", "-c", script].map(String::from).to_vec();
    job.program = Some(("/bin/busybox".into(), words));
    let image = run::make_image(&job)?;
    let captured = run::capture(&job, &image.path, None, |_| {})?;
    let output = String::from_utf8_lossy(&captured.output).replace('\r', "");
    let log = captured.log.join(" | ");
    let lasts = output == "0\n64\nsoon\n" && log.contains("rng virtio");
    Ok(if lasts { Ok(String::new()) } else { Err(format!("{output:?}: {log}")) })
}

/// Issue 15, part 5: on a processor that keeps no two users apart no process becomes a second user,
/// by its own call or by a set-id program, unless the machine's owner says so.
fn second_users() -> Result<Verdict> {
    let script = "echo ann:x:1000:1000::/:/bin/sh >>/etc/passwd; su ann -c 'id -u'; \
                  cp /bin/busybox /tmp/id; chown 1000 /tmp/id; chmod 4755 /tmp/id; \
                  /tmp/id -u; id -u";
    for (mitigations, expected) in [("all", "0\n"), ("off", "1000\n1000\n0\n")] {
        let mut job = job(&[("mitigations", mitigations)]);
        job.machine.cpu = Some(OPEN_MODEL.into());
        let words = ["busybox", "sh", "-c", script].map(String::from).to_vec();
        job.program = Some(("/bin/busybox".into(), words));
        let image = run::make_image(&job)?;
        let captured = run::capture(&job, &image.path, None, |_| {})?;
        let output = String::from_utf8_lossy(&captured.output).replace('\r', "");
        if output != expected {
            let log = captured.log.join(" | ");
            return Ok(Err(format!("mitigations={mitigations}: {output:?}: {log}")));
        }
    }
    Ok(Ok(String::new()))
}

fn image_cut_short() -> Result<Verdict> {
    boot_damaged(|bytes| bytes.truncate(bytes.len() / 2), "cut short")
}

fn image_with_wrong_checksum() -> Result<Verdict> {
    // In the entries, which begin with the archive's second page.
    boot_damaged(|bytes| bytes[image::archive::PAGE_SIZE + 16] ^= 1, "wrong checksum")
}

fn boot_damaged(damage: impl FnOnce(&mut Vec<u8>), words: &str) -> Result<Verdict> {
    let whole = run::make_image(&Job::default())?;
    let mut bytes = std::fs::read(&whole.path).context(whole.path.display())?;
    damage(&mut bytes);
    boot(&bytes, words)
}

fn missing_init() -> Result<Verdict> {
    boot(&image_with_init(None)?, "has no /xok/init")
}

fn malformed_init() -> Result<Verdict> {
    boot(&image_with_init(Some(b"\x7fELF, but no more".to_vec()))?, "ELF file cut short")
}

fn dynamic_init() -> Result<Verdict> {
    let ourselves = std::env::current_exe().context("our own program")?;
    let dynamic = std::fs::read(&ourselves).context(ourselves.display())?;
    boot(&image_with_init(Some(dynamic))?, "needs an interpreter")
}

/// An image of nothing but a first program, or not even that.
fn image_with_init(init: Option<Vec<u8>>) -> Result<Vec<u8>> {
    let mut builder = Builder::new();
    if let Some(init) = init {
        let executable = Attributes::mode(0o755);
        builder.file("/xok/init", executable, init).map_err(boot_image::refused)?;
    }
    builder.build().map_err(boot_image::refused)
}

fn boot(image: &[u8], words: &str) -> Result<Verdict> {
    let file = workspace::output().join(format!("bad-{}.img", std::process::id()));
    std::fs::write(&file, image).context(file.display())?;
    let file = TemporaryFile(file);
    Ok(refused(&run::capture(&job(&[]), &file.0, None, |_| {})?, words))
}

fn job(settings: &[(&str, &str)]) -> Job {
    let owned = settings.iter().map(|(key, value)| (key.to_string(), value.to_string()));
    Job { settings: owned.collect(), limit: Some(LIMIT), ..Job::default() }
}

fn refused(captured: &Captured, words: &str) -> Verdict {
    let Some(line) = captured.log.iter().find(|line| line.contains(words)) else {
        return Err(format!("the log has no `{words}`: {}", captured.log.join(" | ")));
    };
    match captured.status {
        None => Err("the machine did not end".into()),
        Some(0) => Err("the machine ended with success".into()),
        Some(status) => Ok(format!("(status {status}: {line})")),
    }
}

struct TemporaryFile(PathBuf);

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        // A file too many in the target directory harms nobody.
        let _ = std::fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusal_needs_words_and_status() {
        let ended = |status, line: &str| Captured {
            status,
            output: Vec::new(),
            error: Vec::new(),
            log: vec![line.to_string()],
        };
        assert!(refused(&ended(Some(1), "xok: image cut short"), "cut short").is_ok());
        assert!(refused(&ended(Some(0), "xok: image cut short"), "cut short").is_err());
        assert!(refused(&ended(None, "xok: image cut short"), "cut short").is_err());
        assert!(refused(&ended(Some(1), "xok: all is well"), "cut short").is_err());
    }
}
