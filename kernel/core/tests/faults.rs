//! Each invariant of the model, seen red once.
//!
//! Plants one fault at a time in a copy of the crate and expects its tests to fail.
//!
//! ```text
//!  cargo test --release -p kernel-core --test faults -- --ignored --nocapture
//! ```
//! A fault is a piece of source that occurs exactly once, and what it becomes. `XOK_FAULT` picks
//! those whose description contains it, or one of several texts with `|` between them.

#[path = "faults/processors.rs"]
mod processors;

use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

/// What it breaks, the file, the source, and what it becomes.
const FAULTS: &[(&str, &str, &str, &str)] = &[
    (
        "sharing leaves the source writable",
        "update/whole.rs",
        "let frozen = entry & !WRITABLE;",
        "let frozen = entry;",
    ),
    (
        "sharing enters the table writable",
        "update/whole.rs",
        "target(entry).address() | TABLE_ENTRY & !WRITABLE",
        "target(entry).address() | TABLE_ENTRY",
    ),
    (
        "who leaves home is yielded to by the fast path still",
        "slice.rs",
        "gate::close(state, index);",
        "",
    ),
    (
        "who yields by the fast path goes on as if its call were unanswered",
        "gate.rs",
        "if to == EnvState::Ready {",
        "if false {",
    ),
    (
        "sharing forgets to flush",
        "update/whole.rs",
        "machine.flush(Flush::Space(domain::root(state, request.caller)));",
        "",
    ),
    (
        "splitting keeps leaves writable",
        "update/whole.rs",
        "entry & !MAY_WRITE\n            };",
        "entry\n            };",
    ),
    (
        "splitting forgets the way through the old table",
        "update/whole.rs",
        "    machine.flush(flush);\n",
        "",
    ),
    (
        "an entry is in a chain that its table knows nothing of",
        "chain.rs",
        "    state.frames.mark_chained(links, place.index);\n",
        "",
    ),
    (
        "a dying table forgets what it has left",
        "dying.rs",
        ".discount_entries(1);",
        ".discount_entries(0);",
    ),
    (
        "a crowd dies without room",
        "sweep.rs",
        "|| work::room(state, death::cost(state, index));",
        "|| true;",
    ),
    (
        "a revocation waits for its caller",
        "work.rs",
        "crate::revoke::sweep(state, machine, account)",
        "false",
    ),
    (
        "a batch goes on without room",
        "dispatch/batches.rs",
        "if round > 0 && !work::room(state, table::cost(&item)) {",
        "if round > u64::MAX - 1 {",
    ),
    (
        "an item goes on without room",
        "update/pages.rs",
        "if done == pages || !work::room(state, cost + stored) {",
        "if done == pages {",
    ),
    (
        "an item's pages go on from its frame",
        "update/pages.rs",
        "if operation != Operation::Protect && item.frame != ANY_FRAME {",
        "if pages == u32::MAX && item.frame != ANY_FRAME {",
    ),
    (
        "a copied table leads to what it was copied from",
        "update/whole.rs",
        "let copy = copy_frame(state, machine, request, frame);",
        "copy_frame(state, machine, request, frame);\n                    let copy = frame;",
    ),
    (
        "a table with many writable pages is copied",
        "update/whole.rs",
        "if writable > most || leaves",
        "if leaves",
    ),
    (
        "splitting forgets to count a reference",
        "update/whole.rs",
        "frames[frame.0 as usize].references += 1;\n                chain::link",
        "frames[frame.0 as usize].references += 0;\n                chain::link",
    ),
    (
        "thawing keeps leaves writable",
        "update/whole.rs",
        "machine.entry_swap(table, first | at, entry & !MAY_WRITE);",
        "machine.entry_swap(table, first | at, entry);",
    ),
    (
        "thawing a table that others share",
        "update/whole.rs",
        "if !alone::is(state, table) {",
        "if false {",
    ),
    ("a frozen table is changed", "table.rs", "if way == Way::Thawed {", "if way != way {"),
    (
        "a table is folded whatever its entries allow",
        "fold.rs",
        "entry & COMMON != common || entry & NO_EXECUTE == 0",
        "false",
    ),
    (
        "what is stored by a large page is not dirty",
        "fold.rs",
        "large & USED;",
        "large & ACCESSED;",
    ),
    (
        "a revoked frame stays in large pages",
        "revoke.rs",
        "fold::unfold(state, machine, place.table);",
        "",
    ),
    (
        "a page of a folded table is changed behind the large entry",
        "update/pages.rs",
        "fold::unfold_own(state, machine, next.root, place.table);",
        "",
    ),
    ("the record of a folded table is lost", "fold.rs", "state.folds.give_back(index);", ""),
    (
        "leaving a page forgets to flush",
        "update.rs",
        "    lost.add(request.item.address);\n    chain::remove",
        "    let _ = &lost;\n    chain::remove",
    ),
    (
        "leaving a table forgets to flush",
        "update.rs",
        "machine.flush(Flush::Space(request.root));",
        "",
    ),
    ("protecting forgets to flush", "update.rs", "if taken != 0 {", "if taken == 1 {"),
    (
        "protecting takes no right away",
        "update.rs",
        "let entry = old & !ENTRY_CHOICE | choice;",
        "let entry = old | choice;",
    ),
    (
        "a copied right grows",
        "update.rs",
        "(!write || source_may_write(state, machine, request))",
        "true",
    ),
    (
        "a copied right to write grows",
        "update.rs",
        "\n            && source_may_write(state, machine, request);",
        ";",
    ),
    (
        "a right that a source keeps is one that it has not",
        "update.rs",
        "machine.entry(at.table, at.index) & KEEPS_WRITE != 0",
        "true",
    ),
    (
        "an entry keeps a right that it had not",
        "update.rs",
        "if choice & MAY_WRITE != 0 && old",
        "if choice & WRITABLE != 0 && old",
    ),
    (
        "a table that was frozen keeps rights",
        "update/whole.rs",
        "machine.entry_swap(table, first | at, entry & !MAY_WRITE);",
        "machine.entry_swap(table, first | at, entry & !WRITABLE);",
    ),
    (
        "a copy of a frozen table keeps rights",
        "update/whole.rs",
        "                entry & !MAY_WRITE\n",
        "                entry & !WRITABLE\n",
    ),
    (
        "a copied table keeps what is written in common",
        "update/whole.rs",
        "&& entry & MAY_WRITE != 0\n",
        "&& entry & WRITABLE != 0\n",
    ),
    (
        "a name gives more than its rights",
        "update.rs",
        "let rights = if write { READ | WRITE } else { READ };",
        "let rights = READ;",
    ),
    (
        "the last holder is not the last",
        "update.rs",
        "let alone = alone::is(state, frame)",
        "let alone = record.references <= 2",
    ),
    (
        "the last holder does not pay",
        "update.rs",
        "&& AccountIndex::from(record.account) == payer(state, request)",
        "",
    ),
    (
        "the last holder's memory stays another's",
        "update.rs",
        "record.guard = request.guard;",
        "record.guard = record.guard;",
    ),
    ("a payload names memory", "update.rs", "payload | forced)", "payload)"),
    (
        "tables are mapped",
        "update.rs",
        "        Some(_) => return Err(Error::WrongType.into()),\n    }\n    if frame",
        "        Some(_) => {}\n    }\n    if frame",
    ),
    (
        "the image is writable",
        "update.rs",
        "Some(FrameType::Image) if !write => {}",
        "Some(FrameType::Image) => {}",
    ),
    ("a pinned page is frozen", "update/whole.rs", ".pins != 0 {", ".pins > 1 {"),
    (
        "a table replaces a table",
        "update.rs",
        "        return Err(Error::NotEmpty.into());\n    }\n    let Item { level",
        "    }\n    let Item { level",
    ),
    (
        "a table is its own links",
        "frame.rs",
        "(Which::Any, Which::Any) => second = other,",
        "(Which::Any, Which::Any) => {}",
    ),
    (
        "frames are free before everybody has flushed",
        "frame.rs",
        "let horizon = open.unwrap_or(frames.ticket);",
        "let horizon = open.map_or(frames.ticket, |_| frames.ticket);",
    ),
    (
        "another account's memory is not zeroed",
        "frame.rs",
        "last != account::heir(state, account)",
        "false",
    ),
    (
        "registers become program memory",
        "frame.rs",
        "FrameType::Vector | FrameType::Region | FrameType::Code | FrameType::Links => 0,",
        "FrameType::Region | FrameType::Code | FrameType::Links => 0,",
    ),
    (
        "a freed frame is paid for ever",
        "frame.rs",
        "        frames += 1;\n",
        "        let _ = account;\n",
    ),
    (
        "charges do not count above",
        "account.rs",
        "        n = counts(record, slot) - before;\n",
        "        n = (counts(record, slot) - before).min(0);\n",
    ),
    (
        "a chain loses its way back",
        "chain.rs",
        "machine.word_set(link, pack(word as u32, previous));",
        "machine.word_set(link, word);",
    ),
    (
        "a stale id is found",
        "domain.rs",
        "let serial = record.serial.next();",
        "let serial = record.serial;",
    ),
    ("a domain's library is left behind", "dying.rs", "index != LIBRARY_SLOT;", "true;"),
    (
        "a dying domain's processors keep its pages",
        "domain.rs",
        "machine.flush(Flush::Space(record.root));",
        "",
    ),
    ("revoking forgets to flush", "revoke.rs", "    if broken > 0 {", "    if false {"),
    (
        "revoking leaves rings as they are",
        "revoke.rs",
        "ring::revoke(state, at - envs, frame);",
        "",
    ),
    (
        "a ring's pin is kept",
        "net/ring.rs",
        "frame::unpin(state, Frame::containing(buffer.place));",
        "",
    ),
    ("a sent packet's pin is kept", "net/transmit.rs", "    frame::unpin(state, word);\n", ""),
    (
        "a dead environment's pages stay pinned",
        "lent.rs",
        "        frame::unpin(state, save);\n",
        "        let _ = save;\n",
    ),
    (
        "a predicate keeps its references",
        "predicate.rs",
        "            frame::release(state, frame);\n            pins += 1;",
        "            let _ = frame;\n            pins += 1;",
    ),
    (
        "revoking needs no right",
        "revoke.rs",
        "if capability.dominates(frame::guard(state, frame), CONTROL) {",
        "if capability.rights != 0 || capability.dominates(frame::guard(state, frame), CONTROL) {",
    ),
    (
        "a derived capability has more rights",
        "capability.rs",
        "rights & !source.rights != 0",
        "rights & !source.rights > 16",
    ),
    (
        "a capability is given without the right to",
        "capability.rs",
        "!over || source.rights & DERIVE == 0",
        "!over",
    ),
    (
        "a capability is passed on without the right to",
        "capability.rs",
        "        if held.rights & DERIVE == 0 {",
        "        if held.rights == 0 {",
    ),
    (
        "an attachment is passed by who has none",
        "region.rs",
        "if !attached(state, own, index, role) {\n        return Err(Error::NotPermitted.into());",
        "if false {\n        return Err(Error::NotPermitted.into());",
    ),
    (
        "a retraction leaves what lies below",
        "retract.rs",
        "&& retraction.name.is_prefix_of(&held.name)",
        "&& retraction.name == held.name",
    ),
    (
        "an account's name goes to the next one with those who hold it",
        "account.rs",
        "retract::begin(state, name, ALL, DomainId::NONE, (AccountIndex::NONE, index));",
        "let _ = name;",
    ),
    (
        "a seal does not know its account",
        "voided.rs",
        "*holder = state.published.accounts[account::keeper(state, name)].id;",
        "*holder = 0;",
    ),
    (
        "a capability is given to a stranger",
        "capability.rs",
        "!over || source.rights & DERIVE == 0",
        "source.rights & DERIVE == 0",
    ),
    (
        "an account's end leaves its memory with others",
        "revoke.rs",
        "AccountIndex::from(record.account) == account {",
        "record.account == 0 {",
    ),
    (
        "another's tables are changed",
        "domain.rs",
        "own || capability.dominates(guard(state, index), WRITE)",
        "own || capability.rights & WRITE != 0",
    ),
];

