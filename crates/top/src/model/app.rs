//! The state of the program: what is shown, and how keys change it.

use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::Arc;

use heaptide_analysis::model::{Mode, Sample};
use heaptide_analysis::selection::pattern::Pattern;

use super::numbers::{Moment, Moments};
use super::page::{Order, Page, Row, Rows};
use super::tables::{Mask, Tables};
use super::tree::{Direction, Tree};
use super::view::{Column, Key, View};

/// Rates are averages over this time, in nanoseconds, or over the available part of it.
const RATE_NS: u64 = 1_000_000_000;
/// The most points of the chart; when there are more, every second one is dropped.
const POINTS_MAX: usize = 4096;
/// The time range of the recent chart, in nanoseconds.
pub(crate) const RECENT_NS: u64 = 60_000_000_000;
/// Rows per step of the mouse wheel.
const WHEEL: isize = 3;
/// The longest input of the prompt, in characters: enough for a regular expression typed by hand.
const PROMPT_MAX: usize = 500;

/// An action of the user.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Input {
    Char(char),
    Enter,
    Escape,
    Backspace,
    Tab,
    BackTab,
    Left,
    Right,
    /// Moves the selection by this many rows.
    Move(isize),
    /// Moves the selection by this many screens.
    MovePages(isize),
    Home,
    End,
    /// The wheel was turned; positive values are down.
    Wheel(isize),
    /// A row of the table was clicked; its position on the screen.
    ClickRow(usize),
    ClickColumn(Column),
    ClickView(View),
    /// A key that quits in any state.
    Interrupt,
}

/// A request of the user to other parts than the screen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Request {
    Quit,
    /// Set a mark in the recording.
    Mark,
    Snapshot,
    /// List the processes.
    Processes,
    /// Switch to another process.
    Switch(Image),
    /// Move a replay by this many stops.
    Seek(isize),
    /// Move a replay to the stop with this number.
    SeekTo(usize),
}

/// A process image of the recording.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Image {
    pub(crate) file: PathBuf,
    /// The pid in this pid namespace; for a finished process, that in its recording.
    pub(crate) pid: u32,
    pub(crate) image: u32,
    pub(crate) program: String,
    pub(crate) is_running: bool,
    pub(crate) peak_bytes: u64,
}

/// The state of the program apart from its tables.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Status {
    /// Its tables are being read.
    Reading(String),
    Running,
    /// It has ended.
    Ended(String),
    /// A replay: the number of the current stop, the number of stops, and the stop's name.
    Replay {
        stop: usize,
        stops: usize,
        name: String,
    },
}

/// The overlay above the table.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Overlay {
    None,
    Help,
    /// The input of the filter prompt, and its error.
    Prompt {
        text: String,
        wrong: Option<String>,
    },
    /// The list of processes, and the selected one.
    Processes {
        images: Vec<Image>,
        at: usize,
    },
}

/// A filter, as entered.
#[derive(Clone, Debug)]
pub(crate) struct Filter {
    pub(crate) text: String,
    pattern: Pattern,
    /// Whether it selects matching rows, or excludes them.
    is_wanted: bool,
}

/// A row that the user zoomed into: the tree of a function, or a part of another view.
pub(crate) struct Zoom {
    view: View,
    /// The name of the row, which is stable across updates of the tables.
    lasting_name: String,
    pub(crate) direction: Direction,
    /// The row in the current tables; `None` if they do not have it.
    key: Option<Key>,
    tree: Option<Tree>,
    /// The previous view.
    before: View,
}

/// The scroll position.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Scroll {
    /// The first visible row.
    pub(crate) top: usize,
    /// The selected row.
    pub(crate) at: usize,
    /// The number of rows that fit on the screen.
    pub(crate) height: usize,
}

/// A point of the chart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Point {
    pub(crate) time_ns: u64,
    pub(crate) live_bytes: u64,
    pub(crate) resident_bytes: u64,
}

