//! A rank of a parallel job; the argument is its number.
//
// Each rank keeps a block of 1,000,000 bytes in `mesh`, and one in `halo`: of 200,000 bytes, or of
// 290,000 bytes if the rank is a multiple of 4. Rank 5 also keeps ten blocks of 90,000 bytes in
// `cache`. All blocks are live at the end.
#include "guest.h"

static NOINLINE void mesh(void) { keep(malloc(1000000)); }
static NOINLINE void halo(size_t size) { keep(malloc(size)); }

static NOINLINE void cache(void)
{
    for (int i = 0; i < 10; i++)
        keep(malloc(90000));
}

int main(int count, char **words)
{
    int rank = count > 1 ? atoi(words[1]) : 0;
    mesh();
    halo(rank % 4 == 0 ? 290000 : 200000);
    if (rank == 5)
        cache();
    return 0;
}
