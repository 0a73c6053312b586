//! Turns scopes into frames: the scope path of each site becomes the outer part of its stack.

use rustc_hash::FxHashMap;

use super::rebuild_stacks::Stacks;
use crate::model::{Frame, FrameId, Mode, Process, ScopeId, StackId, Trace};

/// The frames below the scopes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Inside {
    /// None: a stack is a path of scopes.
    Nothing,
    /// The functions, outermost first, of the stack of each allocation.
    Functions,
}

/// The outermost frame of allocations without a scope.
const NO_SCOPE: &str = "(no scope)";

impl Process {
    /// Converts scopes to the outermost frames of stacks: a stack is then a path of scopes,
    /// followed by the functions that allocate, if requested. Sites keep their scopes. Allocations
    /// without a scope are below a frame `(no scope)`. A recording without stacks gets stacks.
    ///
    /// Linear in the size of the resulting stack tree.
    ///
    /// ```
    /// use heaptide_analysis::selection::scope_frames::Inside;
    /// # let mut bytes = vec![0; 4096];
    /// # bytes[..8].copy_from_slice(b"HEAPTIDE");
    /// # (bytes[8], bytes[12], bytes[65]) = (1, 2, 16);
    /// # let mut process =
    /// #     heaptide_analysis::model::Process::from_bytes(&bytes, "x".as_ref()).unwrap();
    /// process.scopes_to_frames(Inside::Functions);
    /// let outermost = |site| process.path_of(site).first().copied();
    /// let is_scope = |frame: heaptide_analysis::model::FrameId| {
    ///     process.tables.frames[frame.0 as usize].is_scope()
    /// };
    /// let sites = &process.tables.sites;
    /// assert!(sites.iter().all(|site| outermost(site.stack).is_some_and(is_scope)));
    /// ```
    pub fn scopes_to_frames(&mut self, inside: Inside) {
        let mut stacks = Stacks::with_capacity(self.tables.stacks.len());
        let of_scope = self.stacks_of_scopes(&mut stacks);
        let mut known = FxHashMap::default();
        let mut way = Vec::new();
        for index in 0..self.tables.sites.len() {
            let (scope, mut at) = (self.tables.sites[index].scope, self.tables.sites[index].stack);
            if inside == Inside::Nothing {
                at = StackId(0);
            }
            let mut stack = loop {
                match known.get(&(scope, at)) {
                    _ if at == StackId(0) => break of_scope[scope.0 as usize],
                    Some(&stack) => break stack,
                    None => way.push(at),
                }
                at = self.tables.stacks[at.0 as usize].parent;
            };
            for at in way.drain(..).rev() {
                stack = stacks.child(stack, self.tables.stacks[at.0 as usize].frame);
                known.insert((scope, at), stack);
            }
            self.tables.sites[index].stack = stack;
        }
        self.move_stacks_of_frees(&mut stacks, inside);
        self.tables.stacks = stacks.into_nodes();
        if self.mode == Mode::Scopes {
            self.mode = Mode::Stacks;
        }
        self.settle();
    }

    /// Stacks of frees do not get scopes, because the scope of the freeing thread is not that of
    /// the block.
    fn move_stacks_of_frees(&mut self, stacks: &mut Stacks, inside: Inside) {
        let mut new = vec![StackId(0); self.tables.stacks.len()];
        let any = self.time.traces.iter().flat_map(Trace::stacks).next().is_some();
        if any && inside == Inside::Functions {
            for (index, node) in self.tables.stacks.iter().enumerate().skip(1) {
                new[index] = stacks.child(new[node.parent.0 as usize], node.frame);
            }
        }
        for trace in &mut self.time.traces {
            trace.move_stacks(|stack| new[stack.0 as usize]);
        }
    }

    /// Returns the stack of each scope path, with a frame for each name.
    fn stacks_of_scopes(&mut self, stacks: &mut Stacks) -> Vec<StackId> {
        let mut frames: FxHashMap<String, FrameId> = FxHashMap::default();
        let mut of_scope: Vec<StackId> = Vec::with_capacity(self.tables.scopes.len().max(1));
        for (index, scope) in self.tables.scopes.iter().enumerate() {
            let none = index == 0;
            let name = if none { NO_SCOPE.to_owned() } else { scope.name() };
            let frame = match frames.get(&name) {
                Some(&frame) => frame,
                None => {
                    self.tables.frames.push(Frame::of_scope(&name));
                    let frame = FrameId((self.tables.frames.len() - 1) as u32);
                    frames.insert(name, frame);
                    frame
                }
            };
            let outermost = none || scope.parent == ScopeId(0);
            let around = if outermost { StackId(0) } else { of_scope[scope.parent.0 as usize] };
            of_scope.push(stacks.child(around, frame));
        }
        of_scope
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{path_names, process, site};

    #[test]
    fn scopes_are_outside_of_functions() {
        // Scope load with parse in it; stack main with read in it.
        let mut process = process();
        process.tables.sites =
            vec![site(2, 2, 10), site(2, 0, 20), site(1, 1, 30), site(0, 1, 40), site(2, 2, 50)];
        process.scopes_to_frames(Inside::Functions);
        let lines: Vec<_> = process
            .tables
            .sites
            .iter()
            .map(|site| (path_names(&process, site.stack), site.measures.live_bytes))
            .collect();
        let expected = [
            ("load;parse=3;main;read", 60),
            ("(no scope);main;read", 20),
            ("load;main", 30),
            ("load", 40),
        ];
        let expected = expected.map(|(line, bytes)| (line.to_owned(), bytes));
        assert_eq!(lines, expected);
        process.scopes_to_frames(Inside::Nothing);
        let paths: Vec<_> =
            process.tables.sites.iter().map(|s| path_names(&process, s.stack)).collect();
        assert_eq!(paths, ["load;parse=3", "(no scope)", "load"]);
        assert_eq!(process.tables.sites[2].measures.live_bytes, 70);
        assert_eq!((process.tables.stacks.len(), process.tables.frames.len()), (4, 3));
    }
}
