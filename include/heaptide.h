//! The C interface to a recorder that may or may not be loaded: scopes, labels, pools, windows,
//! measurements, control, figures and monitors.
//
// Header only: nothing to link, nothing to initialise. A program that uses it runs the same without
// the recorder, where each call costs one load and one branch; under `heaptide run PROGRAM`, or
// linked with `-lheaptide` before other libraries, the calls reach the recorder.
//
// Rules for everything here, unless a comment says otherwise:
// - Any thread may call it, at any time: before main, in constructors and destructors, at exit.
// - Not from signal handlers: there a call may do nothing, and a module's first call, which looks
//   the recorder up, is not safe.
// - Nothing prints, throws or aborts, and errno stays as it was.
// - Names are zero-terminated, of any length, and copied.
// - "Not loaded" says what a call does without the recorder, or where the recorder is of another
//   version. In `--mode counters` scopes, labels and pools do nothing, as if not loaded.
//
// C99 or C++98 and later, GCC or Clang; the recorder exists for x86-64 and aarch64 Linux. C++11
// programs find guards and classes in heaptide.hpp.

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

// Figures of a process, a thread, a scope, a window or a measurement.
struct heaptide_figures {
    uint64_t allocations, frees, reallocations, failed;       // numbers of calls
    uint64_t requested_bytes, usable_bytes, freed_bytes;      // sums over blocks
    int64_t live_blocks, live_bytes;  // live now; window, measurement: the change, may be negative
    uint64_t peak_bytes;     // process: highest live. Window: highest live of the process while it
                             // was open. Measurement: highest rise over its start. Else 0
    uint64_t largest_bytes;  // the largest request; 0 where it is not known (windows)
};

// Memory of the process, as the kernel counts it.
struct heaptide_memory {
    uint64_t resident_bytes;
    uint64_t virtual_bytes;  // without what the recorder has reserved
};

// How many blocks had a size of `b` significant bits: class 0 is 0 bytes, 1 is 1, 2 is 2 and 3, …
struct heaptide_histograms {
    uint64_t requested[65];  // by bytes asked for
    uint64_t usable[65];     // by bytes received
    uint64_t freed[65];      // freed blocks by usable bytes
};

// Kinds of a block that heaptide_resolve() finds.
enum {
    HEAPTIDE_HEAP_BLOCK = 1,
    HEAPTIDE_POOL_BLOCK = 2,
    HEAPTIDE_POOL_CHUNK = 3,
    HEAPTIDE_OTHER_MEMORY = 4
};

// What is at an address.
struct heaptide_block {
    const void *start;       // of the block, pool block or labelled region that holds the address
    size_t bytes;            // its size
    uint64_t uid;            // from 1, one for each labelling; 0 without a label
    const char *label;       // zero-terminated, valid as long as the process; NULL without a label
    size_t label_length;     // in bytes
    size_t element_bytes;    // as given to the label; 0 without a label
    size_t index;            // of the element that holds the address; 0 without a label
    size_t dimension_count;  // at most 4: further ones are multiplied into the last
    size_t dimensions[4];
    uint32_t kind;           // one of HEAPTIDE_HEAP_BLOCK …
    uint32_t reserved;
};

// A running measurement: the caller's memory, its content the recorder's.
struct heaptide_measurement {
    uint64_t opaque[16];
};

// A monitor: functions that the recorder calls on the thread that allocates or frees, once per
// outermost operation. They may allocate (that is neither recorded nor told to monitors), take
// locks of their own, and must not throw. Several threads call them at once.
struct heaptide_monitor {
    uint32_t version;  // HEAPTIDE_MONITOR_VERSION
    uint32_t size;     // sizeof(struct heaptide_monitor)
    const char *name;  // copied, its first 31 bytes
    void *context;     // handed to each call
    // After the real allocation. May be NULL.
    void (*allocated)(void *context, void *block, size_t requested, size_t usable);
    // Before the real release. May be NULL.
    void (*freed)(void *context, void *block, size_t usable);
    // Once, when deregistered or when the process exits; no call follows it. May be NULL.
    void (*destroy)(void *context);
};

#define HEAPTIDE_MONITOR_VERSION 1

// The table `heaptide_interface`; later versions append. Strings are pointer and length here.
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
};

