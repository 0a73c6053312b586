//! Rules accept any numbers: a profile is untrusted input, and no sum of its counters may panic.

use heaptide_advise::{Advice, Finding, History, Suppressions};
use heaptide_analysis::model::{End, Measure, Process, Recording, Sample, Scope, ScopeId, Window};
use heaptide_fixtures::{ProgramBuilder, Random, Scratch};

/// Stacks of several functions, one of which grows a vector.
const STACKS: [&str; 6] = [
    "main;read;@malloc",
    "main;read;std::vector<int>::_M_realloc_append;@malloc",
    "main;parse;@realloc",
    "main;parse;node;@malloc",
    "worker;message;@malloc",
    "",
];

fn process() -> Process {
    let scratch = Scratch::new("extremes");
    let program = ProgramBuilder::with_stacks(&STACKS);
    let mut recording = Recording::open(&program.write(&scratch)).expect("a recording");
    let mut process = recording.processes.remove(0);
    let scope = Scope::new(ScopeId(0), "region".into(), "step".into());
    process.tables.scopes.push(scope);
    process
}

/// Returns a number that is small, large, or random.
fn number(random: &mut Random) -> u64 {
    let any = random.next();
    match any % 5 {
        0 => 0,
        1 => any % 100,
        2 => u64::MAX - any % 3,
        3 => any >> (any % 64),
        _ => 1 << (any % 64),
    }
}

fn change(process: &mut Process, random: &mut Random) {
    let scopes = process.tables.scopes.len() as u64;
    for site in &mut process.tables.sites {
        for measure in Measure::all() {
            measure.set(&mut site.measures, number(random));
        }
        site.scope = ScopeId((random.next() % scopes) as u32);
        site.size = (random.next().is_multiple_of(2)).then(|| number(random));
    }
    for scope in &mut process.tables.scopes {
        (scope.entered, scope.frees_here) = (number(random), number(random));
    }
    for measure in Measure::all() {
        measure.set(&mut process.totals, number(random));
    }
    let mut time_ns = 0u64;
    process.time.samples = (0..20)
        .map(|_| {
            time_ns = time_ns.saturating_add(number(random));
            let [live_bytes, resident_bytes] = [number(random), number(random)];
            Sample { time_ns, live_bytes, resident_bytes, ..Sample::default() }
        })
        .collect();
    let window = Window {
        name: "request".into(),
        open: false,
        begin_time_ns: 0,
        end_time_ns: 0,
        allocations: 0,
        frees: 0,
        reallocations: 0,
        failed: 0,
        requested_bytes: 0,
        usable_bytes: 0,
        freed_bytes: 0,
        live_blocks: 0,
        live_bytes: 0,
        peak_bytes: 0,
        peak_bound_bytes: 0,
    };
    let net = |random: &mut Random| Window { live_bytes: number(random) as i64, ..window.clone() };
    process.time.windows = (0..20).map(|_| net(random)).collect();
    process.peak_time_ns = number(random);
    process.lifetime.duration_ns = number(random);
    process.lifetime.end = End::Exited(0);
}

#[test]
fn rules_do_not_panic_on_any_numbers() {
    let mut random = Random::new(7);
    let mut process = process();
    let mut rules = std::collections::BTreeSet::new();
    for _ in 0..500 {
        change(&mut process, &mut random);
        let history = History {
            times_ns: (0..12).map(|_| number(&mut random)).collect(),
            processes: vec![process.clone(); 12],
        };
        let advice = Advice::of(&process, &history, &Suppressions::none());
        let findings = advice.findings.iter();
        rules.extend(findings.clone().map(|finding| finding.rule));
        findings.for_each(|finding: &Finding| {
            assert!(!finding.suppression(&process).is_empty() && !finding.what.is_empty());
        });
    }
    assert!(rules.len() >= 6, "hardly anything was found: {rules:?}");
}
