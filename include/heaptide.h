//! The C interface to the recorder: scopes, labels, pools, windows, measurements, control, counters
//! and monitors. It works whether or not the recorder is loaded.
//
// Header only: there is nothing to link or to initialise. A program that uses it behaves the same
// without the recorder, where a call costs one load and one branch. Under `heaptide run`, or linked
// with `-lheaptide` before other libraries, the calls reach the recorder.
//
// Unless a comment states otherwise, these rules hold for every function here:
// - Any thread may call it at any time: before main, in constructors and destructors, at exit.
// - Signal handlers must not call it. In a handler a call may do nothing, and the first call of a
//   module, which looks up the recorder, is not safe.
// - It does not print, throw or abort, and leaves errno unchanged.
// - Names are zero-terminated strings of any length, and are copied.
// - "Not loaded" describes the call without the recorder, or with an incompatible version of it.
//   With `--mode counters`, scopes, labels and pools behave as if it were not loaded.
//
// Requires C99 or C++98, and GCC or Clang. The recorder exists for Linux on x86-64 and aarch64.
// heaptide.hpp has guards and classes for C++11.

#ifndef HEAPTIDE_H
#define HEAPTIDE_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

// ---- Types shared with the recorder

// Counters of a process, a thread, a scope, a window or a measurement.
struct heaptide_figures {
    uint64_t allocations, frees, reallocations, failed;       // number of calls
    uint64_t requested_bytes, usable_bytes, freed_bytes;      // sums over blocks
    int64_t live_blocks, live_bytes;  // now; in windows and measurements the change, may be < 0
    uint64_t peak_bytes;     // process: highest live. Window: highest live of the process while it
                             // was open. Measurement: largest rise since its start. Else 0
    uint64_t largest_bytes;  // the largest request; 0 if unknown (windows)
};

// Memory of the process as reported by the kernel.
struct heaptide_memory {
    uint64_t resident_bytes;
    uint64_t virtual_bytes;  // without the address space reserved by the recorder
};

// Number of blocks per size class. Class `b` counts sizes of `b` significant bits: class 0 is 0
// bytes, class 1 is 1 byte, class 2 is 2 and 3 bytes, and so on.
struct heaptide_histograms {
    uint64_t requested[65];  // by requested bytes
    uint64_t usable[65];     // by usable bytes
    uint64_t freed[65];      // freed blocks, by usable bytes
};

// Kinds of blocks that heaptide_resolve() reports.
enum {
    HEAPTIDE_HEAP_BLOCK = 1,
    HEAPTIDE_POOL_BLOCK = 2,
    HEAPTIDE_POOL_CHUNK = 3,
    HEAPTIDE_OTHER_MEMORY = 4
};

// The block or labelled memory that contains an address.
struct heaptide_block {
    const void *start;       // of the block, pool block or labelled region
    size_t bytes;            // its size
    uint64_t uid;            // counts labellings from 1; 0 without a label
    const char *label;       // zero-terminated, valid until exit; NULL without a label
    size_t label_length;     // in bytes
    size_t element_bytes;    // as passed with the label; 0 without a label
    size_t index;            // of the element at the address; 0 without a label
    size_t dimension_count;  // at most 4: the last one includes all further ones
    size_t dimensions[4];
    uint32_t kind;           // one of HEAPTIDE_HEAP_BLOCK …
    uint32_t reserved;
};

// A running measurement. The caller provides the memory; only the recorder uses its content.
struct heaptide_measurement {
    uint64_t opaque[16];
};

// A monitor: functions that the recorder calls on the thread that allocates or frees, once per
// outermost operation. Several threads may call them at once. They may take their own locks and may
// allocate; their allocations are neither recorded nor reported to monitors. They must not throw.
struct heaptide_monitor {
    uint32_t version;  // HEAPTIDE_MONITOR_VERSION
    uint32_t size;     // sizeof(struct heaptide_monitor)
    const char *name;  // copied, at most 31 bytes
    void *context;     // passed to each call
    // Called after the real allocation. May be NULL.
    void (*allocated)(void *context, void *block, size_t requested, size_t usable);
    // Called before the real release. May be NULL.
    void (*freed)(void *context, void *block, size_t usable);
    // Called once, at deregistration or at exit; no other call follows. May be NULL.
    void (*destroy)(void *context);
};

