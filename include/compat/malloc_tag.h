//! malloc-tag's interface, for programs that Heaptide records: `MallocTagEngine`, `MallocTagScope`
//! and the `MTAG_*` variables.
//
// A program written for malloc-tag can be built with this header instead of malloc-tag's. Requires
// C++11. Nothing is linked if the program runs under `heaptide run`; if it is linked with
// libheaptide.so, recording starts in init(). Without the recorder all functions but
// get_linux_… do nothing, and return false, zero or empty values. docs/replaces.md lists the
// differences from malloc-tag.

#ifndef HEAPTIDE_COMPAT_MALLOC_TAG_H
#define HEAPTIDE_COMPAT_MALLOC_TAG_H

#include "../heaptide.hpp"
#include "../heaptide_tools.h"

#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <malloc.h>
#include <map>
#include <mutex>
#include <pthread.h>
#include <string>
#include <sys/syscall.h>
#include <sys/types.h>
#include <unistd.h>

// Variables with the paths of outputs, and the interval of snapshots in seconds.
#define MTAG_STATS_OUTPUT_JSON_ENV "MTAG_STATS_OUTPUT_JSON"
#define MTAG_STATS_OUTPUT_GRAPHVIZDOT_ENV "MTAG_STATS_OUTPUT_GRAPHVIZ_DOT"
#define MTAG_SNAPSHOT_OUTPUT_PREFIX_ENV "MTAG_SNAPSHOT_OUTPUT_PREFIX_FILE_PATH"
#define MTAG_SNAPSHOT_INTERVAL_ENV "MTAG_SNAPSHOT_INTERVAL_SEC"

// Default limits of a thread's tree, and the interval that disables snapshots.
#define MTAG_DEFAULT_MAX_TREE_NODES 256
#define MTAG_DEFAULT_MAX_TREE_LEVELS 256
#define MTAG_SNAPSHOT_DISABLED 0

/// The first three are those of heaptide_write_tags().
enum MallocTagOutputFormat_e {
    MTAG_OUTPUT_FORMAT_JSON,
    MTAG_OUTPUT_FORMAT_GRAPHVIZ_DOT,
    MTAG_OUTPUT_FORMAT_HUMANFRIENDLY_TREE,
    MTAG_OUTPUT_FORMAT_ALL ///< JSON and DOT.
};

typedef std::map<std::string, size_t> MallocTagStatMap_t;

namespace heaptide {
namespace malloc_tag {

/// The limit of siblings in a scope. Trees here are unlimited; the interface reports malloc-tag's
/// limit.
enum { siblings_max = 16, trees_max = 128 };

/// A scope of a thread. Nodes are never freed.
struct Node {
    Node *parent;
    char *name;
    std::uint32_t number; ///< Of the name, for the recorder.
    unsigned level;
    unsigned count;
    Node *children[siblings_max];
};

/// The scopes of a thread; they remain after the thread ends.
struct Tree {
    heaptide_tag_thread known; ///< Read by the recorder at any time. The first field.
    Node root;
    Node *current;
};

/// State shared by all threads.
struct Engine {
    std::atomic<bool> started;
    std::atomic<std::size_t> nodes_max, levels_max;
    std::atomic<unsigned> interval, snapshots;
    std::atomic<std::time_t> last;
    std::atomic<const heaptide_tag_thread *> threads;
    std::time_t start;
    std::size_t bytes_before, thread_bytes;
};

inline Engine &engine() noexcept
{
    static Engine engine; // zero-initialized, without a constructor that has to run first
    return engine;
}

inline Tree *&slot() noexcept
{
    static thread_local Tree *tree;
    return tree;
}

inline pid_t thread_id() noexcept { return static_cast<pid_t>(::syscall(SYS_gettid)); }

/// Changes a number that the recorder may read meanwhile.
inline void set(std::uint64_t &number, std::uint64_t value) noexcept
{
    __atomic_store_n(&number, value, __ATOMIC_RELAXED);
}

/// Returns a value of the kernel's status of the process in bytes, or 0.
inline std::size_t status_bytes(const char *name)
{
    std::size_t kib = 0;
    if (std::FILE *file = std::fopen("/proc/self/status", "r")) {
        char line[128];
        const std::size_t length = std::strlen(name);
        while (!kib && std::fgets(line, sizeof line, file))
            if (!std::strncmp(line, name, length))
                kib = std::strtoul(line + length, nullptr, 10);
        std::fclose(file);
    }
    return kib * 1024;
}

/// Returns the virtual memory that a thread takes: its stack, and an arena of glibc.
inline std::size_t thread_bytes(const pthread_attr_t &attributes) noexcept
{
    std::size_t stack = 0;
    pthread_attr_getstacksize(&attributes, &stack);
    return stack + 128u * 1000 * 1000;
}

inline std::size_t thread_bytes() noexcept
{
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes) != 0)
        return engine().thread_bytes;
    const std::size_t bytes = thread_bytes(attributes);
    pthread_attr_destroy(&attributes);
    return bytes;
}

