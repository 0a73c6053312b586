//! Compares `docs/format.md` with the source: offsets, numbers, and an example byte by byte.
//!
//! `HEAPTIDE_UPDATE=1 cargo test -p heaptide-analysis --test document` rewrites the example.

use std::fmt::Write;
use std::fs;
use std::mem::offset_of;

use heaptide_analysis::model::Measure;
use heaptide_analysis::recording::metadata::{Metadata, Status, StatusKind, VERSION};
use heaptide_analysis::symbols::{self, ModuleKey, Symbols};
use heaptide_fixtures::{ProfileBuilder, Scratch, site};
use heaptide_format as format;
use heaptide_format::{
    Account, AccountRange, ExtentHeader, FileHeader, FormerThread, Interception, Key, Lane,
    MappedChange, Mark, Module, Name, Node, PythonLine, Sample, SampledSite, Scope, Shape, Site,
    Span, StringHeader, Sums, TraceChunk, TraceCut, TraceHead, TraceStart, UnrecordedProgram,
    Window,
};
use heaptide_trace::{Block, Encoder, LONGEST, Record};
use zerocopy::FromZeros;

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/format.md");

fn document() -> String {
    fs::read_to_string(DOCUMENT).unwrap()
}

/// Returns the cells of the table rows between a heading and the next.
fn rows(document: &str, heading: &str) -> Vec<Vec<String>> {
    let (_, rest) = document.split_once(&format!("\n## {heading}\n")).expect(heading);
    let section = rest.split("\n## ").next().unwrap();
    let cells = |line: &str| {
        let line = line.trim_matches('|').replace('`', "");
        line.split('|').map(|cell| cell.trim().to_owned()).collect()
    };
    section.lines().filter(|line| line.starts_with('|')).map(cells).collect()
}

/// The page must list every metric, in the order of the columns.
#[test]
fn the_page_of_recordings_lists_every_metric() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/recording.md");
    let page = fs::read_to_string(path).unwrap();
    let rows = rows(&page, "Metrics");
    let listed: Vec<&str> = rows.iter().skip(2).flat_map(|row| row[0].split(", ")).collect();
    let expected: Vec<&str> = Measure::all().iter().map(|measure| measure.name()).collect();
    assert_eq!(listed, expected, "docs/recording.md, Metrics");
}

/// Compares the table of a record with the record: all fields with offset and size.
fn check_record(name: &str, size: usize, fields: &[(&str, usize, usize)]) {
    let mut expected = Vec::new();
    let mut end = 0;
    for &(field, offset, bytes) in fields {
        assert_eq!(offset, end, "{name}: the test leaves out what is before `{field}`");
        expected.push((offset.to_string(), bytes.to_string(), field.to_owned()));
        end = offset + bytes;
    }
    assert_eq!(end, size, "{name}: the test leaves out the last fields");
    expected.push((size.to_string(), String::new(), String::new()));
    let rows = rows(&document(), name);
    let found: Vec<_> = rows
        .into_iter()
        .skip_while(|row| row[0] != "0")
        .map_while(|row| match row.as_slice() {
            [offset, bytes, field, _, _] => Some((offset.clone(), bytes.clone(), field.clone())),
            _ => None,
        })
        .collect();
    assert_eq!(found, expected, "docs/format.md, {name}: offset, bytes, field");
}

macro_rules! record {
    ($record:ident: $($field:ident)*) => {{
        let zeros = $record::new_zeroed();
        let fields = [$((
            stringify!($field),
            offset_of!($record, $field),
            size_of_val(&zeros.$field),
        )),*];
        check_record(stringify!($record), size_of::<$record>(), &fields);
    }};
}

#[test]
fn offsets_of_heads() {
    record!(FileHeader:
        magic version mode pid ppid image forked start_realtime_ns start_monotonic_ns program
        command host max_depth file_end peak_bytes peak_time_ns peak_bound_bytes epoch end_kind
        end_code lanes_at_once end_time_ns last_seen_ns published_live unmatched_frees
        frames_stepped rules_evaluated losses earlier_peak_bytes timeline_lock resets
        control command_off command_request command_unused threshold_bytes request answered request_kind request_length request_time_ns request_value request_text mismatch_end mismatch_open reset_time_ns
        rank ranks job trace trace_limit trace_elsewhere trace_bytes trace_stopped_ns
        process_start_ticks pid_namespace unrecorded image_flags unrecorded_children unrecorded_programs
        mapped_bytes mapped_peak_bytes mapped_peak_time_ns mapped_epoch accounts_off interceptions
        python python_minor labellings profile_limit profile_full_ns snapshots_removed sample_mean_bytes
        search search_thread search_beats device_epoch device_bytes device_peak_bytes device_peak_time_ns
        drivers drivers_unused
    );
    record!(UnrecordedProgram: count state length path);
    record!(Interception: address state length names);
    record!(ExtentHeader:
        magic kind reserved lane sequence length committed pad
    );
    record!(StringHeader: length reserved);
}

