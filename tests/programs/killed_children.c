//! Three children with blocks of 1, 2 and 3 MB, which wait to be killed. Writes their pids to
//! `pids`, and reaps them when there is a file `go`.
#include "guest.h"
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static NOINLINE void *held(size_t bytes) { return keep(malloc(bytes)); }

int main(void)
{
    pid_t children[3];
    for (int i = 0; i < 3; i++) {
        children[i] = fork();
        CHECK(children[i] >= 0);
        if (children[i] == 0) {
            held((size_t)(i + 1) * 1000000);
            for (;;)
                pause();
        }
    }
    FILE *pids = fopen("pids.new", "w");
    CHECK(pids && fprintf(pids, "%d %d %d\n", children[0], children[1], children[2]) > 0);
    CHECK(fclose(pids) == 0 && rename("pids.new", "pids") == 0);
    while (access("go", F_OK) != 0)
        usleep(1000);
    for (int i = 0; i < 3; i++)
        CHECK(waitpid(children[i], NULL, 0) == children[i]);
    return 0;
}
