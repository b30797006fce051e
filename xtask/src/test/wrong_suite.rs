//! Programs that do wrong: the one who does it gets a clear error, everybody else gets nothing.
//!
//! Each test is a script of the guest's shell that lets a program do something wrong and then does
//! something right: the wrong one must end as expected, and the right one must work.

use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::time::Duration;

use image::elf::Plan;

use crate::boot_image::{self, Extra};
use crate::failure::{Context, Failure, Result};
use crate::run::{self, Job};
use crate::tally::{Tally, Verdict};
use crate::workspace;

/// How long one script may take, boot included.
const LIMIT: Duration = Duration::from_secs(180);
/// Where the wrong program lies in the guest.
const PROGRAM: &str = "/wrong/program";
/// A program that executes the wrong one, and exits with the number of the error.
const EXECUTE: &str = "/wrong/execute";

/// A test: its name, the wrong program if the script runs one, the script, and what it must print.
struct Case {
    name: &'static str,
    program: Option<fn() -> Result<Vec<u8>>>,
    script: &'static str,
    expected: &'static str,
}

/// Runs the program, hides what the shell says of it, then shows its status and that all is well.
const RUN: &str = "timeout -s KILL 10 /wrong/program 2>/dev/null; echo status $?; echo alive";

/// Runs the program by nothing but execve: a shell would try it as a script. The status is the
/// error.
const REFUSED: &str = "/wrong/execute; echo status $?; echo alive";
/// Bytes of a wrong output that are shown.
const SHOWN: usize = 200;

const CASES: &[Case] = &[
    Case {
        name: "wrong/elf_cut_short",
        program: Some(|| damaged(|elf| elf.truncate(elf.len() / 2))),
        script: REFUSED,
        expected: "status 8\nalive\n",
    },
    Case {
        name: "wrong/elf_of_another_machine",
        program: Some(|| damaged(|elf| elf[18] = 183)),
        script: REFUSED,
        expected: "status 8\nalive\n",
    },
    Case {
        name: "wrong/elf_segments_overlap",
        // The second segment's address becomes the first one's.
        program: Some(|| damaged(|elf| elf.copy_within(64 + 16..64 + 24, 64 + 56 + 16))),
        script: REFUSED,
        expected: "status 8\nalive\n",
    },
    Case {
        name: "wrong/elf_larger_than_memory",
        // The first segment has 2^46 bytes in memory.
        program: Some(|| damaged(|elf| elf[64 + 40 + 5] = 0x40)),
        script: REFUSED,
        expected: "status 8\nalive\n",
    },
    Case {
        name: "wrong/elf_dynamic_names_its_interpreter",
        program: Some(dynamic),
        script: "env /wrong/program 2>&1 | grep -c /lib64/ld-linux; echo alive",
        expected: "1\nalive\n",
    },
    Case {
        name: "wrong/scribble_on_the_library",
        program: Some(scribble),
        script: "timeout -s KILL 10 /wrong/program 2>/dev/null || echo it failed; \
                 ps >/dev/null && echo alive",
        expected: "it failed\nalive\n",
    },
    Case {
        name: "wrong/unmap_the_library",
        program: Some(unmap),
        script: RUN,
        expected: "status 1\nalive\n",
    },
    Case {
        name: "wrong/jump_into_nothing",
        // mov eax, 0x10; jmp rax
        program: Some(|| Ok(program(&[0xb8, 0x10, 0, 0, 0, 0xff, 0xe0]))),
        script: RUN,
        expected: "status 139\nalive\n",
    },
    Case {
        name: "wrong/privileged_instruction",
        // hlt
        program: Some(|| Ok(program(&[0xf4]))),
        script: RUN,
        expected: "status 139\nalive\n",
    },
    Case {
        name: "wrong/fork_without_end",
        program: None,
        // The shell dies of a fork that fails; its last act takes its children with it.
        script: "sh -c 'P=; trap \"kill -9 \\$P\" EXIT; while sleep 100 & do P=\"$P $!\"; done' \
                 2>/tmp/said; sleep 1; grep -c fork /tmp/said; echo alive",
        expected: "1\nalive\n",
    },
    Case {
        name: "wrong/allocate_without_end",
        program: None,
        script: "tail /dev/zero >/dev/null 2>&1 || echo it failed; echo alive",
        expected: "it failed\nalive\n",
    },
    Case {
        name: "wrong/mask_every_signal_and_loop",
        program: None,
        script: "(trap '' 1 2 3 6 10 12 13 14 15; while :; do :; done) & sleep 1; kill $!; \
                 kill -9 $!; wait $!; echo status $?; echo alive",
        expected: "status 137\nalive\n",
    },
    Case {
        name: "wrong/flood_the_console",
        program: None,
        script: "yes | head -c 300000 >&2; echo alive",
        expected: "alive\n",
    },
];

