//! Sealing packs profiles: their tables do not change, and later damage of the bytes leads to a
//! note or an error.

use std::cell::RefCell;
use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use heaptide_analysis::model::{End, Process, Recording};
use heaptide_analysis::profile::reader;
use heaptide_analysis::recording::seal_with;
use heaptide_analysis::seal;
use heaptide_analysis::symbols::{Blazesym, DebugFiles, Lookup, Sources};
use heaptide_fixtures::{ProfileBuilder, Scratch, site};
use heaptide_format as format;

const ZSTD: [u8; 4] = [0x28, 0xb5, 0x2f, 0xfd];
const NAME: &str = "12-0.profile";

/// Returns a profile that zstd packs into several blocks, with sites in more than one.
fn profile(pid: u32) -> ProfileBuilder {
    profile_with(pid, 4000)
}

/// Returns a profile with this many sites.
fn profile_with(pid: u32, sites: u64) -> ProfileBuilder {
    let mut p = ProfileBuilder::new(format::Mode::Stacks, pid, 0);
    p.program("/bin/app", &["app"]);
    let app = p.module("/nowhere/app", 0x1000_0000, &[7; 20]);
    p.extent_pages = 16;
    let mut parent = 0;
    for depth in 0..sites {
        parent = p.node(0, app, 0x1000_0000 + 16 * depth, parent);
        p.site(0, site(parent, depth + 1, 32 + depth * depth % 4096));
    }
    p.lane(0, "app", |_| {});
    p
}

fn pack(scratch: &Scratch) -> Vec<u8> {
    scratch.write(NAME, &profile(12).finish());
    seal(scratch, &mut |_, _| {}).unwrap();
    let packed = fs::read(scratch.join(NAME)).unwrap();
    assert!(packed.starts_with(&ZSTD), "sealing packs");
    packed
}

/// Returns all tables as text.
fn tables(directory: &Path) -> String {
    format!("{:?}", Recording::open(directory).unwrap().processes)
}

#[test]
fn a_packed_profile_is_smaller_and_reads_the_same() {
    let scratch = Scratch::new("packed");
    let plain = profile(12).finish();
    let file = scratch.write(NAME, &[plain.as_slice(), &[0; 8192]].concat());
    fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
    let rights = fs::metadata(&file).unwrap().permissions();
    let before = tables(&scratch);
    seal(&scratch, &mut |_, _| {}).unwrap();
    let packed = fs::read(&file).unwrap();
    assert!(packed.starts_with(&ZSTD) && packed.len() * 3 < plain.len(), "{}", packed.len());
    assert_eq!(tables(&scratch), before);
    assert_eq!(fs::metadata(&file).unwrap().permissions(), rights);
    let from_memory = Process::from_bytes(&packed, &file).unwrap();
    assert_eq!(from_memory.tables.sites, Process::from_bytes(&plain, &file).unwrap().tables.sites);
    seal(&scratch, &mut |_, _| {}).unwrap();
    assert_eq!(fs::read(&file).unwrap(), packed, "sealing again changes nothing");
    assert_eq!(fs::read_dir(&*scratch).unwrap().count(), 2, "the profile and symbols.json");
}

#[test]
fn a_profile_that_was_cut_before_packing_says_so() {
    let scratch = Scratch::new("cut-packed");
    let plain = profile(12).finish();
    scratch.write(NAME, &plain[..plain.len() - 4096]);
    let before = tables(&scratch);
    seal(&scratch, &mut |_, _| {}).unwrap();
    assert_eq!(tables(&scratch), before);
    assert!(before.contains("the file is truncated"), "{before:.300}");
}

