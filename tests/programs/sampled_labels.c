//! Labels in a sampled recording: every ninth block gets a label, and every fifth is made larger,
//! in two threads and in a forked child that has one.
//
// Each of the three makes 20000 blocks of 1 to 3000 bytes and keeps the last ones in 512 places.
// The totals of a sampled recording equal those of a complete one. Both threads begin at the same
// time, so that neither reuses the memory of the other.
// build: -pthread
#include "api_guest.h"
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BLOCKS = 20000, PLACES = 512, CHILDS = 777 };

static unsigned next(unsigned *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    return *state ^= *state << 5;
}

static pthread_barrier_t both;

static NOINLINE void *work(void *seed)
{
    unsigned state = *(unsigned *)seed;
    static __thread void *places[PLACES];
    free(keep(malloc(1))); // the first call selects the memory
    if (state != CHILDS)
        pthread_barrier_wait(&both);
    for (int i = 0; i < BLOCKS; i++) {
        void *made = keep(malloc(next(&state) % 3000 + 1));
        if (next(&state) % 9 == 0)
            heaptide_label_block(made, "rows");
        if (next(&state) % 5 == 0)
            made = keep(realloc(made, next(&state) % 3000 + 3000));
        void **place = &places[next(&state) % PLACES];
        free(*place);
        *place = made;
    }
    return seed;
}

int main(void)
{
    unsigned seeds[] = {12345, 54321, CHILDS};
    pthread_t threads[2];
    pthread_barrier_init(&both, NULL, 2);
    for (int i = 0; i < 2; i++)
        pthread_create(&threads[i], 0, work, &seeds[i]);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], 0);
    const pid_t child = fork();
    if (child == 0) {
        work(&seeds[2]);
        _exit(0);
    }
    waitpid(child, 0, 0);
    return 0;
}