#[test]
fn offsets_of_records() {
    record!(Module:
        start end bias path index unloaded build_id_length build_id
    );
    record!(Node:
        key parent first next last site flags
    );
    record!(Site:
        key epoch allocations requested_bytes usable_bytes frees freed_bytes largest_bytes
        temporary peak_blocks peak_bytes reallocations failed remote_epoch remote_frees
        remote_freed_bytes remote_peak_frees remote_peak_freed_bytes
    );
    record!(SampledSite:
        key epoch blocks requested_bytes usable_bytes freed_blocks freed_bytes largest_bytes
        temporary peak_blocks peak_bytes reallocations failed reserved remote_frees sampled
        sampled_freed sampled_at_peak
    );
    record!(Lane:
        name index threads tid base_site allocations frees_here freed_here_bytes usable_bytes
        requested_bytes reallocations failed largest_bytes temporary requested_classes
        usable_classes freed_classes reserved
    );
    record!(PythonLine: function file line reserved);
    record!(FormerThread: lane tid);
    record!(Shape: label dimension_count element_bytes dimensions labelled reserved);
    record!(Name: attribute kind value hash reserved);
    record!(Scope:
        parent name entered frees_here freed_here_bytes site first next last left lane highest
    );
    record!(Key:
        stack scope label lane flags site size moved_blocks moved_bytes moved_requested_bytes
        lent_bytes
    );
    record!(Sums:
        allocations frees reallocations failed requested_bytes usable_bytes freed_bytes
    );
    record!(Window:
        name open begin_time_ns end_time_ns begin end peak_bytes peak_bound_bytes reserved
    );
    record!(Mark: time_ns name kind lane number live_bytes);
    record!(Sample:
        time_ns live_bytes peak_bytes allocations frees usable_bytes resident_bytes virtual_bytes
    );
    record!(Span: begin_ns settled_ns fast_lowest fast_highest lowest highest);
    record!(MappedChange: time_ns heap_peak_bytes bytes site mappings);
    record!(Account:
        number time_ns cause missing ranges ranges_left_out resident_bytes left_out_bytes swap_bytes
        absent_bytes statm_bytes page_table_bytes most_resident_bytes live_bytes peak_bytes
        mapped_bytes requested_bytes usable_bytes arena_bytes arena_used_bytes arena_free_bytes mapped_block_bytes source reserved cost_ns number_again
    );
    record!(AccountRange:
        start length resident_kib private_dirty_kib swap_kib flags name lane site account
    );
}

#[test]
fn offsets_of_traces() {
    record!(TraceStart:
        ticks time_ns last_ticks last_time_ns scope tid node state number reserved
    );
    record!(TraceHead: magic version reserved);
    record!(TraceCut: ticks time_ns chunks bytes);
    record!(TraceChunk:
        magic lane number raw_length packed_length reserved first_ticks last_ticks
    );
}

/// Encoding the records of the example must give its bytes.
#[test]
fn packed_events() {
    let rows = rows(&document(), "Events");
    let examples: Vec<_> = rows.iter().skip_while(|row| !row[0].starts_with("example")).collect();
    let mut encoder = Encoder::new();
    encoder.begin(1000);
    let block =
        |address| Block { address, site: 130, requested: 30, usable: 40, ..Block::default() };
    let records = [
        (1000, Record::Scope(64)),
        (1002, Record::Allocated(block(0x5010))),
        (1005, Record::Allocated(block(0x5040))),
        (1300, Record::Freed { address: 0x5010 }),
        (1301, Record::Failed { site: 130 }),
    ];
    assert_eq!(examples.len(), 2 + records.len());
    for (row, (ticks, record)) in examples[2..].iter().zip(&records) {
        let mut room = [0; LONGEST];
        let length = encoder.record(&mut room, *ticks, record);
        let bytes: Vec<_> = room[..length].iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(row[1], bytes.join(" "), "{}", row[0]);
    }
}