#define HEAPTIDE_MONITOR_VERSION 1

struct heaptide_tag_request; // in heaptide_tools.h

// The table `heaptide_interface`. Later versions append to it. Strings are a pointer and a length.
struct heaptide_interface {
    uint32_t version;
    uint32_t size;
    int (*recording)(void);
    uint32_t (*intern)(const char *attribute, size_t alen, const char *value, size_t vlen);
    uint32_t (*intern_int)(const char *attribute, size_t alen, int64_t value);
    void (*scope_begin)(uint32_t name), (*scope_end)(uint32_t name);
    uint64_t (*context)(void);
    uint64_t (*set_context)(uint64_t context);
    int (*label)(const void *address, const char *label, size_t llen, size_t element_bytes,
                 const size_t *dimensions, size_t dimension_count, size_t region_bytes);
    int (*unlabel)(const void *address);
    int (*resolve)(const void *address, struct heaptide_block *out);
    uint32_t (*pool)(const char *name, size_t length);
    int (*pool_add)(uint32_t pool, const void *chunk, size_t bytes);
    int (*pool_remove)(const void *chunk);
    int (*pool_allocated)(uint32_t pool, const void *block, size_t requested, size_t usable);
    int (*pool_freed)(const void *block);
    int (*pool_reallocated)(const void *old_block, const void *block, size_t requested,
                            size_t usable);
    uint32_t (*window_begin)(const char *name, size_t length);
    int (*window_end)(uint32_t window, struct heaptide_figures *out);
    int (*window_figures)(uint32_t window, struct heaptide_figures *out);
    void (*measure_begin)(struct heaptide_measurement *measurement);
    int (*measure_end)(struct heaptide_measurement *measurement, struct heaptide_figures *out);
    void (*mark)(const char *name, size_t length);
    uint32_t (*snapshot)(const char *name, size_t length);
    void (*turn)(int on);
    void (*pause)(int whole_process), (*resume)(int whole_process);
    int (*active)(int whole_process);
    void (*threshold)(size_t bytes, int below);
    int (*reset)(void);
    void (*flush)(void);
    void (*totals)(struct heaptide_figures *out), (*thread)(struct heaptide_figures *out);
    int (*scope)(uint64_t context, int inclusive, struct heaptide_figures *out);
    void (*histograms)(struct heaptide_histograms *out);
    uint64_t (*monitor_register)(const struct heaptide_monitor *monitor);
    int (*monitor_deregister)(uint64_t id);
    size_t (*monitor_options)(const char *library, size_t length, char *buffer, size_t size);
    void (*scope_begin_named)(const char *attribute, size_t alen, const char *value, size_t vlen);
    void (*scope_end_named)(const char *attribute, size_t alen, const char *value, size_t vlen);
    int (*write)(const char *path, size_t plen, const char *format, size_t flen);
    int (*write_to)(int descriptor, const char *format, size_t flen);
    int (*start)(void);
    void (*separate_threads)(void);
    void (*process_memory)(struct heaptide_memory *out);
    int (*start_with)(const char *settings, size_t length);
    void (*tally_scopes)(void);
    int64_t (*write_tags)(const struct heaptide_tag_request *request);
    uint32_t (*replaced_libraries)(void);
    void (*omit_dump)(void);
    uint64_t *(*tool_settings)(void);
};

// ---- Lookup of the recorder: once per module, at its first call

// Memory shared by all parts of a module (the program or one shared library).
#define HEAPTIDE_SHARED_ __attribute__((weak, visibility("hidden")))

// The recorder was looked up and not found.
#define HEAPTIDE_ABSENT_ ((const struct heaptide_interface *)1)

// In static programs, where nothing can look up the recorder, the recorder finds this section.
struct heaptide_link_type_ {
    const struct heaptide_interface *table;  // NULL before the lookup; or HEAPTIDE_ABSENT_
    size_t needed;                           // bytes of the table
};
HEAPTIDE_SHARED_ __attribute__((section("heaptide_link"))) struct heaptide_link_type_
    heaptide_link_ = {NULL, sizeof(struct heaptide_interface)};

#if (defined(__x86_64__) || defined(__AARCH64EL__)) && defined(__linux__) && defined(__LP64__)

