//! The program of the golden recordings: `cc -O1 -g -fno-builtin -pthread program.c`, with
//! `-DANNOTATED` and the headers of the recorder of that time if it had an interface.
//
// `kept` allocates 5 blocks of 64 bytes, and 7 of 100 bytes on the thread `worker`; `freed` 10 of
// 333, freed immediately. `worker` frees 3 of the 5. Annotated: the 10 are in scope `load`.

#define _GNU_SOURCE
#include <pthread.h>
#include <stdlib.h>
#ifdef ANNOTATED
#include "heaptide.h"
#endif

static void *volatile sink;

__attribute__((noinline)) void *kept(size_t size) { return sink = malloc(size); }
__attribute__((noinline)) void *freed(size_t size) { return sink = malloc(size); }

static void *blocks[5];

static void *worker(void *unused)
{
    pthread_setname_np(pthread_self(), "worker");
    for (int i = 0; i < 7; i++)
        kept(100);
    for (int i = 0; i < 3; i++)
        free(blocks[i]);
    return unused;
}

int main(void)
{
    for (int i = 0; i < 5; i++)
        blocks[i] = kept(64);
#ifdef ANNOTATED
    heaptide_begin("load");
    uint32_t window = heaptide_window_open("window");
#endif
    for (int i = 0; i < 10; i++)
        free(freed(333));
#ifdef ANNOTATED
    heaptide_window_close(window, NULL);
    heaptide_end("load");
    heaptide_label_block(blocks[4], "label");
    heaptide_mark_now("mark");
#endif
    pthread_t thread;
    if (pthread_create(&thread, NULL, worker, NULL) != 0)
        return 1;
    return pthread_join(thread, NULL);
}
