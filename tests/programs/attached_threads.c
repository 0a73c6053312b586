//! Threads allocate, resize and free, while commands attach and detach at any time.
//
// Each block keeps its contents, no system call ends early, sleeps are as long as requested, and
// values in vector registers are preserved. With the argument `waits`, the first thread waits for
// events instead of sleeping. With `killed`, blocking calls may end with EINTR, as after SIGSTOP: a
// command that is killed while it stops a thread cannot make the kernel restart that call. SIGTERM
// ends the program with status 0, or 99 if a check failed.
#include "guest.h"
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <time.h>

enum { THREADS = 64, BLOCKS = 256 };
static volatile int stop, may_end;

static void end(int signal)
{
    (void)signal;
    stop = 1;
}

static uint64_t next(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    return *state ^= *state << 17;
}

static void check_block(const unsigned char *block, size_t size, unsigned char value)
{
    for (size_t at = 0; block && at < size; at += size > 4096 ? 997 : 13)
        CHECK(block[at] == value);
}

static void *work(void *number)
{
    uint64_t own = (uintptr_t)number, state = own * 0x9e3779b97f4a7c15u + 1;
    unsigned char *blocks[BLOCKS] = {NULL};
    size_t sizes[BLOCKS] = {0};
    volatile double factor = 1.5;
    double product = (double)own * 1.5;
    while (!stop) {
        uint64_t random = next(&state);
        int at = random % BLOCKS;
        size_t size = (random >> 20) % ((random >> 40) % 50 == 0 ? 200000 : 600) + 1;
        unsigned char value = (unsigned char)(at * 7 + own);
        check_block(blocks[at], sizes[at], value);
        switch (random >> 50 & 3) {
        case 0:
            free(blocks[at]);
            blocks[at] = malloc(size);
            break;
        case 1:
            free(blocks[at]);
            blocks[at] = calloc(1, size);
            break;
        case 2:
            blocks[at] = realloc(blocks[at], size);
            break;
        default:
            free(blocks[at]);
            blocks[at] = NULL;
            continue;
        }
        CHECK(blocks[at]);
        memset(blocks[at], value, sizes[at] = size);
        CHECK((double)own * factor == product);
        struct timespec rest = {0, 20000};
        if (random % 1000 == 0)
            CHECK(nanosleep(&rest, NULL) == 0 || may_end);
    }
    for (int at = 0; at < BLOCKS; at++)
        free(blocks[at]);
    return NULL;
}

static void *waiting(void *unused)
{
    (void)unused;
    int set = epoll_create1(0);
    struct epoll_event event;
    while (!stop) {
        int found = epoll_wait(set, &event, 1, 30);
        CHECK(stop || found == 0 || (may_end && errno == EINTR));
    }
    return NULL;
}

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * 1000000000 + time.tv_nsec;
}

int main(int count, char **words)
{
    static pthread_t threads[THREADS + 1];
    int number = count > 1 ? atoi(words[1]) : 8;
    may_end = count > 2 && strcmp(words[2], "killed") == 0;
    sigset_t term;
    signal(SIGTERM, end);
    sigemptyset(&term);
    sigaddset(&term, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &term, NULL);
    for (intptr_t i = 0; i < number; i++)
        CHECK(pthread_create(threads + i, NULL, work, (void *)i) == 0);
    CHECK(pthread_create(threads + number, NULL, waiting, NULL) == 0);
    pthread_sigmask(SIG_UNBLOCK, &term, NULL);
    CHECK(write(1, "r", 1) == 1);
    if (count > 2 && !may_end)
        waiting(NULL);
    while (!stop) {
        int64_t start = now();
        struct timespec rest = {0, 50000000};
        int slept = nanosleep(&rest, NULL);
        CHECK(stop || may_end || (slept == 0 && now() - start >= 50000000));
    }
    for (int i = 0; i <= number; i++)
        pthread_join(threads[i], NULL);
    return 0;
}
