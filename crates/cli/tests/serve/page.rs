//! The page in a real browser, exported as a file and served by `heaptide view`: each of its parts
//! on a desktop and a phone, operated with mouse and keyboard, with malicious names.

use std::path::Path;
use std::thread;
use std::time::Duration;

use serde_json::Value;

use crate::browser::{Browser, DESKTOP, PHONE, WIDE};
use crate::harness::{Guest, heaptide, recorded, run, scratch};
use crate::steps::Steps;
use crate::view::Viewer;

/// Records `pictures.c` into `a.heaptide` with these options: threads, scopes, labels, marks and
/// windows, with some names that would end a script or an element.
fn record(place: &Path, options: &[&str]) {
    let program = Guest::read("pictures.c").build("pictures", &[]);
    let mut command = recorded(&place.join("a.heaptide"), options);
    let outcome = run(command.arg(program).current_dir(place), place);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
}

/// Returns the address of the exported page.
fn exported(place: &Path) -> String {
    let page = place.join("page.html");
    let mut command = heaptide();
    command.args(["export", "--format", "html", "-o"]).arg(&page).arg(place.join("a.heaptide"));
    let outcome = run(&mut command, place);
    assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    format!("file://{}", page.display())
}

/// Exports the page again.
fn exported_again(place: &Path) -> String {
    std::fs::remove_file(place.join("page.html")).expect("the page");
    exported(place)
}

/// Returns a list of texts, the value of an expression in the page.
fn all(browser: &mut Browser, expression: &str) -> Vec<String> {
    let Value::Array(values) = browser.value(expression) else { panic!("a list: {expression}") };
    values.iter().map(|value| value.as_str().expect("a text").to_owned()).collect()
}

/// Opens and checks each view, grouping, metric and table of the page; returns its tables.
fn look_at_all(browser: &mut Browser, what: &str) -> Vec<String> {
    browser.assert_sound(what);
    browser.load_checks();
    browser.check("blank()", what);
    let tables = all(
        browser,
        "[...document.querySelectorAll('[data-table]')].map((one) => one.dataset.table)",
    );
    assert!(tables.len() >= 5, "{tables:?}");
    for table in &tables {
        browser.click(&format!("[data-table='{table}']"));
        let pressed = format!("[data-table='{table}'][aria-pressed='true']");
        browser.until(&format!("document.querySelector(`{pressed}`) !== null"));
        browser.assert_sound(&format!("{what}, table {table}"));
        browser.check("overlaps()", &format!("{what}, table {table}"));
    }
    let groups = all(
        browser,
        "[...document.querySelectorAll('#flames select option')].map((one) => one.value)",
    );
    for group in groups {
        browser.value(&format!("change({{ by: '{group}', zoom: '' }})"));
        let boxes = browser.value("flame.panes[0].boxes.length");
        assert!(boxes.as_u64() > Some(1), "{what}, by {group}: {boxes} boxes");
        browser.assert_sound(&format!("{what}, by {group}"));
    }
    browser.value("change({ by: '' })");
    for view in ["callers", "calls"] {
        browser.value(&format!("change({{ view: '{view}', zoom: '' }})"));
        assert!(browser.value("flame.panes[0].boxes.length").as_u64() > Some(1), "{what}, {view}");
        browser.assert_sound(&format!("{what}, {view}"));
    }
    let measures = all(browser, "shown.model.measures.map((one) => one.name)");
    for measure in measures {
        browser.value(&format!("change({{ measure: '{measure}' }})"));
        browser.assert_sound(&format!("{what}, {measure}"));
    }
    browser.value("change({ measure: null })");
    tables
}

#[test]
fn each_view_fits_a_desk_and_a_phone() {
    let place = scratch("page-sizes");
    record(&place, &["--mode", "trace"]);
    let Some(mut browser) = Browser::start(&place) else { return };
    let page = exported(&place);
    let viewer = Viewer::start(&place, &["a.heaptide"]);
    for (name, size) in [("desk", DESKTOP), ("phone", PHONE)] {
        browser.open(&page, size);
        look_at_all(&mut browser, &format!("exported, {name}"));
        browser.picture(&place.join(format!("{name}.png")));
        browser.open(&viewer.url(), size);
        look_at_all(&mut browser, &format!("served, {name}"));
    }
}

/// Data that a server sends late has its place from the start; a layout shift of 0.1 is noticed.
#[test]
fn nothing_moves_while_the_page_is_drawn() {
    let place = scratch("page-shifts");
    record(&place, &["--mode", "trace"]);
    let Some(mut browser) = Browser::start(&place) else { return };
    let viewer = Viewer::start(&place, &["a.heaptide"]);
    for address in [exported(&place), viewer.url()] {
        for size in [DESKTOP, PHONE, WIDE] {
            browser.open(&address, size);
            let shift = browser.value("layoutShift()").as_f64().expect("a number");
            assert!(shift < 0.05, "{shift} at {size:?}: {address}");
        }
    }
}

