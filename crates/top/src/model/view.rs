//! What rows stand for, and the columns that they have.

use heaptide_analysis::attribution::FunctionId;
use heaptide_analysis::model::{LabelId, LaneId, ScopeId, SiteKind, StackId};

/// What the rows of a table stand for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum View {
    /// The function that each allocation is put down to.
    #[default]
    Owners,
    /// Functions, with all that was allocated in them and in what they called.
    Functions,
    /// Threads.
    Threads,
    /// Scope paths, with the scopes inside.
    Scopes,
    /// Labels and pools.
    Labels,
    /// Whole stacks.
    Stacks,
}

impl View {
    /// Every view, in the order of their number keys.
    pub const ALL: [View; 6] =
        [View::Owners, View::Functions, View::Threads, View::Scopes, View::Labels, View::Stacks];

    /// Its name on the screen.
    pub const fn title(self) -> &'static str {
        match self {
            View::Owners => "owners",
            View::Functions => "functions",
            View::Threads => "threads",
            View::Scopes => "scopes",
            View::Labels => "labels",
            View::Stacks => "stacks",
        }
    }

    /// Its name as a value of `--by`.
    pub fn name(self) -> &'static str {
        self.title().trim_end_matches('s')
    }

    /// Its index in [`View::ALL`].
    pub(crate) fn index(self) -> usize {
        View::ALL.iter().position(|view| *view == self).unwrap_or_default()
    }
}

/// What a row stands for. Ids are those of the tables that the row was made of.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Key {
    /// The owner of allocations; none of those without a stack.
    Owner(Option<FunctionId>),
    /// A function; none of allocations without a stack.
    Function(Option<FunctionId>),
    /// A thread.
    Thread(LaneId),
    /// A scope path.
    Scope(ScopeId),
    /// A label or pool, and what memory it names.
    Label(Option<LabelId>, SiteKind),
    /// A stack.
    Stack(StackId),
    /// Stacks that came after the tables were read.
    New,
}

impl Key {
    /// The view that has such rows.
    pub(crate) fn view(self) -> View {
        match self {
            Key::Owner(_) | Key::New => View::Owners,
            Key::Function(_) => View::Functions,
            Key::Thread(_) => View::Threads,
            Key::Scope(_) => View::Scopes,
            Key::Label(..) => View::Labels,
            Key::Stack(_) => View::Stacks,
        }
    }
}

/// A column of numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Column {
    /// Usable bytes live.
    #[default]
    Live,
    /// Blocks live.
    Blocks,
    /// How much live bytes grew since the mark.
    Growth,
    /// Allocations in a second.
    Allocations,
    /// Bytes allocated in a second.
    Bytes,
    /// Bytes live at peak usage.
    AtPeak,
}

impl Column {
    /// Every column, from left to right.
    pub const ALL: [Column; 6] = [
        Column::Live,
        Column::Blocks,
        Column::Growth,
        Column::Allocations,
        Column::Bytes,
        Column::AtPeak,
    ];

    /// What is above it.
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

    /// Characters that it takes.
    pub(crate) const fn width(self) -> u16 {
        match self {
            Column::Growth => 10,
            Column::Blocks => 8,
            Column::Live | Column::Allocations | Column::Bytes | Column::AtPeak => 9,
        }
    }

    /// Columns that stay where there is no room for all have low numbers.
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

    /// The columns for which a table of so many characters has room, from left to right. The name
    /// behind them gets at least `NAME_WIDTH`; the first column is always there.
    pub(crate) fn fitting(width: u16) -> Vec<Column> {
        const NAME_WIDTH: u16 = 19;
        let mut left = width.saturating_sub(NAME_WIDTH);
        let mut by_rank = Column::ALL;
        by_rank.sort_by_key(|column| column.rank());
        let mut kept = Vec::new();
        for column in by_rank {
            let needs = column.width() + 1;
            if kept.is_empty() || needs <= left {
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
