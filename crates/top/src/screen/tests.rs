//! Screens of a known process, drawn on a text-only test terminal.

use std::path::PathBuf;
use std::sync::Arc;

use heaptide_analysis::recording::live::Counts;
use heaptide_analysis::recording::live_tables::{LiveTables, counts_now};
use heaptide_fixtures::{ProgramBuilder, Scratch, site};
use ratatui::Terminal;
use ratatui::backend::TestBackend;
use ratatui::style::{Color, Modifier};

use super::{Places, draw};
use crate::model::app::{App, Image, Input, Request};
use crate::model::numbers::Moment;
use crate::model::tables::Tables;
use crate::model::view::{Column, View};
use crate::screen::Style;

const PLAIN: Style = Style { has_colours: false };

/// 1 MiB in `main`, 2 MiB in `load`, 4 MiB in `parse` called by `load`, and 8 MiB in `parse` called
/// by `main`; the last in scope `work`, labelled `cache`, on the thread `worker`.
fn program() -> ProgramBuilder {
    let mut program = ProgramBuilder::new();
    program.block("main", 1 << 20);
    program.block("main;load", 2 << 20);
    program.block("main;load;parse", 4 << 20);
    let stack = program.stack("main;parse");
    let p = &mut program.profile;
    p.lane(9, "worker", |lane| (lane.threads, lane.tid) = (1, 4242));
    let (work, cache) = (p.name("region", "work"), p.name("label", "cache"));
    let root = p.scope(9, 0, 0, |_| {});
    let work = p.scope(9, root, work, |_| {});
    let key = p.key(9, |key| (key.stack, key.scope, key.label) = (stack, work, cache));
    p.site(9, site(key, 2, 4 << 20));
    program
}

struct Shown {
    app: App,
    counts: Vec<Counts>,
    device_bytes: u64,
    places: Places,
}

impl Shown {
    fn new(program: &ProgramBuilder) -> Shown {
        let scratch = Scratch::new("top-screen");
        let path = program.write(&scratch);
        let process = LiveTables::new(&path).read(&mut |_, _| {}).expect("tables");
        let counts = counts_now(&process);
        let mut tables = Tables::new(process);
        tables.set_slots_to_rows();
        let mut app = App::new(View::Owners, None).expect("an app");
        app.title = "app --serve  pid 42".to_owned();
        app.set_tables(Box::new(tables));
        let mut shown = Shown { app, counts, device_bytes: 0, places: Places::default() };
        shown.at(1);
        shown
    }

    /// Sets the counters after this many seconds.
    fn at(&mut self, seconds: u64) {
        self.app.set_moment(Moment {
            time_ns: seconds * 1_000_000_000,
            counts: Arc::new(self.counts.clone()),
            peak_bytes: 20 << 20,
            resident_bytes: 30 << 20,
            device_bytes: self.device_bytes,
        });
    }

    fn terminal(&mut self, width: u16, height: u16, style: Style) -> Terminal<TestBackend> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).expect("a terminal");
        let draw = |frame: &mut ratatui::Frame| self.places = draw(frame, &mut self.app, &style);
        terminal.draw(draw).expect("drawn");
        terminal
    }

    /// Returns the lines of the screen, without trailing spaces.
    fn lines(&mut self, width: u16, height: u16) -> Vec<String> {
        let terminal = self.terminal(width, height, PLAIN);
        let buffer = terminal.backend().buffer();
        let line = |y| (0..width).map(|x| buffer[(x, y)].symbol()).collect::<String>();
        (0..height).map(|y| line(y).trim_end().to_owned()).collect()
    }

    /// Returns the rows of the table on a screen without a chart: numbers and name, without spaces
    /// between.
    fn rows(&mut self) -> Vec<String> {
        let lines = self.lines(100, 14);
        let rows = lines[4..13].iter().filter(|line| !line.is_empty());
        rows.map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect()
    }

    fn keys(&mut self, keys: &str) {
        for key in keys.chars() {
            let input = match key {
                '\n' => Input::Enter,
                '\x08' => Input::Backspace,
                '\x1b' => Input::Escape,
                '\t' => Input::Tab,
                '↓' => Input::Move(1),
                key => Input::Char(key),
            };
            self.app.input(input);
            self.lines(100, 14); // redrawn like after each key
        }
    }
}

