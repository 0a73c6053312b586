//! Children limit a resource each, to a little and to nothing, and allocate before and after.
//
// expect function:before allocations=1100 frees=1100
// expect function:after allocations=1100 frees=1100
// build: -pthread
#include "guest.h"
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/wait.h>

static const struct {
    const char *name;
    int resource;
    rlim_t limit;
} limits[] = {
    {"stack", RLIMIT_STACK, 256 << 10}, {"no stack", RLIMIT_STACK, 0},
    {"core", RLIMIT_CORE, 4096},        {"no core", RLIMIT_CORE, 0},
    {"processes", RLIMIT_NPROC, 1},     {"no processes", RLIMIT_NPROC, 0},
    {"files", RLIMIT_NOFILE, 8},        {"locked", RLIMIT_MEMLOCK, 4096},
    {"none locked", RLIMIT_MEMLOCK, 0}, {"signals", RLIMIT_SIGPENDING, 1},
    {"no signals", RLIMIT_SIGPENDING, 0},
};

static int failed;

static NOINLINE void before(void)
{
    for (size_t i = 0; i < 100; i++)
        free(keep(malloc(i * 30)));
}
static NOINLINE void after(void)
{
    for (size_t i = 0; i < 100; i++) {
        void *block = keep(malloc(i * 30));
        failed += block == NULL;
        free(block);
    }
}
static void *idle(void *unused) { return unused; }

static void run(const char *name, int resource, rlim_t limit)
{
    before();
    struct rlimit set = {limit, limit}, found;
    CHECK(setrlimit(resource, &set) == 0 && getrlimit(resource, &found) == 0);
    pthread_t thread;
    int error = pthread_create(&thread, NULL, idle, NULL);
    if (error == 0)
        pthread_join(thread, NULL);
    int file = open("/dev/null", O_RDONLY);
    after();
    say("%s: %lu %lu, thread %d, file %d, failed %d\n", name, (unsigned long)found.rlim_cur,
        (unsigned long)found.rlim_max, error == 0, file, failed);
    _exit(3);
}

int main(void)
{
    for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
        pid_t pid = fork();
        CHECK(pid >= 0);
        if (pid == 0)
            run(limits[i].name, limits[i].resource, limits[i].limit);
        int status = 0;
        CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 3);
    }
    return 0;
}
