//! A forked child: inherited mappings are older than its recording, so unmapping them counts
//! nothing. Its own mappings count.
//
// expect recording processes=2
// mapped function:in_parent allocations=2 frees=1 usable_bytes=65536 live_bytes=32768
// mapped function:in_child allocations=3 frees=1 usable_bytes=49152 freed_bytes=20480
#include "guest.h"
#include <sys/mman.h>
#include <sys/wait.h>

#define PAGE 4096L

static NOINLINE char *map(char *at, size_t pages, int flags)
{
    flags |= MAP_PRIVATE | MAP_ANONYMOUS;
    char *start = mmap(at, pages * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
    CHECK(start != MAP_FAILED);
    return keep(start);
}
static NOINLINE char *in_parent(void) { return keep(map(NULL, 8, 0)); }
static NOINLINE char *in_child(char *at) { return keep(map(at, 4, at ? MAP_FIXED : 0)); }

int main(void)
{
    char *first = in_parent(), *second = in_parent();
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        char *own = in_child(NULL);
        CHECK(munmap(first, 8 * PAGE) == 0);  // the parent's
        in_child(second + 2 * PAGE);          // over the parent's
        CHECK(munmap(second, 3 * PAGE) == 0);
        in_child(NULL);
        CHECK(munmap(own, 4 * PAGE) == 0);
        _exit(3);
    }
    int status = 0;
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 3);
    CHECK(munmap(first, 8 * PAGE) == 0);
    return 0;
}
