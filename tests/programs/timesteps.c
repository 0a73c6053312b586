//! A time-step loop with nested annotated functions: labelled arrays that stay live, and arrays
//! that each step allocates and frees. `heaptide query` counts them.
//
// Each of 50 steps has two labelled arrays, and four blocks without a label: three in
// EvalEOSForElems and one in TimeIncrement.
//
// expect label:x allocations=1 live_blocks=1 requested_bytes=8000
// expect label:nodelist allocations=1 live_blocks=1 requested_bytes=24000
// expect label:dxx allocations=50 frees=50 requested_bytes=320000
// expect label:delv_xi allocations=50 frees=50 requested_bytes=400000
// expect leaf:block allocations=302 frees=300
#include "api_guest.h"

enum { STEPS = 50, NODES = 1000, ELEMENTS = 800 };

#define FUNCTION_BEGIN() heaptide_begin_string("function", __func__)
#define FUNCTION_END() heaptide_end_string("function", __func__)

static double *x;
static int *nodelist;

static void build(void)
{
    FUNCTION_BEGIN();
    x = (double *)block(NODES * sizeof *x);
    HEAPTIDE_LABEL_ARRAY(x, NODES);
    nodelist = (int *)block(6 * NODES * sizeof *nodelist);
    HEAPTIDE_LABEL_ARRAY(nodelist, 6 * NODES);
    FUNCTION_END();
}

static void CalcKinematicsForElems(void)
{
    double *dxx;
    FUNCTION_BEGIN();
    dxx = (double *)block(ELEMENTS * sizeof *dxx);
    HEAPTIDE_LABEL_ARRAY(dxx, ELEMENTS);
    free(dxx);
    FUNCTION_END();
}

static void EvalEOSForElems(void)
{
    FUNCTION_BEGIN();
    for (int call = 0; call < 3; call++)
        free(block(16 * (size_t)(call + 1)));
    FUNCTION_END();
}

static void LagrangeElements(void)
{
    double *delv_xi;
    FUNCTION_BEGIN();
    delv_xi = (double *)block(NODES * sizeof *delv_xi);
    HEAPTIDE_LABEL_ARRAY(delv_xi, NODES);
    CalcKinematicsForElems();
    EvalEOSForElems();
    free(delv_xi);
    FUNCTION_END();
}

static void TimeIncrement(void)
{
    FUNCTION_BEGIN();
    free(block(100));
    FUNCTION_END();
}

int main(void)
{
    FUNCTION_BEGIN();
    build();
    for (int step = 0; step < STEPS; step++) {
        heaptide_begin_int("iteration#mainloop", step);
        TimeIncrement();
        LagrangeElements();
        heaptide_end_int("iteration#mainloop", step);
    }
    FUNCTION_END();
    return 0;
}
