//! Builds the tables of [`crate::model`] from a profile and the names of its addresses.

use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use heaptide_format as format;
use rustc_hash::FxHashMap;

use super::accounts;
use super::annotation_tables;
use super::ending::Ending;
use super::figures::{Peak, bounds, histogram, sample};
use super::mapped::{self, Stacks};
use super::raw_site::RawSite;
use super::site_table::{self, SiteTable};
use super::trace::{self, Became};
use super::unrecorded;
use crate::collections::trie::{Trie, TrieNode};
use crate::model::{
    Attribution, BELOW_THRESHOLD, CodeKind, Completeness, DEEPER_FRAMES_CUT, End, Frame, FrameId,
    Identity, ImageRole, Lifetime, Loss, Mark, Measures, Mode, Module, ModuleId,
    NOT_BELOW_THRESHOLD, Off, Process, Rank, Site, SiteRows, StackId, StackNode, Sum, Tables,
    TimeTables, UnwinderStats,
};
use crate::profile::parsed;
use crate::profile::parsed::{NO_MODULE, PYTHON, Profile};
use crate::profile::python::PythonLine;
use crate::symbols::jit_name::JitName;
use crate::symbols::{ModuleKey, ModuleSymbols, Symbols, jit};
use crate::text;
use crate::threads;

/// The frame of blocks that no sampled block represents.
const NOT_SAMPLED: &str = "[not sampled]";

/// Builds the tables of a process image.
pub(crate) fn process(mut profile: Profile, symbols: &Symbols, mut ending: Ending) -> Process {
    let search = profile.search.take().and_then(Result::ok);
    let has_rows = profile.header.trace != 0 || search.is_some();
    let (scopes, scope_of_path) = annotation_tables::scopes(&profile);
    let (labels, label_of_name) = annotation_tables::labels(&profile);
    let of =
        site_table::Dimensions { scope_of_path: &scope_of_path, label_of_name: &label_of_name };
    let stacks = || {
        let (mut frames, frames_of_place) = frames(&profile, symbols);
        let replaced = replaced(&profile, symbols, &mut frames);
        let (stacks, stack_of_node) = stacks(&profile, &frames_of_place, replaced);
        (frames, stacks, stack_of_node)
    };
    let ((mut frames, mut stacks, stack_of_node), table) =
        threads::both(stacks, || SiteTable::of(&profile, &of, has_rows));
    let (recorded_peak, unmatched_frees) = (table.peak_bytes, table.unmatched_frees);
    let SiteTable { mut lanes, sites, ids, of_site, sampling, has_unseen, .. } = table;
    let resolved = |site: RawSite| site.with_stack(|node| stack_of_node[node.slot()]);
    let mut sites: Vec<Site> = sites.into_iter().map(resolved).collect();
    if let Some(unseen) = sites.last_mut().filter(|_| has_unseen) {
        unseen.stack = stack_of_unseen(&mut frames, &mut stacks);
    }
    let mut totals = Sum::default();
    sites.iter().for_each(|site| totals.add(site));
    let mut totals = totals.total();
    let entered = annotation_tables::entered(&profile, &scope_of_path, &ids);
    let windows = annotation_tables::windows(&profile);
    let marks = annotation_tables::marks(&profile, &ids);
    let (shapes, of_shape) = annotation_tables::shapes(&profile, &label_of_name);
    let became = Became {
        sites: &of_site,
        scopes: &scope_of_path,
        stacks: &stack_of_node,
        lanes: &ids,
        shapes: &of_shape,
    };
    let mark_names = annotation_tables::mark_names(&profile);
    let running = (ending.end == End::Running, ending.lasted.ns);
    let traces =
        trace::trace(&profile, &ending.file, running, &totals, &became).into_iter().collect();
    let site_rows = site_rows(&profile, search.is_some(), &of_site);
    let modules: Vec<Module> = profile.modules.iter().map(module).collect();
    let of_stacks =
        Stacks { frames: &frames, modules: &modules, stacks: &stacks, of_node: &stack_of_node };
    let accounts = accounts::accounts(&profile, &of_stacks);
    let mapped = mapped::tables(&profile, &of, &of_stacks, ending.lasted.ns).unzip();
    let device = mapped::device_tables(&profile, &of, &of_stacks, ending.lasted.ns).unzip();
    let header = &profile.header;
    let peak = Peak::of(&profile, recorded_peak, &totals, ending.lasted.ns);
    totals.peak_bytes = peak.bytes;
    if peak.is_now && profile.has_sites() {
        let all = lanes.iter_mut().map(|lane| &mut lane.measures);
        let all = all.chain(sites.iter_mut().map(|site| &mut site.measures)).chain([&mut totals]);
        all.for_each(Measures::take_live_as_peak);
    }
    Process {
        mode: mode(profile.mode),
        sampling,
        lifetime: Lifetime {
            start_realtime_ns: header.start_realtime_ns,
            duration_ns: ending.lasted.ns,
            duration_is_known: ending.lasted.is_known,
            end: ending.end,
        },
        peak_time_ns: peak.time_ns,
        attribution: Attribution::default(),
        unwinder: unwinder(header),
        completeness: completeness(&profile, &mut ending, unmatched_frees, &peak, &marks),
        tables: Tables {
            histogram: histogram(&profile, &totals),
            sites,
            lanes,
            lanes_at_once: header.lanes_at_once,
            frames,
            stacks,
            modules,
            scopes,
            entered,
            labels,
            shapes,
        },
        mapped: mapped.1,
        mappings: mapped.0.map(Box::new),
        device: device.1,
        device_memory: device.0.map(Box::new),
        search,
        time: TimeTables {
            samples: profile.timeline.iter().map(sample).collect(),
            bounds: bounds(&profile.spans),
            accounts,
            windows,
            marks,
            mark_names,
            traces,
            site_rows,
            ..TimeTables::default()
        },
        identity: identity(profile, ending),
        totals,
    }
}

