//! A program whose file is replaced by one with the same content while it runs, as by an
//! installation of the same version. Its child, whose recording begins afterwards, has the path of
//! the file, and names.
//
// expect function:before allocations=2 requested_bytes=200
// expect function:in_child allocations=3 requested_bytes=3000
#include "guest.h"
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static NOINLINE void before(void) { keep(malloc(100)); }

static NOINLINE void in_child(void) { keep(malloc(1000)); }

static void replace(void)
{
    char path[PATH_MAX] = {0}, fresh[PATH_MAX + 8];
    CHECK(readlink("/proc/self/exe", path, sizeof path - 1) > 0);
    snprintf(fresh, sizeof fresh, "%s.copy", path);
    int from = open(path, O_RDONLY | O_CLOEXEC);
    int to = open(fresh, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0755);
    struct stat stat;
    CHECK(from >= 0 && to >= 0 && fstat(from, &stat) == 0);
    CHECK(sendfile(to, from, NULL, stat.st_size) == stat.st_size);
    CHECK(close(from) == 0 && close(to) == 0 && rename(fresh, path) == 0);
}

int main(void)
{
    for (int i = 0; i < 2; i++)
        before();
    replace();
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        for (int i = 0; i < 3; i++)
            in_child();
        _exit(0);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    say("done\n");
    return 0;
}
