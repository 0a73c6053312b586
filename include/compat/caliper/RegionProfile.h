//! Caliper's profile of the time in regions, for programs written for Caliper.
//
// Measures time itself, with or without the recorder. A program that includes this header keeps the
// path of open regions of each thread from its load on, in all its parts, including those in C. As
// in Caliper:
// - At each begin, set and end of an attribute, except those with CALI_ATTR_SKIP_EVENTS, the time
//   since the thread's previous event, or since start(), counts for the path before the event. Time
//   after the last event does not count. The total is the sum over all threads with events.
// - Exclusive time counts only if the innermost value of the path has the selected type. Inclusive
//   time counts for each selected value of the path, so twice for a region inside itself.
// - A type that no attribute has selects all nested attributes. "annotation", the type of
//   CALI_MARK_BEGIN in Caliper 2.0, selects `region` then.
// Unlike in Caliper, time between stop() and start() does not count, and after a mismatched end,
// regions inside the ended one are left too.

#ifndef HEAPTIDE_COMPAT_CALI_REGION_PROFILE_H
#define HEAPTIDE_COMPAT_CALI_REGION_PROFILE_H

#include "ChannelController.h"
#include "cali.h"
#include "common/Variant.h"

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <pthread.h>
#include <string>
#include <tuple>
#include <utility>

