//! The main loop: handles events of sources and the terminal, and draws.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use heaptide_clock as clock;
use heaptide_render::shared::command_line::command_line;
use nix::sys::signal::Signal;

use crate::error::Error;
use crate::model::app::{App, Image, Input, Overlay, Request, Status};
use crate::model::view::View;
use crate::screen::{self, Places, Style};
use crate::source::images::{self, Prepare};
use crate::source::live::{Asked, Live, thread_time};
use crate::source::replay::Replay;
use crate::source::replaying;
use crate::source::update::{Reports, Update};
use crate::terminal::{self, Heard, Pressed, Screen};

/// The time per stop of a playing replay.
const PLAY: Duration = Duration::from_millis(200);
/// Events within this time are drawn together.
const FRAME: Duration = Duration::from_millis(15);
/// The longest title, in characters; the screen truncates it further.
const TITLE_MAX: usize = 500;

/// Whether a recording is followed or replayed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// A running process.
    Live,
    /// A finished process, or the recording of a running one so far.
    Replay,
}

/// What to show, and how.
pub struct Options {
    /// A recording, or a profile in it.
    pub recording: PathBuf,
    /// Whether it is followed or replayed.
    pub mode: Mode,
    /// The process to show first; `None` for the subject.
    pub pid: Option<u32>,
    /// The view to show first.
    pub view: View,
    /// The initial filter, with the syntax of the prompt.
    pub focus: Option<String>,
    /// Whether to use colours.
    pub has_colours: bool,
    /// Applies rules and filters to processes after reading.
    pub prepare: Prepare,
}

/// An event for the main loop.
enum Event {
    Heard(Heard),
    Update(u32, Update),
}

/// Shows the screen until the user quits.
///
/// Errors: there is no terminal, the process does not exist, or nothing can be read.
pub fn run(options: Options) -> Result<(), Error> {
    let app = App::new(options.view, options.focus.as_deref()).map_err(Error::Filter)?;
    let (image, subject) = choose(&options)?;
    if !terminal::is_there() {
        return Err(Error::NoTerminal);
    }
    let (sender, events) = channel();
    let screen = Screen::enter(&sender, Event::Heard)?;
    let style = Style { has_colours: options.has_colours };
    let mut shown = Shown {
        app,
        recording: recording_of(&options.recording),
        options,
        sender,
        number: 0,
        live: None,
        replay: None,
        next_stop: None,
        places: Places::default(),
        drawn_ns: Arc::default(),
    };
    shown.show(image);
    shown.app.subject = subject;
    shown.until_left(screen, &events, &style)
}

/// Returns the directory of a recording, given the directory or one of its profiles.
fn recording_of(path: &Path) -> PathBuf {
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    if path.is_dir() { path.to_owned() } else { parent.unwrap_or(Path::new(".")).to_owned() }
}

/// Returns the process image to show first, and why unless the user chose it.
fn choose(options: &Options) -> Result<(Image, Option<String>), Error> {
    let recording = || options.recording.clone();
    let mut found = images::list(&options.recording)?;
    if options.mode == Mode::Live {
        found.retain(|image| image.is_running);
    }
    if found.is_empty() {
        return Err(Error::NoneRunning { recording: recording() });
    }
    if let Some(pid) = options.pid {
        let pids = found.iter().map(|image| image.pid).collect();
        found.retain(|image| image.pid == pid);
        if found.is_empty() {
            return Err(Error::NoProcess { recording: recording(), pid, pids });
        }
    }
    let fits = |image: &Image| found.iter().any(|found| found.file == image.file);
    let first = images::first(&options.recording, fits)?;
    let (image, subject) = first.ok_or_else(|| Error::NoneRunning { recording: recording() })?;
    Ok((image, subject.filter(|_| options.pid.is_none())))
}

/// The state of the main loop.
struct Shown {
    app: App,
    options: Options,
    /// The recording for the list of processes.
    recording: PathBuf,
    sender: Sender<Event>,
    /// Numbers sources, so that reports of an earlier one are ignored.
    number: u32,
    live: Option<Live>,
    replay: Option<Box<Replay>>,
    /// While a replay plays, when its next stop is due, by the clock of recordings.
    next_stop: Option<Duration>,
    places: Places,
    /// Processor time of the last update of the screen.
    drawn_ns: Arc<AtomicU64>,
}

