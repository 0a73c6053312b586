//! The options of every command that reads a recording: which one, and what to select of it.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;

use clap::Args;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use heaptide_analysis::model::Process;
use heaptide_analysis::recording::Live;
use heaptide_analysis::recording::join::Apart;
use heaptide_analysis::recording::origin::Origin;
use heaptide_analysis::recording::snapshot::Reference;
use heaptide_analysis::selection::kind::MemoryKind;
use heaptide_analysis::selection::python::PythonFrames;
use heaptide_analysis::views::memory::usual_kind;

use crate::damage::Listed;
use crate::values;

/// How processes are kept separate in a tree.
#[derive(Args, Debug)]
pub struct Origins {
    /// Join all processes, with an outermost frame for each process, host or rank
    #[arg(long, value_name = "process|host|rank", value_parser = origin_parser(),
        hide_possible_values = true)]
    pub by: Option<Origin>,
}

impl Origins {
    /// Returns them as outermost frames.
    pub fn in_stacks(&self) -> Apart {
        self.by.map_or(Apart::Nowhere, Apart::InStacks)
    }

    /// Returns them as outermost scopes.
    pub fn in_scopes(&self) -> Apart {
        self.by.map_or(Apart::Nowhere, Apart::InScopes)
    }
}

/// Parses an origin.
pub fn origin_parser() -> impl TypedValueParser<Value = Origin> {
    let names = Origin::all().iter().map(|by| by.name());
    PossibleValuesParser::new(names).try_map(|name| name.parse::<Origin>())
}

/// Parses a kind of memory.
fn kind_parser() -> impl TypedValueParser<Value = MemoryKind> {
    let names = MemoryKind::ALL.map(MemoryKind::name);
    PossibleValuesParser::new(names).try_map(|name| name.parse::<MemoryKind>())
}

/// Parses how to show frames of Python programs.
pub fn python_parser() -> impl TypedValueParser<Value = PythonFrames> {
    let names = PythonFrames::ALL.map(PythonFrames::name);
    PossibleValuesParser::new(names).try_map(|name| {
        let of_name = PythonFrames::ALL.into_iter().find(|frames| frames.name() == name);
        of_name.ok_or("expected mixed, only or native")
    })
}

/// The recording that a command reads, and a part of it.
#[derive(Args, Clone, Debug)]
pub struct Source {
    /// Recording to read: NAME.heaptide, a profile in it, or the process id of a running program;
    /// REC@NAME is a snapshot of REC, @NAME one of the newest [default: the newest *.heaptide here]
    #[arg(value_name = "REC")]
    pub recording: Option<PathBuf>,
    /// Read this snapshot instead of the end of the run; `heaptide info` lists snapshots
    #[arg(long, value_name = "N|NAME", help_heading = SELECTION)]
    pub snapshot: Option<Reference>,
    /// Count from the start of the program, ignoring resets
    #[arg(long, help_heading = SELECTION)]
    pub from_start: bool,
    /// Where the output of the command lists unreadable files.
    #[arg(skip)]
    pub listed: Listed,
    /// Which blocks count as live.
    #[arg(skip)]
    pub live: Live,
}

impl Source {
    /// Returns a copy for a command whose output lists unreadable files.
    pub fn listing_damage(&self) -> Source {
        Source { listed: Listed::InOutput, ..self.clone() }
    }

    /// Returns a source per recording; without any, one for the newest.
    pub fn each(
        recordings: &[PathBuf],
        snapshot: Option<Reference>,
        from_start: bool,
    ) -> Vec<Source> {
        let (listed, live) = (Listed::Nowhere, Live::AtEnd);
        let source =
            |recording| Source { recording, snapshot: snapshot.clone(), from_start, listed, live };
        if recordings.is_empty() {
            vec![source(None)]
        } else {
            recordings.iter().cloned().map(Some).map(source).collect()
        }
    }
}

