//! The allocations of a hydrodynamics code: domain arrays that stay live, and temporary arrays in
//! nested annotated functions of each time step, some of them labelled.
//
// The argument is the number of steps, by default 10; 932 steps make 1.3 million events, like
// LULESH in Caliper's page on memory allocations. The numbers of allocations per step are
//
//   TimeIncrement 1, LagrangeNodal 4, CalcForceForNodes 1, CalcVolumeForceForElems 6,
//   CalcHourglassControlForElems 7, CalcFBHourglassForceForElems 5, IntegrateStressForElems 5,
//   LagrangeElements 1, CalcLagrangeElements 3, CalcKinematicsForElems 1, CalcQForElems 6,
//   CalcMonotonicQGradientsForElems 1, UpdateVolumesForElems 1, and for each of 11 regions
//   CalcMonotonicQRegionForElems 1, EvalEOSForElems 18, CalcEnergyForElems 19,
//   CalcPressureForElems 19, CalcSoundSpeedForElems 1, CalcCourantConstraintForElems 1,
//   CalcHydroConstraintForElems 1:
//
// which is 702 blocks, all freed in the step, 9 of them with labels. 13 arrays of nodes (238328
// bytes) and 6 of elements (216000, nodelist 864000) stay live, with labels.
//
// expect leaf:take allocations=7039 frees=7020 live_blocks=19
// expect function:CalcEnergyForElems allocations=4180 frees=4180
// expect label:dxx allocations=10 frees=10 requested_bytes=2160000 live_blocks=0
// expect label:delv_eta allocations=10 frees=10 requested_bytes=2592000 live_blocks=0
// expect label:nodelist allocations=1 live_blocks=1 requested_bytes=864000
// expect label:fx allocations=1 live_blocks=1 requested_bytes=238328
// expect function:LagrangeElements allocations=6510 frees=6510
#include "api_guest.h"

enum { EDGE = 30, ELEMENTS = EDGE * EDGE * EDGE, NODES = 31 * 31 * 31, GHOSTS = 32400 };
enum { REGIONS = 11, EOS = 18, ENERGY = 19, PRESSURE = 19, MOST = 20 };

#define FUNCTION_BEGIN() heaptide_begin_string("function", __func__)
#define FUNCTION_END() heaptide_end_string("function", __func__)

static NOINLINE void *take(size_t doubles) { return keep(malloc(doubles * sizeof(double))); }

// Allocates this many temporaries, calls another function, and frees them in reverse order.
#define WORK(count, doubles, inner)                                                      \
    do {                                                                                 \
        void *blocks_[MOST];                                                             \
        FUNCTION_BEGIN();                                                                \
        for (int i_ = 0; i_ < (count); i_++)                                             \
            blocks_[i_] = take(doubles);                                                 \
        inner;                                                                           \
        for (int i_ = (count) - 1; i_ >= 0; i_--)                                        \
            free(blocks_[i_]);                                                           \
        FUNCTION_END();                                                                  \
    } while (0)

static void labelled(void **blocks, const char *const *names, int count, size_t doubles)
{
    for (int i = 0; i < count; i++) {
        blocks[i] = take(doubles);
        heaptide_label_array(blocks[i], names[i], sizeof(double), doubles);
    }
}

static void TimeIncrement(void) { WORK(1, 1, (void)0); }

static void CalcFBHourglassForceForElems(void) { WORK(5, 8 * ELEMENTS, (void)0); }
static void CalcHourglassControlForElems(void)
{
    WORK(7, 8 * ELEMENTS, CalcFBHourglassForceForElems());
}
static void IntegrateStressForElems(void) { WORK(5, 8 * ELEMENTS, (void)0); }
static void CalcVolumeForceForElems(void)
{
    WORK(6, ELEMENTS, IntegrateStressForElems(); CalcHourglassControlForElems());
}
static void CalcForceForNodes(void) { WORK(1, NODES, CalcVolumeForceForElems()); }
static void LagrangeNodal(void) { WORK(4, NODES, CalcForceForNodes()); }