/// Before the rows are known, what they sum up to is not known, either.
#[test]
fn the_first_screen_has_no_sums() {
    let mut shown = Shown::new(&program());
    shown.app.tables = None;
    let sums = shown.lines(100, 14)[1].clone();
    assert_eq!(sums.trim_end(), "peak 20.0 MiB   resident 30.0 MiB");
}

#[test]
fn the_screen_has_sums_views_rows_and_keys() {
    let mut shown = Shown::new(&program());
    let expected = "\
app --serve  pid 42                                                                    running  1.00 s
live 15.0 MiB in 5 blocks   peak 20.0 MiB   resident 30.0 MiB   0 allocs/s   0 B/s
 owners  functions  threads  scopes  labels  stacks  lines
    ▼live   blocks     growth  allocs/s   bytes/s   at peak owner
 12.0 MiB        3                                 12.0 MiB parse  [app]
 2.00 MiB        1                                 2.00 MiB load  [app]
 1.00 MiB        1                                 1.00 MiB main  [app]





q quit  ? help  s sort  / filter  Enter callers  m mark  w snapshot  Space pause  p processes";
    assert_eq!(shown.lines(102, 13).join("\n"), expected);
}

#[test]
fn the_largest_holder_is_stated_and_followed() {
    let mut shown = Shown::new(&program());
    let answer = |shown: &mut Shown| {
        let lines = shown.lines(80, 24);
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{lines:?}");
        assert!(lines[lines.len() - 1].starts_with("q quit"), "{lines:?}");
        lines[2..4].join(" ").trim_end().to_owned()
    };
    assert_eq!(
        answer(&mut shown),
        "`parse` (parse.c) holds 12.0 MiB, 80.0% of 15.0 MiB live after 1.00 s."
    );
    shown.counts[0].live_bytes = 85 << 20;
    shown.at(11);
    let main = "`main` (main.c) holds 85.0 MiB, 85.9% of 99.0 MiB live after 11.0 s, 84.0 MiB more \
                than 10.0 s ago.";
    assert_eq!(answer(&mut shown), main);
    // It is about the whole program, whatever is shown of it.
    shown.keys("3/^load$\n");
    assert_eq!(answer(&mut shown), main);
    shown.counts[0].live_bytes = 0;
    shown.at(12);
    let freed = "`parse` (parse.c) holds 12.0 MiB, 85.7% of 14.0 MiB live after 12.0 s, unchanged for \
                 11.0 s.";
    assert_eq!(answer(&mut shown), freed);
    shown.app.subject = Some("app (pid 42), which was started; sh held 3.00 KiB".to_owned());
    let lines = shown.lines(80, 24);
    assert_eq!(lines[4], "subject app (pid 42), which was started; sh held 3.00 KiB");
    assert!(!shown.lines(80, 14).concat().contains("subject"), "no room");
}

#[test]
fn each_view_has_its_rows() {
    let mut shown = Shown::new(&program());
    let of = |shown: &mut Shown, key| {
        shown.keys(key);
        shown.rows()
    };
    assert_eq!(
        of(&mut shown, "2"),
        [
            "15.0 MiB 5 15.0 MiB main [app]",
            "12.0 MiB 3 12.0 MiB parse [app]",
            "6.00 MiB 2 6.00 MiB load [app]"
        ]
    );
    assert_eq!(
        of(&mut shown, "3"),
        ["8.00 MiB 2 8.00 MiB worker (tid 4242)", "7.00 MiB 3 7.00 MiB app"]
    );
    assert_eq!(of(&mut shown, "4"), ["8.00 MiB 2 8.00 MiB work", "7.00 MiB 3 7.00 MiB (no scope)"]);
    assert_eq!(
        of(&mut shown, "5"),
        ["8.00 MiB 2 8.00 MiB cache", "7.00 MiB 3 7.00 MiB (no label)"]
    );
    assert_eq!(
        of(&mut shown, "6"),
        [
            "8.00 MiB 2 8.00 MiB parse ← main",
            "4.00 MiB 1 4.00 MiB parse ← load ← main",
            "2.00 MiB 1 2.00 MiB load ← main",
            "1.00 MiB 1 1.00 MiB main"
        ]
    );
    let lines = [
        "12.0 MiB 3 12.0 MiB parse.c:1 parse",
        "2.00 MiB 1 2.00 MiB load.c:1 load",
        "1.00 MiB 1 1.00 MiB main.c:1 main",
    ];
    assert_eq!(of(&mut shown, "7"), lines);
    let owners = [
        "12.0 MiB 3 12.0 MiB parse [app]",
        "2.00 MiB 1 2.00 MiB load [app]",
        "1.00 MiB 1 1.00 MiB main [app]",
    ];
    assert_eq!(of(&mut shown, "\t"), owners, "owners after lines");
}

