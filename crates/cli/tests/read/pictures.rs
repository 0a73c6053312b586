//! Pictures and pages, rendered and checked: a browser, Graphviz and the schema of speedscope, for
//! programs with known numbers and real ones.

use crate::harness::{Guest, Outcome, check, heaptide, recorded, report, run, scratch};
use crate::programs::python;
use crate::recording::{list, number};
use crate::schema;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A recording and the directory of its pictures.
struct Recorded {
    place: PathBuf,
    recording: PathBuf,
}

impl Recorded {
    /// Records a program that `start` sets up.
    fn new(name: &str, start: impl FnOnce(&Path, &mut Command)) -> Recorded {
        let place = scratch(name);
        let recording = place.join("a.heaptide");
        let mut command = recorded(&recording, &[]);
        start(&place, &mut command);
        let outcome = run(command.current_dir(&place), &place);
        assert_eq!(outcome.status, 0, "{}", outcome.stderr);
        Recorded { place, recording }
    }

    /// Records the guest with known numbers.
    fn guest(name: &str) -> Recorded {
        let program = Guest::read("pictures.c").build("pictures", &[]);
        Recorded::new(name, |_, command| {
            command.arg(program);
        })
    }

    /// Records the compiler proper.
    fn compiler(name: &str) -> Recorded {
        Recorded::new(name, |place, command| {
            let source = "#include <map>\n#include <string>\n#include <vector>\nint main() {\n\
                          std::map<std::string, std::vector<int>> m; m[\"a\"].push_back(1);\n}\n";
            fs::write(place.join("a.cpp"), source).expect("a source");
            command.args(["g++", "-O1", "-c", "a.cpp", "-o", "a.o"]);
        })
    }

    /// Records an interpreter.
    fn python(name: &str) -> Recorded {
        let python = python().expect("python3, which `cargo xtask needs` lists");
        let script = "import json, re, threading\n\
                      d = {str(i): [i, {'x': [str(i)] * 3}] for i in range(3000)}\n\
                      assert json.loads(json.dumps(d)) == d\n\
                      t = threading.Thread(target=lambda: re.findall('1.', json.dumps(d)))\n\
                      t.start(); t.join()";
        Recorded::new(name, |_, command| {
            command.args([&python, "-c", script]).env("PYTHONMALLOC", "malloc");
        })
    }

    fn command(&self, words: &str) -> Outcome {
        let mut command = heaptide();
        run(command.args(words.split_whitespace()).arg(&self.recording), &self.place)
    }

    /// Returns the output of an export, which may print which process it chose.
    fn export(&self, words: &str) -> String {
        let Outcome { status, stdout, stderr } = self.command(&format!("export --format {words}"));
        assert_eq!(status, 0, "{words}: {stderr}");
        stdout
    }

    fn store(&self, words: &str, file: &str) -> PathBuf {
        let path = self.place.join(file);
        fs::write(&path, self.export(words)).expect("a file");
        path
    }

    /// Returns the report of the largest process, which is exported.
    fn largest(&self) -> Value {
        let report = report(&self.recording, &self.place);
        let by_peak = |p: &&Value| number(&p["totals"], "at_peak_bytes");
        list(&report, "processes").iter().max_by_key(by_peak).expect("a process").clone()
    }
}

/// Runs a tool that must succeed, and returns its output.
fn tool(program: &str, arguments: &[&str], place: &Path) -> String {
    let outcome = run(Command::new(program).args(arguments), place);
    assert_eq!(outcome.status, 0, "{program} {arguments:?}: {}", outcome.stderr);
    outcome.stdout
}

/// Runs a headless browser on a page; `words` is the state of the page in its address.
pub fn browse(file: &Path, place: &Path, words: &str, options: &[&str]) -> String {
    let profile = format!("--user-data-dir={}", place.join("browser").display());
    let address = format!("file://{}#{words}", file.display());
    let mut arguments = vec!["--headless", "--no-sandbox", "--disable-gpu", &profile];
    arguments.extend(["--disable-dev-shm-usage", "--hide-scrollbars", "--window-size=1280,2000"]);
    arguments.extend(["--force-device-scale-factor=1", "--virtual-time-budget=5000"]);
    arguments.extend(options);
    arguments.push(&address);
    tool("chromium", &arguments, place)
}

