//! The kinds of rows, and their columns.

use heaptide_analysis::attribution::FunctionId;
use heaptide_analysis::model::{FrameId, LabelId, LaneId, ScopeId, SiteKind, StackId};

/// The kind of rows in a table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum View {
    /// The function that each allocation is attributed to.
    #[default]
    Owners,
    /// Functions, including their callees.
    Functions,
    /// Threads.
    Threads,
    /// Scope paths, including nested scopes.
    Scopes,
    /// Labels and pools.
    Labels,
    /// Whole stacks.
    Stacks,
    /// The source line that each allocation is attributed to.
    Lines,
}

impl View {
    /// All views, in the order of their number keys.
    pub const ALL: [View; 7] = [
        View::Owners,
        View::Functions,
        View::Threads,
        View::Scopes,
        View::Labels,
        View::Stacks,
        View::Lines,
    ];

    /// Returns its name on the screen.
    pub const fn title(self) -> &'static str {
        match self {
            View::Owners => "owners",
            View::Functions => "functions",
            View::Threads => "threads",
            View::Scopes => "scopes",
            View::Labels => "labels",
            View::Stacks => "stacks",
            View::Lines => "lines",
        }
    }

    /// Returns its name as a value of `--by`.
    pub fn name(self) -> &'static str {
        self.title().trim_end_matches('s')
    }

    /// Returns its index in [`View::ALL`].
    pub(crate) fn index(self) -> usize {
        View::ALL.iter().position(|view| *view == self).unwrap_or_default()
    }
}

/// The identity of a row. Ids refer to the tables from which the row was computed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Key {
    /// The owner of allocations; `None` for those without a stack.
    Owner(Option<FunctionId>),
    /// A function; `None` for allocations without a stack.
    Function(Option<FunctionId>),
    /// A thread.
    Thread(LaneId),
    /// A scope path.
    Scope(ScopeId),
    /// A label or pool, and the kind of its memory.
    Label(Option<LabelId>, SiteKind),
    /// A stack.
    Stack(StackId),
    /// A line of a function, by one of its frames; `None` for allocations without a stack.
    Line(Option<FrameId>),
    /// Stacks that are newer than the tables.
    New,
}

impl Key {
    /// Returns the view with such rows.
    pub(crate) fn view(self) -> View {
        match self {
            Key::Owner(_) | Key::New => View::Owners,
            Key::Function(_) => View::Functions,
            Key::Thread(_) => View::Threads,
            Key::Scope(_) => View::Scopes,
            Key::Label(..) => View::Labels,
            Key::Stack(_) => View::Stacks,
            Key::Line(_) => View::Lines,
        }
    }
}

/// A column of numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Column {
    /// Live usable bytes.
    #[default]
    Live,
    /// Live blocks.
    Blocks,
    /// Growth of live bytes since the mark or, without one, since the first numbers.
    Growth,
    /// Allocations per second.
    Allocations,
    /// Bytes allocated per second.
    Bytes,
    /// Bytes live at peak usage.
    AtPeak,
}

impl Column {
    /// All columns, from left to right.
    pub const ALL: [Column; 6] = [
        Column::Live,
        Column::Blocks,
        Column::Growth,
        Column::Allocations,
        Column::Bytes,
        Column::AtPeak,
    ];

    /// Returns its title.
    pub const fn title(self) -> &'static str {
        match self {
            Column::Live => "live",
            Column::Blocks => "blocks",
            Column::Growth => "growth",
            Column::Allocations => "allocs/s",
            Column::Bytes => "bytes/s",
            Column::AtPeak => "at peak",
        }
    }

    /// Returns its width in characters.
    pub(crate) const fn width(self) -> u16 {
        match self {
            Column::Growth => 10,
            Column::Blocks => 8,
            Column::Live | Column::Allocations | Column::Bytes | Column::AtPeak => 9,
        }
    }

    /// Returns its priority: on narrow screens, columns with low ranks stay.
    const fn rank(self) -> u8 {
        match self {
            Column::Live => 0,
            Column::Growth => 1,
            Column::Allocations => 2,
            Column::Blocks => 3,
            Column::Bytes => 4,
            Column::AtPeak => 5,
        }
    }

    /// Returns the width that the name after the columns has at least, with this column.
    const fn least_name_width(self) -> u16 {
        match self {
            Column::Live | Column::Growth => 19,
            // A method with its class.
            _ => 30,
        }
    }

    /// Returns the columns that fit into a table of this width, from left to right, beside a name;
    /// the first column is always included.
    pub(crate) fn fitting(width: u16) -> Vec<Column> {
        let mut left = width;
        let mut by_rank = Column::ALL;
        by_rank.sort_by_key(|column| column.rank());
        let mut kept = Vec::new();
        for column in by_rank {
            let needs = column.width() + 1;
            if kept.is_empty() || needs + column.least_name_width() <= left {
                left = left.saturating_sub(needs);
                kept.push(column);
            } else {
                break;
            }
        }
        kept.sort_by_key(|column| Column::ALL.iter().position(|other| other == column));
        kept
    }
}