/// The first view names the owners and shows memory over time; the totals are below. A wide screen
/// is used.
#[test]
fn the_first_view_has_owners_and_the_chart() {
    let place = scratch("page-first-view");
    record(&place, &["--mode", "trace"]);
    let Some(mut browser) = Browser::start(&place) else { return };
    let page = exported(&place);
    for size in [DESKTOP, PHONE, WIDE] {
        browser.open(&page, size);
        let order = all(
            &mut browser,
            "[...document.querySelectorAll('main > *')].filter((one) => one.clientHeight > 0)
             .sort((a, b) => a.getBoundingClientRect().top - b.getBoundingClientRect().top)
             .map((one) => one.id)",
        );
        let expected = ["answer", "owners", "timeline", "totals", "choices", "flames", "tables"];
        assert_eq!(order, expected, "{size:?}");
        let bottom = "byId('chart').getBoundingClientRect().bottom <= innerHeight";
        assert_eq!(browser.value(bottom), true, "{size:?}");
        // 1,000 blocks of 1,000 bytes, and those of the scopes and the pool.
        let names = all(
            &mut browser,
            "[...document.querySelectorAll('#owner-names > *')].map((one) => one.textContent)",
        );
        assert!(names[0].starts_with("block 9") && names[0].contains("KiB, 99.9%"), "{names:?}");
        let widths = browser.value(
            "[...byId('bar').children].reduce((sum, one) => sum + one.clientWidth, 0)
             / byId('bar').clientWidth",
        );
        assert!(widths.as_f64().is_some_and(|part| part > 0.98), "{widths}");
        browser.assert_sound(&format!("{size:?}"));
    }
    assert!(browser.value("byId('flames').clientWidth").as_f64() > Some(1800.0));
    browser.click("#owner-names button");
    browser.until("state.search === 'block'");
    // The other metrics are in a list.
    let texts = "[...document.querySelectorAll('#choices select option')].map((one) => one.text)";
    let more = all(&mut browser, texts);
    assert_eq!(more[0], "more…");
    assert!(more.len() > 2, "{more:?}");
}

/// The SVG flame graph has the boxes of the page: the same names in the same order and colours.
#[test]
fn the_picture_is_that_of_the_page() {
    let place = scratch("page-picture");
    record(&place, &[]);
    let Some(mut browser) = Browser::start(&place) else { return };
    browser.theme("light");
    browser.open(&exported(&place), DESKTOP);
    let on_page = all(
        &mut browser,
        "flame.panes[0].levels.flatMap((level, i) => level.filter((box) => box.node >= 0)
         .map((box) => { const number = flame.tree.item[box.node];
           return `${i} ${itemText(number)} ${
             number < 0 ? getComputedStyle(document.documentElement).getPropertyValue('--rest')
             : colourOf(number, false)}`; }))",
    );
    let file = place.join("flame.svg");
    let mut command = heaptide();
    command.args(["flamegraph", "--force", "-o"]).arg(&file).arg(place.join("a.heaptide"));
    assert_eq!(run(&mut command, &place).status, 0);
    browser.open_picture(&format!("file://{}", file.display()));
    let in_picture = all(
        &mut browser,
        "(() => { const boxes = [...document.querySelectorAll('#frames g')].map((g) => {
           const rect = g.querySelector('rect');
           const name = g.querySelector('title').textContent.replace(/ \\([^(]*\\)$/, '');
           const colour = rect.getAttribute('fill').match(/\\d+/g)
             .map((part) => Number(part).toString(16).padStart(2, '0')).join('');
           return { y: Number(rect.getAttribute('y')), x: parseFloat(rect.getAttribute('x')), name,
             colour }; });
         const rows = [...new Set(boxes.map((box) => box.y))].sort((a, b) => a - b);
         boxes.sort((a, b) => a.y - b.y || a.x - b.x);
         // The two merge boxes of different widths.
         return boxes.filter((box) => !box.name.startsWith('…')).map((box) => `${rows.indexOf(box.y)} ${box.name} #${box.colour}`); })()",
    );
    assert_eq!(on_page, in_picture);
    assert!(in_picture[0].starts_with("0 everything ") && in_picture.len() > 8, "{in_picture:?}");
}

