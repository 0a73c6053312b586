//! Python frames: records of their lines, and the nodes of the stack tree that refer to these.
//!
//! The Python frames of a thread form separate paths in the stack tree, below a node with the key
//! [`PYTHON_ROOT`]. A stack with Python frames is one more node, whose parent is the innermost
//! native frame and whose key refers to the innermost Python frame. The flag [`NODE_INTERPRETER`]
//! marks native frames that execute Python frames: the innermost of them executes the Python frames
//! from the innermost to the first with [`PYTHON_ENTRY`], the next outer one the frames after that,
//! and so on.

#[cfg(feature = "views")]
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// A line of a Python function.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[cfg_attr(feature = "views", derive(FromBytes, IntoBytes, Immutable, KnownLayout))]
#[repr(C)]
pub struct PythonLine {
    /// String: the qualified name of the function; before CPython 3.11, its name.
    pub function: u32,
    /// String: the file.
    pub file: u32,
    /// The line; 0 if the instruction has none.
    pub line: u32,
    /// Reserved, zero.
    pub reserved: u32,
}

/// Ids of [`PythonLine`] records are file offsets divided by this.
pub const PYTHON_LINE_GRANULE: u64 = 16;

/// [`crate::Node::flags`]: a Python frame, whose key has [`PYTHON_FRAME`], or their root.
pub const NODE_PYTHON: u32 = 2;
/// [`crate::Node::flags`]: a stack with Python frames, whose key has [`PYTHON_STACK`].
pub const NODE_PYTHON_STACK: u32 = 4;
/// [`crate::Node::flags`]: a native frame of the interpreter that executes Python frames.
pub const NODE_INTERPRETER: u32 = 8;

/// The module number in the key of a Python frame; the low 32 bits are the id of its
/// [`PythonLine`].
pub const PYTHON_FRAME: u64 = 0xfffe << 48;
/// In the key of a Python frame: the interpreter's loop was entered with it.
pub const PYTHON_ENTRY: u64 = 1 << 32;
/// The key of the root node of Python frames.
pub const PYTHON_ROOT: u64 = PYTHON_FRAME;
/// The module number in the key of a stack with Python frames; the low 32 bits are the id of the
/// node of the innermost one.
pub const PYTHON_STACK: u64 = 0xffff << 48;

/// Whether stacks of a process have Python frames, and if not, the reason
/// ([`crate::FileHeader::python`]).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
pub enum Python {
    /// No interpreter was found.
    None = 0,
    /// They have Python frames.
    Recorded = 1,
    /// The recorder does not know the version of the interpreter.
    UnknownVersion = 2,
    /// The layout of the interpreter's objects differs from that of its version.
    OtherLayout = 3,
    /// The kernel did not allow the recorder to check the layout.
    Unchecked = 4,
}

impl Python {
    /// Returns the value with this number, if this version knows it.
    pub fn from_number(number: u32) -> Option<Python> {
        let all = [
            Python::None,
            Python::Recorded,
            Python::UnknownVersion,
            Python::OtherLayout,
            Python::Unchecked,
        ];
        all.into_iter().find(|python| *python as u32 == number)
    }
}
