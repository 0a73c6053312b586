//! A large part of the memory is freed and allocated again many times, by an allocator that makes
//! no system calls for it: neither does the recorder, except for a few, however long the program
//! waited before.
//
// expect function:again allocations=200000 frees=200000 temporary=200000
// expect function:again requested_bytes=209715200000
// expect leaf:main allocations=1 frees=1 requested_bytes=4194304
#include "guest.h"
#include <fcntl.h>
#include <time.h>

enum { ROUNDS = 200000, SIZE = 1 << 20 };

static long microseconds(void)
{
    struct timespec now;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return now.tv_sec * 1000000 + now.tv_nsec / 1000;
}

// Returns the number of read calls of this process so far.
static long reads(void)
{
    char text[512];
    int file = open("/proc/self/io", O_RDONLY);
    CHECK(file >= 0);
    ssize_t length = read(file, text, sizeof text - 1);
    CHECK(length > 0 && close(file) == 0);
    text[length] = 0;
    const char *calls = strstr(text, "syscr: ");
    CHECK(calls != NULL);
    return atol(calls + strlen("syscr: "));
}

static NOINLINE void again(void)
{
    char *block = keep(malloc(SIZE));
    block[SIZE / 2] = 1;
    free(block);
}

int main(void)
{
    CHECK(mallopt(M_MMAP_THRESHOLD, 1 << 28) && mallopt(M_TRIM_THRESHOLD, 1 << 30));
    char *held = keep(malloc(4 * SIZE));
    memset(held, 1, 4 * SIZE);
    usleep(1500000);
    long before = reads(), begin = microseconds();
    for (int i = 0; i < ROUNDS; i++)
        again();
    // A query of resident bytes is two reads, and takes longer than 1 us. The next one waits 100
    // times as long, so a slow machine has no more of them in the same time.
    CHECK(reads() - before < 2 * (microseconds() - begin) / 100 + 500);
    free(held);
    say("made blocks again\n");
    return 0;
}