/// The processes, blocks and frames to include, and how to name them.
#[derive(Args, Clone, Debug)]
pub struct Selection {
    /// Show only this process, or all processes joined into one [default: the program with most
    /// memory, not its launchers]
    #[arg(long, value_name = "PID|all", help_heading = SELECTION)]
    pub process: Option<Which>,
    /// Show heap blocks, mappings, both, the heap with what the program itself maps, or memory of
    /// devices [default: program in reports and pictures, heap in formats for programs]
    #[arg(long, value_name = "heap|mapped|all|program|device", value_parser = kind_parser(),
        hide_possible_values = true, help_heading = SELECTION)]
    pub kind: Option<MemoryKind>,
    /// Keep only sites with a matching function (or module, file, scope, label, thread)
    #[arg(long, value_name = "[KIND:]REGEX", help_heading = SELECTION)]
    pub focus: Vec<String>,
    /// Exclude sites with a matching function (or module, file, scope, label, thread)
    #[arg(long, value_name = "[KIND:]REGEX", help_heading = SELECTION)]
    pub ignore: Vec<String>,
    /// Keep only requests of at least this many bytes
    #[arg(long, value_name = "BYTES", value_parser = values::bytes, help_heading = SELECTION)]
    pub min_size: Option<u64>,
    /// Keep only requests of at most this many bytes
    #[arg(long, value_name = "BYTES", value_parser = values::bytes, help_heading = SELECTION)]
    pub max_size: Option<u64>,
    /// Keep only sites with live blocks
    #[arg(long, help_heading = SELECTION)]
    pub live_only: bool,
    /// Keep only sites with temporary blocks
    #[arg(long, help_heading = SELECTION)]
    pub temporary_only: bool,
    /// Show Python and native functions in one stack, or only those of one kind [default: mixed]
    #[arg(long, value_name = "mixed|only|native", default_value = "mixed",
        value_parser = python_parser(), hide_possible_values = true, hide_default_value = true,
        help_heading = NAMES)]
    pub python: PythonFrames,
    /// Remove matching frames (or scopes, labels) from stacks; their allocations are kept
    #[arg(long, value_name = "[KIND:]REGEX", help_heading = NAMES)]
    pub hide: Vec<String>,
    /// Show threads with matching names as one group, such as io=^io-,workers=^wrk
    #[arg(long, value_name = "NAME=REGEX,…", help_heading = NAMES)]
    pub group_threads: Vec<String>,
    /// Collapse recursive scopes: A > B > A > B becomes A > B; in SVG flame graphs also functions
    #[arg(long, help_heading = NAMES)]
    pub fold_recursion: bool,
    /// Show each value of numeric scope attributes, not iteration=0…99 as one scope
    #[arg(long, help_heading = NAMES)]
    pub unfold_values: bool,
    /// Show N levels of stacks; attribute deeper frames to the last level
    #[arg(long, value_name = "N", value_parser = values::levels, help_heading = NAMES)]
    pub depth: Option<NonZeroUsize>,
    /// Rewrite names and stacks by a file of rules or a built-in set: std boost tbb tokio rust qt
    /// cpython python regex cling mallocprofiler; also `rules` in heaptide.toml
    #[arg(long, value_name = "SET|FILE", value_delimiter = ',', help_heading = NAMES)]
    pub rules: Vec<String>,
    /// Mark matching functions, modules or files as the program's own code, which stays when stacks
    /// are shortened; also `own` in heaptide.toml
    #[arg(long, value_name = "[KIND:]REGEX", help_heading = NAMES)]
    pub own: Vec<String>,
    /// Attribute each allocation to its innermost frame, even in a library
    #[arg(long, help_heading = NAMES)]
    pub raw: bool,
}

/// The heading of options that select processes and allocations.
pub const SELECTION: &str = "Selection";
/// The heading of options that change how stacks and functions are shown.
pub const NAMES: &str = "Names and stacks";

/// The reader that names and stacks are prepared for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reader {
    /// People: internals of languages and their libraries are omitted, unless the selection has
    /// other rules or shows frames unchanged.
    Person,
    /// Programs: everything is shown as recorded.
    Program,
}

/// The selected processes of a recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Which {
    /// The images of one process.
    Pid(u32),
    /// All, merged into one.
    All,
}

impl FromStr for Which {
    type Err = String;

    fn from_str(text: &str) -> Result<Which, String> {
        match text {
            "all" => Ok(Which::All),
            pid => pid.parse().map(Which::Pid).map_err(|_| "expected a process id or all".into()),
        }
    }
}

/// The options that select parts of recordings; exported data is already selected.
pub const OF_RECORDINGS: [&str; 20] = [
    "recordings",
    "snapshot",
    "from_start",
    "process",
    "kind",
    "python",
    "group_threads",
    "fold_recursion",
    "unfold_values",
    "focus",
    "ignore",
    "hide",
    "min_size",
    "max_size",
    "live_only",
    "temporary_only",
    "depth",
    "rules",
    "own",
    "raw",
];

impl Selection {
    /// Selects the whole heap, as recorded.
    pub fn everything() -> Selection {
        Selection {
            process: None,
            kind: Some(MemoryKind::Heap),
            focus: Vec::new(),
            ignore: Vec::new(),
            min_size: None,
            max_size: None,
            live_only: false,
            temporary_only: false,
            python: PythonFrames::default(),
            hide: Vec::new(),
            group_threads: Vec::new(),
            fold_recursion: false,
            unfold_values: false,
            depth: None,
            rules: Vec::new(),
            own: Vec::new(),
            raw: false,
        }
    }

    /// Returns the kind of memory of a process for a reader: a selected one, else for people all
    /// memory of the program, for other programs the heap.
    pub fn kind_for(&self, reader: Reader, process: &Process) -> MemoryKind {
        self.kind.unwrap_or_else(|| match reader {
            Reader::Person => usual_kind(process),
            Reader::Program => MemoryKind::Heap,
        })
    }

    /// Returns whether it excludes any part of a process.
    pub fn filters(&self) -> bool {
        let words = [&self.focus, &self.ignore].iter().any(|words| !words.is_empty());
        let sizes = self.min_size.is_some() || self.max_size.is_some();
        words || sizes || self.live_only || self.temporary_only
    }

    /// Returns the selected process id.
    pub fn pid(&self) -> Option<u32> {
        match self.process {
            Some(Which::Pid(pid)) => Some(pid),
            Some(Which::All) | None => None,
        }
    }
}
