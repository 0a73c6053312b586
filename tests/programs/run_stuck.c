//! A monitor that never returns to the recorder: it blocks all signals, as the recorder does, and
//! waits. Both threads end up there, and only SIGKILL ends the program. Without the recorder there
//! are no monitors, and it ends.
//
// build: -pthread

#include "api_guest.h"
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>

static void wait_for_ever(void *context, void *p, size_t requested, size_t usable)
{
    uint64_t all = UINT64_MAX;
    uint32_t word = 0;
    (void)context, (void)p, (void)requested, (void)usable;
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, NULL, sizeof all);
    for (;;)
        syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
}

static pthread_barrier_t registered;

static void *allocate(void *unused)
{
    pthread_barrier_wait(&registered);
    free(block(10));
    return unused;
}

int main(void)
{
    struct heaptide_monitor monitor = {
        .version = HEAPTIDE_MONITOR_VERSION,
        .size = sizeof monitor,
        .name = "stuck",
        .allocated = wait_for_ever,
    };
    pthread_t other;
    CHECK(pthread_barrier_init(&registered, NULL, 2) == 0);
    CHECK(pthread_create(&other, NULL, allocate, NULL) == 0);
    CHECK(!heaptide_loaded() || heaptide_register(&monitor) != 0);
    allocate(NULL);
    CHECK(pthread_join(other, NULL) == 0);
    return 0;
}
