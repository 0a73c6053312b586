//! Explains which parts of a process image are not recorded, and why.

use std::os::unix::ffi::OsStrExt;

use heaptide_format as format;
use heaptide_format::{
    FileHeader, IMAGE_ATTACHED, IMAGE_FAMILY_INLINED, IMAGE_FAMILY_LEFT, IMAGE_FAMILY_UNCERTAIN,
    IMAGE_IMPORTS_ONLY, IMAGE_OWN_MALLOC, NotIntercepted, Python, PythonObjects, Unrecorded,
};

use crate::model::{DeviceApi, Interception, Loss, ProfileLimit, UnrecordedProgram};
use crate::profile::parsed;
use crate::{quantity, text};

/// A program without a profile that an image executed, for an unknown reason.
pub(crate) const SUCCESSOR: Loss =
    Loss { name: "child_exec", meaning: "programs started by exec without a profile", count: 1 };

/// A reason that only a later version of the recorder knows.
const LATER: (&str, &str) = ("child_other", "children without a profile, for an unknown reason");

/// Returns why nothing of an image is recorded; `None` if it is.
pub(crate) fn reason(header: &FileHeader) -> Option<&'static str> {
    const REASONS: [(Unrecorded, &str); 4] = [
        (
            Unrecorded::NoMemory,
            "no memory for the recorder's tables; raise `ulimit -v` and `ulimit -d`, or record \
             with --mode counters",
        ),
        (
            Unrecorded::NoUsableSize,
            "its allocator does not report the size of blocks (it has no malloc_usable_size)",
        ),
        (Unrecorded::Valgrind, "it ran under a Valgrind tool that replaces the allocator"),
        (
            Unrecorded::OldKernel,
            "the kernel is too old to record forked children; Linux 4.14 or later is required",
        ),
    ];
    match header.unrecorded {
        0 => None,
        reason => {
            let known = REASONS.iter().find(|(known, _)| *known as u32 == reason);
            Some(known.map_or("unknown reason (recorded by a newer heaptide)", |known| known.1))
        }
    }
}

/// See [`NotIntercepted::Renamed`].
const RENAMED: &str = "functions of the program's allocator with other names than those of the C \
                       library (such as mi_malloc) could not be intercepted: what the program \
                       allocates with them is not recorded";

/// Returns why allocations with an allocator of the program's own are missing, if they are.
pub(crate) fn other_allocator(image_flags: u32) -> Option<&'static str> {
    let left = match NotIntercepted::of_family(image_flags) {
        Some(NotIntercepted::Renamed) => RENAMED,
        _ => "the program has its own allocator, which is not intercepted",
    };
    let reasons = [
        (IMAGE_FAMILY_LEFT, left),
        (
            IMAGE_FAMILY_INLINED,
            "the compiler inlined functions of the program's own allocator into their callers: \
             small blocks that these allocate are not recorded",
        ),
        (
            IMAGE_FAMILY_UNCERTAIN,
            "the program has its own allocator: if the compiler inlined its functions into their \
             callers, what these allocate is not recorded",
        ),
    ];
    reasons.into_iter().find(|(flag, _)| image_flags & flag != 0).map(|(_, why)| why)
}

