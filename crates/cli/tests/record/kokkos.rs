//! Kokkos' tool interface: labels, regions and kernels of a program that calls it as Kokkos does.
//! The known numbers are in the header of the program.

use crate::device::check;
use crate::expectations::{assert_met, parse};
use crate::harness::{Guest, heaptide, report_of_kind, run, scratch};
use std::process::Command;

#[test]
fn what_kokkos_announces() {
    check("kokkos.c");
}

/// Returns the command that records the program.
fn recorded(name: &str, options: &[&str]) -> (Command, std::path::PathBuf, std::path::PathBuf) {
    let place = scratch(name);
    let recording = place.join("kokkos.heaptide");
    let mut command = heaptide();
    command.args(["run", "--quiet", "-o"]).arg(&recording).args(options).arg("--");
    (command, place, recording)
}

/// Memory of a driver of which nothing is recorded counts as far as it is announced: here also the
/// part of a chunk that is not announced itself.
#[test]
fn announced_memory_of_a_driver_that_is_left_alone() {
    let (mut command, place, recording) = recorded("kokkos_left", &["--no-intercept"]);
    command.arg(Guest::read("kokkos.c").build("kokkos-left", &[]));
    assert_eq!(run(&mut command, &place).status, 0);
    let report = report_of_kind("device", &recording, &place);
    let known = "device totals allocations=205 frees=203 live_bytes=4718592 peak_bytes=6291456\n\
                 device label:x allocations=1 live_bytes=4194304 at_peak_bytes=4194304\n\
                 device label:inside allocations=1 frees=1 usable_bytes=65536\n\
                 device label:shared allocations=200 frees=200\n\
                 device function:allocate_x allocations=1 live_bytes=4194304\n\
                 device function:chunk allocations=1 frees=1\n\
                 device device:CUDA/ live_bytes=4194304\n\
                 device device:HIP/ live_bytes=524288\n";
    assert_met(&report, &parse(known, "device "));
}

/// The tool that the user has chosen stays.
#[test]
fn another_tool_of_kokkos_stays() {
    let print = ["sh", "-c", "echo $KOKKOS_TOOLS_LIBS $KOKKOS_PROFILE_LIBRARY"];
    for variable in ["KOKKOS_TOOLS_LIBS", "KOKKOS_PROFILE_LIBRARY"] {
        let (mut command, place, _) = recorded("kokkos_other", &["--force"]);
        command.args(print).env(variable, "libother.so");
        let outcome = run(&mut command, &place);
        assert_eq!(outcome.stdout, "libother.so\n", "{}", outcome.stderr);
    }
    let (mut command, place, _) = recorded("kokkos_script", &["--force"]);
    let script = "export KOKKOS_PROFILE_LIBRARY=libother.so; env | grep -c ^KOKKOS_; true";
    assert_eq!(run(command.args(["sh", "-c", script]), &place).stdout, "1\n");
    let (mut command, place, _) = recorded("kokkos_none", &["--force", "--no-preload"]);
    assert_eq!(run(command.args(print), &place).stdout, "\n");
}
