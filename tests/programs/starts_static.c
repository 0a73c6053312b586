//! Starts the program of its last argument, which is static: by posix_spawn in a second thread, by
//! exec in a second thread, or in vain, because an argument is too long. Prints what happens.
#include "guest.h"
#include <errno.h>
#include <pthread.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

static char *arguments[4];

static void *spawn_it(void *unused)
{
    pid_t pid = 0;
    int status = 0;
    int error = posix_spawn(&pid, arguments[0], NULL, NULL, arguments, environ);
    if (!error)
        CHECK(waitpid(pid, &status, 0) == pid);
    say("spawned: error %d, status %d\n", error, WEXITSTATUS(status));
    return unused;
}

static void *execute_it(void *unused)
{
    execv(arguments[0], arguments);
    say("exec: error %d\n", errno);
    return unused;
}

static void in_thread(void *(*function)(void *))
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, function, NULL) == 0);
    CHECK(pthread_join(thread, NULL) == 0);
}

int main(int count, char **words)
{
    CHECK(count == 2);
    // The kernel accepts 128 KiB for one argument.
    size_t bytes = 1 << 20;
    char *too_long = malloc(bytes);
    CHECK(too_long != NULL);
    memset(too_long, 'a', bytes - 1);
    too_long[bytes - 1] = 0;
    arguments[0] = words[1];
    arguments[1] = too_long;
    spawn_it(NULL);
    in_thread(spawn_it);
    execute_it(NULL);
    in_thread(execute_it);
    free(too_long);
    arguments[1] = NULL;
    spawn_it(NULL);
    in_thread(spawn_it);
    in_thread(execute_it);
    return 1;
}