/// The state.
pub(crate) struct App {
    /// The command line of the program, and its pid.
    pub(crate) title: String,
    /// Which process of the recording is shown, and why; `None` if the user chose it or there is
    /// only one.
    pub(crate) subject: Option<String>,
    /// What holds most memory now.
    pub(crate) sentence: Option<String>,
    pub(crate) status: Status,
    pub(crate) message: Option<String>,
    pub(crate) overlay: Overlay,
    pub(crate) view: View,
    pub(crate) column: Column,
    pub(crate) order: Order,
    pub(crate) filter: Option<Filter>,
    pub(crate) zooms: Vec<Zoom>,
    pub(crate) scroll: Scroll,
    pub(crate) page: Page,
    pub(crate) is_paused: bool,
    /// Whether a replay is advancing.
    pub(crate) is_playing: bool,
    pub(crate) chart_is_recent: bool,
    pub(crate) points: Vec<Point>,
    pub(crate) tables: Option<Box<Tables>>,
    mask: Option<Mask>,
    recent: VecDeque<Arc<Moment>>,
    /// The counters that growth counts from, once the user has set a mark.
    mark: Option<Arc<Moment>>,
    /// The first counters of a running program, which growth counts from until then.
    first: Option<Arc<Moment>>,
    /// The selected row, once the user has moved.
    selected: Option<Key>,
    /// Whether the page has to be recomputed.
    is_stale: bool,
}

impl App {
    /// Creates an empty state. `filter` has the syntax of the prompt.
    ///
    /// Errors: the filter is no valid pattern.
    pub(crate) fn new(view: View, filter: Option<&str>) -> Result<App, String> {
        Ok(App {
            title: String::new(),
            subject: None,
            sentence: None,
            status: Status::Reading("reading".to_owned()),
            message: None,
            overlay: Overlay::None,
            view,
            column: Column::Live,
            order: Order::default(),
            filter: filter.map(Filter::parse).transpose()?,
            zooms: Vec::new(),
            scroll: Scroll::default(),
            page: Page::default(),
            is_paused: false,
            is_playing: false,
            chart_is_recent: false,
            points: Vec::new(),
            tables: None,
            mask: None,
            recent: VecDeque::new(),
            mark: None,
            first: None,
            selected: None,
            is_stale: true,
        })
    }

    /// Discards all data of a process, to show another one.
    pub(crate) fn forget(&mut self) {
        (self.tables, self.mask, self.selected) = (None, None, None);
        (self.mark, self.first) = (None, None);
        self.recent.clear();
        self.points.clear();
        self.zooms.clear();
        (self.subject, self.sentence) = (None, None);
        self.page = Page::default();
        self.scroll = Scroll { height: self.scroll.height, ..Scroll::default() };
        self.is_paused = false;
        self.status = Status::Reading("reading".to_owned());
    }

    /// Replaces the tables of the same process; the selection stays.
    pub(crate) fn set_tables(&mut self, tables: Box<Tables>) {
        let selected = self.tables.as_ref().zip(self.selected);
        let selected = selected.map(|(old, key)| (key.view(), old.lasting_name(key)));
        let has_stacks = tables.process.mode == Mode::Stacks;
        if self.tables.is_none() && !has_stacks && self.view == View::Owners {
            self.view = View::Scopes;
        }
        self.tables = Some(tables);
        if let Status::Reading(_) = self.status {
            self.status = Status::Running;
        }
        self.rezoom();
        let tables = self.tables.as_ref();
        self.selected = selected.and_then(|(view, name)| tables?.find(view, &name));
        self.is_stale = true;
    }

    /// Shows new counters. For a live process, time must not run backwards.
    pub(crate) fn set_moment(&mut self, moment: Moment) {
        let live_bytes = self.live_bytes(&moment);
        let (time_ns, resident_bytes) = (moment.time_ns, moment.resident_bytes);
        self.add_point(Point { time_ns, live_bytes, resident_bytes });
        if self.is_paused {
            return;
        }
        let same = self.recent.back().is_some_and(|last| Arc::ptr_eq(&last.counts, &moment.counts));
        let moment = Arc::new(moment);
        self.first.get_or_insert_with(|| moment.clone());
        self.recent.push_back(moment);
        let old_ns = time_ns.saturating_sub(RATE_NS);
        while self.recent.get(1).is_some_and(|second| second.time_ns <= old_ns) {
            let first = self.recent.pop_front();
            let counts = first.as_ref().map(|first| &first.counts);
            let next = self.recent.front().map(|next| &next.counts);
            self.is_stale |= !counts.zip(next).is_some_and(|(a, b)| Arc::ptr_eq(a, b));
        }
        self.is_stale |= !same;
    }

