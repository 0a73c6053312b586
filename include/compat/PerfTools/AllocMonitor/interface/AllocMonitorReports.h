//! The monitors behind AllocMonitor's Services, without the framework. Each counts, and returns the
//! report text that the Service of the same name logs.
//
// Requires C++11; header only. The plug-in monitors/cms/alloc_monitors.cpp prints the reports at
// exit; examples/cmsrun builds a Service of cmsRun from them. They fix these faults of the
// originals: memory in use is signed, so that it does not wrap when blocks older than the monitor
// are freed; the histogram has rows for sizes of 512 GiB and more; EventProcessing identifies its
// own blocks by address; the number of threads with Intrusive measurements is unlimited.

#ifndef HEAPTIDE_COMPAT_ALLOC_MONITOR_REPORTS_H
#define HEAPTIDE_COMPAT_ALLOC_MONITOR_REPORTS_H

#include "AllocMonitorRegistry.h"

#include <pthread.h>
#include <signal.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <stdexcept>
#include <string>
#include <thread>
#include <unordered_map>

namespace cms {
namespace perftools {

/// Counters that any number of threads update. Bytes are usable bytes unless noted.
struct AllocCounters {
    std::atomic<unsigned long long> requested{0}, maxSingle{0}, allocations{0}, deallocations{0};
    std::atomic<long long> present{0}, max{0};

    void allocated(size_t bytes, size_t actual)
    {
        allocations.fetch_add(1, std::memory_order_relaxed);
        requested.fetch_add(bytes, std::memory_order_relaxed);
        raise<unsigned long long>(maxSingle, bytes);
        const auto added = static_cast<long long>(actual);
        raise(max, present.fetch_add(added, std::memory_order_relaxed) + added);
    }
    void freed(size_t actual)
    {
        deallocations.fetch_add(1, std::memory_order_relaxed);
        present.fetch_sub(static_cast<long long>(actual), std::memory_order_relaxed);
    }

private:
    template <typename Number> static void raise(std::atomic<Number> &max, Number value)
    {
        Number known = max.load(std::memory_order_relaxed);
        while (value > known
               && !max.compare_exchange_weak(known, value, std::memory_order_relaxed))
            continue;
    }
};

/// SimpleAllocMonitor and MaxMemoryPreload: counts from registration.
class SimpleMonitor : public AllocMonitorBase {
public:
    void allocCalled(size_t requested, size_t actual, void const *) override
    {
        counters_.allocated(requested, actual);
    }
    void deallocCalled(size_t actual, void const *) override { counters_.freed(actual); }

    const AllocCounters &counters() const { return counters_; }

    /// Returns the text that SimpleAllocMonitor logs.
    std::string report() const
    {
        return "Memory Report\n"
               "  [monitoring spans the lifetime of Services (first plugins made and last to be "
               "deleted)]\n"
               "  total additional memory requested: "
               + std::to_string(counters_.requested)
               + "\n  max additional memory used: " + std::to_string(counters_.max)
               + "\n  # allocations calls:   " + std::to_string(counters_.allocations)
               + "\n  # deallocations calls: " + std::to_string(counters_.deallocations);
    }

    /// Returns the text that MaxMemoryPreload prints.
    std::string maxMemoryReport() const
    {
        return "Memory Report: total memory requested: " + std::to_string(counters_.requested)
               + "\nMemory Report:  max memory used: " + std::to_string(counters_.max)
               + "\nMemory Report:  presently used: " + std::to_string(counters_.present)
               + "\nMemory Report:  # allocations calls:   "
               + std::to_string(counters_.allocations)
               + "\nMemory Report:  # deallocations calls: "
               + std::to_string(counters_.deallocations);
    }

private:
    AllocCounters counters_;
};

/// EventProcessingAllocMonitor: counts between start() and stop(), which any thread may call.
class EventProcessingMonitor : public AllocMonitorBase {
public:
    EventProcessingMonitor()
    {
        current() = this;
        pthread_atfork([] { each(&std::mutex::lock); }, [] { each(&std::mutex::unlock); },
                       [] { each(&std::mutex::unlock); });
    }
    ~EventProcessingMonitor() override { current() = nullptr; }

    void start() { started_ = true; }
    void stop() { started_ = false; }

    void allocCalled(size_t requested, size_t actual, void const *block) override
    {
        if (!started_)
            return;
        counters_.allocated(requested, actual);
        Shard &shard = shard_of(block);
        std::lock_guard<std::mutex> hold(shard.lock);
        shard.blocks[block] = actual;
    }
    // The free of an older block counts as a call, but its bytes were not used by the event loop.
    void deallocCalled(size_t actual, void const *block) override
    {
        if (!started_)
            return;
        Shard &shard = shard_of(block);
        std::unique_lock<std::mutex> hold(shard.lock);
        const bool own = shard.blocks.erase(block) != 0;
        hold.unlock();
        counters_.freed(own ? actual : 0);
    }