/// Rows that own nothing are in the order of what passes through them; a match that is too deep or
/// too narrow to be drawn tints the boxes above it.
#[test]
fn rows_without_own_memory_and_matches_out_of_view() {
    let place = scratch("page-leads");
    record(&place, &[]);
    let Some(mut browser) = Browser::start(&place) else { return };
    browser.open(&exported(&place), DESKTOP);
    let rows = browser.value(
        "(() => { const looks = tableKinds[0];
         const rows = rowsOf(shown.model, looks);
         const m = measureShown();
         return rowsInOrder(rows, null, m).found
           .map((row) => [rows.own(m)[row], rows.inclusive(m)[row]]); })()",
    );
    let rows: Vec<(f64, f64)> = serde_json::from_value(rows).expect("pairs");
    let nothing: Vec<f64> = rows.iter().filter(|row| row.0 == 0.0).map(|row| row.1).collect();
    assert!(nothing.len() > 3 && nothing.is_sorted_by(|a, b| a >= b), "{rows:?}");
    assert!(nothing.first() > nothing.last(), "{rows:?}");
    // Boxes below a third of the width are not drawn: the one of `holds_less`, and what it calls.
    browser.value("flame.least = flame.panes[0].width / 3; flame.panes[0].laid = null");
    browser.value("change({ search: 'holds_less' })");
    let leads = all(
        &mut browser,
        "flame.panes[0].boxes.filter((box) => box.node >= 0
           && lookOfBoxes(flame.panes[0]).leads[box.node] === 1)
         .map((box) => itemText(flame.tree.item[box.node]))",
    );
    assert_eq!(leads.first().map(String::as_str), Some("everything"), "{leads:?}");
    let found = browser.text("byId('found').textContent");
    assert!(found.ends_with("in 1 box, 1 of them not in view: below the tinted boxes"), "{found}");
    browser.assert_sound("matches out of view");
}

/// Texts, controls and their edges have enough contrast in light and dark, also under the pointer.
#[test]
fn contrast_is_that_of_wcag_in_light_and_dark() {
    let place = scratch("page-contrast");
    record(&place, &["--mode", "trace"]);
    let Some(mut browser) = Browser::start(&place) else { return };
    let page = exported(&place);
    let viewer = Viewer::start(&place, &["a.heaptide"]);
    for (size, address) in [(DESKTOP, &page), (PHONE, &page), (DESKTOP, &viewer.url())] {
        for theme in ["light", "dark"] {
            let what = format!("{theme}, {size:?}, {address}");
            browser.theme(theme);
            browser.open(address, size);
            browser.load_checks();
            for check in ["boxes()", "names()", "contrast()"] {
                browser.check(check, &what);
            }
            for change in ["table: 'lifetimes'", "areas: 'kinds'", "search: 'block'"] {
                browser.value(&format!("change({{ {change} }})"));
                browser.check("contrast()", &format!("{what}, {change}"));
            }
            if size == DESKTOP {
                point_at_each_kind(&mut browser, &what);
            }
            browser.assert_sound(&what);
        }
    }
}

/// Moves the pointer over a button of each kind, and checks its contrast.
fn point_at_each_kind(browser: &mut Browser, what: &str) {
    let count = browser.value(
        "(() => { const kinds = new Map(checks.controls().map((one) =>
         [`${one.className} ${one.getAttribute('aria-pressed')} ${one.parentElement.className}`, one]));
         checks.kinds = [...kinds.values()].filter((one) => one.tagName === 'BUTTON');
         return kinds.size; })()",
    );
    assert!(count.as_u64() > Some(5), "{what}: {count} kinds of controls");
    for index in 0..browser.value("checks.kinds.length").as_u64().expect("a number") {
        let at = browser.value(&format!(
            "(() => {{ checks.kinds[{index}].scrollIntoView({{ block: 'center' }});
             const {{ left, top, width, height }} = checks.kinds[{index}].getBoundingClientRect();
             return [left + width / 2, top + height / 2]; }})()"
        ));
        let [x, y] = [0, 1].map(|i| at[i].as_f64().expect("a number"));
        browser.point_at(x, y);
        browser.check(
            &format!("contrast(checks.kinds[{index}])"),
            &format!("{what}, under the pointer"),
        );
    }
    browser.point_at(1.0, 1.0);
}

/// Tab reaches each control, and the focus is visible.
#[test]
fn all_is_reached_by_keys() {
    let place = scratch("page-keys");
    record(&place, &["--mode", "trace"]);
    let Some(mut browser) = Browser::start(&place) else { return };
    let page = exported(&place);
    let viewer = Viewer::start(&place, &["a.heaptide"]);
    for address in [&page, &viewer.url()] {
        browser.open(address, DESKTOP);
        browser.load_checks();
        browser.until("checks.controls().length > 20");
        let controls = browser.value("checks.controls().length").as_u64().expect("a number");
        for _ in 0..controls + 10 {
            browser.key("Tab");
            assert_eq!(browser.value("checks.reach()"), "", "{address}");
        }
        browser.check("unreached()", address);
        browser.assert_sound(address);
    }
    // A range is selected with the keyboard alone.
    browser.value("byId('chart').focus()");
    browser.key("ArrowRight");
    browser.until("byId('said').textContent.includes('allocations so far')");
    browser.key_with_shift("End", 35);
    browser.key("Enter");
    browser.until("state.from === shown.model.head.timeline.time_ns[0] && state.from < state.to");
    browser.assert_sound("a range by keys");
}

