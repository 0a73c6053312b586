//! `heaptide advise`: the program overwrites the only pointer to a session with each request. With
//! -DALIKE it frees the session before.
//
//   open_session  500 blocks of 300 bytes (312 usable), of which 499 are lost, and one is kept
//   new_name      500 blocks of 200 bytes (200 usable), each of them kept by a session
//   read_request  500 blocks of 100,000 bytes, each of them freed at once
#include "api_guest.h"

enum { REQUESTS = 500 };

struct session {
    char *name;
    char rest[292];
};
static struct session *current;

static NOINLINE char *new_name(void) { return keep(memset(malloc(200), 'a', 200)); }
static NOINLINE struct session *open_session(void) { return keep(calloc(1, sizeof *current)); }
static NOINLINE void read_request(void) { free(keep(memset(malloc(100000), 1, 100000))); }

static NOINLINE void serve(void)
{
#ifdef ALIKE
    if (current)
        free(current->name);
    free(current);
#endif
    current = open_session();
    current->name = new_name();
    read_request();
}
// Overwrites what lower functions left on the stack.
static NOINLINE void scrub(void)
{
    volatile char rest[1 << 15];
    for (size_t i = 0; i < sizeof rest; i++)
        rest[i] = 0;
    keep((void *)rest);
}

int main(void)
{
    for (int i = 0; i < REQUESTS; i++)
        serve();
    scrub();
    keep(current);
    return 0;
}