// NULL in most static programs, and with an old C library if libdl is not loaded. With a weakref,
// the program's own references to dlsym stay strong.
static void *heaptide_dlsym_(void *handle, const char *name) __attribute__((weakref("dlsym")));

// Written in assembly so that the reference goes through the global offset table in every kind of
// module: in a program that is not position-independent, the compiler would otherwise emit the
// constant address 0. If the linker resolves the weak symbol to 0 anyway, dlsym still finds the
// recorder.
static __attribute__((noinline, cold, unused)) const struct heaptide_interface *
heaptide_find_(void)
{
    const struct heaptide_interface *found;
#if defined(__x86_64__)
    __asm__(".weak heaptide_interface\n\tmovq heaptide_interface@GOTPCREL(%%rip), %0"
            : "=r"(found));
#else
    __asm__(".weak heaptide_interface\n\tadrp %0, :got:heaptide_interface\n\t"
            "ldr %0, [%0, :got_lo12:heaptide_interface]"
            : "=r"(found));
#endif
    if (!found && heaptide_dlsym_) {
        int kept = errno;
        // RTLD_DEFAULT is NULL in every C library that the recorder supports.
        found = (const struct heaptide_interface *)heaptide_dlsym_(NULL, "heaptide_interface");
        errno = kept;
    }
    // The entries of version 1 are used below without a check. Entries that a later version appends
    // need a comparison with `size` at their use.
    if (!found || found->version < 1 || found->size < sizeof(struct heaptide_interface))
        found = HEAPTIDE_ABSENT_;
    __atomic_store_n(&heaptide_link_.table, found, __ATOMIC_RELEASE);
    return found;
}

#else

#define heaptide_find_() (heaptide_link_.table = HEAPTIDE_ABSENT_)

#endif

// Returns the recorder's table, or NULL if it is not loaded.
static inline const struct heaptide_interface *heaptide_table_(void)
{
    const struct heaptide_interface *t = __atomic_load_n(&heaptide_link_.table, __ATOMIC_ACQUIRE);
    if (__builtin_expect(!t, 0))
        t = heaptide_find_();
    return t == HEAPTIDE_ABSENT_ ? NULL : t;
}

// Returns whether the recorder is loaded into this process.
static inline int heaptide_loaded(void)
{
    return heaptide_table_() != NULL;
}

// Returns whether this process is recorded. It is not recorded with `--mode off`, or if the profile
// could not be created. Not loaded: 0.
static inline int heaptide_recording(void)
{
    const struct heaptide_interface *t = heaptide_table_();
    return t ? t->recording() : 0;
}

// ---- Names of scopes as numbers: a name has the same number in all modules of a process

// Returns the number of the name `value` of attribute "region", or 0 if not loaded or out of space.
static inline uint32_t heaptide_name(const char *value)
{
    const struct heaptide_interface *t = heaptide_table_();
    return t ? t->intern(NULL, 0, value, strlen(value)) : 0;
}

// Returns the number of `value` of any attribute ("function", "phase", …), or 0 likewise.
static inline uint32_t heaptide_name_string(const char *attribute, const char *value)
{
    const struct heaptide_interface *t = heaptide_table_();
    return t ? t->intern(attribute, strlen(attribute), value, strlen(value)) : 0;
}

// Returns the number of an integer value of an attribute ("iteration#main", …), or 0 likewise.
static inline uint32_t heaptide_name_int(const char *attribute, int64_t value)
{
    const struct heaptide_interface *t = heaptide_table_();
    return t ? t->intern_int(attribute, strlen(attribute), value) : 0;
}

static inline uint32_t heaptide_cached_name_(uint32_t *cached, const char *attribute,
                                             const char *value)
{
    uint32_t name;
    if (!heaptide_table_())
        return 0;
    name = __atomic_load_n(cached, __ATOMIC_RELAXED);
    if (__builtin_expect(!name, 0)) {
        name = heaptide_name_string(attribute, value);
        __atomic_store_n(cached, name, __ATOMIC_RELAXED);
    }
    return name;
}

// Variants of heaptide_name() and heaptide_name_string() for hot code in functions: each place
// looks up its name only once, so the strings must be the same at each execution.
#define HEAPTIDE_NAME(value) HEAPTIDE_NAME_STRING("region", value)
#define HEAPTIDE_NAME_STRING(attribute, value)                              \
    (__extension__({                                                        \
        static uint32_t heaptide_site_;                                     \
        heaptide_cached_name_(&heaptide_site_, (attribute), (value));       \
    }))