    /// Records that the process has ended and no longer allocates.
    pub(crate) fn end(&mut self, how: String) {
        self.status = Status::Ended(how);
        let last = self.recent.len().saturating_sub(1);
        self.recent.drain(..last);
        self.is_stale = true;
    }

    /// Shows a stop of a replay, which may be earlier than the current one, with rates since
    /// `before`.
    pub(crate) fn show_stop(&mut self, before: Option<Moment>, moment: Moment) {
        self.recent.clear();
        self.recent.extend(before.into_iter().chain([moment]).map(Arc::new));
        self.is_stale = true;
    }

    /// Adds the recorder's samples to the chart.
    pub(crate) fn add_samples(&mut self, samples: &[Sample]) {
        for sample in samples {
            let Sample { time_ns, live_bytes, resident_bytes, .. } = *sample;
            self.add_point(Point { time_ns, live_bytes, resident_bytes });
        }
    }

    fn add_point(&mut self, point: Point) {
        self.points.push(point);
        if self.points.len() > POINTS_MAX {
            self.points.sort_by_key(|point| point.time_ns);
            let mut is_kept = false;
            self.points.retain(|_| {
                is_kept = !is_kept;
                is_kept
            });
        }
    }

    /// Returns the current counters.
    pub(crate) fn now(&self) -> Option<&Moment> {
        self.recent.back().map(|moment| &**moment)
    }

    /// Returns the counters that growth counts from: those at the mark or, without one, the first
    /// ones of a running program; none while they are also the current ones.
    pub(crate) fn mark(&self) -> Option<&Moment> {
        let is_earlier = |first: &&Moment| self.now().is_some_and(|n| n.time_ns > first.time_ns);
        self.mark.as_deref().or_else(|| self.first.as_deref().filter(is_earlier))
    }

