//! A library with an allocator under its own function names is opened and closed repeatedly, more
//! often than the recorder has slots for functions, while another thread allocates.
//
// Allocations in its constructor are recorded each time: it is intercepted before any of its code
// runs, and only while it is loaded.
//
// expect recording lost_events=0
// expect function:at_load allocations=750 requested_bytes=375000
// expect function:in_library allocations=31500 reallocations=15000 frees=30000
// expect function:beside allocations=150000 frees=150000 requested_bytes=1500000
// expect function:in_program allocations=7500 frees=7500 requested_bytes=750000 live_blocks=0
// plugin: family_plugin.so family_plugin.c
// build: -ldl -pthread
// args: %/family_plugin.so
#include "guest.h"
#include <dlfcn.h>
#include <pthread.h>

enum { LOADS = 150 };
static volatile int loads;

static NOINLINE void *beside(void *argument)
{
    for (int i = 0; i < LOADS; i++) {
        for (int j = 0; j < 1000; j++)
            free(keep(malloc(10)));
        while (loads <= i)
            ;
    }
    return argument;
}
static NOINLINE void in_program(void)
{
    for (int i = 0; i < 50; i++)
        free(keep(malloc(100)));
}

int main(int count, char **words)
{
    CHECK(count == 2);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, beside, NULL) == 0);
    for (int i = 0; i < LOADS; i++) {
        void *library = dlopen(words[1], RTLD_NOW);
        CHECK(library);
        void (*work)(void (*)(void)) = (void (*)(void (*)(void)))dlsym(library, "work");
        CHECK(work);
        work(in_program);
        CHECK(dlclose(library) == 0);
        loads++;
    }
    CHECK(pthread_join(thread, NULL) == 0);
    say("done\n");
    return 0;
}
