//! A program like LULESH, with the annotations of its branch for Caliper's page on tracking memory
//! allocations: functions, the loop of cycles, labelled vectors, some allocated again in each
//! cycle.
//
// 10 cycles on 27 elements and 64 nodes, in doubles:
// - `x` and `fx` (64 nodes, 512 bytes) and `nodelist` (27 × 8 ints, 864 bytes), once, in main.
// - Per cycle in LagrangeNodal: 3 arrays of 27 × 8 doubles (1728 bytes) in CalcVolumeForceForElems,
//   with malloc and free.
// - Per cycle in LagrangeElements: `dxx` and `delv_xi` (27 doubles, 216 bytes), allocated and
//   labelled there; and in EvalEOSForElems 2 arrays of 216 bytes for each of 11 regions.
// - TimeIncrement allocates nothing.
//
// SELECT mem.alloc,count(): malloc 30 + 20 + 220 + 3 = 273; dxx 10, delv_xi 10, x 1, fx 1,
// nodelist 1. The blocks of labels count as `malloc`, too.
// SELECT function,count(): main 6; CalcVolumeForceForElems 30; LagrangeElements 40;
// EvalEOSForElems 220. By size: malloc 1728 30; malloc 864 1; malloc 512 2; malloc 216 240; and the
// labels.
#include <caliper/cali.h>
#include <caliper/cali_datatracker.h>

#include "../programs/guest.h"

#include <cstdlib>
#include <vector>

#define TRACK_ALLOC(name) \
    cali_datatracker_track(m_##name.data(), #name, m_##name.capacity() * sizeof(m_##name.front()))

class Domain {
public:
    void AllocateNodes(int count)
    {
        m_x.resize(count);
        TRACK_ALLOC(x);
        m_fx.resize(count);
        TRACK_ALLOC(fx);
    }
    void AllocateElems(int count)
    {
        m_nodelist.resize(8 * count);
        TRACK_ALLOC(nodelist);
    }
    void AllocateGradients(int count)
    {
        m_delv_xi.resize(count);
        TRACK_ALLOC(delv_xi);
    }
    void DeallocateGradients()
    {
        cali_datatracker_untrack(m_delv_xi.data());
        std::vector<double>().swap(m_delv_xi);
    }
    void AllocateStrains(int count)
    {
        m_dxx.resize(count);
        TRACK_ALLOC(dxx);
    }
    void DeallocateStrains()
    {
        cali_datatracker_untrack(m_dxx.data());
        std::vector<double>().swap(m_dxx);
    }
    int cycle = 0;

private:
    std::vector<double> m_x, m_fx, m_delv_xi, m_dxx;
    std::vector<int> m_nodelist;
};

static double *Allocate(int count)
{
    return static_cast<double *>(keep(malloc(sizeof(double) * static_cast<size_t>(count))));
}

static NOINLINE void TimeIncrement(Domain &domain)
{
    CALI_CXX_MARK_FUNCTION;
    domain.cycle++;
}

static NOINLINE void CalcVolumeForceForElems()
{
    CALI_CXX_MARK_FUNCTION;
    double *corners[3];
    for (double *&array : corners)
        array = Allocate(27 * 8);
    for (double *array : corners)
        free(array);
}

static NOINLINE void LagrangeNodal()
{
    CALI_CXX_MARK_FUNCTION;
    CalcVolumeForceForElems();
}

static NOINLINE void EvalEOSForElems()
{
    CALI_CXX_MARK_FUNCTION;
    double *a = Allocate(27), *b = Allocate(27);
    free(b);
    free(a);
}

static NOINLINE void LagrangeElements(Domain &domain)
{
    CALI_CXX_MARK_FUNCTION;
    domain.AllocateStrains(27);
    domain.AllocateGradients(27);
    cali::Annotation region("lulesh.region", CALI_ATTR_SCOPE_PROCESS);
    for (int r = 0; r < 11; r++) {
        cali::Annotation::Guard guard(region.begin(r));
        EvalEOSForElems();
    }
    domain.DeallocateGradients();
    domain.DeallocateStrains();
}

int main()
{
    cali_config_preset("CALI_CALIPER_ATTRIBUTE_PROPERTIES",
                       "function=nested:process_scope,iteration#lulesh.cycle=asvalue");
    CALI_CXX_MARK_FUNCTION;
    Domain domain;
    domain.AllocateNodes(64);
    domain.AllocateElems(27);
    CALI_CXX_MARK_LOOP_BEGIN(mainloop, "lulesh.cycle");
    while (domain.cycle < 10) {
        CALI_CXX_MARK_LOOP_ITERATION(mainloop, domain.cycle);
        TimeIncrement(domain);
        LagrangeNodal();
        LagrangeElements(domain);
    }
    CALI_CXX_MARK_LOOP_END(mainloop);
    say("cycles %d\n", domain.cycle);
    return 0;
}
