//! Shared by guest programs: calls that the compiler cannot fold, and output that does not
//! allocate.

#pragma once
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <malloc.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

// Newer architectures have only one form of these calls.
#ifndef SYS_open
#define SYS_open SYS_openat
#define SYS_mkdir SYS_mkdirat
#define SYS_readlink SYS_readlinkat
#endif

// A function with a frame of its own.
#define NOINLINE __attribute__((noinline, noclone))

// Ends the program with status 99 and prints the line if a condition that holds without the
// recorder fails.
#define CHECK(condition)                                                                 \
    do {                                                                                 \
        if (!(condition)) {                                                              \
            say("%s:%d: not so: %s\n", __FILE__, __LINE__, #condition);                  \
            _exit(99);                                                                   \
        }                                                                                \
    } while (0)

// Keeps a result, so that the compiler cannot create tail calls, or fold or merge calls.
#define keep(p)                                                                          \
    __extension__({                                                                      \
        __typeof__(p) kept_ = (p);                                                       \
        __asm__ volatile("# %c1" : "+r"(kept_) : "i"(__LINE__) : "memory");              \
        kept_;                                                                           \
    })

// Prevents the preceding call from being a tail call.
#define stay() __asm__ volatile("# %c0" : : "i"(__LINE__) : "memory")

static inline void say(const char *format, ...) __attribute__((format(printf, 1, 2)));
static inline void say(const char *format, ...)
{
    char line[4096];
    va_list list;
    va_start(list, format);
    int length = vsnprintf(line, sizeof line, format, list);
    va_end(list);
    if (length > 0 && write(1, line, (size_t)length) < 0)
        _exit(98);
}

// Waits until the test lets the program continue: by a byte on standard input, or by closing it.
__attribute__((unused)) static void hear(void)
{
    char byte;
    if (read(0, &byte, 1) < 0)
        _exit(98);
}

// Allocates `size` bytes on one of 2^depth stacks, selected by the bits of `path`.
__attribute__((unused)) static NOINLINE void *branch(unsigned path, int depth, size_t size)
{
    if (depth == 0)
        return keep(malloc(size));
    if (path & 1)
        return keep(branch(path >> 1, depth - 1, size));
    return keep(branch(path >> 1, depth - 1, size));
}
