//! What strace 6.1 printed of the same calls.

use super::*;
use linux_raw_sys::general as linux;

/// Memory with one piece of it at 0x1000.
struct Piece(Vec<u8>);

impl Memory for Piece {
    fn read(&self, address: u64, into: &mut [u8]) -> bool {
        let Some(start) = address.checked_sub(0x1000) else { return false };
        let mut all = self.0.clone();
        all.resize(4096, 0);
        let bytes = all.get(start as usize..start as usize + into.len());
        bytes.map(|bytes| into.copy_from_slice(bytes)).is_some()
    }
}

fn shown(number: u32, words: [u64; 6], outcome: Outcome, memory: &[u8]) -> String {
    let memory = Piece(memory.to_vec());
    let mut call = Call { number: number.into(), words, outcome: None, memory: &memory };
    let before = begin(&call);
    call.outcome = Some(outcome);
    before + &end(&call).replace('\t', " ")
}

#[test]
fn calls_look_as_straces_do() {
    let here = linux::AT_FDCWD as u64;
    let flags = u64::from(linux::O_CLOEXEC | linux::O_DIRECTORY);
    let failed = Outcome::Failed(2);
    assert_eq!(
        shown(linux::__NR_openat, [here, 0x1000, flags, 9, 0, 0], failed, b"/etc/no\0"),
        "openat(AT_FDCWD, \"/etc/no\", O_RDONLY|O_CLOEXEC|O_DIRECTORY) = -1 ENOENT (No such file \
         or directory)"
    );
    let made = u64::from(linux::O_CREAT | linux::O_WRONLY);
    assert_eq!(
        shown(linux::__NR_open, [0x1000, made, 0o644, 0, 0, 0], Outcome::Value(3), b"a\n\0"),
        "open(\"a\\n\", O_WRONLY|O_CREAT, 0644) = 3"
    );
    let words = [0, 4096, 3, 0x22, u64::MAX, 0];
    assert_eq!(
        shown(linux::__NR_mmap, words, Outcome::Value(0x7000), b""),
        "mmap(NULL, 4096, PROT_READ|PROT_WRITE, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7000"
    );
    let fork = u64::from(linux::CLONE_CHILD_CLEARTID | linux::CLONE_CHILD_SETTID | linux::SIGCHLD);
    assert_eq!(
        shown(linux::__NR_clone, [fork, 0, 0, 0x10, 0, 0], Outcome::Value(7), b""),
        "clone(child_stack=NULL, flags=CLONE_CHILD_CLEARTID|CLONE_CHILD_SETTID|SIGCHLD, \
         child_tidptr=0x10) = 7"
    );
    assert_eq!(
        shown(linux::__NR_wait4, [u64::MAX, 0x1000, 0, 0, 0, 0], Outcome::Value(7), &[0, 3]),
        "wait4(-1, [{WIFEXITED(s) && WEXITSTATUS(s) == 3}], 0, NULL) = 7"
    );
    assert_eq!(shown(linux::__NR_exit_group, [1; 6], Outcome::Gone, b""), "exit_group(1) = ?");
    assert_eq!(
        shown(0x1f0, [1; 6], Outcome::Failed(38), b"").split('(').next(),
        Some("syscall_0x1f0")
    );
}

#[test]
fn what_a_call_fills_is_shown_after_it() {
    let memory = Piece(b"abc\0".to_vec());
    let words = [3, 0x1000, 4096, 0, 0, 0];
    let number = linux::__NR_read.into();
    let call = Call { number, words, outcome: None, memory: &memory };
    assert_eq!(begin(&call), "read(3, ");
    let done = Call { outcome: Some(Outcome::Value(3)), ..call };
    assert_eq!(end(&done), "\"abc\", 4096)\t= 3");
    let failed = Call { outcome: Some(Outcome::Failed(14)), ..call };
    assert_eq!(end(&failed), "0x1000, 4096)\t= -1 EFAULT (Bad address)");
    let again = Call { outcome: Some(Outcome::Failed(512)), ..call };
    let said = "0x1000, 4096)\t= ? ERESTARTSYS (To be restarted if SA_RESTART is set)";
    assert_eq!(end(&again), said);
}