#[test]
fn numbers() {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let expected = [
        ("MAGIC", text(&format::MAGIC)),
        ("VERSION", format::VERSION.to_string()),
        ("PAGE", format::PAGE.to_string()),
        ("EXTENT_MAGIC", text(&format::EXTENT_MAGIC.to_le_bytes())),
        ("EXTENT_HEADER", format::EXTENT_HEADER.to_string()),
        ("NODE_GRANULE", format::NODE_GRANULE.to_string()),
        ("SITE_GRANULE", format::SITE_GRANULE.to_string()),
        ("KEY_GRANULE", format::KEY_GRANULE.to_string()),
        ("NAME_GRANULE", format::NAME_GRANULE.to_string()),
        ("KEY_BIT", format::KEY_BIT.to_string()),
        ("KEY_LABELLED", format::KEY_LABELLED.to_string()),
        ("STRING_GRANULE", format::STRING_GRANULE.to_string()),
        ("STRING_MAX", format::STRING_MAX.to_string()),
        ("SIZE_CLASSES", format::SIZE_CLASSES.to_string()),
        ("ADDRESS_BITS", format::ADDRESS_BITS.to_string()),
        ("NODE_EXACT_PC", format::NODE_EXACT_PC.to_string()),
        ("NODE_PYTHON", format::NODE_PYTHON.to_string()),
        ("NODE_PYTHON_STACK", format::NODE_PYTHON_STACK.to_string()),
        ("NODE_INTERPRETER", format::NODE_INTERPRETER.to_string()),
        ("PYTHON_FRAME", format::PYTHON_FRAME.to_string()),
        ("PYTHON_ENTRY", format::PYTHON_ENTRY.to_string()),
        ("PYTHON_ROOT", format::PYTHON_ROOT.to_string()),
        ("PYTHON_STACK", format::PYTHON_STACK.to_string()),
        ("PYTHON_LINE_GRANULE", format::PYTHON_LINE_GRANULE.to_string()),
        ("NODE_MADE_SHIFT", format::NODE_MADE_SHIFT.to_string()),
        ("NODE_MADE_BITS", format::NODE_MADE_BITS.to_string()),
        ("FORMER_THREADS_MAX", format::FORMER_THREADS_MAX.to_string()),
        ("DIMENSIONS", format::DIMENSIONS.to_string()),
        ("SHAPES_MAX", format::SHAPES_MAX.to_string()),
        ("KEY_OUTSIDE", format::KEY_OUTSIDE.to_string()),
        ("KEY_POOL_BLOCK", format::KEY_POOL_BLOCK.to_string()),
        ("KEY_POOL_CHUNK", format::KEY_POOL_CHUNK.to_string()),
        ("KEY_SIZED", format::KEY_SIZED.to_string()),
        ("KEY_MAPPING", format::KEY_MAPPING.to_string()),
        ("KEY_DEVICE", format::KEY_DEVICE.to_string()),
        ("KEY_CALL", format::KEY_CALL.to_string()),
        ("KEY_CALL_SHIFT", format::KEY_CALL_SHIFT.to_string()),
        ("SAMPLE_UNIT", format::SAMPLE_UNIT.to_string()),
        ("KEY_CLASS", format::KEY_CLASS.to_string()),
        ("KEY_CLASS_SHIFT", format::KEY_CLASS_SHIFT.to_string()),
        ("CONTROL_OFF", format::CONTROL_OFF.to_string()),
        ("CONTROL_MONITORS", format::CONTROL_MONITORS.to_string()),
        ("CONTROL_THRESHOLD", format::CONTROL_THRESHOLD.to_string()),
        ("CONTROL_FEWER", format::CONTROL_FEWER.to_string()),
        ("CONTROL_BY_SIZE", format::CONTROL_BY_SIZE.to_string()),
        ("CONTROL_TIMED", format::CONTROL_TIMED.to_string()),
        ("CONTROL_BY_CALL", format::CONTROL_BY_CALL.to_string()),
        ("CONTROL_PAUSE", format::CONTROL_PAUSE.to_string()),
        ("COMMAND_OFF", format::COMMAND_OFF.to_string()),
        ("COMMAND_REQUEST", format::COMMAND_REQUEST.to_string()),
        ("IMAGE_OWN_MALLOC", format::IMAGE_OWN_MALLOC.to_string()),
        ("IMAGE_INTERCEPTED", format::IMAGE_INTERCEPTED.to_string()),
        ("IMAGE_REASON_SHIFT", format::IMAGE_REASON_SHIFT.to_string()),
        ("IMAGE_FAMILY", format::IMAGE_FAMILY.to_string()),
        ("IMAGE_FAMILY_LEFT", format::IMAGE_FAMILY_LEFT.to_string()),
        ("IMAGE_FAMILY_REASON_SHIFT", format::IMAGE_FAMILY_REASON_SHIFT.to_string()),
        ("IMAGE_ATTACHED", format::IMAGE_ATTACHED.to_string()),
        ("IMAGE_IMPORTS_ONLY", format::IMAGE_IMPORTS_ONLY.to_string()),
        ("IMAGE_FAMILY_INLINED", format::IMAGE_FAMILY_INLINED.to_string()),
        ("IMAGE_FAMILY_UNCERTAIN", format::IMAGE_FAMILY_UNCERTAIN.to_string()),
        ("IMAGE_PYTHON_SHIFT", format::IMAGE_PYTHON_SHIFT.to_string()),
        ("INTERCEPTED", format::INTERCEPTED.to_string()),
        ("PEAK_BATCH", format::PEAK_BATCH.to_string()),
        ("REQUEST_TEXT", format::REQUEST_TEXT.to_string()),
        ("TRACE_ON", format::TRACE_ON.to_string()),
        ("TRACE_FREE_STACKS", format::TRACE_FREE_STACKS.to_string()),
        ("TRACE_SCOPES", format::TRACE_SCOPES.to_string()),
        ("TRACE_ENDS", format::TRACE_ENDS.to_string()),
        ("TRACE_WRITING", format::TRACE_WRITING.to_string()),
        ("TRACE_FULL", format::TRACE_FULL.to_string()),
        ("TRACE_MOVED", format::TRACE_MOVED.to_string()),
        ("TRACE_NOBODY", format::TRACE_NOBODY.to_string()),
        ("TRACE_EXTENT_MAX", format::TRACE_EXTENT_MAX.to_string()),
        ("TRACE_MAGIC", text(&format::TRACE_MAGIC)),
        ("TRACE_VERSION", format::TRACE_VERSION.to_string()),
        ("TRACE_CHUNK_MAGIC", text(&format::TRACE_CHUNK_MAGIC.to_le_bytes())),
        ("ACCOUNT_RANGES", format::ACCOUNT_RANGES.to_string()),
        ("ACCOUNT_SAMPLE", format::ACCOUNT_SAMPLE.to_string()),
        ("ACCOUNT_PEAK", format::ACCOUNT_PEAK.to_string()),
        ("ACCOUNT_END", format::ACCOUNT_END.to_string()),
        ("ACCOUNT_HELD_PART", format::ACCOUNT_HELD_PART.to_string()),
        ("ACCOUNT_CONFINED", format::ACCOUNT_CONFINED.to_string()),
        ("ACCOUNT_NO_PROC", format::ACCOUNT_NO_PROC.to_string()),
        ("HEAP_GLIBC", format::HEAP_GLIBC.to_string()),
        ("HEAP_JEMALLOC", format::HEAP_JEMALLOC.to_string()),
        ("HEAP_MIMALLOC", format::HEAP_MIMALLOC.to_string()),
        ("RANGE_READ", format::RANGE_READ.to_string()),
        ("RANGE_WRITE", format::RANGE_WRITE.to_string()),
        ("RANGE_EXECUTE", format::RANGE_EXECUTE.to_string()),
        ("RANGE_SHARED", format::RANGE_SHARED.to_string()),
        ("RANGE_RECORDER", format::RANGE_RECORDER.to_string()),
        ("RANGE_STACK", format::RANGE_STACK.to_string()),
        ("RANGE_GUARDED", format::RANGE_GUARDED.to_string()),
        ("RANGE_BLOCKS", format::RANGE_BLOCKS.to_string()),
    ];
    let found = rows(&document(), "Numbers").split_off(2);
    let found: Vec<_> = found.iter().map(|row| (row[0].as_str(), row[1].clone())).collect();
    assert_eq!(found, expected);
}

