//! A library with registered monitors is unloaded: none of its code is called afterwards.
//
// expect leaf:block allocations=300 frees=300
// plugin: api_monitor_late.so api_monitor_late.c
// args: %/api_monitor_late.so
#include "api_guest.h"
#include <dlfcn.h>

static void load_and_unload(const char *path)
{
    int counts[3] = {0, 0, 0}, allocated, freed;
    void *library = dlopen(path, RTLD_NOW);
    void (*watch)(int *);
    CHECK(library);
    *(void **)&watch = dlsym(library, "late_watch");
    CHECK(watch);
    watch(counts);
    for (int i = 0; i < 50; i++)
        free(block(20));
    KNOWN(counts[0] == 100 && counts[1] == 100 && counts[2] == 0);
    CHECK(dlclose(library) == 0);
    CHECK(dlopen(path, RTLD_NOW | RTLD_NOLOAD) == NULL);
    KNOWN(counts[2] == 1);
    allocated = counts[0];
    freed = counts[1];
    for (int i = 0; i < 50; i++)
        free(block(20));
    CHECK(counts[0] == allocated && counts[1] == freed);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    for (int i = 0; i < 3; i++)
        load_and_unload(argv[1]);
    say("unloaded\n");
    return 0;
}
