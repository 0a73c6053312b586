//! One test for each danger inside a guest, each with a program of `tests/programs`.

use crate::harness::{check, check_with, programs};
use heaptide_fixtures::skips::{ROOT, is_root, skip};

/// Names a test after its program, which contains the numbers.
macro_rules! dangers {
    ($($name:ident $file:literal)*) => {
        $(#[test]
        fn $name() {
            check($file);
        })*
        /// The same with every event in a trace, which adds up to the same counters.
        mod traced {
            $(#[test]
            fn $name() {
                crate::trace::check($file);
            })*
        }
        const CHECKED: &[&str] = &[$($file),*];
    };
}

dangers! {
    exact_counts "counts.c"
    exact_peak "peak.c"
    peak_under_realloc "realloc_peak.c"
    peak_under_realloc_by_mremap "realloc_remaps.c"
    leaks "leaks.c"
    temporaries "temporary.c"
    large_blocks "large.c"
    large_blocks_again "large_again.c"
    cpp_operators "proxies.cpp"
    failing_operators "new_fails.cpp"
    failing_aligned_operators "new_aligned_fails.cpp"
    peak_among_threads "threads_peak.c"
    rust_program "collections.rs"
    before_and_after_main "early.cpp"
    hooks_of_its_own "own_malloc.c"
    a_clock_that_crashes "own_clock.c"
    an_allocator_of_the_executable "intercepted.c"
    an_allocator_of_the_executable_in_constructors "intercepted_early.c"
    an_allocator_of_a_library "family.c"
    functions_that_resize "family_resizes.c"
    a_second_c_library "namespaces.c"
    deeply_bound_libraries "deepbind.c"
    allocators_under_any_prefix "prefixed.c"
    an_allocator_of_no_known_family "unknown_family.c"
    inlined_functions_of_an_allocator "inlined.c"
    older_versions_of_functions "old_versions.c"
    libraries_that_come_and_go_among_threads "family_reload.c"
    signals_in_an_intercepted_allocator "family_signals.c"
    thread_local_destructors "thread_end.cpp"
    destructors_until_the_last_round "key_destructors.cpp"
    usable_to_the_last_byte "usable.c"
    fork_without_exec "fork.c"
    fork_and_exec "fork_exec.c"
    exec_in_place "exec.c"
    a_program_that_is_replaced "replaced.c"
    fork_among_threads "fork_threads.c"
    vfork_children "vfork.c"
    spawned_children "spawn.c"
    raw_clone "clone.c"
    clones_that_share_memory "clone_shares.c"
    five_hundred_children "swarm.c"
    address_reuse_by_dlopen "reload.c"
    a_library_that_is_half_unloaded "half_unloaded.c"
    libraries_that_threads_unload "unloaded_by_threads.c"
    late_module "late_module.c"
    code_mapped_again "code_again.c"
    generated_code_under_strict_seccomp "jit_strict.c"
    cpp_exceptions "exceptions.cpp"
    long_jumps "longjmp.c"
    coroutine_stacks "coroutines.c"
    allocating_handlers "signals.c"
    signal_storm "signal_storm.c"
    smallest_stacks "small_stacks.c"
    handlers_on_smallest_stacks "handler_stacks.c"
    two_thousand_threads "many_threads.c"
    seventy_thousand_threads "thread_churn.c"
    cross_thread_frees "cross_thread.c"
    static_pie "static_pie.c"
    static_program "static.c"
    musl_dynamic "musl.c"
    musl_static "musl_static.c"
    musl_static_that_frees_nothing "musl_keeps.c"
    quick_exit "quick_exit.c"
    exit_at_once "exit_at_once.c"
    main_thread_leaves_first "thread_exits.c"
    killed "killed.c"
    aborts "aborts.c"
    crashes "crashes.c"
    free_of_no_block "wrong_free.c"
    free_of_no_block_at_first "wrong_free_early.c"
    stopped_and_traced "stopped.c"
    environment_written_over "titles.c"
    every_way_to_exec "executes.c"
    allocating_on_an_alternate_stack "alternate_stack.c"
    heap_below_four_mebibytes "low_heap.c"
    locked_memory "locks_memory.c"
    size_of_a_core_file "core_size.c"
    address_space_limit "rlimit_as.c"
    limits_set_at_run_time "limits_itself.c"
    limits_of_every_kind "limits_each.c"
    file_size_limit "rlimit_fsize.c"
    descriptor_limit "rlimit_nofile.c"
    closed_descriptors "close_all.c"
    strict_seccomp "seccomp_strict.c"
    filtered_seccomp "seccomp_filter.c"
    sandboxed_children "sandboxed_child.c"
    files_forbidden_by_landlock "landlocked.c"
    seccomp_tried_out "tries_seccomp.c"
    forbidden_clock "no_clock.c"
    five_thousand_frames "deep.c"
    fifty_thousand_frames "deepest.c"
    frame_shapes "frames.c"
    hand_written_frames "asm_frames.c"
    frames_that_only_seem_to_be "guessed_frames.c"
    wide_node "wide.cpp"
    tail_calls "tail_calls.c"
    known_lifetimes "trace_lifetimes.c"
    addresses_go_round "trace_cross.c"
    every_kind_of_realloc "trace_realloc.c"
    labels_and_pools_in_order "trace_labels.c"
    scopes_without_allocations "trace_scopes.c"
    live_bytes_in_scopes "scope_peaks.c"
    live_bytes_in_scopes_of_threads "scope_peaks_threads.c"
    arrays_of_time_steps "trace_lulesh.c"
    threads_in_turn_and_at_once "trace_threads.c"
    recording_off_and_on "trace_switch.c"
    file_size_limit_in_the_middle "trace_limited.c"
    freeing_handlers "trace_signals.c"
    forks_of_a_program_at_work "trace_forks.c"
}