#[test]
fn a_recursive_function_counts_once() {
    let mut program = ProgramBuilder::new();
    program.block("main;walk;walk;leaf;walk", 1 << 20);
    program.block("main;walk;leaf", 2 << 20);
    let mut shown = Shown::new(&program);
    shown.keys("2");
    let live: Vec<String> = shown.rows();
    assert_eq!(
        live,
        [
            "3.00 MiB 2 3.00 MiB main [app]",
            "3.00 MiB 2 3.00 MiB walk [app]",
            "3.00 MiB 2 3.00 MiB leaf [app]"
        ]
    );
}

#[test]
fn growth_is_since_the_mark_and_rates_are_per_second() {
    let mut shown = Shown::new(&program());
    assert_eq!(shown.app.input(Input::Char('m')), Some(Request::Mark));
    let load = &mut shown.counts[1];
    (load.live_bytes, load.live_blocks) = (5 << 20, 4);
    (load.allocations, load.allocated_bytes) = (1001, 2 << 20 | 100 << 20);
    shown.at(2);
    shown.keys("sss");
    assert_eq!(
        shown.rows(),
        [
            "5.00 MiB 4 +3.00 MiB 1,000 100 MiB 2.00 MiB load [app]",
            "12.0 MiB 3 0 12.0 MiB parse [app]",
            "1.00 MiB 1 0 1.00 MiB main [app]"
        ]
    );
    let head = shown.lines(130, 14)[1].clone();
    assert!(head.contains("growth +3.00 MiB   1,000 allocs/s   100 MiB/s"), "{head}");
    // Nothing happens in the next two seconds.
    shown.at(3);
    shown.at(4);
    let quiet = "5.00 MiB 4 +3.00 MiB 2.00 MiB load [app]";
    assert_eq!(shown.rows()[1], quiet, "no rates, and ordered by live");
}

#[test]
fn growth_counts_from_the_first_numbers_until_there_is_a_mark() {
    let mut shown = Shown::new(&program());
    assert!(!shown.lines(130, 14)[1].contains("growth"), "there is no earlier number");
    shown.counts[1].live_bytes = 5 << 20;
    shown.at(2);
    assert_eq!(
        shown.rows(),
        [
            "12.0 MiB 3 12.0 MiB parse [app]",
            "5.00 MiB 1 +3.00 MiB 2.00 MiB load [app]",
            "1.00 MiB 1 1.00 MiB main [app]"
        ]
    );
    assert!(shown.lines(130, 14)[1].contains("growth +3.00 MiB"));
    shown.app.input(Input::Char('m'));
    shown.counts[1].live_bytes = 4 << 20;
    shown.at(3);
    assert_eq!(shown.rows()[1], "4.00 MiB 1 -1.00 MiB 2.00 MiB load [app]");
}

#[test]
fn a_method_keeps_its_class_on_a_narrow_terminal() {
    let mut program = ProgramBuilder::new();
    program.block("main;gateway::auth::TokenStore::issue", 1 << 20);
    program.block("main;gateway::cache::ResponseCache::insert", 2 << 20);
    let mut shown = Shown::new(&program);
    let lines = shown.lines(80, 24);
    assert!(lines.iter().any(|line| line.ends_with("ResponseCache::insert")), "{lines:?}");
    assert!(lines.iter().any(|line| line.contains("TokenStore::issue")), "{lines:?}");
    assert!(lines.iter().any(|line| line.contains("▼live   blocks     growth  allocs/s")));
}

