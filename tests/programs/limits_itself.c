//! The program limits its address space and data while it runs: the available memory, the limits it
//! reads, and those that its children inherit are the same as without the recorder.
//
// losses: allowed
// expect function:allocate allocations=4 failed=4
#include "guest.h"
#include <sys/resource.h>
#include <sys/wait.h>

enum { MIB = 1 << 20 };

static NOINLINE int allocate(size_t bytes)
{
    void *block = keep(malloc(bytes));
    free(block);
    return block != NULL;
}

static void show(const char *when, int resource)
{
    struct rlimit limit;
    CHECK(getrlimit(resource, &limit) == 0);
    say("%s: %lu to %lu MiB\n", when, (unsigned long)limit.rlim_cur / MIB,
        (unsigned long)limit.rlim_max / MIB);
}

static void try_to_allocate(const char *who)
{
    say("%s: 100 MiB %d, 600 MiB %d\n", who, allocate(100 * (size_t)MIB),
        allocate(600 * (size_t)MIB));
}

static void limited(int resource, char **words)
{
    struct rlimit limit = {300 * (rlim_t)MIB, 500 * (rlim_t)MIB}, before;
    CHECK(setrlimit(resource, &limit) == 0);
    show("set", resource);
    try_to_allocate("limited");
    limit.rlim_cur = 400 * (rlim_t)MIB;
    CHECK(prlimit(0, resource, &limit, &before) == 0);
    CHECK(before.rlim_cur == 300 * (rlim_t)MIB && before.rlim_max == 500 * (rlim_t)MIB);
    show("raised", resource);
    CHECK(execl("/no/such/program", "x", (char *)NULL) == -1);
    show("after an exec that failed", resource);
    execl(words[0], words[0], resource == RLIMIT_AS ? "as" : "data", (char *)NULL);
    _exit(97);
}

int main(int count, char **words)
{
    if (count > 1) {
        int resource = strcmp(words[1], "as") == 0 ? RLIMIT_AS : RLIMIT_DATA;
        show("inherited", resource);
        try_to_allocate("after exec");
        return 0;
    }
    const int resources[] = {RLIMIT_AS, RLIMIT_DATA};
    for (int i = 0; i < 2; i++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
            limited(resources[i], words);
        int status = 0;
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    return 0;
}