/// 52 of 57 blocks are freed: those of `brief` immediately, those of `lifo` in reverse order.
#[test]
fn lifetimes_are_a_table_where_there_is_a_trace() {
    let place = scratch("page-lifetimes");
    let program = Guest::read("trace_lifetimes.c").build("trace_lifetimes", &[]);
    let mut command = recorded(&place.join("a.heaptide"), &["--mode", "trace"]);
    assert_eq!(run(command.arg(&program), &place).status, 0);
    let mut command = recorded(&place.join("b.heaptide"), &[]);
    assert_eq!(run(command.arg(&program), &place).status, 0);
    let Some(mut browser) = Browser::start(&place) else { return };
    let page = exported(&place);
    let viewer = Viewer::start(&place, &["a.heaptide"]);
    let rows = "[...document.querySelectorAll('#tables tbody tr')].map((row) =>
        [row.querySelector('.link').textContent, row.cells[0].textContent, row.cells[5].textContent,
         row.cells[7].textContent].join(' ')).sort()";
    let expected = ["brief 20 20 ", "fifo 20 1 ", "kept   5", "lifo 10 1 ", "nested 2 1 "];
    let statistic = |name: &str, owner: &str| {
        format!(
            "(() => {{ const rows = lifetimeRows(shown.model);
             const names = [...new Array(rows.length).keys()].map((row) =>
               shown.model.item(rows.item(row)).name);
             return rows.stats.{name}[names.indexOf('{owner}')]; }})()"
        )
    };
    for address in [page, viewer.url()] {
        browser.open(&address, DESKTOP);
        browser.click("[data-table='lifetimes']");
        browser.until("document.querySelector('#tables thead').textContent.includes('longest')");
        assert_eq!(all(&mut browser, rows), expected, "{address}");
        // Ten blocks are freed in reverse order, so each outlives all that were allocated after it.
        let number = |browser: &mut Browser, name: &str, owner: &str| {
            browser.value(&statistic(name, owner)).as_f64().expect("a number")
        };
        let [median, mean, late, longest] =
            ["median", "mean", "late", "longest"].map(|name| number(&mut browser, name, "lifo"));
        assert!(0.0 < median && median <= late && late <= longest, "{median} {late} {longest}");
        assert!(mean < longest && longest < 1e9, "{mean} {longest}");
        browser.click("#tables th:nth-child(5) button");
        browser
            .until("document.querySelector('#tables th[aria-sort]').textContent === 'longest ↓'");
        browser.value("change({ search: 'fifo', sort: 'own' })");
        assert_eq!(all(&mut browser, rows), ["fifo 20 1 "]);
        browser.assert_sound(&address);
    }
    // The other recording has no trace.
    let other = Viewer::start(&place, &["b.heaptide"]);
    browser.open(&other.url(), DESKTOP);
    browser.click("[data-table='lifetimes']");
    browser.until("byId('tables').textContent.includes('heaptide run --mode trace')");
    browser.assert_sound("without a trace");
}

/// Recursion with 5000 frames: a canvas of that height, 95,000 pixels, would be blank.
#[test]
fn thousands_of_frames_are_drawn() {
    let place = scratch("page-deep");
    let program = Guest::read("deep.c").build("deep", &[]);
    let mut command = recorded(&place.join("a.heaptide"), &[]);
    assert_eq!(run(command.arg(program), &place).status, 0);
    let Some(mut browser) = Browser::start(&place) else { return };
    browser.open(&exported(&place), DESKTOP);
    browser.load_checks();
    assert!(browser.value("flame.panes[0].levels.length").as_u64() > Some(5000));
    browser.check("blank()", "outermost frames");
    browser.value("flame.panes[0].stage.scrollTop = 50_000");
    browser.until(
        "(({ canvas, stage }) => stage.scrollTop > 49_000 && canvas.height <= 720
         && checks.pixels(canvas).some((part) => part > 0))(flame.panes[0])",
    );
    let (top, level) = ("flame.panes[0].stage.getBoundingClientRect().top", "2631");
    let box_at = format!(
        "boxAt(flame.panes[0], {{ clientX: 200, clientY: {top} + 5 + {level} * flame.row - 50_000 }})"
    );
    assert_eq!(browser.value(&format!("{box_at}.level")), 2631);
    browser.assert_sound("deep");
}

