//! A handler that only maps and unmaps memory interrupts threads that allocate all the time.
//! glibc's arenas are locked while it runs, so a recorder that waits for one of them waits for
//! ever.
//
// build: -pthread
// order: varies
// expect function:work allocations>=90000
// mapped function:handler live_bytes=0
#include "guest.h"
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <time.h>

#define THREADS 3
#define ALLOCATIONS 30000
#define SIGNALS 300
#define PAGE 4096

static atomic_int signals;

static NOINLINE void handler(int number)
{
    int before = errno;
    (void)number;
    void *start = mmap(NULL, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(start != MAP_FAILED && munmap(keep(start), PAGE) == 0);
    signals++;
    errno = before;
}

// Signals arrive every 100 us of real time, as long as the program allocates.
static NOINLINE void *work(void *seed)
{
    static _Thread_local void *blocks[64];
    unsigned number = (unsigned)(size_t)seed * 77777 | 1;
    struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};
    struct itimerspec often = {{0, 100000}, {0, 100000}};
    timer_t timer;
    event._sigev_un._tid = (pid_t)syscall(SYS_gettid);
    CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
    CHECK(timer_settime(timer, 0, &often, NULL) == 0);
    for (int i = 0; i < ALLOCATIONS || signals < SIGNALS; i++) {
        number ^= number << 13, number ^= number >> 17, number ^= number << 5;
        void **block = &blocks[number % 64];
        free(*block);
        *block = keep(malloc(number / 64 % 5000 + 1));
    }
    CHECK(timer_delete(timer) == 0);
    for (int i = 0; i < 64; i++)
        free(blocks[i]);
    return NULL;
}

int main(void)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    pthread_t threads[THREADS];
    CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, work, (void *)(i + 1)) == 0);
    for (size_t i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    return 0;
}
