//! Writes profiles with known content, extent by extent, as the recorder would.

#![allow(dead_code)] // each test file uses its part

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use heaptide_format::{
    ADDRESS_BITS, EXTENT_HEADER, EXTENT_MAGIC, End, ExtentHeader, FileHeader, KEY_BIT, KEY_GRANULE,
    KEY_LABELLED, Key, Kind, Lane, MAGIC, Mark, Mode, Module, NAME_GRANULE, Name, Node, PAGE,
    SITE_GRANULE, STRING_GRANULE, Sample, Scope, Site, StringHeader, TraceStart, VERSION, Window,
};
use zerocopy::{FromZeros, IntoBytes};

/// A profile in the making.
pub struct ProfileBuilder {
    /// The head; `file_end` is filled in at the end.
    pub header: FileHeader,
    file: Vec<u8>,
    /// Where the extent that takes more records starts.
    open: HashMap<(u16, u32), usize>,
    modules: u32,
    extents: u32,
    /// Pages of each new extent.
    pub extent_pages: u64,
}

impl ProfileBuilder {
    pub fn new(mode: Mode, pid: u32, image: u32) -> ProfileBuilder {
        let mut header = FileHeader::new_zeroed();
        header.magic = MAGIC;
        header.version = VERSION;
        header.mode = mode as u32;
        header.pid = pid;
        header.ppid = 1;
        header.image = image;
        header.epoch = 1;
        header.start_realtime_ns = 1_000_000_000 + u64::from(image);
        ProfileBuilder {
            header,
            file: vec![0; PAGE as usize],
            open: HashMap::new(),
            modules: 0,
            extents: 0,
            extent_pages: 1,
        }
    }

    /// Names the program, its arguments and the host.
    pub fn program(&mut self, program: &str, arguments: &[&str]) -> &mut ProfileBuilder {
        self.header.program = self.string(program);
        let command: String = arguments.iter().map(|a| format!("{a}\0")).collect();
        self.header.command = self.string(&command);
        self.header.host = self.string("host");
        self
    }

    /// Has the image note that it exited: its tables are taken as they are.
    pub fn exited(&mut self) -> &mut ProfileBuilder {
        self.header.end_kind = End::Exited as u32;
        self
    }

    pub fn string(&mut self, text: &str) -> u32 {
        self.bytes(text.as_bytes())
    }

    /// A string that need not be UTF-8.
    pub fn bytes(&mut self, text: &[u8]) -> u32 {
        let mut record =
            StringHeader { length: text.len() as u32, reserved: 0 }.as_bytes().to_vec();
        record.extend_from_slice(text);
        record.resize(record.len().next_multiple_of(STRING_GRANULE as usize), 0);
        (self.record(Kind::Strings, 0, &record) as u64 / STRING_GRANULE) as u32
    }

    /// A module mapped at `start`, with link-time addresses from 0; returns its index.
    pub fn module(&mut self, path: &str, start: u64, build_id: &[u8]) -> u32 {
        self.module_at(path.as_bytes(), start, build_id)
    }

    /// The same with a path that need not be UTF-8.
    pub fn module_at(&mut self, path: &[u8], start: u64, build_id: &[u8]) -> u32 {
        self.modules += 1;
        let mut module = Module::new_zeroed();
        module.start = start;
        module.end = start + 0x10_0000;
        module.bias = start;
        module.path = self.bytes(path);
        module.index = self.modules;
        module.build_id_length = build_id.len() as u32;
        module.build_id[..build_id.len()].copy_from_slice(build_id);
        self.record(Kind::Modules, 0, module.as_bytes());
        self.modules
    }

    /// A frame that returns to `address`, below the frame `parent`; returns its id.
    pub fn node(&mut self, lane: u32, module: u32, address: u64, parent: u32) -> u32 {
        self.node_of(
            lane,
            Node { key: u64::from(module) << ADDRESS_BITS | address, parent, ..NO_NODE },
        )
    }

    pub fn node_of(&mut self, lane: u32, node: Node) -> u32 {
        (self.record(Kind::Nodes, lane, node.as_bytes()) / 32) as u32
    }

    /// Returns the site's id.
    pub fn site(&mut self, lane: u32, site: Site) -> u32 {
        (self.record(Kind::Sites, lane, site.as_bytes()) as u64 / SITE_GRANULE) as u32
    }

    pub fn lane(&mut self, index: u32, name: &str, change: impl FnOnce(&mut Lane)) {
        let mut lane = Lane::new_zeroed();
        lane.name[..name.len()].copy_from_slice(name.as_bytes());
        lane.index = index;
        lane.threads = 1;
        change(&mut lane);
        self.record(Kind::Lanes, index, lane.as_bytes());
    }