/// A click on the span of a window selects its range; resident memory is divided into kinds.
#[test]
fn windows_and_kinds_of_memory_are_in_the_chart() {
    let place = scratch("page-windows");
    record(&place, &["--mode", "trace"]);
    let Some(mut browser) = Browser::start(&place) else { return };
    let viewer = Viewer::start(&place, &["a.heaptide"]);
    for address in [exported(&place), viewer.url()] {
        browser.open(&address, DESKTOP);
        let areas = "document.querySelectorAll('#chart .area').length";
        browser.until(&format!("areaKind() === 'owners' && {areas} >= 2"));
        // An owner has one colour in the chart and in the bar.
        let same =
            "areasOf('owners').parts.filter((part) => part.function !== null).map((part) => {
            const name = shown.model.item(part.function).short;
            const buttons = [...document.querySelectorAll('#owner-names button')];
            const button = buttons.find((one) => one.querySelector('b').textContent === name);
            return !button || button.querySelector('i').getAttribute('style').endsWith(part.colour);
        })";
        let same = browser.value(same);
        let same = same.as_array().expect("a list");
        assert!(!same.is_empty() && same.iter().all(|one| *one == true), "{same:?}");
        browser.click("[data-areas='none']");
        browser.until(&format!("{areas} === 0"));
        if browser.value("shown.model.head.memory.time_ns.length > 1") == true {
            browser.click("[data-areas='kinds']");
            browser.until(&format!("{areas} > 3 && byId('areas').textContent.includes('modules')"));
            browser.assert_sound("kinds of memory");
        }
        browser.click("#chart .window");
        let window = "(({ begin_ns, end_ns }) => state.from === begin_ns && state.to === end_ns)(
            shown.model.head.windows[0])";
        browser.until(window);
        browser.until("document.querySelector('#range button') !== null");
        browser.click("#range button");
        browser.until("state.from === null");
        browser.value(
            "(() => { const select = document.querySelector(\"[aria-label='Range of a window']\");
             select.selectedIndex = 1; select.dispatchEvent(new Event('change')); })()",
        );
        browser.until(window);
        browser.assert_sound(&address);
    }
    // The window contains a quarter of the blocks.
    let name = "shown.model.measures.find((one) => one.name === 'allocations').total";
    browser.until(&format!("shown.model.exact === 'trace' && {name} >= 250 && {name} < 750"));
}

/// Names with markup, of 10 kB, with control characters and characters that change the direction of
/// text.
#[test]
fn names_are_text() {
    let place = scratch("page-names");
    let program = Guest::read("page_names.c").build("page_names.c", &[]);
    let mut command = recorded(&place.join("a.heaptide"), &[]);
    assert_eq!(run(command.arg(program), &place).status, 0);
    let Some(mut browser) = Browser::start(&place) else { return };
    let page = exported(&place);
    for (name, size) in [("desk", DESKTOP), ("phone", PHONE)] {
        browser.open(&page, size);
        for table in look_at_all(&mut browser, &format!("hostile names, {name}")) {
            browser.click(&format!("[data-table='{table}']"));
            let foreign = "document.querySelectorAll('img, u, s').length";
            assert_eq!(browser.value(foreign), 0, "{table}");
        }
        browser.click("[data-table='scopes']");
        let text = "byId('tables').textContent.includes('</script><img src=x onerror=alert(1)>')";
        browser.until(text);
        let turned = "/[\\u202a-\\u202e\\u2066-\\u2069]/.test(document.body.innerText)";
        assert_eq!(browser.value(turned), false, "{name}: text that turns its direction");
        // The longest name has room only left of its mark, where other names are.
        browser.value(
            "(() => { const { head } = shown.model;
             head.marks.forEach((mark, i) => {
               mark.time_ns = head.duration_ns * [0, 0.3, 0.31, 0.5, 0.99][i]; });
             timeline.draw(); return head.marks.length; })()",
        );
        browser.check("overlaps()", &format!("names of marks, {name}"));
    }
}