// ---- Finding the recorder: once a module, at its first call

// Memory that all parts of a module (the program, one shared library) share.
#define HEAPTIDE_SHARED_ __attribute__((weak, visibility("hidden")))

// Looked for and not there.
#define HEAPTIDE_ABSENT_ ((const struct heaptide_interface *)1)

// NULL until looked for; then the recorder's table or HEAPTIDE_ABSENT_.
HEAPTIDE_SHARED_ const struct heaptide_interface *heaptide_found_;

#if (defined(__x86_64__) || defined(__AARCH64EL__)) && defined(__linux__) && defined(__LP64__)

// Not there in static programs, nor with an old C library and no libdl. A weak reference of this
// kind leaves a program's own use of dlsym as strong as it is.
static void *heaptide_dlsym_(void *handle, const char *name) __attribute__((weakref("dlsym")));

// Written as assembly so that the reference goes through the global offset table in every kind of
// module: a program that is not position independent would otherwise bake in the address 0. Where
// the linker settles a weak symbol as absent anyway, dlsym still finds the recorder.
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
        // RTLD_DEFAULT is NULL in every C library that has the recorder.
        found = (const struct heaptide_interface *)heaptide_dlsym_(NULL, "heaptide_interface");
        errno = kept;
    }
    // Every entry of version 1 is used below without a further look; what a later version appends
    // has to be tested against `size` where it is used.
    if (!found || found->version < 1 || found->size < sizeof(struct heaptide_interface))
        found = HEAPTIDE_ABSENT_;
    __atomic_store_n(&heaptide_found_, found, __ATOMIC_RELEASE);
    return found;
}

#else

#define heaptide_find_() (heaptide_found_ = HEAPTIDE_ABSENT_)

#endif

// The recorder's table, or NULL.
static inline const struct heaptide_interface *heaptide_table_(void)
{
    const struct heaptide_interface *found = __atomic_load_n(&heaptide_found_, __ATOMIC_ACQUIRE);
    if (__builtin_expect(!found, 0))
        found = heaptide_find_();
    return found == HEAPTIDE_ABSENT_ ? NULL : found;
}

// Whether the recorder is in this process. Not loaded: 0.
static inline int heaptide_loaded(void)
{
    return heaptide_table_() != NULL;
}

// Whether this process is recorded: not with `--mode off`, nor where no profile could be made.
// Not loaded: 0.
static inline int heaptide_recording(void)
{
    const struct heaptide_interface *t = heaptide_table_();
    return t ? t->recording() : 0;
}

// ---- Names of scopes, as numbers: the same name has the same number in all modules of a process

// The number of the name `value` of attribute "region". 0: not loaded, or no room.
static inline uint32_t heaptide_name(const char *value)
{
    const struct heaptide_interface *t = heaptide_table_();
    return t ? t->intern(NULL, 0, value, strlen(value)) : 0;
}

// The number of `value` of an attribute of your choice ("function", "phase", "loop", …). 0: not
// loaded, or no room.
static inline uint32_t heaptide_name_string(const char *attribute, const char *value)
{
    const struct heaptide_interface *t = heaptide_table_();
    return t ? t->intern(attribute, strlen(attribute), value, strlen(value)) : 0;
}

// The number of an integer value of an attribute ("iteration#main", …). 0: not loaded, or no room.
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

// heaptide_name() and heaptide_name_string() for hot code: each place in the source looks its name
// up once. The texts must be the same at each execution. Usable in functions only.
#define HEAPTIDE_NAME(value) HEAPTIDE_NAME_STRING("region", value)
#define HEAPTIDE_NAME_STRING(attribute, value)                              \
    (__extension__({                                                        \
        static uint32_t heaptide_site_;                                     \
        heaptide_cached_name_(&heaptide_site_, (attribute), (value));       \
    }))

// ---- Scopes: what a thread is doing, as a path of names

// Enters a scope by number. 0, the number of a name that found no room, enters nothing.
// Not loaded: nothing.
static inline void heaptide_scope_begin(uint32_t name)
{
    const struct heaptide_interface *t = heaptide_table_();
    if (t && name)
        t->scope_begin(name);
}

