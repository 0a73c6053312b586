//! A replacement for the part of the framework's public interface that a Service of cmsRun uses:
//! the test writes headers with the framework's names that include this file.

#ifndef HEAPTIDE_TEST_FRAMEWORK_H
#define HEAPTIDE_TEST_FRAMEWORK_H

#include <any>
#include <cstdio>
#include <exception>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

namespace cms {

class Exception : public std::exception {
public:
    Exception(std::string const &category, std::string const &message)
        : category_(category), message_(message)
    {
    }
    std::string const &category() const { return category_; }
    char const *what() const noexcept override { return message_.c_str(); }

private:
    std::string category_, message_;
};

} // namespace cms

namespace edm {

class LogSystem {
public:
    explicit LogSystem(std::string_view category) { text_ << "%MSG-s " << category << ":\n"; }
    ~LogSystem() { std::fprintf(stdout, "%s\n%%MSG\n", text_.str().c_str()); }
    template <typename T> LogSystem &operator<<(T const &value)
    {
        text_ << value;
        return *this;
    }

private:
    std::ostringstream text_;
};

class ParameterSet {
public:
    template <typename T> T getUntrackedParameter(std::string const &name) const
    {
        return std::any_cast<T>(values.at(name));
    }
    std::map<std::string, std::any> values;
};

struct ParameterDescription {
    void setComment(std::string const &) {}
};

class ParameterSetDescription {
public:
    template <typename T>
    ParameterDescription *addUntracked(std::string const &name, T const &value)
    {
        defaults.values[name] = value;
        return &description_;
    }
    ParameterSet defaults;

private:
    ParameterDescription description_;
};

class ConfigurationDescriptions {
public:
    void addDefault(ParameterSetDescription const &description)
    {
        parameters = description.defaults;
    }
    ParameterSet parameters;
};

struct ModuleDescription {
    std::string label;
    std::string const &moduleLabel() const { return label; }
};

struct ModuleCallingContext {
    ModuleDescription description;
    ModuleDescription const *moduleDescription() const { return &description; }
};

struct StreamContext {};
struct GlobalContext {};

class ActivityRegistry {
public:
    template <typename F> void watchPostBeginJob(F f) { post_begin_job.push_back(f); }
    template <typename F> void watchPreEndJob(F f) { pre_end_job.push_back(f); }
    template <typename F> void watchPreGlobalBeginRun(F f) { pre_run.push_back(f); }
    template <typename F> void watchPreGlobalBeginLumi(F f) { pre_lumi.push_back(f); }
    template <typename F> void watchPreEvent(F f) { pre_event.push_back(f); }
    template <typename F> void watchPostEvent(F f) { post_event.push_back(f); }
    template <typename F> void watchPreModuleEvent(F f) { pre_module.push_back(f); }
    template <typename F> void watchPostModuleEvent(F f) { post_module.push_back(f); }

    std::vector<std::function<void()>> post_begin_job, pre_end_job;
    std::vector<std::function<void(GlobalContext const &)>> pre_run, pre_lumi;
    std::vector<std::function<void(StreamContext const &)>> pre_event, post_event;
    std::vector<std::function<void(StreamContext const &, ModuleCallingContext const &)>>
        pre_module, post_module;
};

class IntrusiveMonitorBase {
public:
    virtual ~IntrusiveMonitorBase() = default;

    class Guard {
    public:
        Guard(IntrusiveMonitorBase &monitor, std::string_view name) : monitor_(monitor)
        {
            monitor_.start(name);
        }
        ~Guard() { monitor_.stop(); }

    private:
        IntrusiveMonitorBase &monitor_;
    };
    Guard startMonitoring(std::string_view name) { return Guard(*this, name); }

private:
    virtual void start(std::string_view name) = 0;
    virtual void stop() noexcept = 0;
};

namespace serviceregistry {
template <typename Base, typename Service> struct NoArgsMaker {};
} // namespace serviceregistry

} // namespace edm

#define DEFINE_FWK_SERVICE(service) static_assert(sizeof(service) > 0, "a complete class")
#define DEFINE_FWK_SERVICE_MAKER(service, maker) static_assert(sizeof(maker) > 0, "a maker")

#endif