/// Runs those that are wanted.
pub fn run(tally: &mut Tally) -> Result<()> {
    for case in CASES.iter().filter(|case| tally.wants(case.name)).collect::<Vec<_>>() {
        let verdict = run_case(case).unwrap_or_else(|failure| Err(failure.to_string()));
        tally.record(case.name, "", verdict);
    }
    Ok(())
}

fn run_case(case: &Case) -> Result<Verdict> {
    let mut job = Job { limit: Some(LIMIT), ..Job::default() };
    let execute = TemporaryFile::program("execute", &execute())?;
    job.extras.push(Extra { host: execute.0.clone(), guest: EXECUTE.into() });
    let wrong = case.program.map(|make| TemporaryFile::program("wrong", &make()?)).transpose()?;
    if let Some(file) = &wrong {
        job.extras.push(Extra { host: file.0.clone(), guest: PROGRAM.into() });
    }
    let words = ["sh", "-c", case.script].map(str::to_string);
    job.program = Some(("/bin/busybox".into(), words.to_vec()));
    let image = run::make_image(&job)?;
    let captured = run::capture(&job, &image.path, None, |_| {})?;
    let output = String::from_utf8_lossy(&captured.output).into_owned();
    let shown: String = output.chars().take(SHOWN).collect();
    if captured.status.is_none() {
        return Ok(Err(format!("it did not end in time; it printed {shown:?}")));
    }
    Ok(if output == case.expected {
        Ok(String::new())
    } else {
        Err(format!("it printed {shown:?}, not {:?}", case.expected))
    })
}

/// Debian's busybox, damaged.
fn damaged(damage: impl FnOnce(&mut Vec<u8>)) -> Result<Vec<u8>> {
    let path = boot_image::busybox()?;
    let mut elf = std::fs::read(&path).context(path.display())?;
    damage(&mut elf);
    Ok(elf)
}

/// A dynamic program: this one.
fn dynamic() -> Result<Vec<u8>> {
    let path = std::env::current_exe().context("our own program")?;
    std::fs::read(&path).context(path.display())
}

/// Fills everything that ExOS may write with nonsense, then makes a call.
fn scribble() -> Result<Vec<u8>> {
    let mut code = Vec::new();
    for segment in library()?.segments().iter().filter(|segment| segment.write) {
        code.extend([0x48, 0xbf]); // mov rdi, vaddr
        code.extend(segment.vaddr.to_le_bytes());
        code.extend([0x48, 0xb9]); // mov rcx, memsz
        code.extend(segment.memsz.to_le_bytes());
        code.extend([0xb0, 0xa5, 0xf3, 0xaa]); // mov al, 0xa5; rep stosb
    }
    code.extend([0xb8, 39, 0, 0, 0, 0x0f, 0x05]); // getpid
    code.extend([0xb8, 231, 0, 0, 0, 0xbf, 1, 0, 0, 0, 0x0f, 0x05]); // exit_group(1)
    Ok(program(&code))
}