/// Returns the row of each site, which `of_site` has in the order of the profile, if something
/// refers to sites by number.
fn site_rows(profile: &Profile, is_searched: bool, of_site: &[Option<u32>]) -> Option<SiteRows> {
    let ids = profile.sites.iter().map(|site| site.id);
    (profile.is_followed || is_searched).then(|| SiteRows::new(ids.zip(of_site.iter().copied())))
}

/// Returns how a process was recorded; that it was sampled is stated apart.
const fn mode(mode: format::Mode) -> Mode {
    match mode {
        format::Mode::Counters => Mode::Counters,
        format::Mode::Stacks | format::Mode::Sampled => Mode::Stacks,
        format::Mode::Scopes => Mode::Scopes,
    }
}

/// Returns for how long recording of a process, which lasted `lasted_ns`, was off.
fn off(profile: &Profile, marks: &[Mark], lasted_ns: u64) -> Off {
    let header = &profile.header;
    let by_program = header.control & format::CONTROL_OFF != 0;
    let is_off = by_program || header.control >= format::CONTROL_PAUSE || header.command_off != 0;
    annotation_tables::off(marks, is_off, lasted_ns, |time_ns| {
        let mut earlier = profile.timeline.iter().take_while(|sample| sample.time_ns < time_ns);
        earlier.any(|sample| sample.allocations > 0)
    })
}

fn unwinder(header: &format::FileHeader) -> UnwinderStats {
    UnwinderStats { frames_stepped: header.frames_stepped, rules_evaluated: header.rules_evaluated }
}

