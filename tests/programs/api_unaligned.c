//! Labels and blocks of pools at any byte: several begin in one word of 8 bytes.
//
// 1. An address inside a block is not the block: a label there labels nothing, and one with a size
//    is a region of its own, so live bytes stay the same.
// 2. A pool hands out 100 blocks of 5 bytes of a chunk without gaps, of which 50 are freed.
// 3. Two static regions of 4 bytes lie in one word.
//
// expect label:tiny allocations=101 frees=50 live_blocks=51
// expect label:left allocations=1 live_bytes=4
// expect label:right allocations=1 frees=1 usable_bytes=4
#include "api_guest.h"

struct message {
    int length;
    float data[];
};

static char halves[8] __attribute__((aligned(8)));

static int64_t live(void) { return heaptide_process_figures().live_bytes; }

static int begins_at(const char *address, const char *start)
{
    struct heaptide_block found;
    return heaptide_resolve(address, &found) && found.start == start;
}

static void inside_a_block(void)
{
    struct message *m = block(sizeof *m + 1000 * sizeof(float));
    char *p = (char *)m;
    int64_t before = live();
    for (int i = 1; i < 8; i++)
        CHECK(heaptide_label_block(p + i, "inside") == 0 && heaptide_unlabel(p + i) == 0);
    KNOWN(live() == before && begins_at(p + 1, p) && begins_at(p + 7, p));
    CHECK(HEAPTIDE_LABEL_ARRAY(m->data, 1000) == 0);
    KNOWN(live() == before && begins_at(p + 4, p));
    KNOWN(heaptide_label_region(m->data, "data", 4000, 4) == 1 && live() == before);
    KNOWN(begins_at(p + 3, p) && begins_at(p + 4, p + 4));
    KNOWN(heaptide_unlabel(m->data) == 1 && begins_at(p + 4, p));
    free(m);
}

static void tiny_blocks(void)
{
    uint32_t pool = heaptide_pool_named("tiny");
    char *chunk = block(4096);
    KNOWN(heaptide_pool_add(pool, chunk, 4096) == 1);
    int64_t before = live();
    for (int i = 0; i < 100; i++)
        KNOWN(heaptide_pool_allocated(pool, chunk + 5 * i, 5, 5) == 1);
    for (int i = 0; i < 500; i++)
        KNOWN(begins_at(chunk + i, chunk + i / 5 * 5));
    for (int i = 0; i < 100; i += 2)
        KNOWN(heaptide_pool_freed(chunk + 5 * i) == 1);
    CHECK(heaptide_pool_freed(chunk + 5 * 2) == 0 && heaptide_pool_freed(chunk + 6) == 0);
    for (int i = 0; i < 500; i++)
        KNOWN(begins_at(chunk + i, i / 5 % 2 ? chunk + i / 5 * 5 : chunk));
    KNOWN(live() == before);
}

static void regions_in_one_word(void)
{
    KNOWN(heaptide_label_region(halves, "left", 4, 1) == 1);
    KNOWN(heaptide_label_region(halves + 4, "right", 4, 1) == 1);
    KNOWN(begins_at(halves + 3, halves) && begins_at(halves + 7, halves + 4));
    KNOWN(heaptide_unlabel(halves + 4) == 1 && begins_at(halves + 3, halves));
    CHECK(!begins_at(halves + 4, halves + 4));
}

int main(void)
{
    inside_a_block();
    tiny_blocks();
    regions_in_one_word();
    return 0;
}
