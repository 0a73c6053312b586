//! Handlers that allocate: raised synchronously, by a timer at any time, and on an alternate stack.
//
// expect function:raiser>in_handler allocations=200 frees=200 requested_bytes=2000
// expect function:main>raiser>in_handler allocations=200
// expect function:alternate>on_alternate allocations=100 frees=100
// expect function:spinning>in_timer allocations>=5
// order: varies
#include "guest.h"
#include <signal.h>
#include <sys/time.h>
#include <time.h>

static volatile int ticks;

static NOINLINE void in_handler(int number)
{
    (void)number;
    free(keep(malloc(10)));
    stay();
}
static NOINLINE void in_timer(int number)
{
    (void)number;
    free(keep(malloc(25)));
    ticks++;
}
static NOINLINE void on_alternate(int number)
{
    (void)number;
    free(keep(malloc(12)));
    stay();
}
static NOINLINE void raiser(int depth)
{
    if (depth)
        raiser(depth - 1);
    else
        raise(SIGUSR1);
    stay();
}
static NOINLINE void alternate(void)
{
    raise(SIGUSR2);
    stay();
}
static NOINLINE unsigned spinning(void)
{
    volatile unsigned work = 1;
    while (ticks < 10)
        work = work * 3 + 1;  // the timer interrupts here, between any two instructions
    return work;
}

int main(void)
{
    static char stack[64 * 1024];
    stack_t alternate_stack = {.ss_sp = stack, .ss_size = sizeof stack};
    CHECK(sigaltstack(&alternate_stack, NULL) == 0);
    struct sigaction plain = {.sa_handler = in_handler}, other = {.sa_handler = on_alternate};
    struct sigaction timer = {.sa_handler = in_timer, .sa_flags = SA_RESTART};
    other.sa_flags = SA_ONSTACK;
    sigaction(SIGUSR1, &plain, NULL);
    sigaction(SIGUSR2, &other, NULL);
    sigaction(SIGALRM, &timer, NULL);
    for (int i = 0; i < 200; i++)
        raiser(i % 9);
    for (int i = 0; i < 100; i++)
        alternate();
    struct itimerval every = {{0, 2000}, {0, 2000}}, never = {{0, 0}, {0, 0}};
    setitimer(ITIMER_REAL, &every, NULL);
    spinning();
    setitimer(ITIMER_REAL, &never, NULL);
    say("handled\n");
    return 0;
}
