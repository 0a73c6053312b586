//! A handler that maps memory interrupts malloc, the recorder and calls that map: its mappings are
//! recorded or counted as lost, and the program continues.
//
// order: varies
// losses: allowed
// expect function:work allocations>=1000
// mapped function:handler live_bytes=0
// mapped function:from_main allocations>=100 live_bytes=0
#include "guest.h"
#include <signal.h>
#include <sys/mman.h>
#include <sys/time.h>

#define PAGE 4096L
#define SIGNALS 1000

static volatile int signals;

static NOINLINE char *map(size_t pages)
{
    char *start = mmap(NULL, pages * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(start != MAP_FAILED);
    return keep(start);
}
static NOINLINE void handler(int number)
{
    int before = errno;
    (void)number;
    CHECK(munmap(map(1), PAGE) == 0);
    signals++;
    errno = before;
}
static NOINLINE void from_main(void) { CHECK(munmap(map(2), 2 * PAGE) == 0); stay(); }
static NOINLINE void *work(size_t bytes) { return keep(malloc(bytes)); }

int main(void)
{
    struct itimerval often = {{0, 100}, {0, 100}};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    CHECK(sigaction(SIGALRM, &action, NULL) == 0 && setitimer(ITIMER_REAL, &often, NULL) == 0);
    for (size_t i = 0; signals < SIGNALS || i < 1000; i++) {
        errno = 77;
        free(work(1 + i % 500));
        if (i % 8 == 0)
            from_main();
        CHECK(errno == 77);
    }
    memset(&often, 0, sizeof often);
    CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
    return 0;
}
