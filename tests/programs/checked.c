//! A program with as many rows as its argument, for tests of limits.
//
// `parse_row` keeps that many blocks of 1000 bytes, in the scope `parse`; `scratch` allocates and
// frees 20 blocks of 64 bytes there; a thread named `worker` allocates and frees 5 blocks of 500
// bytes in `work`. A second argument is the exit status.
#include "guest.h"
#include "../../include/heaptide.h"

#include <pthread.h>
#include <sys/prctl.h>

static NOINLINE void parse_row(void) { keep(malloc(1000)); }
static NOINLINE void scratch(void) { free(keep(malloc(64))); }

static NOINLINE void *work(void *unused)
{
    void *blocks[5];
    (void)unused;
    prctl(PR_SET_NAME, "worker");
    for (int i = 0; i < 5; i++)
        blocks[i] = keep(malloc(500));
    for (int i = 0; i < 5; i++)
        free(blocks[i]);
    return NULL;
}

int main(int count, char **arguments)
{
    pthread_t worker;
    int rows = count > 1 ? atoi(arguments[1]) : 0;
    HEAPTIDE_BEGIN_STRING("phase", "parse");
    for (int i = 0; i < rows; i++)
        parse_row();
    for (int i = 0; i < 20; i++)
        scratch();
    HEAPTIDE_END_STRING("phase", "parse");
    pthread_create(&worker, NULL, work, NULL);
    pthread_join(worker, NULL);
    return count > 2 ? atoi(arguments[2]) : 0;
}