#[test]
fn the_flame_graph_is_used_by_mouse_and_keys() {
    let place = scratch("page-flames");
    record(&place, &[]);
    let Some(mut browser) = Browser::start(&place) else { return };
    browser.open(&exported(&place), DESKTOP);
    browser.value("byId('canvas').scrollIntoView({ block: 'center' })");
    // The first box below the root that contains others.
    let at = browser.value(
        "(() => { const frame = byId('canvas').getBoundingClientRect();
         const box = flame.panes[0].boxes.find((one) => one.level === 2 && one.node > 0);
         return [frame.left + box.x + box.width / 2, frame.top + 2.5 * flame.row,
           itemText(flame.tree.item[box.node])]; })()",
    );
    let (x, y) = (at[0].as_f64().expect("a point"), at[1].as_f64().expect("a point"));
    browser.click_at(x, y, "left");
    browser.until("state.zoom !== '' && location.hash.includes('zoom=')");
    assert_eq!(browser.value("itemText(flame.tree.item[flame.root])"), at[2]);
    browser.key("Escape");
    browser.until("state.zoom === '' && !location.hash.includes('zoom=')");
    browser.click_at(x, y, "right");
    browser.until("!byId('menu').hidden");
    browser.key("Escape");
    browser.until("byId('menu').hidden");
    // Keyboard only: Tab to the canvas, move down, zoom in and out.
    browser.value("document.querySelector('#flame-views button').focus()");
    for _ in 0..8 {
        if browser.value("document.activeElement.id") == "canvas" {
            break;
        }
        browser.key("Tab");
    }
    assert_eq!(browser.value("document.activeElement.id"), "canvas");
    browser.key("ArrowDown");
    browser.key("ArrowDown");
    browser.until("byId('said').textContent !== ''");
    browser.key("Enter");
    browser.until("state.zoom !== ''");
    browser.key("Escape");
    browser.until("state.zoom === ''");
    // A reload shows the same.
    browser.value("change({ view: 'callers', search: 'block' })");
    let address = browser.text("location.href");
    browser.open(&address, DESKTOP);
    assert_eq!(
        browser.value("[state.view, byId('search').value]").to_string(),
        r#"["callers","block"]"#
    );
    browser.assert_sound("keys");
}

#[test]
fn tables_are_searched_and_sorted() {
    let place = scratch("page-tables");
    record(&place, &[]);
    let Some(mut browser) = Browser::start(&place) else { return };
    browser.open(&exported(&place), DESKTOP);
    browser.click("[data-table='functions']");
    let names = "[...document.querySelectorAll('#tables tbody tr')].map((row) => row.innerText)";
    let before = all(&mut browser, names);
    assert!(before.len() > 3, "{before:?}");
    browser.key("/");
    browser.until("document.activeElement === byId('search')");
    browser.type_text("block");
    browser.until("byId('found').textContent.startsWith('found: ')");
    let found = all(&mut browser, names);
    assert!(!found.is_empty() && found.len() < before.len(), "{found:?}");
    assert!(found.iter().all(|row| row.contains("block")), "{found:?}");
    browser.value("change({ search: '' })");
    let sorted = "document.querySelector('#tables th.text').getAttribute('aria-sort')";
    browser.click("#tables th.text button");
    browser.until(&format!("{sorted} === 'ascending'"));
    let rising = all(&mut browser, names);
    browser.click("#tables th.text button");
    browser.until(&format!("{sorted} === 'descending'"));
    let falling = all(&mut browser, names);
    assert!(rising != falling && rising.len() == falling.len(), "{rising:?}");
    browser.assert_sound("tables");
}

#[test]
fn a_running_program_is_followed_and_queried() {
    let place = scratch("page-live");
    let mut guest = Steps::start(&place, &[]);
    guest.steps("a");
    let Some(mut browser) = Browser::start(&place) else { return };
    let viewer = Viewer::start(&place, &["a.heaptide"]);
    browser.open(&viewer.url(), DESKTOP);
    browser.until("shown.model.head.totals.live_blocks === 10");
    browser.click("[data-table='functions']");
    guest.steps("b");
    // The next event of the server, without user input.
    browser.until("shown.model.head.totals.live_blocks === 15");
    browser.until("byId('tables').textContent.includes('large')");
    browser.assert_sound("live");
    browser.value("byId('query').querySelector('textarea, input').focus()");
    browser.type_text("SELECT sum(live_blocks) AS all_live GROUP BY none");
    browser.value("byId('query').querySelector('button').click()");
    browser.until("byId('query').textContent.includes('all_live')");
    browser
        .until("[...byId('query').querySelectorAll('td')].some((one) => one.textContent === '15')");
    guest.finish();
    browser.assert_sound("after its end");
}

/// Two snapshots side by side: 10 blocks of 104 bytes, then 5 more of 5000.
#[test]
fn two_moments_are_compared() {
    let place = scratch("page-compared");
    let mut guest = Steps::start(&place, &[]);
    guest.steps("a");
    assert_eq!(guest.ctl(&["snapshot", "first"]).status, 0);
    guest.steps("b");
    guest.finish();
    let Some(mut browser) = Browser::start(&place) else { return };
    let viewer = Viewer::start(&place, &["a.heaptide@first", "a.heaptide"]);
    for (name, size) in [("desk", DESKTOP), ("phone", PHONE)] {
        browser.open(&viewer.url(), size);
        browser.until("shown.other !== null && byId('flame-legend').textContent.includes('more')");
        browser.assert_sound(&format!("compared, {name}"));
        let sums = "[shown.model, shown.other].map((one) => one.head.totals.live_blocks)
            .sort((a, b) => a - b)";
        assert_eq!(browser.value(sums), serde_json::json!([10, 15]));
        side_by_side(&mut browser, name);
    }
}

