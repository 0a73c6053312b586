//! A program with Caliper's annotations: two functions, a loop, and a vector with a label.
//
//     g++ -g -O2 -o simulation caliper.cpp $(pkg-config --cflags heaptide-compat)
//
// Ten time steps, in each of which `forces` allocates three arrays of 8,000 bytes and `gradients`
// one of 800. `positions` has 80,000 bytes.

#include <caliper/cali.h>
#include <caliper/cali_datatracker.h>

#include <cstdlib>
#include <vector>

namespace {

void forces()
{
    CALI_CXX_MARK_FUNCTION;
    for (int i = 0; i < 3; i++) {
        void *volatile array = std::malloc(8000);
        std::free(array);
    }
}

void gradients()
{
    CALI_CXX_MARK_FUNCTION;
    std::vector<double> values(100);
    cali_datatracker_track(values.data(), "values", 800);
    cali_datatracker_untrack(values.data());
}

} // namespace

int main()
{
    CALI_CXX_MARK_FUNCTION;
    std::vector<double> positions(10000);
    cali_datatracker_track(positions.data(), "positions", 80000);
    CALI_MARK_LOOP_BEGIN(loop, "steps");
    for (int step = 0; step < 10; step++) {
        forces();
        gradients();
    }
    CALI_MARK_LOOP_END(loop);
    cali_datatracker_untrack(positions.data());
    return 0;
}
