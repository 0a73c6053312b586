//! Preloaded into `heaptide ctl`: a write to the bits by which the program is controlled (offset
//! 308 of the profile) waits until the file of this name has `.go` after it. `DELAYED` names it.
//
// What the program does to the same bits meanwhile must not be undone by the write.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { BITS = 308, BITS_END = 312 };

static void wait_for_go(const char *name)
{
    char go[4096];
    snprintf(go, sizeof go, "%s.go", name);
    close(open(name, O_CREAT | O_WRONLY, 0600));
    while (access(go, F_OK) != 0)
        usleep(1000);
}

ssize_t pwrite64(int fd, const void *bytes, size_t length, off64_t at)
{
    ssize_t (*next)(int, const void *, size_t, off64_t) = dlsym(RTLD_NEXT, "pwrite64");
    const char *name = getenv("DELAYED");
    if (name && at >= BITS && at < BITS_END)
        wait_for_go(name);
    return next(fd, bytes, length, at);
}
