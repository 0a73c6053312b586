//! Dimensions and numbers of labels: the recording has the same values that the program resolves.
//
//   block  uid  label  memory                        dimensions
//     1         (none) malloc(800), kept
//     2     1   grid   malloc(1600)                  10 × 20 of 8 bytes
//     3     2   row    malloc(400)                   100 of 4 bytes
//     4     3   row    malloc(400)                   100 of 4 bytes, its label is removed
//     5     4   row    malloc(400)                   50 of 8 bytes
//     6     5   table  static, 100 of 4 bytes        100 of 4 bytes
//     7     6   cube   malloc(5760)                  2 × 3 × 4 × 5 × 6 of 8 bytes: the last is 30
//     2     7   mesh   the block of grid             20 × 10 of 8 bytes
//     8     8   plain  malloc(24)                    none
//     9         (none) malloc(40)
//
// expect leaf:block allocations=8 frees=7 live_blocks=1 live_bytes=808
// expect label:grid allocations=1 frees=1
// expect label:row allocations=3 frees=3 live_blocks=0
// expect label:table allocations=1 frees=1 requested_bytes=400
// expect label:cube allocations=1 frees=1 requested_bytes=5760
// expect label:mesh allocations=1 frees=1 requested_bytes=1600
#include "api_guest.h"

static int table[100];

// Returns the number and the dimension count that the interface reports for `address`.
static int is(const void *address, const char *label, uint64_t uid, size_t dimensions)
{
    struct heaptide_block found;
    return heaptide_resolve(address, &found) && found.label && !strcmp(found.label, label)
           && found.uid == uid && found.dimension_count == dimensions;
}

int main(void)
{
    const size_t five[5] = {2, 3, 4, 5, 6};
    struct heaptide_block found;
    double *plain, *kept = (double *)block(800), *grid = (double *)block(1600);
    int *rows[3];
    KNOWN(HEAPTIDE_LABEL_MATRIX(grid, 10, 20) && is(grid, "grid", 1, 2));
    for (int i = 0; i < 2; i++) {
        rows[i] = (int *)block(400);
        KNOWN(heaptide_label_array(rows[i], "row", 4, 100) && is(rows[i], "row", 2 + i, 1));
    }
    rows[2] = (int *)block(400);
    KNOWN(heaptide_label_array(rows[2], "row", 8, 50) && is(rows[2], "row", 4, 1));
    KNOWN(HEAPTIDE_LABEL_VARIABLE(table) && is(table, "table", 5, 1));
    double *cube = (double *)block(720 * sizeof *cube);
    KNOWN(heaptide_label_dimensions(cube, "cube", 8, five, 5) && is(cube, "cube", 6, 4));
    KNOWN(heaptide_label_dimensions(grid, "mesh", 8, (const size_t[]){20, 10}, 2));
    KNOWN(is(grid, "mesh", 7, 2) && heaptide_unlabel(rows[1]));
    KNOWN(heaptide_resolve(rows[1], &found) && found.uid == 0 && found.dimension_count == 0);
    // There is nothing to label, so it gets no number and no shape.
    CHECK(!heaptide_label_array(&table[52], "nothing", 4, 3));
    plain = (double *)block(24);
    KNOWN(heaptide_label_block(plain, "plain") && is(plain, "plain", 8, 0));
    free(block(40));
    for (int i = 0; i < 3; i++)
        free(rows[i]);
    free(cube);
    free(grid);
    free(plain);
    KNOWN(heaptide_unlabel(table));
    keep(kept);
    say("shapes\n");
    return 0;
}