/// A function that allocates at two lines, and maps 32 MiB, which it touches if it has an argument.
const MAPS: &str = r#"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
static void *volatile kept[2];
__attribute__((noinline)) void hold(void)
{
    kept[0] = malloc(600 << 10);
    kept[1] = malloc(400 << 10);
}
int main(int count, char **words)
{
    hold();
    char *own = mmap(0, 32 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (own == MAP_FAILED)
        return 1;
    if (count > 1)
        memset(own, 1, 32 << 20);
    return count > 1 && own[5] != 1;
}
"#;

/// Records the program without an argument as `a.heaptide`, and with one as `b.heaptide`.
fn record_maps(place: &Path) {
    std::fs::write(place.join("maps.c"), MAPS).expect("a source");
    let mut compiler = std::process::Command::new("cc");
    compiler.args(["-O1", "-g", "-fno-builtin", "-o", "maps"]).arg(place.join("maps.c"));
    assert!(compiler.current_dir(place).status().expect("a compiler").success());
    for (name, words) in [("a.heaptide", &[][..]), ("b.heaptide", &["touch"][..])] {
        let mut command = recorded(&place.join(name), &[]);
        let outcome = run(command.arg("./maps").args(words).current_dir(place), place);
        assert_eq!(outcome.status, 0, "{}", outcome.stderr);
    }
}

/// Alone, the second recording shows heap and mappings, and the first one the heap.
#[test]
fn both_sides_of_a_comparison_have_one_kind_of_memory() {
    let place = scratch("page-kinds");
    record_maps(&place);
    let Some(mut browser) = Browser::start(&place) else { return };
    let peak = "shown.model.head.totals.peak_bytes";
    let alone = Viewer::start(&place, &["b.heaptide"]);
    browser.open(&alone.url(), DESKTOP);
    browser.until(&format!("{peak} > 32 << 20 && byId('only-heap') === null"));
    let orders = [["a.heaptide", "b.heaptide"], ["b.heaptide", "a.heaptide"]];
    // A server that ends is an error in the page that it has served.
    let viewers = orders.map(|order| Viewer::start(&place, &order));
    for (order, viewer) in orders.iter().zip(&viewers) {
        browser.open(&viewer.url(), DESKTOP);
        browser.until("shown.other !== null && byId('only-heap') !== null");
        let peaks = "[shown.model, shown.other].map((one) => one.head.totals.peak_bytes >> 20)";
        assert_eq!(browser.value(peaks), serde_json::json!([0, 0]), "{order:?}");
        assert_eq!(browser.value(&format!("{peak} > 1000 << 10")), true);
        browser.assert_sound("one kind");
    }
}

/// The rows of functions and lines have the source text beside them, if the file was not changed.
#[test]
fn lines_of_the_exported_page_have_their_source() {
    let place = scratch("page-source");
    record_maps(&place);
    let Some(mut browser) = Browser::start(&place) else { return };
    browser.open(&exported(&place), DESKTOP);
    let lines = "[...document.querySelectorAll('#tables .line')].map((one) => one.textContent)";
    let expected = [
        "maps.c:8  604 KiBkept[0] = malloc(600 << 10);",
        "maps.c:9  404 KiBkept[1] = malloc(400 << 10);",
    ];
    assert_eq!(all(&mut browser, lines), expected);
    browser.click("[data-table='lines']");
    let text = "document.querySelector('#tables td.text code')?.textContent";
    browser.until(&format!("{text} === 'kept[0] = malloc(600 << 10);'"));
    browser.assert_sound("source texts");
    let changed = std::fs::read_to_string(place.join("maps.c")).expect("it").replace("600", "900");
    std::fs::write(place.join("maps.c"), changed).expect("written");
    browser.open(&exported_again(&place), DESKTOP);
    let codes = "document.querySelectorAll('#tables code.text:not(:empty)').length";
    assert_eq!(browser.value(codes), 0, "its lines may be others");
}

/// Both pictures have the same scale, and move together.
fn side_by_side(browser: &mut Browser, what: &str) {
    browser.value("change({ measure: 'live_blocks' })");
    browser.click("[data-pair='both']");
    browser.until("flame.panes.length === 2 && flame.panes[1].boxes.length > 1");
    browser.load_checks();
    browser.check("blank()", what);
    let width = |browser: &mut Browser, pane: u32, name: &str| {
        let expression = format!(
            "(flame.panes[{pane}].boxes.find((box) => box.node >= 0
             && itemText(flame.tree.item[box.node]) === '{name}')?.width ?? 0) / flame.panes[{pane}].width"
        );
        browser.value(&expression).as_f64().expect("a number")
    };
    let near = |a: f64, b: f64| (a - b).abs() < 0.01;
    // 10 blocks before and 15 now; the full width is 15.
    assert!(near(width(browser, 0, "everything"), 2.0 / 3.0), "{what}");
    assert!(near(width(browser, 1, "everything"), 1.0), "{what}");
    for (pane, small, large) in [(0, 2.0 / 3.0, 0.0), (1, 2.0 / 3.0, 1.0 / 3.0)] {
        assert!(near(width(browser, pane, "small"), small), "{what}, {pane}");
        assert!(near(width(browser, pane, "large"), large), "{what}, {pane}");
    }
    browser.value(
        "zoomTo(flame.panes[1].boxes.find((box) => box.node > 0
         && itemText(flame.tree.item[box.node]) === 'small').node)",
    );
    for pane in [0, 1] {
        assert!(near(width(browser, pane, "small"), 1.0), "{what}, {pane}, zoomed");
    }
    browser.assert_sound(&format!("side by side, {what}"));
    browser.value("change({ pair: 'merged', zoom: '' })");
    browser.until("flame.panes.length === 1");
}

