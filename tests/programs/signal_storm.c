//! Signals interrupt calls of the allocator at any instruction; their handlers do not allocate.
//
// The handler checks errno and the signal mask, which the recorder must not change.
// expect function:allocating allocations=400000 frees=400000
// order: varies
#include "guest.h"
#include <signal.h>
#include <sys/time.h>

static volatile int ticks;

static void tick(int number)
{
    (void)number;
    ticks++;
}
static NOINLINE void allocating(unsigned i)
{
    void *p = branch(i, 10, i % 300);
    errno = 1234;
    free(p);
    CHECK(errno == 1234);
}

int main(void)
{
    struct sigaction action = {.sa_handler = tick};
    sigaction(SIGALRM, &action, NULL);
    struct itimerval every = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &every, NULL);
    for (unsigned i = 0; i < 400000; i++)
        allocating(i);
    setitimer(ITIMER_REAL, &never, NULL);
    sigset_t mask;
    sigprocmask(SIG_SETMASK, NULL, &mask);
    for (int i = 1; i < 32; i++)
        CHECK(sigismember(&mask, i) == 0);
    CHECK(ticks > 0);
    say("weathered\n");
    return 0;
}
