// Functions of the recorder for the headers in `compat`, which stand for those of other tools.

#ifndef HEAPTIDE_TOOLS_H
#define HEAPTIDE_TOOLS_H

#include "heaptide.h"

#ifdef __cplusplus
extern "C" {
#endif

// A thread in the statistics of malloc-tag, with what the recorder does not know of it. The list of
// threads may grow at its front at any time; nothing is removed from it.
struct heaptide_tag_thread {
    const struct heaptide_tag_thread *next;
    uint64_t tid;
    uint64_t nodes, levels;   // scopes that it entered, with the thread itself; the deepest level
    uint64_t failures;        // scopes beyond the limits
    uint64_t virtual_bytes;   // address space that its creation took
};

// What heaptide_write_tags() writes, and where.
struct heaptide_tag_request {
    uint32_t size;          // sizeof(struct heaptide_tag_request)
    uint32_t form;          // one of HEAPTIDE_TAG_JSON …
    uint64_t start;         // of profiling, in seconds since 1970
    uint64_t nodes_max;     // limit of a thread's scopes
    uint64_t bytes_before;  // allocated by all threads before profiling began
    uint64_t thread_bytes;  // virtual_bytes of threads that are not in the list
    const struct heaptide_tag_thread *threads;
    const char *path;       // of the file; .json or .dot is added if missing. NULL: to `buffer`
    size_t path_length;
    char *buffer;           // may be NULL
    size_t buffer_size;
    int64_t number;         // of a snapshot, added to the path (`.0000`); -1: none
};

// Forms of the statistics of malloc-tag.
enum {
    HEAPTIDE_TAG_JSON = 0,
    HEAPTIDE_TAG_DOT = 1,   // a graph for Graphviz
    HEAPTIDE_TAG_TREE = 2,  // a tree as text
    HEAPTIDE_TAG_MAP = 3    // a line KEY=NUMBER for each statistic
};

// ---- Statistics of malloc-tag, for its header in `compat`

// Begins to count allocations and frees by scope in all threads, for heaptide_write_tags(). What
// happened before is not counted. Not loaded: does nothing.
static inline void heaptide_tally_scopes(void)
{
    const struct heaptide_interface *t = heaptide_table_();
    if (t)
        t->tally_scopes();
}

// Writes the scopes of each thread to a file or to memory, within the process. Signal handlers may
// call it, once the module has called another function of this header. Returns the length of the
// whole text, which may exceed the memory, or -1 if the file cannot be written or if not loaded.
static inline int64_t heaptide_write_tags(const struct heaptide_tag_request *request)
{
    const struct heaptide_interface *t = heaptide_table_();
    return t ? t->write_tags(request) : -1;
}

// ---- Libraries of other tools, for the headers in `compat`

// Libraries whose names the recorder may be preloaded with.
enum {
    HEAPTIDE_FOR_ALLOC_MONITOR = 1,        // libPerfToolsAllocMonitorPreload.so
    HEAPTIDE_FOR_MAX_MEMORY = 2,           // libPerfToolsMaxMemoryPreload.so
    HEAPTIDE_FOR_MALLOC_PROFILER = 4,      // mallocProfiler.so
    HEAPTIDE_FOR_MALLOC_PROFILER_OFF = 8   // mallocProfilerOFF.so
};

// Returns the sum of the HEAPTIDE_FOR_ values with whose names the recorder was preloaded. Not
// loaded: 0.
static inline uint32_t heaptide_replaced_libraries(void)
{
    const struct heaptide_interface *t = heaptide_table_();
    return t ? t->replaced_libraries() : 0;
}

// Settings of a header in `compat`, which all modules of the process share: a preloaded library can
// change those of the program. Accesses are atomic; initially all are 0. Each header has its own:
// that of MallocProfiler the first eight. Not loaded: NULL.
static inline uint64_t *heaptide_tool_settings(void)
{
    const struct heaptide_interface *t = heaptide_table_();
    return t ? t->tool_settings() : NULL;
}

// Omits the dump at exit that the recorder writes in place of mallocProfiler.so. Not loaded: does
// nothing.
static inline void heaptide_omit_dump(void)
{
    const struct heaptide_interface *t = heaptide_table_();
    if (t)
        t->omit_dump();
}

#ifdef __cplusplus
}
#endif

#endif
