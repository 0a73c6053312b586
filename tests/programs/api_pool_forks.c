//! Eight threads hand out blocks of pools at any byte while they fork; mappings with regions end.
//
// 1. Each thread has a chunk for 10 rounds, with 500 blocks of 5 bytes without gaps, of which the
//    chunk's removal ends half.
// 2. Each thread forks in two rounds, while others hold the lock of regions. Each child has one
//    block of a pool, which is not in a chunk, since children start without regions.
// 3. Each thread unmaps 1,000 regions of 3 bytes.
//
// expect label:pool allocations=40096 frees=40080
// expect label:map allocations=8000 frees=8000
#include "api_guest.h"
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>

enum { THREADS = 8, ROUNDS = 10, BLOCKS = 500, SIZE = 5, REGIONS = 1000 };

static void in_a_child(uint32_t pool, const char *block)
{
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        free(keep(malloc(100)));
        KNOWN(heaptide_pool_allocated(pool, block, SIZE, SIZE) == 1);
        _exit(0);
    }
    int status = -1;
    CHECK(waitpid(child, &status, 0) == child && status == 0);
}

static void *hand_out(void *nothing)
{
    uint32_t pool = heaptide_pool_named("pool");
    char *chunk = block(BLOCKS * SIZE);
    for (int round = 0; round < ROUNDS; round++) {
        KNOWN(heaptide_pool_add(pool, chunk, BLOCKS * SIZE) == 1);
        for (int i = 0; i < BLOCKS; i++)
            KNOWN(heaptide_pool_allocated(pool, chunk + SIZE * i, SIZE, SIZE) == 1);
        for (int i = 0; i < BLOCKS; i += 2)
            KNOWN(heaptide_pool_freed(chunk + SIZE * i) == 1);
        if (round % 5 == 0)
            in_a_child(pool, chunk);
        KNOWN(heaptide_pool_remove(chunk) == 1);
    }
    free(chunk);
    char *map = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(map != MAP_FAILED);
    for (int i = 0; i < REGIONS; i++)
        KNOWN(heaptide_label_region(map + 3 * i, "map", 3, 1) == 1);
    CHECK(munmap(map, 4096) == 0);
    return nothing;
}

int main(void)
{
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_create(&threads[i], NULL, hand_out, NULL) == 0);
    for (int i = 0; i < THREADS; i++)
        CHECK(pthread_join(threads[i], NULL) == 0);
    return 0;
}