#[test]
fn losses_and_kinds() {
    let rows_of = |heading, first: &str| {
        let rows = rows(&document(), heading).into_iter();
        let table = rows.skip_while(|row| row[0] != first).skip(2);
        // If a heading has several tables, the rows of the next begin with words, not with a
        // number.
        let table: Vec<_> = table.take_while(|row| row[0].starts_with(char::is_numeric)).collect();
        table
    };
    for (index, row) in rows_of("FileHeader", "index").iter().enumerate() {
        let (name, meaning) = format::LOSS_NAMES[index];
        assert_eq!(row.as_slice(), [index.to_string().as_str(), name, meaning]);
    }
    assert_eq!(rows_of("FileHeader", "index").len(), format::LOSS_NAMES.len());
    let reasons = rows_of("FileHeader", "reason");
    for (index, row) in reasons.iter().take_while(|row| row.len() == 3).enumerate() {
        let (name, meaning) = format::UNRECORDED_CHILD_NAMES[index];
        assert_eq!(row.as_slice(), [index.to_string().as_str(), name, meaning]);
    }
    assert_eq!(reasons.len(), format::UNRECORDED_CHILD_NAMES.len());
    let kinds = rows_of("ExtentHeader", "kind");
    for (row, number) in kinds.iter().zip(1..) {
        assert_eq!(row[0], number.to_string());
        let kind = format!("{:?}", format::Kind::from_number(number).unwrap()).to_lowercase();
        let record = row[1].to_lowercase();
        let stem = if kind == "timeline" { "sample" } else { kind.trim_end_matches('s') };
        assert!(record.contains(stem), "{kind}: {record}");
    }
    assert_eq!(format::Kind::from_number(kinds.len() as u16 + 1), None);
}

