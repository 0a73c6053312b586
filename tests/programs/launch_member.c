//! A process of a launch: allocates as many blocks as its first argument, keeps them, and exits
//! with that number. With a second argument it creates the file waits-N, waits until a file with
//! that name exists, and creates the file ends-N.
//
// Built and run by launches.rs, with arguments 0 to 9; the number of allocations is the first
// argument.
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void create(const char *before, const char *number)
{
    char name[64];
    strcpy(name, before);
    strncat(name, number, 8);
    close(open(name, O_CREAT | O_WRONLY, 0600));
}

int main(int count, char **words)
{
    int blocks = atoi(words[1]);
    for (int made = 0; made < blocks; made++) {
        void *block = malloc(100);
        __asm__ volatile("" : : "r"(block) : "memory");
    }
    if (count > 2) {
        create("waits-", words[1]);
        while (access(words[2], F_OK) != 0)
            usleep(1000);
        create("ends-", words[1]);
    }
    return blocks;
}
