//! Tables of what a search of a process found: `retained`, the blocks by state; and `keepers`, the
//! blocks by what keeps them.

use heaptide_analysis::model::Process;
use heaptide_analysis::model::retained::{Kept, Node, Root, Search};
use heaptide_analysis::views::retained::OfSites;

use super::info::Info;
use super::sites::{Blocks, Places, of_blocks};
use super::source::{Filler, Records, Source};

pub(super) const RETAINED: Source = Source {
    name: "retained",
    says: "live blocks when a process was searched (`run --retain`, `ctl retain`), by stack, scope \
           and label, and by how they can be reached",
    columns: || {
        let mut all = of_blocks();
        all.extend([
            Info::text("state", "how the blocks can be reached: reachable, lost, …"),
            Info::text("root", "what a shortest path to one of them begins with: a variable, …"),
            Info::text("root_path", "that path, from the root on; none of lost blocks").if_named(),
        ]);
        all.extend(of_search());
        all
    },
    records: Records::Tables(|filler, process| {
        let Some(search) = &process.search else { return };
        let rows = Rows::new(filler, process, search);
        for of in &search.retained.sites {
            let Some(row) = rows.add(filler, of.site, of.kept) else { continue };
            filler.text("state", row, of.state.name());
            if let Some(root) = of.path.first() {
                filler.text("root", row, &rows.name(*root));
                let names: Vec<String> = of.path.iter().map(|node| rows.name(*node)).collect();
                filler.text("root_path", row, &names.join(" → "));
            }
        }
    }),
};

pub(super) const KEEPERS: Source = Source {
    name: "keepers",
    says: "live blocks when a process was searched, by the variable, thread or block without which \
           they would be free, and by stack, scope and label",
    columns: || {
        let mut all = vec![
            Info::uint("keeper_number", "", "number of the keeper, from 1 for the most bytes"),
            Info::text("keeper", "variable, or description of a thread or block"),
            Info::text("keeper_kind", "variable, thread_local, stack, mapping, block, …"),
            Info::text("keeper_module", "file name of the module with the variable"),
            Info::text("keeper_file", "source file that declares the variable"),
            Info::uint("keeper_line", "", "line in that file"),
        ];
        all.extend(of_blocks());
        all.extend(of_search());
        all
    },
    records: Records::Tables(|filler, process| {
        let Some(search) = &process.search else { return };
        let rows = Rows::new(filler, process, search);
        for (keeper, number) in search.retained.keepers.iter().zip(1u64..) {
            for &(site, kept) in &keeper.sites {
                let Some(row) = rows.add(filler, site, kept) else { continue };
                filler.uint("keeper_number", row, number);
                filler.text("keeper", row, &rows.name(keeper.node));
                match rows.root(keeper.node) {
                    Some(root) => set_root(filler, row, root),
                    None => filler.text("keeper_kind", row, "block"),
                }
            }
        }
    }),
};

/// Returns the columns of both tables about the blocks and the search.
fn of_search() -> [Info; 3] {
    [
        Info::uint("live_blocks", "blocks", "the blocks"),
        Info::uint("live_bytes", "bytes", "their usable bytes"),
        Info::uint("time_ns", "ns", "time of the search, from the start of the process"),
    ]
}

fn set_root(filler: &mut Filler, row: usize, root: &Root) {
    filler.text("keeper_kind", row, root.kind.name());
    if let Some(module) = &root.module {
        filler.text("keeper_module", row, module);
    }
    if let Some(declared) = &root.declared {
        filler.text("keeper_file", row, &declared.file);
        filler.uint("keeper_line", row, declared.line);
    }
}

/// What rows of both tables refer to.
struct Rows<'a> {
    process: &'a Process,
    search: &'a Search,
    sites: OfSites<'a>,
    blocks: Blocks,
    places: Places,
}

impl<'a> Rows<'a> {
    fn new(filler: &mut Filler, process: &'a Process, search: &'a Search) -> Rows<'a> {
        let (blocks, places) = (Blocks::new(filler, process), Places::of(filler, process));
        Rows { process, search, sites: OfSites::of(process), blocks, places }
    }

    /// Adds a row for blocks of a site; `None` if a selection excluded that.
    fn add(&self, filler: &mut Filler, site: u32, kept: Kept) -> Option<usize> {
        let site = self.sites.site(site)?;
        let row = filler.row();
        self.places.set(filler, row, site.scope);
        self.blocks.set(filler, self.process, row, site);
        filler.uint("live_blocks", row, kept.blocks);
        filler.uint("live_bytes", row, kept.bytes);
        filler.uint("time_ns", row, self.search.when.time_ns);
        Some(row)
    }

    fn root(&self, node: Node) -> Option<&'a Root> {
        match node {
            Node::Root(root) => self.search.retained.roots.get(root),
            Node::Blocks { .. } => None,
        }
    }

    /// Returns the name of a root, or a description of blocks.
    fn name(&self, node: Node) -> String {
        match node {
            Node::Root(root) => {
                self.search.retained.roots.get(root).map_or_else(String::new, |of| of.name.clone())
            }
            Node::Blocks { site, count } => {
                let frame = self.sites.frame(site).map(|frame| self.process.label(frame));
                let by = frame.unwrap_or("code without a stack".into());
                let blocks =
                    if count == 1 { "a block".to_owned() } else { format!("{count} blocks") };
                format!("{blocks} by {by}")
            }
        }
    }
}
