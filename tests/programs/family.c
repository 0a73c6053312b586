//! A library with an allocator under its own function names is opened: its blocks are recorded in
//! addition to those of the C library, each with its size.
//
// expect recording lost_events=0
// expect function:in_library allocations=420 reallocations=200 frees=400 live_blocks=20
// expect function:in_library requested_bytes=802600 live_bytes=3104
// expect function:at_load allocations=10 requested_bytes=5000 live_bytes=5120
// expect function:in_program allocations=100 frees=100 requested_bytes=10000 live_blocks=0
// plugin: family_plugin.so family_plugin.c
// build: -ldl
// args: %/family_plugin.so
#include "guest.h"
#include <dlfcn.h>

static NOINLINE void in_program(void)
{
    for (int i = 0; i < 50; i++)
        free(keep(malloc(100)));
}

int main(int count, char **words)
{
    CHECK(count == 2);
    // Twice: the library is unloaded in between, and its code is mapped again.
    for (int i = 0; i < 2; i++) {
        void *library = dlopen(words[1], RTLD_NOW);
        CHECK(library);
        void (*work)(void (*)(void)) = (void (*)(void (*)(void)))dlsym(library, "work");
        CHECK(work);
        work(in_program);
        CHECK(dlclose(library) == 0);
    }
    say("done\n");
    return 0;
}
