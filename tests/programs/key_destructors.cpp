//! Threads whose destructors allocate until the last round of destructors: of keys that are set
//! again, of thread-local objects, and after `pthread_exit`. Then an `exit` in a destructor of a
//! key, while the main thread waits, with handlers and static objects that allocate.
//
// expect function:in_key allocations=3205 frees=3205
// expect function:in_object allocations=1600 frees=1600
// expect function:in_handler allocations=30 frees=30
// expect function:in_static allocations=10 frees=10
// build: -pthread
#include "guest.h"
#include <pthread.h>

enum { ROUNDS = 4, THREADS = 4 };

static pthread_key_t keys[3];

static NOINLINE void allocate(int count)
{
    for (int i = 0; i < count; i++)
        free(keep(malloc(20 + (size_t)i)));
}
static NOINLINE void in_key(int count)
{
    allocate(count);
    stay();
}
static NOINLINE void in_object(void)
{
    allocate(100);
    stay();
}
static NOINLINE void in_handler(void)
{
    allocate(10);
    stay();
}
static NOINLINE void in_static(void)
{
    allocate(10);
    stay();
}

static void set_again(void *block)
{
    in_key(25);
    free(block);
    pthread_setspecific(keys[0], malloc(7));
}
static void keep_set(void *value)
{
    in_key(25);
    pthread_setspecific(keys[1], value);
}
static void leave(void *)
{
    in_key(5);
    exit(9);
}

struct Local {
    void *block = malloc(99);
    ~Local()
    {
        in_object();
        free(block);
    }
};
static thread_local Local local;

struct Static {
    ~Static() { in_static(); }
};
static Static object;

static void set_keys()
{
    CHECK(keep(&local)->block != NULL);
    pthread_setspecific(keys[0], malloc(5));
    pthread_setspecific(keys[1], keys);
}
static void *returns(void *unused)
{
    set_keys();
    return unused;
}
static void *leaves(void *unused)
{
    set_keys();
    pthread_exit(unused);
}
static void *exits(void *unused)
{
    pthread_setspecific(keys[2], keys);
    return unused;
}

int main()
{
    CHECK(pthread_key_create(&keys[0], set_again) == 0);
    CHECK(pthread_key_create(&keys[1], keep_set) == 0);
    CHECK(pthread_key_create(&keys[2], leave) == 0);
    for (int i = 0; i < 3; i++)
        CHECK(atexit(in_handler) == 0);
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t threads[THREADS];
        for (int i = 0; i < THREADS; i++)
            CHECK(pthread_create(&threads[i], NULL, i % 2 ? leaves : returns, NULL) == 0);
        for (int i = 0; i < THREADS; i++)
            pthread_join(threads[i], NULL);
    }
    say("ended\n");
    pthread_t last;
    CHECK(pthread_create(&last, NULL, exits, NULL) == 0);
    for (;;)
        pause();
}
