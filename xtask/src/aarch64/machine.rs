//! An emulated aarch64 machine with its own kernel, run by `qemu-system-aarch64`, for features that
//! the emulation of single programs lacks: tracing of processes, and other page sizes.
//!
//! It shares the directories of this machine that the tests need, and has no compiler: its `cc`
//! requests compilation on this machine.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::thread;
use std::time::Duration;

use super::tools::{TOOLS, Tools, value, write_script};
use crate::commands::output;

/// Modules of the kernel for shared directories, in the order of their dependencies. A kernel
/// without modules has them built in.
const MODULES: [&str; 4] = ["fs/netfs/netfs", "net/9p/9pnet", "net/9p/9pnet_virtio", "fs/9p/9p"];
/// The interval at which compile requests are polled.
const LOOKS_EVERY: Duration = Duration::from_millis(20);

/// The machine's kernel and files.
pub struct Machine<'a> {
    tools: &'a Tools,
    /// An unpacked package of Debian's kernel.
    kernel: PathBuf,
    /// The directory of its files.
    place: PathBuf,
}

impl Machine<'_> {
    /// Creates a machine with the kernel in this directory: `boot/vmlinuz-…` and, if it has
    /// modules, `usr/lib/modules/…`.
    pub fn new<'a>(tools: &'a Tools, kernel: &Path) -> Machine<'a> {
        Machine { tools, kernel: kernel.to_path_buf(), place: tools.place.join("machine") }
    }

    /// Boots, and runs aarch64 programs with these words, until one fails.
    ///
    /// # Errors
    ///
    /// The machine cannot be started, or a program fails.
    pub fn run(&self, root: &Path, programs: &[PathBuf], words: &[String]) -> Result<(), String> {
        let requests = self.place.join("requests");
        let _ = fs::remove_dir_all(&self.place);
        let made = fs::create_dir_all(&requests).map_err(|e| format!("{requests:?}: {e}"));
        made.and_then(|()| self.write_start(root, programs, words))?;
        let mut machine = self.start(&requests)?;
        let status = loop {
            if let Some(status) = machine.try_wait().map_err(|e| e.to_string())? {
                break status;
            }
            self.compile(&requests)?;
            thread::sleep(LOOKS_EVERY);
        };
        let result = fs::read_to_string(requests.join("status")).unwrap_or_default();
        match result.trim() {
            "0" => Ok(()),
            "" => Err(format!("the machine stopped: {status}")),
            other => Err(format!("a test program: exit status {other}")),
        }
    }

    fn start(&self, requests: &Path) -> Result<Child, String> {
        let boot = fs::read_dir(self.kernel.join("boot"));
        let image = boot.into_iter().flatten().flatten().map(|entry| entry.path()).find(|path| {
            path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("vmlinuz"))
        });
        let image = image.ok_or_else(|| format!("{}: no boot/vmlinuz-…", self.kernel.display()))?;
        let share = |name: &str, path: &Path| {
            let path = path.display();
            let options = "security_model=none,multidevs=remap";
            let share = format!("local,id={name},path={path},{options}");
            let device = format!("virtio-9p-pci,fsdev={name},mount_tag={name}");
            ["-fsdev".to_owned(), share, "-device".to_owned(), device]
        };
        let mut command = Command::new(value("HEAPTIDE_AARCH64_MACHINE", "qemu-system-aarch64"));
        command.args(["-M", "virt,gic-version=3", "-cpu", "max", "-smp", "2", "-m", "2048"]);
        command.args(["-nographic", "-no-reboot", "-nic", "none", "-kernel"]).arg(image);
        command.arg("-initrd").arg(self.place.join("start.cpio"));
        command.args(["-append", "console=ttyAMA0 panic=-1 quiet"]);
        command.args(share("host", Path::new("/"))).args(share("requests", requests));
        command.stdin(std::process::Stdio::null());
        command.spawn().map_err(|e| format!("{command:?}: {e}"))
    }

    /// Handles compile requests of the machine: a directory with the words of a command, the first
    /// of which is its working directory.
    fn compile(&self, requests: &Path) -> Result<(), String> {
        for entry in fs::read_dir(requests).into_iter().flatten().flatten() {
            let ready = entry.path().join("ready");
            let Ok(words) = fs::read_to_string(&ready) else { continue };
            let mut words = words.split_terminator('\0');
            let (Some(place), Some(tool)) = (words.next(), words.next()) else { continue };
            let mut command = Command::new(self.tools.place.join("tools").join(tool));
            let done = command.args(words).current_dir(place).output();
            let done = done.map_err(|e| format!("{command:?}: {e}"))?;
            let status = done.status.code().unwrap_or(1).to_string();
            let write = |name: &str, bytes: &[u8]| fs::write(entry.path().join(name), bytes);
            let written = fs::remove_file(&ready)
                .and_then(|()| write("out", &done.stdout))
                .and_then(|()| write("err", &done.stderr))
                .and_then(|()| write("status", status.as_bytes()))
                .and_then(|()| write("done", b""));
            written.map_err(|e| format!("{}: {e}", entry.path().display()))?;
        }
        Ok(())
    }

    /// Writes the initial files of the machine.
    fn write_start(
        &self,
        root: &Path,
        programs: &[PathBuf],
        words: &[String],
    ) -> Result<(), String> {
        let start = self.place.join("start");
        let failed = |e: std::io::Error| format!("{}: {e}", start.display());
        let busybox = value("HEAPTIDE_AARCH64_BUSYBOX", "busybox");
        for directory in ["bin", "modules"] {
            fs::create_dir_all(start.join(directory)).map_err(failed)?;
        }
        let copied = fs::copy(&busybox, start.join("bin/busybox"));
        copied.map_err(|e| format!("HEAPTIDE_AARCH64_BUSYBOX={busybox}: {e}"))?;
        symlink("busybox", start.join("bin/sh")).map_err(failed)?;
        let versions = fs::read_dir(self.kernel.join("usr/lib/modules"));
        let version = versions.into_iter().flatten().flatten().next();
        for (version, module) in version.iter().flat_map(|of| MODULES.map(|module| (of, module))) {
            let packed = version.path().join("kernel").join(format!("{module}.ko.xz"));
            let name = Path::new(module).file_name().unwrap_or_default();
            let to = fs::File::create(start.join("modules").join(name)).map_err(failed)?;
            let mut unpack = Command::new("xz");
            let status = unpack.arg("-dc").arg(packed).stdout(to).status();
            if !status.map_err(|e| format!("xz: {e}"))?.success() {
                return Err(format!("{unpack:?} failed"));
            }
        }
        for tool in TOOLS {
            write_script(&start.join("bin").join(tool), ASK).map_err(failed)?;
        }
        let own = [root, &self.tools.place, &self.tools.sysroot];
        let own = own.map(|path| path.display().to_string()).join(" ");
        let quoted = words.iter().map(|word| format!(" '{word}'")).collect::<String>();
        let runs = programs.iter().map(|program| format!("'{}'{quoted}", program.display()));
        let run = runs.collect::<Vec<_>>().join(" && ");
        let sysroot = self.tools.sysroot.display().to_string();
        let text = INIT.replace("OWN", &own).replace("SYSROOT", &sysroot).replace("RUN", &run);
        let text = text.replace("PLACE", &root.join("crates/cli").display().to_string());
        let scratch = self.tools.temporary().join("scratch").display().to_string();
        write_script(&start.join("init"), &text.replace("SCRATCH", &scratch)).map_err(failed)?;
        let list = output(Command::new("find").arg(".").current_dir(&start))?;
        let mut archive = Archive::default();
        archive.entry("dev", DIRECTORY, &[]);
        archive.entry("dev/console", CONSOLE, &[]);
        let mut names: Vec<&str> = list.lines().map(|line| line.trim_start_matches("./")).collect();
        names.sort_unstable();
        for name in names.into_iter().filter(|name| *name != ".") {
            archive.add(&start, name).map_err(failed)?;
        }
        archive.finish(&self.place.join("start.cpio")).map_err(failed)
    }
}

