//! A library is loaded with `dlmopen`, repeatedly, each time with a second C library, whose
//! allocations are recorded, too.
//
// expect recording lost_events=0
// expect function:at_load allocations=50 requested_bytes=25000 live_blocks=50
// expect function:in_namespace allocations=4040 frees=2020 live_blocks=2020 requested_bytes=4020000
// expect function:in_thread allocations=500 frees=500 requested_bytes=50000 live_blocks=0
// expect function:in_program allocations=500 frees=500 requested_bytes=50000 live_blocks=0
// plugin: namespaces_plugin.so namespaces_plugin.c -pthread
// build: -ldl
// args: %/namespaces_plugin.so
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
    // The namespace is reused, as its library is unloaded, except the last time.
    for (int i = 0; i < 10; i++) {
        void *library = dlmopen(LM_ID_NEWLM, words[1], RTLD_NOW);
        CHECK(library);
        void (*work)(void (*)(void)) = (void (*)(void (*)(void)))dlsym(library, "work");
        CHECK(work);
        work(in_program);
        if (i % 2)
            CHECK(dlclose(library) == 0);
    }
    say("done\n");
    return 0;
}
