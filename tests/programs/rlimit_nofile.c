//! Hardly any free file descriptors: the recorder takes none that the program would have got.
//
// losses: allowed
// order: varies
// expect recording processes=2
#include "guest.h"
#include <fcntl.h>
#include <sys/resource.h>

int main(int count, char **words)
{
    if (count == 1) {
        for (int fd = 3; fd < 1024; fd++)
            close(fd);
        struct rlimit limit = {4, 4};
        CHECK(setrlimit(RLIMIT_NOFILE, &limit) == 0);
        execl(words[0], words[0], "limited", NULL);
        return 97;
    }
    for (unsigned i = 0; i < 50000; i++)
        free(branch(i, 13, 50));
    int only = open("/dev/null", O_RDONLY);
    say("got %d\n", only);
    CHECK(only == 3 && open("/dev/null", O_RDONLY) == -1 && errno == EMFILE);
    for (unsigned i = 0; i < 50000; i++)
        free(branch(i, 15, 50));
    return 0;
}
