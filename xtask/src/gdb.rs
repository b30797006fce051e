//! `cargo xtask run --gdb`: QEMU stopped with its gdb server on a socket, and gdb's script for it.
//!
//! What gdb needs to know of published records is taken from the crates that define them, and
//! handed to `xtask/gdb/xok.py`, which has the commands.

use std::fmt::Write;
use std::mem::offset_of;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Weak};
use std::time::Duration;

use abi::layout;
use abi::published::{self, Directory, DomainRecord, EnvRecord, Table, TableInfo};
use unix::process_page::{self, ProcessPage};

use crate::boot_image;
use crate::failure::{Context, Result};
use crate::report;
use crate::run::Job;
use crate::workspace;

/// Where ExOS loads position-independent programs (`libs/exos/src/loader.rs`).
const PROGRAM_BASE: u64 = 0x5555_5555_4000;
/// The longest path that a socket may have, with its NUL (`sockaddr_un`).
const SOCKET_PATH_BYTES: usize = 108;
/// How often it is looked whether QEMU has made the socket.
const LOOK: Duration = Duration::from_millis(10);

/// Where QEMU's server for gdb listens.
pub struct Server {
    socket: Arc<PathBuf>,
}

impl Server {
    /// Makes the server's place and gdb's script; says what to type as soon as QEMU is there.
    pub fn prepare(job: &Job) -> Result<Self> {
        let socket = Arc::new(socket());
        // What an earlier run has left.
        let _ = std::fs::remove_file(&*socket);
        let script = workspace::output().join("xok.gdb");
        let text = script_text(&socket, &files(job)?)?;
        std::fs::create_dir_all(workspace::output()).context("the target directory")?;
        std::fs::write(&script, text).context(script.display())?;
        let waiting = Arc::downgrade(&socket);
        std::thread::spawn(move || say_when_it_listens(&waiting, &script));
        Ok(Self { socket })
    }

    /// Has QEMU wait for gdb before the first instruction.
    pub fn add_to(&self, qemu: &mut Command) {
        qemu.arg("-S");
        qemu.args(["-gdb", &format!("unix:{},server=on,wait=off", self.socket.display())]);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The next run removes it, too.
        let _ = std::fs::remove_file(&*self.socket);
    }
}

/// Says how gdb is started when there is a socket, unless the server goes before.
fn say_when_it_listens(socket: &Weak<PathBuf>, script: &Path) {
    while let Some(place) = socket.upgrade() {
        if place.exists() {
            // QEMU may have made the terminal raw, so that the line needs its carriage return.
            let script = script.display();
            report::step(&format!("stopped; in another terminal: gdb -x {script}\r"));
            return;
        }
        drop(place);
        std::thread::sleep(LOOK);
    }
}

/// In the target directory, or in the temporary one where that would be too long a path.
fn socket() -> PathBuf {
    let near = workspace::output().join("gdb.socket");
    if near.as_os_str().len() < SOCKET_PATH_BYTES {
        return near;
    }
    std::env::temp_dir().join(format!("xok-gdb-{}.socket", std::process::id()))
}

/// Programs of the guest, with the host's files that have their symbols.
fn files(job: &Job) -> Result<Vec<(String, PathBuf)>> {
    let mut files = vec![("/bin/busybox".to_string(), boot_image::busybox()?)];
    for name in workspace::native_programs()? {
        files.push((format!("/xok/{name}"), workspace::bare(&name)));
    }
    // Those that were given last are what lies there.
    files.extend(job.extras.iter().map(|extra| (extra.guest.clone(), extra.host.clone())));
    files.reverse();
    Ok(files)
}

/// Text that Python reads as the string it stands for.
fn quoted(text: &str) -> String {
    format!("{text:?}")
}

/// What gdb executes first.
fn script_text(socket: &Path, files: &[(String, PathBuf)]) -> Result<String> {
    let mut listed = String::new();
    for (guest, host) in files {
        let host = std::path::absolute(host).context(host.display())?;
        let (guest, host) = (quoted(guest), quoted(&host.to_string_lossy()));
        // Writing to a string cannot fail.
        let _ = write!(listed, "({guest}, {host}), ");
    }
    let commands = workspace::root().join("xtask/gdb/xok.py");
    let exos = workspace::bare("exos");
    Ok(format!(
        "# Written by `cargo xtask run --gdb`.\n\
         set confirm off\n\
         set pagination off\n\
         # Pages of a program come when they are touched: what is constant is read from its file.\n\
         set trust-readonly-sections on\n\
         set architecture i386:x86-64\n\
         file {kernel}\n\
         source {commands}\n\
         python configure({{ \
         'published': {published:#x}, 'magic': {magic:#x}, 'kernel': {above:#x}, \
         'tables': {tables}, 'table_bytes': {table_bytes}, 'base': {base:#x}, \
         'envs': {envs}, 'domains': {domains}, 'application_pages': {pages}, \
         'env': {{'id': {env_id}, 'state': {env_state}, 'domain': {env_domain}, \
         'cpu': {env_cpu}}}, \
         'domain': {{'id': {domain_id}, 'root': {domain_root}}}, \
         'process': {{'magic': {page_magic:#x}, 'path_len': {path_len}, 'path': {path}}}, \
         'exos': {exos}, 'files': [{listed}] }})\n\
         target remote {socket}\n",
        kernel = workspace::bare("kernel").display(),
        commands = commands.display(),
        published = layout::PUBLISHED,
        magic = published::MAGIC,
        above = layout::KERNEL,
        tables = offset_of!(Directory, tables),
        table_bytes = size_of::<TableInfo>(),
        base = PROGRAM_BASE,
        envs = Table::Envs as usize,
        domains = Table::Domains as usize,
        pages = Table::ApplicationPages as usize,
        env_id = offset_of!(EnvRecord, id),
        env_state = offset_of!(EnvRecord, state),
        env_domain = offset_of!(EnvRecord, domain),
        env_cpu = offset_of!(EnvRecord, cpu),
        domain_id = offset_of!(DomainRecord, id),
        domain_root = offset_of!(DomainRecord, root),
        page_magic = process_page::MAGIC,
        path_len = offset_of!(ProcessPage, path_len),
        path = offset_of!(ProcessPage, path),
        exos = quoted(&exos.to_string_lossy()),
        socket = socket.display(),
    ))
}
