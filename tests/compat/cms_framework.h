//! A replacement for the part of CMS's framework that Services of PerfTools/AllocMonitor use:
//! signals, messages and the macros that define a Service. `cms_services.cpp` calls the signals.

#ifndef HEAPTIDE_TEST_CMS_FRAMEWORK_H
#define HEAPTIDE_TEST_CMS_FRAMEWORK_H

#include <array>
#include <atomic>
#include <functional>
#include <iomanip>
#include <iostream>
#include <memory>
#include <string_view>
#include <utility>
#include <vector>

namespace edm {

class ParameterSet {};

namespace signalslot {

template <typename T> class Signal {
public:
    template <typename U> void connect(U slot) { slots_.emplace_back(slot); }
    template <typename... Args> void operator()(Args &&...args) const
    {
        for (const auto &slot : slots_)
            slot(args...);
    }

private:
    std::vector<std::function<T>> slots_;
};

} // namespace signalslot

class ActivityRegistry {
public:
    signalslot::Signal<void()> postBeginJobSignal_, preEndJobSignal_, postEndJobSignal_;
    void watchPostBeginJob(std::function<void()> slot) { postBeginJobSignal_.connect(slot); }
    void watchPreEndJob(std::function<void()> slot) { preEndJobSignal_.connect(slot); }
    void watchPostEndJob(std::function<void()> slot) { postEndJobSignal_.connect(slot); }
};

/// Writes to standard output without allocating, so that a monitor can report while it counts.
class LogSystem {
public:
    explicit LogSystem(std::string_view category) { std::cout << "%MSG-s " << category << ":\n"; }
    ~LogSystem() { std::cout << "\n%MSG\n"; }
    template <typename T> LogSystem &operator<<(T const &value)
    {
        std::cout << value;
        return *this;
    }
};

namespace serviceregistry {

template <typename Service> struct ParameterSetMaker {
    static std::shared_ptr<void> make(ParameterSet const &parameters, ActivityRegistry &activities)
    {
        return std::make_shared<Service>(parameters, activities);
    }
};
template <typename Service> struct NoArgsMaker {
    static std::shared_ptr<void> make(ParameterSet const &, ActivityRegistry &)
    {
        return std::make_shared<Service>();
    }
};

} // namespace serviceregistry

/// The Services that are linked into the program.
using ServiceMaker = std::shared_ptr<void> (*)(ParameterSet const &, ActivityRegistry &);
inline std::vector<ServiceMaker> &serviceMakers()
{
    static std::vector<ServiceMaker> makers;
    return makers;
}
struct ServiceRegistration {
    explicit ServiceRegistration(ServiceMaker maker) { serviceMakers().push_back(maker); }
};

} // namespace edm

#define DEFINE_FWK_SERVICE_MAKER(service, maker)                                         \
    static const edm::ServiceRegistration heaptide_test_##service(maker::make)
#define DEFINE_FWK_SERVICE(service)                                                      \
    DEFINE_FWK_SERVICE_MAKER(service, edm::serviceregistry::ParameterSetMaker<service>)

#endif
