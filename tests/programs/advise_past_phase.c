//! `heaptide advise`: a file of 32 MiB, read in phase load, is kept until the program ends, while
//! phase solve has a grid of 32 MiB. With -DALIKE, phase solve frees the file after allocating the
//! grid.
//
// clock: set
//   read_file  one block of 32 MiB, in scope load
//   make_grid  one block of 32 MiB, in scope solve
#include "api_guest.h"
#include "clock.h"

enum { BYTES = 32 << 20, TICKS = 40, TICK_US = 2000 };

static NOINLINE void *read_file(void) { return keep(malloc(BYTES)); }
static NOINLINE void *make_grid(void) { return keep(malloc(BYTES)); }

static void work(void)
{
    for (int i = 0; i < TICKS; i++) {
        free(keep(malloc(100)));
        pass_us(TICK_US);
    }
}

int main(void)
{
    pass_us(1000); // a trace has no events at time 0
    heaptide_begin("load");
    void *file = read_file();
    work();
    heaptide_end("load");
    work();
    heaptide_begin("solve");
    void *grid = make_grid();
    work();
#ifdef ALIKE
    free(file);
#endif
    work();
    free(grid);
    heaptide_end("solve");
#ifndef ALIKE
    free(file);
#endif
    return 0;
}
