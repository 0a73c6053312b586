//! Views of events: owners over time, lifetimes.

use heaptide_analysis::attribution::Owners;
use heaptide_analysis::views::lifetimes::{Lifetimes, OfSite, class};
use heaptide_analysis::views::owners_over_time::OwnersOverTime;

use crate::{TICK, Traced, allocated, freed};

/// The owners with most bytes at peak, and the sum of all others, at the highest point of each part
/// of the run.
#[test]
fn owners_over_time() {
    let mut t = Traced::new(3);
    t.profile.header.end_time_ns = 300 * TICK;
    let sites = t.sites.clone();
    t.events(0, &[(10, allocated(0x100, sites[0], 92)), (20, allocated(0x200, sites[1], 192))]);
    t.events(0, &[(21, freed(0x100)), (40, allocated(0x300, sites[2], 992)), (41, freed(0x200))]);
    let (_scratch, process) = t.read("owners-over-time");
    let owners = Owners::of(&process);
    let found = OwnersOverTime::of(&process, &owners, 2).unwrap();
    let times: Vec<u64> = found.times_ns.iter().map(|time| time / TICK).collect();
    assert_eq!(times, [10, 20, 21, 40, 41, 300]);
    let (first, others): (Vec<_>, _) =
        (found.owners.iter().map(|of| &of.1).collect(), &found.others);
    assert_eq!(first, [&[100, 100, 0, 0, 0, 0], &[0, 200, 200, 200, 0, 0]]);
    assert_eq!(others, &[0, 0, 0, 1000, 1000, 1000]);
}

/// Lifetimes by site: blocks that are never freed and blocks of pools have none, and a time span
/// has the lifetimes of blocks freed in it.
#[test]
fn lifetimes_by_site() {
    let mut t = Traced::new(3);
    let sites = t.sites.clone();
    let first = [
        (10, allocated(0x100, sites[0], 92)),
        (20, freed(0x100)),
        (20, allocated(0x100, sites[0], 92)),
        (50, freed(0x100)),
        (60, allocated(0x200, sites[1], 92)),
        (70, allocated(0x300, sites[0], 92)),
    ];
    t.events(0, &first);
    t.events(1, &[(90, freed(0x300))]);
    let (_scratch, process) = t.read("lifetimes-by-site");
    let found = Lifetimes::of(&process, 0..u64::MAX).unwrap();
    let expected = OfSite {
        sum_ns: 60 * TICK,
        max_ns: 30 * TICK,
        classes: [10, 20, 30].map(|ticks| (class(ticks * TICK), 1)).to_vec(),
    };
    assert_eq!(found.sites, [expected, OfSite::default(), OfSite::default()]);
    assert_eq!(found.sites[0].freed(), 3);
    let part = Lifetimes::of(&process, 50 * TICK..90 * TICK).unwrap();
    assert_eq!(part.sites[0].classes, [(class(30 * TICK), 1)]);
    // In a time span, sites without counters are removed, and the others keep their lifetimes.
    let during = process.during(85 * TICK, 95 * TICK).unwrap();
    assert_eq!(during.tables.sites.len(), 3); // one of them is new: the frees of its thread
    let part = Lifetimes::of(&during, 85 * TICK..95 * TICK).unwrap();
    let freed: Vec<u64> = part.sites.iter().map(OfSite::freed).collect();
    assert_eq!(freed, [1, 0, 0]);
}