    const AllocCounters &counters() const { return counters_; }

    std::string report() const
    {
        return "Event Processing Memory Report\n"
               "  total additional memory requested: "
               + std::to_string(counters_.requested)
               + "\n  max additional memory used: " + std::to_string(counters_.max)
               + "\n  total additional memory not deallocated: "
               + std::to_string(counters_.present)
               + "\n  # allocations calls:   " + std::to_string(counters_.allocations)
               + "\n  # deallocations calls: " + std::to_string(counters_.deallocations);
    }

private:
    struct Shard {
        std::mutex lock;
        std::unordered_map<void const *, size_t> blocks;
    };
    // More locks than threads that usually allocate at the same time.
    static constexpr std::size_t kShards = 64;

    static EventProcessingMonitor *&current()
    {
        static EventProcessingMonitor *monitor;
        return monitor;
    }
    // A fork waits until no thread is in a table, so that the child inherits consistent tables.
    static void each(void (std::mutex::*what)())
    {
        if (current())
            for (Shard &shard : current()->shards_)
                (shard.lock.*what)();
    }
    Shard &shard_of(void const *block)
    {
        const auto bits = reinterpret_cast<std::uintptr_t>(block);
        return shards_[((bits >> 4) ^ (bits >> 12)) % kShards];
    }

    std::atomic<bool> started_{false};
    AllocCounters counters_;
    Shard shards_[kShards];
};

/// HistogrammingAllocMonitor: counts sizes by powers of 2.
class HistogrammingMonitor : public AllocMonitorBase {
public:
    void allocCalled(size_t requested, size_t actual, void const *) override
    {
        add(requested_, requested);
        add(used_, actual);
    }
    void deallocCalled(size_t actual, void const *) override { add(returned_, actual); }

    /// Has 40 rows, like the original, or more if there were larger sizes.
    std::string report() const
    {
        int rows = 40;
        for (int i = rows; i < kBins; i++)
            if (requested_[i] || used_[i] || returned_[i])
                rows = i + 1;
        std::string text = "Memory Histogram\n"
                           "   size     |           allocated     |     deallocated\n"
                           "            |     requested      used |        used";
        for (int i = 0; i < rows; i++) {
            char line[128];
            std::snprintf(line, sizeof line, "\n%12llu %12llu %12llu %12llu",
                          i ? 1ULL << (i - 1) : 0ULL, requested_[i].load(), used_[i].load(),
                          returned_[i].load());
            text += line;
        }
        return text;
    }

private:
    static constexpr int kBins = 65;
    typedef std::atomic<unsigned long long> Bins[kBins];

    static void add(Bins &bins, size_t size)
    {
        const int bin = size ? 64 - __builtin_clzll(size) : 0;
        bins[bin].fetch_add(1, std::memory_order_relaxed);
    }

    Bins requested_ = {}, used_ = {}, returned_ = {};
};

/// PeriodicAllocMonitor: writes a line of CSV at a fixed interval in milliseconds, from a thread of
/// its own, and one at the end. A forked child writes no lines.
class PeriodicMonitor : public AllocMonitorBase {
public:
    /// `names` and `values` are additional columns after the time, each followed by ", ". Throws
    /// std::runtime_error if the file cannot be created.
    PeriodicMonitor(const std::string &path, std::chrono::milliseconds interval,
                    const std::string &names = "",
                    std::function<std::string()> values = std::function<std::string()>())
        : interval_(interval), values_(std::move(values)), file_(std::fopen(path.c_str(), "we"))
    {
        if (!file_)
            throw std::runtime_error("cannot create " + path);
        std::fprintf(file_, "timestamp, %stotal-requested, max-actual, present-actual, "
                            "max-single, nAllocs, nDeallocs\n", names.c_str());
        std::fflush(file_);
        // The program's signal handlers must not run on this thread.
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        try {
            thread_ = std::thread([this] { run(); });
        } catch (...) {
            pthread_sigmask(SIG_SETMASK, &before, nullptr);
            std::fclose(file_);
            throw;
        }
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }
    ~PeriodicMonitor() override
    {
        if (getpid() != pid_) {
            thread_.detach(); // the thread exists only in the parent
            return;
        }
        {
            std::lock_guard<std::mutex> hold(lock_);
            stops_ = true;
        }
        wake_.notify_one();
        thread_.join();
        write_line();
        std::fclose(file_);
    }