#[test]
fn json_files() {
    let document = document();
    let blocks: Vec<_> = document.split("```json\n").skip(1).collect();
    let scratch = Scratch::new("json");
    for (block, name) in blocks.iter().zip(["recording.json", "symbols.json"]) {
        scratch.write(name, block.split("```").next().unwrap().as_bytes());
    }
    let metadata = Metadata::read(&scratch).unwrap().unwrap();
    assert_eq!((metadata.version, metadata.root_pid, metadata.sealed), (VERSION, 12, true));
    assert_eq!(metadata.status, Some(Status { kind: StatusKind::Exited, code: 0 }));
    let symbols = Symbols::read(&scratch).unwrap().unwrap();
    let module = ModuleKey { path: "/bin/app".into(), build_id: vec![0xab, 0xab] };
    let names = symbols.module(&module).unwrap().get(4405).unwrap();
    let names: Vec<_> = names.map(symbols::Name::from).collect();
    let name =
        |function, line| symbols::Name { function: Some(function), file: Some("app.c"), line };
    assert_eq!(names, [name("main", Some(7)), name("helper", Some(3))]);
}

/// Returns the output of `hexdump -C`, where repeated lines are replaced by `*`.
fn hexdump(bytes: &[u8]) -> String {
    let mut dump = String::new();
    let mut last: Option<&[u8]> = None;
    let mut starred = false;
    for (index, line) in bytes.chunks(16).enumerate() {
        if last == Some(line) {
            dump.push_str(if starred { "" } else { "*\n" });
            starred = true;
            continue;
        }
        (last, starred) = (Some(line), false);
        write!(dump, "{:08x} ", index * 16).unwrap();
        for (column, byte) in line.iter().enumerate() {
            write!(dump, "{}{byte:02x}", if column == 8 { "  " } else { " " }).unwrap();
        }
        let shown = |&b: &u8| {
            if (b' '..=b'~').contains(&b) { char::from(b) } else { '.' }
        };
        writeln!(dump, "  |{}|", line.iter().map(shown).collect::<String>()).unwrap();
    }
    writeln!(dump, "{:08x}", bytes.len()).unwrap();
    dump
}

#[test]
fn the_example() {
    let mut p = ProfileBuilder::new(format::Mode::Stacks, 12, 0);
    p.header.program = p.string("/bin/env");
    let module = p.module("/bin/app", 0x40_0000, &[0xab; 20]);
    let node = p.node(0, module, 0x40_1136, 0);
    p.site(0, site(node, 3, 32));
    let example = format!("<!-- example -->\n```text\n{}```\n", hexdump(&p.finish()));
    let document = document();
    let (before, rest) = document.split_once("<!-- example -->\n").unwrap();
    let (_, after) = rest.split_once("\n```\n").unwrap();
    if std::env::var_os("HEAPTIDE_UPDATE").is_some() {
        fs::write(DOCUMENT, format!("{before}{example}{after}")).unwrap();
    }
    assert!(document.contains(&example), "docs/format.md: the example is not\n{example}");
}
