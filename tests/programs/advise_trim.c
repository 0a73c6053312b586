//! `heaptide advise`: a function cuts blocks of another one to their size, which is no growth of
//! containers, although it has a few blocks of its own.
//
//   read_line  20,000 blocks of 640 bytes
//   trim       each of them reallocated to 320 bytes; 10 blocks of 320 bytes
#include "guest.h"

enum { LINES = 20000, ROOM = 640, LENGTH = 320, OWN = 10 };

static NOINLINE void *read_line(void) { return keep(malloc(ROOM)); }

static NOINLINE void *trim(void *line)
{
    return keep(line ? realloc(line, LENGTH) : malloc(LENGTH));
}

int main(void)
{
    static void *lines[LINES];
    for (int i = 0; i < LINES; i++)
        lines[i] = trim(read_line());
    for (int i = 0; i < OWN; i++)
        free(trim(NULL));
    for (int i = 0; i < LINES; i++)
        free(lines[i]);
    return 0;
}