    /// A name with a text as its value; returns its id.
    pub fn name(&mut self, attribute: &str, value: &str) -> u32 {
        let value = self.string(value).into();
        self.name_of(attribute, 0, value)
    }

    /// A name with an integer as its value.
    pub fn name_int(&mut self, attribute: &str, value: i64) -> u32 {
        self.name_of(attribute, 1, value as u64)
    }

    fn name_of(&mut self, attribute: &str, kind: u32, value: u64) -> u32 {
        let attribute = self.string(attribute);
        let name = Name { attribute, kind, value, hash: 0, reserved: 0 };
        (self.record(Kind::Names, 0, name.as_bytes()) as u64 / NAME_GRANULE) as u32
    }

    /// A scope path of a lane, a root without parent and name; returns its id.
    pub fn scope(
        &mut self,
        lane: u32,
        parent: u32,
        name: u32,
        change: impl FnOnce(&mut Scope),
    ) -> u32 {
        let mut scope = Scope::new_zeroed();
        (scope.lane, scope.parent, scope.name) = (lane, parent, name);
        change(&mut scope);
        (self.record(Kind::Scopes, lane, scope.as_bytes()) as u64 / KEY_GRANULE) as u32
    }

    /// A key; returns what a site with it has as `key`.
    pub fn key(&mut self, owner: u32, change: impl FnOnce(&mut Key)) -> u32 {
        let mut key = Key::new_zeroed();
        key.lane = owner;
        change(&mut key);
        let id = (self.record(Kind::Keys, owner, key.as_bytes()) as u64 / KEY_GRANULE) as u32;
        let labelled = if key.label != 0 || key.flags != 0 { KEY_LABELLED } else { 0 };
        KEY_BIT | labelled | id
    }

    pub fn window(&mut self, name: &str, change: impl FnOnce(&mut Window)) {
        let mut window = Window::new_zeroed();
        window.name = self.string(name);
        change(&mut window);
        self.record(Kind::Windows, 0, window.as_bytes());
    }

    pub fn mark(&mut self, mark: Mark) {
        self.record(Kind::Marks, 0, mark.as_bytes());
    }

    /// An extent of events: what it begins with, and its records.
    pub fn events(&mut self, lane: u32, start: TraceStart, records: &[u8]) {
        let contents = [start.as_bytes(), records].concat();
        let length = (EXTENT_HEADER + contents.len() as u64).next_multiple_of(PAGE);
        self.extent(Kind::Events, lane, length);
        self.record(Kind::Events, lane, &contents);
    }

    pub fn sample(&mut self, sample: Sample) {
        self.record(Kind::Timeline, 0, sample.as_bytes());
    }

    /// Leaves a page of zeros, as a process killed between reserving an extent and writing its
    /// head.
    pub fn gap(&mut self) {
        self.file.resize(self.file.len() + PAGE as usize, 0);
        self.open.clear();
    }

    /// An extent of a kind that no reader knows yet.
    pub fn foreign_extent(&mut self) {
        let at = self.extent(Kind::Strings, 0, PAGE);
        self.file[at + 4..at + 6].copy_from_slice(&999u16.to_le_bytes());
        self.open.clear();
    }

    /// Appends a record to its lane's extent of the kind; returns its offset.
    pub fn record(&mut self, kind: Kind, lane: u32, record: &[u8]) -> usize {
        let needed = record.len() as u64;
        let open = self.open.get(&(kind as u16, lane)).copied();
        let at = open
            .filter(|&at| self.head(at).committed + EXTENT_HEADER + needed <= self.head(at).length);
        let at = at.unwrap_or_else(|| {
            let length =
                (EXTENT_HEADER + needed).next_multiple_of(PAGE).max(self.extent_pages * PAGE);
            self.extent(kind, lane, length)
        });
        let mut head = self.head(at);
        let offset = at + (EXTENT_HEADER + head.committed) as usize;
        self.file[offset..offset + record.len()].copy_from_slice(record);
        head.committed += needed;
        self.set_head(at, &head);
        offset
    }

    fn extent(&mut self, kind: Kind, lane: u32, length: u64) -> usize {
        let at = self.file.len();
        self.file.resize(at + length as usize, 0);
        let mut head = ExtentHeader::new_zeroed();
        head.magic = EXTENT_MAGIC;
        head.kind = kind as u16;
        head.lane = lane;
        head.sequence = self.extents;
        head.length = length;
        self.extents += 1;
        self.set_head(at, &head);
        self.open.insert((kind as u16, lane), at);
        at
    }