static void CalcKinematicsForElems(void) { WORK(1, ELEMENTS, (void)0); }
static void CalcLagrangeElements(void)
{
    static const char *const names[] = {"dxx", "dyy", "dzz"};
    void *blocks[3];
    FUNCTION_BEGIN();
    labelled(blocks, names, 3, ELEMENTS);
    CalcKinematicsForElems();
    for (int i = 0; i < 3; i++)
        free(blocks[i]);
    FUNCTION_END();
}
static void CalcMonotonicQGradientsForElems(void) { WORK(1, ELEMENTS, (void)0); }
static void CalcMonotonicQRegionForElems(void) { WORK(1, ELEMENTS / REGIONS, (void)0); }
static void CalcQForElems(void)
{
    static const char *const inner[] = {"delx_xi", "delx_eta", "delx_zeta"};
    static const char *const outer[] = {"delv_xi", "delv_eta", "delv_zeta"};
    void *blocks[6];
    FUNCTION_BEGIN();
    labelled(blocks, inner, 3, ELEMENTS);
    labelled(blocks + 3, outer, 3, GHOSTS);
    CalcMonotonicQGradientsForElems();
    for (int region = 0; region < REGIONS; region++)
        CalcMonotonicQRegionForElems();
    for (int i = 0; i < 6; i++)
        free(blocks[i]);
    FUNCTION_END();
}
static void CalcPressureForElems(size_t region) { WORK(PRESSURE, region, (void)0); }
static void CalcEnergyForElems(size_t region)
{
    WORK(ENERGY, region, CalcPressureForElems(region));
}
static void CalcSoundSpeedForElems(size_t region) { WORK(1, region, (void)0); }
static void EvalEOSForElems(size_t region)
{
    WORK(EOS, region, CalcEnergyForElems(region); CalcSoundSpeedForElems(region));
}
static void UpdateVolumesForElems(void) { WORK(1, ELEMENTS, (void)0); }
static void LagrangeElements(void)
{
    void *vnew;
    FUNCTION_BEGIN();
    vnew = take(ELEMENTS);
    CalcLagrangeElements();
    CalcQForElems();
    for (size_t region = 1; region <= REGIONS; region++)
        EvalEOSForElems(region * 100);
    UpdateVolumesForElems();
    free(vnew);
    FUNCTION_END();
}
static void CalcCourantConstraintForElems(void) { WORK(1, 2, (void)0); }
static void CalcHydroConstraintForElems(void) { WORK(1, 2, (void)0); }
static void LagrangeLeapFrog(void)
{
    FUNCTION_BEGIN();
    LagrangeNodal();
    LagrangeElements();
    for (int region = 0; region < REGIONS; region++) {
        CalcCourantConstraintForElems();
        CalcHydroConstraintForElems();
    }
    FUNCTION_END();
}

static void domain(void)
{
    static const char *const nodal[] = {"x",  "y",   "z",   "xd",  "yd", "zd", "xdd",
                                        "ydd", "zdd", "fx", "fy", "fz", "nodalMass"};
    static const char *const elemental[] = {"e", "p", "q", "v", "ss"}, *const list[] = {"nodelist"};
    static void *kept[19];
    FUNCTION_BEGIN();
    labelled(kept, nodal, 13, NODES);
    labelled(kept + 13, elemental, 5, ELEMENTS);
    labelled(kept + 18, list, 1, 4 * ELEMENTS);
    FUNCTION_END();
}

int main(int count, char **words)
{
    int steps = count > 1 ? atoi(words[1]) : 10;
    FUNCTION_BEGIN();
    domain();
    for (int step = 0; step < steps; step++) {
        heaptide_begin_int("iteration#lulesh.cycle", step);
        TimeIncrement();
        LagrangeLeapFrog();
        heaptide_end_int("iteration#lulesh.cycle", step);
    }
    FUNCTION_END();
    say("cycles: %d\n", steps);
    return 0;
}
