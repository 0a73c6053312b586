//! The location to which `heaptide library` writes the library: a directory and a file that no
//! other user can replace. Tests with files of other users need root.

use crate::harness::{NOBODY, Outcome, heaptide, run, scratch};
use heaptide_fixtures::skips::{ROOT, is_root, skip};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};

/// A directory for temporary files, in which `heaptide library` can use `heaptide-UID`.
struct Temporary {
    place: PathBuf,
    path: PathBuf,
}

impl Temporary {
    fn new(test: &str) -> Temporary {
        let place = scratch(test);
        let path = place.join("tmp");
        fs::create_dir(&path).expect("a place for temporary files");
        set_mode(&path, 0o1777);
        Temporary { place, path }
    }

    /// Returns the directory of this user.
    fn own(&self) -> PathBuf {
        let user = fs::metadata("/proc/self").expect("/proc").uid();
        self.path.join(format!("heaptide-{user}"))
    }

    /// Runs `heaptide library` without a home directory.
    fn run_command(&self) -> Outcome {
        let mut command = heaptide();
        command.env_remove("HOME").env_remove("XDG_CACHE_HOME").env("TMPDIR", &self.path);
        run(command.arg("library"), &self.place)
    }

    /// Returns the path of the library, which must be in the directory of this user.
    fn provided(&self) -> PathBuf {
        let outcome = self.run_command();
        assert_eq!((outcome.status, &*outcome.stderr), (0, ""));
        let path = PathBuf::from(outcome.stdout.trim_end());
        assert_eq!(path.parent(), Some(&*self.own()));
        assert_eq!(drafts(&self.own()), [""; 0]);
        path
    }

    /// Returns the line with the reason why the library cannot be written.
    fn refused(&self) -> String {
        let outcome = self.run_command();
        assert_eq!((outcome.status, &*outcome.stdout), (2, ""));
        assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
        let start = format!("heaptide: cannot store libheaptide.so: {}: ", self.own().display());
        assert!(outcome.stderr.starts_with(&start), "{}", outcome.stderr);
        outcome.stderr
    }
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("a mode");
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).expect("a file").mode() & 0o7777
}

/// Returns unfinished files.
fn drafts(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).expect("the directory").flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.ends_with(".new")).collect()
}

#[test]
fn the_directory_is_private() {
    let temporary = Temporary::new("library-private");
    let library = temporary.provided();
    assert_eq!((mode(&temporary.own()), mode(&library)), (0o700, 0o755));
    let inode = fs::metadata(&library).expect("the library").ino();
    set_mode(&temporary.own(), 0o777);
    assert_eq!(temporary.provided(), library);
    assert_eq!(mode(&temporary.own()), 0o700);
    assert_eq!(fs::metadata(&library).expect("the library").ino(), inode, "written again");
}

#[test]
fn a_link_is_not_followed() {
    let temporary = Temporary::new("library-link");
    let elsewhere = temporary.place.join("elsewhere");
    fs::create_dir(&elsewhere).expect("a directory");
    symlink(&elsewhere, temporary.own()).expect("a link");
    assert!(temporary.refused().contains("a symbolic link, or not a directory"));
    if is_root() {
        std::os::unix::fs::lchown(temporary.own(), Some(NOBODY), Some(NOBODY)).expect("chown");
        set_mode(&elsewhere, 0o1777);
        assert!(temporary.refused().contains("a symbolic link, or not a directory"));
    }
    assert_eq!(fs::read_dir(&elsewhere).expect("the directory").count(), 0);
    fs::remove_file(temporary.own()).expect("the link");
    fs::write(temporary.own(), "").expect("a file");
    assert!(temporary.refused().contains("a symbolic link, or not a directory"));
}

#[test]
fn a_directory_of_another_user_is_not_used() {
    if !is_root() {
        return skip(ROOT);
    }
    let temporary = Temporary::new("library-foreign");
    fs::create_dir(temporary.own()).expect("a directory");
    chown(temporary.own(), Some(NOBODY), Some(NOBODY)).expect("chown");
    assert!(temporary.refused().contains("belongs to user 65534, expected 0"));
    assert_eq!(fs::read_dir(temporary.own()).expect("the directory").count(), 0);
}

#[test]
fn nobody_else_may_replace_a_directory_above() {
    let temporary = Temporary::new("library-above");
    set_mode(&temporary.path, 0o777);
    let shown = temporary.path.display().to_string();
    assert!(temporary.refused().contains(&format!("other users can write to {shown}")));
    assert!(!temporary.own().exists());
    set_mode(&temporary.path, 0o775);
    temporary.provided();
    if !is_root() {
        return skip(ROOT);
    }
    chown(&temporary.path, None, Some(NOBODY)).expect("chown");
    assert!(temporary.refused().contains(&format!("other users can write to {shown}")));
    set_mode(&temporary.path, 0o755);
    temporary.provided();
    chown(&temporary.path, Some(NOBODY), None).expect("chown");
    assert!(temporary.refused().contains(&format!("{shown} belongs to user 65534")));
    chown(&temporary.path, Some(0), None).expect("chown");
    chown(&temporary.place, Some(NOBODY), None).expect("chown");
    let shown = temporary.place.display();
    assert!(temporary.refused().contains(&format!("{shown} belongs to user 65534")));
}