/// Creates the tree of the calling thread; nullptr if out of memory.
inline Tree *make_tree() noexcept
{
    Pause pause;
    void *memory = std::calloc(1, sizeof(Tree));
    if (!memory)
        return nullptr;
    Tree *tree = static_cast<Tree *>(memory);
    const pid_t id = thread_id();
    tree->current = &tree->root;
    tree->root.level = 1;
    tree->known.tid = static_cast<std::uint64_t>(id);
    tree->known.nodes = 1;
    tree->known.levels = 1;
    tree->known.virtual_bytes =
        id == ::getpid() ? heaptide_process_memory().virtual_bytes : thread_bytes();
    tree->known.next = engine().threads.load();
    while (!engine().threads.compare_exchange_weak(tree->known.next, &tree->known)) {
    }
    return slot() = tree;
}

/// Returns the tree of the calling thread; nullptr before init().
inline Tree *tree() noexcept
{
    Tree *own = slot();
    if (__builtin_expect(own != nullptr, 1))
        return own;
    return engine().started.load(std::memory_order_acquire) ? make_tree() : nullptr;
}

/// Creates a scope in the current one; nullptr if a limit is reached or out of memory.
inline Node *make_node(Tree *tree, const char *name) noexcept
{
    Node *parent = tree->current;
    if (parent->count == siblings_max || tree->known.nodes >= engine().nodes_max.load())
        return nullptr;
    Pause pause;
    Node *node = static_cast<Node *>(std::calloc(1, sizeof(Node)));
    char *copy = node ? ::strdup(name) : nullptr;
    if (!copy) {
        std::free(node);
        return nullptr;
    }
    node->parent = parent;
    node->name = copy;
    node->number = heaptide_name(name);
    node->level = parent->level + 1;
    parent->children[parent->count++] = node;
    set(tree->known.nodes, tree->known.nodes + 1);
    if (node->level > tree->known.levels)
        set(tree->known.levels, node->level);
    return node;
}

/// Enters a scope. If that fails, returns false; then there is nothing to leave.
inline bool push(const char *name) noexcept
{
    Tree *own = tree();
    if (!own)
        return false;
    Node *current = own->current, *found = nullptr;
    for (unsigned i = 0; i < current->count && !found; i++)
        if (std::strcmp(current->children[i]->name, name) == 0)
            found = current->children[i];
    if (__builtin_expect(!found, 0)) {
        if (current->level < engine().levels_max.load())
            found = make_node(own, name);
        if (!found) {
            set(own->known.failures, own->known.failures + 1);
            return false;
        }
    }
    own->current = found;
    heaptide_scope_begin(found->number);
    return true;
}

/// Leaves the innermost scope.
inline void pop() noexcept
{
    Tree *own = slot();
    if (!own || !own->current->parent)
        return;
    heaptide_scope_end(own->current->number);
    own->current = own->current->parent;
}

/// Returns a request for the statistics in a form; the destination is still missing.
inline heaptide_tag_request request(std::uint32_t form) noexcept
{
    const Engine &all = engine();
    heaptide_tag_request request = heaptide_tag_request();
    request.size = sizeof request;
    request.form = form;
    request.start = static_cast<std::uint64_t>(all.start);
    request.nodes_max = all.nodes_max.load();
    request.bytes_before = all.bytes_before;
    request.thread_bytes = all.thread_bytes;
    request.threads = all.threads.load();
    request.number = -1;
    return request;
}

/// Returns the statistics in a form as text. Call it in a pause.
inline std::string text(std::uint32_t form)
{
    if (!engine().started.load())
        return std::string();
    heaptide_tag_request asked = request(form);
    // The text may grow between two calls.
    for (std::size_t size = 64 * 1024; size < std::size_t(1) << 40; size *= 2) {
        std::string text(size, '\0');
        asked.buffer = &text[0];
        asked.buffer_size = size;
        const std::int64_t length = heaptide_write_tags(&asked);
        if (length < 0)
            return std::string();
        if (static_cast<std::size_t>(length) <= size) {
            text.resize(static_cast<std::size_t>(length));
            return text;
        }
        size = static_cast<std::size_t>(length);
    }
    return std::string();
}