/// Whether the main loop continues.
enum Next {
    Continue,
    Leave(Result<(), Error>),
    EndBy(Signal),
}

impl Shown {
    fn until_left(
        &mut self,
        mut screen: Screen,
        events: &Receiver<Event>,
        style: &Style,
    ) -> Result<(), Error> {
        loop {
            let begin = thread_time();
            let draw = |frame: &mut ratatui::Frame| {
                self.places = screen::draw(frame, &mut self.app, style)
            };
            screen.terminal.draw(draw)?;
            let took = thread_time().saturating_sub(begin).as_nanos();
            self.drawn_ns.store(u64::try_from(took).unwrap_or(u64::MAX), Ordering::Relaxed);
            let first = match events.recv_timeout(self.patience()) {
                Ok(event) => Some(event),
                Err(RecvTimeoutError::Timeout) => {
                    self.play();
                    None
                }
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            };
            // Draws events that follow immediately together with this one.
            let end = Instant::now() + FRAME;
            let rest = std::iter::from_fn(|| {
                events.recv_timeout(end.saturating_duration_since(Instant::now())).ok()
            });
            for event in first.into_iter().chain(rest) {
                match self.event(event, &mut screen)? {
                    Next::Continue => {}
                    Next::Leave(result) => return result,
                    Next::EndBy(signal) => {
                        screen.end_by(signal);
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Returns how long to wait for events.
    fn patience(&mut self) -> Duration {
        if !self.app.is_playing {
            self.next_stop = None;
            return Duration::from_secs(3600);
        }
        let now = clock::now();
        let next = *self.next_stop.get_or_insert(now + PLAY);
        clock::longest_wait(next.saturating_sub(now))
    }

    fn event(&mut self, event: Event, screen: &mut Screen) -> Result<Next, Error> {
        match event {
            Event::Update(number, update) if number == self.number => {
                return Ok(self.update(update));
            }
            Event::Update(..) | Event::Heard(Heard::Resized) => {}
            Event::Heard(Heard::Closed) => return Ok(Next::Leave(Ok(()))),
            Event::Heard(Heard::Key(key)) => match terminal::key(key) {
                Some(Pressed::Input(input)) => return Ok(self.input(input)),
                Some(Pressed::Suspend) => screen.suspend()?,
                Some(Pressed::Redraw) => screen.redraw()?,
                None => {}
            },
            Event::Heard(Heard::Mouse(mouse)) => {
                if let Some(input) = terminal::mouse(mouse, &self.places) {
                    return Ok(self.input(input));
                }
            }
            Event::Heard(Heard::Signal(Signal::SIGTSTP)) => screen.suspend()?,
            Event::Heard(Heard::Signal(Signal::SIGCONT)) => {
                self.next_stop = None; // the stops of that time would follow without a pause
                screen.resume()?;
            }
            Event::Heard(Heard::Signal(signal)) => return Ok(Next::EndBy(signal)),
        }
        Ok(Next::Continue)
    }

    fn input(&mut self, input: Input) -> Next {
        match self.app.input(input) {
            None => {}
            Some(Request::Quit) => return Next::Leave(Ok(())),
            Some(Request::Mark) => self.ask(Asked::Mark),
            Some(Request::Snapshot) => self.ask(Asked::Snapshot),
            Some(Request::Processes) => self.list(),
            Some(Request::Switch(image)) => self.show(image),
            Some(Request::Seek(by)) => self.seek(|stop| stop.saturating_add_signed(by)),
            Some(Request::SeekTo(stop)) => self.seek(|_| stop),
        }
        Next::Continue
    }

    fn reports(&self) -> Reports<Event> {
        Reports::new(self.sender.clone(), Event::Update, self.number)
    }

    /// Switches to a process.
    fn show(&mut self, image: Image) {
        self.number += 1;
        (self.live, self.replay) = (None, None);
        self.app.forget();
        self.app.title = title(&image, &image.program);
        let (prepare, reports) = (self.options.prepare.clone(), self.reports());
        let is_live = image.is_running && self.options.mode == Mode::Live;
        let started = if is_live {
            Live::start(&self.recording, &image, &prepare, &reports, &self.drawn_ns).map(|live| {
                self.live = Some(live);
            })
        } else {
            replaying::start(&image, &prepare, &reports)
        };
        if let Err(error) = started {
            self.app.status = Status::Ended(format!("cannot start a thread: {error}"));
        }
    }

    fn ask(&mut self, what: Asked) {
        match &self.live {
            Some(live) if !matches!(self.app.status, Status::Ended(_)) => {
                live.request(what, &self.reports());
            }
            _ => self.app.message = Some("the program has ended".to_owned()),
        }
    }

    /// Lists the processes in another thread, because there may be thousands on the machine.
    fn list(&mut self) {
        let (recording, reports) = (self.recording.clone(), self.reports());
        let list = move || match images::list(&recording) {
            Ok(images) => reports.send(Update::Images(images)),
            Err(error) => reports.send(Update::Answer(error.to_string())),
        };
        if let Err(error) = thread::Builder::new().spawn(list) {
            self.app.message = Some(format!("cannot start a thread: {error}"));
        }
    }

    fn update(&mut self, update: Update) -> Next {
        match update {
            Update::Progress(line) => self.app.status = Status::Reading(line),
            Update::Tables(tables) => {
                self.app.title = title_of(&tables.process);
                self.app.set_tables(tables);
            }
            Update::Moment(moment) => self.app.set_moment(moment),
            Update::Samples(samples) => self.app.add_samples(&samples),
            Update::Ended(how) => self.app.end(how),
            Update::Replaced(image) => {
                let pid = image.pid;
                self.show(image);
                self.app.message =
                    Some(format!("pid {pid} executed another program; press p to list all"));
            }
            Update::Replay(mut replay) => {
                if let Some(tables) = replay.tables.take() {
                    self.app.title = title_of(&tables.process);
                    self.app.set_tables(tables);
                }
                self.app.add_samples(replay.samples());
                let last = replay.stops.len().saturating_sub(1);
                self.replay = Some(replay);
                self.seek(|_| last);
            }
            Update::Images(images) => {
                let is_it = |image: &Image| {
                    let replayed = self.replay.as_ref().map(|replay| replay.file());
                    let file = self.live.as_ref().map(Live::file).or(replayed);
                    Some(&*image.file) == file
                };
                let at = images.iter().position(is_it).unwrap_or(0);
                self.app.overlay = Overlay::Processes { images, at };
            }
            Update::Answer(line) => self.app.message = Some(line),
            Update::Failed(line) => return Next::Leave(Err(Error::Source(line))),
        }
        Next::Continue
    }

    /// Moves a replay to another stop; does nothing for a live process.
    fn seek(&mut self, to: impl FnOnce(usize) -> usize) {
        let Some(replay) = &self.replay else { return };
        let at = match self.app.status {
            Status::Replay { stop, .. } => stop,
            _ => 0,
        };
        let stops = replay.stops.len();
        let stop = to(at).min(stops.saturating_sub(1));
        let has_rates = |stop: usize| replay.stops.get(stop).is_some_and(|stop| stop.has_rates);
        let before = stop.checked_sub(1).filter(|&before| has_rates(before) && has_rates(stop));
        let before = before.map(|before| replay.moment(before));
        self.app.show_stop(before, replay.moment(stop));
        let name = replay.stops.get(stop).map(|stop| stop.name.clone()).unwrap_or_default();
        self.app.status = Status::Replay { stop, stops, name };
    }

    /// Advances a playing replay.
    fn play(&mut self) {
        let Status::Replay { stop, stops, .. } = self.app.status else { return };
        let Some(next) = self.next_stop.filter(|next| *next <= clock::now()) else { return };
        self.next_stop = Some(next + PLAY);
        self.seek(|stop| stop + 1);
        self.app.is_playing = stop + 2 < stops;
    }
}

fn title(image: &Image, program: &str) -> String {
    format!("{program}  pid {}", image.pid)
}

/// Returns the command line of a process, and its pid.
fn title_of(process: &heaptide_analysis::model::Process) -> String {
    format!("{}  pid {}", command_line(process, TITLE_MAX), process.identity.pid)
}