    pub(crate) fn moments(&self) -> Option<Moments<'_>> {
        let before = self.recent.front().filter(|_| self.recent.len() > 1);
        let (before, mark) = (before.map(|m| &**m), self.mark());
        Some(Moments { now: self.now()?, before, mark, is_marked: self.mark.is_some() })
    }

    /// Returns live bytes of the whole recording in these counters.
    fn live_bytes(&self, moment: &Moment) -> u64 {
        let mut sum = heaptide_analysis::recording::live::Counts::default();
        moment.counts.iter().for_each(|counts| sum.add(counts));
        sum.live_bytes
    }

    /// Recomputes the page for a table of `height` rows, if anything visible has changed.
    pub(crate) fn refresh(&mut self, height: usize) {
        self.scroll.height = height.max(1);
        if self.is_stale {
            self.compute();
        }
        self.settle();
    }

    fn compute(&mut self) {
        let Some(tables) = self.tables.take() else { return };
        if self.mask.is_none() {
            self.mask = Some(self.mask_of(&tables));
        }
        if let (Some(moments), Some(mask)) = (self.moments(), &self.mask) {
            let tree = self.zooms.last().and_then(|zoom| zoom.tree.as_ref());
            let page = match tree {
                Some(tree) => Page::of_tree(&tables, tree, &moments, mask, self.column),
                None => Page::of_view(&tables, self.view, &moments, mask),
            };
            let sentence = self.sentence_of(&tables, &page, &moments);
            (self.page, self.sentence) = (page, sentence);
            self.is_stale = false;
        }
        self.tables = Some(tables);
    }

    /// Returns what holds most memory, regardless of filter, zoomed row and view.
    fn sentence_of(&self, tables: &Tables, page: &Page, moments: &Moments) -> Option<String> {
        let holders = tables.holders();
        let is_all = self.filter.is_none() && self.zooms.is_empty() && self.view == holders;
        match &page.rows {
            Rows::Flat(rows) if is_all => tables.sentence(rows, moments),
            _ => {
                let (rows, _) = tables.sums(holders, moments, &tables.everything());
                tables.sentence(&rows, moments)
            }
        }
    }

    /// Returns the rows that count: those that pass the filter, within the zoomed row.
    fn mask_of(&self, tables: &Tables) -> Mask {
        let mut mask = match &self.filter {
            Some(filter) => tables.matching(&filter.pattern, filter.is_wanted),
            None => tables.everything(),
        };
        for zoom in &self.zooms {
            if let Some(key) = zoom.key {
                mask = mask.and(&tables.within(key));
            }
        }
        mask
    }

    /// Keeps the selected row selected and visible, and sorts the visible rows.
    fn settle(&mut self) {
        let (column, order) = (self.column, self.order);
        if let Some(place) = self.selected.and_then(|key| self.page.place(key, column, order)) {
            self.scroll.at = place;
        }
        let last = self.page.len().saturating_sub(1);
        let Scroll { at, top, height } = &mut self.scroll;
        *at = (*at).min(last);
        *top = (*top).min(*at).max((*at + 1).saturating_sub(*height));
        *top = (*top).min((last + 1).saturating_sub(*height));
        let shown = *top + *height;
        self.page.order(column, order, shown);
    }

    /// Returns the visible rows.
    pub(crate) fn rows(&self) -> impl Iterator<Item = (usize, Row)> {
        let Scroll { top, height, .. } = self.scroll;
        (top..top + height).filter_map(|place| Some((place, self.page.row(place)?)))
    }

    /// Returns the names of the rows that the user zoomed into.
    pub(crate) fn path(&self) -> Vec<String> {
        let name = |zoom: &Zoom| {
            let name = zoom.lasting_name.lines().next().unwrap_or_default();
            match zoom.tree {
                Some(_) => format!("{} of {name}", zoom.direction.title()),
                None => format!("{} {name}", zoom.view.name()),
            }
        };
        self.zooms.iter().map(name).collect()
    }

    /// Returns whether a tree is shown instead of a view.
    pub(crate) fn has_tree(&self) -> bool {
        self.zooms.last().is_some_and(|zoom| zoom.tree.is_some())
    }

    /// Performs an action of the user.
    pub(crate) fn input(&mut self, input: Input) -> Option<Request> {
        if input == Input::Interrupt {
            return Some(Request::Quit);
        }
        self.message = None;
        match std::mem::replace(&mut self.overlay, Overlay::None) {
            Overlay::Prompt { text, .. } => {
                self.input_to_prompt(text, input);
                None
            }
            Overlay::Processes { images, at } => self.input_to_processes(images, at, input),
            // Any key closes the help.
            Overlay::Help => None,
            Overlay::None => self.input_to_table(input),
        }
    }

    fn input_to_prompt(&mut self, mut text: String, input: Input) {
        match input {
            Input::Escape => return,
            Input::Enter if text.is_empty() => {
                self.set_filter(None);
                return;
            }
            Input::Enter => match Filter::parse(&text) {
                Ok(filter) => {
                    self.set_filter(Some(filter));
                    return;
                }
                Err(wrong) => {
                    self.overlay = Overlay::Prompt { text, wrong: Some(wrong) };
                    return;
                }
            },
            Input::Char(c) if text.chars().count() < PROMPT_MAX => text.push(c),
            Input::Backspace => _ = text.pop(),
            _ => {}
        }
        self.overlay = Overlay::Prompt { text, wrong: None };
    }

    fn set_filter(&mut self, filter: Option<Filter>) {
        self.filter = filter;
        self.rezoom();
        self.change_rows();
    }

    fn input_to_processes(
        &mut self,
        images: Vec<Image>,
        at: usize,
        input: Input,
    ) -> Option<Request> {
        let last = images.len().saturating_sub(1);
        let to = |by: isize| at.saturating_add_signed(by).min(last);
        let at = match input {
            Input::Move(by) | Input::Wheel(by) => to(by),
            Input::Char('j') => to(1),
            Input::Char('k') => to(-1),
            Input::Home => 0,
            Input::End => last,
            Input::ClickRow(row) if row <= last => row,
            Input::Enter => return images.into_iter().nth(at).map(Request::Switch),
            Input::Escape | Input::Char('p' | 'q') | Input::Backspace => return None,
            _ => at,
        };
        self.overlay = Overlay::Processes { images, at };
        None
    }

    fn input_to_table(&mut self, input: Input) -> Option<Request> {
        match input {
            Input::Char(c) => return self.key(c),
            Input::Enter => self.zoom(),
            Input::Backspace => self.back(),
            Input::Escape if self.filter.is_some() && self.zooms.is_empty() => {
                self.set_filter(None);
            }
            Input::Escape => self.back(),
            Input::Tab => self.turn_view(1),
            Input::BackTab => self.turn_view(View::ALL.len() - 1),
            Input::Left | Input::Right => {
                let by = if input == Input::Left { -1 } else { 1 };
                match self.status {
                    Status::Replay { .. } => return Some(Request::Seek(by)),
                    _ => self.turn_column(by),
                }
            }
            Input::Move(by) => self.move_by(by),
            Input::Wheel(by) => self.move_by(by * WHEEL),
            Input::MovePages(by) => self.move_by(by * self.scroll.height as isize),
            Input::Home => self.move_by(isize::MIN),
            Input::End => self.move_by(isize::MAX),
            Input::ClickRow(row) => {
                let place = self.scroll.top + row;
                if place < self.page.len() {
                    self.select(place);
                }
            }
            Input::ClickColumn(column) => self.sort_by(column),
            Input::ClickView(view) => self.set_view(view),
            Input::Interrupt => return Some(Request::Quit),
        }
        None
    }

    fn key(&mut self, c: char) -> Option<Request> {
        let is_replay = matches!(self.status, Status::Replay { .. });
        match c {
            'q' => return Some(Request::Quit),
            '?' | 'h' => self.overlay = Overlay::Help,
            '/' => {
                let text = self.filter.take().map(|filter| filter.text).unwrap_or_default();
                // The filter stays until another one is entered.
                self.filter = Filter::parse(&text).ok().filter(|_| !text.is_empty());
                self.overlay = Overlay::Prompt { text, wrong: None };
            }
            '1'..='7' => {
                let index = c as usize - '1' as usize;
                self.set_view(View::ALL[index]);
            }
            's' | '>' => self.turn_column(1),
            '<' => self.turn_column(-1),
            'r' => self.turn_order(),
            'c' => self.turn_tree(),
            'j' => self.move_by(1),
            'k' => self.move_by(-1),
            't' => self.chart_is_recent = !self.chart_is_recent,
            ' ' if is_replay => self.is_playing = !self.is_playing,
            ' ' => self.is_paused = !self.is_paused,
            'm' => {
                self.mark = self.recent.back().cloned();
                self.is_stale = true;
                if is_replay || matches!(self.status, Status::Ended(_)) {
                    self.message = Some("growth counts from this moment".to_owned());
                } else {
                    return Some(Request::Mark);
                }
            }
            'S' | 'w' if !is_replay => return Some(Request::Snapshot),
            'p' => return Some(Request::Processes),
            'g' if is_replay => return Some(Request::SeekTo(0)),
            'G' if is_replay => return Some(Request::SeekTo(usize::MAX)),
            'g' => self.move_by(isize::MIN),
            'G' => self.move_by(isize::MAX),
            _ => {}
        }
        None
    }

    fn set_view(&mut self, view: View) {
        // Leave trees, which have rows of their own.
        while self.has_tree() {
            self.zooms.pop();
        }
        self.view = view;
        self.change_rows();
    }

    fn turn_view(&mut self, by: usize) {
        self.set_view(View::ALL[(self.view.index() + by) % View::ALL.len()]);
    }

    fn turn_column(&mut self, by: isize) {
        let count = Column::ALL.len() as isize;
        let at = Column::ALL.iter().position(|column| *column == self.column).unwrap_or(0);
        self.sort_by(Column::ALL[(at as isize + by).rem_euclid(count) as usize]);
    }

    /// Sorts by a column, or reverses the order if it is already the sort column.
    fn sort_by(&mut self, column: Column) {
        if self.column == column {
            self.turn_order();
        } else {
            (self.column, self.order) = (column, Order::LargestFirst);
        }
        self.is_stale |= self.has_tree();
    }

    fn turn_order(&mut self) {
        self.order = match self.order {
            Order::LargestFirst => Order::SmallestFirst,
            Order::SmallestFirst => Order::LargestFirst,
        };
    }

    /// Selects the first row after the rows have changed.
    fn change_rows(&mut self) {
        (self.mask, self.selected, self.is_stale) = (None, None, true);
        (self.scroll.at, self.scroll.top) = (0, 0);
    }

    fn move_by(&mut self, by: isize) {
        let last = self.page.len().saturating_sub(1);
        self.select(self.scroll.at.saturating_add_signed(by).min(last));
    }

    fn select(&mut self, place: usize) {
        self.scroll.at = place;
        let height = self.scroll.height;
        self.page.order(self.column, self.order, place + height);
        let is_flat = !self.has_tree();
        self.selected = self.page.row(place).map(|row| row.key).filter(|_| is_flat);
    }

    /// Zooms into the selected row.
    fn zoom(&mut self) {
        let Some(row) = self.page.row(self.scroll.at) else { return };
        if self.has_tree() && self.scroll.at == 0 {
            self.turn_tree();
            return;
        }
        let Some(tables) = &self.tables else { return };
        let lasting_name = tables.lasting_name(row.key);
        let zoom = Zoom {
            view: row.key.view(),
            lasting_name,
            direction: Direction::default(),
            key: None,
            tree: None,
            before: self.view,
        };
        if row.key == Key::New {
            self.message = Some("these stacks are newer than the tables; wait a moment".to_owned());
            return;
        }
        let is_part = matches!(zoom.view, View::Threads | View::Scopes | View::Labels);
        self.zooms.push(zoom);
        if is_part {
            self.view = View::Owners;
        }
        self.rezoom();
        self.change_rows();
    }

    /// Leaves the last zoom.
    fn back(&mut self) {
        if let Some(zoom) = self.zooms.pop() {
            self.view = zoom.before;
            self.rezoom();
            self.change_rows();
        }
    }

    /// Toggles a tree between callers and callees.
    fn turn_tree(&mut self) {
        if let Some(zoom) = self.zooms.last_mut().filter(|zoom| zoom.tree.is_some()) {
            zoom.direction = zoom.direction.turned();
            self.rezoom();
            self.change_rows();
        }
    }

    /// Looks up the zoomed rows in new tables.
    fn rezoom(&mut self) {
        self.mask = None;
        let Some(tables) = self.tables.take() else { return };
        let mut mask = match &self.filter {
            Some(filter) => tables.matching(&filter.pattern, filter.is_wanted),
            None => tables.everything(),
        };
        let last = self.zooms.len().saturating_sub(1);
        for (index, zoom) in self.zooms.iter_mut().enumerate() {
            zoom.key = tables.find(zoom.view, &zoom.lasting_name);
            zoom.tree = None;
            if let Some(key) = zoom.key {
                mask = mask.and(&tables.within(key));
                if index == last {
                    zoom.tree = Tree::new(&tables, key, zoom.direction, &mask);
                }
            }
        }
        self.tables = Some(tables);
    }
}

impl Filter {
    /// Parses `[KIND:]REGEX`, like `--focus`; with `!` in front, like `--ignore`.
    ///
    /// Errors: a line that describes what is wrong.
    fn parse(text: &str) -> Result<Filter, String> {
        let (is_wanted, rest) = match text.strip_prefix('!') {
            Some(rest) => (false, rest),
            None => (true, text),
        };
        let pattern = rest.parse::<Pattern>().map_err(|error| error.to_string())?;
        Ok(Filter { text: text.to_owned(), pattern, is_wanted })
    }
}