/// Writes one form to a file, or to the file that a variable names. `number` is that of a snapshot,
/// or -1. Allocates nothing, since signal handlers may call it.
inline bool write(MallocTagOutputFormat_e format, const char *file, std::int64_t number)
{
    if (!*file && format == MTAG_OUTPUT_FORMAT_JSON)
        file = std::getenv(MTAG_STATS_OUTPUT_JSON_ENV);
    else if (!*file && format == MTAG_OUTPUT_FORMAT_GRAPHVIZ_DOT)
        file = std::getenv(MTAG_STATS_OUTPUT_GRAPHVIZDOT_ENV);
    if (!file || !*file || format > MTAG_OUTPUT_FORMAT_HUMANFRIENDLY_TREE ||
        !engine().started.load())
        return false;
    heaptide_tag_request asked = request(static_cast<std::uint32_t>(format));
    asked.path = file;
    asked.path_length = std::strlen(file);
    asked.number = number;
    return heaptide_write_tags(&asked) >= 0;
}

inline bool write_all(MallocTagOutputFormat_e format, const char *file, std::int64_t number)
{
    if (format != MTAG_OUTPUT_FORMAT_ALL)
        return write(format, file, number);
    const bool json = write(MTAG_OUTPUT_FORMAT_JSON, file, number);
    return write(MTAG_OUTPUT_FORMAT_GRAPHVIZ_DOT, file, number) && json;
}

} // namespace malloc_tag
} // namespace heaptide

/// Starts profiling and returns its results. Allocations in these functions are not profiled.
class MallocTagEngine {
public:
    MallocTagEngine() {}

    /// Starts profiling. Call it first in main, before other threads exist. Returns whether the
    /// process is recorded.
    static bool init(size_t max_tree_nodes = MTAG_DEFAULT_MAX_TREE_NODES,
                     size_t max_tree_levels = MTAG_DEFAULT_MAX_TREE_LEVELS,
                     unsigned int snapshot_interval_sec = MTAG_SNAPSHOT_DISABLED)
    {
        namespace own = heaptide::malloc_tag;
        own::Engine &engine = own::engine();
        if (engine.started.load())
            return true;
        if (!heaptide_start())
            return false;
        heaptide_separate_threads();
        engine.nodes_max = max_tree_nodes;
        engine.levels_max = max_tree_levels;
        engine.start = std::time(nullptr);
        pthread_attr_t attributes;
        if (pthread_attr_init(&attributes) == 0) {
            engine.thread_bytes = own::thread_bytes(attributes);
            pthread_attr_destroy(&attributes);
        }
        engine.bytes_before = heaptide_process_figures().usable_bytes;
        heaptide_tally_scopes();
        const char *variable = std::getenv(MTAG_SNAPSHOT_INTERVAL_ENV);
        if (snapshot_interval_sec == MTAG_SNAPSHOT_DISABLED && variable)
            snapshot_interval_sec = static_cast<unsigned int>(std::strtoul(variable, nullptr, 10));
        engine.interval = snapshot_interval_sec;
        engine.started.store(true, std::memory_order_release);
        return own::tree() != nullptr;
    }

    /// Writes to a file; an empty path means the path in the format's variable. Adds the suffix if
    /// it is missing. Returns whether everything was written. The recorder writes the file within
    /// the process. A signal handler may call this function: it takes no lock, and allocates
    /// nothing except for a path that is not empty.
    static bool write_stats(MallocTagOutputFormat_e format = MTAG_OUTPUT_FORMAT_ALL,
                            const std::string &fullpath = "",
                            const std::string &output_options = "")
    {
        (void)output_options;
        return heaptide::malloc_tag::write_all(format, fullpath.c_str(), -1);
    }

    /// Returns a limit: "max_trees", "max_tree_nodes", "max_tree_levels" or "max_node_siblings"; 0
    /// for another name, and before init().
    static size_t get_limit(const std::string &limit_name)
    {
        const heaptide::malloc_tag::Engine &engine = heaptide::malloc_tag::engine();
        if (limit_name == "max_trees")
            return heaptide::malloc_tag::trees_max;
        if (limit_name == "max_node_siblings")
            return heaptide::malloc_tag::siblings_max;
        if (limit_name == "max_tree_nodes")
            return engine.nodes_max.load();
        if (limit_name == "max_tree_levels")
            return engine.levels_max.load();
        return 0;
    }

