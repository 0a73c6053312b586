//! Preloaded into `heaptide ctl`: delays writes to the control word of the program (offset 308 of
//! the profile) until the file named by `DELAYED` exists with the suffix `.go`.
//
// The write must not undo changes that the program makes to the same word meanwhile.
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
