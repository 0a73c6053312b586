//! Loaded by `api_openmp_late.c`: allocates 8 blocks of 1000 to 8000 bytes in 4 threads.
#include "api_guest.h"

void loop(void)
{
#pragma omp parallel for num_threads(4)
    for (int i = 0; i < 8; i++) {
        HEAPTIDE_BEGIN("part");
        free(block(1000 * (i + 1)));
        HEAPTIDE_END("part");
    }
}