/// The crate and what it needs, in a directory of its own.
fn copy(to: &Path) {
    let core = Path::new(env!("CARGO_MANIFEST_DIR"));
    let root = core.ancestors().nth(2).expect("kernel/core lies in the workspace");
    for part in ["abi", "image", "code", "kernel/core"] {
        copy_tree(&root.join(part), &to.join(part));
    }
    // A test of the crate's reads its table.
    let table = "docs/threat-model.md";
    fs::create_dir_all(to.join("docs")).expect("a directory");
    fs::copy(root.join(table), to.join(table)).expect("the threat model");
    let manifest = fs::read_to_string(root.join("Cargo.toml")).expect("the workspace's manifest");
    let start = manifest.find("members = [").expect("members");
    let end = manifest.find("[workspace.package]").expect("[workspace.package]");
    let members = "members = [\"abi\", \"image\", \"code\", \"kernel/core\"]\n\n";
    fs::write(to.join("Cargo.toml"), [&manifest[..start], members, &manifest[end..]].concat())
        .expect("the copy's manifest");
}

fn copy_tree(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a directory");
    for entry in fs::read_dir(from).expect("a directory to copy") {
        let path = entry.expect("an entry").path();
        let target = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            copy_tree(&path, &target);
        } else {
            fs::copy(&path, &target).expect("a file");
        }
    }
}