    /// Returns the output of write_stats() as text; empty for MTAG_OUTPUT_FORMAT_ALL.
    static std::string collect_stats(MallocTagOutputFormat_e format,
                                     const std::string &output_options = "")
    {
        heaptide::Pause pause;
        (void)output_options;
        if (format > MTAG_OUTPUT_FORMAT_HUMANFRIENDLY_TREE)
            return std::string();
        return heaptide::malloc_tag::text(static_cast<std::uint32_t>(format));
    }

    /// Returns all statistics by key, such as `tid7:name.scope.scope.nBytesSelfAllocated`.
    static MallocTagStatMap_t collect_stats()
    {
        heaptide::Pause pause;
        MallocTagStatMap_t map;
        const std::string text = heaptide::malloc_tag::text(HEAPTIDE_TAG_MAP);
        for (std::size_t at = 0, end; at < text.size(); at = end + 1) {
            end = text.find('\n', at);
            if (end == std::string::npos)
                end = text.size();
            const std::size_t equals = text.rfind('=', end);
            if (equals != std::string::npos && equals > at)
                map[text.substr(at, equals - at)] =
                    std::strtoull(text.c_str() + equals + 1, nullptr, 10);
        }
        return map;
    }

    /// Returns the prefix of the keys of a thread; 0 is the calling thread.
    static std::string get_stat_key_prefix_for_thread(pid_t thread_id = 0)
    {
        heaptide::Pause pause;
        const pid_t id = thread_id ? thread_id : heaptide::malloc_tag::thread_id();
        return "tid" + std::to_string(id) + ":";
    }

    /// Returns the interval of write_snapshot_if_needed() in seconds; 0 if it writes nothing.
    static void set_snapshot_interval(unsigned int secs)
    {
        heaptide::malloc_tag::engine().interval = secs;
    }

    /// Writes PREFIX.0000.json and PREFIX.0000.dot, and so on, if the interval since the last
    /// snapshot is over. Returns whether it wrote.
    static bool write_snapshot_if_needed(MallocTagOutputFormat_e format = MTAG_OUTPUT_FORMAT_ALL,
                                         const std::string &snapshot_filename_prefix = "")
    {
        heaptide::malloc_tag::Engine &engine = heaptide::malloc_tag::engine();
        const std::time_t interval = engine.interval.load();
        const std::time_t now = std::time(nullptr);
        std::time_t last = engine.last.load();
        // Only one of several threads writes.
        if (!interval || now - last < interval || !engine.last.compare_exchange_strong(last, now))
            return false;
        const char *prefix = snapshot_filename_prefix.c_str();
        if (!*prefix)
            prefix = std::getenv(MTAG_SNAPSHOT_OUTPUT_PREFIX_ENV);
        if (!prefix || !*prefix)
            return false;
        return heaptide::malloc_tag::write_all(format, prefix, engine.snapshots.fetch_add(1));
    }

    /// Returns virtual and resident memory of the process. The program's counters have the
    /// allocations of these calls, as in malloc-tag.
    static size_t get_linux_vmsize_in_bytes() { return heaptide::malloc_tag::status_bytes("VmSize:"); }
    static size_t get_linux_vmrss_in_bytes() { return heaptide::malloc_tag::status_bytes("VmRSS:"); }

    /// Returns the output of glibc's malloc_info(); empty with another C library.
    static std::string malloc_info()
    {
        heaptide::Pause pause;
        std::string text;
#ifdef __GLIBC__
        char *buffer = nullptr;
        std::size_t size = 0;
        if (std::FILE *file = ::open_memstream(&buffer, &size)) {
            const bool done = ::malloc_info(0, file) == 0;
            std::fclose(file);
            if (done && buffer)
                text.assign(buffer, size);
            std::free(buffer);
        }
#endif
        return text;
    }
};

/// Charges what the thread allocates and frees during its lifetime to this scope.
class MallocTagScope {
public:
    /// Enters a scope with this name.
    MallocTagScope(const char *tag_name) : entered_(heaptide::malloc_tag::push(tag_name)) {}

    /// Enters the scope `class_name::function_name`.
    MallocTagScope(const char *class_name, const char *function_name) : entered_(false)
    {
        char name[512];
        std::snprintf(name, sizeof name, "%s::%s", class_name, function_name);
        entered_ = heaptide::malloc_tag::push(name);
    }

    ~MallocTagScope()
    {
        if (entered_)
            heaptide::malloc_tag::pop();
    }

    MallocTagScope(const MallocTagScope &) = delete;
    MallocTagScope &operator=(const MallocTagScope &) = delete;

private:
    bool entered_;
};

#endif
