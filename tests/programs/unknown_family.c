//! Opens a library with an allocator whose names are of no known family. Its blocks are not
//! recorded, which the recording reports; those of the program are.
//
// expect function:in_program allocations=50 frees=50 requested_bytes=5000
// plugin: unknown_plugin.so unknown_plugin.c
// plugin: unknown_with_malloc.so unknown_plugin.c -DWITH_MALLOC
// plugin: unknown_stripped.so unknown_plugin.c -DWITH_MALLOC -Wl,-s -fno-plt
// plugin: unknown_secrets.so unknown_plugin.c -DSECRETS
// plugin: unknown_wrapper.so unknown_wrapper.c
// plugin: unknown_pointers.so unknown_wrapper.c -DPOINTERS
// build: -ldl
// args: %/unknown_plugin.so
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
    void *library = dlopen(words[1], RTLD_NOW);
    CHECK(library);
    void (*work)(void (*)(void)) = (void (*)(void (*)(void)))dlsym(library, "work");
    CHECK(work);
    work(in_program);
    say("done\n");
    return 0;
}
