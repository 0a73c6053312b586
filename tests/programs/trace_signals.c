//! Handlers that free and allocate: they free blocks allocated outside, and vice versa.
//
// expect leaf:outside allocations=1000 frees=1000 temporary=500
// expect leaf:in_handler allocations=1000 frees=1000 temporary=1000
// order: varies
#include "guest.h"
#include <signal.h>
#include <sys/time.h>

static void *volatile given;
static volatile int handled;

static NOINLINE void *outside(void) { return keep(malloc(60)); }
static NOINLINE void *in_handler(void) { return keep(malloc(61)); }

// Frees the block in the slot and stores one of its own.
static void handler(int number)
{
    (void)number;
    void *block = handled % 2 ? in_handler() : NULL;
    free(given);
    given = block ? block : in_handler();
    handled++;
}

int main(void)
{
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    sigaction(SIGUSR1, &action, NULL);
    sigaction(SIGALRM, &action, NULL);
    for (int i = 0; i < 980; i++) {
        given = outside();
        raise(SIGUSR1);
        free(given);
    }
    for (int i = 0; i < 20; i++) {
        struct itimerval soon = {{0, 0}, {0, 300}};
        given = outside();
        int before = handled;
        setitimer(ITIMER_REAL, &soon, NULL);
        while (handled == before)
            continue;
        free(given);
    }
    say("handled\n");
    return 0;
}
