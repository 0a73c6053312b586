//! Regions of OpenMP that begin on threads of the program, and bodies that exceptions leave in
//! part: scopes are inherited, and threads return to where they were.
//
// expect scope:thread>part allocations=6 requested_bytes=6000 entered=6
// expect scope:thrown>part allocations=40 requested_bytes=20000 entered=40
// expect scope:teams>part allocations=4 requested_bytes=2800 entered=4
// expect scope:part allocations=4 requested_bytes=400 entered=4
// order: varies
// build: -fopenmp -pthread
#include "api_guest.h"
#include <stdexcept>
#include <thread>

static NOINLINE void part(size_t size)
{
    HEAPTIDE_BEGIN("part");
    free(block(size));
    HEAPTIDE_END("part");
}

static void thread()
{
    HEAPTIDE_BEGIN("thread");
#pragma omp parallel num_threads(3)
    part(1000);
    HEAPTIDE_END("thread");
}

static int thrown()
{
    int caught = 0;
    HEAPTIDE_BEGIN("thrown");
#pragma omp parallel for num_threads(4) reduction(+ : caught)
    for (int i = 0; i < 40; i++) {
        try {
            part(500);
            if (i % 2)
                throw std::runtime_error("odd");
        } catch (const std::exception &) {
            caught++;
        }
    }
    HEAPTIDE_END("thrown");
    return caught;
}

int main()
{
    std::thread first(thread), second(thread);
    first.join();
    second.join();
    CHECK(thrown() == 20);
    HEAPTIDE_BEGIN("teams");
#pragma omp teams num_teams(2) thread_limit(2)
#pragma omp parallel num_threads(2)
    part(700);
    HEAPTIDE_END("teams");
#pragma omp parallel num_threads(4)
    part(100);
    say("left\n");
    return 0;
}