#[test]
fn strings_are_cut_and_quoted() {
    let mut text = Text::default();
    text.quoted(b"\x001\xff\"\\");
    assert_eq!(String::from(text), "\"\\0001\\377\\\"\\\\\"");
    let mut text = Text::default();
    text.quoted(&[b'x'; 33]);
    assert_eq!(String::from(text), format!("\"{}\"...", "x".repeat(32)));
}

#[test]
fn structures_are_abbreviated() {
    let mut stat = [0; 144];
    stat[24..28].copy_from_slice(&0o100_755_u32.to_le_bytes());
    stat[48..56].copy_from_slice(&42_u64.to_le_bytes());
    assert_eq!(
        shown(linux::__NR_fstat, [1, 0x1000, 0, 0, 0, 0], Outcome::Value(0), &stat),
        "fstat(1, {st_mode=S_IFREG|0755, st_size=42, ...}) = 0"
    );
    let mut limits = (8_u64 << 20).to_le_bytes().to_vec();
    limits.extend([0xff; 8]);
    assert_eq!(
        shown(linux::__NR_prlimit64, [0, 3, 0, 0x1000, 0, 0], Outcome::Value(0), &limits),
        "prlimit64(0, RLIMIT_STACK, NULL, {rlim_cur=8192*1024, rlim_max=RLIM64_INFINITY}) = 0"
    );
    let mut action = 0x40_1000_u64.to_le_bytes().to_vec();
    action.extend(0x1400_0000_u64.to_le_bytes());
    action.extend(0x40_2000_u64.to_le_bytes());
    action.extend(2_u64.to_le_bytes());
    assert_eq!(
        shown(linux::__NR_rt_sigaction, [17, 0x1000, 0, 8, 0, 0], Outcome::Value(0), &action),
        "rt_sigaction(SIGCHLD, {sa_handler=0x401000, sa_mask=[INT], sa_flags=SA_RESTORER|\
         SA_RESTART, sa_restorer=0x402000}, NULL, 8) = 0"
    );
    let peer = [2, 0, 0x1f, 0x90, 10, 0, 2, 2, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(
        shown(linux::__NR_connect, [3, 0x1000, 16, 0, 0, 0], Outcome::Failed(115), &peer),
        "connect(3, {sa_family=AF_INET, sin_port=htons(8080), sin_addr=inet_addr(\"10.0.2.2\")}, \
         16) = -1 EINPROGRESS (Operation now in progress)"
    );
}

#[test]
fn signals_and_ends_have_lines() {
    let child = signals::Information { signal: 17, code: 1, first: 77, second: 3 };
    assert_eq!(
        signals::taken(&child),
        "--- SIGCHLD {si_signo=SIGCHLD, si_code=CLD_EXITED, si_pid=77, si_uid=0, si_status=3, \
         si_utime=0, si_stime=0} ---"
    );
    assert_eq!(signals::ended(0x300), "+++ exited with 3 +++");
    assert_eq!(signals::ended(9), "+++ killed by SIGKILL +++");
}

#[test]
fn no_call_has_two_rows() {
    let mut numbers: Vec<u32> = table::TABLE.iter().map(|row| row.number).collect();
    numbers.sort_unstable();
    let count = numbers.len();
    numbers.dedup();
    assert_eq!(numbers.len(), count);
}

#[test]
fn every_call_of_exos_has_a_row() {
    let tables = [
        include_str!("../../exos/src/table.rs"),
        include_str!("../../exos/src/fs/table.rs"),
        include_str!("../../exos/src/net/calls.rs"),
    ];
    let word = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let words = tables.iter().flat_map(|text| text.split(|letter| !word(letter)));
    let calls: Vec<&str> = words.filter_map(|word| word.strip_prefix("__NR_")).collect();
    assert!(calls.len() > 200, "only {} calls found", calls.len());
    let known = |name: &str| table::TABLE.iter().any(|row| row.name == name);
    let missing: Vec<_> = calls.into_iter().filter(|name| !known(name)).collect();
    assert_eq!(missing, Vec::<&str>::new());
}
