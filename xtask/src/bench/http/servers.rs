//! The servers, each on its system: what is started, and where it answers.

use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::SIZES;
use crate::bench::initramfs::Initramfs;
use crate::bench::linux::{self, Profile};
use crate::bench::ours;
use crate::boot_image::Extra;
use crate::command_line::CommandLine;
use crate::compile;
use crate::failure::{Context, Failure, Result};
use crate::machine::{Counting, LOG_PORT, Machine, Network};
use crate::packages;
use crate::process;
use crate::run::{self, Job};

/// The tap device, our address on it, and the guest's.
const DEVICE: &str = "tap0";
const HOST: &str = "10.1.0.1";
const GUEST: [u8; 4] = [10, 1, 0, 2];
/// Baseline's port: the usual one is Cheetah's.
const BASELINE_PORT: u16 = 8000;
/// Where the documents lie in the guests.
const DOCUMENTS: &str = "/www/bench";
/// How long a guest may take until it answers.
const PATIENCE: Duration = Duration::from_secs(120);

/// Modules of Linux's network card, each behind those that it uses.
const MODULES: [&str; 8] = [
    "drivers/virtio/virtio_ring",
    "drivers/virtio/virtio",
    "drivers/virtio/virtio_pci_legacy_dev",
    "drivers/virtio/virtio_pci_modern_dev",
    "drivers/virtio/virtio_pci",
    "net/core/failover",
    "drivers/net/net_failover",
    "drivers/net/virtio_net",
];

/// nginx and the libraries that it is linked with, with Debian's packages.
const NGINX: [(&str, &str); 8] = [
    ("nginx", "usr/sbin/nginx"),
    ("libc6", "lib/x86_64-linux-gnu/libc.so.6"),
    ("libc6", "lib64/ld-linux-x86-64.so.2"),
    ("libcrypt1", "lib/x86_64-linux-gnu/libcrypt.so.1"),
    ("libpcre2-8-0", "usr/lib/x86_64-linux-gnu/libpcre2-8.so.0"),
    ("libssl3", "usr/lib/x86_64-linux-gnu/libssl.so.3"),
    ("libssl3", "usr/lib/x86_64-linux-gnu/libcrypto.so.3"),
    ("zlib1g", "lib/x86_64-linux-gnu/libz.so.1"),
];

/// One process that waits for connections, files by sendfile, nothing written down.
const NGINX_SETTINGS: &str = "\
user root;
daemon off;
master_process off;
error_log /dev/null crit;
pid /tmp/nginx.pid;
events { worker_connections 512; use epoll; multi_accept on; }
http {
    access_log off;
    sendfile on;
    tcp_nopush on;
    tcp_nodelay on;
    keepalive_requests 100000000;
    open_file_cache max=100;
    client_body_temp_path /tmp/a; proxy_temp_path /tmp/b; fastcgi_temp_path /tmp/c;
    uwsgi_temp_path /tmp/d; scgi_temp_path /tmp/e;
    server { listen 80; root /www; }
}
";

/// A server on a system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// Our Baseline, unmodified Linux program, on ExOS.
    OursBaseline,
    /// The native server, with its own TCP.
    Cheetah,
    /// The same Baseline on Linux.
    LinuxBaseline,
    /// Debian's.
    Nginx,
}

/// All of them, in the order of the tables.
pub const SERVERS: [Server; 4] =
    [Server::OursBaseline, Server::Cheetah, Server::LinuxBaseline, Server::Nginx];

impl Server {
    /// Its name in tables.
    pub fn name(self) -> &'static str {
        match self {
            Self::OursBaseline => "Baseline here",
            Self::Cheetah => "Cheetah",
            Self::LinuxBaseline => "Baseline on Linux",
            Self::Nginx => "nginx on Linux",
        }
    }

    /// Where it answers.
    pub fn address(self) -> SocketAddr {
        let port = match self {
            Self::OursBaseline | Self::LinuxBaseline => BASELINE_PORT,
            Self::Cheetah | Self::Nginx => 80,
        };
        SocketAddr::from((GUEST, port))
    }

    /// The path of a document.
    pub fn path(self, name: &str) -> String {
        match self {
            Self::OursBaseline | Self::LinuxBaseline => format!("/{name}"),
            Self::Cheetah | Self::Nginx => format!("/bench/{name}"),
        }
    }
}

/// What the guests boot with.
pub struct Files {
    image: run::TemporaryImage,
    kernel: PathBuf,
    initial: PathBuf,
}

