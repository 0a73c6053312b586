//! Puts the recorder into static programs that recorded processes execute: a helper process of
//! `heaptide run` listens for requests of the recorder in these processes.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::sync::Arc;
use std::thread;

use heaptide_attach::insert::{Executor, Insertion, Symbols};
use heaptide_attach::thread_of;
use heaptide_command::message::message;
use heaptide_format::attachment::{
    EXECUTOR_THREAD, INSERTION_ADDRESS, INSERTION_BEGUN, INSERTION_CANCELLED,
    INSERTION_REQUEST_BYTES, InsertionRequest,
};
use heaptide_supervise::exec;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use nix::unistd::{Pid, geteuid};

use crate::helper::Helper;

/// Starts a helper process for a recording. It is a process, because the supervisor waits for all
/// of its own children and tracees.
///
/// Errors: those of [`Helper::start`]; or another command of the recording listens already.
pub fn start(recording: &Path, library: &Path, symbols: &Arc<Symbols>) -> io::Result<Helper> {
    let place = fs::metadata(recording)?;
    let name = format!("{INSERTION_ADDRESS}{}-{}", place.dev(), place.ino());
    let listener = UnixListener::bind_addr(&SocketAddr::from_abstract_name(name)?)?;
    #[expect(
        clippy::disallowed_methods,
        reason = "only its descriptor, for messages of the helper"
    )]
    let messages = io::stderr();
    Helper::start(c"insert", &[listener.as_fd(), messages.as_fd()], |end| {
        exec::lift_limits();
        serve(&listener, library, symbols, end);
        0
    })
}

/// Serves each request in a thread of its own, until all write ends of a pipe are closed.
fn serve(listener: &UnixListener, library: &Path, symbols: &Arc<Symbols>, end: BorrowedFd) {
    loop {
        let mut ready = [end, listener.as_fd()].map(|fd| PollFd::new(fd, PollFlags::POLLIN));
        let _ = poll(&mut ready, PollTimeout::NONE); // no signal interrupts it
        let is_ready = |index: usize| ready[index].any().unwrap_or(true);
        if is_ready(0) {
            return;
        }
        if let Ok((stream, _)) = listener.accept() {
            let (library, symbols) = (library.to_owned(), symbols.clone());
            thread::spawn(move || serve_one(stream, &library, &symbols));
        }
    }
}

/// Serves one process, which executes or starts a program once it has the answer.
fn serve_one(mut stream: UnixStream, library: &Path, symbols: &Arc<Symbols>) {
    let Ok(peer) = getsockopt(&stream, PeerCredentials) else { return };
    let mut request = [0; INSERTION_REQUEST_BYTES];
    // Any user can connect to an abstract address.
    let is_own = peer.uid() == geteuid().as_raw() || peer.uid() == 0;
    if peer.pid() <= 0 || !is_own || stream.read_exact(&mut request).is_err() {
        return;
    }
    let process = Pid::from_raw(peer.pid());
    let request = InsertionRequest::of(request);
    let program = File::open(format!("/proc/{process}/fd/{}", request.program));
    if !program.is_ok_and(|program| symbols.of(&program).is_ok()) {
        return; // the process counts it
    }
    let Some(thread) = thread_of(process, request.thread) else { return };
    let executor = match request.executor {
        EXECUTOR_THREAD => Executor::Thread { process, thread },
        _ => Executor::NewOf(thread),
    };
    let Ok(insertion) = Insertion::begin(executor, library, symbols) else { return };
    if stream.write_all(&[INSERTION_BEGUN]).is_err() {
        return insertion.cancel();
    }
    // The connection is closed when the program is executed, or started.
    let mut byte = [0];
    if stream.read(&mut byte).is_ok_and(|read| read > 0) && byte[0] == INSERTION_CANCELLED {
        return insertion.cancel();
    }
    let program = insertion.program();
    let done = match executor {
        Executor::Thread { .. } => insertion.finish(),
        Executor::NewOf(_) => insertion.end(),
    };
    if let Err(why) = done {
        let program = program.get().map_or(Path::new("a program"), |path| path);
        message(format_args!(
            "not recorded: {} is statically linked, and {why}",
            program.display()
        ));
    }
}
