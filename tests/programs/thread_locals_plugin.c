//! A library with thread-local variables, for `thread_locals.c`: each thread fills a table of
//! blocks that only its own variable refers to.

#include "guest.h"

static __thread void **table;
static __thread char filler[5000] __attribute__((aligned(64)));

NOINLINE void fill_table(int blocks)
{
    table = keep(calloc(blocks, sizeof *table));
    for (int i = 0; i < blocks; i++)
        table[i] = keep(calloc(1, 232));
    keep((void *)filler);
}

NOINLINE int count_table(int blocks)
{
    int whole = 0;
    for (int i = 0; i < blocks; i++)
        whole += *(char *)table[i] == 0;
    return whole;
}