// ---- Scopes: the current activity of a thread, as a path of names

// Enters the scope with this number. 0, which the lookup of a name returns when out of space, is
// ignored. Not loaded: does nothing.
static inline void heaptide_scope_begin(uint32_t name)
{
    const struct heaptide_interface *t = heaptide_table_();
    if (t && name) t->scope_begin(name);
}

// Leaves the scope with this number, usually the innermost one. If it is open but not innermost,
// the scopes inside it are left too. If it is not open, the call is ignored. The profile counts
// both cases. 0 is ignored, to match heaptide_scope_begin(0). Not loaded: does nothing.
static inline void heaptide_scope_end(uint32_t name)
{
    const struct heaptide_interface *t = heaptide_table_();
    if (t && name) t->scope_end(name);
}

// Leaves the innermost scope, regardless of its name. Not loaded: does nothing.
static inline void heaptide_end_innermost(void)
{
    const struct heaptide_interface *t = heaptide_table_();
    if (t) t->scope_end(0);
}

// These enter and leave the scope `region=value`. Each call looks up the name, which takes some ns;
// HEAPTIDE_BEGIN avoids that. Not loaded: they do nothing.
static inline void heaptide_begin(const char *value)
{
    const struct heaptide_interface *t = heaptide_table_();
    if (t) t->scope_begin_named(NULL, 0, value, strlen(value));
}
static inline void heaptide_end(const char *value)
{
    const struct heaptide_interface *t = heaptide_table_();
    if (t) t->scope_end_named(NULL, 0, value, strlen(value));
}

// These enter and leave the scope `attribute=value`. Not loaded: they do nothing.
static inline void heaptide_begin_string(const char *attribute, const char *value)
{
    const struct heaptide_interface *t = heaptide_table_();
    if (t) t->scope_begin_named(attribute, strlen(attribute), value, strlen(value));
}
static inline void heaptide_end_string(const char *attribute, const char *value)
{
    const struct heaptide_interface *t = heaptide_table_();
    if (t) t->scope_end_named(attribute, strlen(attribute), value, strlen(value));
}
static inline void heaptide_begin_int(const char *attribute, int64_t value)
{
    heaptide_scope_begin(heaptide_name_int(attribute, value));
}
static inline void heaptide_end_int(const char *attribute, int64_t value)
{
    heaptide_scope_end(heaptide_name_int(attribute, value));
}

// Variants for hot code and constant names: each place in the source looks up its name only once.
#define HEAPTIDE_BEGIN(value) HEAPTIDE_BEGIN_STRING("region", value)
#define HEAPTIDE_END(value) HEAPTIDE_END_STRING("region", value)
#define HEAPTIDE_BEGIN_STRING(attribute, value)                                                   \
    (heaptide_loaded() ? heaptide_scope_begin(HEAPTIDE_NAME_STRING(attribute, value)) : (void)0)
#define HEAPTIDE_END_STRING(attribute, value)                                                     \
    (heaptide_loaded() ? heaptide_scope_end(HEAPTIDE_NAME_STRING(attribute, value)) : (void)0)

// Returns the calling thread's scope path, which any thread of the process may adopt with
// heaptide_set_context(). Outside of all scopes, and if not loaded: 0.
static inline uint64_t heaptide_context(void)
{
    const struct heaptide_interface *t = heaptide_table_();
    return t ? t->context() : 0;
}

// Replaces the calling thread's scope path by a result of heaptide_context(), and returns the
// previous path, to restore when the work for the other thread is done. Not loaded: 0.
static inline uint64_t heaptide_set_context(uint64_t context)
{
    const struct heaptide_interface *t = heaptide_table_();
    return t ? t->set_context(context) : 0;
}

// ---- Labels: names of blocks. 1: done. 0: no block starts there, out of space, or not loaded

// Labels the block that starts at `block`, with elements of one byte, replacing its label.
static inline int heaptide_label_block(const void *block, const char *label)
{
    const struct heaptide_interface *t = heaptide_table_();
    return t ? t->label(block, label, strlen(label), 1, NULL, 0, 0) : 0;
}

