//! A program reads its own counters: totals, those of its thread and of a scope, size classes.
//
// expect leaf:block allocations=9 frees=8
// build: -pthread
#include "api_guest.h"
#include <pthread.h>

static void *other(void *unused)
{
    struct heaptide_figures figures;
    free(block(1000));
    figures = heaptide_thread_figures();
    KNOWN(figures.allocations == 1 && figures.frees == 1 && figures.requested_bytes == 1000);
    return unused;
}

int main(void)
{
    struct heaptide_figures before = heaptide_process_figures(), after;
    struct heaptide_histograms sizes = heaptide_size_histograms(), now;
    const size_t requests[7] = {0, 1, 2, 3, 4, 1000, 1 << 20};
    size_t usable = 0;
    void *blocks[7];
    pthread_t thread;

    for (int i = 0; i < 7; i++)
        usable += malloc_usable_size(blocks[i] = block(requests[i]));
    after = heaptide_process_figures();
    KNOWN(after.allocations == before.allocations + 7);
    KNOWN(after.requested_bytes == before.requested_bytes + 1049586);
    KNOWN(after.usable_bytes == before.usable_bytes + usable);
    KNOWN(after.live_bytes == before.live_bytes + (int64_t)usable);
    KNOWN(after.live_blocks == before.live_blocks + 7 && after.frees == before.frees);
    KNOWN(after.peak_bytes == (uint64_t)after.live_bytes && after.largest_bytes == 1 << 20);
    now = heaptide_size_histograms();
    for (int i = 0; i < 65; i++) {
        uint64_t expected = i == 0 || i == 1 || i == 3 || i == 10 || i == 21 ? 1 : i == 2 ? 2 : 0;
        KNOWN(now.requested[i] - sizes.requested[i] == expected);
        KNOWN(now.freed[i] == sizes.freed[i]);
    }
    KNOWN(now.usable[21] - sizes.usable[21] == 1);
    for (int i = 0; i < 7; i++)
        free(blocks[i]);
    after = heaptide_process_figures();
    KNOWN(after.live_bytes == before.live_bytes && after.frees == before.frees + 7);
    KNOWN(after.freed_bytes == before.freed_bytes + usable);
    now = heaptide_size_histograms();
    KNOWN(now.freed[21] - sizes.freed[21] == 1);

    errno = 0;
    CHECK(malloc((size_t)-1 / 4) == NULL && errno == ENOMEM);
    KNOWN(heaptide_process_figures().failed == after.failed + 1);
    CHECK(errno == ENOMEM);
    KNOWN(heaptide_process_figures().allocations == after.allocations);
    // A thread's counters are its own; those of the process include all threads.
    after = heaptide_thread_figures();
    CHECK(pthread_create(&thread, NULL, other, NULL) == 0);
    pthread_join(thread, NULL);
    KNOWN(heaptide_thread_figures().requested_bytes - after.requested_bytes < 1000);
    KNOWN(heaptide_process_figures().requested_bytes - before.requested_bytes > 1049586);
    heaptide_begin("kept");
    keep(block(8));
    KNOWN(own(heaptide_context()).live_blocks == 1 && own(heaptide_context()).frees == 0);
    KNOWN(own(123456789).allocations == 0);
    heaptide_end("kept");
    say("figures\n");
    return 0;
}