#[test]
fn a_filter_accepts_the_patterns_of_the_command_line() {
    let mut shown = Shown::new(&program());
    shown.keys("/^load$\n");
    assert_eq!(shown.rows(), ["4.00 MiB 1 4.00 MiB parse [app]", "2.00 MiB 1 2.00 MiB load [app]"]);
    assert!(shown.lines(100, 14)[2].ends_with("filter ^load$"));
    assert!(shown.lines(100, 14)[1].starts_with("live 6.00 MiB in 2 blocks   0 allocs/s"));
    let clear = "\x08\x08\x08\x08\x08\x08";
    shown.keys(&format!("/{clear}!thread:worker\n"));
    assert_eq!(shown.rows().len(), 3);
    assert!(shown.rows()[0].starts_with("4.00 MiB"), "{:?}", shown.rows());
    shown.keys("/(\n");
    let foot = shown.lines(100, 14)[13].clone();
    assert_eq!(foot, "filter `worker(`: unclosed group, at character 7");
    shown.keys("\x1b\x1b");
    assert_eq!(shown.rows().len(), 3, "escape takes the filter away");
    shown.keys("/nothing\n");
    assert_eq!(shown.lines(100, 14)[4], "nothing matches the filter");
}

#[test]
fn rows_zoom_to_callers_and_callees_and_back() {
    let mut shown = Shown::new(&program());
    assert_eq!(shown.rows().len(), 3);
    shown.keys("\n");
    assert_eq!(
        shown.rows(),
        [
            "12.0 MiB 3 12.0 MiB parse [app]",
            "8.00 MiB 2 8.00 MiB main [app]",
            "4.00 MiB 1 4.00 MiB load [app]",
            "4.00 MiB 1 4.00 MiB main [app]"
        ]
    );
    let lines = shown.lines(100, 14);
    assert!(lines[2].ends_with("› callers of parse  [app]"), "{}", lines[2]);
    assert!(lines[5].ends_with("8.00 MiB   main  [app]"), "moved in: {}", lines[5]);
    assert!(lines[7].ends_with("4.00 MiB     main  [app]"), "and further: {}", lines[7]);
    shown.keys("↓↓\nc");
    assert!(shown.lines(120, 14)[2].ends_with("› callees of load  [app]"));
    assert_eq!(shown.rows(), ["4.00 MiB 1 4.00 MiB load [app]", "4.00 MiB 1 4.00 MiB parse [app]"]);
    shown.keys("\x08\x08");
    assert_eq!(shown.rows().len(), 3);
    shown.keys("3\n");
    assert_eq!(shown.rows(), ["8.00 MiB 2 8.00 MiB parse [app]"], "owners in the thread");
    assert!(shown.lines(100, 14)[2].ends_with("› thread worker  (tid 4242)"));
    shown.keys("\x08");
    assert_eq!(shown.rows().len(), 2, "threads again");
}

#[test]
fn the_mouse_selects_sorts_and_switches_views() {
    let mut shown = Shown::new(&program());
    shown.lines(100, 14);
    assert_eq!(shown.places.click(50, 5), Some(Input::ClickRow(1)));
    assert_eq!(shown.places.click(12, 3), Some(Input::ClickColumn(Column::Blocks)));
    assert_eq!(shown.places.click(15, 2), Some(Input::ClickView(View::Functions)));
    assert_eq!(shown.places.click(20, 0), None);
    shown.app.input(Input::ClickColumn(Column::Live));
    assert!(shown.rows()[0].starts_with("1.00 MiB"), "the other way round");
    shown.app.input(Input::ClickRow(2));
    shown.app.input(Input::ClickColumn(Column::Live));
    shown.lines(100, 14);
    assert_eq!(shown.app.scroll.at, 0, "the selected row is followed");
}

#[test]
fn every_size_works_and_names_keep_space() {
    let mut shown = Shown::new(&program());
    for overlay in ["", "?", "/", "\x1b", "\n"] {
        shown.keys(overlay);
        for width in [1, 2, 10, 39, 40, 41, 80, 300] {
            for height in [1, 2, 3, 4, 7, 8, 18, 31, 32, 100] {
                shown.lines(width, height);
            }
        }
        shown.keys("\x1b");
    }
    let lines = shown.lines(40, 10);
    assert_eq!(lines[3], "    ▼live     growth owner");
    assert_eq!(lines[4], " 12.0 MiB            parse  [app]");
    assert_eq!(lines[9], "q quit  ? help  s sort  / filter");
}