#[test]
fn a_packed_file_cut_anywhere_keeps_what_is_left() {
    let scratch = Scratch::new("truncated");
    let packed = pack(&scratch);
    let (mut last, mut some) = (0, 0);
    for end in (0..packed.len()).step_by(97) {
        match reader::parse(&packed[..end], Path::new(NAME)) {
            Ok(profile) => {
                assert!(profile.notes.iter().any(|n| n.contains("could be decompressed: ")));
                assert!(profile.sites.len() >= last, "fewer sites of more bytes");
                last = profile.sites.len();
                some += usize::from(last > 0 && last < 4000);
            }
            Err(error) => {
                assert_eq!(last, 0);
                assert!(!error.to_string().contains('\n'));
            }
        }
    }
    assert!(some > 0, "of some cut files a part is read");
    scratch.write(NAME, &packed[..packed.len() - 4]);
    let notes = &Recording::open(&scratch).unwrap().processes[0].completeness.notes;
    assert!(notes[0].contains("could be decompressed"), "the checksum is missing: {notes:?}");
}

#[test]
fn changed_bytes_are_told() {
    let scratch = Scratch::new("changed-packed");
    let packed = pack(&scratch);
    let whole = format!("{:?}", reader::parse(&packed, Path::new(NAME)).unwrap());
    for at in (0..packed.len()).step_by(packed.len() / 500) {
        let mut bytes = packed.clone();
        bytes[at] ^= 0x10;
        match reader::parse(&bytes, Path::new(NAME)) {
            Ok(profile) if profile.notes.is_empty() => {
                assert_eq!(format!("{profile:?}"), whole, "byte {at} is in vain");
            }
            Ok(_) => {}
            Err(error) => assert!(!error.to_string().contains('\n'), "{error}"),
        }
    }
    scratch.write(NAME, &packed[..12]);
    let error = Recording::open(&scratch).unwrap_err().to_string();
    assert!(error.contains("cannot decompress: "), "{error}");
}

#[test]
fn a_bomb_is_refused() {
    let mut bomb = Vec::new();
    // blocks of one byte repeated 128 KiB: a frame of 512 MiB in 16 KB
    bomb.extend_from_slice(&ZSTD);
    bomb.extend_from_slice(&[0, 0x50]); // no size, a window of 1 MiB
    let head = profile(12).finish()[..4096].to_vec();
    bomb.extend_from_slice(&(4096u32 << 3).to_le_bytes()[..3]);
    bomb.extend_from_slice(&head);
    for index in 0..4096u32 {
        let block = (128 << 10) << 3 | 1 << 1 | u32::from(index == 4095);
        bomb.extend_from_slice(&block.to_le_bytes()[..3]);
        bomb.push(0);
    }
    let error = reader::parse(&bomb, Path::new(NAME)).unwrap_err().to_string();
    let expected = "bytes decompress to more than 67108864";
    assert!(error.contains(expected), "{error}");
}

#[test]
fn a_window_of_gigabytes_is_refused() {
    let mut bytes = ZSTD.to_vec();
    bytes.extend_from_slice(&[0, 0xa8, 1, 0, 0]); // a window of 2 GiB, an empty last block
    let error = reader::parse(&bytes, Path::new(NAME)).unwrap_err().to_string();
    assert!(error.contains("cannot decompress: "), "{error}");
}

/// Simulates a process with a mapped file: it runs until its standard input ends.
const MAPS: &str = "import mmap, sys\n\
    file = open(sys.argv[1], 'r+b')\n\
    memory = mmap.mmap(file.fileno(), 0)\n\
    print(flush=True)\n\
    sys.stdin.read()\n";

/// Starts a process that maps this file, and waits until it has.
fn map(file: &Path) -> Child {
    let mut child = Command::new("python3")
        .args(["-c", MAPS, file.to_str().unwrap()])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0]).unwrap();
    child
}

/// A server of debug files. While it is queried, a process stores these bytes in its profile and
/// ends.
struct Ending(RefCell<Child>, PathBuf, Vec<u8>);

impl DebugFiles for Ending {
    fn fetch(&self, _: &str, _: &Path) -> Result<Option<PathBuf>, String> {
        let Ending(child, profile, bytes) = self;
        let mut child = child.borrow_mut();
        if let Some(input) = child.stdin.take() {
            fs::write(profile, bytes).unwrap();
            drop(input);
            child.wait().unwrap();
        }
        Ok(None)
    }
}