/// Returns the identity of the image.
fn identity(profile: Profile, ending: Ending) -> Identity {
    let header = &profile.header;
    Identity {
        file: ending.file,
        pid: header.pid,
        ppid: header.ppid,
        image: header.image,
        process_number: ending.process_number,
        execs: ending.execs,
        is_requested: ending.is_requested,
        role: ImageRole::Unknown,
        forked: header.forked != 0,
        program: profile.program,
        command: profile.command,
        host: profile.host,
        rank: header.rank.checked_sub(1).map(|number| Rank { number, of: header.ranks }),
        job: profile.job,
        run: ending.run,
        images: 1,
    }
}

/// Returns how complete the tables are. Moves the relevant parts out of `ending`. `unmatched_frees`
/// are those that the recorder had not recognized.
fn completeness(
    profile: &Profile,
    ending: &mut Ending,
    unmatched_frees: u64,
    peak: &Peak,
    marks: &[Mark],
) -> Completeness {
    let header = &profile.header;
    Completeness {
        part: ending.part.take(),
        peak_bound_bytes: peak.bound_bytes,
        unmatched_frees: header.unmatched_frees.saturating_add(unmatched_frees),
        starts_in_middle: unrecorded::starts_in_middle(header),
        unrecorded: unrecorded::reason(header),
        in_part: ending.in_part.take(),
        has_own_malloc: header.image_flags & format::IMAGE_OWN_MALLOC != 0,
        other_allocator: unrecorded::other_allocator(header.image_flags),
        interceptions: unrecorded::interceptions(header, &profile.modules),
        python_objects: unrecorded::python_objects(header),
        searched: profile.lost.as_ref().and_then(|lost| lost.searched),
        held_ns: profile.held.as_ref().map(|held| held.time_ns),
        losses: losses(header, ending.became_unrecorded),
        profile_limit: unrecorded::profile_limit(header),
        off: off(profile, marks, ending.lasted.ns),
        memory: None,
        drivers: unrecorded::drivers(header),
        leaves_mappings: false,
        peak_is_least: false,
        unrecorded_programs: unrecorded::programs(header, &profile.program),
        notes: unrecorded::notes(header).into_iter().chain(ending.notes.drain(..)).collect(),
    }
}

fn module(module: &parsed::Module) -> Module {
    Module {
        path: text::from_bytes(module.path.as_os_str().as_bytes()),
        start: module.start,
        end: module.end,
        bias: module.bias,
        build_id: module.build_id.clone(),
        unloaded: module.unloaded,
    }
}

fn losses(header: &format::FileHeader, became_unrecorded: bool) -> Vec<Loss> {
    const LATER: (&str, &str) = ("other", "losses of a kind unknown to this version of heaptide");
    let counts = header.losses.iter().enumerate();
    let named = counts.map(|(kind, &count)| {
        let (name, meaning) = format::LOSS_NAMES.get(kind).unwrap_or(&LATER);
        Loss { name, meaning, count }
    });
    let named = named.filter(|loss| loss.count > 0);
    let children = unrecorded::children(header);
    named.chain(children).chain(became_unrecorded.then_some(unrecorded::SUCCESSOR)).collect()
}

/// Returns the frames of all places, and the range of frames of each place, outermost first.
fn frames(profile: &Profile, symbols: &Symbols) -> (Vec<Frame>, Vec<(u32, u32)>) {
    let key = |m: &parsed::Module| ModuleKey { path: m.path.clone(), build_id: m.build_id.clone() };
    let naming = Naming {
        profile,
        of_modules: profile.modules.iter().map(|m| symbols.module(&key(m))).collect(),
        of_generated: generated(profile, symbols),
    };
    let parts = threads::in_parts(profile.places.len(), |part| {
        let (mut frames, mut ends) = (Vec::with_capacity(part.len()), Vec::new());
        for place in &profile.places[part] {
            naming.add_frames(place, &mut frames);
            ends.push(frames.len() as u32);
        }
        (frames, ends)
    });
    let mut frames = Vec::with_capacity(parts.iter().map(|(frames, _)| frames.len()).sum());
    let mut ranges = Vec::with_capacity(profile.places.len());
    for (part, ends) in parts {
        let first = frames.len() as u32;
        let starts = std::iter::once(0).chain(ends.iter().copied());
        ranges.extend(starts.zip(&ends).map(|(start, end)| (first + start, first + end)));
        frames.extend(part);
    }
    (frames, ranges)
}

