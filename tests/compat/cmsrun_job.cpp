//! A job of cmsRun with the Services of examples/cmsrun: 3 events; in each, module `fill` keeps
//! 1000 bytes, and module `work` allocates and frees 2000 bytes.
//
// Event processing: 9000 bytes requested in 6 allocations, 3 deallocations, 3000 usable bytes not
// deallocated, at most 3000 + 2008 used. Intrusive: outer 100 bytes, excluding inner's 4. Scopes:
// module=fill 3 allocations, module=work 3.
#include "examples/cmsrun/HeaptideService.cc"

#include "../programs/guest.h"

#include <cstdlib>

static void *kept[3];

static NOINLINE void fill(int event) { kept[event] = keep(malloc(1000)); }
static NOINLINE void work() { free(keep(malloc(2000))); }

static void run_events(edm::ActivityRegistry &activities)
{
    const edm::ModuleCallingContext modules[] = {{{"fill"}}, {{"work"}}};
    for (int event = 0; event < 3; event++) {
        for (auto &signal : activities.pre_event)
            signal(edm::StreamContext());
        for (const auto &module : modules) {
            for (auto &signal : activities.pre_module)
                signal(edm::StreamContext(), module);
            if (&module == modules)
                fill(event);
            else
                work();
            for (auto &signal : activities.post_module)
                signal(edm::StreamContext(), module);
        }
        for (auto &signal : activities.post_event)
            signal(edm::StreamContext());
    }
}

static void run_job(std::vector<std::string> const &monitors)
{
    edm::ConfigurationDescriptions descriptions;
    HeaptideService::fillDescriptions(descriptions);
    descriptions.parameters.values["monitors"] = monitors;
    edm::ActivityRegistry activities;
    HeaptideService service(descriptions.parameters, activities);
    void *before = keep(malloc(500));
    for (auto &signal : activities.post_begin_job)
        signal();
    run_events(activities);
    for (auto &signal : activities.pre_end_job)
        signal();
    for (void *block : kept)
        free(block);
    free(before);
}

static void measure()
{
    HeaptideIntrusiveService service;
    edm::IntrusiveMonitorBase &monitor = service;
    auto outer = monitor.startMonitoring("outer");
    void *block = keep(malloc(100));
    {
        auto inner = monitor.startMonitoring("inner");
        delete keep(new int(1));
    }
    free(block);
}

int main(int argc, char **argv)
{
    try {
        run_job(std::vector<std::string>(argv + 1, argv + argc));
        if (heaptide_recording())
            measure();
    } catch (cms::Exception const &error) {
        std::printf("%s\n", error.category().c_str());
        return 1;
    }
    return 0;
}