/// Returns a line for each part of an image that is not recorded.
pub(crate) fn notes(header: &FileHeader) -> Vec<String> {
    let nothing = reason(header).map(|reason| format!("nothing was recorded: {reason}"));
    let own_malloc = (header.image_flags & IMAGE_OWN_MALLOC != 0).then(|| {
        let why = NotIntercepted::from_flags(header.image_flags).map_or("", not_intercepted);
        format!(
            "the executable defines malloc{why}: allocations that it does not forward to the C \
             library are not recorded"
        )
    });
    let family = (header.image_flags & IMAGE_FAMILY_LEFT != 0).then(|| {
        let reason = NotIntercepted::of_family(header.image_flags);
        if reason == Some(NotIntercepted::Renamed) {
            return RENAMED.to_owned();
        }
        let why = reason.map_or("", not_intercepted);
        let named = unknown(header).map_or_else(String::new, |names| format!(" ({names})"));
        format!("the program has its own allocator{named}{why}: its allocations are not recorded")
    });
    // Another allocator may be intercepted in part.
    let inlined_flags = header.image_flags & !IMAGE_FAMILY_LEFT;
    let inlined = other_allocator(inlined_flags).map(str::to_owned);
    let python = python(header);
    let limit = profile_limit(header).map(|ProfileLimit { bytes, reached_ns }| {
        format!(
            "the profile reached its limit of {} after {}: stacks, names, marks and modules that \
             were new then are not stored; totals are complete",
            quantity::bytes(bytes),
            quantity::duration(reached_ns)
        )
    });
    let imports = (header.image_flags & IMAGE_IMPORTS_ONLY != 0).then(|| {
        "the code of the C library could not be changed: allocations that are not made through the \
         imports of a module are not recorded"
            .to_owned()
    });
    nothing
        .into_iter()
        .chain(middle(header))
        .chain(imports)
        .chain(own_malloc)
        .chain(family)
        .chain(inlined)
        .chain(python)
        .chain(limit)
        .collect()
}

/// Returns the interfaces of the device drivers that were loaded, and why functions of them are not
/// intercepted; `None` if all are.
pub(crate) fn drivers(header: &FileHeader) -> Vec<(DeviceApi, Option<&'static str>)> {
    let apis = [DeviceApi::Cuda, DeviceApi::Hip, DeviceApi::LevelZero];
    let known = |(api, state): (DeviceApi, u8)| {
        let reason = u32::from(state).checked_sub(format::INTERCEPTED)?;
        Some((api, NotIntercepted::from_number(reason).map(not_intercepted)))
    };
    apis.into_iter().zip(header.drivers.to_le_bytes()).filter_map(known).collect()
}

/// Returns the limit of the profile, if it was reached.
pub(crate) fn profile_limit(header: &FileHeader) -> Option<ProfileLimit> {
    let (bytes, reached_ns) = (header.profile_limit, header.profile_full_ns);
    (bytes != 0 && reached_ns != 0).then_some(ProfileLimit { bytes, reached_ns })
}

/// Returns why stacks of a Python program have no Python frames.
fn python(header: &FileHeader) -> Option<String> {
    let version = match header.python_minor {
        0 => "this CPython".to_owned(),
        minor => format!("CPython 3.{minor}"),
    };
    let why = match Python::from_number(header.python)? {
        Python::None | Python::Recorded => return None,
        Python::UnknownVersion => format!("{version} is not a supported version (3.8 to 3.14)"),
        Python::OtherLayout => {
            format!("frames of {version} are not at the places expected for its version")
        }
        Python::Unchecked => {
            format!("the system does not allow the recorder to check the frames of {version}")
        }
    };
    Some(format!("stacks have native frames only: {why}"))
}

/// Returns how the objects of Python are recorded; `None` if there is no interpreter, or if only a
/// later version of the recorder knows it.
pub(crate) fn python_objects(header: &FileHeader) -> Option<PythonObjects> {
    PythonObjects::from_flags(header.image_flags).filter(|&choice| choice != PythonObjects::None)
}

/// Returns whether a command attached to the running process. A forked child inherits the flag.
pub(crate) fn starts_in_middle(header: &FileHeader) -> bool {
    header.image_flags & IMAGE_ATTACHED != 0 && header.forked == 0
}

/// Describes what is missing if the recording began while the process ran; `None` if it did not.
fn middle(header: &FileHeader) -> Option<String> {
    const NS_PER_TICK: u64 = 10_000_000;
    if !starts_in_middle(header) {
        return None;
    }
    // If the machine was suspended meanwhile, only one of the clocks includes that time.
    let started_ns = header.process_start_ticks.checked_mul(NS_PER_TICK);
    let ran = started_ns
        .filter(|&ns| ns > 0)
        .and_then(|ns| header.start_monotonic_ns.checked_sub(ns))
        .map(|ns| format!(", {} after its start", quantity::duration(ns)))
        .unwrap_or_default();
    Some(format!(
        "the recording starts in a running process{ran}: blocks allocated before are unknown, and \
         their frees count as unmatched"
    ))
}

