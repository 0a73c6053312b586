//! A task of a job without MPI. The task of rank N needs N + 1 MiB.
//
//     cc -g -O2 -o task task.c
//     SLURM_PROCID=3 ./task

#include <stdlib.h>
#include <string.h>

static char *fill(size_t bytes)
{
    char *buffer = malloc(bytes);
    return buffer ? memset(buffer, 1, bytes) : NULL;
}

int main(void)
{
    const char *rank = getenv("SLURM_PROCID");
    char *volatile buffer = fill((size_t)(1 + atoi(rank ? rank : "0")) << 20);
    free(buffer);
    return 0;
}