// Leaves a scope by number; it is the innermost in a program that nests properly. Another one that
// is open is left with all scopes in it; one that is not open is ignored; both are counted in the
// profile. 0 is ignored, so that it pairs with a begin of 0. Not loaded: nothing.
static inline void heaptide_scope_end(uint32_t name)
{
    const struct heaptide_interface *t = heaptide_table_();
    if (t && name)
        t->scope_end(name);
}

// Leaves the innermost scope, whatever its name. Not loaded: nothing.
static inline void heaptide_end_innermost(void)
{
    const struct heaptide_interface *t = heaptide_table_();
    if (t)
        t->scope_end(0);
}

// Enters and leaves the scope `region=value`, which is looked up at each call (some ns; see
// HEAPTIDE_BEGIN). Not loaded: nothing.
static inline void heaptide_begin(const char *value)
{
    const struct heaptide_interface *t = heaptide_table_();
    if (t)
        t->scope_begin_named(NULL, 0, value, strlen(value));
}
static inline void heaptide_end(const char *value)
{
    const struct heaptide_interface *t = heaptide_table_();
    if (t)
        t->scope_end_named(NULL, 0, value, strlen(value));
}

// Enters and leaves the scope `attribute=value`. Not loaded: nothing.
static inline void heaptide_begin_string(const char *attribute, const char *value)
{
    const struct heaptide_interface *t = heaptide_table_();
    if (t)
        t->scope_begin_named(attribute, strlen(attribute), value, strlen(value));
}
static inline void heaptide_end_string(const char *attribute, const char *value)
{
    const struct heaptide_interface *t = heaptide_table_();
    if (t)
        t->scope_end_named(attribute, strlen(attribute), value, strlen(value));
}
static inline void heaptide_begin_int(const char *attribute, int64_t value)
{
    heaptide_scope_begin(heaptide_name_int(attribute, value));
}
static inline void heaptide_end_int(const char *attribute, int64_t value)
{
    heaptide_scope_end(heaptide_name_int(attribute, value));
}

// The same for hot code and fixed names: each place looks its name up once.
#define HEAPTIDE_BEGIN(value) HEAPTIDE_BEGIN_STRING("region", value)
#define HEAPTIDE_END(value) HEAPTIDE_END_STRING("region", value)
#define HEAPTIDE_BEGIN_STRING(attribute, value)                                                   \
    (heaptide_loaded() ? heaptide_scope_begin(HEAPTIDE_NAME_STRING(attribute, value)) : (void)0)
#define HEAPTIDE_END_STRING(attribute, value)                                                     \
    (heaptide_loaded() ? heaptide_scope_end(HEAPTIDE_NAME_STRING(attribute, value)) : (void)0)

// The calling thread's scope path; 0 outside of all scopes. Any thread of the process may take it
// over. Not loaded: 0.
static inline uint64_t heaptide_context(void)
{
    const struct heaptide_interface *t = heaptide_table_();
    return t ? t->context() : 0;
}

// Makes a path from heaptide_context() the calling thread's own, and returns the one before, which
// is to be set again when the borrowed work is done. Not loaded: 0.
static inline uint64_t heaptide_set_context(uint64_t context)
{
    const struct heaptide_interface *t = heaptide_table_();
    return t ? t->set_context(context) : 0;
}

// ---- Labels: what a block is called. 1: done. 0: no block starts there, no room, or not loaded

// Names the block that starts at `block`, elements of one byte. Naming it anew moves it there.
static inline int heaptide_label_block(const void *block, const char *label)
{
    const struct heaptide_interface *t = heaptide_table_();
    return t ? t->label(block, label, strlen(label), 1, NULL, 0, 0) : 0;
}

// Names the block that starts at `block`, an array of `dimensions[0] × dimensions[1] × …` elements.
static inline int heaptide_label_dimensions(const void *block, const char *label,
                                            size_t element_bytes, const size_t *dimensions,
                                            size_t dimension_count)
{
    const struct heaptide_interface *t = heaptide_table_();
    return t ? t->label(block, label, strlen(label), element_bytes, dimensions, dimension_count, 0)
             : 0;
}

// Names the block that starts at `block`, an array of `count` elements.
static inline int heaptide_label_array(const void *block, const char *label, size_t element_bytes,
                                       size_t count)
{
    return heaptide_label_dimensions(block, label, element_bytes, &count, 1);
}

