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
// The most samples that the timeline can have: one for 256 KiB allocated, and after each 1024 of
// them, one for twice as many.
enum { SAMPLES = 10 * 1024 };

static long nanoseconds(void)
{
    struct timespec now;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return now.tv_sec * 1000000000 + now.tv_nsec;
}

// Returns the least time of a query of resident bytes, which differs between machines.
static long shortest_query(void)
{
    long shortest = 1000000000;
    for (int i = 0; i < 1000; i++) {
        char text[128];
        long begin = nanoseconds();
        int file = open("/proc/self/statm", O_RDONLY);
        CHECK(file >= 0 && read(file, text, sizeof text) > 0 && close(file) == 0);
        long time = nanoseconds() - begin;
        shortest = time < shortest ? time : shortest;
    }
    return shortest;
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
    long query = shortest_query();
    long before = reads(), begin = nanoseconds();
    for (int i = 0; i < ROUNDS; i++)
        again();
    // A query is two reads, and the next one waits 100 times as long as it took, of processor time;
    // that may be half of the shortest time here. Each sample of the timeline is a query, too.
    long most = 2 * (nanoseconds() - begin) / (100 * query) + SAMPLES;
    CHECK(reads() - before < 2 * most);
    free(held);
    say("made blocks again\n");
    return 0;
}