/// Tests that take longer than all others together: a fault that these do not find is looked for by
/// all.
const SLOW: [&str; 5] =
    ["tests::gates", "tests::random", "tests::neighbours", "tests::crowds", "noninterference"];

/// Do the tests of the copy pass? `None`: it does not build. Slightly optimized, a piece at a time:
/// that takes seconds for a fault, and the tests that find most take no longer. Tests that have not
/// ended after `patience` go on for ever, and do not pass.
fn passes(copy: &Path, patience: Duration) -> Option<bool> {
    let quick: Vec<&str> = ["tests::", "--"]
        .into_iter()
        .chain(SLOW.iter().flat_map(|&slow| ["--skip", slow]))
        .collect();
    let cargo = |arguments: &[&str]| {
        let mut child = Command::new(env!("CARGO"))
            .args(["test", "--offline", "--quiet", "-p", "kernel-core", "--lib"])
            .args(arguments)
            .current_dir(copy)
            .env("CARGO_TARGET_DIR", copy.join("target"))
            .env("CARGO_PROFILE_TEST_OPT_LEVEL", "1")
            .env("CARGO_INCREMENTAL", "1")
            .env("XOK_STEPS", "200000")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .expect("cargo runs");
        let end = Instant::now() + patience;
        loop {
            if let Some(status) = child.try_wait().expect("our child") {
                return status.success();
            }
            if Instant::now() > end {
                // The test program as well, which is of the same group.
                let group = format!("-{}", child.id());
                let _ = Command::new("kill").args(["-KILL", "--", &group]).status();
            }
            thread::sleep(Duration::from_millis(20));
        }
    };
    cargo(&["--no-run"]).then(|| cargo(&quick) && cargo(&["model"]) && cargo(&["tests::"]))
}