// Names memory that need not be a block: static data, a mapping, a part of a pool. A heap or pool
// block that starts there is named as such, not counted twice. `bytes`, `element_bytes` > 0.
static inline int heaptide_label_region(const void *address, const char *label, size_t bytes,
                                        size_t element_bytes)
{
    const struct heaptide_interface *t = heaptide_table_();
    size_t count = element_bytes ? bytes / element_bytes : 0;
    return t ? t->label(address, label, strlen(label), element_bytes, &count, 1, bytes) : 0;
}

// Takes the label off what starts at `address`. 1: done. 0: it has none, or not loaded.
static inline int heaptide_unlabel(const void *address)
{
    const struct heaptide_interface *t = heaptide_table_();
    return t ? t->unlabel(address) : 0;
}

// The variable's own name as label: a pointer's block with elements of what it points to, `count`
// of them, rows of columns of them, or of bytes (for void pointers); an array variable as memory.
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

// Finds what holds an address: the start of a block, an address within it, not one past its end.
// 1: found, and `*out` filled. 0: unknown, freed, or not loaded; `*out` is then all zeros.
static inline int heaptide_resolve(const void *address, struct heaptide_block *out)
{
    const struct heaptide_interface *t = heaptide_table_();
    memset(out, 0, sizeof *out);
    return t ? t->resolve(address, out) : 0;
}

// ---- Pools: what a custom allocator does with the chunks it got. Bytes of a chunk are counted
// once: as the pool's blocks where there are such, as idle pool space elsewhere.
// 1: done. 0: unknown address or pool, no room, or not loaded

// The pool of this name, made when first named. 0: no room, or not loaded.
static inline uint32_t heaptide_pool_named(const char *name)
{
    const struct heaptide_interface *t = heaptide_table_();
    return t ? t->pool(name, strlen(name)) : 0;
}

// From now on the chunk (a heap block, a mapping, static memory) belongs to the pool.
static inline int heaptide_pool_add(uint32_t pool, const void *chunk, size_t bytes)
{
    const struct heaptide_interface *t = heaptide_table_();
    return t ? t->pool_add(pool, chunk, bytes) : 0;
}

// It does no longer. Call it before the chunk is given back; free() of a heap block implies it.
static inline int heaptide_pool_remove(const void *chunk)
{
    const struct heaptide_interface *t = heaptide_table_();
    return t ? t->pool_remove(chunk) : 0;
}

// The pool has handed out a block of `requested` bytes, for which it set `usable` bytes apart.
static inline int heaptide_pool_allocated(uint32_t pool, const void *block, size_t requested,
                                          size_t usable)
{
    const struct heaptide_interface *t = heaptide_table_();
    return t ? t->pool_allocated(pool, block, requested, usable) : 0;
}

// A block goes back to its pool. Call it before another thread can get the same address.
static inline int heaptide_pool_freed(const void *block)
{
    const struct heaptide_interface *t = heaptide_table_();
    return t ? t->pool_freed(block) : 0;
}

// A block has changed its size, and possibly its place, within its pool.
static inline int heaptide_pool_reallocated(const void *old_block, const void *block,
                                            size_t requested, size_t usable)
{
    const struct heaptide_interface *t = heaptide_table_();
    return t ? t->pool_reallocated(old_block, block, requested, usable) : 0;
}

// ---- Windows (of the whole process) and measurements (of one thread)

// Opens a window; any thread may close it; windows nest and overlap as they like. Its number, from
// 1. 0: 64 are open already, or not loaded.
static inline uint32_t heaptide_window_open(const char *name)
{
    const struct heaptide_interface *t = heaptide_table_();
    return t ? t->window_begin(name, strlen(name)) : 0;
}

// Closes a window and tells its figures; `out` may be NULL. 1: done. 0: not open, or not loaded;
// `*out` is then all zeros.
static inline int heaptide_window_close(uint32_t window, struct heaptide_figures *out)
{
    const struct heaptide_interface *t = heaptide_table_();
    if (out)
        memset(out, 0, sizeof *out);
    return t && window ? t->window_end(window, out) : 0;
}

