//! Names the block that the C++ library keeps for exceptions: it is the only memory of many small
//! programs, and the library has no names for its code.

use std::sync::Arc;

use crate::model::{FrameId, Process, Site, SiteKind};

/// The name of the function that owns the block.
pub const NAME: &str = "[C++ emergency pool (libstdc++)]";
/// The sizes of the block, with GCC up to 12 and from 13 on.
pub const SIZES: [u64; 2] = [72_704, 73_728];
/// Functions that initialise libraries, …
const INITIALISERS: [&str; 3] = ["call_init", "_dl_init", "__libc_csu_init"];
/// … and begins of the names of the files that contain them.
const LOADERS: [&str; 2] = ["ld-linux", "ld-musl"];
/// Begin of the file name of the library.
const LIBRARY: &str = "libstdc++.so";

impl Process {
    /// Names the code that allocates the emergency pool of the C++ library. Must be applied after
    /// filters, which refer to the original functions.
    pub fn name_emergency_pool(&mut self) {
        let of_size = self.tables.sites.iter().filter(|site| is_of_size(site));
        let pools: Vec<FrameId> = of_size.filter_map(|site| self.pool_of(site)).collect();
        for id in pools {
            self.tables.frames[id.0 as usize].function = Some(Arc::from(NAME));
        }
    }

    /// Returns the frame of the code that allocates the pool, if a block of its size is the pool:
    /// code of the library without a name, called while the library is initialised.
    fn pool_of(&self, site: &Site) -> Option<FrameId> {
        let in_library = |id: &FrameId| self.file_of(*id).starts_with(LIBRARY);
        let mut frames = self.frames_of(site.stack).skip_while(|id| !in_library(id));
        let pool = frames.next()?;
        let caller = frames.find(|id| !in_library(id))?;
        let name = |id: FrameId| self.tables.frames[id.0 as usize].function.as_deref();
        let is_loader = LOADERS.iter().any(|loader| self.file_of(caller).starts_with(loader));
        let is_initialiser = name(caller).is_some_and(|name| INITIALISERS.contains(&name));
        (name(pool).is_none() && (is_loader || is_initialiser)).then_some(pool)
    }

    /// Returns the name of the file of a frame's code.
    fn file_of(&self, id: FrameId) -> &str {
        let module = self.tables.frames[id.0 as usize].module;
        let module = module.and_then(|module| self.tables.modules.get(module.0 as usize));
        module.map_or("", |module| module.file_name())
    }
}

/// Returns whether the blocks of a site have the size of the pool. Joined processes have one each.
fn is_of_size(site: &Site) -> bool {
    let (blocks, bytes) = (site.measures.allocations, site.measures.requested_bytes);
    let is_of = |size: &u64| size.checked_mul(blocks) == Some(bytes);
    site.kind == SiteKind::Heap && blocks > 0 && SIZES.iter().any(is_of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixtures::{site, with_stacks};
    use crate::model::{Module, ModuleId};

    /// Returns the name of code in a file that a function calls and that allocates a block.
    fn named(file: &str, caller: &str, size: u64) -> Option<String> {
        let mut process = with_stacks(&[&format!("_start;{caller};pool")]);
        let path = format!("/usr/lib/{file}");
        process.tables.modules.push(Module { path, ..process.tables.modules[0].clone() });
        let module = ModuleId(process.tables.modules.len() as u32 - 1);
        let is_pool = |frame: &&mut crate::model::Frame| frame.function.as_deref() == Some("pool");
        let frame = process.tables.frames.iter_mut().find(is_pool).expect("its frame");
        (frame.function, frame.module) = (None, Some(module));
        let stack = process.tables.stacks.len() as u32 - 1;
        process.tables.sites = vec![site(stack, 0, size)];
        process.name_emergency_pool();
        let mut frames = process.tables.frames.iter();
        let frame = frames.find(|frame| frame.module == Some(module)).expect("its frame");
        frame.function.as_deref().map(str::to_owned)
    }

    #[test]
    fn the_pool_of_the_cpp_library_has_a_name() {
        assert_eq!(named("libstdc++.so.6.0.30", "call_init", 72_704).as_deref(), Some(NAME));
        assert_eq!(named("libstdc++.so.6.0.33", "_dl_init", 73_728).as_deref(), Some(NAME));
        assert_eq!(named("libstdc++.so.6.0.30", "main", 72_704), None, "a string");
        assert_eq!(named("libstdc++.so.6.0.30", "call_init", 72_705), None, "another size");
        assert_eq!(named("libapp.so", "call_init", 72_704), None, "another library");
    }
}
