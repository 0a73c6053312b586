//! The program that `attach.py` attaches to: threads that allocate in many libraries, and a thread
//! that prints the longest time, in microseconds, that passed between two readings of its clock.
//
// Arguments: a directory with lib1.so, lib2.so and so on, their number, the number of threads.
// Prints "ready", and a number for each line that it reads: the longest time since the line before.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

enum { LIBRARIES_MAX = 1000 };
static void *(*make[LIBRARIES_MAX])(size_t);
static void (*give[LIBRARIES_MAX])(void *);
static int libraries;

static long now_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000L + t.tv_nsec / 1000;
}

static void *allocate(void *first)
{
    for (unsigned i = (unsigned)(long)first;; i++) {
        void *block = make[i % libraries](64 + i % 100);
        give[i % libraries](block);
        if (i % 100 == 0)
            usleep(200);
    }
    return NULL;
}

static int line_is_there(void)
{
    struct pollfd input = {0, POLLIN, 0};
    return poll(&input, 1, 0) == 1;
}

int main(int count, char **words)
{
    char path[4096], line[16];
    pthread_t thread;
    if (count != 4 || (libraries = atoi(words[2])) > LIBRARIES_MAX)
        return 2;
    for (int i = 0; i < libraries; i++) {
        snprintf(path, sizeof path, "%s/lib%d.so", words[1], i + 1);
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!library)
            return 2;
        make[i] = (void *(*)(size_t))dlsym(library, "make");
        give[i] = (void (*)(void *))dlsym(library, "give");
    }
    for (long i = 1; i < atoi(words[3]); i++)
        pthread_create(&thread, NULL, allocate, (void *)i);
    puts("ready");
    fflush(stdout);
    for (long last = now_us(), longest = 0;;) {
        long time = now_us();
        longest = time - last > longest ? time - last : longest;
        last = time;
        if (line_is_there()) {
            if (!fgets(line, sizeof line, stdin))
                return 0;
            printf("%ld\n", longest);
            fflush(stdout);
            longest = 0;
        }
    }
}
