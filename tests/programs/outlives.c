//! A daemon: its parent exits after allocating, and it calls a function for the first time on
//! request.
//
// In the directory given as argument: it continues when a file `go` exists, and creates a file
// `done`.
#include "guest.h"
#include <fcntl.h>
#include <sys/stat.h>

static NOINLINE void *reached_late(void)
{
    return keep(malloc(4321));
}

int main(int count, char **words)
{
    CHECK(count == 2 && chdir(words[1]) == 0);
    int ends[2];
    CHECK(pipe(ends) == 0);
    if (fork())
        return read(ends[0], ends, 1) != 1;
    setsid();
    keep(malloc(1234));
    CHECK(write(ends[1], "", 1) == 1);
    struct stat unused;
    for (int i = 0; i < 3000 && stat("go", &unused); i++)
        usleep(10000);
    reached_late();
    close(open("done", O_CREAT | O_WRONLY, 0644));
}
