//! Selects the frames in stacks of Python programs: Python frames, native ones, or both.

use rustc_hash::FxHashMap;

use crate::model::{CodeKind, FrameId, Process};

/// The frames in stacks that execute Python code.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PythonFrames {
    /// Python frames instead of those of the interpreter that execute them, and other native
    /// frames.
    #[default]
    Mixed,
    /// Python frames only.
    Only,
    /// Native frames only, including those of the interpreter.
    Native,
}

impl PythonFrames {
    /// All values.
    pub const ALL: [PythonFrames; 3] =
        [PythonFrames::Mixed, PythonFrames::Only, PythonFrames::Native];

    /// Returns the name in options.
    pub const fn name(self) -> &'static str {
        match self {
            PythonFrames::Mixed => "mixed",
            PythonFrames::Only => "only",
            PythonFrames::Native => "native",
        }
    }
}

impl Process {
    /// Returns whether stacks have Python frames.
    ///
    /// ```
    /// # let mut bytes = vec![0; 4096];
    /// # bytes[..8].copy_from_slice(b"HEAPTIDE");
    /// # (bytes[8], bytes[12], bytes[65]) = (1, 2, 16);
    /// # use heaptide_analysis::model::Process;
    /// # let process = Process::from_bytes(&bytes, "x".as_ref()).unwrap();
    /// assert!(!process.has_python()); // no frames at all
    /// ```
    pub fn has_python(&self) -> bool {
        self.tables.frames.iter().any(|frame| frame.code == CodeKind::Python)
    }

    /// Keeps only these frames in stacks that execute Python code.
    ///
    /// ```
    /// # let mut bytes = vec![0; 4096];
    /// # bytes[..8].copy_from_slice(b"HEAPTIDE");
    /// # (bytes[8], bytes[12], bytes[65]) = (1, 2, 16);
    /// # let mut process =
    /// #     heaptide_analysis::model::Process::from_bytes(&bytes, "x".as_ref()).unwrap();
    /// use heaptide_analysis::selection::python::PythonFrames;
    /// process.select_python(PythonFrames::Native);
    /// assert!(!process.has_python());
    /// ```
    pub fn select_python(&mut self, frames: PythonFrames) {
        if !self.has_python() {
            return;
        }
        let new = self.frames_for(frames);
        self.restack((), |stacks, (caller, ()), frame| match new[frame.0 as usize] {
            Some(frame) => (stacks.child(caller, frame), ()),
            None => (caller, ()),
        });
        self.settle();
    }

    /// Returns the replacement of each frame; `None` if it is removed.
    fn frames_for(&mut self, frames: PythonFrames) -> Vec<Option<FrameId>> {
        let ids = (0..self.tables.frames.len() as u32).map(FrameId);
        if frames != PythonFrames::Native {
            let is_left = |code| match code {
                CodeKind::Python => true,
                CodeKind::Native => frames == PythonFrames::Mixed,
                CodeKind::Interpreter => false,
            };
            let kept = ids.zip(&self.tables.frames);
            return kept.map(|(id, frame)| is_left(frame.code).then_some(id)).collect();
        }
        // Frames of the interpreter are equal whether or not Python frames follow.
        let mut known = FxHashMap::default();
        let frames = ids.zip(&mut self.tables.frames).map(|(id, frame)| {
            if frame.code == CodeKind::Python {
                return None;
            }
            frame.code = CodeKind::Native;
            Some(*known.entry(frame.clone()).or_insert(id))
        });
        frames.collect()
    }
}
