//! A library with its own clock_gettime, which crashes: like that of glibc before 2.31 until the C
//! library is initialised.
//
// expect function:clocked allocations=10 frees=10 requested_bytes=1000
// plugin: clock_plugin.so clock_plugin.c
// build: %/clock_plugin.so -Wl,-rpath,%
#include "guest.h"

int clock_is_loaded(void);

static NOINLINE void clocked(void)
{
    for (int i = 0; i < 10; i++)
        free(keep(malloc(100)));
}

int main(void)
{
    CHECK(clock_is_loaded());
    clocked();
    say("clocked\n");
    return 0;
}
