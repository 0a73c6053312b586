//! Pools: a heap block, a mapping and a static array as chunks; blocks in them are counted once;
//! labels of slices; a chunk that is freed with blocks in it.
//
// expect leaf:block allocations>=1
#include "api_guest.h"
#include <sys/mman.h>

static int kind_at(const void *address)
{
    struct heaptide_block found;
    return heaptide_resolve(address, &found) ? (int)found.kind : 0;
}

static int64_t live(void) { return heaptide_process_figures().live_bytes; }

static void heap_chunk(void)
{
    uint32_t pool = heaptide_pool_named("arena");
    char *chunk = (char *)block(65536);
    int64_t before = live();
    struct heaptide_block found;
    KNOWN(pool != 0 && heaptide_pool_named("arena") == pool && heaptide_pool_named("b") != pool);
    KNOWN(heaptide_pool_add(pool, chunk, 65536) == 1 && live() == before);
    KNOWN(kind_at(chunk) == HEAPTIDE_POOL_CHUNK && kind_at(chunk + 65535) == HEAPTIDE_POOL_CHUNK);
    KNOWN(heaptide_pool_allocated(pool, chunk, 100, 128) == 1);
    KNOWN(heaptide_pool_allocated(pool, chunk + 128, 200, 256) == 1);
    KNOWN(live() == before);
    KNOWN(kind_at(chunk) == HEAPTIDE_POOL_BLOCK && kind_at(chunk + 383) == HEAPTIDE_POOL_BLOCK);
    KNOWN(kind_at(chunk + 384) == HEAPTIDE_POOL_CHUNK);
    KNOWN(heaptide_resolve(chunk + 200, &found) && found.start == chunk + 128);
    KNOWN(found.bytes == 256);
    KNOWN(heaptide_label_array(chunk + 128, "slice", 8, 25) == 1);
    KNOWN(heaptide_resolve(chunk + 128 + 199, &found) && found.index == 24);
    KNOWN(found.label && !strcmp(found.label, "slice") && found.kind == HEAPTIDE_POOL_BLOCK);
    KNOWN(heaptide_pool_reallocated(chunk, chunk + 1024, 300, 512) == 1);
    KNOWN(kind_at(chunk) == HEAPTIDE_POOL_CHUNK && kind_at(chunk + 1535) == HEAPTIDE_POOL_BLOCK);
    KNOWN(heaptide_pool_freed(chunk + 1024) == 1 && kind_at(chunk + 1024) == HEAPTIDE_POOL_CHUNK);
    CHECK(heaptide_pool_freed(chunk + 1024) == 0);
    KNOWN(heaptide_pool_freed(chunk + 128) == 1 && live() == before);
    KNOWN(heaptide_pool_remove(chunk) == 1 && kind_at(chunk) == HEAPTIDE_HEAP_BLOCK);
    CHECK(heaptide_pool_remove(chunk) == 0);
    KNOWN(live() == before);
    free(chunk);
    CHECK(kind_at(chunk) == 0);
}

// Freeing the chunk also removes its blocks.
static void freed_with_blocks(void)
{
    uint32_t pool = heaptide_pool_named("arena");
    int64_t before = live();
    char *chunk = (char *)block(4096);
    KNOWN(heaptide_pool_add(pool, chunk, 4096) == 1);
    for (int i = 0; i < 4; i++)
        KNOWN(heaptide_pool_allocated(pool, chunk + 1024 * i, 1000, 1024) == 1);
    KNOWN(live() > before);
    free(chunk);
    KNOWN(live() == before);
    CHECK(kind_at(chunk) == 0 && kind_at(chunk + 2048) == 0);
    CHECK(heaptide_pool_freed(chunk + 1024) == 0);
}

static char reserve[8192] __attribute__((aligned(16)));

static void other_chunks(void)
{
    uint32_t pool = heaptide_pool_named("reserve");
    size_t bytes = 1 << 20;
    char *mapping = (char *)mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS,
                                 -1, 0);
    CHECK(mapping != MAP_FAILED);
    KNOWN(heaptide_pool_add(pool, reserve, sizeof reserve) == 1);
    KNOWN(heaptide_pool_add(pool, mapping, bytes) == 1);
    KNOWN(heaptide_pool_allocated(pool, reserve + 16, 16, 16) == 1);
    KNOWN(heaptide_pool_allocated(pool, mapping, 1000, 1008) == 1);
    KNOWN(kind_at(reserve) == HEAPTIDE_POOL_CHUNK && kind_at(reserve + 16) == HEAPTIDE_POOL_BLOCK);
    KNOWN(kind_at(mapping) == HEAPTIDE_POOL_BLOCK && kind_at(mapping + 1008) == 3);
    KNOWN(heaptide_pool_freed(reserve + 16) == 1 && heaptide_pool_remove(reserve) == 1);
    KNOWN(heaptide_pool_freed(mapping) == 1 && heaptide_pool_remove(mapping) == 1);
    CHECK(kind_at(reserve) == 0 && kind_at(mapping) == 0);
    munmap(mapping, bytes);
}

int main(void)
{
    heap_chunk();
    freed_with_blocks();
    other_chunks();
    say("pools\n");
    return 0;
}