/// A picture with 24 bits per pixel.
struct Picture {
    width: usize,
    height: usize,
    pixels: Vec<[u8; 3]>,
}

impl Picture {
    fn open(path: &Path) -> Picture {
        let file = std::io::BufReader::new(fs::File::open(path).expect("a picture"));
        let mut decoder = png::Decoder::new(file);
        decoder.set_transformations(png::Transformations::normalize_to_color8());
        let mut reader = decoder.read_info().expect("a PNG");
        let mut bytes = vec![0; reader.output_buffer_size().expect("a size")];
        let info = reader.next_frame(&mut bytes).expect("its pixels");
        let samples = info.color_type.samples();
        assert!(samples >= 3, "a picture without colours");
        let pixels = bytes[..info.buffer_size()].chunks(samples).map(|p| [p[0], p[1], p[2]]);
        let (width, height) = (info.width as usize, info.height as usize);
        Picture { width, height, pixels: pixels.collect() }
    }

    fn row(&self, y: usize) -> &[[u8; 3]] {
        &self.pixels[y * self.width..][..self.width]
    }

    fn colours(&self) -> usize {
        let mut colours = self.pixels.clone();
        colours.sort_unstable();
        colours.dedup();
        colours.len()
    }

    /// Returns the widths of boxes next to each other in a row: runs of one vivid colour.
    fn boxes(&self, y: usize) -> Vec<usize> {
        let vivid = |[r, g, b]: [u8; 3]| r.max(g).max(b) - r.min(g).min(b) > 50;
        let runs = self.row(y).chunk_by(|a, b| a == b);
        runs.filter(|run| vivid(run[0]) && run.len() > 40).map(<[_]>::len).collect()
    }
}

/// The page of the guest contains the known numbers, and its picture shows them.
#[test]
fn a_page_of_known_numbers() {
    check("pictures.c");
    let of = Recorded::guest("pictures-page");
    let page = of.store("html", "a.html");
    let text = fs::read_to_string(&page).expect("a page in UTF-8");
    for outside in ["http://", "https://", "src=\"", "url(", "@import"] {
        let text = text.replace("http://www.w3.org/2000/svg", "");
        assert!(!text.contains(outside), "the page goes out by {outside}");
    }
    let dom = browse(&page, &of.place, "", &["--dump-dom"]);
    let totals = &of.largest()["totals"];
    let commas = |n: i128| {
        let digits = n.to_string();
        let groups: Vec<&str> = digits
            .as_bytes()
            .rchunks(3)
            .rev()
            .map(|group| std::str::from_utf8(group).expect("digits"))
            .collect();
        groups.join(",")
    };
    for measure in ["peak_bytes", "live_bytes", "usable_bytes", "largest_bytes"] {
        let value = format!("title=\"{} bytes\"", commas(number(totals, measure)));
        assert!(dom.contains(&value), "{measure}: {value} is not on the page");
    }
    let allocations = format!("<b>{}</b>", commas(number(totals, "allocations")));
    assert!(dom.contains(&allocations), "{allocations}");
    // The rows of the functions: exact bytes, and the share of each.
    for part in ["title=\"750,000 bytes\"", "title=\"250,000 bytes\"", ">holds_more</button>"] {
        assert!(dom.contains(part), "{part} is not in the table");
    }
    for markup in ["<img", "<b></b>", "<i></i>mark", "<u>"] {
        assert!(!dom.contains(markup), "a name became markup: {markup}");
    }
    assert!(dom.contains("&lt;/script&gt;&lt;u&gt;mark"), "the mark");
    // A window that is short for its run is drawn without its name.
    assert!(dom.contains("<title>window window</title>"), "the window");
    let shot = of.place.join("a.png");
    browse(&page, &of.place, "", &[&format!("--screenshot={}", shot.display())]);
    look_at(&Picture::open(&shot));
}