// Labels the block at `block`, an array of `dimensions[0] × dimensions[1] × …` elements.
static inline int heaptide_label_dimensions(const void *block, const char *label,
                                            size_t element_bytes, const size_t *dimensions,
                                            size_t dimension_count)
{
    const struct heaptide_interface *t = heaptide_table_();
    return t ? t->label(block, label, strlen(label), element_bytes, dimensions, dimension_count, 0)
             : 0;
}

// Labels the block that starts at `block`, an array of `count` elements.
static inline int heaptide_label_array(const void *block, const char *label, size_t element_bytes,
                                       size_t count)
{
    return heaptide_label_dimensions(block, label, element_bytes, &count, 1);
}

// Labels memory that need not be a block: static data, a mapping, a part of a pool. A block that
// starts there is labelled itself, and not counted twice. `bytes`, `element_bytes` > 0.
static inline int heaptide_label_region(const void *address, const char *label, size_t bytes,
                                        size_t element_bytes)
{
    const struct heaptide_interface *t = heaptide_table_();
    size_t count = element_bytes ? bytes / element_bytes : 0;
    return t ? t->label(address, label, strlen(label), element_bytes, &count, 1, bytes) : 0;
}

// Removes the label of the memory at `address`. 1: done. 0: it has no label, or not loaded.
static inline int heaptide_unlabel(const void *address)
{
    const struct heaptide_interface *t = heaptide_table_();
    return t ? t->unlabel(address) : 0;
}

