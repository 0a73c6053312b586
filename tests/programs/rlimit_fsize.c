//! A file size limit far below the size of the profile: no SIGXFSZ reaches the program, and its
//! writes succeed.
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
        struct rlimit limit = {64 << 10, 64 << 10};
        CHECK(setrlimit(RLIMIT_FSIZE, &limit) == 0);
        execl(words[0], words[0], "limited", NULL);
        return 97;
    }
    for (unsigned i = 0; i < 100000; i++) {
        char *p = (char *)branch(i, 14, 50);
        CHECK(p != NULL);
        p[49] = 1;
        free(p);
    }
    char text[100] = "written";
    int fd = open("small", O_CREAT | O_WRONLY | O_TRUNC, 0600);
    CHECK(fd >= 0 && write(fd, text, sizeof text) == sizeof text);
    say("small file written\n");
    return 0;
}
