//! The only door: builds, runs, checks and tests the whole tree.

#![forbid(unsafe_code)]

mod accelerator;
mod bench;
mod boot_image;
mod build;
mod check;
mod chroot;
mod command_line;
mod compile;
mod conformance;
mod failure;
mod firmware;
mod gdb;
mod guest;
mod hostile;
mod iso;
mod json;
mod leftovers;
mod linux_suite;
mod listing;
mod machine;
mod machines;
mod mutate;
mod options;
mod packages;
mod process;
mod report;
mod run;
mod soak;
mod strace;
mod tally;
mod test;
mod tidy;
mod trace;
mod workspace;

use std::process::ExitCode;

use failure::{Failure, Result};

/// What `cargo xtask help` prints.
pub const HELP: &str = "\
cargo xtask COMMAND

  run [OPTIONS]                  boot to a shell; http://localhost:8080 is Cheetah's; with its
                                 commands in a pipe or file, it ends with them
  run [OPTIONS] -- PROGRAM ...   run a static Linux program: its output, its exit status
      --machine q35|microvm      the virtual machine                   (q35)
      --firmware qboot|seabios   what starts the kernel on q35         (qboot)
      --cpus N                   processors, 1 to 4                    (1)
      --memory SIZE              such as 256M or 2G                    (256M)
      --cpu MODEL                QEMU's processor model
      --disk FILE                a disk, raw, that is this file
      --without network|rng      leave the device out
      --accel kvm|tcg            instead of trying which one works
      -p HOST:GUEST              forward a port of the host            (8080:80 with the shell)
      --tap DEVICE=ADDRESS/PREFIX[,GATEWAY]
                                 a tap device of the host instead of QEMU's user network
      --file HOST[:GUEST]        put a file or directory into the image
      --env NAME=VALUE           a variable for the program
      --gdb                      wait, stopped, for a gdb of yours; see docs/debugging.md
      --strace                   trace it and its children into target/xok/strace.txt
      --timeout SECONDS          end the guest after so long           (never)
  trace [--output FILE] [--text FILE] [--records N] [OPTIONS of run] -- PROGRAM ...
                                 run it with all calls, upcalls, switches and packets recorded:
                                 as text on standard error or in a file, and as a timeline in
                                 target/xok/trace.json, which Perfetto opens
  test [--only PATTERN] [--suite NAME]... [--place MACHINE]
                                 all tests, or those of some suites: host, static, boot,
                                 guest, iso, net, status, load, machines, wire, exos, linux,
                                 command, servers, debug, bench, hostile, wrong; on one machine of
                                 guest, iso, net, status, load, exos, hostile, as their results name
                                 it: `q35 x1`, of exos `x1`; the last line is `N passed, N failed`
  bench [--only ROW[,ROW]...] [--ours] [--profile ROW] [--samples N] [--list]
        [--time] [--rounds N] [--plot FILE] [--boot] [--http] [--keys] [--cpus] [--stride] [--paths]
                                 instructions of each row here and on Linux, or --ours alone;
                                 --profile: ours by function and by line; --time: nanoseconds
                                 instead, in ten trials; --boot: boots and memory instead,
                                 with --ours where the instructions of a boot of ours go;
                                 --http: web servers instead, with --ours ours alone;
                                 --keys: how soon a keystroke is answered
                                 --cpus: the same work on one processor and on two
                                 --stride: shares of processor time, by a program
                                 --paths: the kernel's shortest paths, listed by instruction, into
                                 docs/results/0006-paths.md
  build                          the kernel and its programs
  image [--file HOST[:GUEST]]... [--output FILE] [--iso [--line WORDS]]
                                 the boot image alone; --iso: with the kernel and GRUB, for a CD
                                 or a USB stick, by BIOS and UEFI, WORDS the kernel's command line
  check                          format, lints, the tree's rules, host tests
  machines [--only PATTERN] [--all] [--list]
                                 boot the table of machines, every pair of their properties in
                                 some cell, or --all cells; the native suite on Bochs, one and two
                                 processors; the last line is as test's
  mutate [--only PATTERN] [--list]
                                 conformance tests, each with the fault that turns it red;
                                 the last line is `N caught, N missed`
  hostile [--seconds N] [--seed N] [--cpus N]
                                 programs without rights that make any call, beside victims
  soak [--minutes N] [--seed N] [--part PART]...
       [--steps N] [--programs N] [--inputs N] [--calls N] [--callers N] [--seconds N]
                                 random calls, threads, loads: host and guest, from a seed, all
                                 parts or some, each round of the size said: model,
                                 noninterference, code, fuzz, words, calls, threads,
                                 hostile, set-id, load, miri
  chroot [--keep] [--only-run]   run and test in a fresh Debian, as root; --only-run: run alone
  linux [--self-check | --show] [GROUP[/NAME]]...
                                 tests/linux alone: here and in the guest, compared; or here
                                 twice; or here once with everything shown
  listing FILE FUNCTION [--given word|read:BYTES|write:BYTES,...] [--call NUMBER:ARGUMENTS]...
                                 a downloaded function, of C or of clang's object file, as text;
                                 with what it is given: what the verifier says of it
  conformance                    docs/conformance.md, from the last test run
  help [COMMAND]                 this, or the lines of one command
