//! Live bytes of the process in a scope of one thread while another one holds memory: a lane knows
//! its own bytes exactly, and those of others except for their unpublished changes.
//
//   main thread  malloc(1000000), kept
//   worker       in scope `work` malloc(200000), then in 100 rounds malloc(1000), freed at the end
//
// So `work` has at most 1,300,000: within the bound of the recording's peak.
//
// expect scope:work entered=1
// build: -pthread
#include "api_guest.h"

#include <pthread.h>

static void *work(void *unused)
{
    void *rounds[100], *large;
    HEAPTIDE_BEGIN("work");
    large = block(200000);
    for (int i = 0; i < 100; i++)
        rounds[i] = block(1000);
    for (int i = 0; i < 100; i++)
        free(rounds[i]);
    free(large);
    HEAPTIDE_END("work");
    return unused;
}

int main(void)
{
    pthread_t thread;
    void *kept = block(1000000);
    CHECK(pthread_create(&thread, NULL, work, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
    keep(kept);
    return 0;
}
