//! Asks the command to put the recorder into a static program that this process is about to
//! execute or to start: it listens at an abstract address that the recording's directory
//! determines.

use core::mem::offset_of;
use heaptide_format::attachment::{
    EXECUTOR_NEW, EXECUTOR_THREAD, INSERTION_ADDRESS, INSERTION_BEGUN, INSERTION_CANCELLED,
    InsertionRequest,
};
use heaptide_recorder::store::directory;
use heaptide_recorder::sys::kernel::{self, Fd};
use heaptide_recorder::sys::socket;
use heaptide_recorder::sys::text::Text;

/// A connection to the command, which traces this thread until exec closes it, or the process that
/// this thread makes.
#[derive(Clone, Copy)]
pub struct Request(Fd);

/// The process that will execute a program.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// This one.
    Own,
    /// A new one, which the C library makes.
    New,
}

/// How long to wait for the command.
const WAITS_MS: usize = 2000;

/// `struct sockaddr_un`
#[repr(C)]
struct Address {
    family: u16,
    name: [u8; 108],
}

impl Request {
    /// Asks to be traced, until the program that is open is executed. `None` if no command listens,
    /// or if it cannot.
    pub fn make(who: Who, program: Fd) -> Option<Request> {
        let directory = kernel::open(directory::known()?.path()?, kernel::O_RDONLY).ok()?;
        let identity = kernel::identity(directory);
        kernel::close(directory);
        let (device, inode) = identity.ok()?;
        let request = Request(socket::local_socket()?);
        if request.ask((device, inode), who, program) {
            return Some(request);
        }
        kernel::close(request.0);
        None
    }

    fn ask(self, (device, inode): (u64, u64), who: Who, program: Fd) -> bool {
        const AF_UNIX: u16 = 1;
        let mut name: Text<96> = Text::new();
        name.push(b"\0");
        name.push(INSERTION_ADDRESS.as_bytes());
        name.push_number(device);
        name.push(b"-");
        name.push_number(inode);
        let mut address = Address { family: AF_UNIX, name: [0; 108] };
        let name = name.bytes();
        let Some(room) = address.name.get_mut(..name.len()) else { return false };
        room.copy_from_slice(name);
        let bytes = offset_of!(Address, name) + name.len();
        // SAFETY: an address of this many bytes.
        let is_connected = unsafe { socket::connect(self.0, (&raw const address).cast(), bytes) };
        if !is_connected {
            return false;
        }
        if let Some(command) = socket::peer(self.0) {
            socket::allow_tracer(command);
        }
        let executor = match who {
            Who::Own => EXECUTOR_THREAD,
            Who::New => EXECUTOR_NEW,
        };
        let program = program.0 as u32;
        let request = InsertionRequest { executor, thread: kernel::gettid(), program };
        let mut answer = [0];
        kernel::write_all(self.0, &request.bytes())
            && socket::is_readable_within(self.0, WAITS_MS)
            && kernel::read(self.0, &mut answer) == Ok(1)
            && answer[0] == INSERTION_BEGUN
    }

    /// A new process has executed the program.
    pub fn done(self) {
        kernel::close(self.0);
    }

    /// The program was not executed. Waits until the command no longer traces this thread, or it
    /// would refuse a following request.
    pub fn cancel(self) {
        kernel::write_all(self.0, &[INSERTION_CANCELLED]);
        socket::is_readable_within(self.0, WAITS_MS);
        kernel::close(self.0);
    }
}