    void allocCalled(size_t requested, size_t actual, void const *) override
    {
        counters_.allocated(requested, actual);
    }
    void deallocCalled(size_t actual, void const *) override { counters_.freed(actual); }

private:
    void run()
    {
        heaptide::Pause pause;
        std::unique_lock<std::mutex> hold(lock_);
        while (!stops_) {
            write_line();
            wake_.wait_for(hold, interval_, [this] { return stops_; });
        }
    }
    void write_line()
    {
        using std::chrono::duration_cast;
        const auto now = std::chrono::steady_clock::now() - start_;
        std::fprintf(file_, "%lld, %s%llu, %lld, %lld, %llu, %llu, %llu\n",
                     static_cast<long long>(
                         duration_cast<std::chrono::milliseconds>(now).count()),
                     values_ ? values_().c_str() : "", counters_.requested.load(),
                     counters_.max.load(), counters_.present.load(), counters_.maxSingle.load(),
                     counters_.allocations.load(), counters_.deallocations.load());
        std::fflush(file_);
    }

    const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
    const pid_t pid_ = getpid();
    const std::chrono::milliseconds interval_;
    const std::function<std::string()> values_;
    AllocCounters counters_;
    std::FILE *file_;
    std::mutex lock_;
    std::condition_variable wake_;
    bool stops_ = false;
    std::thread thread_;
};

/// IntrusiveAllocMonitor: counts the calling thread's operations during the lifetime of a guard.
/// Measurements of a thread nest; like in the original, the counts of inner ones are excluded from
/// outer ones.
class IntrusiveMonitor : public AllocMonitorBase {
public:
    /// A running measurement of one thread.
    class Measurement {
    public:
        explicit Measurement(std::string name) : name_(std::move(name)), outer_(innermost())
        {
            innermost() = this;
        }
        Measurement(const Measurement &) = delete;
        Measurement &operator=(const Measurement &) = delete;
        ~Measurement() { end(); }

        /// Ends the measurement, on the thread that started it.
        void end()
        {
            if (ended_)
                return;
            ended_ = true;
            innermost() = outer_;
        }

        std::string report() const
        {
            return name_ + ": requested " + std::to_string(requested_) + " added "
                   + std::to_string(added_) + " max alloc " + std::to_string(max_single_)
                   + " peak " + std::to_string(peak_) + " nAlloc " + std::to_string(allocations_)
                   + " nDealloc " + std::to_string(deallocations_);
        }

    private:
        friend class IntrusiveMonitor;
        static Measurement *&innermost()
        {
            static __thread Measurement *measurement;
            return measurement;
        }

        std::string name_;
        Measurement *outer_;
        unsigned long long requested_ = 0, max_single_ = 0, allocations_ = 0, deallocations_ = 0;
        long long added_ = 0, peak_ = 0;
        bool ended_ = false;
    };

    /// Measures until the end of the enclosing block, and then passes the report to `log`.
    class Guard {
    public:
        Guard(std::string name, void (*log)(const std::string &))
            : log_(log), measurement_(made(std::move(name)))
        {
        }
        Guard(Guard &&other) = default;
        ~Guard()
        {
            heaptide::Pause pause;
            if (!measurement_)
                return;
            measurement_->end();
            log_(measurement_->report());
            measurement_.reset();
        }

    private:
        static std::unique_ptr<Measurement> made(std::string name)
        {
            heaptide::Pause pause;
            return std::unique_ptr<Measurement>(new Measurement(std::move(name)));
        }
        void (*log_)(const std::string &);
        std::unique_ptr<Measurement> measurement_;
    };

    /// Prints to stderr, between the lines of the framework's logger.
    static void print(const std::string &text)
    {
        std::fprintf(stderr, "%%MSG-s IntrusiveAllocMonitor:\n%s\n%%MSG\n", text.c_str());
    }

    Guard startMonitoring(std::string name, void (*log)(const std::string &) = print)
    {
        return Guard(std::move(name), log);
    }

    void allocCalled(size_t requested, size_t actual, void const *) override
    {
        Measurement *m = Measurement::innermost();
        if (!m)
            return;
        m->allocations_++;
        m->requested_ += requested;
        if (requested > m->max_single_)
            m->max_single_ = requested;
        m->added_ += static_cast<long long>(actual);
        if (m->added_ > m->peak_)
            m->peak_ = m->added_;
    }
    void deallocCalled(size_t actual, void const *) override
    {
        Measurement *m = Measurement::innermost();
        if (!m)
            return;
        m->deallocations_++;
        m->added_ -= static_cast<long long>(actual);
    }
};

} // namespace perftools
} // namespace cms

#endif
