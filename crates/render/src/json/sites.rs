//! Sites and frames as JSON; a site lists the numbers of its frames.

use heaptide_analysis::attribution::{Owners, is_own};
use heaptide_analysis::model::{CodeKind, Frame, FrameId, Process, Site, StackId};
use serde::ser::{Serialize, SerializeMap, Serializer};

use crate::json::annotations;
use crate::json::entries::serialize_part;

pub(crate) struct FrameEntry<'a> {
    process: &'a Process,
    frame: &'a Frame,
}

impl Serialize for FrameEntry<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let FrameEntry { process, frame } = self;
        let module = frame.module.map_or("", |id| &process.tables.modules[id.0 as usize].path);
        let mut map = serializer.serialize_map(Some(8))?;
        map.serialize_entry("function", &frame.function.as_deref())?;
        map.serialize_entry("module", module)?;
        map.serialize_entry("offset", &frame.offset)?;
        map.serialize_entry("file", &frame.file.as_deref())?;
        map.serialize_entry("line", &frame.line)?;
        map.serialize_entry("inlined", &frame.inlined)?;
        let is_python = frame.code == CodeKind::Python;
        map.serialize_entry("language", &is_python.then_some("python"))?;
        map.serialize_entry("own", &is_own(process, frame))?;
        map.end()
    }
}

pub(crate) struct SiteEntry<'a> {
    pub(crate) process: &'a Process,
    pub(crate) site: &'a Site,
    pub(crate) numbers: &'a FrameNumbers,
    pub(crate) owners: &'a Owners,
    /// Live requested bytes, if known.
    pub(crate) live_requested: Option<u64>,
}

impl Serialize for SiteEntry<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let SiteEntry { process, site, numbers, owners, live_requested } = self;
        let lane = process.tables.lanes.get(site.lane.0 as usize).map_or("", |lane| &lane.name);
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("stack", &numbers.stack(process, site.stack))?;
        let owner = owners.frame(process, site.stack);
        map.serialize_entry("owner", &owner.map(|frame| numbers.of(frame)))?;
        annotations::serialize_site(process, site, &mut map)?;
        map.serialize_entry("lane", lane)?;
        map.serialize_entry("lane_index", &site.lane.0)?;
        serialize_part(&site.measures, process, &mut map)?;
        map.serialize_entry("live_requested_bytes", live_requested)?;
        map.end()
    }
}

/// The frames to write, and the number of each in the output.
pub(crate) struct FrameNumbers {
    shown: Vec<u32>,
    number: Vec<u32>,
}

impl FrameNumbers {
    /// Numbers all frames in their order.
    pub(crate) fn of_all(process: &Process) -> FrameNumbers {
        let all = process.tables.frames.len() as u32;
        FrameNumbers { shown: (0..all).collect(), number: (0..all).collect() }
    }

    /// Numbers the frames that the stacks use.
    pub(crate) fn of_stacks(
        process: &Process,
        stacks: impl Iterator<Item = StackId>,
    ) -> FrameNumbers {
        let number = vec![u32::MAX; process.tables.frames.len()];
        let mut numbers = FrameNumbers { shown: Vec::new(), number };
        for frame in stacks.flat_map(|stack| process.frames_of(stack)) {
            let number = &mut numbers.number[frame.0 as usize];
            if *number == u32::MAX {
                *number = numbers.shown.len() as u32;
                numbers.shown.push(frame.0);
            }
        }
        numbers
    }

    /// Returns the entries of the frames to write.
    pub(crate) fn entries<'a>(&self, process: &'a Process) -> Vec<FrameEntry<'a>> {
        let entry = |&i: &u32| FrameEntry { process, frame: &process.tables.frames[i as usize] };
        self.shown.iter().map(entry).collect()
    }

    /// Returns the number of a frame, which has to be one of those to write.
    pub(crate) fn of(&self, frame: FrameId) -> u32 {
        self.number[frame.0 as usize]
    }

    /// Returns the numbers of a stack's frames, outermost first.
    pub(crate) fn stack(&self, process: &Process, stack: StackId) -> Vec<u32> {
        let path = process.path_of(stack);
        path.into_iter().map(|frame| self.of(frame)).collect()
    }
}
