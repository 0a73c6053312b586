//! The owner of each stack.

use super::behaviour;
use super::functions::{FunctionId, Functions};
use super::known::Role;
use crate::model::{FrameId, Process, StackId};

/// The owner of every stack of a process, the same in every view.
///
/// The owner is the innermost frame that is not a wrapper, container or part of a runtime. If there
/// is none, as in an interpreter that runs a script, it is the innermost frame that is not a
/// wrapper or container; else the innermost that is not a wrapper; else the innermost.
#[derive(Debug)]
pub struct Owners {
    /// The functions of the process.
    pub functions: Functions,
    /// Roles by function.
    roles: Vec<Role>,
    /// By stack: the stack that ends with its owner; the root for the root.
    owners: Vec<StackId>,
}

impl Owners {
    /// Finds the owners of a process. With raw attribution, each innermost frame owns its stack.
    ///
    /// ```
    /// use heaptide_analysis::attribution::Owners;
    /// use heaptide_analysis::model::StackId;
    /// # let mut bytes = vec![0; 4096];
    /// # bytes[..8].copy_from_slice(b"HEAPTIDE");
    /// # (bytes[8], bytes[12], bytes[65]) = (1, 2, 16);
    /// # let process =
    /// #     heaptide_analysis::model::Process::from_bytes(&bytes, "x".as_ref()).unwrap();
    /// assert_eq!(Owners::of(&process).frame(&process, StackId(0)), None);
    /// ```
    pub fn of(process: &Process) -> Owners {
        let functions = Functions::of(process);
        if process.attribution.is_raw {
            let roles = vec![Role::Owner; functions.len()];
            let owners = (0..process.tables.stacks.len() as u32).map(StackId).collect();
            return Owners { functions, roles, owners };
        }
        let mut roles = functions.roles(process);
        let mut owners = of_stacks(process, &functions, &roles);
        for _ in 0..behaviour::ROUNDS {
            if !behaviour::find_wrappers(process, &functions, &owners, &mut roles) {
                break;
            }
            owners = of_stacks(process, &functions, &roles);
        }
        Owners { functions, roles, owners }
    }

    /// Returns the same owners by line: functions are replaced by their lines
    /// ([`Functions::by_line`]).
    pub fn by_line(self, process: &Process) -> Owners {
        let functions = self.functions.by_line(process);
        let lines = (0..functions.len() as u32).map(FunctionId);
        let function = |line| self.functions.of_frame(functions.first_frame(line));
        let roles = lines.map(|line| self.role(function(line))).collect();
        Owners { functions, roles, owners: self.owners }
    }

    /// Returns the frame of a stack's owner; `None` without a stack.
    pub fn frame(&self, process: &Process, stack: StackId) -> Option<FrameId> {
        let owner = self.stack(stack);
        (owner != StackId(0)).then(|| process.tables.stacks[owner.0 as usize].frame)
    }

    /// Returns the stack without the frames inside its owner.
    pub fn stack(&self, stack: StackId) -> StackId {
        self.owners.get(stack.0 as usize).copied().unwrap_or(StackId(0))
    }

    /// Returns the frame through which a stack's owner allocates: its callee, unless the owner
    /// allocates directly.
    pub fn through(&self, process: &Process, stack: StackId) -> Option<FrameId> {
        let owner = self.stack(stack);
        let mut at = stack;
        while at != owner && at != StackId(0) {
            let node = &process.tables.stacks[at.0 as usize];
            if node.parent == owner {
                return Some(node.frame);
            }
            at = node.parent;
        }
        None
    }

    /// Returns the role of a function.
    pub fn role(&self, function: FunctionId) -> Role {
        self.roles[function.0 as usize]
    }

    /// Returns the roles of all functions.
    pub fn roles(&self) -> &[Role] {
        &self.roles
    }
}

fn of_stacks(process: &Process, functions: &Functions, roles: &[Role]) -> Vec<StackId> {
    let nodes = process.tables.stacks.iter().skip(1);
    let nodes = nodes.map(|node| (node.parent.0, roles[functions.of_frame(node.frame).0 as usize]));
    owners_in_tree(nodes).into_iter().map(StackId).collect()
}