/// The symbols of a process's code.
struct Naming<'a> {
    profile: &'a Profile,
    of_modules: Vec<Option<&'a ModuleSymbols>>,
    of_generated: Option<&'a ModuleSymbols>,
}

impl Naming<'_> {
    /// Adds at least one frame for a place.
    fn add_frames(&self, place: &parsed::Place, frames: &mut Vec<Frame>) {
        let offset = place.offset;
        if place.module == PYTHON {
            frames.push(python_frame(&self.profile.python[offset as usize]));
            return;
        }
        let before = frames.len();
        let code = if place.is_interpreter { CodeKind::Interpreter } else { CodeKind::Native };
        let module = place.has_module().then_some(ModuleId(place.module));
        let names = module.map_or(self.of_generated, |id| self.of_modules[id.0 as usize]);
        let known = names.and_then(|names| names.get(offset)).into_iter().flatten();
        if module.is_none() {
            let names = known.filter_map(|name| name.function);
            frames.extend(names.map(|name| generated_frame(self.profile, offset, name)));
        } else {
            frames.extend(known.enumerate().map(|(depth, name)| Frame {
                function: name.function.cloned(),
                module,
                offset,
                file: name.file.cloned(),
                line: name.line,
                inlined: depth > 0,
                code,
            }));
        }
        if frames.len() == before {
            let function = mark(place).map(Arc::from);
            let (file, line, inlined) = (None, None, false);
            frames.push(Frame { function, module, offset, file, line, inlined, code });
        }
    }
}

/// Returns the names of generated code of a process.
fn generated<'a>(profile: &Profile, symbols: &'a Symbols) -> Option<&'a ModuleSymbols> {
    let header = &profile.header;
    symbols.module(&jit::module(header.pid, header.start_realtime_ns))
}

/// Returns the frame of generated code with this name.
fn generated_frame(profile: &Profile, offset: u64, name: &str) -> Frame {
    // The Python frames of these functions are in the stack if Python stacks were recorded.
    let is_interpreter = JitName::is_python(name) && !profile.python.is_empty();
    let name = JitName::parse(name);
    Frame {
        function: Some(Arc::from(name.function)),
        module: None,
        offset,
        file: name.file.map(Arc::from),
        line: name.line,
        inlined: false,
        code: if is_interpreter { CodeKind::Interpreter } else { CodeKind::Native },
    }
}

/// Returns the nodes whose generated code has been replaced by other code since their creation,
/// each with its frame, which is added to `frames`.
fn replaced(profile: &Profile, symbols: &Symbols, frames: &mut Vec<Frame>) -> Vec<(u32, u32)> {
    let Some(jit) = generated(profile, symbols).filter(|jit| jit.has_earlier()) else {
        return Vec::new();
    };
    let mut known: FxHashMap<(u64, &str), u32> = FxHashMap::default();
    let mut frame_of = |&(node, flags): &(u32, u32)| {
        let place = profile.places[profile.nodes[node as usize].place as usize];
        let time_ns = format::node_made_ns(flags)?;
        let function = jit.replaced_since(place.offset, time_ns)?;
        let frame = *known.entry((place.offset, function)).or_insert_with(|| {
            frames.push(generated_frame(profile, place.offset, function));
            (frames.len() - 1) as u32
        });
        Some((node, frame))
    };
    profile.made.iter().filter_map(&mut frame_of).collect()
}

/// Returns the name of module code: its file, with the directory if every package has a file of
/// that name.
fn module_code(path: &str) -> String {
    let (directory, file) = path.rsplit_once('/').unwrap_or(("", path));
    let package = directory.rsplit('/').next().unwrap_or_default();
    match file {
        "__init__.py" | "__main__.py" if !package.is_empty() => {
            format!("<module {package}/{file}>")
        }
        _ => format!("<module {file}>"),
    }
}

