//! A monitor that prints the counters of a part of the run, and the memory that was allocated in it
//! and not freed in it.
//
//     c++ -O2 -shared -fPIC -I include -o libwindow.so monitors/cpp/window.cpp
//     heaptide run --monitor ./libwindow.so -- PROGRAM
//     heaptide run --monitor ./libwindow.so:from=1000,to=2000 -- PROGRAM
//
// The program marks the part itself, from any thread, once or repeatedly: it calls two functions if
// they are defined. Position-independent programs, the default, can do so:
//
//     extern "C" void heaptide_window_monitor_begin() __attribute__((weak));
//     if (heaptide_window_monitor_begin)
//         heaptide_window_monitor_begin();
//
// A shared library may define empty functions and call them: those of this library take precedence,
// because it is preloaded. For a program that cannot be changed, counts of allocations mark the
// part: from the N-th to the M-th.
//
// A table of addresses identifies the blocks that were allocated in the window. A monitor may use
// the standard library for that: allocations of its containers are not reported.

#include "heaptide.hpp"

#include <atomic>
#include <cstdio>
#include <fcntl.h>
#include <mutex>
#include <pthread.h>
#include <unistd.h>
#include <unordered_map>

namespace {

// The output of the report: a copy of stderr, because programs may close that before the monitor
// ends, as `ls` does at exit. Its number does not conflict with the program's own descriptors.
class Report {
public:
    Report() : copy_(fcntl(2, F_DUPFD_CLOEXEC, 200)) {}
    Report(const Report &) = delete;
    Report &operator=(const Report &) = delete;
    ~Report()
    {
        if (copy_ >= 0)
            close(copy_);
    }
    int descriptor() const { return copy_ < 0 ? 2 : copy_; }

private:
    int copy_;
};

class Window final : public heaptide::Monitor {
public:
    Window(std::uint64_t from, std::uint64_t to) : from_(from), to_(to)
    {
        current = this;
        pthread_atfork(before_fork, after_fork, after_fork);
    }

    // A window that is still open ends with the program.
    ~Window() override
    {
        std::lock_guard<std::mutex> hold(lock);
        current = nullptr;
        end();
    }

    void begin()
    {
        if (open_)
            return;
        own_.clear();
        figures_ = Figures();
        open_ = true;
    }

    void end()
    {
        if (!open_)
            return;
        open_ = false;
        std::size_t kept = 0;
        for (const auto &block : own_)
            kept += block.second;
        dprintf(report_.descriptor(),
                "window %u: requested %zu added %lld peak %lld allocations %zu frees %zu "
                "of its own %zu not yet freed %zu blocks %zu bytes\n",
                ++number_, figures_.requested, figures_.added, figures_.max_added,
                figures_.allocations, figures_.frees, figures_.own_frees, own_.size(), kept);
    }

    // Whether counts mark the part, so that marks of the program are ignored.
    bool by_count() const { return from_ != 0; }

    void allocated(void *block, std::size_t requested, std::size_t usable) override
    {
        const std::uint64_t number = by_count() ? 1 + count_.fetch_add(1) : 0;
        if (!open_ && (number == 0 || number != from_))
            return;
        std::lock_guard<std::mutex> hold(lock);
        if (number && number == from_)
            begin();
        if (open_ && number <= to_) {
            figures_.requested += requested;
            figures_.allocations++;
            figures_.added += static_cast<long long>(usable);
            if (figures_.added > figures_.max_added)
                figures_.max_added = figures_.added;
            own_[block] = usable;
        }
        if (number && number >= to_)
            end();
    }

    void freed(void *block, std::size_t usable) override
    {
        if (!open_)
            return;
        std::lock_guard<std::mutex> hold(lock);
        if (!open_)
            return;
        figures_.frees++;
        figures_.added -= static_cast<long long>(usable);
        figures_.own_frees += own_.erase(block);
    }

    // One mutex for everything: simple, and fast enough for a part of a run. Outside of a window,
    // threads do not take it. It outlives the monitor, because the program may mark the end after
    // that is destroyed.
    static std::mutex lock;
    static Window *current;

private:
    struct Figures {
        std::size_t requested = 0, allocations = 0, frees = 0, own_frees = 0;
        long long added = 0, max_added = 0; // usable bytes since its start
    };

    // A fork waits until no thread is in the table, so that the child inherits a consistent table.
    static void before_fork() { lock.lock(); }
    static void after_fork() { lock.unlock(); }

    const Report report_;
    const std::uint64_t from_, to_;
    std::atomic<std::uint64_t> count_{0};
    std::atomic<bool> open_{false}; // written under the lock, read without it
    unsigned number_ = 0;
    Figures figures_;
    std::unordered_map<void *, std::size_t> own_;
};

std::mutex Window::lock;
Window *Window::current;

// Pauses recording, because printing and clearing the table allocate and free.
void mark(void (Window::*what)())
{
    heaptide::Pause pause;
    std::lock_guard<std::mutex> hold(Window::lock);
    if (Window::current && !Window::current->by_count())
        (Window::current->*what)();
}

bool read_options(char *options, std::uint64_t &from, std::uint64_t &to)
{
    const char *name, *value;
    int more;
    while ((more = heaptide_next_option(&options, &name, &value)) > 0) {
        const bool is_from = std::string(name) == "from";
        if (!(is_from || std::string(name) == "to")
            || !heaptide_option_number(value, is_from ? &from : &to)) {
            std::fprintf(stderr, "window: `%s=%s`: expected from=N,to=M\n", name, value);
            return false;
        }
    }
    const bool given = from || to;
    if (more < 0 || (given && !(0 < from && from <= to))) {
        std::fprintf(stderr, "window: options: expected from=N,to=M with 0 < N <= M\n");
        return false;
    }
    return true;
}

void create(char *options)
{
    std::uint64_t from = 0, to = 0;
    if (!read_options(options, from, to))
        return;
    try {
        heaptide::create_and_register<Window>(from, to);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "window: %s\n", error.what());
    }
}

} // namespace

// The functions that the program calls.
extern "C" __attribute__((visibility("default"))) void heaptide_window_monitor_begin()
{
    mark(&Window::begin);
}
extern "C" __attribute__((visibility("default"))) void heaptide_window_monitor_end()
{
    mark(&Window::end);
}

HEAPTIDE_MONITOR_PLUGIN("libwindow.so", create);
