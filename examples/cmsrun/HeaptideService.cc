//! Services of cmsRun with the reports of AllocMonitor's Services, and a scope in the recording for
//! each module.
//
// This file and BuildFile.xml form a package of CMSSW: copy both to PerfTools/Heaptide/plugins, set
// HEAPTIDE to the directory that `heaptide sdk` wrote, and build with scram. In the configuration:
//
//     process.add_(cms.Service("HeaptideService",
//         monitors = cms.untracked.vstring("simple", "eventProcessing", "histogramming")))
//     process.add_(cms.Service("HeaptideIntrusiveService"))
//
// and run `heaptide run -- cmsRun cfg.py`. Without the recorder the job ends with an exception of
// category NoAllocMonitorPreload, like with the original. Without monitors the Service only creates
// scopes, and has no effect on a job that is not recorded.
//
// | monitors | from | to |
// |---|---|---|
// | simple, histogramming | construction of the Service | its destruction |
// | eventProcessing | the end of beginJob | the start of endJob |
// | periodic | construction | the start of endJob; a line of CSV every `millisecondsPerMeasurement`
// |

#include "PerfTools/AllocMonitor/interface/AllocMonitorReports.h"

#include "DataFormats/Provenance/interface/ModuleDescription.h"
#include "FWCore/MessageLogger/interface/MessageLogger.h"
#include "FWCore/ParameterSet/interface/ConfigurationDescriptions.h"
#include "FWCore/ParameterSet/interface/ParameterSet.h"
#include "FWCore/ParameterSet/interface/ParameterSetDescription.h"
#include "FWCore/ServiceRegistry/interface/ActivityRegistry.h"
#include "FWCore/ServiceRegistry/interface/ModuleCallingContext.h"
#include "FWCore/ServiceRegistry/interface/ServiceMaker.h"

#if __has_include("FWCore/AbstractServices/interface/IntrusiveMonitorBase.h")
#include "FWCore/AbstractServices/interface/IntrusiveMonitorBase.h"
#endif

#include <atomic>
#include <chrono>
#include <string>
#include <vector>

namespace {

using namespace cms::perftools;

AllocMonitorRegistry &registry() { return AllocMonitorRegistry::instance(); }

void log(const char *category, const std::string &text)
{
    edm::LogSystem(category) << text;
}

} // namespace

class HeaptideService {
public:
    HeaptideService(edm::ParameterSet const &parameters, edm::ActivityRegistry &activities)
    {
        for (const auto &name : parameters.getUntrackedParameter<std::vector<std::string>>("monitors"))
            add(name, parameters, activities);
        if (parameters.getUntrackedParameter<bool>("scopes") && heaptide_recording())
            make_scopes(activities);
    }

    ~HeaptideService()
    {
        if (simple_) {
            log("SimpleAllocMonitor", simple_->report());
            registry().deregisterMonitor(simple_);
        }
        if (histogramming_) {
            log("HistogrammingAllocMonitor", histogramming_->report());
            registry().deregisterMonitor(histogramming_);
        }
        if (periodic_)
            registry().deregisterMonitor(periodic_);
    }

    static void fillDescriptions(edm::ConfigurationDescriptions &descriptions)
    {
        edm::ParameterSetDescription description;
        description.addUntracked<std::vector<std::string>>("monitors", {})
            ->setComment("Any of simple, histogramming, eventProcessing, periodic");
        description.addUntracked<bool>("scopes", true)
            ->setComment("Makes each module's event a scope `module=LABEL` of the recording");
        description.addUntracked<std::string>("filename", "timing.log")
            ->setComment("The file of the periodic monitor");
        description.addUntracked<unsigned long long>("millisecondsPerMeasurement", 1000)
            ->setComment("The interval of the periodic monitor");
        descriptions.addDefault(description);
    }

private:
    void add(const std::string &name, edm::ParameterSet const &parameters,
             edm::ActivityRegistry &activities)
    {
        if (name == "simple") {
            simple_ = registry().createAndRegisterMonitor<SimpleMonitor>();
        } else if (name == "histogramming") {
            histogramming_ = registry().createAndRegisterMonitor<HistogrammingMonitor>();
        } else if (name == "eventProcessing") {
            auto *monitor = registry().createAndRegisterMonitor<EventProcessingMonitor>();
            activities.watchPostBeginJob([monitor] { monitor->start(); });
            activities.watchPreEndJob([monitor] {
                monitor->stop();
                log("EventProcessingAllocMonitor", monitor->report());
                registry().deregisterMonitor(monitor);
            });
        } else if (name == "periodic") {
            add_periodic(parameters, activities);
        } else {
            throw cms::Exception("Configuration",
                                 "HeaptideService: monitors: unknown monitor `" + name
                                     + "`; expected simple, histogramming, eventProcessing or "
                                       "periodic");
        }
    }

