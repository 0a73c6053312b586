//! Which frames stacks of Python programs have: those of Python, native ones, or both.

use rustc_hash::FxHashMap;

use crate::model::{CodeKind, FrameId, Process};

/// The frames of stacks that execute Python code.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum PythonFrames {
    /// Python frames in the place of the interpreter's that execute them, and native frames.
    #[default]
    Mixed,
    /// Python frames only.
    Only,
    /// Native frames only, those of the interpreter included.
    Native,
}

impl PythonFrames {
    /// All choices.
    pub const ALL: [PythonFrames; 3] =
        [PythonFrames::Mixed, PythonFrames::Only, PythonFrames::Native];

    /// Its name on command lines.
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

    /// Leaves these frames in the stacks of a process that executes Python code.
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

    /// What each frame becomes; `None` if it is left out.
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
        // Frames of the interpreter are the same whether or not Python frames followed.
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
