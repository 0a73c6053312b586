//! The terminal: set up for the screen, and always restored.

use std::io::{self, IsTerminal, Stdout};
use std::panic;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::Sender;
use std::thread;

use crossterm::cursor::Show;
use crossterm::event::{
    DisableMouseCapture, EnableMouseCapture, Event, KeyCode, KeyEvent, KeyEventKind, KeyModifiers,
    MouseButton, MouseEvent, MouseEventKind, read,
};
use crossterm::execute;
use crossterm::terminal::{
    EnterAlternateScreen, LeaveAlternateScreen, disable_raw_mode, enable_raw_mode,
};
use nix::sys::signal::{SigSet, Signal, raise};
use ratatui::Terminal;
use ratatui::backend::CrosstermBackend;
use ratatui::layout::Rect;

use crate::model::app::Input;
use crate::screen::Places;

/// Signals that end or stop the program; the terminal is restored first.
const SIGNALS: [Signal; 6] = [
    Signal::SIGINT,
    Signal::SIGTERM,
    Signal::SIGHUP,
    Signal::SIGQUIT,
    Signal::SIGTSTP,
    Signal::SIGCONT,
];

/// An event of the terminal.
#[derive(Clone, Debug)]
pub(crate) enum Heard {
    Key(KeyEvent),
    Mouse(MouseEvent),
    /// The size of the terminal changed.
    Resized,
    Signal(Signal),
    /// The terminal was closed.
    Closed,
}

/// Returns whether there is a terminal for output and for keys.
pub(crate) fn is_there() -> bool {
    io::stdout().is_terminal() && io::stdin().is_terminal()
}

/// The terminal while it shows the screen. Dropping it restores the terminal.
pub(crate) struct Screen {
    pub(crate) terminal: Terminal<CrosstermBackend<Stdout>>,
    /// The signal mask before.
    before: SigSet,
}

impl Screen {
    /// Sets up the terminal; its events go to `sender`.
    ///
    /// Errors: the terminal cannot be set up, or the thread cannot be created.
    pub(crate) fn enter<T: Send + 'static>(
        sender: &Sender<T>,
        wrap: fn(Heard) -> T,
    ) -> io::Result<Screen> {
        // Before any other thread exists, so that no thread handles them.
        let before = SigSet::thread_get_mask()?;
        let signals: SigSet = SIGNALS.into_iter().collect();
        signals.thread_block()?;
        give_back_on_panic();
        take()?;
        let terminal = Terminal::new(CrosstermBackend::new(io::stdout()));
        // From here on, dropping it restores the terminal.
        let screen = match terminal {
            Ok(terminal) => Screen { terminal, before },
            Err(error) => {
                give_back();
                return Err(error);
            }
        };
        let own = sender.clone();
        thread::Builder::new().spawn(move || {
            while let Ok(signal) = signals.wait() {
                if own.send(wrap(Heard::Signal(signal))).is_err() {
                    break;
                }
            }
        })?;
        let own = sender.clone();
        thread::Builder::new().spawn(move || {
            loop {
                let heard = match read() {
                    Ok(Event::Key(key)) if key.kind != KeyEventKind::Release => Heard::Key(key),
                    Ok(Event::Mouse(mouse)) => Heard::Mouse(mouse),
                    Ok(Event::Resize(..)) => Heard::Resized,
                    Ok(_) => continue,
                    Err(_) => Heard::Closed,
                };
                let is_over = matches!(heard, Heard::Closed);
                if own.send(wrap(heard)).is_err() || is_over {
                    break;
                }
            }
        })?;
        Ok(screen)
    }

    /// Restores the terminal, stops the process as a shell expects, and sets up the terminal again
    /// when the process continues.
    pub(crate) fn suspend(&mut self) -> io::Result<()> {
        give_back();
        raise(Signal::SIGSTOP)?;
        self.resume()
    }

    /// Sets up the terminal again, because others may have used it while the process was stopped.
    pub(crate) fn resume(&mut self) -> io::Result<()> {
        take()?;
        self.redraw()
    }

    /// Forces a complete redraw. (`Terminal::clear` queries the cursor position, and the thread
    /// that reads keys would consume the response.)
    pub(crate) fn redraw(&mut self) -> io::Result<()> {
        let size = self.terminal.size()?;
        self.terminal.resize(Rect::new(0, 0, size.width, size.height))
    }

    /// Restores the terminal and ends with this signal, as if it had not been caught. Returns only
    /// if the signal does not end the process.
    pub(crate) fn end_by(self, signal: Signal) {
        drop(self); // unblocks it
        let _ = raise(signal);
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        give_back();
        let _ = self.before.thread_set_mask();
    }
}

/// Whether the terminal shows the screen. Restoring it twice would move the cursor back to an old
/// position, and later output would be overwritten.
static IS_TAKEN: AtomicBool = AtomicBool::new(false);

