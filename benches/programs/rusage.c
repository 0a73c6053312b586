// Runs a command and measures its resources: `rusage FILE COMMAND…` writes one line to FILE with
// wall seconds, user+sys seconds, peak resident kB, and the exit status (−n for signal n).
//
// A small static program on purpose: Linux includes the resident size of the forking parent in the
// child's ru_maxrss, and a preloaded library does not load into a static program. The variable
// BENCH_PRELOAD becomes LD_PRELOAD only for the command.
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static double seconds(struct timeval t) { return t.tv_sec + t.tv_usec * 1e-6; }

static void run(char **command) {
    char *preload = getenv("BENCH_PRELOAD");
    if (preload) {
        setenv("LD_PRELOAD", preload, 1);
        unsetenv("BENCH_PRELOAD");
    }
    execvp(command[0], command);
    perror(command[0]);
    _exit(127);
}

int main(int argc, char **argv) {
    struct timespec start, end;
    struct rusage used;
    int status;
    if (argc < 3) return 2;
    clock_gettime(CLOCK_MONOTONIC, &start);
    pid_t child = fork();
    if (child < 0) return 2;
    if (child == 0) run(argv + 2);
    waitpid(child, &status, 0);
    clock_gettime(CLOCK_MONOTONIC, &end);
    getrusage(RUSAGE_CHILDREN, &used);
    FILE *out = fopen(argv[1], "w");
    if (!out) return 2;
    fprintf(out, "%.6f %.6f %ld %d\n",
            (end.tv_sec - start.tv_sec) + (end.tv_nsec - start.tv_nsec) * 1e-9,
            seconds(used.ru_utime) + seconds(used.ru_stime), used.ru_maxrss,
            WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status));
    fclose(out);
    return 0;
}