/// Makes the images.
pub fn prepare() -> Result<Files> {
    let baseline = compile::directory("tests/bench-http", "baseline", &["-static"])?;
    let documents = crate::bench::file("documents")?;
    std::fs::create_dir_all(&documents).context(documents.display())?;
    let mut initial = Initramfs::default();
    for (name, size) in SIZES {
        let path = documents.join(name);
        let bytes: Vec<u8> = (0..size).map(|at| (at * 31 % 251) as u8).collect();
        std::fs::write(&path, &bytes).context(path.display())?;
        initial.bytes(&format!("{DOCUMENTS}/{name}"), bytes);
    }
    initial.file("/baseline", &baseline)?;
    let release = linux::release()?;
    for (number, module) in MODULES.iter().enumerate() {
        let path = format!("lib/modules/{release}/kernel/{module}.ko");
        let file = packages::debian_file(&format!("linux-image-{release}"), &path)?;
        initial.file(&format!("/modules/{number:02}.ko"), &file)?;
    }
    for (package, path) in NGINX {
        initial.file(&format!("/{path}"), &packages::debian_file(package, path)?)?;
    }
    initial.bytes("/etc/passwd", b"root:x:0:0:root:/:/bin/sh\n".to_vec());
    initial.bytes("/etc/group", b"root:x:0:\n".to_vec());
    initial.bytes("/etc/nginx.conf", NGINX_SETTINGS.into());
    initial.directory("/var/log/nginx");
    let archive = crate::bench::file("initramfs.http")?;
    initial.write(&archive)?;
    let extras = vec![
        Extra { host: baseline, guest: "/baseline".into() },
        Extra { host: documents, guest: DOCUMENTS.into() },
    ];
    let image = run::make_image(&Job { extras, ..Job::default() })?;
    Ok(Files { image, kernel: linux::kernel()?, initial: archive })
}

/// Makes the tap device, in a namespace of our own.
pub fn make_device() -> Result<()> {
    let own = format!("{HOST}/24");
    let commands: [&[&str]; 4] = [
        &["link", "set", "lo", "up"],
        &["tuntap", "add", DEVICE, "mode", "tap"],
        &["address", "add", &own, "dev", DEVICE],
        &["link", "set", DEVICE, "up"],
    ];
    for arguments in commands {
        process::output(Command::new("ip").args(arguments))?;
    }
    Ok(())
}

/// A guest with a server that answers.
pub struct Running {
    qemu: Child,
}

impl Running {
    /// Boots, and waits until the server can be connected to.
    pub fn start(server: Server, files: &Files, counting: Option<Counting>) -> Result<Self> {
        let [a, b, c, d] = GUEST;
        let guest = format!("{a}.{b}.{c}.{d}");
        let network = Network::Tap(DEVICE.into(), format!("{guest}/24,{HOST}"));
        let machine = Machine { network, ..ours::machine(counting) };
        let mut qemu = match server {
            Server::OursBaseline | Server::Cheetah => here(&machine, files)?,
            Server::LinuxBaseline => {
                let words = [BASELINE_PORT.to_string(), DOCUMENTS.to_string()];
                on_linux(&machine, files, &guest, &words)?
            }
            Server::Nginx => {
                let words = ["exec", "/usr/sbin/nginx", "-c", "/etc/nginx.conf"];
                on_linux(&machine, files, &guest, &words.map(str::to_string))?
            }
        };
        let console = crate::bench::file("http-console.log")?;
        qemu.args(["-serial", &format!("file:{}", console.display())]);
        let shown = process::show(&qemu);
        let running = Self { qemu: qemu.stdin(Stdio::null()).spawn().context(shown)? };
        let end = Instant::now() + PATIENCE;
        while TcpStream::connect_timeout(&server.address(), Duration::from_secs(1)).is_err() {
            if Instant::now() > end {
                running.end()?;
                let said = std::fs::read_to_string(&console).unwrap_or_default();
                let cause = format!("{} never answered; the console: {said}", server.name());
                return Err(Failure::new(cause));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(running)
    }

    /// Ends the guest.
    pub fn end(mut self) -> Result<()> {
        self.qemu.kill().context("ending QEMU")?;
        self.qemu.wait().context("ending QEMU").map(drop)
    }
}

/// Our guest with Baseline as its program; Cheetah runs in any case.
fn here(machine: &Machine, files: &Files) -> Result<Command> {
    let mut line = CommandLine::default();
    line.set("log", "debugcon");
    machine.describe(&mut line);
    line.set("run", "/baseline").set("stdin", "none").set("arg", "baseline");
    line.set("arg", &BASELINE_PORT.to_string()).set("arg", DOCUMENTS);
    let mut qemu = machine.qemu(&files.image.path, &line)?;
    let device = format!("isa-debugcon,iobase={LOG_PORT:#x},readback={LOG_PORT:#x},chardev=log");
    qemu.args(["-chardev", "null,id=log", "-device", &device]);
    Ok(qemu)
}

fn on_linux(machine: &Machine, files: &Files, guest: &str, words: &[String]) -> Result<Command> {
    let line = linux::command_line(Profile::Tuned, "/baseline", words);
    // Words that the kernel does not know become the first process's environment.
    let line = format!("address={guest} {line}");
    machine.boot(&files.kernel, &files.initial, &line)
}