// Label a variable with its own name. For a pointer, its block has one element of the pointed-to
// type, bytes (for void pointers), `count` elements, or `rows` times `columns` elements.
#define HEAPTIDE_LABEL(pointer)                                                          \
    heaptide_label_dimensions((pointer), #pointer, sizeof *(pointer), NULL, 0)
#define HEAPTIDE_LABEL_BLOCK(pointer) heaptide_label_block((pointer), #pointer)
#define HEAPTIDE_LABEL_ARRAY(pointer, count)                                             \
    heaptide_label_array((pointer), #pointer, sizeof *(pointer), (count))
#define HEAPTIDE_LABEL_MATRIX(pointer, rows, columns)                                    \
    (__extension__({                                                                     \
        size_t heaptide_dimensions_[2] = {(size_t)(rows), (size_t)(columns)};            \
        heaptide_label_dimensions((pointer), #pointer, sizeof *(pointer),                \
                                  heaptide_dimensions_, 2);                              \
    }))
#define HEAPTIDE_LABEL_VARIABLE(array)                                                   \
    heaptide_label_region(&(array), #array, sizeof(array), sizeof((array)[0]))

// Finds the block or labelled memory that contains `address`; the address just past its end is not
// part of it. 1: found, `*out` is filled. 0: unknown, freed, or not loaded; `*out` is zeroed.
static inline int heaptide_resolve(const void *address, struct heaptide_block *out)
{
    const struct heaptide_interface *t = heaptide_table_();
    memset(out, 0, sizeof *out);
    return t ? t->resolve(address, out) : 0;
}

// ---- Pools: the blocks that a custom allocator hands out from its chunks. Each byte of a chunk is
// counted once: in the block of the pool that contains it, or else as idle pool space.
// 1: done. 0: unknown address or pool, out of space, or not loaded

// Returns the pool of this name, creating it at the first call; 0 if out of space or not loaded.
static inline uint32_t heaptide_pool_named(const char *name)
{
    const struct heaptide_interface *t = heaptide_table_();
    return t ? t->pool(name, strlen(name)) : 0;
}

// Adds a chunk (a heap block, a mapping, static memory) to the pool.
static inline int heaptide_pool_add(uint32_t pool, const void *chunk, size_t bytes)
{
    const struct heaptide_interface *t = heaptide_table_();
    return t ? t->pool_add(pool, chunk, bytes) : 0;
}

// Removes a chunk from its pool. Call it before releasing the chunk, unless that is done by free().
static inline int heaptide_pool_remove(const void *chunk)
{
    const struct heaptide_interface *t = heaptide_table_();
    return t ? t->pool_remove(chunk) : 0;
}

// Reports that the pool has handed out a block with `usable` bytes for a request of `requested`.
static inline int heaptide_pool_allocated(uint32_t pool, const void *block, size_t requested,
                                          size_t usable)
{
    const struct heaptide_interface *t = heaptide_table_();
    return t ? t->pool_allocated(pool, block, requested, usable) : 0;
}

// Reports that a block returns to its pool. Call it before another thread can get the same address.
static inline int heaptide_pool_freed(const void *block)
{
    const struct heaptide_interface *t = heaptide_table_();
    return t ? t->pool_freed(block) : 0;
}

// Reports that a block has changed its size, and possibly its address, within its pool.
static inline int heaptide_pool_reallocated(const void *old_block, const void *block,
                                            size_t requested, size_t usable)
{
    const struct heaptide_interface *t = heaptide_table_();
    return t ? t->pool_reallocated(old_block, block, requested, usable) : 0;
}

// ---- Windows (of the whole process) and measurements (of one thread)

// Opens a window. Any thread may close it; windows may nest and overlap. Returns its number, from
// 1, or 0 if 64 windows are open already, or not loaded.
static inline uint32_t heaptide_window_open(const char *name)
{
    const struct heaptide_interface *t = heaptide_table_();
    return t ? t->window_begin(name, strlen(name)) : 0;
}

// Closes a window and stores its counters in `*out`, unless `out` is NULL. 1: done. 0: not open, or
// not loaded; `*out` is zeroed.
static inline int heaptide_window_close(uint32_t window, struct heaptide_figures *out)
{
    const struct heaptide_interface *t = heaptide_table_();
    if (out)
        memset(out, 0, sizeof *out);
    return t && window ? t->window_end(window, out) : 0;
}

// Reads the counters of an open window. 1: done. 0: not open, or not loaded; `*out` is zeroed.
static inline int heaptide_window_figures(uint32_t window, struct heaptide_figures *out)
{
    const struct heaptide_interface *t = heaptide_table_();
    memset(out, 0, sizeof *out);
    return t && window ? t->window_figures(window, out) : 0;
}

// Starts to count what this thread allocates and frees. Until heaptide_measure_end(), the
// measurement must not move. Measurements end in reverse order, on their thread. Not loaded: does
// nothing.
static inline void heaptide_measure_begin(struct heaptide_measurement *measurement)
{
    const struct heaptide_interface *t = heaptide_table_();
    if (t) t->measure_begin(measurement);
}

// Ends a measurement and stores its counters, including nested measurements, in `*out`, unless
// `out` is NULL. Also ends open measurements inside it. 1: done. 0: not an open measurement of this
// thread, or not loaded; `*out` is zeroed.
static inline int heaptide_measure_end(struct heaptide_measurement *measurement,
                                       struct heaptide_figures *out)
{
    const struct heaptide_interface *t = heaptide_table_();
    if (out)
        memset(out, 0, sizeof *out);
    return t ? t->measure_end(measurement, out) : 0;
}

// ---- Control

// Records a mark: a named point in time. Not loaded: does nothing.
static inline void heaptide_mark_now(const char *name)
{
    const struct heaptide_interface *t = heaptide_table_();
    if (t) t->mark(name, strlen(name));
}

// Writes a snapshot: a copy of the current profile, as a separate recording next to it. Returns its
// number, from 1, or 0 if it could not be written, or not loaded.
static inline uint32_t heaptide_snapshot_now(const char *name)
{
    const struct heaptide_interface *t = heaptide_table_();
    return t ? t->snapshot(name, strlen(name)) : 0;
}

// Turns recording of the process on (1) or off (0), regardless of earlier calls. While it is off or
// paused, allocations are not recorded; frees of recorded blocks are. Not loaded: does nothing.
static inline void heaptide_turn(int on)
{
    const struct heaptide_interface *t = heaptide_table_();
    if (t) t->turn(on);
}

// Pause and resume recording of this thread (0) or of the whole process (1). Each pause needs one
// resume of the same kind. Not loaded: they do nothing.
static inline void heaptide_pause(int whole_process)
{
    const struct heaptide_interface *t = heaptide_table_();
    if (t) t->pause(whole_process);
}
static inline void heaptide_resume(int whole_process)
{
    const struct heaptide_interface *t = heaptide_table_();
    if (t) t->resume(whole_process);
}

// Returns whether allocations of this thread (0) or of the process (1) are recorded. Not loaded: 0.
static inline int heaptide_active(int whole_process)
{
    const struct heaptide_interface *t = heaptide_table_();
    return t ? t->active(whole_process) : 0;
}

// Records stacks only for requests of at least `bytes`, or, with `below`, of less; others share one
// site. 0, 0 records all stacks again. Not loaded: does nothing.
static inline void heaptide_threshold(size_t bytes, int below)
{
    const struct heaptide_interface *t = heaptide_table_();
    if (t) t->threshold(bytes, below);
}

// Resets the counters of the recording; live blocks stay known. 1: done. 0: failed, or not loaded.
static inline int heaptide_reset(void)
{
    const struct heaptide_interface *t = heaptide_table_();
    return t ? t->reset() : 0;
}

// Writes this thread's buffered events, for readers of the profile. Not loaded: does nothing.
static inline void heaptide_flush(void)
{
    const struct heaptide_interface *t = heaptide_table_();
    if (t) t->flush();
}

// Gives each thread that starts from now on a row of its own, with its id, for up to 2048 rows. By
// default, threads with one name that never overlap share a row. Not loaded: does nothing.
static inline void heaptide_separate_threads(void)
{
    const struct heaptide_interface *t = heaptide_table_();
    if (t) t->separate_threads();
}

// ---- Output

// Starts recording in a program that is linked with the recorder and was started without a variable
// that requests a recording. The recording is temporary: heaptide_write() reads it, and it is
// removed at exit. Call this first in main, before other threads exist. 1: this process is
// recorded, which it may have been before. 0: it cannot be recorded, or not loaded.
static inline int heaptide_start(void)
{
    const struct heaptide_interface *t = heaptide_table_();
    return t ? t->start() : 0;
}

// Like heaptide_start(), with settings of the recording: variables such as "HEAPTIDE_MODE=trace",
// separated by spaces. Variables of the environment take precedence. 0 also if the recorder is too
// old to have this function.
static inline int heaptide_start_with(const char *settings)
{
    const struct heaptide_interface *t = heaptide_table_();
    const size_t end = offsetof(struct heaptide_interface, start_with) + sizeof t->start_with;
    return t && t->size >= end ? t->start_with(settings, strlen(settings)) : 0;
}

// Writes the recording of this process so far to a file, which is replaced atomically, or to
// "stdout" or "stderr". Formats are "text" (the report), "json", "dot" (the tree of scopes),
// "folded", "stacks", "snapshot" (a recording at `path`), "query:CALQL", any other format of
// `heaptide export`, and the name of any view of the `heaptide` command ("tree"). Options of the
// command may follow ("text --by scope --top 5"). The `heaptide` command does the work, in a child
// process invisible to the program, while the calling thread waits. 1: done. 0: failed, or not
// loaded.
static inline int heaptide_write(const char *path, const char *format)
{
    const struct heaptide_interface *t = heaptide_table_();
    if (!t)
        return 0;
    // Keeps the order of the output: earlier output of the program comes first.
    if (!strcmp(path, "stdout"))
        fflush(stdout);
    return t->write(path, strlen(path), format, strlen(format));
}

// Writes to an open file, pipe or socket, at its current position; see heaptide_write().
static inline int heaptide_write_to(int descriptor, const char *format)
{
    const struct heaptide_interface *t = heaptide_table_();
    return t ? t->write_to(descriptor, format, strlen(format)) : 0;
}

// ---- Counters of this process, returned by value without allocation. Not loaded: all zeros

// Counters of the process since its start or last reset; the live counters include older blocks.
static inline struct heaptide_figures heaptide_process_figures(void)
{
    const struct heaptide_interface *t = heaptide_table_();
    struct heaptide_figures figures;
    memset(&figures, 0, sizeof figures);
    if (t) t->totals(&figures);
    return figures;
}

// Counters of the calling thread since its start.
static inline struct heaptide_figures heaptide_thread_figures(void)
{
    const struct heaptide_interface *t = heaptide_table_();
    struct heaptide_figures figures;
    memset(&figures, 0, sizeof figures);
    if (t) t->thread(&figures);
    return figures;
}

// Counters of a scope path, of all threads; with `inclusive`, including the paths below it. All
// zeros if `context` is no path of this process.
static inline struct heaptide_figures heaptide_scope_figures(uint64_t context, int inclusive)
{
    const struct heaptide_interface *t = heaptide_table_();
    struct heaptide_figures figures;
    memset(&figures, 0, sizeof figures);
    if (t) t->scope(context, inclusive, &figures);
    return figures;
}

// Memory of the process as reported by the kernel. The system call takes some µs.
static inline struct heaptide_memory heaptide_process_memory(void)
{
    const struct heaptide_interface *t = heaptide_table_();
    struct heaptide_memory memory;
    memset(&memory, 0, sizeof memory);
    if (t) t->process_memory(&memory);
    return memory;
}

// Numbers of blocks per size class in the process.
static inline struct heaptide_histograms heaptide_size_histograms(void)
{
    const struct heaptide_interface *t = heaptide_table_();
    struct heaptide_histograms histograms;
    memset(&histograms, 0, sizeof histograms);
    if (t) t->histograms(&histograms);
    return histograms;
}

// ---- Monitors

// The recorder accepts at most this many monitors at once.
#define HEAPTIDE_MONITORS_ 32

// The monitors of this module. Each has an atexit() handler that deregisters it, so that the
// recorder calls no monitor after its code is unloaded or its data is destroyed.
HEAPTIDE_SHARED_ uint64_t heaptide_monitor_ids_[HEAPTIDE_MONITORS_];
HEAPTIDE_SHARED_ unsigned char heaptide_monitor_armed_[HEAPTIDE_MONITORS_];

// Deregisters a monitor. On return, no other thread is in its functions, and destroy() has run. A
// monitor may deregister itself in a callback. 1: done. 0: no such monitor, or not loaded.
static inline int heaptide_deregister(uint64_t id)
{
    const struct heaptide_interface *t = heaptide_table_();
    int i;
    if (!t || !id)
        return 0;
    for (i = 0; i < HEAPTIDE_MONITORS_; i++) {
        uint64_t expected = id;
        if (__atomic_compare_exchange_n(&heaptide_monitor_ids_[i], &expected, (uint64_t)0, 0,
                                        __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
            break;
    }
    return t->monitor_deregister(id);
}

// Deregisters the monitor that was registered last: atexit() handlers run in reverse order.
static __attribute__((unused)) void heaptide_monitor_exit_(void)
{
    int i;
    for (i = HEAPTIDE_MONITORS_ - 1; i >= 0; i--) {
        if (__atomic_exchange_n(&heaptide_monitor_armed_[i], (unsigned char)0, __ATOMIC_ACQ_REL)) {
            heaptide_deregister(__atomic_load_n(&heaptide_monitor_ids_[i], __ATOMIC_ACQUIRE));
            return;
        }
    }
}

// Stores an id where a handler finds it, preferably in a slot that needs a new handler.
static inline int heaptide_monitor_keep_(uint64_t id)
{
    int pass, i;
    for (pass = 0; pass < 2; pass++) {
        for (i = 0; i < HEAPTIDE_MONITORS_; i++) {
            uint64_t none = 0;
            if (!pass && __atomic_load_n(&heaptide_monitor_armed_[i], __ATOMIC_ACQUIRE))
                continue;
            if (!__atomic_compare_exchange_n(&heaptide_monitor_ids_[i], &none, id, 0,
                                             __ATOMIC_ACQ_REL, __ATOMIC_RELAXED))
                continue;
            if (__atomic_exchange_n(&heaptide_monitor_armed_[i], (unsigned char)1,
                                    __ATOMIC_ACQ_REL))
                return 1;
            return atexit(heaptide_monitor_exit_) == 0;
        }
    }
    return 0;
}

// Registers a monitor until the first of these: heaptide_deregister(), unloading of the calling
// module, or the point in exit() that matches the registration's place among the calls of atexit().
// Copies the struct. Returns the monitor's number, or 0 if not loaded, if 32 monitors are
// registered already, or if the recorder does not support the version.
static inline uint64_t heaptide_register(const struct heaptide_monitor *monitor)
{
    const struct heaptide_interface *t = heaptide_table_();
    uint64_t id;
    if (!t)
        return 0;
    // The C library may allocate for its list of handlers; that is not the program's allocation.
    t->pause(0);
    id = t->monitor_register(monitor);
    if (id && !heaptide_monitor_keep_(id)) {
        heaptide_deregister(id);
        id = 0;
    }
    t->resume(0);
    return id;
}

#ifdef __cplusplus
}
#endif

#include "heaptide_plugin.h"

#endif
