//! Caliper's data tracker and its classes: labels with dimensions, snapshots that resolve
//! addresses, guards, a report to a stream.
//
// `grid` is 10 × 20 doubles, `table` a static array, `whole` a block of Allocate(), `third` a
// region of the core's class. Element 41 of `grid` is resolved; the address before its start is
// not. Region `work` has 2 allocations, 1 of them in value 3 of `level`, which a guard ends. With
// the recorder, a query in the program returns `work` 1 and `work/3` 1.
#include <caliper/Caliper.h>
#include <caliper/DataTracker.h>
#include <caliper/cali.h>
#include <caliper/cali_datatracker.h>

#include "../programs/guest.h"

#include <sstream>

static double table[100];

static void resolve(double *grid)
{
    const cali_variant_t yes = cali_make_variant_from_bool(true);
    cali_id_t attributes[2];
    const char *names[2] = {"inside", "outside"};
    for (int i = 0; i < 2; i++)
        attributes[i]
            = cali_create_attribute_with_metadata(names[i], CALI_TYPE_ADDR, CALI_ATTR_ASVALUE, 1,
                                                  &cali_class_memoryaddress_attr_id, &yes);
    const double *inside = grid + 41, *outside = grid - 100;
    const cali_variant_t values[2] = {cali_make_variant(CALI_TYPE_ADDR, &inside, sizeof inside),
                                      cali_make_variant(CALI_TYPE_ADDR, &outside, sizeof outside)};
    cali_push_snapshot(CALI_SCOPE_THREAD, 2, attributes, values);
}

static void work()
{
    CALI_CXX_MARK_SCOPE("work");
    free(keep(malloc(100)));
    cali::Annotation level("level");
    cali::Annotation::Guard guard(level.begin(3));
    free(keep(malloc(100)));
}

int main()
{
    const size_t dimensions[] = {10, 20};
    double *grid = static_cast<double *>(keep(malloc(200 * sizeof(double))));
    CALI_DATATRACKER_TRACK_DIMENSIONAL(grid, sizeof(double), dimensions, 2);
    CALI_DATATRACKER_TRACK(table, sizeof table);
    void *whole = cali::DataTracker::Allocate("whole", 300);
    cali::Caliper core;
    void *third = keep(malloc(6 * sizeof(int)));
    const size_t shape[] = {2, 3};
    core.memory_region_begin(third, "third", sizeof(int), 2, shape);
    resolve(grid);
    work();
    // Must not divide by zero.
    const size_t none[] = {0};
    cali_datatracker_track_dimensional(grid, "none", 0, none, 1);
    cali_datatracker_track(nullptr, "nothing", 10);
    core.memory_region_end(third);
    free(third);
    cali::DataTracker::Free(whole);
    CALI_DATATRACKER_UNTRACK(table);
    CALI_DATATRACKER_UNTRACK(grid);
    free(grid);

    std::ostringstream out;
    cali::write_report_for_query(CALI_INV_ID,
                                 "SELECT path,count() GROUP BY path WHERE region=work "
                                 "FORMAT format(\"%path% %count%\")",
                                 0, out);
    say("%s", out.str().c_str());
    return 0;
}
