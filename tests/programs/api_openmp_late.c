//! Threads of an OpenMP library that a plug-in loads inherit scopes. Without such a library, its
//! functions are not found: neither by name nor by a weak reference.
//
// plugin: openmp.so api_openmp_plugin.c -fopenmp
// build: -ldl
// args: %/openmp.so
// expect scope:late>part allocations=8 requested_bytes=36000 entered=8
// expect scope:part allocations=0
// order: varies
#include "api_guest.h"
#include <dlfcn.h>

__attribute__((weak)) void GOMP_parallel(void (*)(void *), void *, unsigned, unsigned);

int main(int count, char **words)
{
    CHECK(count == 2);
    CHECK(GOMP_parallel == NULL && dlsym(RTLD_DEFAULT, "GOMP_parallel") == NULL);
    CHECK(dlsym(RTLD_DEFAULT, "__kmpc_fork_call") == NULL);
    void *library = dlopen(words[1], RTLD_NOW);
    CHECK(library != NULL);
    void (*loop)(void) = (void (*)(void))dlsym(library, "loop");
    CHECK(loop != NULL);
    HEAPTIDE_BEGIN("late");
    loop();
    HEAPTIDE_END("late");
    say("loaded\n");
    return 0;
}