    fn head(&self, at: usize) -> ExtentHeader {
        zerocopy::FromBytes::read_from_bytes(&self.file[at..at + EXTENT_HEADER as usize]).unwrap()
    }

    fn set_head(&mut self, at: usize, head: &ExtentHeader) {
        self.file[at..at + EXTENT_HEADER as usize].copy_from_slice(head.as_bytes());
    }

    /// Changes the head of the extent that records of a kind and lane go to.
    pub fn change_extent(&mut self, kind: Kind, lane: u32, change: impl FnOnce(&mut ExtentHeader)) {
        let at = self.open[&(kind as u16, lane)];
        let mut head = self.head(at);
        change(&mut head);
        self.set_head(at, &head);
    }

    /// The file's bytes.
    pub fn finish(&self) -> Vec<u8> {
        let mut header = self.header;
        header.file_end = self.file.len() as u64;
        let mut bytes = self.file.clone();
        bytes[..size_of::<FileHeader>()].copy_from_slice(header.as_bytes());
        bytes
    }
}

/// A node of nothing, to start from.
pub const NO_NODE: Node = Node { key: 0, parent: 0, first: 0, next: 0, last: 0, site: 0, flags: 0 };

/// A site of `blocks` live blocks of `bytes` each, asked for two bytes smaller.
pub fn site(key: u32, blocks: u64, bytes: u64) -> Site {
    let mut site = Site::new_zeroed();
    site.key = key;
    site.allocations = blocks;
    site.requested_bytes = blocks * (bytes - 2);
    site.usable_bytes = blocks * bytes;
    site.largest_bytes = bytes - 2;
    site
}

/// A directory of a test's own, removed at its end.
pub struct Scratch(pub PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Scratch {
        let path = std::env::temp_dir().join(format!("heaptide-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Scratch(path)
    }

    pub fn write(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.0.join(name);
        fs::write(&path, bytes).unwrap();
        path
    }
}

impl std::ops::Deref for Scratch {
    type Target = Path;

    fn deref(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        fs::remove_dir_all(&self.0).unwrap();
    }
}

/// Maps the file that its first line of input names, and holds it until its input ends.
const MAPS: &str = "#include <fcntl.h>\n\
    #include <stdio.h>\n\
    #include <sys/mman.h>\n\
    int main(void) {\n\
        char path[4096]; long offset, length;\n\
        if (scanf(\"%4095s %ld %ld\", path, &offset, &length) != 3) return 1;\n\
        int fd = open(path, O_RDWR);\n\
        void *at = mmap(0, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);\n\
        puts(at == MAP_FAILED ? \"failed\" : \"mapped\");\n\
        fflush(stdout);\n\
        while (getchar() != EOF) {}\n\
        return 0;\n\
    }\n";

/// A program that has a part of its profile mapped.
pub struct Mapping {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    /// Its profile, the file that it maps.
    pub profile: PathBuf,
}

impl Mapping {
    /// Bytes of its profile.
    pub const LENGTH: u64 = 8 * PAGE;

    /// Starts one; `profile_of` makes its profile for a pid.
    pub fn start(directory: &Path, profile_of: impl FnOnce(u32) -> Vec<u8>) -> Mapping {
        let program = directory.join("maps");
        if !program.exists() {
            fs::write(directory.join("maps.c"), MAPS).unwrap();
            let mut compiler = Command::new("cc");
            compiler.arg("-o").arg(&program).arg(directory.join("maps.c"));
            assert!(compiler.status().unwrap().success());
        }
        let (stdin, stdout) = (Stdio::piped(), Stdio::piped());
        let mut child = Command::new(&program).stdin(stdin).stdout(stdout).spawn().unwrap();
        let (input, output) = (child.stdin.take(), BufReader::new(child.stdout.take().unwrap()));
        let profile = directory.join(format!("{}-0.profile", child.id()));
        let mut bytes = profile_of(child.id());
        bytes.resize(Mapping::LENGTH as usize, 0);
        fs::write(&profile, bytes).unwrap();
        Mapping { child, input, output, profile }
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Has it map a part of its profile.
    pub fn map(&mut self, offset: u64, length: u64) {
        let line = format!("{} {offset} {length}\n", self.profile.display());
        self.input.as_mut().unwrap().write_all(line.as_bytes()).unwrap();
        let mut answer = String::new();
        self.output.read_line(&mut answer).unwrap();
        assert_eq!(answer, "mapped\n");
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        drop(self.input.take());
        self.child.wait().unwrap();
    }
}
