//! A library loaded late is unwound like those loaded at start: all of its frames, and main below.
//
// plugin: late.so late_plugin.c
// build: -ldl
// args: %/late.so
// expect function:main>late_even allocations=100 requested_bytes=7700
// expect depth:late_even count=31
// expect depth:late_odd count=30
// expect leaf:late_even allocations=100
#include "guest.h"
#include <dlfcn.h>

int main(int count, char **words)
{
    CHECK(count == 2);
    free(keep(malloc(1)));  // rules and modules are cached by now
    void *library = dlopen(words[1], RTLD_LAZY);
    CHECK(library != NULL);
    void *(*enter)(int) = (void *(*)(int))dlsym(library, "late_even");
    for (int i = 0; i < 100; i++)
        free(keep(enter(60)));
    say("loaded late\n");
    return 0;
}
