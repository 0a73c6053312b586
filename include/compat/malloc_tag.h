//! malloc-tag's interface, for programs that Heaptide records: `MallocTagEngine`, `MallocTagScope`
//! and the `MTAG_*` variables.
//
// A program written for malloc-tag can be built with this header instead of malloc-tag's. Requires
// C++11. Nothing is linked if the program runs under `heaptide run`; if it is linked with
// libheaptide.so, recording starts in init(). Without the recorder all functions do nothing, and
// return false, zero or empty values. docs/replaces.md lists the differences from malloc-tag.

#ifndef HEAPTIDE_COMPAT_MALLOC_TAG_H
#define HEAPTIDE_COMPAT_MALLOC_TAG_H

#include "../heaptide.hpp"

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
    Tree *next;
    pid_t tid;
    Node root;
    Node *current;
    std::atomic<std::size_t> nodes, levels, failures;
    std::size_t virtual_bytes;
};

/// State shared by all threads.
struct Engine {
    std::atomic<bool> started;
    std::atomic<std::size_t> nodes_max, levels_max;
    std::atomic<unsigned> interval, snapshots;
    std::atomic<std::time_t> last;
    std::atomic<Tree *> trees;
    std::time_t start;
    heaptide_figures before;
    std::size_t bytes_before;
    pid_t main;
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

/// Virtual memory that a new thread takes: its stack, and an arena of glibc.
inline std::size_t thread_bytes() noexcept
{
    std::size_t stack = 0;
    pthread_attr_t attributes;
    if (pthread_getattr_np(pthread_self(), &attributes) == 0) {
        pthread_attr_getstacksize(&attributes, &stack);
        pthread_attr_destroy(&attributes);
    }
    return stack + 128u * 1000 * 1000;
}

/// Creates the tree of the calling thread; nullptr if out of memory.
inline Tree *make_tree() noexcept
{
    Pause pause;
    void *memory = std::calloc(1, sizeof(Tree));
    if (!memory)
        return nullptr;
    Tree *tree = static_cast<Tree *>(memory);
    tree->tid = thread_id();
    tree->current = &tree->root;
    tree->root.level = 1;
    tree->nodes = 1;
    tree->levels = 1;
    tree->virtual_bytes = tree->tid == ::getpid() ? heaptide_process_memory().virtual_bytes
                                                  : thread_bytes();
    tree->next = engine().trees.load();
    while (!engine().trees.compare_exchange_weak(tree->next, tree)) {
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
    if (parent->count == siblings_max || tree->nodes.load() >= engine().nodes_max.load())
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
    tree->nodes.fetch_add(1);
    if (node->level > tree->levels.load())
        tree->levels = node->level;
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
            own->failures.fetch_add(1);
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

/// Returns the format for heaptide_write(), with the limits and counts known here.
inline std::string format(const char *name)
{
    /// An upper bound of the length of an argument, with a margin.
    const std::size_t longest = 100 * 1000;
    const Engine &all = engine();
    const heaptide_figures &before = all.before;
    std::string text = std::string(name) + " --malloc-tag-state 'start=" +
                       std::to_string(all.start) + " nodes=" +
                       std::to_string(all.nodes_max.load()) + " bytes=" +
                       std::to_string(all.bytes_before);
    if (all.main == ::getpid())
        text += " before=" + std::to_string(before.usable_bytes) + "," +
                std::to_string(before.freed_bytes) + "," + std::to_string(before.allocations) +
                "," + std::to_string(before.reallocations) + "," + std::to_string(before.frees);
    for (const Tree *tree = all.trees.load(); tree && text.size() < longest; tree = tree->next)
        text += " thread=" + std::to_string(tree->tid) + "," +
                std::to_string(tree->nodes.load()) + "," + std::to_string(tree->levels.load()) +
                "," + std::to_string(tree->failures.load()) + "," +
                std::to_string(tree->virtual_bytes);
    return text + "'";
}

inline const char *format_name(MallocTagOutputFormat_e format)
{
    switch (format) {
    case MTAG_OUTPUT_FORMAT_JSON:
        return "malloc-tag";
    case MTAG_OUTPUT_FORMAT_GRAPHVIZ_DOT:
        return "malloc-tag-dot";
    case MTAG_OUTPUT_FORMAT_HUMANFRIENDLY_TREE:
        return "malloc-tag-tree";
    default:
        return "";
    }
}

inline std::string variable(const char *name)
{
    const char *value = std::getenv(name);
    return value ? value : "";
}

/// Writes one format to a file, or to the file that a variable names.
inline bool write(MallocTagOutputFormat_e format, std::string path)
{
    const bool is_json = format == MTAG_OUTPUT_FORMAT_JSON;
    const bool is_dot = format == MTAG_OUTPUT_FORMAT_GRAPHVIZ_DOT;
    if (path.empty() && is_json)
        path = variable(MTAG_STATS_OUTPUT_JSON_ENV);
    if (path.empty() && is_dot)
        path = variable(MTAG_STATS_OUTPUT_GRAPHVIZDOT_ENV);
    if (path.empty() || !engine().started.load())
        return false;
    const std::string suffix = is_json ? ".json" : is_dot ? ".dot" : "";
    const std::size_t length = suffix.size();
    if (path.size() < length || path.compare(path.size() - length, length, suffix) != 0)
        path += suffix;
    return heaptide_write(path.c_str(), malloc_tag::format(format_name(format)).c_str()) != 0;
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
        engine.main = own::thread_id();
        engine.before = heaptide_thread_figures();
        engine.bytes_before = heaptide_process_figures().usable_bytes;
        const std::string variable = own::variable(MTAG_SNAPSHOT_INTERVAL_ENV);
        if (snapshot_interval_sec == MTAG_SNAPSHOT_DISABLED && !variable.empty())
            snapshot_interval_sec =
                static_cast<unsigned int>(std::strtoul(variable.c_str(), nullptr, 10));
        engine.interval = snapshot_interval_sec;
        engine.started.store(true, std::memory_order_release);
        return own::tree() != nullptr;
    }

    /// Writes to a file; an empty path means the path in the format's variable. Adds the suffix if
    /// it is missing. Returns whether everything was written.
    static bool write_stats(MallocTagOutputFormat_e format = MTAG_OUTPUT_FORMAT_ALL,
                            const std::string &fullpath = "",
                            const std::string &output_options = "")
    {
        namespace own = heaptide::malloc_tag;
        heaptide::Pause pause;
        (void)output_options;
        if (format != MTAG_OUTPUT_FORMAT_ALL)
            return own::write(format, fullpath);
        const bool json = own::write(MTAG_OUTPUT_FORMAT_JSON, fullpath);
        return own::write(MTAG_OUTPUT_FORMAT_GRAPHVIZ_DOT, fullpath) && json;
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
        const char *name = heaptide::malloc_tag::format_name(format);
        if (!*name || !heaptide::malloc_tag::engine().started.load())
            return std::string();
        return heaptide::written(heaptide::malloc_tag::format(name).c_str());
    }

    /// Returns all statistics by key, such as `tid7:name.scope.scope.nBytesSelfAllocated`.
    static MallocTagStatMap_t collect_stats()
    {
        heaptide::Pause pause;
        MallocTagStatMap_t map;
        if (!heaptide::malloc_tag::engine().started.load())
            return map;
        const std::string format = heaptide::malloc_tag::format("malloc-tag-map");
        const std::string text = heaptide::written(format.c_str());
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
        heaptide::Pause pause;
        std::string prefix = snapshot_filename_prefix;
        if (prefix.empty())
            prefix = heaptide::malloc_tag::variable(MTAG_SNAPSHOT_OUTPUT_PREFIX_ENV);
        if (prefix.empty())
            return false;
        char number[16];
        std::snprintf(number, sizeof number, ".%04u", engine.snapshots.fetch_add(1));
        return write_stats(format, prefix + number);
    }

    /// Returns virtual and resident memory of the process.
    static size_t get_linux_vmsize_in_bytes() { return heaptide_process_memory().virtual_bytes; }
    static size_t get_linux_vmrss_in_bytes() { return heaptide_process_memory().resident_bytes; }

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
