//! Blocks that are kept or lost when the program exits, each kind in a size of its own.
//
// kept variable leaky 10 blocks of 408 bytes, member of a class 1 block of 552
// only from a stack 1 block of 536, of a thread that waits
// lost 20 blocks of 456, 7 of 424 by the destructor of a static object, 5 of 472 by an exit handler
// freed 1 block of 488, by an exit handler
// with -DQUICK it ends by quick_exit: no destructor runs, 7 blocks of 424 bytes are kept
// child, by _exit: only from an older block 6 blocks of 504, lost 8 of 520
#include "guest.h"
#include <pthread.h>
#include <sys/wait.h>
#include <vector>

struct Shelf {
    static void *books[4];
};
void *Shelf::books[4];
static std::vector<void *> registry;
static std::vector<void *> *leaky;
static void *kept_until_exit, **older;
static pthread_barrier_t ready;

// A block, allocated by the calling function.
#define block(n) keep(calloc(1, (n)))

static NOINLINE void fill()
{
    leaky = new std::vector<void *>;
    for (int i = 0; i < 10; i++)
        leaky->push_back(block(408));
    for (int i = 0; i < 7; i++)
        registry.push_back(block(424));
    Shelf::books[2] = block(552);
    kept_until_exit = block(488);
    for (int i = 0; i < 20; i++)
        block(456);
    keep((void *)leaky), keep((void *)Shelf::books);
}
// Overwrites what lower functions left on the stack.
static NOINLINE void scrub()
{
    volatile char rest[1 << 15];
    for (size_t i = 0; i < sizeof rest; i++)
        rest[i] = 0;
    stay();
}
static NOINLINE void lose()
{
    for (int i = 0; i < 5; i++)
        block(472);
}
static void at_exit()
{
    free(kept_until_exit);
    lose();
    scrub();
}
static NOINLINE void fill_older()
{
    for (int i = 0; i < 6; i++)
        older[i] = block(504);
    for (int i = 0; i < 8; i++)
        block(520);
    keep((void *)older);
}
static void *work(void *unused)
{
    void *volatile own = block(536);
    pthread_barrier_wait(&ready);
    pause();
    keep((void *)own);
    return unused;
}

int main()
{
    older = (void **)block(64 * sizeof(void *));
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        fill_older();
        scrub();
        _exit(0);
    }
    CHECK(waitpid(child, nullptr, 0) == child);
    CHECK(atexit(at_exit) == 0 && pthread_barrier_init(&ready, nullptr, 2) == 0);
    fill();
    pthread_t thread;
    CHECK(pthread_create(&thread, nullptr, work, nullptr) == 0);
    pthread_barrier_wait(&ready);
    scrub();
#ifdef QUICK
    CHECK(at_quick_exit(at_exit) == 0);
    quick_exit(0);
#endif
    return 0;
}
