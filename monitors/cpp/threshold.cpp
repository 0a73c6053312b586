//! A monitor that aborts the program, or takes a snapshot of its profile, at a request within a
//! range of sizes, or when live memory exceeds a limit.
//
//     c++ -O2 -shared -fPIC -I include -o libthreshold.so monitors/cpp/threshold.cpp
//     heaptide run --monitor ./libthreshold.so:min=1M,skip=3 -- PROGRAM
//     heaptide run --monitor ./libthreshold.so:live=500M,action=snapshot -- PROGRAM
//
// The first command aborts at the fourth request of 1 MiB or more, for a debugger or a core file;
// the second takes a snapshot when 500 MiB are exceeded. `max=BYTES` limits the range from above.

#include "heaptide.hpp"

#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace {

struct Options {
    std::uint64_t min = 0, max = UINT64_MAX; // requests of these sizes count,
    bool by_size = false;                    // if either was given
    std::uint64_t live = 0;                  // 0: no limit
    std::uint64_t skip = 0;                  // ignores this many hits of a limit first
    bool snapshot = false;                   // instead of an abort
};

class Threshold final : public heaptide::Monitor {
public:
    explicit Threshold(const Options &options) : options_(options) {}

    void allocated(void *, std::size_t requested, std::size_t usable) override
    {
        if (options_.by_size && requested >= options_.min && requested <= options_.max)
            reached(requests_, "request", requested);
        if (!options_.live)
            return;
        // Exactly one thread sees live memory cross the limit upwards.
        const auto limit = static_cast<long long>(options_.live);
        const auto bytes = static_cast<long long>(usable);
        const long long before = live_.fetch_add(bytes, std::memory_order_relaxed);
        if (before <= limit && before + bytes > limit)
            reached(crossings_, "live total", static_cast<unsigned long long>(before + bytes));
    }

    void freed(void *, std::size_t usable) override
    {
        if (options_.live)
            live_.fetch_sub(static_cast<long long>(usable), std::memory_order_relaxed);
    }

private:
    // Only one thread gets each count, so each action happens once.
    void reached(std::atomic<unsigned long long> &counter, const char *what,
                 unsigned long long bytes)
    {
        const auto count = counter.fetch_add(1, std::memory_order_relaxed) + 1;
        if (count != options_.skip + 1)
            return;
        std::fprintf(stderr, "threshold: %s of %llu bytes, number %llu\n", what, bytes, count);
        if (!options_.snapshot)
            std::abort();
        heaptide_snapshot_now("threshold");
    }

    const Options options_;
    std::atomic<unsigned long long> requests_{0}, crossings_{0};
    std::atomic<long long> live_{0};
};

bool read_option(const std::string &name, const char *value, Options &options)
{
    if (name == "action") {
        options.snapshot = std::string(value) == "snapshot";
        return options.snapshot || std::string(value) == "abort";
    }
    if (name == "min" || name == "max") {
        options.by_size = true;
        return heaptide_option_number(value, name == "min" ? &options.min : &options.max);
    }
    if (name == "live")
        return heaptide_option_number(value, &options.live) && options.live <= INT64_MAX;
    return name == "skip" && heaptide_option_number(value, &options.skip);
}

bool read_options(char *text, Options &options)
{
    static const char expected[] =
        "expected min=BYTES,max=BYTES,live=BYTES,skip=COUNT,action=abort|snapshot";
    const char *name, *value;
    int more;
    while ((more = heaptide_next_option(&text, &name, &value)) > 0) {
        if (!read_option(name, value, options)) {
            std::fprintf(stderr, "threshold: `%s=%s`: %s\n", name, value, expected);
            return false;
        }
    }
    if (more < 0 || (!options.by_size && !options.live) || options.min > options.max) {
        std::fprintf(stderr, "threshold: no limit in the options: %s\n", expected);
        return false;
    }
    return true;
}

void create(char *text)
{
    Options options;
    if (!read_options(text, options))
        return;
    try {
        heaptide::create_and_register<Threshold>(options);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "threshold: %s\n", error.what());
    }
}

} // namespace

HEAPTIDE_MONITOR_PLUGIN("libthreshold.so", create);