/// Any file with the name of the library is replaced, unless it is the library.
#[test]
fn only_the_library_itself_is_taken_for_it() {
    let temporary = Temporary::new("library-content");
    let library = temporary.provided();
    let content = fs::read(&library).expect("the library");
    let is_new = |what: &str| {
        let before = fs::symlink_metadata(&library).ok().map(|is| is.ino());
        assert_eq!(temporary.provided(), library, "{what}");
        let is = fs::symlink_metadata(&library).expect("the library");
        assert!(is.is_file() && Some(is.ino()) != before && mode(&library) == 0o755, "{what}");
        assert!(fs::read(&library).expect("the library") == content, "{what}");
    };
    let mut other = content.clone();
    *other.last_mut().expect("bytes") ^= 1;
    fs::write(&library, other).expect("a file");
    is_new("other content");
    fs::write(&library, [&*content, b"more"].concat()).expect("a file");
    is_new("more content");
    set_mode(&library, 0o777);
    is_new("a file that others can write to");
    let elsewhere = temporary.place.join("elsewhere");
    fs::rename(&library, &elsewhere).expect("moved");
    symlink(&elsewhere, &library).expect("a link");
    is_new("a link to the library");
    fs::remove_file(&library).expect("removed");
    assert!(std::process::Command::new("mkfifo").arg(&library).status().expect("mkfifo").success());
    is_new("a named pipe");
    if is_root() {
        chown(&library, Some(NOBODY), None).expect("chown");
        is_new("the library of another user");
    }
    fs::remove_file(&library).expect("removed");
    fs::create_dir_all(library.join("inside")).expect("a directory");
    temporary.refused();
    assert_eq!(drafts(&temporary.own()), [""; 0]);
}

#[test]
fn the_next_place_is_tried() {
    let temporary = Temporary::new("library-next");
    let place = &temporary.place;
    let home = place.join("home");
    fs::create_dir_all(&home).expect("a home");
    set_mode(&home, 0o755);
    for bad in ["a file/x", "sp ace", "col:on", "dol$lar", "new\nline", "shared"] {
        let cache = place.join(bad);
        fs::write(place.join("a file"), "").expect("a file");
        if bad == "shared" {
            fs::create_dir(&cache).expect("a directory");
            set_mode(&cache, 0o777);
        }
        let mut command = heaptide();
        command.env("XDG_CACHE_HOME", &cache).env("HOME", &home).env("TMPDIR", "/nowhere");
        let outcome = run(command.arg("library"), place);
        assert_eq!((outcome.status, &*outcome.stderr), (0, ""), "{bad:?}");
        let expected = home.join(".cache/heaptide");
        assert_eq!(Path::new(&outcome.stdout).parent(), Some(&*expected), "{bad:?}");
    }
    // The home and the directory of temporary files are not created, the cache is.
    let missing = place.join("missing");
    let mut command = heaptide();
    command.env_remove("XDG_CACHE_HOME").env("HOME", &missing).env("TMPDIR", &missing);
    let outcome = run(command.arg("library"), place);
    assert_eq!((outcome.status, missing.exists()), (0, false), "{outcome:?}");
    assert!(outcome.stdout.starts_with("/tmp/heaptide-"), "{outcome:?}");
    let mut command = heaptide();
    let outcome = run(command.env("XDG_CACHE_HOME", home.join("cache")).arg("library"), place);
    assert_eq!(Path::new(&outcome.stdout).parent(), Some(&*home.join("cache/heaptide")));
    // A cache on another disk is a symbolic link of the user.
    let (linked, disk) = (place.join("linked"), place.join("disk"));
    fs::create_dir_all(&disk).expect("a directory");
    set_mode(&disk, 0o755);
    symlink(&disk, &linked).expect("a link");
    let mut command = heaptide();
    let outcome = run(command.env("XDG_CACHE_HOME", &linked).arg("library"), place);
    assert_eq!(Path::new(&outcome.stdout).parent(), Some(&*disk.join("heaptide")));
    let mut command = heaptide();
    command.env("XDG_CACHE_HOME", place.join("a file/x")).env("HOME", place.join("a file"));
    let outcome = run(command.env("TMPDIR", place.join("shared")).arg("library"), place);
    assert_eq!(outcome.status, 2);
    for named in ["a file/x/heaptide: ", "a file/.cache/heaptide: ", "shared/heaptide-"] {
        assert!(outcome.stderr.contains(named), "{named}: {}", outcome.stderr);
    }
}