namespace cali {
namespace heaptide_regions_ {

// A path of open values; never freed. Threads that create one at once may get separate nodes of
// the same meaning.
struct Node {
    const Node *parent;
    Node *next;  // of the same bucket
    const char *attribute, *text;
    std::size_t bytes;  // of the text
    bool is_nested;
};

// The open values of a thread: [0] nested ones and others with begin and end; [1] values that need
// not nest.
struct Thread {
    const Node *path[2];
    std::uint64_t number;  // from 1; 0: not assigned yet
    std::uint64_t profile;  // the number of the profile that `sums` belongs to
    struct Sums *sums;
    // Ignores annotations in allocation functions that this header calls.
    int is_busy;
};

// What a profile has measured on a thread.
struct Sums {
    std::int64_t last;  // time of the last event, in ns
    std::map<std::pair<const Node *, const Node *>, std::uint64_t> times;
};

struct Profile {
    Profile *next;  // active profile
    std::uint64_t number;
    std::int64_t started;
    bool is_active, is_instantiated;
    std::mutex lock;  // of the map, while several threads add to it
    std::map<std::uint64_t, Sums> threads;
};

enum : std::size_t { BUCKETS = 4096 };

#ifdef PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP
#define HEAPTIDE_CALI_RWLOCK_ PTHREAD_RWLOCK_WRITER_NONRECURSIVE_INITIALIZER_NP
#else
#define HEAPTIDE_CALI_RWLOCK_ PTHREAD_RWLOCK_INITIALIZER
#endif

// Shared by modules like heaptide_cali_observes_, because they share the inline functions, too.
#define HEAPTIDE_CALI_OBSERVED_ __attribute__((weak, visibility("default")))

HEAPTIDE_CALI_OBSERVED_ Node *buckets[BUCKETS];
HEAPTIDE_CALI_OBSERVED_ Profile *active_profiles;
HEAPTIDE_CALI_OBSERVED_ std::uint64_t threads, profiles;  // numbers assigned so far
// Held by events for reading, and by functions of profiles for writing.
HEAPTIDE_CALI_OBSERVED_ pthread_rwlock_t lock = HEAPTIDE_CALI_RWLOCK_;

HEAPTIDE_CALI_OBSERVED_ __thread Thread own_thread __attribute__((tls_model("initial-exec")));

#undef HEAPTIDE_CALI_RWLOCK_
#undef HEAPTIDE_CALI_OBSERVED_

inline std::int64_t now()
{
    return std::chrono::duration_cast<std::chrono::nanoseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
}

// Excludes events and other functions of profiles, and pauses the recording of allocations.
class Exclusive {
public:
    Exclusive() : was_busy_(own_thread.is_busy)
    {
        own_thread.is_busy = 1;
        heaptide_pause(0);
        pthread_rwlock_wrlock(&lock);
    }
    ~Exclusive()
    {
        pthread_rwlock_unlock(&lock);
        heaptide_resume(0);
        own_thread.is_busy = was_busy_;
    }
    Exclusive(const Exclusive &) = delete;
    Exclusive &operator=(const Exclusive &) = delete;

private:
    int was_busy_;
};

// ---- Paths

inline bool is_value(const Node *node, const char *attribute, const char *text, std::size_t bytes)
{
    return node->bytes == bytes && !std::memcmp(node->text, text, bytes)
           && !std::strcmp(node->attribute, attribute);
}

// Returns the path with a value added to `parent`. Returns `parent` if out of memory.
inline const Node *child(const Node *parent, const char *attribute, bool is_nested,
                         const char *text, std::size_t bytes)
{
    std::size_t hash = std::hash<const void *>()(parent), i;
    for (i = 0; attribute[i]; i++)
        hash = (hash ^ static_cast<unsigned char>(attribute[i])) * 0x01000193u;
    const std::size_t attribute_bytes = i + 1;
    for (i = 0; i < bytes; i++)
        hash = (hash ^ static_cast<unsigned char>(text[i])) * 0x01000193u;
    Node **bucket = &buckets[(hash ^ hash >> 15) % BUCKETS];
    Node *made = __atomic_load_n(bucket, __ATOMIC_ACQUIRE);
    for (; made; made = made->next)
        if (made->parent == parent && is_value(made, attribute, text, bytes))
            return made;
    heaptide_pause(0);
    void *memory = std::malloc(sizeof *made + attribute_bytes + bytes + 1);
    heaptide_resume(0);
    if (!memory)
        return parent;
    char *names = static_cast<char *>(memory) + sizeof *made;
    std::memcpy(names, attribute, attribute_bytes);
    std::memcpy(names + attribute_bytes, text, bytes);
    names[attribute_bytes + bytes] = 0;
    made = new (memory) Node{parent, nullptr, names, names + attribute_bytes, bytes, is_nested};
    made->next = __atomic_load_n(bucket, __ATOMIC_ACQUIRE);
    while (!__atomic_compare_exchange_n(bucket, &made->next, made, true, __ATOMIC_RELEASE,
                                        __ATOMIC_ACQUIRE))
        continue;
    return made;
}
inline const Node *child_like(const Node *parent, const Node *node)
{
    return child(parent, node->attribute, node->is_nested, node->text, node->bytes);
}

// Returns the path `from` with the values inside `at` only, added to `parent`.
inline const Node *rebased(const Node *from, const Node *at, const Node *parent)
{
    return from == at ? parent : child_like(rebased(from->parent, at, parent), from);
}

inline const Node *innermost(const Node *path, const char *attribute)
{
    while (path && std::strcmp(path->attribute, attribute))
        path = path->parent;
    return path;
}

// Applies an event to the path of the thread. The end of a value that nests ends the values inside.
inline void change(const Node **path, heaptide_cali_event_ event, const char *attribute,
                   bool is_nested, bool nests, const char *text, std::size_t bytes)
{
    const Node *at = *path;
    switch (event) {
    case HEAPTIDE_CALI_BEGIN_:
        *path = child(*path, attribute, is_nested, text, bytes);
        break;
    case HEAPTIDE_CALI_SET_:
        // The new value becomes the innermost one of all.
        at = innermost(*path, attribute);
        *path = child(at ? rebased(*path, at, at->parent) : *path, attribute, is_nested, text,
                      bytes);
        break;
    case HEAPTIDE_CALI_END_:
        at = innermost(*path, attribute);
        if (at)
            *path = nests ? at->parent : rebased(*path, at, at->parent);
        break;
    case HEAPTIDE_CALI_END_NAMED_:
        while (at && !is_value(at, attribute, text, bytes))
            at = at->parent;
        if (at)
            *path = at->parent;
        break;
    case HEAPTIDE_CALI_SNAPSHOT_:
        break;
    }
}

// ---- Events

// Returns the sums of the calling thread.
inline Sums &sums_of(Profile *profile)
{
    if (own_thread.profile == profile->number)
        return *own_thread.sums;
    const std::lock_guard<std::mutex> guard(profile->lock);
    if (!own_thread.number)
        own_thread.number = __atomic_add_fetch(&threads, 1, __ATOMIC_RELAXED);
    own_thread.sums = &profile->threads[own_thread.number];
    own_thread.profile = profile->number;
    return *own_thread.sums;
}

// Counts the time since the thread's previous event for its path, in the active profiles.
inline void count_time()
{
    const std::int64_t time = now();
    heaptide_pause(0);
    pthread_rwlock_rdlock(&lock);
    for (Profile *each = active_profiles; each; each = each->next) {
        Sums &sums = sums_of(each);
        const std::int64_t from = sums.last > each->started ? sums.last : each->started;
        std::uint64_t &sum = sums.times[std::make_pair(own_thread.path[0], own_thread.path[1])];
        if (time > from)
            sum += static_cast<std::uint64_t>(time - from);
        sums.last = time > from ? time : from;
    }
    pthread_rwlock_unlock(&lock);
    heaptide_resume(0);
}

// Hidden, so that each module has its own address of it.
__attribute__((visibility("hidden"))) inline void
observe(heaptide_cali_event_ event, const char *attribute, int properties,
        cali_variant_t value) noexcept
{
    if (own_thread.is_busy)
        return;
    own_thread.is_busy = 1;
    if (!(properties & CALI_ATTR_SKIP_EVENTS)
        && __atomic_load_n(&active_profiles, __ATOMIC_ACQUIRE))
        count_time();
    const cali_attr_type type = cali_variant_get_type(value);
    const bool is_text = type == CALI_TYPE_STRING || type == CALI_TYPE_USR;
    const std::string number = is_text ? std::string() : Variant(value).to_string();
    const bool is_nested = (properties & CALI_ATTR_NESTED) != 0;
    const bool is_unaligned = (properties & (CALI_ATTR_UNALIGNED | CALI_ATTR_GLOBAL)) != 0;
    if (!(properties & CALI_ATTR_ASVALUE))
        change(&own_thread.path[is_unaligned], event, attribute, is_nested,
               is_nested && !is_unaligned,
               is_text ? static_cast<const char *>(value.value.unmanaged_const_ptr)
                       : number.c_str(),
               is_text ? cali_variant_get_size(value) : number.size());
    own_thread.is_busy = 0;
}

inline void install()
{
    heaptide_cali_observer_ none = nullptr;
    __atomic_compare_exchange_n(&heaptide_cali_observes_, &none, &observe, false,
                                __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

// Before the constructors of static objects, which may have annotations.
static __attribute__((constructor(101), used)) void install_at_load()
{
    install();
}
// The observer is unloaded with its module. The next start() of a profile installs another.
static __attribute__((destructor(101), used)) void remove_at_unload()
{
    heaptide_cali_observer_ own = &observe;
    __atomic_compare_exchange_n(&heaptide_cali_observes_, &own, nullptr, false,
                                __ATOMIC_RELEASE, __ATOMIC_RELAXED);
}

} // namespace heaptide_regions_

/// Measures the time in regions between start() and stop(). Copies share one profile.
class RegionProfile : public ChannelController {
    typedef heaptide_regions_::Exclusive Exclusive;
    typedef heaptide_regions_::Node Node;

    struct Target : ChannelController::Target {
        heaptide_regions_::Profile profile;

        Target()
            : ChannelController::Target(
                  "region-profile", config_map_t{{"CALI_SERVICES_ENABLE", "aggregate,event,timer"},
                                                 {"CALI_CHANNEL_FLUSH_ON_EXIT", "false"}}),
              profile()
        {
            profile.number
                = __atomic_add_fetch(&heaptide_regions_::profiles, 1, __ATOMIC_RELAXED);
        }
        ~Target() override
        {
            stop();
            const Exclusive exclusive;
            profile.threads.clear();
        }
        void start() override
        {
            heaptide_regions_::install();
            const Exclusive exclusive;
            if (profile.is_active)
                return;
            profile.is_active = profile.is_instantiated = true;
            profile.started = heaptide_regions_::now();
            profile.next = heaptide_regions_::active_profiles;
            __atomic_store_n(&heaptide_regions_::active_profiles, &profile, __ATOMIC_RELEASE);
        }
        void stop() override
        {
            const Exclusive exclusive;
            heaptide_regions_::Profile **at = &heaptide_regions_::active_profiles;
            while (*at && *at != &profile)
                at = &(*at)->next;
            if (*at)
                __atomic_store_n(at, profile.next, __ATOMIC_RELEASE);
            profile.is_active = false;
        }
        void flush() override {}
        bool is_active() const override
        {
            const Exclusive exclusive;
            return profile.is_active;
        }
        bool is_instantiated() const override
        {
            const Exclusive exclusive;
            return profile.is_instantiated;
        }
    };

public:
    /// Times in seconds: of each region by name, of all selected regions, of all profiling.
    typedef std::tuple<std::map<std::string, double>, double, double> region_profile_t;

    RegionProfile() : RegionProfile(std::make_shared<Target>()) {}

    /// Returns times without those of regions inside.
    region_profile_t exclusive_region_times(const std::string &region_type = "")
    {
        return times(region_type, false);
    }
    /// Returns times including those of regions inside.
    region_profile_t inclusive_region_times(const std::string &region_type = "")
    {
        return times(region_type, true);
    }
    /// Removes all times measured so far.
    void clear()
    {
        const Exclusive exclusive;
        for (auto &thread : target_->profile.threads)
            thread.second.times.clear();
    }

private:
    explicit RegionProfile(const std::shared_ptr<Target> &target)
        : ChannelController(target), target_(target)
    {
    }

    static bool is_selected(const Node *node, const std::string &type)
    {
        return type.empty() ? node->is_nested : type == node->attribute;
    }

    // Returns the attribute to select; empty for all nested ones.
    std::string selection(const std::string &type) const
    {
        bool is_known = heaptide_cali_attribute_named_(type.c_str()) != nullptr;
        for (const auto &thread : target_->profile.threads)
            for (const auto &each : thread.second.times)
                for (const Node *path : {each.first.first, each.first.second})
                    is_known |= heaptide_regions_::innermost(path, type.c_str()) != nullptr;
        return is_known ? type : type == "annotation" ? "region" : "";
    }

    region_profile_t times(const std::string &region_type, bool is_inclusive) const
    {
        std::map<std::string, double> by_name;
        double selected = 0, total = 0;
        const Exclusive exclusive;
        const std::string type = selection(region_type);
        for (const auto &thread : target_->profile.threads)
            for (const auto &each : thread.second.times) {
                const double time = static_cast<double>(each.second);
                bool is_counted = false;
                for (const Node *path : {each.first.first, each.first.second})
                    for (; path && (is_inclusive || !is_counted); path = path->parent) {
                        if (is_selected(path, type)) {
                            by_name[std::string(path->text, path->bytes)] += time;
                            is_counted = true;
                        }
                        if (!is_inclusive)
                            break;
                    }
                selected += is_counted ? time : 0;
                total += time;
            }
        for (auto &each : by_name)
            each.second *= 1e-9;
        return region_profile_t(std::move(by_name), selected * 1e-9, total * 1e-9);
    }

    std::shared_ptr<Target> target_;
};

} // namespace cali

#endif
