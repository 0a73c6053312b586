//! Caliper's timed events that may end on another thread, for programs written for Caliper.

#ifndef HEAPTIDE_COMPAT_CALI_ASYNC_EVENT_H
#define HEAPTIDE_COMPAT_CALI_ASYNC_EVENT_H

#include "cali.h"

#include <chrono>
#include <cstdint>

namespace cali {

/// An event with a duration: its begin and its end are snapshots `async.begin` and `async.end`, the
/// latter with `event.duration.ns`.
class TimedAsyncEvent {
public:
    TimedAsyncEvent() : message_(nullptr), start_() {}

    /// The message must stay valid until the end of the event.
    static TimedAsyncEvent begin(const char *message)
    {
        TimedAsyncEvent event;
        event.message_ = message;
        event.start_ = std::chrono::steady_clock::now();
        const cali_id_t attribute = named("async.begin", CALI_TYPE_STRING, 0);
        const cali_variant_t value = cali_make_variant_from_string(message);
        cali_push_snapshot(CALI_SCOPE_THREAD, 1, &attribute, &value);
        return event;
    }

    void end()
    {
        if (!message_)
            return;
        const auto passed = std::chrono::duration_cast<std::chrono::nanoseconds>(
            std::chrono::steady_clock::now() - start_);
        const cali_id_t attributes[] = {
            named("async.end", CALI_TYPE_STRING, 0),
            named("event.duration.ns", CALI_TYPE_UINT, CALI_ATTR_ASVALUE),
        };
        const cali_variant_t values[] = {
            cali_make_variant_from_string(message_),
            cali_make_variant_from_uint(static_cast<std::uint64_t>(passed.count())),
        };
        cali_push_snapshot(CALI_SCOPE_THREAD, 2, attributes, values);
    }

private:
    static cali_id_t named(const char *name, cali_attr_type type, int properties)
    {
        return heaptide_loaded() ? cali_create_attribute(name, type, properties) : CALI_INV_ID;
    }

    const char *message_;
    std::chrono::steady_clock::time_point start_;
};

} // namespace cali

#endif