// The figures of an open window so far. 1: done. 0: not open, or not loaded; then all zeros.
static inline int heaptide_window_figures(uint32_t window, struct heaptide_figures *out)
{
    const struct heaptide_interface *t = heaptide_table_();
    memset(out, 0, sizeof *out);
    return t && window ? t->window_figures(window, out) : 0;
}

// Begins to measure what this thread allocates and frees. The measurement is linked into the
// thread until heaptide_measure_end(): it must not move, and measurements end in the reverse order
// of their beginnings, on the same thread. Not loaded: nothing.
static inline void heaptide_measure_begin(struct heaptide_measurement *measurement)
{
    const struct heaptide_interface *t = heaptide_table_();
    if (t)
        t->measure_begin(measurement);
}

// Ends it; `out` may be NULL. What inner measurements counted counts here too. 1: done. 0: it is
// not this thread's innermost, or not loaded; `*out` is then all zeros.
static inline int heaptide_measure_end(struct heaptide_measurement *measurement,
                                       struct heaptide_figures *out)
{
    const struct heaptide_interface *t = heaptide_table_();
    if (out)
        memset(out, 0, sizeof *out);
    return t ? t->measure_end(measurement, out) : 0;
}

// ---- Control

// Puts a named point on the timeline. Not loaded: nothing.
static inline void heaptide_mark_now(const char *name)
{
    const struct heaptide_interface *t = heaptide_table_();
    if (t)
        t->mark(name, strlen(name));
}

// Writes a copy of the profile as it is now, a recording of its own, beside it. Its number, from 1.
// 0: it could not be written, or not loaded.
static inline uint32_t heaptide_snapshot_now(const char *name)
{
    const struct heaptide_interface *t = heaptide_table_();
    return t ? t->snapshot(name, strlen(name)) : 0;
}

// Turns recording in the process on (1) or off (0), absolutely. While it is off, and while paused,
// allocations are not seen; frees of recorded blocks still are. Not loaded: nothing.
static inline void heaptide_turn(int on)
{
    const struct heaptide_interface *t = heaptide_table_();
    if (t)
        t->turn(on);
}

// Pauses recording of this thread (0) or of the whole process (1), until as many resumes of the
// same kind. Not loaded: nothing.
static inline void heaptide_pause(int whole_process)
{
    const struct heaptide_interface *t = heaptide_table_();
    if (t)
        t->pause(whole_process);
}
static inline void heaptide_resume(int whole_process)
{
    const struct heaptide_interface *t = heaptide_table_();
    if (t)
        t->resume(whole_process);
}

// Whether allocations of this thread (0) or of the process (1) are recorded now. Not loaded: 0.
static inline int heaptide_active(int whole_process)
{
    const struct heaptide_interface *t = heaptide_table_();
    return t ? t->active(whole_process) : 0;
}

// Records stacks only of requests of at least `bytes`, or with `below` only of less; the others
// share one site. 0, 0: of all again. Not loaded: nothing.
static inline void heaptide_threshold(size_t bytes, int below)
{
    const struct heaptide_interface *t = heaptide_table_();
    if (t)
        t->threshold(bytes, below);
}

// Starts the counts of the recording anew; live blocks stay known. 1: done. 0: it could not, or not
// loaded.
static inline int heaptide_reset(void)
{
    const struct heaptide_interface *t = heaptide_table_();
    return t ? t->reset() : 0;
}

// Writes what this thread holds back in batches, for one who reads the profile from outside.
// Not loaded: nothing.
static inline void heaptide_flush(void)
{
    const struct heaptide_interface *t = heaptide_table_();
    if (t)
        t->flush();
}

// From now on each thread that begins has a row of its own, with its id; else threads of one name
// that run one after the other share a row. Up to 2048 rows. Not loaded: nothing.
static inline void heaptide_separate_threads(void)
{
    const struct heaptide_interface *t = heaptide_table_();
    if (t)
        t->separate_threads();
}

// ---- Output

// Starts recording in a program that is linked with the recorder and was started without a variable
// that asks for a recording. The recording is a temporary one: heaptide_write() writes from it, and
// it is removed at exit. Call it first in main: not while there are several threads. 1: this
// process is recorded, also if it was before. 0: it cannot be, or not loaded.
static inline int heaptide_start(void)
{
    const struct heaptide_interface *t = heaptide_table_();
    return t ? t->start() : 0;
}

