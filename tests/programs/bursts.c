//! A process holds 8 MiB while its child, which has held 2 MiB before that, allocates and frees
//! 64 KiB and 1 MiB at once, faster than samples follow each other: together they never hold more
//! than 9.0625 MiB.
//
// expect recording processes=2
// expect totals allocations=202
#include "guest.h"
#include <sys/wait.h>

static void pass(int fd)
{
    char token = 1;
    CHECK(write(fd, &token, 1) == 1);
}

static void await(int fd)
{
    char token;
    CHECK(read(fd, &token, 1) == 1);
}

static void child(int from, int to)
{
    free(memset(keep(malloc(2 << 20)), 1, 2 << 20));
    pass(to);
    await(from);
    for (int i = 0; i < 100; i++) {
        void *first = keep(malloc(64 << 10));
        free(keep(malloc(1 << 20)));
        free(first);
    }
    _exit(0);
}

int main(void)
{
    int there[2], back[2];
    CHECK(pipe(there) == 0 && pipe(back) == 0);
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0)
        child(there[0], back[1]);
    await(back[0]);
    void *block = memset(keep(malloc(8 << 20)), 1, 8 << 20);
    pass(there[1]);
    CHECK(wait(NULL) == pid);
    free(block);
    return 0;
}