#[test]
fn memory_of_devices_is_beside_that_of_the_host() {
    let mut shown = Shown::new(&program());
    shown.device_bytes = 3 << 30;
    shown.at(2);
    let sums = &shown.lines(100, 14)[1];
    assert!(sums.contains("   resident 30.0 MiB   device 3.00 GiB   "), "{sums}");
}

#[test]
fn the_chart_shows_live_and_resident() {
    let mut shown = Shown::new(&program());
    for seconds in 2..60 {
        shown.counts[0].live_bytes = seconds << 20;
        shown.at(seconds);
    }
    let lines = shown.lines(100, 40);
    assert_eq!(lines[4].split('│').next(), Some("73.0 MiB"));
    assert!(lines[12].contains("0 s") && lines[12].ends_with("59.0 s"), "{}", lines[12]);
    assert!(lines[12].contains("live  • resident"), "{}", lines[12]);
    let drawn: String = lines[4..12].concat();
    assert!(drawn.contains('•') && drawn.chars().any(|c| ('⠁'..='⣿').contains(&c)), "{drawn}");
}

#[test]
fn without_colours_the_screen_is_monochrome() {
    let mut shown = Shown::new(&program());
    shown.keys("m");
    shown.counts[0].live_bytes += 100;
    shown.at(3);
    let colours = |shown: &mut Shown, has_colours| {
        let terminal = shown.terminal(100, 40, Style { has_colours });
        let cells = terminal.backend().buffer().content.clone();
        let coloured = cells.iter().filter(|cell| cell.fg != Color::Reset).count();
        let is_reversed = |cell: &ratatui::buffer::Cell| cell.modifier.contains(Modifier::REVERSED);
        assert!(cells.iter().any(is_reversed), "the selection is seen all the same");
        assert!(cells.iter().all(|cell| cell.bg == Color::Reset), "on dark and on light");
        coloured
    };
    assert_eq!(colours(&mut shown, false), 0);
    assert!(colours(&mut shown, true) > 10);
}

#[test]
fn processes_are_listed_and_selected() {
    let mut shown = Shown::new(&program());
    let image = |pid, is_running| Image {
        file: PathBuf::from(format!("{pid}-0.profile")),
        pid,
        image: 0,
        program: "/usr/bin/app\x1b[2J".to_owned(),
        is_running,
        peak_bytes: 3 << 20,
    };
    let images = vec![image(7, true), image(12, false)];
    shown.app.overlay = crate::model::app::Overlay::Processes { images: images.clone(), at: 0 };
    let lines = shown.lines(100, 14);
    let listed: Vec<_> = lines.iter().filter(|line| line.contains("peak  3.00 MiB")).collect();
    assert_eq!(listed.len(), 2, "{lines:?}");
    assert!(listed[1].contains("12  ended    peak  3.00 MiB  app\\x1b[2J"), "{}", listed[1]);
    shown.app.input(Input::Move(1));
    assert_eq!(shown.app.input(Input::Enter), Some(Request::Switch(images[1].clone())));
}

#[test]
fn a_pause_freezes_the_numbers_and_an_end_is_shown() {
    let mut shown = Shown::new(&program());
    shown.keys(" ");
    shown.counts[0].live_bytes = 100 << 20;
    shown.at(2);
    assert!(shown.rows()[0].starts_with("12.0 MiB"));
    assert!(shown.lines(100, 14)[0].ends_with("paused  1.00 s"));
    shown.keys(" ");
    shown.at(3);
    assert!(shown.rows()[0].starts_with("100 MiB"), "{:?}", shown.rows());
    shown.app.end("exited with status 3".to_owned());
    assert!(shown.lines(100, 14)[0].ends_with("exited with status 3  3.00 s"));
}

#[test]
fn new_stacks_count_before_their_names_are_known() {
    let mut shown = Shown::new(&program());
    let new = Counts { live_bytes: 50 << 20, live_blocks: 1, allocations: 1, ..Counts::default() };
    shown.counts.push(new);
    shown.at(2);
    assert_eq!(shown.rows()[0], "50.0 MiB 1 +50.0 MiB 1 0 B (new stacks, names follow)");
    assert!(shown.lines(100, 14)[1].starts_with("live 65.0 MiB in 6 blocks"));
}