/// Returns why the functions of an executable's allocator are not intercepted, as part of a
/// sentence.
fn not_intercepted(reason: NotIntercepted) -> &'static str {
    match reason {
        NotIntercepted::TurnedOff => ", and --no-intercept was given",
        NotIntercepted::NoUsableSize => {
            ", which does not report the size of blocks (no malloc_usable_size)"
        }
        NotIntercepted::Refused => ", and the system does not allow its code to be changed",
        NotIntercepted::Unmovable => ", whose code cannot be intercepted safely",
        NotIntercepted::Threads => ", whose code other threads could execute when it was found",
        NotIntercepted::DeepBound => ", which a library opened with RTLD_DEEPBIND uses",
        NotIntercepted::Namespace => {
            " in another namespace of the loader (dlmopen), which this C library does not list"
        }
        NotIntercepted::Unknown => ", whose functions are only known by their names",
        NotIntercepted::Renamed => ", whose functions have other names than those of the C library",
        NotIntercepted::Processor => ", which cannot be intercepted on this kind of processor",
    }
}

/// Returns the names of allocators of no known family.
fn unknown(header: &FileHeader) -> Option<String> {
    let state = format::INTERCEPTED + NotIntercepted::Unknown as u32;
    let named = header.interceptions.iter().filter(|entry| entry.state == state);
    let of = |entry: &format::Interception| {
        let length = (entry.length as usize).min(entry.names.len());
        String::from_utf8_lossy(&entry.names[..length]).replace(' ', ", ")
    };
    let names: Vec<String> = named.map(of).collect();
    (!names.is_empty()).then(|| names.join(", "))
}

/// Returns how the allocators of the program were intercepted.
pub(crate) fn interceptions(header: &FileHeader, modules: &[parsed::Module]) -> Vec<Interception> {
    let interception = |entry: &format::Interception| {
        let left = entry.state.checked_sub(format::INTERCEPTED)?;
        let holds = |module: &&parsed::Module| (module.start..module.end).contains(&entry.address);
        let module = modules.iter().filter(holds).min_by_key(|module| module.unloaded);
        let length = (entry.length as usize).min(entry.names.len());
        let left_alone = NotIntercepted::from_number(left).map(not_intercepted);
        Some(Interception {
            module: module
                .map(|module| text::from_bytes(module.path.as_os_str().as_bytes()))
                .unwrap_or_default(),
            functions: String::from_utf8_lossy(&entry.names[..length]).into_owned(),
            left_alone: left_alone.or((left > 0).then_some(", for an unknown reason")),
        })
    };
    header.interceptions.iter().filter_map(interception).collect()
}

/// Returns the children without a profile, by reason.
pub(crate) fn children(header: &FileHeader) -> impl Iterator<Item = Loss> {
    let counts = header.unrecorded_children.iter().enumerate();
    let named = counts.map(|(kind, &count)| {
        let (name, meaning) = format::UNRECORDED_CHILD_NAMES.get(kind).unwrap_or(&LATER);
        Loss { name, meaning, count }
    });
    named.filter(|loss| loss.count > 0)
}

/// Returns the programs that were started without the recorder. `own` is the path of the image's
/// program, for children that are forks of it.
pub(crate) fn programs(header: &FileHeader, own: &str) -> Vec<UnrecordedProgram> {
    let program = |entry: &format::UnrecordedProgram| {
        let kind = entry.state.checked_sub(format::UNRECORDED_WHOLE)? as usize;
        let (reason, _) = format::UNRECORDED_CHILD_NAMES.get(kind).unwrap_or(&LATER);
        let length = (entry.length as usize).min(entry.path.len());
        let path = String::from_utf8_lossy(&entry.path[..length]);
        let path = match length {
            0 => own.to_owned(),
            format::UNRECORDED_PATH => format!("…{path}"),
            _ => path.into_owned(),
        };
        (entry.count > 0).then_some(UnrecordedProgram { path, reason, count: entry.count })
    };
    header.unrecorded_programs.iter().filter_map(program).collect()
}
