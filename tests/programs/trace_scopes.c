//! Scopes as events of a trace: some allocate nothing, one only frees, one is still open when its
//! thread ends.
//
//   phase=build      malloc(1000), kept
//   phase=compute    entered in each iteration, 0 to 2, of a loop: nothing
//   phase=drop       frees the block
//   phase=forgotten  begun by a thread named worker, which ends; the next of that name begins
//                    and ends phase=again
//
// expect leaf:block allocations=1 frees=1 live_blocks=0 requested_bytes=1000
// expect scope:1>compute entered=1
// expect scope:drop entered=1 frees_here=1
// build: -pthread
#include "api_guest.h"

#include <pthread.h>

static void *forgets(void *unused)
{
    pthread_setname_np(pthread_self(), "worker");
    heaptide_begin_string("phase", "forgotten");
    return unused;
}
static void *again(void *unused)
{
    pthread_setname_np(pthread_self(), "worker");
    heaptide_begin_string("phase", "again");
    heaptide_end_string("phase", "again");
    return unused;
}
static void run(void *(*function)(void *))
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, function, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

int main(void)
{
    void *kept;
    heaptide_begin_string("phase", "build");
    kept = block(1000);
    heaptide_end_string("phase", "build");
    for (int i = 0; i < 3; i++) {
        heaptide_begin_int("iteration#main", i);
        heaptide_begin_string("phase", "compute");
        heaptide_end_string("phase", "compute");
        heaptide_end_int("iteration#main", i);
    }
    heaptide_begin_string("phase", "drop");
    free(kept);
    heaptide_end_string("phase", "drop");
    run(forgets);
    run(again);
    return 0;
}
