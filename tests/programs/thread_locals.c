//! Three threads, each with a thread-local variable of a library that the program loads late. It
//! prints `ready`, waits for its standard input to end, and counts the blocks.
//
// plugin: thread_locals_plugin.so thread_locals_plugin.c
//
// each thread, kept by its thread-local variable `table`: 1,000 blocks of 232 bytes, 1 of 8,000
// the initial thread loads the library and has no table
#include "guest.h"
#include <dlfcn.h>
#include <libgen.h>
#include <pthread.h>

enum { THREADS = 3, BLOCKS = 1000 };

static void (*fill_table)(int);
static int (*count_table)(int);
static pthread_barrier_t filled, ended;

// Overwrites what lower functions left on the stack.
static NOINLINE void scrub(void)
{
    volatile char rest[1 << 15];
    for (size_t i = 0; i < sizeof rest; i++)
        rest[i] = 0;
    stay();
}
static void *work(void *unused)
{
    fill_table(BLOCKS);
    scrub();
    pthread_barrier_wait(&filled);
    pthread_barrier_wait(&ended);
    CHECK(count_table(BLOCKS) == BLOCKS);
    return unused;
}

int main(int count, char **words)
{
    char path[4096];
    CHECK(count == 1 && strlen(words[0]) < sizeof path);
    strcpy(path, words[0]);
    char library[5000];
    sprintf(library, "%s/thread_locals_plugin.so", dirname(path));
    pthread_t threads[THREADS];
    CHECK(pthread_barrier_init(&filled, NULL, THREADS + 1) == 0);
    CHECK(pthread_barrier_init(&ended, NULL, THREADS + 1) == 0);
    void *handle = dlopen(library, RTLD_NOW);
    CHECK(handle != NULL);
    *(void **)&fill_table = dlsym(handle, "fill_table");
    *(void **)&count_table = dlsym(handle, "count_table");
    CHECK(fill_table && count_table);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, work, NULL) == 0);
    pthread_barrier_wait(&filled);
    scrub();
    say("ready\n");
    hear();
    pthread_barrier_wait(&ended);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    say("done\n");
    return 0;
}
