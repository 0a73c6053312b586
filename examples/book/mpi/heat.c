//! Heat in a rod, computed by several processes: each has a part of the rod, and rank 0 collects
//! the whole rod at each step, which takes memory on that rank only.
//
//     mpicc -g -O2 -o heat heat.c
//     mpirun -n 4 ./heat

#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { CELLS = 100000, STEPS = 20 };

static double *allocate(size_t count)
{
    double *cells = calloc(count, sizeof *cells);
    if (!cells)
        MPI_Abort(MPI_COMM_WORLD, 1);
    return cells;
}

/// Each rank's part includes a cell of the neighbour at either end.
static double *make_part(int rank)
{
    double *part = allocate(CELLS + 2);
    part[1] = rank == 0 ? 100 : 0;
    return part;
}

static void exchange(double *part, int rank, int ranks)
{
    const int before = rank > 0 ? rank - 1 : MPI_PROC_NULL;
    const int after = rank + 1 < ranks ? rank + 1 : MPI_PROC_NULL;
    MPI_Sendrecv(part + 1, 1, MPI_DOUBLE, before, 0, part + CELLS + 1, 1, MPI_DOUBLE, after, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Sendrecv(part + CELLS, 1, MPI_DOUBLE, after, 0, part, 1, MPI_DOUBLE, before, 0,
                 MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void diffuse(double *part)
{
    double *next = allocate(CELLS + 2);
    for (int i = 1; i <= CELLS; i++)
        next[i] = part[i] + 0.25 * (part[i - 1] - 2 * part[i] + part[i + 1]);
    memcpy(part, next, (CELLS + 2) * sizeof *part);
    free(next);
}

/// Returns the whole rod on rank 0, which keeps it for an animation; null on other ranks.
static double *collect(double *part, int rank, int ranks)
{
    double *rod = rank == 0 ? allocate((size_t)CELLS * ranks) : NULL;
    MPI_Gather(part + 1, CELLS, MPI_DOUBLE, rod, CELLS, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    return rod;
}

int main(int count, char **arguments)
{
    int rank, ranks;
    MPI_Init(&count, &arguments);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &ranks);
    double *part = make_part(rank), *film[STEPS];
    for (int step = 0; step < STEPS; step++) {
        exchange(part, rank, ranks);
        diffuse(part);
        film[step] = collect(part, rank, ranks);
    }
    if (rank == 0)
        printf("%d ranks, %.3f at the left end\n", ranks, film[STEPS - 1][0]);
    for (int step = 0; step < STEPS; step++)
        free(film[step]);
    free(part);
    MPI_Finalize();
    return 0;
}