/// Such a profile was cut to the bytes that it had when it was read.
#[test]
fn a_process_that_ends_while_names_are_looked_up_has_all_that_it_stored() {
    let scratch = Scratch::new("ends");
    let file = scratch.write("x", &[0; 8192]);
    let child = map(&file);
    let pid = child.id();
    let profile = scratch.join(format!("{pid}-0.profile"));
    fs::write(&file, profile_with(pid, 10).finish()).unwrap();
    fs::rename(&file, &profile).unwrap();
    let ending = Ending(child.into(), profile.clone(), profile_with(pid, 4000).finish());
    let sources = Sources { server: Some(Box::new(ending)), ..Sources::default() };
    let lookup = Lookup { engine: &Blazesym, sources: &sources, again: false };
    let sealed = seal_with(&scratch, &lookup, &mut |_, _| {}).unwrap();
    assert_eq!((sealed.addresses, sealed.notes.len()), (4000, 1));
    assert!(fs::read(&profile).unwrap().starts_with(&ZSTD));
    let process = &Recording::open(&scratch).unwrap().processes[0];
    assert_eq!((&process.completeness.notes, process.tables.sites.len()), (&sealed.notes, 4000));
}

#[test]
fn a_profile_that_a_process_has_mapped_is_left_alone() {
    let scratch = Scratch::new("mapped");
    // with a pid other than that of the mapping process, as across pid namespaces
    let exited = |h: &mut format::FileHeader| h.end_kind = format::End::Exited as u32;
    for (own_pid, noted) in [(true, false), (true, true), (false, false)] {
        let file = scratch.write("x", &[0; 8192]);
        let mut child = map(&file);
        let pid = if own_pid { child.id() } else { u32::MAX };
        let mut p = profile(pid);
        if noted {
            exited(&mut p.header);
        }
        let name = format!("{pid}-0.profile");
        fs::write(&file, p.finish()).unwrap(); // the same file, which the process has mapped
        fs::rename(&file, scratch.join(&name)).unwrap();
        let is_packed = || {
            seal(&scratch, &mut |_, _| {}).unwrap();
            fs::read(scratch.join(&name)).unwrap().starts_with(&ZSTD)
        };
        if own_pid && !noted {
            let end = Recording::open(&scratch).unwrap().processes[0].lifetime.end;
            assert_eq!(end, End::Running);
        }
        assert!(!is_packed(), "own pid {own_pid}, noted {noted}");
        drop(child.stdin.take());
        child.wait().unwrap();
        assert!(is_packed(), "own pid {own_pid}, noted {noted}: it is over");
        fs::remove_file(scratch.join(&name)).unwrap();
    }
}

#[test]
fn a_profile_that_cannot_be_packed_stays_as_it_was() {
    let scratch = Scratch::new("full");
    let plain = profile(12).finish();
    let file = scratch.write(NAME, &plain);
    // the path of the new file is a directory, so it cannot be written
    fs::create_dir(scratch.join(format!("{NAME}.{}.new", std::process::id()))).unwrap();
    let before = tables(&scratch);
    seal(&scratch, &mut |_, _| {}).unwrap();
    assert_eq!(fs::read(&file).unwrap(), plain);
    assert_eq!(tables(&scratch), before);
}

#[test]
fn what_a_killed_seal_leaves_is_no_profile() {
    let scratch = Scratch::new("killed");
    let plain = profile(12).finish();
    let file = scratch.write(NAME, &plain);
    let before = tables(&scratch);
    scratch.write("12-0.profile.7.new", &ZSTD);
    assert_eq!(tables(&scratch), before);
    seal(&scratch, &mut |_, _| {}).unwrap();
    assert!(fs::read(&file).unwrap().starts_with(&ZSTD));
    assert_eq!(tables(&scratch), before);
}
