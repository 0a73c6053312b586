// Waits with a timeout in each of these ways in turn, and prints "ready" before and the result
// after each: a wait that a search of the process ended early would print EINTR.
//
//   nanosleep, poll, futex (FUTEX_WAIT), pthread_cond_timedwait: 1 second each

#define _GNU_SOURCE
#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static void *kept;

static void result(const char *name, long value) {
    const int error = value < 0 ? errno : (int)value;
    printf("%s %s\n", name, error == 0 ? "0" : strerrorname_np(error));
    fflush(stdout);
}

static void ready(void) {
    puts("ready");
    fflush(stdout);
}

int main(void) {
    kept = malloc(100);
    const struct timespec second = {.tv_sec = 1};
    ready();
    result("nanosleep", nanosleep(&second, NULL));
    ready();
    result("poll", poll(NULL, 0, 1000));
    ready();
    int word = 0;
    result("futex", syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, 0, &second, NULL, 0));
    pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    pthread_cond_t condition = PTHREAD_COND_INITIALIZER;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec++;
    ready();
    pthread_mutex_lock(&mutex);
    result("condition", pthread_cond_timedwait(&condition, &mutex, &until));
    return 0;
}