";

fn main() -> ExitCode {
    report::start();
    let mut words = std::env::args().skip(1);
    let command = words.next().unwrap_or_default();
    match dispatch(&command, words.collect()) {
        Ok(status) => ExitCode::from(status),
        Err(failure) => {
            eprintln!("{failure}");
            ExitCode::from(failure.exit_status())
        }
    }
}

/// Commands that take no arguments.
const ALONE: [&str; 3] = ["build", "conformance", "check"];

fn dispatch(command: &str, words: Vec<String>) -> Result<u8> {
    if words.first().is_some_and(|word| word == "--help" || word == "-h") {
        print!("{}", help_of(command)?);
        return Ok(0);
    }
    if let Some(word) = words.first().filter(|_| ALONE.contains(&command)) {
        return Err(options::unknown(command, word).status(2));
    }
    match command {
        "test" => return test::command(words),
        "run" => return run::command(words),
        "trace" => return trace::command(words),
        // Not for people: the net suite runs it inside of its namespace.
        "net-inside" => return test::net_inside(words),
        "load-inside" => return test::load_inside(words),
        // Not for people: the status suite runs it inside of its namespace.
        "status-inside" => return test::status_inside(words),
        "bench" => bench::command(words)?,
        // Not for people: the bench runs it inside of its namespace.
        "bench-inside" => bench::http_inside(words)?,
        "build" => build::build()?,
        "conformance" => conformance::command()?,
        "listing" => return listing::command(words),
        "linux" => return linux_suite::command(words),
        "machines" => return machines::command(words),
        "mutate" => return mutate::command(words),
        "hostile" => return hostile::command(words),
        "soak" => return soak::command(words),
        "chroot" => chroot::command(words)?,
        "check" => check::command()?,
        "image" => boot_image::command(words)?,
        "help" | "--help" | "-h" => match words.as_slice() {
            [] => print!("{HELP}"),
            [command] => print!("{}", help_of(command)?),
            [_, further, ..] => return Err(options::unknown("help", further).status(2)),
        },
        "" => {
            eprint!("{HELP}");
            return Ok(2);
        }
        _ => return Err(no_such_command(command)),
    }
    Ok(0)
}

fn no_such_command(command: &str) -> Failure {
    Failure::new(format!("{command}: no such command")).next(options::HELP).status(2)
}

/// The lines of the help that are about one command: first lines are indented by two.
fn help_of(command: &str) -> Result<String> {
    let mut is_its = false;
    let lines: String = HELP
        .split_inclusive('\n')
        .filter(|line| {
            if line.starts_with("  ") && !line[2..].starts_with(' ') {
                is_its = line.split_whitespace().next() == Some(command);
            }
            is_its
        })
        .collect();
    if lines.is_empty() { Err(no_such_command(command)) } else { Ok(lines) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn help_of_one_command_is_its_lines_alone() {
        let lines = help_of("hostile").unwrap();
        assert!(
            lines.starts_with("  hostile [--seconds N]") && lines.lines().count() == 2,
            "{lines}"
        );
        assert!(help_of("run").unwrap().contains("--strace"));
        assert!(help_of("no-command").is_err());
    }
}
