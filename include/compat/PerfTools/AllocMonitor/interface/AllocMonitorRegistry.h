//! The registry of AllocMonitor's monitors, for programs written for CMS's PerfTools/AllocMonitor:
//! the recorder, loaded in place of libPerfToolsAllocMonitorPreload.so, calls the monitors.
//
// Written from the public interface of that package. Requires C++11; header only. docs/replaces.md
// lists the differences from the original:
// - Monitors may be registered and deregistered from any thread while others allocate.
// - A realloc is reported with addresses, even if the block stays in place.
// - Failed calls are not reported.
// - At most 32 monitors can be registered at once.
//
// The registry's functions have hidden visibility, so that a process may also load the original
// library. Each module has its own registry, and deregisters the monitors that it registered.

#ifndef HEAPTIDE_COMPAT_ALLOC_MONITOR_REGISTRY_H
#define HEAPTIDE_COMPAT_ALLOC_MONITOR_REGISTRY_H

#include "../../../../heaptide.hpp"
#include "AllocMonitorBase.h"

#include <cstdint>
#include <memory>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

// Users of the original get the allocation functions through its header.
#include <malloc.h>
#include <stdlib.h>

#ifdef __has_include
#if __has_include("FWCore/Utilities/interface/Exception.h")
#include "FWCore/Utilities/interface/Exception.h"
#define HEAPTIDE_CMS_EXCEPTION_ 1
#endif
#endif

#ifndef HEAPTIDE_CMS_EXCEPTION_
#include <exception>
#include <string>

namespace cms {

/// The exception that the registry throws if the framework's headers are not installed: the part of
/// the framework's class of this name that code catching the exception needs.
class Exception : public std::exception {
public:
    Exception(std::string category, std::string message)
        : category_(std::move(category)), message_(std::move(message)),
          text_("An exception of category '" + category_ + "' occurred.\nException Message:\n"
                + message_ + "\n")
    {
    }
    const std::string &category() const noexcept { return category_; }
    std::string message() const { return message_; }
    std::string explainSelf() const { return text_; }
    const char *what() const noexcept override { return text_.c_str(); }

private:
    std::string category_, message_, text_;
};

} // namespace cms
#endif

#define HEAPTIDE_HIDDEN_ __attribute__((visibility("hidden")))

// The exports of an LD_PRELOAD library like the original's. A test may define them itself.
static void heaptide_alloc_monitor_start_() __attribute__((weakref("alloc_monitor_start")));
static void heaptide_alloc_monitor_stop_() __attribute__((weakref("alloc_monitor_stop")));

namespace cms {
namespace perftools {

class AllocTester; // the original's own test of its registry

class AllocMonitorRegistry {
public:
    /// Deregisters and destroys the remaining monitors.
    HEAPTIDE_HIDDEN_ ~AllocMonitorRegistry()
    {
        Guard guard(*this);
        while (AllocMonitorBase *monitor = last())
            deregisterMonitor(monitor);
        std::vector<std::unique_ptr<Entry>>().swap(entries_); // so that it is freed unrecorded
        void (*stop)() = started_ ? function("alloc_monitor_stop", heaptide_alloc_monitor_stop_)
                                  : nullptr;
        if (stop)
            stop();
    }

    AllocMonitorRegistry(AllocMonitorRegistry &&) = delete;
    AllocMonitorRegistry(const AllocMonitorRegistry &) = delete;
    AllocMonitorRegistry &operator=(const AllocMonitorRegistry &) = delete;
    AllocMonitorRegistry &operator=(AllocMonitorRegistry &&) = delete;

    HEAPTIDE_HIDDEN_ static AllocMonitorRegistry &instance()
    {
        static AllocMonitorRegistry registry;
        return registry;
    }

    /// Returns whether monitors can be registered: the recorder records this process, or a library
    /// like the original's is preloaded.
    HEAPTIDE_HIDDEN_ static bool necessaryLibraryWasPreloaded()
    {
        return heaptide_recording() != 0
               || function("alloc_monitor_start", heaptide_alloc_monitor_start_) != nullptr;
    }

    /// Creates and registers a monitor, which the registry owns. Allocations in its constructor are
    /// not reported. Throws cms::Exception of category "NoAllocMonitorPreload" without the
    /// recorder, or "AllocMonitorLimit" if 32 monitors are registered. Exceptions of the
    /// constructor propagate.
    template <typename T, typename... ARGS>
    HEAPTIDE_HIDDEN_ T *createAndRegisterMonitor(ARGS &&...arguments)
    {
        Guard guard(*this);
        start();
        std::unique_ptr<T> made(new T(std::forward<ARGS>(arguments)...));
        T *monitor = made.get();
        std::unique_ptr<Entry> entry(new Entry{monitor, 0});
        std::lock_guard<std::mutex> hold(lock_);
        entries_.reserve(entries_.size() + 1);
        if (const heaptide_interface *table = heaptide_table_())
            if (heaptide_recording())
                entry->number = register_with(table, monitor);
        made.release();
        entries_.push_back(std::move(entry));
        return monitor;
    }