    void add_periodic(edm::ParameterSet const &parameters, edm::ActivityRegistry &activities)
    {
        activities.watchPreGlobalBeginRun([this](auto const &) { ++runs_; });
        activities.watchPreGlobalBeginLumi([this](auto const &) { ++lumis_; });
        activities.watchPreEvent([this](auto const &) { ++started_; });
        activities.watchPostEvent([this](auto const &) { ++finished_; });
        const auto interval
            = parameters.getUntrackedParameter<unsigned long long>("millisecondsPerMeasurement");
        periodic_ = registry().createAndRegisterMonitor<PeriodicMonitor>(
            parameters.getUntrackedParameter<std::string>("filename"),
            std::chrono::milliseconds(interval),
            "runs-started, lumis-started, events-started, events-finished, ", [this] {
                return std::to_string(runs_) + ", " + std::to_string(lumis_) + ", "
                       + std::to_string(started_) + ", " + std::to_string(finished_) + ", ";
            });
        activities.watchPreEndJob([this] {
            registry().deregisterMonitor(periodic_);
            periodic_ = nullptr;
        });
    }

    // The signals before and after a module are emitted on the thread that runs it.
    static void make_scopes(edm::ActivityRegistry &activities)
    {
        activities.watchPreModuleEvent([](auto const &, edm::ModuleCallingContext const &module) {
            heaptide_begin_string("module", module.moduleDescription()->moduleLabel().c_str());
        });
        activities.watchPostModuleEvent([](auto const &, edm::ModuleCallingContext const &module) {
            heaptide_end_string("module", module.moduleDescription()->moduleLabel().c_str());
        });
    }

    SimpleMonitor *simple_ = nullptr;
    HistogrammingMonitor *histogramming_ = nullptr;
    PeriodicMonitor *periodic_ = nullptr;
    std::atomic<unsigned long long> runs_{0}, lumis_{0}, started_{0}, finished_{0};
};

DEFINE_FWK_SERVICE(HeaptideService);

#if __has_include("FWCore/AbstractServices/interface/IntrusiveMonitorBase.h")

// Used as edm::Service<edm::IntrusiveMonitorBase>()->startMonitoring("text"), as of 2026.
class HeaptideIntrusiveService : public edm::IntrusiveMonitorBase {
public:
    HeaptideIntrusiveService() { registry().createAndRegisterMonitor<IntrusiveMonitor>(); }

private:
    typedef std::vector<std::unique_ptr<IntrusiveMonitor::Measurement>> Running;

    // Measurements of the calling thread, innermost last.
    static Running &running()
    {
        thread_local Running measurements;
        return measurements;
    }
    void start(std::string_view name) override
    {
        heaptide::Pause pause;
        Running &mine = running();
        mine.reserve(mine.size() + 1);
        mine.emplace_back(new IntrusiveMonitor::Measurement(std::string(name)));
    }
    void stop() noexcept override
    {
        heaptide::Pause pause;
        Running &mine = running();
        if (mine.empty())
            return;
        mine.back()->end();
        log("IntrusiveAllocMonitor", mine.back()->report());
        mine.pop_back();
    }
};

typedef edm::serviceregistry::NoArgsMaker<edm::IntrusiveMonitorBase, HeaptideIntrusiveService>
    HeaptideIntrusiveServiceMaker;
DEFINE_FWK_SERVICE_MAKER(HeaptideIntrusiveService, HeaptideIntrusiveServiceMaker);

#endif
