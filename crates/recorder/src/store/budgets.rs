//! The limits of all tables of the recorder that can grow while a program runs, in one place: how
//! many entries each has at most, and what happens beyond. docs/recorder.md has the same table; a
//! test compares them.

#[cfg(test)]
use heaptide_format::Loss;

/// A table that can grow.
#[cfg(test)]
struct Budget {
    name: &'static str,
    entries: usize,
    /// Bytes of an entry, in memory and in the profile, with a text of usual length.
    entry_bytes: usize,
    beyond: &'static str,
    /// How that is counted; none if nothing that belongs to the program's numbers is missing.
    loss: Option<Loss>,
}

macro_rules! budgets {
    ($(
        $(#[doc = $text:literal])*
        $limit:ident = $entries:expr, $bytes:expr, $name:literal, $beyond:literal, $loss:expr;
    )*) => {
        $(
            $(#[doc = $text])*
            pub const $limit: usize = $entries;
        )*

        #[cfg(test)]
        const BUDGETS: &[Budget] = &[$(Budget {
            name: $name,
            entries: $limit,
            entry_bytes: $bytes,
            beyond: $beyond,
            loss: $loss,
        }),*];
    };
}

budgets! {
    /// Lanes of a process. More threads at once than Linux runs by default.
    LANES_MAX = 1 << 16, 1 << 16, "threads at once",
        "threads without a slot are not recorded", Some(Loss::NoLane);
    /// Lanes from which on threads with new names share one name. For programs that give each
    /// thread a name of its own.
    NAMED_MAX = 2048, 1 << 16, "names of threads",
        "threads with new names share `[other threads]`", None;
    /// Ids of threads that used a lane before others.
    FORMER_MAX = heaptide_format::FORMER_THREADS_MAX as usize, 8, "ids of former threads",
        "later ids are not stored", None;
    /// Modules of a process image. Their index has 16 bits; no program comes near this, since a
    /// library that is loaded again at its former address has its former entry.
    MODULES_MAX = 8192, 400, "modules, by address",
        "frames have addresses without names", Some(Loss::NoModule);
    /// Bytes of unwind tables that the loader does not map.
    FILE_TABLES_MAX = 64 << 20, 1, "bytes of unwind tables that are read from files",
        "code without other tables is followed by frame pointers", Some(Loss::NoRule);
    /// Slots for unwind rules.
    RULES_MAX = 1 << 22, 16, "unwind rules",
        "further rules are evaluated for each stack", None;
    /// Names of scopes, labels and pools.
    NAMES_MAX = 1 << 18, 160, "names of scopes and labels",
        "scopes and labels with new names are not entered", Some(Loss::NoScope);
    /// Scope paths of all lanes, each with a site.
    SCOPES_MAX = 1 << 18, 400, "scope paths, by thread",
        "memory of new paths belongs to the enclosing scope", Some(Loss::NoScope);
    /// Shapes of labelled memory.
    SHAPES_MAX = heaptide_format::SHAPES_MAX as usize, 96, "shapes of labelled memory",
        "labels have no dimensions", Some(Loss::NoRegion);
    /// Pieces of 4096 regions, which are labelled memory, chunks of pools and their blocks.
    REGION_PIECES_MAX = 4096, 4096 * 152, "labelled regions that are live, in pieces of 4096",
        "labels are not applied", Some(Loss::NoRegion);
    /// Marks of the program and of commands, without those of snapshots.
    MARKS_MAX = 1 << 16, 64, "marks",
        "later marks are not stored", Some(Loss::NoSample);
    /// Windows.
    WINDOWS_MAX = 1 << 17, 224, "windows",
        "later windows are not opened", Some(Loss::NoSample);
    /// Snapshots of an image.
    SNAPSHOTS_MAX = 1_000_000, 64, "snapshots",
        "later snapshots are not taken", Some(Loss::NoSnapshot);
    /// Names of mapped files, each with a site for each stack that maps it.
    MAPPED_FILES_MAX = 1 << 13, 512, "names of mapped files",
        "mappings of further files have the name `[other files]`", None;
    /// Changes of the bytes of a kind of memory outside the heap, of which there are two.
    CHANGES_MAX = 1 << 15, 64, "changes of mapped bytes, and of device memory",
        "the peaks of heap and mappings together, and of each device, are bounds", None;
    /// Lines of Python functions.
    PYTHON_LINES_MAX = 1 << 19, 112, "lines of Python functions",
        "frames of new lines are `[other Python lines]`", None;
    /// Slots for code objects of Python, of which half are used.
    PYTHON_CODES_MAX = 1 << 24, 8, "code objects of Python that are live",
        "names are read again for each stack", None;
    /// Accounts of resident memory, each with its ranges.
    ACCOUNTS_MAX = 64, 1 << 16, "accounts of resident memory",
        "the account that is closest to its neighbours in time is replaced", None;
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::format;
    use std::string::String;
    use std::vec::Vec;

    /// Returns bytes as a number of KiB or MiB.
    fn size(bytes: usize) -> String {
        if bytes < 1 << 20 {
            format!("{} KiB", bytes.div_ceil(1 << 10))
        } else {
            format!("{} MiB", bytes.div_ceil(1 << 20))
        }
    }

    #[test]
    fn the_document_has_every_budget() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/recorder.md");
        let document = std::fs::read_to_string(path).expect("the document");
        let section = document.split("\n## Limits of its tables\n").nth(1).expect("a section");
        let section = section.split("\n## ").next().expect("its text");
        let rows = section.lines().filter(|line| line.starts_with("| "));
        let found: Vec<&str> = rows.skip(1).collect();
        let row = |of: &Budget| {
            let counted = of.loss.map_or("", |loss| heaptide_format::LOSS_NAMES[loss as usize].0);
            let all = size(of.entries * of.entry_bytes);
            let Budget { name, entries, beyond, .. } = of;
            format!("| {name} | {entries} | {all} | {beyond} | {counted} |").replace("|  |", "| |")
        };
        let expected: Vec<String> = BUDGETS.iter().map(row).collect();
        assert_eq!(found, expected, "docs/recorder.md, Limits of its tables");
    }
}
