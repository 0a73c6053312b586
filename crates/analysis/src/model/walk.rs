//! Iterates over the frames of stacks and the scopes of paths, and names them.

use std::borrow::Cow;

use super::ids::{FrameId, ScopeId, StackId};
use super::process::Process;
use super::tables::{Module, Scope};

impl Process {
    /// Returns the frames of a stack, innermost first.
    pub fn frames_of(&self, stack: StackId) -> impl Iterator<Item = FrameId> {
        let mut at = stack;
        std::iter::from_fn(move || {
            let node = self.tables.stacks.get(at.0 as usize).filter(|_| at != StackId(0))?;
            at = node.parent;
            Some(node.frame)
        })
    }

    /// Returns the frames of a stack, outermost first.
    pub fn path_of(&self, stack: StackId) -> Vec<FrameId> {
        let mut frames: Vec<_> = self.frames_of(stack).collect();
        frames.reverse();
        frames
    }

    /// Returns the scopes of a path, innermost first.
    pub fn scopes_of(&self, scope: ScopeId) -> impl Iterator<Item = &Scope> {
        let mut at = scope;
        std::iter::from_fn(move || {
            let scope = self.tables.scopes.get(at.0 as usize).filter(|_| at != ScopeId(0))?;
            at = scope.parent;
            Some(scope)
        })
    }

    /// Returns the scopes of a path, outermost first.
    pub fn scope_path(&self, scope: ScopeId) -> Vec<&Scope> {
        let mut path: Vec<_> = self.scopes_of(scope).collect();
        path.reverse();
        path
    }

    /// Returns the display name of a frame: its function, else module and offset, else its address.
    pub fn label(&self, frame: FrameId) -> Cow<'_, str> {
        let frame = &self.tables.frames[frame.0 as usize];
        match (&frame.function, frame.module) {
            (Some(function), _) => Cow::Borrowed(function),
            (None, Some(module)) => {
                let file = self.tables.modules[module.0 as usize].file_name();
                Cow::Owned(format!("{file}+{:#x}", frame.offset))
            }
            (None, None) => Cow::Owned(format!("{:#x}", frame.offset)),
        }
    }
}

impl Module {
    /// Returns the last component of the path.
    pub fn file_name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }
}
