//! The monitors of CMS's PerfTools/AllocMonitor for programs without the framework, with the
//! reports of the original's Services and preload libraries.
//
//     c++ -O2 -shared -fPIC -pthread -I include/compat -o liballocmonitors.so
//         monitors/cms/alloc_monitors.cpp
//     heaptide run --monitor ./liballocmonitors.so:monitor=simple -- PROGRAM
//
// | option | monitor | report |
// |---|---|---|
// | monitor=max-memory | MaxMemoryPreload; the default | at exit |
// | monitor=simple | SimpleAllocMonitor | at exit |
// | monitor=histogramming | HistogrammingAllocMonitor | at exit |
// | monitor=event-processing | EventProcessingAllocMonitor | when the event loop ends |
// | monitor=periodic | PeriodicAllocMonitorPreload, file=PREFIX, interval=MS | a CSV file |
//
// `monitor=` may be given several times. PAM_FILENAME and PAM_INTERVAL_MS are defaults of `file`
// and `interval`. A program marks its event loop with two functions that this library defines:
//
//     extern "C" void alloc_monitor_begin_event_loop() __attribute__((weak));
//     if (alloc_monitor_begin_event_loop)
//         alloc_monitor_begin_event_loop();
//
// and alloc_monitor_end_event_loop(). A program with guards of IntrusiveAllocMonitor registers that
// monitor itself; it is in AllocMonitorReports.h.
//
// With this library, the recorder also calls the monitors of a program that uses the original's own
// registry, libPerfToolsAllocMonitor.so. The library exports the functions that the registry looks
// up in libPerfToolsAllocMonitorPreload.so: alloc_monitor_start, alloc_monitor_stop, and
// alloc_monitor_stop_thread_reporting and alloc_monitor_start_thread_reporting, which pause and
// resume recording of the calling thread.

#include "PerfTools/AllocMonitor/interface/AllocMonitorReports.h"

#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

namespace {

using namespace cms::perftools;

// The output of reports: a copy of stderr, because programs may close that before they end.
class Output {
public:
    Output() : copy_(fcntl(2, F_DUPFD_CLOEXEC, 200)) {}
    Output(const Output &) = delete;
    Output &operator=(const Output &) = delete;
    ~Output()
    {
        if (copy_ >= 0)
            close(copy_);
    }
    void print(const std::string &text) const
    {
        dprintf(copy_ < 0 ? 2 : copy_, "%s\n", text.c_str());
    }

private:
    int copy_;
};

// Prints the report of a monitor when it is destroyed, like the Services at the end of the job.
template <typename Monitor> class AtExit final : public Monitor {
public:
    explicit AtExit(std::string (Monitor::*text)() const) : report_(text) {}
    ~AtExit() override { output_.print((this->*report_)()); }

private:
    const Output output_;
    std::string (Monitor::*report_)() const;
};

class EventLoop final : public EventProcessingMonitor {
public:
    EventLoop() { loop = this; }
    ~EventLoop() override
    {
        std::lock_guard<std::mutex> hold(lock);
        loop = nullptr;
        finish();
        if (!begun_)
            output_.print("alloc_monitors: the program has marked no event loop");
    }
    void begin()
    {
        begun_ = true;
        start();
    }
    void finish()
    {
        if (!begun_ || finished_)
            return;
        stop();
        finished_ = true;
        output_.print(report());
    }
    static std::mutex lock;
    static EventLoop *loop;

private:
    const Output output_;
    bool begun_ = false, finished_ = false;
};

std::mutex EventLoop::lock;
EventLoop *EventLoop::loop;

void mark(void (EventLoop::*what)())
{
    heaptide::Pause pause;
    std::lock_guard<std::mutex> hold(EventLoop::lock);
    if (EventLoop::loop)
        (EventLoop::loop->*what)();
}

// The original's registry, if the process has one: the functions that its preload library calls.
class Original final : public AllocMonitorBase {
public:
    typedef void *(*Instance)();
    typedef void (*Allocated)(void *, size_t, size_t, void const *);
    typedef void (*Freed)(void *, size_t, void const *);

