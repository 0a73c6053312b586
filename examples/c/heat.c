//! A worked example: heat spreads over a plate, and the recording attributes each block to a phase
//! and an array.
//
//     cc -O2 -g -I include -o heat examples/c/heat.c
//     heaptide run -o heat.heaptide -- ./heat
//     heaptide report --by scope heat.heaptide
//     heaptide report --by label heat.heaptide
//     heaptide tree --scopes heat.heaptide
//
// The plate has 400 x 250 points: two grids of 800 000 bytes. Each of 100 steps allocates a
// boundary of 2000 bytes and frees it again; every tenth keeps a picture of 10 000 bytes. In total
// the program requests 1 600 000 + 100 x 2000 + 10 x 10 000 = 1 900 000 bytes in 112 blocks.
// Without the recorder it does the same, and prints no counters.

#include "heaptide.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 250, COLUMNS = 400, STEPS = 100, EVERY = 10, PICTURES = STEPS / EVERY };
enum { PICTURE_ROWS = ROWS / 5, PICTURE_COLUMNS = COLUMNS / 2 };

struct plate {
    double *now, *next;
    unsigned char *pictures[PICTURES];
};

static void *must(void *memory)
{
    if (!memory) {
        perror("heat");
        exit(1);
    }
    return memory;
}

// Labels the grids, with their shape: `heaptide report --by label` shows them, and
// heaptide_resolve() returns the element at an address.
static void set_up(struct plate *plate)
{
    double *now, *next;
    HEAPTIDE_BEGIN_STRING("phase", "set up");
    now = must(calloc(ROWS * COLUMNS, sizeof *now));
    next = must(calloc(ROWS * COLUMNS, sizeof *next));
    HEAPTIDE_LABEL_MATRIX(now, ROWS, COLUMNS);
    HEAPTIDE_LABEL_MATRIX(next, ROWS, COLUMNS);
    for (size_t column = 0; column < COLUMNS; column++)
        now[column] = next[column] = 100;
    plate->now = now;
    plate->next = next;
    HEAPTIDE_END_STRING("phase", "set up");
}

// The edges change with time: each step has its own block, which lives as long as the step.
static double *boundary(int step)
{
    double *edge;
    HEAPTIDE_BEGIN("boundary");
    edge = must(malloc(ROWS * sizeof *edge));
    for (int row = 0; row < ROWS; row++)
        edge[row] = (double)(step % 50) * row / ROWS;
    HEAPTIDE_END("boundary");
    return edge;
}

static void make_step(struct plate *plate, int step)
{
    double *edge = boundary(step), *swap = plate->now;
    for (size_t row = 1; row < ROWS - 1; row++) {
        const double *from = plate->now + row * COLUMNS;
        double *to = plate->next + row * COLUMNS;
        to[0] = edge[row];
        for (size_t column = 1; column < COLUMNS - 1; column++)
            to[column] = 0.25 * (from[column - 1] + from[column + 1] + from[column - COLUMNS]
                                 + from[column + COLUMNS]);
    }
    plate->now = plate->next;
    plate->next = swap;
    free(edge);
}

static void take_picture(struct plate *plate, int number)
{
    unsigned char *picture;
    HEAPTIDE_BEGIN("picture");
    picture = must(malloc(PICTURE_ROWS * PICTURE_COLUMNS));
    HEAPTIDE_LABEL_MATRIX(picture, PICTURE_ROWS, PICTURE_COLUMNS);
    for (size_t row = 0; row < PICTURE_ROWS; row++)
        for (size_t column = 0; column < PICTURE_COLUMNS; column++)
            picture[row * PICTURE_COLUMNS + column] =
                (unsigned char)plate->now[row * 5 * COLUMNS + column * 2];
    plate->pictures[number] = picture;
    HEAPTIDE_END("picture");
}

// Counts the allocations of one step. All steps are the same, so measuring the first is enough.
static void measured_step(struct plate *plate, int step)
{
    struct heaptide_measurement measurement;
    struct heaptide_figures figures;
    heaptide_measure_begin(&measurement);
    make_step(plate, step);
    heaptide_measure_end(&measurement, &figures);
    if (step == 0 && heaptide_loaded())
        printf("a step: %" PRIu64 " allocation of %" PRIu64 " bytes, %" PRIu64 " free\n",
               figures.allocations, figures.requested_bytes, figures.frees);
}

static void simulate(struct plate *plate)
{
    struct heaptide_figures figures;
    uint32_t window;
    uint64_t simulation;
    HEAPTIDE_BEGIN_STRING("phase", "simulate");
    simulation = heaptide_context();
    window = heaptide_window_open("simulation");
    for (int step = 0; step < STEPS; step++) {
        heaptide_begin_int("step", step);
        measured_step(plate, step);
        if ((step + 1) % EVERY == 0)
            take_picture(plate, step / EVERY);
        heaptide_end_int("step", step);
    }
    HEAPTIDE_END_STRING("phase", "simulate");
    if (heaptide_window_close(window, &figures))
        printf("the simulation left %" PRId64 " blocks\n", figures.live_blocks);
    figures = heaptide_scope_figures(simulation, 1);
    if (heaptide_loaded())
        printf("its scope asked for %" PRIu64 " bytes in %" PRIu64 " blocks\n",
               figures.requested_bytes, figures.allocations);
}

int main(void)
{
    struct plate plate;
    static char output[BUFSIZ];
    // A static buffer, so that output does not allocate.
    setvbuf(stdout, output, _IOFBF, sizeof output);
    set_up(&plate);
    heaptide_mark_now("set up");
    simulate(&plate);
    printf("near the warm edge: %.3f degrees\n", plate.now[5 * COLUMNS + COLUMNS / 2]);
    for (int i = 0; i < PICTURES; i++)
        free(plate.pictures[i]);
    free(plate.now);
    free(plate.next);
    return 0;
}
