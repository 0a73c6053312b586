//! Modules whose debug information was made to harm a reader: it is read in a process of its own,
//! so that a command loses at most lines and inlined functions, and reports that.

use std::fs;
use std::path::Path;

use crate::harness::{Outcome, heaptide, recorded, run, scratch};
use crate::sealing::sh;

const PROGRAM: &str = "#include <stdlib.h>\n\
    __attribute__((noinline)) void *take(int n) { return malloc(n); }\n\
    int main(void) { void *volatile p = take(1000); (void)p; return 0; }\n";

/// A unit that covers every address, with a function `wrong`: the reader believes it unless reading
/// it fails. The parts in braces are those of a case.
const UNIT: &str = r#"
.section .debug_abbrev,"",@progbits
abbreviations:
.uleb128 1, 0x11
.byte 1
.uleb128 0x13, 0x0b, 0x10, 0x17, 0x11, 0x01, 0x12, 0x07, 0, 0
.uleb128 2, 0x2e
.byte 1
.uleb128 0x03, 0x08, 0x11, 0x01, 0x12, 0x07, 0, 0
.uleb128 3, 0x1d
.byte 1
.uleb128 0x11, 0x01, 0x12, 0x07, 0, 0
.byte 0
.section .debug_info,"",@progbits
.long info_end-info_start
info_start:
.value 4
.long abbreviations
.byte 8
.uleb128 1
.byte 0x21
.long lines
.quad 0, 0x7fffffff
.uleb128 2
.asciz "wrong"
.quad 0, 0x7fffffff
{inlined}
.byte 0, 0
info_end:
.section .debug_line,"",@progbits
lines:
.long line_end-line_start
line_start:
.value 4
.long head_end-head_start
head_start:
.byte 1, 1, 1, -5, 14, 13, 0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1, 0
.asciz "a.c"
.byte 0, 0, 0, 0
head_end:
.byte 0, 9, 2
.quad 0
{rows}
.byte 2
.uleb128 0x7fffffff
.byte 0, 1, 1
line_end:
.section .note.GNU-stack,"",@progbits
"#;

/// The beginning of an inlined function, and its end.
const INLINED: [&str; 2] = [".uleb128 3\n.quad 0, 0x7fffffff\n", ".byte 0\n"];

/// Records a program with this debug information, and returns the result of recording.
fn recorded_with(place: &Path, inlined: &str, rows: &str) -> Outcome {
    let unit = UNIT.replace("{inlined}", inlined).replace("{rows}", rows);
    fs::write(place.join("unit.s"), unit).expect("a source");
    fs::write(place.join("app.c"), PROGRAM).expect("a source");
    sh(place, "cc -O1 -o app app.c unit.s");
    let mut command = recorded(&place.join("a.heaptide"), &[]);
    run(command.arg(place.join("app")), place)
}

fn ask(place: &Path, words: &[&str]) -> Outcome {
    run(heaptide().args(words).arg("a.heaptide").current_dir(place), place)
}

/// Checks that a function has the name of the symbol table, and that one line reports why.
fn check_named(place: &Path, case: &str, why: &str) {
    for words in [&["tree"][..], &["seal"]] {
        let outcome = ask(place, words);
        assert_eq!(outcome.status, 0, "{case}: {outcome:?}");
        assert!(!outcome.stderr.contains("panicked"), "{case}: {outcome:?}");
        if words == ["tree"] {
            let named = outcome.stdout.contains("take") && !outcome.stdout.contains("wrong");
            assert!(named, "{case}: {outcome:?}");
        } else {
            let lines: Vec<_> = outcome.stderr.lines().collect();
            assert!(lines.len() == 1 && lines[0].contains(why), "{case}: {lines:?}");
            assert!(lines[0].contains("functions have the names of its symbol table"), "{lines:?}");
        }
    }
}

#[test]
fn damaged_debug_information_costs_lines_only() {
    let place = scratch("hostile-plain");
    assert_eq!(recorded_with(&place, "", ".byte 1").status, 0);
    assert!(ask(&place, &["tree"]).stdout.contains("wrong"), "the unit is read");
    let nested = INLINED.map(|part| format!(".rept 100000\n{part}.endr\n")).concat();
    let cases = [
        ("a line of a file that is not in the table", "", ".byte 4\n.uleb128 77\n.byte 1"),
        ("functions inlined 100,000 deep", &nested, ".byte 1"),
    ];
    for (index, (case, inlined, rows)) in cases.into_iter().enumerate() {
        let place = scratch(&format!("hostile-{index}"));
        let recorded = recorded_with(&place, inlined, rows);
        assert_eq!((recorded.status, recorded.stderr.as_str()), (0, ""), "{case}");
        check_named(&place, case, "cannot read its debug information: it is damaged");
    }
}

/// Debug information that can be read, but has no names.
#[test]
fn functions_without_names_have_those_of_the_symbol_table() {
    let place = scratch("hostile-nameless");
    // An operation of 2^64 - 1 bytes ends the line table.
    let endless = ".byte 0\n.uleb128 0xffffffffffffffff\n.byte 4\n.byte 1";
    assert_eq!(recorded_with(&place, "", endless).status, 0);
    let outcome = ask(&place, &["tree"]);
    assert!(outcome.stdout.contains("take") && outcome.stdout.contains("main"), "{outcome:?}");
}

/// A section that claims to have 2^62 bytes when it is decompressed.
#[test]
fn compressed_sections_may_claim_any_size() {
    let place = scratch("hostile-size");
    assert_eq!(recorded_with(&place, "", ".byte 1").status, 0);
    // ELFCOMPRESS_ZLIB, size, alignment; in the program, whose build-id stays the same.
    let bomb = [1u64, 1 << 62, 1, 0].map(u64::to_le_bytes).concat();
    fs::write(place.join("bomb"), &bomb).expect("a file");
    sh(&place, "objcopy --add-section .debug_str=bomb app");
    let mut bytes = fs::read(place.join("app")).expect("a program");
    let number = |bytes: &[u8], at: usize, size: usize| {
        bytes[at..at + size].iter().rev().fold(0, |sum, &byte| sum << 8 | usize::from(byte))
    };
    let headers = number(&bytes, 40, 8);
    let header = (0..number(&bytes, 60, 2)).map(|index| headers + 64 * index).find(|&header| {
        let (offset, size) = (number(&bytes, header + 24, 8), number(&bytes, header + 32, 8));
        bytes.get(offset..offset + size) == Some(&*bomb)
    });
    const COMPRESSED: u8 = 0x08; // the second byte of SHF_COMPRESSED
    bytes[header.expect("the section") + 9] |= COMPRESSED;
    fs::write(place.join("app"), bytes).expect("a program");
    fs::remove_file(place.join("a.heaptide/symbols.json")).expect("names");
    check_named(&place, "size", "cannot read its debug information: it is damaged");
}

#[test]
fn files_that_debug_information_refers_to_are_not_waited_for() {
    for (name, refer) in [
        ("hostile-package", "mkfifo app.dwp"),
        (
            "hostile-link",
            "touch pipe && objcopy --add-gnu-debuglink=pipe app && rm pipe && mkfifo pipe",
        ),
        (
            "hostile-supplement",
            "printf 'pipe\\00012345678901234567890' > alt && mkfifo pipe
             objcopy --add-section .gnu_debugaltlink=alt app",
        ),
    ] {
        let place = scratch(name);
        assert_eq!(recorded_with(&place, "", ".byte 1").status, 0);
        sh(&place, refer);
        fs::remove_file(place.join("a.heaptide/symbols.json")).expect("names");
        check_named(&place, name, ", which is not a regular file");
    }
}
