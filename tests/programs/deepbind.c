//! Libraries are opened with `RTLD_DEEPBIND`, which binds their calls to the C library, past the
//! recorder's functions, or to a `malloc` that they define themselves. Both are recorded.
//
// expect recording lost_events=0
// expect function:at_load allocations=20 requested_bytes=10000 live_blocks=20
// expect function:in_library allocations=1000 reallocations=200 frees=800 live_blocks=200
// expect function:in_library requested_bytes=1000000
// expect function:in_program allocations=200 frees=200 requested_bytes=20000 live_blocks=0
// plugin: deepbind_plugin.so deepbind_plugin.c
// plugin: deepbind_own_plugin.so deepbind_plugin.c -DOWN_MALLOC
// build: -ldl
// args: %/deepbind_plugin.so %/deepbind_own_plugin.so
#include "guest.h"
#include <dlfcn.h>

static NOINLINE void in_program(void)
{
    for (int i = 0; i < 50; i++)
        free(keep(malloc(100)));
}

int main(int count, char **words)
{
    CHECK(count == 3);
    for (int i = 0; i < 4; i++) {
        int when = i < 2 ? RTLD_LAZY : RTLD_NOW;
        void *library = dlopen(words[1 + i % 2], when | RTLD_DEEPBIND);
        CHECK(library);
        void (*work)(void (*)(void)) = (void (*)(void (*)(void)))dlsym(library, "work");
        CHECK(work);
        work(in_program);
        CHECK(dlclose(library) == 0);
    }
    say("done\n");
    return 0;
}
