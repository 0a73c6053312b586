//! A monitor that writes a line of counters at a fixed interval, to one CSV file per process.
//
//     c++ -O2 -shared -fPIC -pthread -I include -o libperiodic.so monitors/cpp/periodic.cpp
//     heaptide run --monitor ./libperiodic.so:interval=100,file=heap- -- PROGRAM
//
// writes heap-PID.csv; without options it writes periodic_alloc_PID.csv every second. A dedicated
// thread writes, so that there are lines even while the program does not allocate. Threads do not
// survive a fork: a child starts a new one, with a file of its own, when it first allocates. A
// program that replaces itself (exec) keeps its pid; the file of the next image is heap-PID-1.csv,
// and so on.

#include "heaptide.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <mutex>
#include <new>
#include <pthread.h>
#include <signal.h>
#include <thread>
#include <unistd.h>

namespace {

using Clock = std::chrono::steady_clock;
constexpr auto relaxed = std::memory_order_relaxed;

// More images than any process is expected to have.
constexpr int max_images = 1000;

template <typename Number> void raise_to(std::atomic<Number> &max, Number value)
{
    Number known = max.load(relaxed);
    while (value > known && !max.compare_exchange_weak(known, value, relaxed))
        continue;
}

struct Counts {
    std::atomic<unsigned long long> requested{0}, largest{0}, allocations{0}, frees{0};
    std::atomic<long long> used{0}, max_used{0}; // usable bytes
};

// The writing thread and its file, of one process.
class Writer {
public:
    Writer(const Counts &counts, const std::string &prefix, std::chrono::milliseconds interval)
        : counts_(counts), interval_(interval), file_(open_file(prefix))
    {
        // Blocks all signals: the program's handlers must not run on a thread that it does not
        // know.
        sigset_t all, before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        try {
            thread_ = std::thread([this] { run(); });
        } catch (...) {
            pthread_sigmask(SIG_SETMASK, &before, nullptr);
            close(file_);
            throw;
        }
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }

    // The last line holds the final counters, even if the program runs shorter than the interval.
    ~Writer()
    {
        lock_.lock();
        stops_ = true;
        lock_.unlock();
        wake_.notify_one();
        thread_.join();
        write_line();
        close(file_);
    }

    // A fork waits until a line is complete. The child, which has no writing thread, leaves this
    // writer's memory alone.
    void before_fork() { lock_.lock(); }
    void after_fork() { lock_.unlock(); }
    void in_child() { close(file_); }

private:
    static int open_file(const std::string &prefix)
    {
        static const char header[] = "timestamp, total-requested, max-actual, present-actual, "
                                     "max-single, nAllocs, nDeallocs\n";
        const std::string stem = prefix + std::to_string(getpid());
        for (int image = 0; image < max_images; image++) {
            const std::string path = stem + (image ? "-" + std::to_string(image) : "") + ".csv";
            const int flags = O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC;
            const int file = open(path.c_str(), flags, 0666);
            if (file >= 0 && write(file, header, sizeof header - 1) > 0)
                return file;
            if (file >= 0 || errno != EEXIST)
                break;
        }
        throw std::runtime_error(stem + ".csv: " + std::strerror(errno));
    }

    // Allocations of this thread are not the program's.
    void run()
    {
        heaptide::Pause pause;
        std::unique_lock<std::mutex> hold(lock_);
        for (Clock::time_point next = start_ + interval_; !stops_; next += interval_) {
            wake_.wait_until(hold, next, [this] { return stops_; });
            if (!stops_)
                write_line();
        }
    }

    // Writes each line with one call, so that a killed program leaves whole lines. A full disk
    // loses lines.
    void write_line() const
    {
        using std::chrono::duration_cast;
        const auto now = duration_cast<std::chrono::milliseconds>(Clock::now() - start_).count();
        char line[256];
        const int length = std::snprintf(
            line, sizeof line, "%lld, %llu, %lld, %lld, %llu, %llu, %llu\n",
            static_cast<long long>(now), counts_.requested.load(relaxed),
            counts_.max_used.load(relaxed), counts_.used.load(relaxed),
            counts_.largest.load(relaxed), counts_.allocations.load(relaxed),
            counts_.frees.load(relaxed));
        if (length > 0 && write(file_, line, static_cast<std::size_t>(length)) < 0)
            return;
    }

