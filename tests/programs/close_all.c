//! Like a daemon, closes every descriptor, then opens files under all numbers; the recorder writes
//! to none.
//
// losses: allowed
// order: varies
// expect function:branch allocations>=1
#include "guest.h"
#include <fcntl.h>
#include <sys/stat.h>

int main(void)
{
    int first = open("/dev/null", O_RDONLY);
    say("lowest descriptor %d\n", first);
    for (unsigned i = 0; i < 1000; i++)
        keep(branch(i, 10, 30));
    CHECK(close_range(3, ~0u, 0) == 0);
    int fd = open("victim", O_CREAT | O_RDWR | O_TRUNC, 0600);
    CHECK(fd == 3);
    for (int copy = 4; copy < 1024; copy++)
        dup2(fd, copy);
    for (unsigned i = 0; i < 100000; i++)
        keep(branch(i, 16, 30));
    struct stat state;
    CHECK(fstat(fd, &state) == 0);
    say("victim holds %ld bytes\n", (long)state.st_size);
    return 0;
}
