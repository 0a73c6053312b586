//! Signal handlers that interrupt a thread anywhere, in each mode: the program continues, and no
//! event is lost.

use crate::harness::Trial;

const MODES: [&str; 4] = ["counters", "scopes", "sampled", "trace"];

/// Losses of events. Stacks may end early: entries of the recorder have no unwind information.
fn lost_events(trial: &Trial<'_>, mode: &str) -> Vec<(String, i128)> {
    let mut losses = trial.losses(&["--mode", mode]);
    losses.retain(|(name, _)| name != "no_rule" && name != "outside_stack");
    losses
}

/// glibc's arenas are locked while the handler runs.
#[test]
fn that_map_while_threads_allocate() {
    let trial = Trial::new("handler_maps.c", "handler-maps-modes", &[], &[]);
    for mode in MODES {
        assert_eq!(lost_events(&trial, mode), [], "--mode {mode}");
    }
}

/// Names a test after the mode in which a handler runs at every instruction. dlopen, which is the
/// same in each mode, is left to the test with stacks in `mappings`.
macro_rules! at_every_instruction {
    ($($mode:ident)*) => {
        $(#[test]
        fn $mode() {
            let variant = concat!("handler-steps-", stringify!($mode));
            let trial = Trial::new("handler_steps.c", variant, &[], &[("STEPS_WITHOUT_DLOPEN", "1")]);
            assert_eq!(lost_events(&trial, stringify!($mode)), []);
        })*
    };
}

mod at_every_instruction {
    use super::*;

    at_every_instruction! { counters scopes sampled trace }
}
