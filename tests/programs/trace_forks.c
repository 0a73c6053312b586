//! Forks during a trace: parent and children continue, each with a separate trace; the last child
//! executes another program, which is traced from its start.
//
// expect recording processes=6
// expect leaf:before allocations=500 frees=500
// expect leaf:in_parent allocations=5000 frees=5000
// expect leaf:in_child allocations=20000 frees=16000 live_blocks=4000
// expect leaf:in_next allocations=100 frees=0
#include "guest.h"
#include <sys/wait.h>

enum { INHERITED = 500, OWN = 5000 };

static NOINLINE void *before(void) { return keep(malloc(10)); }
static NOINLINE void *in_parent(void) { return keep(malloc(20)); }
static NOINLINE void *in_child(void) { return keep(malloc(30)); }
static NOINLINE void *in_next(void) { return keep(malloc(40)); }

// Frees the inherited blocks, every other one before its own blocks.
static void child(void **inherited, const char *program)
{
    for (int i = 0; i < INHERITED; i += 2)
        free(inherited[i]);
    for (int i = 0; i < OWN; i++) {
        void *p = in_child();
        if (i % 5)
            free(p);
    }
    for (int i = 1; i < INHERITED; i += 2)
        free(inherited[i]);
    if (program)
        execl(program, program, "next", (char *)NULL);
}

int main(int count, char **words)
{
    if (count > 1) {
        for (int i = 0; i < 100; i++)
            in_next();
        return 7;
    }
    void *blocks[INHERITED];
    for (int i = 0; i < INHERITED; i++)
        blocks[i] = before();
    for (int number = 0; number < 4; number++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            child(blocks, number == 3 ? words[0] : NULL);
            _exit(7);
        }
        for (int i = 0; i < OWN / 4; i++)
            free(in_parent());
        int status = 0;
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    }
    for (int i = 0; i < INHERITED; i++)
        free(blocks[i]);
    say("forked\n");
    return 0;
}