    /// Removes a monitor and destroys it when no other thread is in it. Frees in its destructor are
    /// not reported. Ignores a monitor that is not registered here.
    HEAPTIDE_HIDDEN_ void deregisterMonitor(AllocMonitorBase *monitor)
    {
        Guard guard(*this);
        std::unique_ptr<Entry> found;
        {
            std::lock_guard<std::mutex> hold(lock_);
            for (auto place = entries_.begin(); place != entries_.end(); ++place) {
                if ((*place)->monitor == monitor) {
                    found = std::move(*place);
                    entries_.erase(place);
                    break;
                }
            }
        }
        if (!found)
            return;
        const heaptide_interface *table = heaptide_table_();
        if (found->number && table)
            table->monitor_deregister(found->number); // this also destroys it
        else
            delete monitor;
    }

private:
    friend class ::cms::perftools::AllocTester;

    struct Entry {
        AllocMonitorBase *monitor;
        std::uint64_t number; // the recorder's number; 0 without the recorder
    };

    // Excludes this thread's allocations from recording and monitors during its lifetime.
    class Guard {
    public:
        explicit HEAPTIDE_HIDDEN_ Guard(AllocMonitorRegistry &)
            : outermost_(!suspended())
        {
            suspended() = true;
        }
        Guard(const Guard &) = delete;
        Guard &operator=(const Guard &) = delete;
        HEAPTIDE_HIDDEN_ ~Guard() { suspended() = !outermost_; }
        bool shouldReport() const { return outermost_; }

    private:
        HEAPTIDE_HIDDEN_ static bool &suspended()
        {
            static __thread bool state;
            return state;
        }
        heaptide::Pause pause_;
        bool outermost_;
    };

    AllocMonitorRegistry() = default;

    HEAPTIDE_HIDDEN_ static void (*function(const char *name, void (*linked)()))()
    {
        if (linked || !heaptide_dlsym_)
            return linked;
        const int kept = errno;
        void *found = heaptide_dlsym_(nullptr, name);
        errno = kept;
        return reinterpret_cast<void (*)()>(found);
    }

    HEAPTIDE_HIDDEN_ void start()
    {
        void (*started)() = function("alloc_monitor_start", heaptide_alloc_monitor_start_);
        if (!heaptide_recording() && !started) {
            static const char text[] =
                "The libPerfToolsAllocMonitorPreload.so was not LD_PRELOADed into the job, nor is "
                "it recorded by Heaptide: run it with `heaptide run`";
            throw cms::Exception("NoAllocMonitorPreload", text);
        }
        const bool first = !started_;
        started_ = true;
        if (started && first)
            started();
    }

    HEAPTIDE_HIDDEN_ std::uint64_t register_with(const heaptide_interface *table,
                                                 AllocMonitorBase *monitor)
    {
        heaptide_monitor calls = heaptide_monitor();
        calls.version = HEAPTIDE_MONITOR_VERSION;
        calls.size = sizeof calls;
        calls.name = "AllocMonitor";
        calls.context = monitor;
        calls.allocated = on_allocated;
        calls.freed = on_freed;
        calls.destroy = on_destroy;
        const std::uint64_t number = table->monitor_register(&calls);
        if (!number) {
            static const char text[] = "32 monitors are registered already";
            throw cms::Exception("AllocMonitorLimit", text);
        }
        return number;
    }

    HEAPTIDE_HIDDEN_ static void on_allocated(void *context, void *block, std::size_t requested,
                                              std::size_t usable) noexcept
    {
        static_cast<AllocMonitorBase *>(context)->allocCalled(requested, usable, block);
    }
    HEAPTIDE_HIDDEN_ static void on_freed(void *context, void *block, std::size_t usable) noexcept
    {
        static_cast<AllocMonitorBase *>(context)->deallocCalled(usable, block);
    }
    HEAPTIDE_HIDDEN_ static void on_destroy(void *context) noexcept
    {
        heaptide::Pause pause;
        delete static_cast<AllocMonitorBase *>(context);
    }

    HEAPTIDE_HIDDEN_ AllocMonitorBase *last()
    {
        std::lock_guard<std::mutex> hold(lock_);
        return entries_.empty() ? nullptr : entries_.back()->monitor;
    }

    // The original's test calls this instead of an allocation function.
    template <typename ALLOC, typename ACTUAL>
    HEAPTIDE_HIDDEN_ auto allocCalled(size_t requested, ALLOC allocate, ACTUAL actual)
        -> decltype(allocate())
    {
        Guard guard(*this);
        auto block = allocate();
        if (guard.shouldReport())
            for (const auto &entry : entries_)
                entry->monitor->allocCalled(requested, actual(block), address(block));
        return block;
    }
    template <typename FREE, typename ACTUAL>
    HEAPTIDE_HIDDEN_ void deallocCalled(void *block, FREE release, ACTUAL actual)
    {
        Guard guard(*this);
        if (guard.shouldReport() && block)
            for (const auto &entry : entries_)
                entry->monitor->deallocCalled(actual(block), block);
        release(block);
    }
    template <typename FREE, typename ACTUAL>
    HEAPTIDE_HIDDEN_ void deallocCalled(FREE release, ACTUAL actual)
    {
        Guard guard(*this);
        if (guard.shouldReport())
            for (const auto &entry : entries_)
                entry->monitor->deallocCalled(actual(), nullptr);
        release();
    }
    static void const *address(void const *block) { return block; }
    template <typename T> static void const *address(const T &) { return nullptr; }

    std::mutex lock_;
    std::vector<std::unique_ptr<Entry>> entries_;
    bool started_ = false;
};

} // namespace perftools
} // namespace cms

#endif
