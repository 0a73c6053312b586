//! Two Services like those of PerfTools/AllocMonitor, one made from parameters and signals, one
//! without arguments, for `cms_services.cpp`.
#include "PerfTools/AllocMonitor/interface/AllocMonitorBase.h"
#include "PerfTools/AllocMonitor/interface/AllocMonitorRegistry.h"
#include "cms_framework.h"

namespace {

class Counter : public cms::perftools::AllocMonitorBase {
public:
    void print(const char *name) const
    {
        edm::LogSystem(name) << requested << ' ' << allocations << ' ' << frees << ' ' << present
                             << ' ' << max;
    }

private:
    void allocCalled(size_t bytes, size_t actual, void const *) final
    {
        requested += bytes;
        allocations++;
        present += actual;
        max = present > max ? present : max;
    }
    void deallocCalled(size_t actual, void const *) final
    {
        frees++;
        present -= actual;
    }

    size_t requested = 0, allocations = 0, frees = 0, present = 0, max = 0;
};

Counter *make()
{
    auto &registry = cms::perftools::AllocMonitorRegistry::instance();
    return registry.createAndRegisterMonitor<Counter>();
}

void remove(Counter *counter)
{
    cms::perftools::AllocMonitorRegistry::instance().deregisterMonitor(counter);
}

} // namespace

class WholeJob {
public:
    WholeJob() : counter_(make()) {}
    ~WholeJob()
    {
        counter_->print("WholeJob");
        remove(counter_);
    }

private:
    Counter *counter_;
};

class Events {
public:
    Events(edm::ParameterSet const &, edm::ActivityRegistry &activities)
    {
        activities.postBeginJobSignal_.connect([this]() { counter_ = make(); });
        activities.preEndJobSignal_.connect([this]() {
            counter_->print("Events");
            remove(counter_);
        });
    }

private:
    Counter *counter_ = nullptr;
};

// The later Service does not count what the earlier one allocates.
DEFINE_FWK_SERVICE(Events);
DEFINE_FWK_SERVICE_MAKER(WholeJob, edm::serviceregistry::NoArgsMaker<WholeJob>);