/// Returns the frame of a Python line.
fn python_frame(line: &PythonLine) -> Frame {
    let function = match &*line.function {
        // Every file has code of this name; the file name distinguishes them.
        "<module>" => module_code(&line.file).into(),
        _ => line.function.clone(),
    };
    Frame {
        function: Some(function),
        module: None,
        offset: 0,
        file: Some(line.file.clone()).filter(|file| !file.is_empty()),
        line: Some(line.line).filter(|&line| line != 0),
        inlined: false,
        code: CodeKind::Python,
    }
}

/// The frame of stacks that were not stored because the profile had reached its limit.
pub(crate) const UNSTORED: &str = "[stack not stored: profile limit]";

/// Adds the stack of blocks that no sampled block represents, and returns it.
fn stack_of_unseen(frames: &mut Vec<Frame>, stacks: &mut Vec<StackNode>) -> StackId {
    frames.push(Frame::named(NOT_SAMPLED));
    let frame = FrameId((frames.len() - 1) as u32);
    stacks.push(StackNode { parent: StackId(0), frame });
    StackId((stacks.len() - 1) as u32)
}

/// Returns the name of a pseudo frame.
fn mark(place: &parsed::Place) -> Option<&'static str> {
    match place.offset {
        _ if place.module != NO_MODULE => None,
        mark if mark == format::Gap::TooDeep as u64 => Some(DEEPER_FRAMES_CUT),
        mark if mark == format::Gap::NoRoom as u64 => Some("[frames not stored]"),
        mark if mark == format::Gap::BelowThreshold as u64 => Some(BELOW_THRESHOLD),
        mark if mark == format::Gap::AboveThreshold as u64 => Some(NOT_BELOW_THRESHOLD),
        mark if mark == format::Gap::ProfileLimit as u64 => Some(UNSTORED),
        _ => None,
    }
}

/// Returns the stack tree including inlined frames, and the stack of each node. Children of one
/// stack with the same frame are merged. The nodes in `replaced`, which is sorted, have the frames
/// given there.
fn stacks(
    profile: &Profile,
    frames_of_place: &[(u32, u32)],
    replaced: Vec<(u32, u32)>,
) -> (Vec<StackNode>, Vec<StackId>) {
    let mut tree = Trie::with_room(profile.nodes.len());
    let mut of_node = Vec::with_capacity(profile.nodes.len() + 1);
    of_node.push(StackId(0)); // by slot of the node; no node is the empty stack
    let mut replaced = replaced.into_iter().peekable();
    for (node, index) in profile.nodes.iter().zip(0..) {
        let (first, end) = match replaced.next_if(|&(of, _)| of == index) {
            Some((_, frame)) => (frame, frame + 1),
            None => frames_of_place[node.place as usize],
        };
        let caller = of_node[node.parent.slot()].0;
        of_node.push(StackId((first..end).fold(caller, |stack, frame| tree.child(stack, frame))));
    }
    let stack =
        |node: TrieNode| StackNode { parent: StackId(node.parent), frame: FrameId(node.key) };
    (tree.into_nodes().into_iter().map(stack).collect(), of_node)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn module_code_has_the_name_that_tells_it_apart() {
        assert_eq!(module_code("/app/main.py"), "<module main.py>");
        assert_eq!(
            module_code("/lib/site-packages/pandas/__init__.py"),
            "<module pandas/__init__.py>"
        );
        assert_eq!(module_code("/app/tool/__main__.py"), "<module tool/__main__.py>");
        assert_eq!(module_code("__init__.py"), "<module __init__.py>");
        assert_eq!(module_code("<string>"), "<module <string>>");
        assert_eq!(module_code(""), "<module >");
    }
}
