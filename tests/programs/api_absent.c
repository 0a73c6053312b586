//! Every function of the C interface, in programs linked in every way: without the recorder each
//! does nothing and returns the documented value.
//
// expect leaf:block allocations=1
#include "api_guest.h"

static void scopes_and_labels(void)
{
    struct heaptide_block found;
    char text[10] = "unchanged";
    CHECK(heaptide_name("a") == 0 && heaptide_name_string("b", "c") == 0);
    CHECK(heaptide_name_int("d", 1) == 0 && HEAPTIDE_NAME("e") == 0);
    heaptide_begin("a");
    heaptide_begin_string("b", "c");
    heaptide_begin_int("d", 1);
    HEAPTIDE_BEGIN("e");
    heaptide_scope_begin(1);
    CHECK(heaptide_context() == 0 && heaptide_set_context(5) == 0);
    heaptide_scope_end(1);
    HEAPTIDE_END("e");
    heaptide_end_int("d", 1);
    heaptide_end_string("b", "c");
    heaptide_end("a");
    heaptide_end_innermost();
    CHECK(HEAPTIDE_LABEL_VARIABLE(text) == 0 && heaptide_label_block(text, "t") == 0);
    CHECK(heaptide_unlabel(text) == 0 && heaptide_resolve(text, &found) == 0 && !found.start);
    CHECK(heaptide_pool_named("p") == 0 && heaptide_pool_add(1, text, 10) == 0);
    CHECK(heaptide_pool_allocated(1, text, 5, 5) == 0 && heaptide_pool_freed(text) == 0);
    CHECK(heaptide_pool_reallocated(text, text, 5, 5) == 0 && heaptide_pool_remove(text) == 0);
}

static void figures_and_control(void)
{
    struct heaptide_figures figures;
    struct heaptide_measurement measurement;
    struct heaptide_monitor monitor;
    char options[8] = "options";
    memset(&monitor, 0, sizeof monitor);
    heaptide_measure_begin(&measurement);
    memset(&figures, 1, sizeof figures);
    CHECK(heaptide_measure_end(&measurement, &figures) == 0 && figures.allocations == 0);
    CHECK(heaptide_window_open("w") == 0 && heaptide_window_close(1, &figures) == 0);
    memset(&figures, 1, sizeof figures);
    CHECK(heaptide_window_figures(1, &figures) == 0 && figures.peak_bytes == 0);
    heaptide_mark_now("m");
    CHECK(heaptide_snapshot_now("s") == 0 && heaptide_reset() == 0);
    heaptide_turn(0);
    heaptide_pause(1);
    heaptide_resume(1);
    heaptide_threshold(10, 0);
    heaptide_separate_threads();
    CHECK(heaptide_process_memory().virtual_bytes == 0);
    heaptide_flush();
    CHECK(!heaptide_active(0) && !heaptide_active(1) && !heaptide_recording());
    CHECK(heaptide_process_figures().allocations == 0);
    CHECK(heaptide_thread_figures().allocations == 0);
    CHECK(heaptide_scope_figures(0, 1).allocations == 0);
    CHECK(heaptide_size_histograms().usable[5] == 0);
    CHECK(heaptide_write("out", "text") == 0 && heaptide_write("stdout", "json") == 0);
    CHECK(heaptide_write_to(1, "text") == 0 && heaptide_start() == 0);
    CHECK(heaptide_start_with("HEAPTIDE_MODE=trace") == 0);
    CHECK(heaptide_register(&monitor) == 0 && heaptide_deregister(1) == 0);
    CHECK(heaptide_monitor_text("lib.so", options, sizeof options) == 0 && !*options);
}

int main(void)
{
    keep(block(10));
    errno = 77;
    if (heaptide_loaded()) {
        CHECK(heaptide_recording() && heaptide_process_figures().allocations >= 1);
    } else {
        scopes_and_labels();
        figures_and_control();
    }
    CHECK(errno == 77);
    say(heaptide_loaded() ? "there\n" : "absent\n");
    return 0;
}
