//! The time of a program whose test sets the clock of recordings: the program itself lets it pass,
//! so that it never waits. Run by hand, without that clock, the program sleeps.

#pragma once
#include "guest.h"
#include <fcntl.h>
#include <time.h>

// Returns the file that begins with the time, in nanoseconds; -1 if the test has not made one. It
// is not mapped, so that the program has no mapping of its own for it.
static int clock_file(void)
{
    static int file = -1;
    const char *name = getenv("HEAPTIDE_CLOCK");
    if (file < 0 && name != NULL)
        CHECK((file = open(name, O_RDWR | O_CLOEXEC)) >= 0);
    return file;
}

static inline uint64_t clock_ns(int file)
{
    uint64_t time;
    CHECK(pread(file, &time, sizeof time, 0) == sizeof time);
    return time;
}

// Lets microseconds pass. Only one thread or process at a time may do that.
__attribute__((unused)) static void pass_us(uint64_t microseconds)
{
    int file = clock_file();
    if (file < 0) {
        CHECK(usleep((useconds_t)microseconds) == 0);
        return;
    }
    uint64_t time = clock_ns(file) + 1000 * microseconds;
    CHECK(pwrite(file, &time, sizeof time, 0) == sizeof time);
}

// Returns the time in microseconds.
__attribute__((unused)) static uint64_t now_us(void)
{
    int file = clock_file();
    if (file >= 0)
        return clock_ns(file) / 1000;
    struct timespec now;
    CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
    return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}