// Writes what was recorded of this process so far to a file, which is replaced as a whole, or to
// "stdout" or "stderr". The formats: "text" (the report), "json", "dot" (the tree of scopes),
// "folded", "stacks", "snapshot" (a recording, which the path names), "query:CALQL", any other
// format of `heaptide export`, and the views of the command by their name ("tree"); options of the
// command may follow ("text --by scope --top 5"). The `heaptide` command does it, in a child that
// the program does not notice, while the calling thread waits. 1: done. 0: it could not, or not
// loaded.
static inline int heaptide_write(const char *path, const char *format)
{
    const struct heaptide_interface *t = heaptide_table_();
    if (!t)
        return 0;
    // What the program has printed before comes first.
    if (!strcmp(path, "stdout"))
        fflush(stdout);
    return t->write(path, strlen(path), format, strlen(format));
}

// The same to an open file, pipe or socket, where it stands.
static inline int heaptide_write_to(int descriptor, const char *format)
{
    const struct heaptide_interface *t = heaptide_table_();
    return t ? t->write_to(descriptor, format, strlen(format)) : 0;
}

// ---- Own figures, by value, without allocation. Not loaded: all zeros

// Of the process since its start, or its last reset; live is all that is live.
static inline struct heaptide_figures heaptide_process_figures(void)
{
    const struct heaptide_interface *t = heaptide_table_();
    struct heaptide_figures figures;
    memset(&figures, 0, sizeof figures);
    if (t)
        t->totals(&figures);
    return figures;
}

// Of the calling thread since its start.
static inline struct heaptide_figures heaptide_thread_figures(void)
{
    const struct heaptide_interface *t = heaptide_table_();
    struct heaptide_figures figures;
    memset(&figures, 0, sizeof figures);
    if (t)
        t->thread(&figures);
    return figures;
}

// Of a scope path in all threads; `inclusive`: with the paths below it. All zeros too if it is no
// path of this process.
static inline struct heaptide_figures heaptide_scope_figures(uint64_t context, int inclusive)
{
    const struct heaptide_interface *t = heaptide_table_();
    struct heaptide_figures figures;
    memset(&figures, 0, sizeof figures);
    if (t)
        t->scope(context, inclusive, &figures);
    return figures;
}

// Of the process as the kernel counts it; the system call takes some µs.
static inline struct heaptide_memory heaptide_process_memory(void)
{
    const struct heaptide_interface *t = heaptide_table_();
    struct heaptide_memory memory;
    memset(&memory, 0, sizeof memory);
    if (t)
        t->process_memory(&memory);
    return memory;
}

// How often each class of sizes occurred in the process.
static inline struct heaptide_histograms heaptide_size_histograms(void)
{
    const struct heaptide_interface *t = heaptide_table_();
    struct heaptide_histograms histograms;
    memset(&histograms, 0, sizeof histograms);
    if (t)
        t->histograms(&histograms);
    return histograms;
}

// ---- Monitors

// More than the recorder accepts at once are never registered.
#define HEAPTIDE_MONITORS_ 32

// The monitors of this module, each with a handler of atexit() that takes it away, so that none is
// called whose code is unloaded or whose data is destroyed.
HEAPTIDE_SHARED_ uint64_t heaptide_monitor_ids_[HEAPTIDE_MONITORS_];
HEAPTIDE_SHARED_ unsigned char heaptide_monitor_armed_[HEAPTIDE_MONITORS_];

// Deregisters a monitor and waits until no other thread is in its functions; destroy() has run when
// it returns. A monitor may deregister itself in a callback. 1: done. 0: no such monitor, or not
// loaded.
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

// Handlers run in the reverse order of registration, each for the monitor that was added last.
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

// Puts an id where its handler finds it: with a handler of its own while there are places without.
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

// Registers a monitor until heaptide_deregister(), until the calling module is unloaded, or until
// exit() has come to where the registration stands among the calls of atexit(). The struct is
// copied. The monitor's number; 0: not loaded, 32 are registered already, or the version is not
// the recorder's.
static inline uint64_t heaptide_register(const struct heaptide_monitor *monitor)
{
    const struct heaptide_interface *t = heaptide_table_();
    uint64_t id;
    if (!t)
        return 0;
    // The C library may allocate for its list of handlers, which is none of the program's doing.
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
