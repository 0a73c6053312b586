//! On and off, nested pauses of a thread and of the process, thresholds: exactly the expected
//! allocations are recorded, and have stacks.
//
// expect leaf:seen allocations=9 frees=9 live_blocks=0
// expect leaf:unseen allocations=0 frees=0
// expect leaf:small allocations=0
// expect leaf:large allocations=1 frees=1
// build: -pthread
// order: varies
#include "api_guest.h"
#include <pthread.h>

static NOINLINE void *seen(size_t size) { return keep(malloc(size)); }
static NOINLINE void *unseen(size_t size) { return keep(malloc(size)); }
static NOINLINE void *small(size_t size) { return keep(malloc(size)); }
static NOINLINE void *large(size_t size) { return keep(malloc(size)); }

static uint64_t count(void) { return heaptide_process_figures().allocations; }

static void off_and_on(void)
{
    void *before = seen(10), *while_off;
    KNOWN(heaptide_active(0) && heaptide_active(1));
    heaptide_turn(0);
    CHECK(!heaptide_active(0) && !heaptide_active(1));
    while_off = unseen(10);
    // The free of a recorded block is recorded even so.
    free(before);
    heaptide_turn(0);
    heaptide_turn(1);
    KNOWN(heaptide_active(0) && heaptide_active(1));
    free(while_off);
    free(seen(10));
}

static void *in_thread(void *expected)
{
    uint64_t before = count();
    free(*(int *)expected ? seen(10) : unseen(10));
    KNOWN(count() - before == (uint64_t)*(int *)expected);
    return NULL;
}

static void elsewhere(int is_seen)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, in_thread, &is_seen) == 0);
    pthread_join(thread, NULL);
}

static void pauses(void)
{
    heaptide_pause(0);
    heaptide_pause(0);
    CHECK(!heaptide_active(0));
    KNOWN(heaptide_active(1));
    free(unseen(10));
    elsewhere(1);
    heaptide_resume(0);
    free(unseen(10));
    CHECK(!heaptide_active(0));
    heaptide_resume(0);
    KNOWN(heaptide_active(0));
    free(seen(10));
    heaptide_pause(1);
    heaptide_pause(1);
    free(unseen(10));
    elsewhere(0);
    heaptide_resume(1);
    CHECK(!heaptide_active(0) && !heaptide_active(1));
    free(unseen(10));
    heaptide_resume(1);
    KNOWN(heaptide_active(0) && heaptide_active(1));
    free(seen(10));
    // Additional resumes have no effect.
    heaptide_resume(0);
    heaptide_resume(1);
    KNOWN(heaptide_active(0) && heaptide_active(1));
    free(seen(10));
    heaptide_pause(0);
    free(unseen(10));
    heaptide_resume(0);
    free(seen(10));
}

static void thresholds(void)
{
    uint64_t before = count();
    heaptide_threshold(1000, 0);
    free(small(999));
    free(large(1000));
    heaptide_threshold(1000, 1);
    free(seen(999));
    free(small(1000));
    heaptide_threshold(0, 0);
    free(seen(10));
    KNOWN(count() - before == 5);
}

int main(void)
{
    errno = 77;
    off_and_on();
    pauses();
    thresholds();
    CHECK(errno == 77);
    say("control\n");
    return 0;
}