/// The machine's init script: it mounts the shared directories, and runs the program.
const INIT: &str = r#"#!/bin/sh
/bin/busybox --install -s /bin
export PATH=/bin HOME=/root HEAPTIDE_ALLOW_SKIP=all
mkdir -p /proc /sys /dev /host /requests /lib /etc /root /tmp /run
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /dev/shm
mount -t devpts devpts /dev/pts
mount -t tmpfs shm /dev/shm
for module in netfs 9pnet 9pnet_virtio 9p; do
    [ ! -e /modules/$module ] || insmod /modules/$module
done
share=trans=virtio,version=9p2000.L,msize=1048576
mount -t 9p -o $share,cache=loose host /host
mount -t 9p -o $share,cache=none requests /requests
for path in OWN; do mkdir -p $path; mount --bind /host$path $path; done
mount --bind SYSROOT/lib /lib
mkdir -p SCRATCH
mount -t tmpfs scratch SCRATCH
echo root:x:0:0:root:/root:/bin/sh > /etc/passwd
mount -t tmpfs tmp /tmp
ip link set lo up 2> /dev/null
cd PLACE
export CARGO_MANIFEST_DIR=PLACE
RUN
echo $? > /requests/status
sync
poweroff -f
"#;

/// Replaces the compiler: requests compilation, and waits.
const ASK: &str = r#"#!/bin/sh
place=/requests/$$
mkdir -p $place
printf '%s\0' "$PWD" "${0##*/}" "$@" > $place/words
mv $place/words $place/ready
until [ -e $place/done ]; do usleep 20000; done
cat $place/out
cat $place/err >&2
status=$(cat $place/status)
rm -r $place
exit $status
"#;

/// Types and permissions of archive entries.
const DIRECTORY: u32 = 0o040_755;
const LINK: u32 = 0o120_777;
const PROGRAM: u32 = 0o100_755;
const CONSOLE: u32 = 0o020_600;

/// An archive that the kernel unpacks (cpio, `newc`).
#[derive(Default)]
struct Archive {
    bytes: Vec<u8>,
    files: u32,
}

impl Archive {
    fn add(&mut self, root: &Path, name: &str) -> std::io::Result<()> {
        let path = root.join(name);
        let kind = fs::symlink_metadata(&path)?.file_type();
        if kind.is_dir() {
            self.entry(name, DIRECTORY, &[]);
        } else if kind.is_symlink() {
            self.entry(name, LINK, fs::read_link(&path)?.as_os_str().as_encoded_bytes());
        } else {
            self.entry(name, PROGRAM, &fs::read(&path)?);
        }
        Ok(())
    }

    fn entry(&mut self, name: &str, mode: u32, contents: &[u8]) {
        self.files += 1;
        let (length, name_length) = (contents.len() as u32, name.len() as u32 + 1);
        let [major, minor] = if mode == CONSOLE { [5, 1] } else { [0, 0] };
        let fields = [self.files, mode, 0, 0, 1, 0, length, 0, 0, major, minor, name_length, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08X}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(contents);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }

    fn finish(mut self, path: &Path) -> std::io::Result<()> {
        self.entry("TRAILER!!!", 0, &[]);
        fs::write(path, self.bytes)
    }
}