fn take() -> io::Result<()> {
    enable_raw_mode()?;
    IS_TAKEN.store(true, Ordering::Relaxed);
    let taken = execute!(io::stdout(), EnterAlternateScreen, EnableMouseCapture);
    if taken.is_err() {
        give_back();
    }
    taken
}

/// Restores as much as possible, ignoring errors: the terminal may be closed.
fn give_back() {
    if !IS_TAKEN.swap(false, Ordering::Relaxed) {
        return;
    }
    let _ = execute!(io::stdout(), DisableMouseCapture, LeaveAlternateScreen, Show);
    let _ = disable_raw_mode();
}

/// Restores the terminal before the message of a panic, so that it appears on the shell's screen.
fn give_back_on_panic() {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        give_back();
        before(info);
    }));
}

/// Returns the action of a key; `None` if it has none.
pub(crate) fn key(key: KeyEvent) -> Option<Pressed> {
    let is_control = key.modifiers.contains(KeyModifiers::CONTROL);
    let input = match key.code {
        KeyCode::Char('z') if is_control => return Some(Pressed::Suspend),
        KeyCode::Char('l') if is_control => return Some(Pressed::Redraw),
        KeyCode::Char('c') if is_control => Input::Interrupt,
        KeyCode::Char(_) if is_control => return None,
        KeyCode::Char(c) => Input::Char(c),
        KeyCode::Enter => Input::Enter,
        KeyCode::Esc => Input::Escape,
        KeyCode::Backspace => Input::Backspace,
        KeyCode::Tab => Input::Tab,
        KeyCode::BackTab => Input::BackTab,
        KeyCode::Left => Input::Left,
        KeyCode::Right => Input::Right,
        KeyCode::Up => Input::Move(-1),
        KeyCode::Down => Input::Move(1),
        KeyCode::PageUp => Input::MovePages(-1),
        KeyCode::PageDown => Input::MovePages(1),
        KeyCode::Home => Input::Home,
        KeyCode::End => Input::End,
        _ => return None,
    };
    Some(Pressed::Input(input))
}

/// The action of a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pressed {
    Input(Input),
    Suspend,
    Redraw,
}

/// Returns the action of a mouse event.
pub(crate) fn mouse(mouse: MouseEvent, places: &Places) -> Option<Input> {
    match mouse.kind {
        MouseEventKind::ScrollDown => Some(Input::Wheel(1)),
        MouseEventKind::ScrollUp => Some(Input::Wheel(-1)),
        MouseEventKind::Down(MouseButton::Left) => places.click(mouse.column, mouse.row),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;
    use std::sync::mpsc;
    use std::time::{Duration, Instant};
    use std::{env, fs};

    use heaptide_fixtures::Scratch;
    use heaptide_fixtures::skips::skip;

    use super::*;

    /// Runs in a terminal, as a separate program.
    #[test]
    #[ignore = "it panics: `a_panic_restores_the_terminal` runs it"]
    fn a_screen_that_panics() {
        assert!(is_there(), "a terminal");
        let (sender, _receiver) = mpsc::channel();
        let _screen = Screen::enter(&sender, |heard| heard).expect("the terminal");
        panic!("a mistake of ours");
    }

    fn tmux(socket: &Path, words: &[&str]) -> String {
        let mut command = Command::new("tmux");
        command.arg("-S").arg(socket).args(["-f", "/dev/null"]).args(words);
        let output = command.env("TERM", "xterm-256color").env_remove("TMUX").output();
        String::from_utf8_lossy(&output.expect("tmux").stdout).into_owned()
    }

    #[test]
    fn a_panic_restores_the_terminal() {
        if Command::new("tmux").arg("-V").output().is_err() {
            return skip("tmux");
        }
        let place = Scratch::new("top-panics");
        let (socket, left) = (place.join("socket"), place.join("left"));
        let own = env::current_exe().expect("this program");
        let test = "terminal::tests::a_screen_that_panics";
        let script = format!(
            "'{}' --ignored --exact --nocapture {test}; echo status $?; \
             stty -a | grep -o -E -e '-?(icanon|echo)\\b' | sort > '{}'; exec sleep 1000",
            own.display(),
            left.display()
        );
        let size = ["-x", "150", "-y", "50"];
        let words = [&["new-session", "-d"], &size[..], &["sh", "-c", &script]].concat();
        tmux(&socket, &words);
        let start = Instant::now();
        while fs::read(&left).unwrap_or_default().is_empty() {
            assert!(start.elapsed() < Duration::from_secs(60), "{}", tmux(&socket, &CAPTURE));
            thread::sleep(Duration::from_millis(20));
        }
        let screen = tmux(&socket, &CAPTURE);
        tmux(&socket, &["kill-server"]);
        assert_eq!(fs::read_to_string(&left).expect("its modes"), "echo\nicanon\n");
        // On the shell's screen, not on the alternate screen that was closed.
        assert!(screen.contains("a mistake of ours") && screen.contains("status 101"), "{screen}");
    }

    const CAPTURE: [&str; 2] = ["capture-pane", "-p"];
}
