//! Which processes write a profile: those that have more of it mapped than its first page.

mod builder;

use builder::{Mapping, ProfileBuilder, Scratch, site};
use heaptide_analysis::model::{End, Recording};
use heaptide_analysis::running;
use heaptide_format::{Mode, PAGE};

fn profile(pid: u32) -> Vec<u8> {
    let mut p = ProfileBuilder::new(Mode::Stacks, pid, 0);
    p.site(0, site(0, 1, 16));
    p.lane(0, "app", |_| {});
    p.finish()
}

#[test]
fn a_process_that_maps_more_than_the_first_page_writes_the_profile() {
    for (offset, length, writes) in
        [(0, PAGE, false), (0, 2 * PAGE, true), (PAGE, PAGE, true), (2 * PAGE, PAGE, true)]
    {
        let scratch = Scratch::new("running-maps");
        let mut mapping = Mapping::start(&scratch, profile);
        mapping.map(offset, length);
        let end = Recording::open(&scratch).unwrap().processes[0].end;
        let expected = if writes { End::Running } else { End::Unknown };
        assert_eq!(end, expected, "{length} bytes from {offset}");
        assert_eq!(running::of_recording(&scratch).unwrap().len(), usize::from(writes));
        let found = running::of_process(mapping.pid()).unwrap();
        assert_eq!(found.map(|found| found.file), writes.then(|| mapping.profile.clone()));
    }
}
