//! A program that resolves addresses by pushed snapshots, labels memory, and reads a snapshot:
//! - 1 label `grid` of 12 elements of 8 bytes, removed before the block is freed; uid 1
//! - blocks: 96 bytes by malloc, 5 elements of 16 bytes by calloc, both freed
//! - 4 snapshots with `step` 0 to 3 and an address: element 11 of `grid`, element 4 of the zeroed
//!   block, a freed block, the middle of static memory
//! - 3 regions that allocate nothing: `quiet`, in it `inner`, and `after`

#include <caliper/cali.h>
#include <caliper/cali_datatracker.h>

static cali_id_t step, at;
static char apart[64];

static void push(int number, const char *address)
{
    const cali_id_t attributes[2] = {step, at};
    cali_variant_t values[2];
    values[0] = cali_make_variant_from_int(number);
    values[1] = cali_make_variant(CALI_TYPE_ADDR, &address, sizeof address);
    cali_push_snapshot(CALI_SCOPE_THREAD, 2, attributes, values);
}

static int count_regions(void *count, cali_id_t attribute, cali_variant_t value)
{
    (void)value;
    *(int *)count += attribute == cali_region_attr_id;
    return 1;
}

// Returns the number of open regions according to a snapshot.
static int open_regions(void)
{
    unsigned char buffer[200];
    size_t bytes = cali_channel_pull_snapshot(0, CALI_SCOPE_THREAD, sizeof buffer, buffer);
    size_t read = 0;
    int count = 0;
    if (!bytes)
        return 0;
    cali_unpack_snapshot(buffer, &read, count_regions, &count);
    return bytes == read ? count : -1;
}

int main(void)
{
    const cali_variant_t is_address = cali_make_variant_from_bool(true);
    const size_t elements = 12;
    char *grid, *zeroed;
    int regions;
    step = cali_create_attribute("step", CALI_TYPE_INT, CALI_ATTR_ASVALUE);
    at = cali_create_attribute_with_metadata("at", CALI_TYPE_ADDR, CALI_ATTR_ASVALUE, 1,
                                             &cali_class_memoryaddress_attr_id, &is_address);
    CALI_MARK_FUNCTION_BEGIN;
    grid = (char *)malloc(96);
    zeroed = (char *)calloc(5, 16);
    cali_datatracker_track_dimensional(grid, "grid", 8, &elements, 1);
    push(0, grid + 95);
    push(1, zeroed + 79);
    cali_datatracker_untrack(grid);
    free(grid);
    push(2, grid + 8);
    push(3, apart + 32);
    CALI_MARK_BEGIN("quiet");
    CALI_MARK_BEGIN("inner");
    regions = open_regions();
    CALI_MARK_END("inner");
    CALI_MARK_END("quiet");
    free(zeroed);
    CALI_MARK_BEGIN("after");
    CALI_MARK_END("after");
    CALI_MARK_FUNCTION_END;
    return regions == (heaptide_recording() ? 3 : 0) ? 0 : 1;
}
