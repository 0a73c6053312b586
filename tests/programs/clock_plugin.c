//! The library of own_clock.c.
#include <stdlib.h>
#include <time.h>

int clock_gettime(clockid_t clock, struct timespec *time)
{
    (void)clock;
    (void)time;
    abort();
}

int clock_is_loaded(void) { return 1; }