/// Returns, for each node of a tree, the node of its owner: itself or an ancestor. Nodes follow
/// their parents and are numbered from 1; each is given as its parent and the role of its function.
/// Node 0 is the root, which owns itself.
pub fn owners_in_tree(nodes: impl ExactSizeIterator<Item = (u32, Role)>) -> Vec<u32> {
    /// Candidates by descending strictness; 0 if there is none.
    type Found = [u32; 3];
    let mut found: Vec<Found> = Vec::with_capacity(nodes.len() + 1);
    let mut owners = Vec::with_capacity(nodes.len() + 1);
    found.push([0; 3]);
    owners.push(0);
    for ((parent, role), node) in nodes.zip(1u32..) {
        let mut here = found[parent as usize];
        let strict = match role {
            Role::Owner => 3,
            Role::Runtime | Role::Starter => 2,
            Role::Container => 1,
            Role::Wrapper => 0,
        };
        here[3 - strict..].fill(node);
        owners.push(here.into_iter().find(|&owner| owner != 0).unwrap_or(node));
        found.push(here);
    }
    owners
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::with_stacks;
    use crate::model::{Frame, ModuleId};
    use Role::{Container, Owner, Runtime, Starter, Wrapper};

    /// Returns the position of the owner in a stack of functions with these roles, outermost first.
    fn owner(roles: &[Role]) -> u32 {
        let nodes: Vec<(u32, Role)> = (0..).zip(roles.iter().copied()).collect();
        owners_in_tree(nodes.into_iter()).last().copied().unwrap_or_default()
    }

    #[test]
    fn the_owner_is_the_innermost_that_does_more_than_allocate() {
        assert_eq!(owner(&[Starter, Owner, Owner, Container, Wrapper]), 3);
        assert_eq!(owner(&[Starter, Owner, Runtime, Container, Wrapper]), 2);
        assert_eq!(owner(&[Owner]), 1);
    }

    /// `__libc_start_call_main` has no name without debug information.
    #[test]
    fn what_starts_a_program_owns_nothing_though_it_has_no_name() {
        let mut process = with_stacks(&["_start;__libc_start_main;call_main;_PyEval_X;malloc"]);
        let libc = process.tables.modules.iter().position(|m| m.file_name() == "libc.so");
        let call_main = |frame: &&mut Frame| frame.function.as_deref() == Some("call_main");
        let frame = process.tables.frames.iter_mut().find(call_main).expect("its frame");
        (frame.function, frame.module) = (None, libc.map(|index| ModuleId(index as u32)));
        let owners = Owners::of(&process);
        let innermost = StackId(process.tables.stacks.len() as u32 - 1);
        let owner = owners.frame(&process, innermost).expect("an owner");
        assert_eq!(process.label(owner), "_PyEval_X");
    }

    /// Java's compiled code owned most memory of a program, as `?`.
    #[test]
    fn compiled_code_without_a_name_owns_nothing() {
        let mut process = with_stacks(&["main;compiled;malloc"]);
        let compiled = |frame: &&mut Frame| frame.function.as_deref() == Some("compiled");
        let frame = process.tables.frames.iter_mut().find(compiled).expect("its frame");
        (frame.function, frame.module) = (None, None);
        let innermost = StackId(process.tables.stacks.len() as u32 - 1);
        let owners = Owners::of(&process);
        let owner = owners.frame(&process, innermost).expect("an owner");
        assert_eq!(process.label(owner), "main");
    }

    /// `new_delete_resource()` of libstdc++ owned the arenas of a program.
    #[test]
    fn functions_without_names_in_the_library_of_cpp_own_nothing() {
        let mut process = with_stacks(&["main;reserve;do_allocate;malloc"]);
        let libc = process.tables.modules.iter().position(|m| m.file_name() == "libc.so");
        let library = ModuleId(libc.expect("a module") as u32);
        process.tables.modules[library.0 as usize].path = "/usr/lib/libstdc++.so.6".into();
        let inner = |frame: &&mut Frame| frame.function.as_deref() == Some("do_allocate");
        let frame = process.tables.frames.iter_mut().find(inner).expect("its frame");
        (frame.function, frame.module) = (None, Some(library));
        let innermost = StackId(process.tables.stacks.len() as u32 - 1);
        let owner = Owners::of(&process).frame(&process, innermost).expect("an owner");
        assert_eq!(process.label(owner), "reserve");
    }

    #[test]
    fn where_all_are_a_runtime_the_innermost_of_it_owns() {
        assert_eq!(owner(&[Starter, Runtime, Runtime, Container, Wrapper]), 3);
        assert_eq!(owner(&[Container, Container, Wrapper, Wrapper]), 2);
        assert_eq!(owner(&[Wrapper, Wrapper]), 2, "the innermost");
        assert_eq!(owner(&[]), 0);
    }
}