    static Original *make()
    {
        const auto instance = reinterpret_cast<Instance>(
            dlsym(RTLD_DEFAULT, "_ZN3cms9perftools20AllocMonitorRegistry8instanceEv"));
        const auto allocated = reinterpret_cast<Allocated>(
            dlsym(RTLD_DEFAULT, "_ZN3cms9perftools20AllocMonitorRegistry12allocCalled_EmmPKv"));
        const auto freed = reinterpret_cast<Freed>(
            dlsym(RTLD_DEFAULT, "_ZN3cms9perftools20AllocMonitorRegistry14deallocCalled_EmPKv"));
        if (!instance || !allocated || !freed)
            return nullptr;
        return AllocMonitorRegistry::instance().createAndRegisterMonitor<Original>(
            instance, allocated, freed);
    }
    Original(Instance instance, Allocated allocated, Freed freed)
        : instance_(instance), allocated_(allocated), freed_(freed)
    {
    }
    void allocCalled(size_t requested, size_t actual, void const *block) override
    {
        allocated_(instance_(), requested, actual, block);
    }
    void deallocCalled(size_t actual, void const *block) override
    {
        freed_(instance_(), actual, block);
    }

private:
    const Instance instance_;
    const Allocated allocated_;
    const Freed freed_;
};

std::mutex original_lock;
Original *original;

struct Options {
    std::vector<std::string> monitors;
    std::string file = "periodic_alloc_";
    std::uint64_t interval = 1000;
};

const char expected[] =
    "expected monitor=max-memory, simple, histogramming, event-processing or periodic, "
    "file=PREFIX, interval=MILLISECONDS";

bool read(char *text, Options &options)
{
    if (const char *file = std::getenv("PAM_FILENAME"))
        options.file = file;
    const char *interval = std::getenv("PAM_INTERVAL_MS");
    if (interval && (!heaptide_option_number(interval, &options.interval) || !options.interval)) {
        std::fprintf(stderr, "alloc_monitors: PAM_INTERVAL_MS=%s: expected milliseconds\n",
                     interval);
        return false;
    }
    const char *name, *value;
    int more;
    while ((more = heaptide_next_option(&text, &name, &value)) > 0) {
        if (!std::strcmp(name, "monitor"))
            options.monitors.push_back(value);
        else if (!std::strcmp(name, "file") && *value)
            options.file = value;
        else if (!(!std::strcmp(name, "interval")
                   && heaptide_option_number(value, &options.interval) && options.interval)) {
            std::fprintf(stderr, "alloc_monitors: `%s=%s`: %s\n", name, value, expected);
            return false;
        }
    }
    if (more < 0) {
        std::fprintf(stderr, "alloc_monitors: options: %s\n", expected);
        return false;
    }
    if (options.monitors.empty())
        options.monitors.push_back("max-memory");
    return true;
}

bool add(const std::string &monitor, const Options &options)
{
    AllocMonitorRegistry &registry = AllocMonitorRegistry::instance();
    if (monitor == "max-memory") {
        registry.createAndRegisterMonitor<AtExit<SimpleMonitor>>(&SimpleMonitor::maxMemoryReport);
    } else if (monitor == "simple") {
        registry.createAndRegisterMonitor<AtExit<SimpleMonitor>>(&SimpleMonitor::report);
    } else if (monitor == "histogramming") {
        registry.createAndRegisterMonitor<AtExit<HistogrammingMonitor>>(
            &HistogrammingMonitor::report);
    } else if (monitor == "event-processing") {
        registry.createAndRegisterMonitor<EventLoop>();
    } else if (monitor == "periodic") {
        const std::string path = options.file + std::to_string(getpid()) + ".csv";
        registry.createAndRegisterMonitor<PeriodicMonitor>(
            path, std::chrono::milliseconds(options.interval));
    } else {
        std::fprintf(stderr, "alloc_monitors: `monitor=%s`: %s\n", monitor.c_str(), expected);
        return false;
    }
    return true;
}

void create(char *text)
{
    Options options;
    if (!read(text, options))
        return;
    try {
        for (const std::string &monitor : options.monitors)
            if (!add(monitor, options))
                return;
    } catch (const std::exception &error) {
        std::fprintf(stderr, "alloc_monitors: %s\n", error.what());
    }
}

} // namespace

#define EXPORTED extern "C" __attribute__((visibility("default")))

// Marks of the event loop.
EXPORTED void alloc_monitor_begin_event_loop() { mark(&EventLoop::begin); }
EXPORTED void alloc_monitor_end_event_loop() { mark(&EventLoop::finish); }

// Exported like by MaxMemoryPreload. Pauses recording of the process; frees of recorded blocks are
// still recorded.
__attribute__((visibility("default"))) void pauseMaxMemoryPreload() { heaptide_pause(1); }
__attribute__((visibility("default"))) void unpauseMaxMemoryPreload() { heaptide_resume(1); }

// The exports of the original's preload library.
EXPORTED void alloc_monitor_start()
{
    std::lock_guard<std::mutex> hold(original_lock);
    try {
        if (!original)
            original = Original::make();
    } catch (const std::exception &error) {
        std::fprintf(stderr, "alloc_monitors: %s\n", error.what());
    }
}
EXPORTED void alloc_monitor_stop()
{
    std::lock_guard<std::mutex> hold(original_lock);
    if (original)
        AllocMonitorRegistry::instance().deregisterMonitor(original);
    original = nullptr;
}
EXPORTED bool alloc_monitor_stop_thread_reporting()
{
    if (!heaptide_active(0))
        return false;
    heaptide_pause(0);
    return true;
}
EXPORTED void alloc_monitor_start_thread_reporting() { heaptide_resume(0); }

HEAPTIDE_MONITOR_PLUGIN("liballocmonitors.so", create);
