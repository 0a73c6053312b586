//! Prints each signal that it receives, with sender and value, until SIGRTMAX ends it.
//
// `run_signals send PID SIGNAL VALUE` sends a signal with a value. `run_signals pause` has only two
// handlers: for SIGUSR1, which stops it with SIGSTOP, and for SIGRTMAX, which ends it.
#include "guest.h"
#include <signal.h>

static void stop(int signal)
{
    (void)signal;
    raise(SIGSTOP);
}
static void end(int signal)
{
    (void)signal;
    _exit(7);
}

int main(int count, char **words)
{
    if (count > 4 && strcmp(words[1], "send") == 0) {
        union sigval value = {.sival_ptr = (void *)strtoul(words[4], NULL, 0)};
        return sigqueue(atoi(words[2]), atoi(words[3]), value) != 0;
    }
    if (count > 1 && strcmp(words[1], "pause") == 0) {
        signal(SIGUSR1, stop);
        signal(SIGRTMAX, end);
        say("ready %d\n", getpid());
        for (;;)
            pause();
    }
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    free(keep(malloc(100)));
    say("ready %d\n", getpid());
    for (;;) {
        siginfo_t info;
        int signal = sigwaitinfo(&all, &info);
        if (signal == SIGRTMAX)
            return 7;
        if (signal > 0 && info.si_code == SI_QUEUE)
            say("got %d from %d with %p\n", signal, info.si_pid, info.si_value.sival_ptr);
        else if (signal > 0)
            say("got %d\n", signal);
    }
}
