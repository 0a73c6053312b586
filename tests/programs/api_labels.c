//! Labels: the element at an address, from the first byte to past the last; for blocks of every
//! allocation function, static arrays and mappings; labels that are moved and removed.
//
// expect leaf:block live_blocks=1
// expect label:before live_blocks=0 live_bytes=0
// expect label:after live_blocks=1 live_bytes>=1000
// expect label:one allocations=6 frees=6 live_blocks=0
// expect label:mapping live_blocks=0 live_bytes=0
#include "api_guest.h"
#include <sys/mman.h>

static int is_at(const void *address, const char *label, size_t index)
{
    struct heaptide_block found;
    return heaptide_resolve(address, &found) && found.label && !strcmp(found.label, label)
           && found.label_length == strlen(label) && found.index == index;
}

static int is_unknown(const void *address)
{
    struct heaptide_block found;
    memset(&found, 1, sizeof found);
    return !heaptide_resolve(address, &found) && found.start == NULL && found.kind == 0;
}

// 42 ints, as in Caliper's own test: addresses before, within and after the array.
static void forty_two(void)
{
    int *a = (int *)block(42 * sizeof *a);
    struct heaptide_block found;
    uint64_t uid;
    KNOWN(heaptide_resolve(a, &found) && found.label == NULL && found.uid == 0);
    KNOWN(found.start == a && found.kind == HEAPTIDE_HEAP_BLOCK && found.element_bytes == 0);
    KNOWN(HEAPTIDE_LABEL_ARRAY(a, 42) == 1);
    KNOWN(is_at(a, "a", 0) && is_at((char *)a + 3, "a", 0) && is_at(a + 1, "a", 1));
    KNOWN(is_at(a + 41, "a", 41) && is_at((char *)(a + 41) + 3, "a", 41));
    CHECK(is_unknown(a + 42) && is_unknown(a + 43) && is_unknown(a - 1));
    KNOWN(heaptide_resolve(a + 5, &found) && found.start == a && found.bytes == 168);
    KNOWN(found.element_bytes == 4 && found.dimension_count == 1 && found.dimensions[0] == 42);
    uid = found.uid;
    KNOWN(uid != 0 && heaptide_resolve(a, &found) && found.uid == uid);
    KNOWN(heaptide_label_block(a, "bytes of a") == 1 && is_at((char *)a + 167, "bytes of a", 167));
    KNOWN(heaptide_resolve(a, &found) && found.uid > uid);
    KNOWN(heaptide_unlabel(a) == 1 && heaptide_resolve(a, &found) && found.label == NULL);
    CHECK(heaptide_unlabel(a) == 0);
    KNOWN(HEAPTIDE_LABEL_ARRAY(a, 42) == 1);
    free(a);
    CHECK(is_unknown(a) && is_unknown(a + 41) && heaptide_unlabel(a) == 0);
}

// The first and last byte of each function's block; nothing is found after free.
static void each_function(void)
{
    void *blocks[6], *aligned = NULL;
    CHECK(posix_memalign(&aligned, 64, 168) == 0);
    blocks[0] = keep(malloc(168));
    blocks[1] = keep(calloc(42, 4));
    blocks[2] = keep(realloc(keep(malloc(10)), 168));
    blocks[3] = keep(aligned_alloc(8, 168));
    blocks[4] = keep(memalign(64, 168));
    blocks[5] = keep(aligned);
    for (int i = 0; i < 6; i++) {
        char *bytes = (char *)blocks[i];
        KNOWN(heaptide_label_block(bytes, "one") == 1);
        KNOWN(is_at(bytes, "one", 0) && is_at(bytes + 167, "one", 167));
        CHECK(is_unknown(bytes + malloc_usable_size(bytes)));
        free(bytes);
        CHECK(is_unknown(bytes) && is_unknown(bytes + 167));
    }
}

static void shapes(void)
{
    size_t five[5] = {2, 3, 4, 5, 6};
    double *matrix = (double *)block(12 * sizeof *matrix);
    struct heaptide_block found;
    KNOWN(HEAPTIDE_LABEL_MATRIX(matrix, 3, 4) == 1 && is_at(matrix + 7, "matrix", 7));
    KNOWN(heaptide_resolve(matrix, &found) && found.dimension_count == 2);
    KNOWN(found.dimensions[0] == 3 && found.dimensions[1] == 4 && found.dimensions[2] == 0);
    free(matrix);
    matrix = (double *)block(720 * sizeof *matrix);
    KNOWN(heaptide_label_dimensions(matrix, "five", sizeof *matrix, five, 5) == 1);
    KNOWN(heaptide_resolve(matrix + 719, &found) && found.index == 719);
    KNOWN(found.dimension_count == 4 && found.dimensions[2] == 4 && found.dimensions[3] == 30);
    KNOWN(HEAPTIDE_LABEL(matrix) == 1 && is_at(matrix + 2, "matrix", 2));
    // A block that grows changes its address and loses its label.
    matrix = (double *)keep(realloc(matrix, 1000000));
    KNOWN(heaptide_resolve(matrix, &found) && found.start == matrix);
    free(matrix);
}

static long table[100];

static void other_memory(void)
{
    struct heaptide_block found;
    char *mapping = (char *)mmap(NULL, 65536, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(mapping != MAP_FAILED);
    CHECK(heaptide_label_block(table, "no block") == 0 && is_unknown(table));
    KNOWN(HEAPTIDE_LABEL_VARIABLE(table) == 1);
    KNOWN(is_at(table, "table", 0) && is_at(&table[99], "table", 99));
    CHECK(is_unknown(table + 100));
    KNOWN(heaptide_resolve(&table[3], &found) && found.kind == HEAPTIDE_OTHER_MEMORY);
    KNOWN(found.bytes == sizeof table && found.element_bytes == sizeof(long));
    KNOWN(heaptide_unlabel(table) == 1);
    CHECK(is_unknown(table));
    KNOWN(heaptide_label_region(mapping, "mapping", 65536, 1) == 1);
    KNOWN(is_at(mapping + 65535, "mapping", 65535));
    CHECK(is_unknown(mapping + 65536));
    munmap(mapping, 65536);
    CHECK(is_unknown(mapping));
}

// Relabelling a block moves its live bytes to the new label.
static void renamed(void)
{
    char *p = (char *)block(1000);
    heaptide_label_block(p, "before");
    heaptide_label_block(p, "after");
    KNOWN(is_at(p, "after", 0));
    keep(p);
}

int main(void)
{
    forty_two();
    each_function();
    shapes();
    other_memory();
    renamed();
    CHECK(is_unknown(NULL) && is_unknown((void *)1) && is_unknown(&table[7]));
    say("labels\n");
    return 0;
}
