//! Threads of OpenMP in a forked child inherit the child's scopes, not those of its parent.
//
// expect scope:parent>part allocations=4 requested_bytes=400
// expect scope:child>part allocations=4 requested_bytes=400
// expect scope:part allocations=4 requested_bytes=400
// expect recording processes=2
// order: varies
// build: -fopenmp
#include "api_guest.h"
#include <sys/wait.h>

static void region(void)
{
#pragma omp parallel num_threads(4)
    {
        HEAPTIDE_BEGIN("part");
        free(block(100));
        HEAPTIDE_END("part");
    }
}

// The library cannot start threads in a child if its parent has any.
static void in_child(void)
{
    region();
    HEAPTIDE_BEGIN("child");
    region();
    HEAPTIDE_END("child");
    HEAPTIDE_END("parent");
    KNOWN(heaptide_context() == 0);
}

int main(void)
{
    int status;
    HEAPTIDE_BEGIN("parent");
    pid_t child = fork();
    if (child == 0) {
        in_child();
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    region();
    HEAPTIDE_END("parent");
    say("forked\n");
    return 0;
}
