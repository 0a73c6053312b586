//! Threads of OpenMP inherit the scope path of the thread that starts a parallel region, and tasks
//! that of the thread that creates them; regions outside of all scopes stay there.
//
// In each region, threads allocate blocks in a scope `part` of their own. Blocks of a loop have
// 1000 to 8000 bytes, all others 100. The numbers of paths without `part` include what the runtime
// library allocates.
//
// expect scope:static allocations>=8 requested_bytes>=36000
// expect scope:static>part allocations=8 requested_bytes=36000 frees=8 entered=8
// expect scope:dynamic>part allocations=8 requested_bytes=36000 entered=8
// expect scope:guided>part allocations=8 requested_bytes=36000 entered=8
// expect scope:runtime>part allocations=8 requested_bytes=36000 entered=8
// expect scope:sections>part allocations=4 requested_bytes=400 entered=4
// expect scope:reduction>part allocations=4 requested_bytes=400 entered=4
// expect scope:captured>part allocations=4 requested_bytes=1200 entered=4
// expect scope:tasks>small>part allocations=16 requested_bytes=1600 entered=16
// expect scope:tasks>medium>part allocations=8 requested_bytes=800 entered=8
// expect scope:tasks>large>part allocations=4 requested_bytes=400 entered=4
// expect scope:tasks>copied>part allocations=8 requested_bytes=800 entered=8
// expect scope:tasks>detached>part allocations=8 requested_bytes=800 entered=8
// expect scope:tasks>dependent>part allocations=8 requested_bytes=800 entered=8
// expect scope:tasks>undeferred>part allocations=8 requested_bytes=800 entered=8
// expect scope:tasks>waits>part allocations=0
// expect scope:loops>signed>part allocations=8 requested_bytes=36000 entered=8
// expect scope:loops>unsigned>part allocations=8 requested_bytes=36000 entered=8
// expect scope:loops>reduced>part allocations=8 requested_bytes=36000 entered=8
// expect scope:nested>outer>part allocations=2 requested_bytes=200 entered=2
// expect scope:nested>outer>inner>part allocations=6 requested_bytes=600 entered=6
// expect scope:one>part allocations=1 requested_bytes=100 entered=1
// expect scope:sixteen>part allocations=160 requested_bytes=16000 entered=160
// expect scope:left>open entered=3
// expect scope:left>open>part allocations=3 requested_bytes=300 entered=3
// expect scope:clean>part allocations=4 requested_bytes=400 entered=4
// expect scope:many>part allocations=4000 requested_bytes=400000 entered=4000
// expect scope:part allocations=16 requested_bytes=1600 frees=16 entered=16
// expect leaf:block allocations=4320
// expect function:main>in_static>block allocations>=1
// order: varies
// build: -fopenmp
#include "api_guest.h"
#include <omp.h>

static NOINLINE void part(size_t size)
{
    HEAPTIDE_BEGIN("part");
    free(block(size));
    HEAPTIDE_END("part");
}

static NOINLINE void in_static(void)
{
    HEAPTIDE_BEGIN("static");
#pragma omp parallel for num_threads(4)
    for (int i = 0; i < 8; i++) {
        free(keep(malloc(1000 * (i + 1))));
        part(1000 * (i + 1));
    }
    HEAPTIDE_END("static");
}

static void schedules(void)
{
    HEAPTIDE_BEGIN("dynamic");
#pragma omp parallel for num_threads(4) schedule(dynamic)
    for (int i = 0; i < 8; i++)
        part(1000 * (i + 1));
    HEAPTIDE_END("dynamic");
    HEAPTIDE_BEGIN("guided");
#pragma omp parallel for num_threads(4) schedule(guided)
    for (int i = 0; i < 8; i++)
        part(1000 * (i + 1));
    HEAPTIDE_END("guided");
    HEAPTIDE_BEGIN("runtime");
#pragma omp parallel for num_threads(4) schedule(runtime)
    for (int i = 0; i < 8; i++)
        part(1000 * (i + 1));
    HEAPTIDE_END("runtime");
    HEAPTIDE_BEGIN("sections");
#pragma omp parallel sections num_threads(4)
    {
#pragma omp section
        part(100);
#pragma omp section
        part(100);
#pragma omp section
        part(100);
#pragma omp section
        part(100);
    }
    HEAPTIDE_END("sections");
}

static void reduction(void)
{
    int sum = 0;
    HEAPTIDE_BEGIN("reduction");
#pragma omp parallel num_threads(4) reduction(task, + : sum)
    {
        part(100);
        sum += 1;
    }
    HEAPTIDE_END("reduction");
    CHECK(sum == 4);
}

// The region's function gets twelve arguments from some compilers.
static void captured(void)
{
    volatile int a = 1, b = 2, c = 3, d = 4, e = 5, f = 6, g = 7, h = 8, i = 9, j = 10, sum = 0;
    HEAPTIDE_BEGIN("captured");
#pragma omp parallel num_threads(4)
    {
        int own = a + 2 * b + 3 * c + 4 * d + 5 * e + 6 * f + 7 * g + 8 * h + 9 * i + 10 * j;
#pragma omp atomic
        sum += own;
        part(own - 85);
    }
    HEAPTIDE_END("captured");
    CHECK(sum == 4 * 385);
}

struct medium {
    long first, numbers[1000];
};
struct large {
    long first, numbers[20000];
};