/// munmap of everything from ExOS's lowest address to its highest; exits with 1 if refused.
fn unmap() -> Result<Vec<u8>> {
    let plan = library()?;
    let mut code = vec![0xb8, 11, 0, 0, 0, 0x48, 0xbf]; // mov eax, munmap; mov rdi, lowest
    code.extend(plan.lowest.to_le_bytes());
    code.extend([0x48, 0xbe]); // mov rsi, length
    code.extend((plan.highest - plan.lowest).to_le_bytes());
    code.extend([0x0f, 0x05, 0x48, 0x85, 0xc0]); // syscall; test rax, rax
    code.extend([0x0f, 0x95, 0xc0, 0x0f, 0xb6, 0xf8]); // setne al; movzx edi, al
    code.extend([0xb8, 231, 0, 0, 0, 0x0f, 0x05]); // exit_group
    Ok(program(&code))
}

fn library() -> Result<Plan> {
    let path = workspace::bare("exos");
    let file = std::fs::read(&path).context(path.display())?;
    Plan::parse_in(&file, 0x1000..u64::MAX)
        .map_err(|error| Failure::new(format!("{}: {error}", path.display())))
}

/// A static Linux program of nothing but this code.
fn program(code: &[u8]) -> Vec<u8> {
    const BASE: u64 = 0x40_0000;
    const HEADERS: usize = 64 + 56;
    let size = (HEADERS + code.len()) as u64;
    let mut elf = b"\x7fELF\x02\x01\x01".to_vec();
    elf.resize(16, 0);
    elf.extend([2, 0, 62, 0, 1, 0, 0, 0]); // ET_EXEC, EM_X86_64, version 1
    elf.extend((BASE + HEADERS as u64).to_le_bytes());
    elf.extend(64u64.to_le_bytes());
    elf.extend([0; 12]); // no sections, no flags
    elf.extend([64, 0, 56, 0, 1, 0, 64, 0, 0, 0, 0, 0]);
    elf.extend([1, 0, 0, 0, 5, 0, 0, 0]); // PT_LOAD, R and X
    for word in [0, BASE, BASE, size, size, 0x1000] {
        elf.extend(word.to_le_bytes());
    }
    elf.extend(code);
    elf
}

/// execve of [`PROGRAM`]; exits with the error's number.
fn execute() -> Vec<u8> {
    let mut code = vec![0x48, 0x8d, 0x3d, 23, 0, 0, 0]; // lea rdi, [rip + 23]
    code.extend([0x31, 0xf6, 0x31, 0xd2]); // xor esi, esi; xor edx, edx
    code.extend([0xb8, 59, 0, 0, 0, 0x0f, 0x05]); // mov eax, execve; syscall
    code.extend([0xf7, 0xd8, 0x89, 0xc7]); // neg eax; mov edi, eax
    code.extend([0xb8, 231, 0, 0, 0, 0x0f, 0x05]); // mov eax, exit_group; syscall
    code.push(0xcc);
    code.extend(PROGRAM.bytes());
    code.push(0);
    program(&code)
}

struct TemporaryFile(PathBuf);

impl TemporaryFile {
    /// An executable file with this content.
    fn program(name: &str, content: &[u8]) -> Result<Self> {
        let file = Self(workspace::output().join(format!("{name}-{}", std::process::id())));
        std::fs::write(&file.0, content).context(file.0.display())?;
        let executable = std::fs::Permissions::from_mode(0o755);
        std::fs::set_permissions(&file.0, executable).context(file.0.display())?;
        Ok(file)
    }
}

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
    fn the_small_program_is_a_program() {
        let elf = program(&[0xf4]);
        let plan = Plan::parse(&elf).unwrap();
        assert_eq!((plan.entry, plan.segments().len()), (0x40_0078, 1));
    }

    #[test]
    fn the_path_is_where_the_code_looks_for_it() {
        let elf = execute();
        let code = &elf[64 + 56..];
        let path = &code[7 + 23..];
        assert_eq!(&path[..path.len() - 1], PROGRAM.as_bytes());
    }
}