/// Checks the screenshot: a flame graph in which the main thread has three quarters and the other
/// thread the rest.
fn look_at(shot: &Picture) {
    assert_eq!((shot.width, shot.height), (1280, 2000));
    assert!(shot.colours() > 150, "{} colours", shot.colours());
    let parted = (0..shot.height).filter(|&y| match shot.boxes(y)[..] {
        [more, less] => {
            let whole = (more + less) as f64;
            (1150.0..1280.0).contains(&whole) && (more as f64 / whole - 0.75).abs() < 0.01
        }
        _ => false,
    });
    // At least one line above and one below the text, in each of `main` and the three frames that
    // start it.
    assert!(parted.count() > 8, "no boxes of three quarters and one");
}

#[test]
fn pages_of_real_programs() {
    for of in [Recorded::compiler("pictures-gxx-page"), Recorded::python("pictures-py-page")] {
        let page = of.store("html", "a.html");
        let size = fs::metadata(&page).expect("a page").len();
        assert!((100_000..4_000_000).contains(&size), "{size} bytes");
        let dom = browse(&page, &of.place, "", &["--dump-dom"]);
        let rows = dom.matches("<tr>").count();
        assert!(rows >= 40 && dom.contains("Show more of"), "{rows} rows");
        let shot = of.place.join("a.png");
        browse(&page, &of.place, "", &[&format!("--screenshot={}", shot.display())]);
        let shot = Picture::open(&shot);
        // Two or three rows of boxes of a third of the page; text interrupts them.
        let coloured = (0..shot.height).filter(|&y| shot.boxes(y).iter().sum::<usize>() > 400);
        let coloured = coloured.count();
        assert!(coloured > 40 && shot.colours() > 150, "{coloured} lines");
    }
}

/// On a phone the names of functions have the width of the screen, and nothing is cut off.
#[test]
fn a_page_on_a_phone() {
    let of = Recorded::compiler("pictures-phone");
    let page = of.store("html", "a.html");
    let text = fs::read_to_string(&page).expect("a page");
    let script =
        "<script>setTimeout(() => { const cells = [...document.querySelectorAll('td.text')];
        const root = document.documentElement; const found = element('pre', {}, JSON.stringify({
        screen: innerWidth, wide: root.scrollWidth, high: root.scrollHeight, rows: cells.length,
        least: Math.min(...cells.map((cell) => cell.clientWidth)) }));
        found.id = 'found'; document.body.append(found); }, 500)</script></html>";
    fs::write(&page, text.replace("</html>", script)).expect("a page");
    let dom = browse(&page, &of.place, "", &["--window-size=500,800", "--dump-dom"]);
    let found = dom.split("<pre id=\"found\">").nth(1).and_then(|rest| rest.split('<').next());
    let found: Value = serde_json::from_str(found.expect("numbers")).expect("JSON");
    let [screen, wide, high, rows, least] =
        ["screen", "wide", "high", "rows", "least"].map(|name| number(&found, name));
    assert!(screen <= 500 && wide <= screen, "{found}");
    assert!(least > screen * 4 / 5, "{found}");
    assert!(rows == 40 && high < 9000, "{found}");
}

/// Resident memory over time, as areas in the colours of the legend.
#[test]
fn a_page_of_resident_memory() {
    let program = Guest::read("resident.c").build("resident.c", &[]);
    let place = scratch("pictures-memory");
    let recording = place.join("a.heaptide");
    run(recorded(&recording, &[]).arg(program).arg("growing"), &place);
    let of = Recorded { place, recording };
    let page = of.store("html", "a.html");
    let dom = browse(&page, &of.place, "areas=kinds", &["--dump-dom"]);
    let areas = dom.matches("class=\"area\"").count();
    assert!((5..=13).contains(&areas), "{areas} areas");
    for name in ["live requested", "other mappings", "modules", "recorder"] {
        assert!(dom.contains(&format!("</i>{name}</span>")), "{name}");
    }
    let shot = of.place.join("a.png");
    browse(&page, &of.place, "areas=kinds", &[&format!("--screenshot={}", shot.display())]);
    // Two thirds of the memory at the end are live blocks: a triangle of about 1000 by 150 pixels.
    let shot = Picture::open(&shot);
    let is_live = |[r, g, b]: &[u8; 3]| b > r && b - r > 120 && g > r;
    let live = shot.pixels.iter().filter(|pixel| is_live(pixel)).count();
    assert!(live > 30_000, "{live} pixels of live blocks");
}