#[test]
fn each_fault_has_its_place() {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let astray = FAULTS.iter().chain(processors::FAULTS).filter(|(_, file, from, _)| {
        let source = fs::read_to_string(sources.join(file)).expect("a source file");
        source.matches(from).count() != 1
    });
    let astray: Vec<_> = astray.map(|(what, file, from, _)| (what, file, from)).collect();
    assert!(astray.is_empty(), "not once there: {astray:#?}");
}

#[test]
#[ignore = "builds the crate once for each fault: half an hour"]
fn each_planted_fault_is_found() {
    let wanted = env::var("XOK_FAULT").unwrap_or_default();
    let home = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("faults");
    let _ = fs::remove_dir_all(home.join("kernel"));
    // A run that was ended in the midst of a build may have left objects of a fault's there.
    let _ = fs::remove_dir_all(home.join("target/debug/incremental"));
    copy(&home);
    let begun = Instant::now();
    assert_eq!(passes(&home, Duration::from_secs(3600)), Some(true), "the copy without a fault");
    // The host may have other work now.
    let patience = 2 * begun.elapsed() + Duration::from_secs(60);
    let mut missed = Vec::new();
    let faults = FAULTS.iter().chain(processors::FAULTS);
    for &(what, file, from, to) in
        faults.filter(|fault| wanted.split('|').any(|text| fault.0.contains(text)))
    {
        let path = home.join("kernel/core/src").join(file);
        let source = fs::read_to_string(&path).expect("a source file");
        assert_eq!(source.matches(from).count(), 1, "{what}: once in {file}: {from}");
        fs::write(&path, source.replacen(from, to, 1)).expect("the fault");
        let verdict = match passes(&home, patience) {
            Some(false) => "found",
            Some(true) => "MISSED",
            None => "DOES NOT BUILD",
        };
        println!("{verdict:>14}  {what}");
        if verdict != "found" {
            missed.push(what);
        }
        fs::write(&path, source).expect("the source again");
    }
    assert!(missed.is_empty(), "not found: {missed:#?}");
}
