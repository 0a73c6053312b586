//! Blocks that are kept in every way, and lost ones, each kind in a size of its own. It prints
//! `ready`, waits for its standard input to end, and checks that it has no child.
//
// kept variable cache 1000 blocks of 200 bytes, 1 of 8024
// kept variable interior 100 blocks of 216
// kept variable large 1 block of 1 MiB, 10 of 328
// kept thread-local 50 blocks of 232
// kept by a key 10 blocks of 248, 1 of 88
// only from a stack 100 blocks of 264
// only from a mapping 20 blocks of 280
// lost 300 blocks of 296, with 300 of 312; a ring of 1 and 99 of 344; one past the end 10 of 360
#include "guest.h"
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

static void **cache, *interior[100], **large, *past[10];
static __thread void *local[50];
static pthread_key_t key;
static pthread_barrier_t ready;

// A block, allocated by the calling function.
#define block(n) keep(calloc(1, (n)))

// Keeps stores to a variable that nothing reads.
#define keep_stores(variable) ((void)keep((void *)(variable)))

static NOINLINE void fill_cache(void)
{
    cache = block(1003 * sizeof(void *));
    for (int i = 0; i < 1000; i++)
        cache[i] = block(200);
}
static NOINLINE void fill_others(void)
{
    for (int i = 0; i < 100; i++)
        interior[i] = (char *)block(216) + 8 * (1 + i % 20);
    large = block(1 << 20);
    for (int i = 0; i < 10; i++)
        large[i * 1000] = block(328);
    for (int i = 0; i < 10; i++)
        past[i] = (char *)block(360) + 360;
    void **mapped = mmap(NULL, 1 << 16, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mapped != MAP_FAILED);
    for (int i = 0; i < 20; i++)
        mapped[i * 7] = block(280);
    keep_stores(interior), keep_stores(past), keep_stores(mapped);
}
static NOINLINE void lose(void)
{
    for (int i = 0; i < 300; i++) {
        void **head = block(296);
        head[3] = block(312);
    }
    void **first = block(344), **last = first;
    for (int i = 0; i < 99; i++, last = *last)
        *last = block(344);
    *last = first;
}
// Overwrites what lower functions left on the stack.
static NOINLINE void scrub(void)
{
    volatile char rest[1 << 15];
    for (size_t i = 0; i < sizeof rest; i++)
        rest[i] = 0;
    stay();
}
static NOINLINE void fill_thread(void)
{
    for (int i = 0; i < 50; i++)
        local[i] = block(232);
    void **values = block(11 * sizeof(void *));
    for (int i = 0; i < 10; i++)
        values[i] = block(248);
    CHECK(pthread_setspecific(key, values) == 0);
    keep_stores(local);
}
static void *work(void *unused)
{
    fill_thread();
    void *volatile own[100];
    for (int i = 0; i < 100; i++)
        own[i] = block(264);
    scrub();
    pthread_barrier_wait(&ready);
    pause();
    keep((void *)own);
    return unused;
}

int main(void)
{
    fill_cache();
    fill_others();
    lose();
    CHECK(pthread_key_create(&key, NULL) == 0 && pthread_barrier_init(&ready, NULL, 2) == 0);
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, work, NULL) == 0);
    scrub();
    pthread_barrier_wait(&ready);
    scrub();
    say("ready\n");
    char byte;
    while (read(0, &byte, 1) > 0)  // each byte stands for a child that has to be reaped
        CHECK(waitpid(-1, NULL, __WALL) > 0);
    int none = waitpid(-1, NULL, __WALL | WNOHANG);
    CHECK(none == -1 && errno == ECHILD);
    for (int i = 0; i < 1000; i++)
        CHECK(*(char *)cache[i] == 0);
    say("no child\n");
    _exit(0);
}
