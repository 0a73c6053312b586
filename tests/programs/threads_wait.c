//! 32 threads allocate 30 blocks of 1000 bytes each and then wait, one after the other: all that
//! happens to live bytes happens in bursts. The program ends while they hold them.
//
// expect recording lost_events=0
// expect function:hold allocations=960 live_blocks=960 requested_bytes=960000
// build: -pthread
#include "guest.h"
#include <pthread.h>
#include <semaphore.h>

enum { THREADS = 32, BLOCKS = 30 };

static sem_t done, never;

static NOINLINE void *hold(void *argument)
{
    for (int i = 0; i < BLOCKS; i++)
        keep(malloc(1000));
    CHECK(sem_post(&done) == 0);
    CHECK(sem_wait(&never) == 0);
    return argument;
}

int main(void)
{
    CHECK(sem_init(&done, 0, 0) == 0 && sem_init(&never, 0, 0) == 0);
    for (int i = 0; i < THREADS; i++) {
        pthread_t thread;
        CHECK(pthread_create(&thread, NULL, hold, NULL) == 0);
        CHECK(sem_wait(&done) == 0);
    }
    _exit(0);
}
