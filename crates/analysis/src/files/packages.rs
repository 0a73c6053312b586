//! Finds the Debian package of a file in the file lists of dpkg.

use std::fs;
use std::path::Path;

use super::input;

const LISTS: &str = "/var/lib/dpkg/info";
/// Maximum size of a list in bytes; that of a kernel's headers has 2 MB.
const LIMIT: u64 = 16 << 20;

/// Returns the installed package that contains a file, without the architecture; `None` if there is
/// no such package, or no dpkg.
pub fn package_of(file: &Path) -> Option<String> {
    package_in(Path::new(LISTS), file.to_str()?)
}

fn package_in(lists: &Path, file: &str) -> Option<String> {
    // The list can contain /lib/x instead of /usr/lib/x, and vice versa.
    let other = match file.strip_prefix("/usr/") {
        Some(rest) => format!("/{rest}"),
        None => format!("/usr{file}"),
    };
    let is_of = |text: &str| text.lines().any(|line| line == file || line == other);
    let entries = fs::read_dir(lists).ok()?.flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).find_map(|name| {
        let package = name.strip_suffix(".list")?;
        let bytes = input::read(&lists.join(&name), LIMIT).ok()?;
        let text = String::from_utf8_lossy(&bytes);
        is_of(&text).then(|| package.split(':').next().unwrap_or(package).to_owned())
    })
}

#[cfg(test)]
mod tests {
    use heaptide_fixtures::Scratch;

    use super::*;

    #[test]
    fn packages_are_found_by_either_path_of_a_file() {
        let lists = Scratch::new("packages");
        lists.write("libc6:amd64.list", b"/.\n/lib/x/libc.so.6\n");
        lists.write("tool.list", b"/usr/bin/tool\n");
        lists.write("tool.md5sums", b"/usr/bin/other\n");
        let of = |file| package_in(&lists, file);
        assert_eq!(of("/usr/lib/x/libc.so.6").as_deref(), Some("libc6"));
        assert_eq!(of("/bin/tool").as_deref(), Some("tool"));
        assert_eq!(of("/usr/bin/other"), None);
    }
}