/// Without stacks or scopes, the page shows the rest.
#[test]
fn a_page_of_counters_and_of_scopes() {
    for (mode, has, lacks) in
        [("counters", ">Sizes<", "id=\"canvas\""), ("scopes", "id=\"canvas\"", ">Functions<")]
    {
        let program = Guest::read("pictures.c").build("pictures", &[]);
        let place = scratch(&format!("pictures-{mode}"));
        let recording = place.join("a.heaptide");
        run(recorded(&recording, &["--mode", mode]).arg(program), &place);
        let of = Recorded { place, recording };
        let page = of.store("html", "a.html");
        let dom = browse(&page, &of.place, "", &["--dump-dom"]);
        assert!(dom.contains(has) && !dom.contains(lacks), "{mode}");
        assert!(dom.contains(&format!("Recorded with --mode {mode}")));
    }
}

#[test]
fn speedscope_by_its_schema() {
    let schema = include_str!("../schemas/speedscope.json");
    let schema: Value = serde_json::from_str(schema).expect("a schema");
    let recorded = [
        Recorded::guest("pictures-speedscope"),
        Recorded::compiler("pictures-gxx-speedscope"),
        Recorded::python("pictures-py-speedscope"),
    ];
    for of in recorded {
        let totals = of.largest()["totals"].clone();
        for words in ["", "--per-thread", "--scopes-and-stacks --metric allocations"] {
            let text = of.export(&format!("speedscope {words}"));
            let file: Value = serde_json::from_str(&text).expect("JSON");
            schema::assert_valid(&schema, &file);
            let frames = list(&file["shared"], "frames").len();
            for profile in list(&file, "profiles") {
                let samples = list(profile, "samples");
                let weights = list(profile, "weights");
                assert_eq!(samples.len(), weights.len());
                let sum: i128 = weights.iter().map(|w| i128::from(w.as_u64().unwrap())).sum();
                assert_eq!(sum, number(profile, "endValue"));
                let used = samples.iter().flat_map(|s| s.as_array().expect("a stack"));
                assert!(used.into_iter().all(|f| f.as_u64().unwrap() < frames as u64));
                let name = profile["name"].as_str().expect("a name");
                let measure = name.rsplit(": ").next().expect("a measure");
                if let Some(total) = totals.get(measure) {
                    assert_eq!(Some(sum), total.as_u64().map(i128::from), "{name}");
                }
            }
            let active = &file["profiles"][number(&file, "activeProfileIndex") as usize]["name"];
            let measure =
                if words.contains("allocations") { "allocations" } else { "at_peak_bytes" };
            assert!(active.as_str().expect("a name").contains(measure), "{active}");
        }
    }
}