/// Programs that other tests run, with arguments, libraries or signals.
const ELSEWHERE: [&str; 129] = [
    "arenas.c",
    "device.c",
    "device_arrays.c",
    "device_attached.c",
    "device_c10.c",
    "device_cuda.c",
    "device_cuda.h",
    "device_hip.c",
    "device_others.c",
    "device_pools.c",
    "device_steps.c",
    "device_threads.c",
    "device_zero.c",
    "kokkos.c",
    "first_answers.c",
    "growing_cache.cpp",
    "sparse_memory.c",
    "thread_locals.c",
    "thread_locals_plugin.c",
    "timed_waits.c",
    "lost_at_exit.cpp",
    "resident_between.c",
    "renamed.c",
    "renamed_pointer.c",
    "renamed_heaps.c",
    "destroyed_heaps.c",
    "unknown_wrapper.c",
    "owners.f90",
    "python_again.c",
    "python_objects.py",
    "python_attached.py",
    "python_held.py",
    "python_held_forked.py",
    "lines.c",
    "runtime_heap.c",
    "runtime_parts.c",
    "churn.c",
    "sampled.c",
    "sampled_sizes.c",
    "sampled_labels.c",
    "agree.c",
    "allocator_inside.c",
    "attached.c",
    "audit_plugin.c",
    "audited.c",
    "attached_filtered.c",
    "attached_openmp.c",
    "attached_starts.c",
    "attached_threads.c",
    "backtrace.cpp",
    "by_call.cpp",
    "bursts.c",
    "by_size.c",
    "checked.c",
    "churn_lines.py",
    "churning.c",
    "clock_plugin.c",
    "debug_malloc.c",
    "deepbind_plugin.c",
    "early_plugin.c",
    "endless.c",
    "exported.c",
    "extended.c",
    "family_plugin.c",
    "gives_up_rights.c",
    "handler_maps.c",
    "handler_steps.c",
    "highest.c",
    "hungry.c",
    "inlined_plugin.c",
    "jit_times.c",
    "kill_points.c",
    "late_plugin.c",
    "launch_member.c",
    "looping.c",
    "map_before.c",
    "map_break.c",
    "map_confined.c",
    "map_files.c",
    "map_fixed.c",
    "map_fork.c",
    "map_partial.c",
    "map_remap.c",
    "map_reserved.c",
    "map_reset.c",
    "retained.c",
    "map_shared.c",
    "map_signals.c",
    "map_threads.c",
    "moves_away.c",
    "leaves_plugin.c",
    "namespaces_plugin.c",
    "new_plugin.cpp",
    "no_processes.c",
    "outlives.c",
    "over_time.c",
    "owners.cpp",
    "owners.rs",
    "page_names.c",
    "pictures.c",
    "plain.c",
    "plugin.c",
    "python_embedded.c",
    "python_exit.c",
    "python_exit.py",
    "python_frames.py",
    "ranks.c",
    "filled_late.c",
    "killed_children.c",
    "map_ends.c",
    "kinds_overlap.c",
    "reserved_heap.c",
    "resident.c",
    "scope_order.c",
    "scope_values.c",
    "seldom.c",
    "starts_static.c",
    "starts_confined.c",
    "starts_refused.c",
    "thread_groups.c",
    "threads_hold.c",
    "threads_wait.c",
    "timeline_steps.c",
    "timesteps.c",
    "trace_random.c",
    "trace_reset.c",
    "turns.c",
    "unknown_plugin.c",
    "wrapper_plugin.c",
];

#[test]
fn directory_and_rights_change() {
    if !is_root() {
        return skip(ROOT);
    }
    check("moves_away.c");
}

/// With and without memory that is read-only after relocation, and with fixed addresses.
#[test]
fn linked_in_every_way() {
    for (variant, flags) in [
        ("leaks-now", &["-Wl,-z,relro,-z,now"][..]),
        ("leaks-lazy", &["-Wl,-z,norelro,-z,lazy"]),
        ("leaks-fixed", &["-no-pie", "-fno-pie", "-Wl,-z,norelro,-z,lazy"]),
        ("leaks-direct", &["-fno-plt", "-Wl,-z,relro,-z,now,-z,noseparate-code"]),
    ] {
        check_with("leaks.c", variant, flags, &[]);
    }
}

#[test]
fn every_program_has_a_test() {
    let entries = std::fs::read_dir(programs()).expect("the programs").flatten();
    // `embedded` is a package that `embedded.rs` builds and runs.
    let files = entries.filter(|entry| entry.path().is_file());
    for file in files.map(|entry| entry.file_name().into_string().expect("a name in UTF-8")) {
        let tested = CHECKED.contains(&&*file) || ELSEWHERE.contains(&&*file);
        let elsewhere = [
            "guest.h",
            "clock.h",
            "static_work.h",
            "own_allocator.h",
            "advise_",
            "api_",
            "ctl_",
            "run_",
            "service_",
        ]
        .iter()
        .any(|start| file.starts_with(start));
        assert!(tested || elsewhere, "no test runs {file}");
    }
}
