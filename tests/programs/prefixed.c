//! Libraries with a jemalloc whose names have a prefix that is not known, and with one whose names
//! are those of the C library but not exported, are opened: both are recognised by the functions
//! that only jemalloc has. One with functions of its own around malloc is left alone.
//
// expect recording lost_events=0
// expect function:in_library allocations=840 reallocations=400 frees=800 live_blocks=40
// expect function:in_library requested_bytes=1605200 live_bytes=6208
// expect function:xx_malloc allocations=200 requested_bytes=20000 frees=200 live_blocks=0
// expect function:xx_mallocx allocations=100 requested_bytes=10000 frees=100 live_blocks=0
// plugin: prefixed_plugin.so family_plugin.c -DEXPORTED -DPREFIX(x)=some_je_##x -Wl,-s
// plugin: hidden_plugin.so family_plugin.c -DPREFIX(x)=x
// plugin: wrapper_plugin.so wrapper_plugin.c
// build: -ldl
// args: %/prefixed_plugin.so %/hidden_plugin.so %/wrapper_plugin.so
#include "guest.h"
#include <dlfcn.h>

static NOINLINE void in_program(void)
{
    for (int i = 0; i < 50; i++)
        free(keep(malloc(100)));
}

int main(int count, char **words)
{
    CHECK(count == 4);
    for (int i = 0; i < 6; i++) {
        void *library = dlopen(words[1 + i % 3], RTLD_NOW);
        CHECK(library);
        void (*work)(void (*)(void)) = (void (*)(void (*)(void)))dlsym(library, "work");
        CHECK(work);
        work(in_program);
    }
    say("done\n");
    return 0;
}