#[test]
fn graphs_of_scopes_keep_equal_names_apart() {
    let of = Recorded::guest("pictures-dot");
    let words = "dot --scopes --metric requested_bytes";
    let graph = of.export(words);
    // `load` and the `load` inside it, with the share of each.
    let loads = graph.lines().filter(|line| line.contains("[label=\"load\\n")).count();
    assert_eq!(loads, 2, "{graph}");
    assert!(graph.contains("entered once\\n732 KiB own each time\\nown 732 KiB"), "{graph}");
    assert!(graph.contains("750 blocks\""), "{graph}");
    let shares: Vec<f64> =
        graph.split("w=").skip(1).filter_map(|rest| rest.split_once('%')?.0.parse().ok()).collect();
    assert_eq!(shares.iter().filter(|share| (**share - 74.5).abs() < 0.5).count(), 3, "{shares:?}");
    let lanes = of.export(&format!("{words} --per-thread"));
    assert_eq!(lanes.matches("subgraph cluster_").count(), 2, "{lanes}");
    assert!(lanes.contains(r#"label="thread 1 (</script><i>), 1 thread, tid "#), "{lanes}");
    for (graph, name) in [(graph, "merged.dot"), (lanes, "lanes.dot")] {
        fs::write(of.place.join(name), graph).expect("a graph");
        draw(&of, name);
    }
}

/// Renders a graph with Graphviz; the picture must not be blank.
fn draw(of: &Recorded, name: &str) -> Picture {
    let path = |name: &str| of.place.join(name).display().to_string();
    let svg = tool("dot", &["-Tsvg", &path(name)], &of.place);
    assert!(svg.contains("<svg") && svg.trim_end().ends_with("</svg>"), "{svg}");
    tool("dot", &["-Tpng", "-Gdpi=50", &path(name), "-o", &path("dot.png")], &of.place);
    let picture = Picture::open(&of.place.join("dot.png"));
    assert!(picture.width > 300 && picture.height > 150 && picture.colours() > 50);
    picture
}

#[test]
fn graphs_of_real_programs() {
    for of in [Recorded::compiler("pictures-gxx-dot"), Recorded::python("pictures-py-dot")] {
        for words in ["dot", "dot --per-thread --metric usable_bytes", "dot --depth 12"] {
            let graph = of.store(words, "a.dot");
            let text = fs::read_to_string(graph).expect("a graph");
            let boxes = text.matches("tooltip=").count();
            assert!((4..=700).contains(&boxes), "{words}: {boxes} boxes");
            draw(&of, "a.dot");
        }
    }
}

/// Adds up the rows of each kind with Python's CSV reader.
const SUMS: &str = r#"
import csv, json, sys
csv.field_size_limit(1 << 30)
with open(sys.argv[1], newline="") as file:
    rows = list(csv.DictReader(file))
counted = [row for row in rows if row["kind"] in ("heap", "pool_chunk")]
lives = counted + [row for row in rows if row["kind"] == "pool_block"]
add = lambda column, rows: sum(int(row[column]) for row in rows)
moved = {"allocations": "moved_blocks", "frees": "moved_blocks",
         "usable_bytes": "moved_usable_bytes", "freed_bytes": "moved_usable_bytes",
         "requested_bytes": "moved_requested_bytes"}
sums = {column: add(column, counted) - add(less, counted) for column, less in moved.items()}
sums |= {column: add(column, lives) for column in ("live_bytes", "at_peak_bytes")}
sums |= {column: add(column, counted) for column in
         ("live_blocks", "at_peak_blocks", "temporary", "frees_here", "freed_here_bytes")}
names = sorted({row["label"] for row in rows} | {row["lane"] for row in rows})
deep = all(int(row["depth"]) == (row["stack"].count(";") + 1 if row["stack"] else 0)
           for row in rows)
more = sum(int(row["live_blocks"]) for row in rows if ";holds_more;" in row["stack"])
print(json.dumps({"sums": sums, "names": names, "deep": deep, "more": more}))
"#;

#[test]
fn tables_add_up_to_the_totals() {
    let recorded = [
        Recorded::guest("pictures-csv"),
        Recorded::compiler("pictures-gxx-csv"),
        Recorded::python("pictures-py-csv"),
    ];
    for (index, of) in recorded.iter().enumerate() {
        let file = of.store("csv", "a.csv");
        let read = tool("python3", &["-c", SUMS, &file.display().to_string()], &of.place);
        let read: Value = serde_json::from_str(&read).expect("JSON");
        let process = of.largest();
        for (measure, sum) in read["sums"].as_object().expect("sums") {
            assert_eq!(sum, &process["totals"][measure], "{measure} of {index}");
        }
        assert_eq!(read["deep"], true);
        if index == 0 {
            assert_eq!(read["more"], 750);
            for name in ["</script><b>", "</script><i>", "'=pool,\"1\""] {
                assert!(list(&read, "names").contains(&name.into()), "{name}: {read}");
            }
        }
    }
}

#[test]
fn flame_graphs_as_asked_for() {
    let of = Recorded::guest("pictures-flames");
    let svg = of.export("flamegraph --flames --width 2400 --title Memory<of>it");
    assert!(svg.contains("width=\"2400\"") && svg.contains("Memory&lt;of&gt;it"));
    // From the allocating function to its callers, and not the reverse.
    let depth = |svg: &str, name: &str| {
        let part = svg.split("<title>").find(|part| part.starts_with(name)).expect("a box");
        let y = part.split("y=\"").nth(1).and_then(|rest| rest.split('"').next());
        y.and_then(|y| y.parse::<f64>().ok()).expect("a height")
    };
    let icicle = of.export("flamegraph");
    assert_eq!(of.export("flamegraph --icicle"), icicle);
    assert!(icicle.contains("@media (prefers-color-scheme: dark)"));
    assert!(depth(&icicle, "main (") < depth(&icicle, "holds_more ("));
    assert!(depth(&svg, "main (") > depth(&svg, "holds_more ("));
    let callers = of.export("flamegraph --bottom-up");
    assert!(depth(&callers, "main (") > depth(&callers, "holds_more ("));
    let lanes = of.export("flamegraph --per-thread");
    assert!(lanes.contains("<title>&lt;/script&gt;&lt;i&gt; (250,"), "{lanes}");
    let file = of.place.join("a.svg");
    let words = format!("flamegraph --per-thread -o {}", file.display());
    assert_eq!(of.command(&words).status, 0);
    assert_eq!(fs::read_to_string(file).expect("a picture"), lanes);
    for words in ["export --format dot --flames", "flamegraph --width 20"] {
        assert_eq!(of.command(words).status, 2, "{words}");
    }
}

/// 5,000 recursive calls: 502 blocks of 24 bytes.
#[test]
fn flame_graphs_of_deep_stacks_open_on_content() {
    let program = Guest::read("deep.c").build("pictures-deep", &[]);
    let of = Recorded::new("pictures-deep", |_, command| {
        command.arg(program);
    });
    let height = |svg: &str| {
        let height = svg.split(" height=\"").nth(1).and_then(|rest| rest.split('"').next());
        height.and_then(|height| height.parse::<u64>().ok()).expect("a height")
    };
    let boxes = |svg: &str| svg.matches("<title>down (12,048 bytes").count();
    let folded = of.export("flamegraph --fold-recursion");
    assert_eq!((boxes(&folded), folded.contains(" deeper branch")), (1, false));
    assert!(height(&folded) < 250, "{}", height(&folded));
    let unfolded = of.export("flamegraph");
    assert_eq!(of.export("flamegraph --unfold-recursion"), unfolded, "the former option");
    assert!(unfolded.contains("<title>… 1 deeper branch ("), "{unfolded}");
    assert!((60 * 16..62 * 16 + 100).contains(&height(&unfolded)), "{}", height(&unfolded));
    let deep = of.export("flamegraph --depth 200");
    assert!((200 * 16..202 * 16 + 100).contains(&height(&deep)), "{}", height(&deep));
    assert!(!deep.contains(" deeper branch"));
}

/// Charts for reports: both formats show the numbers of the guest.
#[test]
fn charts_of_time_and_sizes() {
    let of = Recorded::guest("pictures-charts");
    let draw = |words: &str| {
        let outcome = of.command(words);
        assert_eq!((outcome.status, &*outcome.stderr), (0, ""), "{words}");
        outcome.stdout
    };
    let report = of.largest();
    let timeline = draw("timeline --format svg");
    assert!(timeline.starts_with("<svg width=\"1200\""), "{timeline}");
    for part in ["live bytes", "allocations a second", "A  window"] {
        assert!(timeline.contains(part), "{part}: {timeline}");
    }
    assert!(timeline.contains("peak "), "{timeline}");
    let sizes = draw("histogram --format svg --width 900");
    assert!(sizes.starts_with("<svg width=\"900\""), "{sizes}");
    let blocks = number(&report["totals"], "allocations");
    let without_commas = sizes.replace(',', "");
    assert!(without_commas.contains(&format!("{blocks} blocks by size")), "{sizes}");
    for name in ["timeline", "histogram"] {
        let file = of.place.join(format!("{name}.png"));
        let words = format!("{name} --format png -o {}", file.display());
        assert_eq!(draw(&words), "", "{words}");
        assert_eq!(of.command(&words).status, 2, "{words}: the file is there");
        draw(&format!("{words} --force"));
        let picture = Picture::open(&file);
        let is_drawn = |y: usize| picture.row(y).iter().any(|pixel| *pixel != [255; 3]);
        assert_eq!((picture.width, is_drawn(2)), (1200, false), "{name}");
        assert!(is_drawn(30) && is_drawn(picture.height / 2), "{name}");
    }
    for words in ["timeline -o c.svg", "timeline --format svg --width 20", "histogram --width 900"]
    {
        assert_eq!(of.command(words).status, 2, "{words}");
    }
}
