//! Threads that load and unload libraries at the same time: the loader frees entries of its list of
//! objects, while other threads leave `dlclose`, after which the recorder walks over that list. One
//! of the libraries cannot be loaded, which the loader finds out after it has mapped it: it unloads
//! the library inside `dlopen`.
//
// expect function:at_rest allocations=500 frees=500 requested_bytes=50000
// order: varies
// plugin: unloaded_0.so plugin.c -DWORK=unloaded_0
// plugin: unloaded_1.so plugin.c -DWORK=unloaded_1
// plugin: unloaded_2.so plugin.c -DWORK=unloaded_2
// plugin: unloaded_3.so plugin.c -DWORK=unloaded_3
// plugin: unloaded_4.so plugin.c -DWORK=unloaded_4 -DNEEDS=defined_nowhere
// build: -ldl -pthread
// args: %/unloaded_0.so %/unloaded_1.so %/unloaded_2.so %/unloaded_3.so %/unloaded_4.so
#include "guest.h"
#include <dlfcn.h>
#include <pthread.h>

enum { FILES = 5, THREADS = 10, LOADS = 500 };

static NOINLINE void at_rest(void) { free(keep(malloc(100))); }

static void *load_and_unload(void *file)
{
    for (int i = 0; i < LOADS; i++) {
        void *library = dlopen(file, RTLD_NOW);
        if (strstr(file, "unloaded_4"))
            CHECK(!library && !dlsym(RTLD_DEFAULT, "defined_nowhere"));
        else
            CHECK(library && dlsym(library, "enter") && dlclose(library) == 0);
    }
    return NULL;
}

int main(int count, char **words)
{
    CHECK(count == 1 + FILES);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, load_and_unload, words[1 + i % FILES]) == 0);
    for (int i = 0; i < LOADS; i++)
        at_rest();
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    say("done\n");
    return 0;
}
