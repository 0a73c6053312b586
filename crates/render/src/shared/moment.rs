//! When a program was searched for what keeps its blocks.

/// The moment of a search.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moment {
    /// While it ran.
    Running {
        /// How long its threads were stopped, nanoseconds.
        stopped_ns: u64,
    },
    /// When a snapshot of it was taken.
    Snapshot {
        /// The number of the snapshot.
        number: u32,
        /// The time, nanoseconds from its start.
        time_ns: u64,
    },
    /// When it ended.
    End {
        /// The time, nanoseconds from its start.
        time_ns: u64,
        /// Whether that was when its Python interpreter began to end, and not at its exit.
        before_python_ended: bool,
        /// Number of other processes of the recording that were searched.
        others: u64,
    },
}
