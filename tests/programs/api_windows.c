//! Windows of the process: nested, overlapping, closed by another thread, 64 at once; each with its
//! own requested bytes, peak, net bytes and counts.
//
// expect leaf:block allocations=9 frees=9
// expect window:outer count=1 allocations=3 frees=3 requested_bytes=160000 live_bytes=0
// expect window:late count=1 allocations=1 frees=2 live_blocks=-1
// build: -pthread
#include "api_guest.h"
#include <pthread.h>

static void *close_it(void *window)
{
    struct heaptide_figures figures;
    KNOWN(heaptide_window_close(*(uint32_t *)window, &figures) == 1);
    KNOWN(figures.requested_bytes == 3000);
    return NULL;
}

static void nested_and_overlapping(void)
{
    struct heaptide_figures outer, inner, late;
    int64_t before = heaptide_process_figures().live_bytes;
    uint32_t first = heaptide_window_open("outer"), second, third;
    void *a = block(100000), *b, *c;
    size_t usable_a = malloc_usable_size(a), usable_b, usable_c;
    second = heaptide_window_open("inner");
    b = block(50000);
    usable_b = malloc_usable_size(b);
    free(a);
    third = heaptide_window_open("late");
    KNOWN(first && second && third && first != second && second != third && first != third);
    c = block(10000);
    usable_c = malloc_usable_size(c);
    KNOWN(heaptide_window_figures(second, &inner) == 1 && inner.allocations == 2);
    KNOWN(heaptide_window_close(second, &inner) == 1);
    KNOWN(inner.allocations == 2 && inner.frees == 1 && inner.requested_bytes == 60000);
    KNOWN(inner.live_blocks == 1);
    KNOWN(inner.live_bytes == (int64_t)(usable_b + usable_c) - (int64_t)usable_a);
    KNOWN(inner.freed_bytes == usable_a && inner.usable_bytes == usable_b + usable_c);
    KNOWN(inner.peak_bytes == (uint64_t)before + usable_a + usable_b);
    free(b);
    free(c);
    KNOWN(heaptide_window_close(third, &late) == 1);
    KNOWN(late.allocations == 1 && late.frees == 2 && late.requested_bytes == 10000);
    KNOWN(late.live_blocks == -1 && late.live_bytes == -(int64_t)usable_b);
    KNOWN(late.peak_bytes == (uint64_t)before + usable_b + usable_c);
    KNOWN(heaptide_window_close(first, &outer) == 1);
    KNOWN(outer.allocations == 3 && outer.frees == 3 && outer.live_bytes == 0);
    KNOWN(outer.requested_bytes == 160000 && outer.peak_bytes == inner.peak_bytes);
    CHECK(heaptide_window_close(first, &outer) == 0 && outer.allocations == 0);
    CHECK(heaptide_window_figures(first, &outer) == 0 && heaptide_window_close(0, NULL) == 0);
}

static void many(void)
{
    uint32_t windows[65];
    void *p;
    for (int i = 0; i < 64; i++)
        KNOWN((windows[i] = heaptide_window_open("one of many")) != 0);
    CHECK(heaptide_window_open("one too many") == 0);
    p = block(1000);
    for (int i = 0; i < 64; i++) {
        struct heaptide_figures figures;
        if (!heaptide_loaded())
            break;
        CHECK(heaptide_window_close(windows[i], &figures) == 1 && figures.requested_bytes == 1000);
    }
    free(p);
    KNOWN((windows[64] = heaptide_window_open("again")) != 0);
    KNOWN(heaptide_window_close(windows[64], NULL) == 1);
}

static void in_another_thread(void)
{
    struct heaptide_figures figures;
    pthread_t thread;
    uint32_t across, whole = heaptide_window_open("whole");
    across = heaptide_window_open("across");
    for (int i = 0; i < 3; i++)
        free(block(1000));
    KNOWN(heaptide_window_figures(across, &figures) == 1 && figures.requested_bytes == 3000);
    // Created after the window is read, so that allocations for the new thread are in the other
    // one.
    KNOWN(heaptide_window_close(across, &figures) == 1);
    across = heaptide_window_open("again");
    for (int i = 0; i < 2; i++)
        free(block(1500));
    heaptide_pause(1);
    CHECK(pthread_create(&thread, NULL, close_it, &across) == 0);
    pthread_join(thread, NULL);
    heaptide_resume(1);
    KNOWN(heaptide_window_close(whole, &figures) == 1 && figures.requested_bytes == 6000);
}

int main(void)
{
    nested_and_overlapping();
    many();
    in_another_thread();
    say("windows\n");
    return 0;
}