// Tasks count for the scope in which they are created, regardless of where they run.
static void tasks_by_size(void)
{
    static struct large large;
    struct medium medium = {.first = 7};
    int done = 0;
    medium.numbers[999] = 8;
    large.numbers[19999] = 9;
    HEAPTIDE_BEGIN("small");
    for (int i = 0; i < 16; i++) {
#pragma omp task shared(done) firstprivate(i)
        {
            part(100);
#pragma omp atomic
            done += i;
        }
    }
    HEAPTIDE_END("small");
    HEAPTIDE_BEGIN("medium");
    for (int i = 0; i < 8; i++) {
#pragma omp task firstprivate(medium)
        {
            CHECK(medium.first == 7 && medium.numbers[999] == 8);
            medium.first = 0;
            part(100);
        }
    }
    HEAPTIDE_END("medium");
    HEAPTIDE_BEGIN("large");
    for (int i = 0; i < 4; i++) {
        struct large own = large;
#pragma omp task firstprivate(own)
        {
            CHECK(own.numbers[19999] == 9);
            part(100);
        }
    }
    HEAPTIDE_END("large");
    HEAPTIDE_BEGIN("waits");
#pragma omp taskwait
    HEAPTIDE_END("waits");
    CHECK(done == 120 && medium.first == 7);
}

// GCC copies arrays of variable length with a function; Clang has none.
#ifdef __clang__
#define VARIABLE(length) 3000
#else
#define VARIABLE(length) (length)
#endif

static void tasks_by_kind(int length)
{
    char array[VARIABLE(length)];
    int chain = 0;
    memset(array, 5, length);
    HEAPTIDE_BEGIN("copied");
    for (int i = 0; i < 8; i++) {
#pragma omp task firstprivate(array)
        {
            CHECK(array[length - 1] == 5);
            part(100);
        }
    }
    HEAPTIDE_END("copied");
    HEAPTIDE_BEGIN("detached");
    for (int i = 0; i < 8; i++) {
        omp_event_handle_t event;
#pragma omp task detach(event) firstprivate(i)
        {
            part(100);
            omp_fulfill_event(event);
        }
    }
    HEAPTIDE_END("detached");
    HEAPTIDE_BEGIN("dependent");
    for (int i = 0; i < 8; i++) {
#pragma omp task depend(inout : chain) shared(chain) firstprivate(i) priority(i)
        {
            CHECK(chain == i);
            chain = i + 1;
            part(100);
        }
    }
    HEAPTIDE_END("dependent");
    HEAPTIDE_BEGIN("undeferred");
    for (int i = 0; i < 8; i++) {
#pragma omp task if (i < 0) shared(chain)
        part(100);
    }
    HEAPTIDE_END("undeferred");
    HEAPTIDE_BEGIN("waits");
#pragma omp taskwait
    HEAPTIDE_END("waits");
    CHECK(chain == 8);
}

static void tasks(void)
{
    HEAPTIDE_BEGIN("tasks");
#pragma omp parallel num_threads(4)
#pragma omp single
    {
        tasks_by_size();
        tasks_by_kind(3000);
    }
    HEAPTIDE_END("tasks");
}

static void task_loops(void)
{
    long sum = 0;
    HEAPTIDE_BEGIN("loops");
#pragma omp parallel num_threads(4)
#pragma omp single
    {
        HEAPTIDE_BEGIN("signed");
#pragma omp taskloop grainsize(1)
        for (long i = 0; i < 8; i++)
            part(1000 * (i + 1));
        HEAPTIDE_END("signed");
        HEAPTIDE_BEGIN("unsigned");
#pragma omp taskloop num_tasks(4)
        for (unsigned long long i = 0; i < 8; i++)
            part(1000 * (i + 1));
        HEAPTIDE_END("unsigned");
        HEAPTIDE_BEGIN("reduced");
#pragma omp taskloop grainsize(1) reduction(+ : sum)
        for (long i = 0; i < 8; i++) {
            part(1000 * (i + 1));
            sum += i;
        }
        HEAPTIDE_END("reduced");
    }
    HEAPTIDE_END("loops");
    CHECK(sum == 28);
}

static void nested(void)
{
    omp_set_max_active_levels(2);
    HEAPTIDE_BEGIN("nested");
#pragma omp parallel num_threads(2)
    {
        HEAPTIDE_BEGIN("outer");
        part(100);
        HEAPTIDE_BEGIN("inner");
#pragma omp parallel num_threads(3)
        part(100);
        HEAPTIDE_END("inner");
        HEAPTIDE_END("outer");
    }
    HEAPTIDE_END("nested");
}

static void sizes_of_teams(void)
{
    HEAPTIDE_BEGIN("one");
#pragma omp parallel num_threads(1)
    part(100);
    HEAPTIDE_END("one");
    HEAPTIDE_BEGIN("sixteen");
#pragma omp parallel num_threads(16)
    for (int i = 0; i < 10; i++)
        part(100);
    HEAPTIDE_END("sixteen");
    HEAPTIDE_BEGIN("many");
    for (int i = 0; i < 1000; i++) {
#pragma omp parallel num_threads(4)
        part(100);
    }
    HEAPTIDE_END("many");
}

// A scope that a thread of the team leaves open ends with the region.
static void left_open(void)
{
    HEAPTIDE_BEGIN("left");
#pragma omp parallel num_threads(4)
    if (omp_get_thread_num() != 0) {
        HEAPTIDE_BEGIN("open");
        part(100);
    }
    HEAPTIDE_END("left");
    HEAPTIDE_BEGIN("clean");
#pragma omp parallel num_threads(4)
    part(100);
    HEAPTIDE_END("clean");
}

static void outside(void)
{
#pragma omp parallel num_threads(4)
    {
        CHECK(heaptide_context() == 0);
        part(100);
    }
}

int main(void)
{
    omp_set_dynamic(0);
    outside();
    in_static();
    outside();
    schedules();
    reduction();
    captured();
    tasks();
    task_loops();
    outside();
    nested();
    sizes_of_teams();
    left_open();
    outside();
    KNOWN(heaptide_context() == 0);
    say("regions\n");
    return 0;
}