    const Counts &counts_;
    const std::chrono::milliseconds interval_;
    const Clock::time_point start_ = Clock::now();
    const int file_;
    std::mutex lock_;
    std::condition_variable wake_;
    bool stops_ = false;
    std::thread thread_;
};

class Periodic final : public heaptide::Monitor {
public:
    Periodic(const std::string &prefix, std::chrono::milliseconds interval)
        : prefix_(prefix), interval_(interval)
    {
        writer_.reset(new Writer(counts_, prefix_, interval_));
        current = this;
        pthread_atfork([] { each(&Writer::before_fork); }, [] { each(&Writer::after_fork); },
                       in_child);
    }

    ~Periodic() override { current = nullptr; }

    void allocated(void *, std::size_t requested, std::size_t usable) override
    {
        if (__builtin_expect(needs_writer_.load(relaxed), false) && needs_writer_.exchange(false))
            start_in_child();
        counts_.requested.fetch_add(requested, relaxed);
        counts_.allocations.fetch_add(1, relaxed);
        raise_to<unsigned long long>(counts_.largest, requested);
        const auto bytes = static_cast<long long>(usable);
        raise_to(counts_.max_used, counts_.used.fetch_add(bytes, relaxed) + bytes);
    }

    void freed(void *, std::size_t usable) override
    {
        counts_.frees.fetch_add(1, relaxed);
        counts_.used.fetch_sub(static_cast<long long>(usable), relaxed);
    }

private:
    static void each(void (Writer::*what)())
    {
        if (current && current->writer_)
            (current->writer_.get()->*what)();
    }

    // The child keeps the counts, because it inherits the parent's blocks.
    static void in_child()
    {
        if (!current || !current->writer_)
            return;
        current->writer_->in_child();
        // The child has no thread to join, and cannot destroy the mutex.
        current->writer_.release();
        current->needs_writer_ = true;
    }

    void start_in_child()
    {
        try {
            writer_.reset(new Writer(counts_, prefix_, interval_));
        } catch (const std::exception &error) {
            std::fprintf(stderr, "periodic: %s\n", error.what());
        }
    }

    static Periodic *current;

    const std::string prefix_;
    const std::chrono::milliseconds interval_;
    std::atomic<bool> needs_writer_{false};
    Counts counts_;
    std::unique_ptr<Writer> writer_; // destroyed before what it reads
};

Periodic *Periodic::current;

bool read_options(char *options, std::string &prefix, std::uint64_t &interval)
{
    const char *name, *value;
    int more;
    while ((more = heaptide_next_option(&options, &name, &value)) > 0) {
        if (std::string(name) == "file" && *value) {
            prefix = value;
        } else if (!(std::string(name) == "interval" && heaptide_option_number(value, &interval)
                     && interval > 0 && interval <= 1000000000)) {
            std::fprintf(stderr,
                         "periodic: `%s=%s`: expected interval=MILLISECONDS,file=PREFIX\n", name,
                         value);
            return false;
        }
    }
    if (more < 0)
        std::fprintf(stderr, "periodic: options: expected interval=MILLISECONDS,file=PREFIX\n");
    return more == 0;
}

void create(char *options)
{
    std::string prefix = "periodic_alloc_";
    std::uint64_t interval = 1000;
    if (!read_options(options, prefix, interval))
        return;
    try {
        heaptide::create_and_register<Periodic>(prefix, std::chrono::milliseconds(interval));
    } catch (const std::exception &error) {
        std::fprintf(stderr, "periodic: %s\n", error.what());
    }
}

} // namespace

HEAPTIDE_MONITOR_PLUGIN("libperiodic.so", create);
