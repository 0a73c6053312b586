//! Represents the program while it runs: forwards signals sent only to the command, stops together
//! with the program, and records its end.

use std::io;
use std::os::fd::AsFd;
use std::process::ExitStatus;
use std::time::{Duration, Instant};

use heaptide_clock as clock;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};
use nix::unistd::{Pid, getpgid, getpgrp, getpid};

use crate::exec;
use crate::images::{ImageEnd, Images};
use crate::out_of_memory::{Counting, Kills};
use crate::signals::{Received, STOPPING, Signals, sent_to_us_alone};
use crate::start::Held;
use crate::watchdog::{self, Stuck, Watchdog};
use crate::witness::Witness;

/// How long signals are held: enough for a sender that signals a process and then its group, or all
/// processes of a service one by one.
const WINDOW: Duration = Duration::from_millis(5);
/// Programs that run for less time are not watched, because that would take longer.
const UNWATCHED: Duration = Duration::from_millis(100);
/// Signals that the witness received this long after our last one match none of ours.
const LATE: Duration = Duration::from_secs(1);

/// Watches one program.
pub struct Supervisor {
    program: Pid,
    signals: Signals,
    /// `None` if the process could not be created.
    witness: Option<Witness>,
    /// Whether the program is in our pid namespace, where the witness can find it.
    can_be_found: bool,
    images: Option<Images>,
    kills: Option<Counting>,
    /// The time to start watching images.
    watch_at: Option<Instant>,
    watchdog: Watchdog,
    /// The time to look for processes that are stuck, and what to do with them.
    stuck_at: Option<Instant>,
    act_on_stuck: Box<dyn Fn(&Stuck)>,
    /// Signals that are for the command alone, and what they have it do.
    consumed: Vec<(i32, Box<dyn Fn()>)>,
    /// Signals that we received, and the time to decide which of them to forward.
    own: Vec<Received>,
    decide_at: Option<Instant>,
    /// Signals that only the witness received, and the time to forget them.
    seen: Vec<Received>,
    forget_at: Option<Instant>,
}

/// The end of a program.
pub struct Ended {
    /// Its status.
    pub status: ExitStatus,
    /// The ends of images of the recording.
    pub ends: Vec<ImageEnd>,
    /// The processes that the kernel killed meanwhile because memory ran out; `None` if the kernel
    /// does not count them.
    pub out_of_memory: Option<Kills>,
    /// Dropped last, because that takes the kernel a while.
    _images: Option<Images>,
}

impl Supervisor {
    /// Prepares to supervise a program that is not started yet; `words` is the number of its
    /// arguments, which are the last of ours.
    pub fn new(program: &Held, signals: Signals, words: usize) -> Supervisor {
        Supervisor {
            program: program.pid,
            witness: Witness::start(&signals, program.pid, words).ok(),
            can_be_found: program.own_pid == program.pid.as_raw() as u32,
            signals,
            images: None,
            kills: Counting::begin(),
            watch_at: None,
            watchdog: Watchdog::default(),
            stuck_at: None,
            act_on_stuck: Box::new(|_| ()),
            consumed: Vec::new(),
            own: Vec::new(),
            decide_at: None,
            seen: Vec::new(),
            forget_at: None,
        }
    }

    /// Records the ends of these images, too.
    pub fn note_ends(&mut self, images: Images) {
        self.images = Some(images);
        self.watch_at = Some(Instant::now() + UNWATCHED);
    }

    /// Has something done with each process all of whose threads wait in the recorder.
    pub fn on_stuck(&mut self, act: impl Fn(&Stuck) + 'static) {
        self.act_on_stuck = Box::new(act);
        self.stuck_at = Some(Instant::now() + watchdog::EVERY);
    }

    /// Has a signal that is sent to this process do something. It is not forwarded: the program
    /// gets it only if it is sent to the process group.
    pub fn consume(&mut self, signal: i32, act: impl Fn() + 'static) {
        self.consumed.push((signal, Box::new(act)));
    }

    /// Waits for the program's end, and represents it meanwhile.
    pub fn wait(mut self) -> Ended {
        loop {
            // First read signals: the signal of a child that ends later is still to come.
            self.receive();
            if let Some(status) = self.end_of_program() {
                let now = clock::now_ns();
                let images = self.images.as_mut();
                let ends = images.map(|images| images.finish(now)).unwrap_or_default();
                let out_of_memory = self.kills.map(|counting| counting.end());
                return Ended { status, ends, out_of_memory, _images: self.images };
            }
            self.look_at_images();
            self.look_for_stuck();
            self.decide_if_due();
            self.sleep();
        }
    }

    fn look_at_images(&mut self) {
        let Some(images) = &mut self.images else { return };
        if self.watch_at.is_some_and(|at| at <= Instant::now()) {
            self.watch_at = None;
            let _ = images.watch(); // without it the ends of killed processes are less exact
        }
        images.look();
    }

