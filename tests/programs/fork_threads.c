//! Fork in a program whose threads constantly allocate: each child allocates and ends.
//
// expect recording processes=41
// expect function:in_child allocations=4000 frees=4000
// expect function:in_thread live_blocks=0
// order: varies
// build: -pthread
#include "guest.h"
#include <pthread.h>
#include <sys/wait.h>

static volatile int done;

static NOINLINE void in_child(void)
{
    for (int i = 0; i < 100; i++)
        free(keep(malloc((size_t)i)));
}
static NOINLINE void *in_thread(void *unused)
{
    while (!done)
        free(keep(malloc(100)));
    return unused;
}

int main(void)
{
    pthread_t threads[3];
    for (int i = 0; i < 3; i++)
        CHECK(pthread_create(&threads[i], NULL, in_thread, NULL) == 0);
    for (int i = 0; i < 40; i++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0) {
            in_child();
            _exit(i);
        }
        int status = 0;
        CHECK(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == i);
    }
    done = 1;
    for (int i = 0; i < 3; i++)
        pthread_join(threads[i], NULL);
    say("forked\n");
    return 0;
}
