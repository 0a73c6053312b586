//! Two libraries loaded alternately at one address: stacks have the names of the one that was
//! loaded.
//
// plugin: alpha.so plugin.c -DWORK=alpha_work
// plugin: beta.so plugin.c -DWORK=beta_work
// build: -ldl
// args: %/alpha.so %/beta.so
// expect function:alpha_work allocations=150 requested_bytes=1500 live_blocks=150
// expect function:beta_work allocations=150 requested_bytes=3000 live_blocks=150
// expect function:main>enter>alpha_work allocations=150
// expect function:main>enter>beta_work allocations=150
#include "guest.h"
#include <dlfcn.h>

int main(int count, char **words)
{
    CHECK(count == 3);
    void *seen[2] = {NULL, NULL};
    int same = 0;
    for (int round = 0; round < 30; round++) {
        void *library = dlopen(words[1 + round % 2], RTLD_NOW);
        CHECK(library != NULL);
        void *(*enter)(size_t) = (void *(*)(size_t))dlsym(library, "enter");
        seen[round % 2] = (void *)enter;
        same += seen[0] == seen[1];
        for (int i = 0; i < 10; i++)
            keep(enter(round % 2 ? 20 : 10));
        CHECK(dlclose(library) == 0);
    }
    CHECK(same > 20);
    say("reloaded\n");
    return 0;
}
