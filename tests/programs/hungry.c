//! Allocates on 65 536 distinct stacks: far more than a small disk can hold. With the path of a
//! file, fills the disk with it first.

#include "guest.h"
#include <fcntl.h>
#include <unistd.h>

static void fill(const char *path)
{
    static const char zeros[4096];
    int file = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
    CHECK(file >= 0);
    while (write(file, zeros, sizeof zeros) > 0)
        continue;
    CHECK(close(file) == 0);
}

int main(int count, char **words)
{
    unsigned long sum = 0;
    if (count > 1)
        fill(words[1]);
    for (unsigned i = 0; i < 100000; i++) {
        unsigned char *p = (unsigned char *)branch(i, 16, 30);
        p[29] = (unsigned char)i;
        sum += p[29];
    }
    say("sum %lu\n", sum);
    return 3;
}
