//! Memory that the program gets first and writes to later, without an event in between. The
//! argument selects how it gets 64 MiB: `heap` in one block, `blocks` in 4096 blocks of 16 KiB,
//! `mapped` by mmap, `turns` also by mmap, after a block of 32 MiB was freed, `beside` also by
//! mmap, while it has a block of 64 KiB. All of it is resident when the program gives it back. At
//! the end, 1000 blocks of 1000 bytes are live, except for `beside`.
#include "clock.h"
#include <sys/mman.h>

enum { MIB = 1 << 20, BYTES = 64 * MIB, BLOCKS = 4096, BLOCK = BYTES / BLOCKS };

static void *blocks[BLOCKS];

static NOINLINE void *get_block(size_t bytes)
{
    return keep(malloc(bytes));
}

static NOINLINE void get_blocks(void)
{
    for (int i = 0; i < BLOCKS; i++)
        blocks[i] = keep(malloc(BLOCK));
}

static NOINLINE void *get_mapping(size_t bytes)
{
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    return memory;
}

// Writes to memory, for 20 ms.
static void *fill(void *start, size_t bytes)
{
    memset(start, 1, bytes);
    pass_us(20000);
    return start;
}

static void use_block(size_t bytes)
{
    free(fill(get_block(bytes), bytes));
}

static void use_mapping(size_t bytes)
{
    CHECK(munmap(fill(get_mapping(bytes), bytes), bytes) == 0);
}

int main(int argc, char **argv)
{
    CHECK(argc == 2);
    pass_us(500000); // accounts may take 2 % of the time
    if (strcmp(argv[1], "heap") == 0) {
        use_block(BYTES);
    } else if (strcmp(argv[1], "mapped") == 0) {
        use_mapping(BYTES);
    } else if (strcmp(argv[1], "turns") == 0) {
        use_block(BYTES / 2);
        pass_us(20000);
        use_mapping(BYTES);
    } else if (strcmp(argv[1], "beside") == 0) {
        void *block = get_block(BYTES / 1024);
        use_mapping(BYTES);
        free(block);
        return 0;
    } else {
        get_blocks();
        for (int i = 0; i < BLOCKS; i++)
            memset(blocks[i], 1, BLOCK);
        pass_us(20000);
        for (int i = 0; i < BLOCKS; i++)
            free(blocks[i]);
    }
    pass_us(20000);
    for (int i = 0; i < 1000; i++)
        keep(malloc(1000));
}
