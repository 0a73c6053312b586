//! Names from files other than the module: separate debug files, another root, MiniDebugInfo.

use std::fs;
use std::path::Path;
use std::process::Command;

use heaptide_analysis::model::Recording;
use heaptide_analysis::recording::{Sealed, seal_with};
use heaptide_analysis::symbols::{Blazesym, Engine, Lookup, Name, Sources};
use heaptide_fixtures::Scratch;
use heaptide_fixtures::skips::skip;

mod compiled;
use compiled::{compile, has, identify, record, run, stacks};

const WHOLE: &str = "outer app.c:8 / inner app.c:3 inlined";

/// Writes a recording of a stripped program, whose debug information is in `app.full`, and returns
/// its build-id in hexadecimal digits.
fn stripped(scratch: &Scratch) -> String {
    let (app, id, addresses) = compile(scratch);
    run(scratch, "objcopy --only-keep-debug app app.full && strip app");
    record(scratch, &app, &id, addresses);
    id.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn seal_from(directory: &Path, sources: &Sources) -> Sealed {
    let lookup = Lookup { engine: &Blazesym, sources, again: true };
    seal_with(directory, &lookup, &mut |_, _| {}).unwrap()
}

fn stored(directory: &Path) -> Vec<String> {
    stacks(&Recording::open(directory).unwrap().processes[0])
}

#[test]
fn debug_files_are_found_by_build_id_and_by_name() {
    for (name, place, as_root) in [
        ("id", "syms/.build-id/ID.debug", false),
        ("flat", "syms/ID.debug", false),
        ("name", "syms/app.debug", false),
        ("root", "syms/usr/lib/debug/.build-id/ID.debug", true),
    ] {
        let scratch = Scratch::new(&format!("sources-{name}"));
        let id = stripped(&scratch);
        assert_eq!(stored(&scratch), ["? -:0"]);
        let place = place.replace("ID", &format!("{}/{}", &id[..2], &id[2..]));
        run(&scratch, &format!("mkdir -p $(dirname {place}) && cp app.full {place}"));
        let syms = scratch.join("syms");
        let sources = if as_root {
            Sources { sysroot: Some(syms), ..Sources::default() }
        } else {
            Sources { symbols: vec![syms], ..Sources::default() }
        };
        let sealed = seal_from(&scratch, &sources);
        assert_eq!((sealed.named, sealed.notes), (sealed.addresses, Vec::new()), "{name}");
        has(&stored(&scratch), WHOLE);
        // Known names stay even if nothing is found any more.
        run(&scratch, "rm -r syms app");
        let again = seal_from(&scratch, &Sources::default());
        assert_eq!((again.named, again.notes.len()), (sealed.named, 1));
        has(&stored(&scratch), WHOLE);
    }
}

#[test]
fn a_debug_file_of_another_build_is_reported_and_not_used() {
    let scratch = Scratch::new("sources-other");
    stripped(&scratch);
    run(&scratch, "mkdir syms && cc -g -O1 -Wl,--build-id=sha1 -o syms/app.debug app.c");
    let sources = Sources { symbols: vec![scratch.join("syms")], ..Sources::default() };
    let sealed = seal_from(&scratch, &sources);
    assert_eq!((sealed.named, sealed.notes.len()), (0, 1), "{:?}", sealed.notes);
    assert!(sealed.notes[0].contains("app.debug: its build id is "), "{}", sealed.notes[0]);
    assert_eq!(stored(&scratch), ["? -:0"]);
}

#[test]
fn a_debug_link_without_build_id_is_checked_by_its_checksum() {
    let scratch = Scratch::new("sources-checksum");
    let (app, _, addresses) = compile(&scratch);
    run(&scratch, "objcopy --remove-section=.note.gnu.build-id app");
    run(&scratch, "objcopy --only-keep-debug app app.full && strip app && mkdir .debug");
    run(&scratch, "objcopy --add-gnu-debuglink=app.full app && mv app.full .debug");
    run(&scratch, "touch -d '1970-01-01 00:00:00 UTC' app");
    record(&scratch, &app, &[], addresses);
    has(&stored(&scratch), WHOLE);
    run(&scratch, "printf x >> .debug/app.full");
    let process = &Recording::open(&scratch).unwrap().processes[0];
    assert_eq!(stacks(process), ["? -:0"]);
    let note = &process.completeness.notes[0];
    assert!(note.contains("app.full: its checksum is not that in the debug link"), "{note}");
}

#[test]
fn modules_are_found_below_another_root() {
    let scratch = Scratch::new("sources-sysroot");
    let (app, id, addresses) = compile(&scratch);
    record(&scratch, &app, &id, addresses);
    let root = scratch.join("root");
    let inside = root.join(app.parent().unwrap().strip_prefix("/").unwrap());
    fs::create_dir_all(&inside).unwrap();
    fs::rename(&app, inside.join("app")).unwrap();
    let gone = seal_from(&scratch, &Sources::default());
    assert!(gone.notes[0].contains("cannot read it"), "{:?}", gone.notes);
    assert_eq!((gone.named, gone.modules[0].named), (0, 0));
    let sealed = seal_from(&scratch, &Sources { sysroot: Some(root), ..Sources::default() });
    assert_eq!((sealed.named, sealed.notes), (sealed.addresses, Vec::new()));
    has(&stored(&scratch), WHOLE);
}

#[test]
fn functions_of_mini_debug_info_have_names() {
    let scratch = Scratch::new("sources-mini");
    let (app, id, addresses) = compile(&scratch);
    run(&scratch, "objcopy --strip-debug app mini && strip app && xz -k mini");
    run(&scratch, "objcopy --add-section .gnu_debugdata=mini.xz app");
    record(&scratch, &app, &id, addresses);
    assert_eq!(stored(&scratch), ["outer -:0"]);
    // A damaged table is ignored.
    run(&scratch, "head -c 90 mini.xz > cut.xz");
    run(&scratch, "objcopy --update-section .gnu_debugdata=cut.xz app");
    assert_eq!(stored(&scratch), ["? -:0"]);
}

/// Compiles the program with other flags, and records every address of `outer`.
fn compiled_with(scratch: &Scratch, flags: &str) {
    let (_, _, _) = compile(scratch);
    run(scratch, &format!("cc -g -O2 {flags} -Wl,--build-id=sha1 -o app app.c"));
    let (app, id, addresses) = identify(scratch);
    record(scratch, &app, &id, addresses);
}

/// `-gsplit-dwarf`: the functions are in `.dwo` files beside the objects, and the lines in the
/// program.
#[test]
fn functions_in_dwo_files_are_found() {
    for flags in ["-gsplit-dwarf -gdwarf-5", "-gsplit-dwarf -gdwarf-4"] {
        let scratch = Scratch::new("sources-split");
        compiled_with(&scratch, flags);
        has(&stored(&scratch), WHOLE);
        let note = &Recording::open(&scratch).unwrap().processes[0].completeness.notes;
        assert!(note.is_empty(), "{note:?}");
        // Another directory has the program and its `.dwo` file.
        run(&scratch, "mkdir moved && mv app *.dwo moved && sed -i s/x/x/ app.c");
        let sources = Sources { symbols: vec![scratch.join("moved")], ..Sources::default() };
        seal_from(&scratch, &sources);
        has(&stored(&scratch), WHOLE);
    }
}

/// The line at an address can be that of an inlined function, so it is not shown with the outer
/// one.
#[test]
fn without_dwo_files_no_function_has_the_line_of_another() {
    for flags in ["-gsplit-dwarf -gdwarf-5", "-gsplit-dwarf -gdwarf-4"] {
        let scratch = Scratch::new("sources-split-missing");
        compiled_with(&scratch, flags);
        run(&scratch, "rm *.dwo");
        assert_eq!(stored(&scratch), ["outer -:0"], "{flags}");
        let notes = &Recording::open(&scratch).unwrap().processes[0].completeness.notes;
        assert_eq!(notes.len(), 1, "{notes:?}");
        let expected =
            "app: inlined functions and lines are missing: their debug information is in";
        assert!(notes[0].contains(expected) && notes[0].contains(".dwo, expected"), "{notes:?}");
    }
}

/// A `.dwo` file of another build is not used.
#[test]
fn dwo_files_of_another_build_are_missing() {
    let scratch = Scratch::new("sources-split-other");
    compiled_with(&scratch, "-gsplit-dwarf");
    run(&scratch, "sed -i 's/p.0. = 1/p[0] = 3; p[1] = 9/' app.c && mkdir other && cp app other");
    run(&scratch, "cc -g -O2 -gsplit-dwarf -Wl,--build-id=sha1 -o app app.c && mv other/app .");
    assert_eq!(stored(&scratch), ["outer -:0"]);
}

/// `-gz=zlib-gnu`: sections `.zdebug_info` and so on, as older compilers write them.
#[test]
fn sections_compressed_in_the_old_format_are_read() {
    let scratch = Scratch::new("sources-zlib-gnu");
    compiled_with(&scratch, "-gz=zlib-gnu");
    assert!(run(&scratch, "readelf -SW app").contains(".zdebug_info"));
    has(&stored(&scratch), WHOLE);
    let whole = stored(&scratch);
    let plain = Scratch::new("sources-zlib-gnu-plain");
    compiled_with(&plain, "-gz=none");
    assert_eq!(whole, stored(&plain));
}

const COMMON: &str = "#include <map>\n#include <string>\n#include <vector>\n#include <cstdlib>\n\
    struct Shared { std::map<std::string, std::vector<int>> names; int count; };\n\
    static void *volatile sink;\n\
    static inline __attribute__((always_inline)) void *inlined(int n) {\n\
        void *block = malloc(n); sink = block; return block; }\n\
    namespace deep { template <class T> struct Box { T value;\n\
        __attribute__((noinline)) void fill(int n) { sink = this; sink = inlined(n); } }; }\n";

/// Returns the functions at each address of `deep::Box<Shared>::fill` of a library.
fn names_in_fill(library: &Path) -> Vec<String> {
    names_in("3BoxI6Shared", library)
}

/// Returns the functions at each address of the function of a library whose symbol contains a text.
fn names_in(symbol: &str, library: &Path) -> Vec<String> {
    let symbols = Command::new("nm").args(["-S", "--defined-only"]).arg(library).output().unwrap();
    let symbols = String::from_utf8(symbols.stdout).unwrap();
    let line = symbols.lines().find(|line| line.contains(symbol)).expect("the function");
    let number = |field| u64::from_str_radix(line.split(' ').nth(field).unwrap(), 16).unwrap();
    let addresses: Vec<u64> = (number(0)..number(0) + number(1)).collect();
    let mut found = Vec::new();
    let mut note = |_: u64, names: &[Name<'_>]| {
        let name = |name: &Name<'_>| format!("{:?} {:?} {:?}", name.function, name.file, name.line);
        found.push(names.iter().map(name).collect::<Vec<_>>().join(" / "));
    };
    Blazesym.look_up(library, &addresses, &mut note).unwrap();
    found
}

/// `dwz -m` moves common parts of two libraries to a third file, as in packages of debug files.
#[test]
fn names_in_supplementary_files_are_found() {
    if Command::new("dwz").arg("--version").output().is_err() {
        return skip("dwz");
    }
    let scratch = Scratch::new("sources-dwz");
    fs::write(scratch.join("common.h"), COMMON).unwrap();
    for name in ["one", "two"] {
        let source = format!(
            "#include \"common.h\"\n\
             void {name}(int n) {{ deep::Box<Shared> box; box.fill(n); free(sink); }}\n"
        );
        fs::write(scratch.join(format!("{name}.cpp")), source).unwrap();
        let build = format!("g++ -g -O2 -fPIC -shared -o lib{name}.so {name}.cpp");
        run(&scratch, &build);
    }
    let library = scratch.join("libone.so");
    let before = names_in_fill(&library);
    assert!(before.iter().any(|names| names.contains("Some(\"inlined(int)\")")), "{before:?}");
    run(&scratch, "dwz -m common.debug -M common.debug libone.so libtwo.so");
    let after = names_in_fill(&library);
    let differs = after.iter().zip(&before).find(|(after, before)| after != before);
    assert_eq!((differs, after.len()), (None, before.len()));
    run(&scratch, "rm common.debug && g++ -shared -Wl,--build-id -o common.debug -x c++ /dev/null");
    let without = names_in_fill(&library);
    assert!(without.iter().all(|names| names.contains("fill")), "the symbol table is left");
}

const COMMON_C: &str = "static void *volatile sink;\n\
    struct list { struct list *next; int length; char text[40]; double values[8]; };\n\
    static inline __attribute__((always_inline)) void *inner(struct list *l) {\n\
        sink = l; return __builtin_malloc(l->length); }\n\
    static inline __attribute__((always_inline)) void *middle(struct list *l) {\n\
        l->length++; return inner(l); }\n";

/// Names of inlined functions of C, too, are in the third file.
#[test]
fn names_of_c_in_supplementary_files_are_found() {
    if Command::new("dwz").arg("--version").output().is_err() {
        return skip("dwz");
    }
    let scratch = Scratch::new("sources-dwz-c");
    fs::write(scratch.join("common.h"), COMMON_C).unwrap();
    for name in ["one", "two"] {
        let source = format!(
            "#include \"common.h\"\n\
             void *{name}(struct list *l) {{ sink = l; return middle(l); }}\n"
        );
        fs::write(scratch.join(format!("{name}.c")), source).unwrap();
        run(&scratch, &format!("cc -g -O2 -fPIC -shared -o lib{name}.so {name}.c"));
    }
    let library = scratch.join("libone.so");
    let before = names_in(" one", &library);
    let innermost = |names: &&String| names.contains("\"middle\"") && names.contains("\"inner\"");
    assert!(before.iter().any(|names| innermost(&names)), "{before:?}");
    run(&scratch, "dwz -m common.debug libone.so libtwo.so");
    assert!(run(&scratch, "readelf -SW libone.so").contains(".gnu_debugaltlink"));
    assert_eq!(names_in(" one", &library), before);
    // Without it, the function around them has the line of the call.
    run(&scratch, "rm common.debug");
    let without = names_in(" one", &library);
    let is_right = |names: &String| {
        names.starts_with("Some(\"one\")") && names.contains("one.c") && !names.contains("None")
    };
    assert!(without.iter().all(is_right), "{without:?}");
}

/// Up to DWARF 4, GCC ends the list of ranges of an inlined function too early if an empty range is
/// at the first address of the unit. The code does not depend on the version.
#[test]
fn inlined_functions_at_the_start_of_a_unit_are_found() {
    let source = format!(
        "{COMMON_C}\
         static inline void *second(struct list *l) {{ return middle(l); }}\n\
         __attribute__((noinline)) void *start(struct list *l) {{\n\
             sink = second(l);\n\
             return sink; }}\n"
    );
    let scratch = Scratch::new("sources-early-end");
    fs::write(scratch.join("start.c"), source).unwrap();
    let names = |flags: &str| {
        run(
            &scratch,
            &format!("gcc -O2 -fPIC {flags} -c start.c && gcc -shared -o lib.so start.o"),
        );
        names_in(" start", &scratch.join("lib.so"))
    };
    let expected = names("-gdwarf-5");
    let is_whole = |names: &&String| {
        ["start", "second", "middle", "inner"].iter().all(|name| names.contains(name))
    };
    assert!(expected.iter().any(|names| is_whole(&names)), "{expected:?}");
    for flags in ["-gdwarf-4", "-gdwarf-3", "-gdwarf-2", "-gdwarf-4 -gsplit-dwarf"] {
        assert_eq!(names(flags), expected, "{flags}");
    }
}