    fn look_for_stuck(&mut self) {
        let now = Instant::now();
        if self.stuck_at.is_some_and(|at| at <= now) {
            self.stuck_at = Some(now + watchdog::EVERY);
            let others = self.images.iter().flat_map(Images::pids);
            let pids = std::iter::once(self.program.as_raw() as u32).chain(others);
            self.watchdog.look(pids, now).iter().for_each(&self.act_on_stuck);
        }
    }

    /// Waits for an event or the next deadline.
    fn sleep(&self) {
        let due = [self.decide_at, self.forget_at, self.watch_at, self.stuck_at]
            .into_iter()
            .flatten()
            .min();
        let timeout = due.map_or(PollTimeout::NONE, |due| {
            // Rounded up: a timeout of zero would loop until the deadline.
            let left = due.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
            PollTimeout::try_from(left).unwrap_or(PollTimeout::MAX)
        });
        let images = self.images.iter().flat_map(Images::descriptors);
        let mut all: Vec<PollFd> = images
            .chain([self.signals.as_fd()])
            .map(|fd| PollFd::new(fd, PollFlags::POLLIN))
            .collect();
        let _ = poll(&mut all, timeout); // after an error the loop checks and comes back here
    }

    fn receive(&mut self) {
        let is_waker = |signal: &Received| {
            let sender = Pid::from_raw(signal.origin.process as i32);
            self.witness.as_ref().is_some_and(|witness| witness.is(sender))
        };
        let news = self.signals.read();
        for news in news.into_iter().filter(|news| !news.is_of_child() && !is_waker(news)) {
            let consumed = self.consumed.iter().find(|(signal, _)| *signal == news.signal);
            if let Some((_, act)) = consumed {
                act();
                continue;
            }
            // Like the kernel does with pending signals; this also applies to those of the witness.
            self.own.retain(|other| !news.cancels(other));
            self.own.push(news);
        }
        if !self.own.is_empty() {
            self.decide_at.get_or_insert_with(|| Instant::now() + WINDOW);
        }
    }

    fn decide_if_due(&mut self) {
        let now = Instant::now();
        if self.decide_at.is_some_and(|at| at <= now) {
            self.decide();
        }
        if self.decide_at.is_none() && self.forget_at.is_some_and(|at| at <= now) {
            self.forget_at = None;
            self.ask_witness();
            self.seen.clear();
        }
    }

    fn decide(&mut self) {
        self.decide_at = None;
        self.forget_at = Some(Instant::now() + LATE);
        self.ask_witness();
        let own = std::mem::take(&mut self.own);
        let to_forward = if getpgid(Some(self.program)) != Ok(getpgrp()) {
            self.seen.clear(); // it left our group, so it did not receive the group's signals
            own
        } else if self.witness.is_some() {
            sent_to_us_alone(own, &mut self.seen)
        } else {
            // Signals from the kernel come from a terminal, which signals the whole group.
            own.into_iter().filter(|signal| signal.origin.process != 0).collect()
        };
        for signal in &to_forward {
            signal.forward(self.program);
        }
    }

    fn ask_witness(&mut self) {
        match self.witness.as_mut().map(Witness::seen) {
            Some(Ok(seen)) => self.seen.extend(seen),
            Some(Err(_)) => self.witness = None, // the witness was killed
            None => {}
        }
    }

    /// Returns the program's status, once it has ended. Reaps other children, which an earlier
    /// program in this process has left, or which the first process of a container inherits.
    fn end_of_program(&mut self) -> Option<ExitStatus> {
        use std::os::unix::process::ExitStatusExt;
        while let Some((child, status)) = exec::changed_child() {
            let stopped = status.stopped_signal();
            if child == self.program && stopped.is_none() && !status.continued() {
                return Some(status);
            }
            if let (true, Some(signal)) = (child == self.program, stopped) {
                self.stop_too(signal);
            }
        }
        None
    }

    /// Stops this process like the program was stopped, so that a shell notices. If only the
    /// program is continued, the witness continues this process, too. Without a witness, only stop
    /// signals from a terminal, which continues both, stop this process.
    fn stop_too(&mut self, signal: i32) {
        // The signal that continues this process removes the stop signal from the witness.
        if self.decide_at.is_some() {
            self.decide();
        }
        let is_of_terminal = STOPPING.contains(&signal);
        let woken = match &mut self.witness {
            Some(witness) if self.can_be_found => witness.wake_me().is_ok(),
            _ => false,
        };
        if woken || is_of_terminal {
            let _ = stop(signal); // a stopped program and a running command do no harm
        }
    }
}

/// Stops this process with a stop signal.
fn stop(signal: i32) -> io::Result<()> {
    exec::kill(getpid(), signal)?;
    let signal = Signal::try_from(signal)?;
    if signal != Signal::SIGSTOP {
        // It is delivered to this thread as soon as it is unblocked.
        let set = SigSet::from_iter([signal]);
        set.thread_unblock()?;
        set.thread_block()?;
    }
    Ok(())
}
