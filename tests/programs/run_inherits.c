//! Prints everything that exec passes on: signals, descriptors, environment, limits, attributes.
//
// `run_inherits strange COMMAND…` sets all of it to unusual values, then executes the command.
#include "guest.h"
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>

// The kernel's structure, because libc rejects the signals that it uses itself.
struct action {
    void (*handler)(int);
    unsigned long flags;
    void (*restorer)(void);
    uint64_t mask;
};

static void ignore(int signal)
{
    struct action action = {.handler = SIG_IGN};
    CHECK(syscall(SYS_rt_sigaction, signal, &action, NULL, 8) == 0);
}
static void start(int which, long seconds)
{
    struct itimerval timer = {.it_value.tv_sec = seconds, .it_interval.tv_sec = 3};
    CHECK(setitimer(which, &timer, NULL) == 0);
}

static int strange(char **command)
{
    static const int ignored[] = {SIGHUP,  SIGINT,  SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2,
                                  SIGCHLD, SIGTSTP, SIGTTOU, SIGALRM, 32,      33, 64};
    for (size_t i = 0; i < sizeof ignored / sizeof *ignored; i++)
        ignore(ignored[i]);
    uint64_t mask = 1ull << (SIGTERM - 1) | 1ull << (SIGUSR2 - 1) | 1ull << 31 | 1ull << 39;
    CHECK(syscall(SYS_rt_sigprocmask, SIG_SETMASK, &mask, NULL, 8) == 0);
    int null = open("/dev/null", O_RDONLY);
    CHECK(null > 2 && dup2(null, 100) == 100 && dup2(null, 9) == 9 && close(null) == 0);
    close(0);
    close(2);
    umask(027);
    CHECK(nice(3) == 3 || errno == 0);
    CHECK(prctl(PR_SET_PDEATHSIG, SIGWINCH) == 0 && prctl(PR_SET_CHILD_SUBREAPER, 1) == 0);
    struct rlimit limit = {.rlim_cur = 64, .rlim_max = 128};
    CHECK(setrlimit(RLIMIT_NICE, &limit) == 0 || errno == EPERM);
    limit = (struct rlimit){.rlim_cur = 200, .rlim_max = 300};
    CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
    start(ITIMER_REAL, 5000);
    start(ITIMER_VIRTUAL, 6000);
    start(ITIMER_PROF, 7000);
    char *environment[] = {"Z=1", "A=2", "A=3", "no equals sign", "", "=odd", "LD_PRELOAD=",
                           "\xff\xfe=\x01", "Z=4", NULL};
    execve(command[0], command, environment);
    return 1;
}

static void print_signals(void)
{
    uint64_t ignored = 0, caught = 0, mask = 0;
    for (int signal = 1; signal <= 64; signal++) {
        struct action action = {0};
        CHECK(syscall(SYS_rt_sigaction, signal, NULL, &action, 8) == 0);
        uint64_t bit = 1ull << (signal - 1);
        if (action.handler == SIG_IGN)
            ignored |= bit;
        else if (action.handler != SIG_DFL)
            caught |= bit;
    }
    CHECK(syscall(SYS_rt_sigprocmask, SIG_SETMASK, NULL, &mask, 8) == 0);
    sigset_t pending;
    CHECK(sigpending(&pending) == 0);
    say("ignored %lx caught %lx blocked %lx pending %lx\n", ignored, caught, mask,
        *(unsigned long *)&pending);
}
static void print_attributes(char **words)
{
    int death = 0, reaper = 0;
    char name[17] = "";
    prctl(PR_GET_PDEATHSIG, &death);
    prctl(PR_GET_CHILD_SUBREAPER, &reaper);
    prctl(PR_GET_NAME, name);
    mode_t mask = umask(0);
    umask(mask);
    say("umask %o nice %d policy %d death %d reaper %d slack %d privileges %d name %s\n", mask,
        getpriority(PRIO_PROCESS, 0), sched_getscheduler(0), death, reaper,
        prctl(PR_GET_TIMERSLACK), prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0), name);
    say("group %d session %d\n", getpgrp(), getsid(0));
    for (int which = ITIMER_REAL; which <= ITIMER_PROF; which++) {
        struct itimerval timer;
        CHECK(getitimer(which, &timer) == 0);
        // Some seconds may have passed.
        say("timer %d: %ld every %ld\n", which, (timer.it_value.tv_sec + 200) / 1000,
            timer.it_interval.tv_sec);
    }
    for (int which = 0; which < RLIMIT_NLIMITS; which++) {
        struct rlimit limit;
        if (getrlimit(which, &limit) == 0)
            say("limit %d: %lu %lu\n", which, limit.rlim_cur, limit.rlim_max);
    }
    for (int i = 0; words[i] != NULL; i++)
        say("word %s\n", words[i]);
}

int main(int count, char **words)
{
    if (count > 2 && strcmp(words[1], "strange") == 0)
        return strange(words + 2);
    print_signals();
    for (int i = 0; i < 1024; i++)
        if (fcntl(i, F_GETFD) != -1)
            say("descriptor %d flags %d\n", i, fcntl(i, F_GETFD));
    for (char **entry = environ; *entry != NULL; entry++)
        say("entry %s\n", *entry);
    print_attributes(words);
    return 3;
}
