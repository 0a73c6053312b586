//! Limits for tests in C and C++: how much some statements may allocate on the thread that runs
//! them. Include this after the header of GoogleTest, Catch2 or doctest; then exceeding a limit
//! fails the test. Without one of these frameworks it aborts the program. Includes heaptide.h.
//!
//! Limits are checked only with the recorder: in a test program under `heaptide run` or `heaptide
//! check`. Without it the statements run unchecked. When a limit is exceeded, the stacks with the
//! most allocations are written to standard error.
//!
//!     HEAPTIDE_NO_ALLOC(parser.reset());
//!     HEAPTIDE_MAX_ALLOCATIONS(10, auto rows = parse(text); use(rows));
//!
//! The statements must not leave the macro by return, break, continue or goto. An exception may
//! leave it; then the limit is not checked.

#ifndef HEAPTIDE_TEST_H
#define HEAPTIDE_TEST_H

#include "heaptide.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>

// Limits the number of allocated blocks, including those of realloc.
#define HEAPTIDE_MAX_ALLOCATIONS(most, ...)                                                       \
    HEAPTIDE_LIMITED_("allocations", allocations, most, __VA_ARGS__)
// Limits the sum of requested bytes.
#define HEAPTIDE_MAX_REQUESTED_BYTES(most, ...)                                                   \
    HEAPTIDE_LIMITED_("requested bytes", requested_bytes, most, __VA_ARGS__)
// Limits the rise of live bytes over their number at the start.
#define HEAPTIDE_MAX_PEAK_BYTES(most, ...)                                                        \
    HEAPTIDE_LIMITED_("bytes at once", peak_bytes, most, __VA_ARGS__)
// Limits the growth of the number of live blocks.
#define HEAPTIDE_MAX_LEAKED_BLOCKS(most, ...)                                                     \
    HEAPTIDE_LIMITED_("blocks leaked", live_blocks, most, __VA_ARGS__)
// Limits the growth of live bytes.
#define HEAPTIDE_MAX_LEAKED_BYTES(most, ...)                                                      \
    HEAPTIDE_LIMITED_("bytes leaked", live_bytes, most, __VA_ARGS__)
// Forbids allocations.
#define HEAPTIDE_NO_ALLOC(...) HEAPTIDE_MAX_ALLOCATIONS(0, __VA_ARGS__)

// Fails the test. Define it before including this file to support another framework.
#ifndef HEAPTIDE_TEST_FAILED
#if defined(__cplusplus) && defined(ADD_FAILURE)
#define HEAPTIDE_TEST_FAILED(text) ADD_FAILURE() << (text)
#elif defined(__cplusplus) && defined(FAIL_CHECK)
#define HEAPTIDE_TEST_FAILED(text) FAIL_CHECK(text)
#else
#define HEAPTIDE_TEST_FAILED(text) (fprintf(stderr, "%s\n", (text)), abort())
#endif
#endif

// ---- Implementation of the macros

#define HEAPTIDE_LIMITED_(name, figure, most, ...)                                                \
    do {                                                                                          \
        struct heaptide_limited_ limited_;                                                        \
        char text_[512];                                                                          \
        heaptide_limited_begin_(&limited_, HEAPTIDE_PLACE_);                                      \
        HEAPTIDE_GUARD_                                                                           \
        {                                                                                         \
            __VA_ARGS__;                                                                          \
        }                                                                                         \
        heaptide_limited_end_(&limited_);                                                         \
        if (heaptide_is_exceeded_(&limited_, name, (int64_t)limited_.figures.figure,              \
                                  (int64_t)(most), text_, sizeof text_))                          \
            HEAPTIDE_TEST_FAILED(text_);                                                          \
    } while (0)

#define HEAPTIDE_TEXT_OF_(line) #line
#define HEAPTIDE_TEXT_(line) HEAPTIDE_TEXT_OF_(line)
#define HEAPTIDE_PLACE_ __FILE__ ":" HEAPTIDE_TEXT_(__LINE__)

struct heaptide_limited_ {
    const char *place;
    int is_open;
    struct heaptide_measurement measurement;
    struct heaptide_figures figures;
};

static inline void heaptide_limited_begin_(struct heaptide_limited_ *limited, const char *place)
{
    memset(limited, 0, sizeof *limited);
    limited->place = place;
    limited->is_open = 1;
    heaptide_begin_string("limit", place);
    heaptide_measure_begin(&limited->measurement);
}

static inline void heaptide_limited_end_(struct heaptide_limited_ *limited)
{
    if (!limited->is_open)
        return;
    limited->is_open = 0;
    heaptide_measure_end(&limited->measurement, &limited->figures);
    heaptide_end_string("limit", limited->place);
}

// Returns whether the limit is exceeded. If so, prints the stacks of its scope and writes the
// message to `text`.
static inline int heaptide_is_exceeded_(const struct heaptide_limited_ *limited, const char *name,
                                        int64_t value, int64_t most, char *text, size_t size)
{
    char view[1024], *end = view;
    const char *at = limited->place;
    if (value <= most)
        return 0;
    end += sprintf(view, "report --by stack --metric allocations --top 5 --focus 'scope:^limit=");
    // Escape the place so that the expression matches only itself. A long place is truncated, and a
    // quote becomes a wildcard.
    for (; *at && end < view + sizeof view - 8; at++) {
        if (strchr("\\.+*?()|[]{}^$# ", *at))
            *end++ = '\\';
        *end++ = *at == '\'' ? '.' : *at;
    }
    strcpy(end, *at ? "'" : "$'");
    heaptide_write("stderr", view);
    snprintf(text, size, "%s: memory limit exceeded: %" PRId64 " %s, limit %" PRId64,
             limited->place, value, name, most);
    return 1;
}

#ifdef __cplusplus
// Ends the measurement if an exception leaves the statements.
struct heaptide_guard_ {
    struct heaptide_limited_ *limited;
    explicit heaptide_guard_(struct heaptide_limited_ *of) : limited(of) {}
    ~heaptide_guard_() { heaptide_limited_end_(limited); }
};
#define HEAPTIDE_GUARD_ struct heaptide_guard_ guard_(&limited_);
#else
#define HEAPTIDE_GUARD_
#endif

#endif