/// 400 blocks at the start of a trace, 200 in the middle: a drag over the chart selects the latter.
#[test]
fn a_range_of_time_is_chosen() {
    const PAUSE: Duration = Duration::from_secs(1);
    let place = scratch("page-range");
    let mut guest = Steps::start(&place, &["--mode", "trace"]);
    guest.steps(&"a".repeat(40));
    thread::sleep(PAUSE);
    guest.steps(&"b".repeat(40));
    thread::sleep(PAUSE);
    guest.finish();
    let Some(mut browser) = Browser::start(&place) else { return };
    let viewer = Viewer::start(&place, &["a.heaptide"]);
    browser.open(&viewer.url(), DESKTOP);
    let at = browser.value(
        "(() => { const chart = document.querySelector('#timeline svg');
         chart.scrollIntoView({ block: 'center' });
         const { left, top, width, height } = chart.getBoundingClientRect();
         return [left, top + height / 3, width]; })()",
    );
    let [left, y, width] = [0, 1, 2].map(|i| at[i].as_f64().expect("a number"));
    browser.drag((left + width * 0.3, y), (left + width * 0.75, y));
    browser.until("state.from !== null && state.from < state.to && shown.model.exact === 'trace'");
    let allocations = "shown.model.measures.find((one) => one.name === 'allocations').total";
    browser.until(&format!("{allocations} === 200"));
    browser.until("byId('tables').textContent.includes('large')");
    browser.assert_sound("a range");
    browser.click("#range button");
    browser.until(&format!("state.from === null && {allocations} === 600"));
    browser.assert_sound("the whole run");
}

/// The panel of the page, as a file and served: each finding expands to its evidence and links to
/// its owner.
#[test]
fn the_page_has_a_panel_of_findings() {
    let place = &scratch("page-findings");
    let program = Guest::read("advise_temporary.c").build("page-findings", &["-DPANEL"]);
    let mut command = recorded(&place.join("a.heaptide"), &[]);
    assert_eq!(run(command.arg(program), place).status, 0);
    let file = exported(place);
    let html = std::fs::read_to_string(place.join("page.html")).expect("a page");
    assert!(html.contains(r#""findings":[{"rule":"temporary","subject":"parse_field""#));
    let Some(mut browser) = Browser::start(place) else { return };
    let viewer = Viewer::start(place, &["a.heaptide"]);
    for address in [file, viewer.url()] {
        for size in [DESKTOP, PHONE] {
            let what = format!("{address} {size:?}");
            browser.open(&address, size);
            browser.until("document.querySelector('#findings details') !== null");
            let open = "document.querySelectorAll('#findings details')
                 .forEach((one) => { one.open = true; })";
            browser.value(open);
            browser.assert_sound(&what);
            browser.load_checks();
            for check in ["boxes()", "names()", "contrast()", "overlaps()"] {
                browser.check(check, &what);
            }
            let text = browser.text("document.querySelector('#findings').textContent");
            assert!(text.contains("parse_field allocates 20,000 blocks"), "{text}");
            assert!(text.contains("--suppress 'temporary:^parse_field$'"), "{text}");
            browser.click("#findings .finding button");
            browser.until("state.search === 'parse_field'");
        }
    }
}
