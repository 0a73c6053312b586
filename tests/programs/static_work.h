//! What the static programs do: allocate with each function, in threads and in a forked child.
#ifndef STATIC_WORK_H
#define STATIC_WORK_H

#include "guest.h"
#include <malloc.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

static NOINLINE void *in_main(size_t bytes) { return keep(malloc(bytes)); }
static NOINLINE void *zeroed(void) { return keep(calloc(10, 100)); }
static NOINLINE void *grown(void *block) { return keep(realloc(block, 5000)); }
static NOINLINE void *aligned(void) { return keep(memalign(64, 300)); }
static NOINLINE void *in_child(void) { return keep(malloc(40)); }

static NOINLINE void *in_thread(void *unused)
{
    for (int i = 0; i < 5000; i++)
        free(keep(malloc(64)));
    keep(malloc(70));
    return unused;
}

static int child(void)
{
    for (int i = 0; i < 500; i++)
        in_child();
    return 3;
}

int main(void)
{
    for (size_t i = 0; i < 1000; i++)
        free(in_main(i));
    for (int i = 0; i < 50; i++) {
        zeroed();
        grown(NULL);
        free(aligned());
    }
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        CHECK(pthread_create(&threads[i], NULL, in_thread, NULL) == 0);
    for (int i = 0; i < 4; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        _exit(child());
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == 3);
    say("static\n");
    return 12;
}

#endif
