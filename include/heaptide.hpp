//! The C++ interface to the recorder: guards for scopes, measurements and windows, labels for
//! containers, pools for memory resources, monitors as classes. It works whether or not the
//! recorder is loaded.
//
// Requires C++11; header only. The rules of heaptide.h apply. The destructor of a guard reverts its
// constructor, also when an exception propagates. Without the recorder, guards are no-ops. Only
// heaptide::create_and_register throws when the recorder is not loaded, because a program that
// requests a monitor needs to know that it will not run; heaptide::loaded() avoids the exception.

#ifndef HEAPTIDE_HPP
#define HEAPTIDE_HPP

#include "heaptide.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <ostream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#if __cplusplus >= 201703L && defined(__has_include)
#if __has_include(<memory_resource>)
#include <memory_resource>
#define HEAPTIDE_MEMORY_RESOURCES 1
#endif
#endif

// Open a scope until the end of the enclosing block. Each place in the source looks up its names
// only once, so they must be the same at each execution; heaptide::Scope takes variable ones.
#define HEAPTIDE_SCOPE(value) HEAPTIDE_SCOPE_STRING("region", value)
#define HEAPTIDE_SCOPE_STRING(attribute, value)                                          \
    ::heaptide::Scope HEAPTIDE_JOIN_(heaptide_scope_, __COUNTER__)                          \
    {                                                                                    \
        ::heaptide::Name { HEAPTIDE_NAME_STRING(attribute, value) }                      \
    }

// Opens a scope with a value that varies, a string or an integer.
#define HEAPTIDE_SCOPE_VALUE(attribute, value)                                           \
    ::heaptide::Scope HEAPTIDE_JOIN_(heaptide_scope_, __COUNTER__) { (attribute), (value) }

// Opens a scope with attribute "function" and the name of the enclosing function.
#define HEAPTIDE_FUNCTION HEAPTIDE_SCOPE_STRING("function", __func__)

#define HEAPTIDE_JOIN_(a, b) HEAPTIDE_JOIN_AGAIN_(a, b)
#define HEAPTIDE_JOIN_AGAIN_(a, b) a##b

namespace heaptide {

using Figures = ::heaptide_figures;
using Histograms = ::heaptide_histograms;
using Block = ::heaptide_block;

/// Returns whether the recorder is loaded into this process.
inline bool loaded() noexcept { return heaptide_loaded() != 0; }

/// Returns whether this process is recorded.
inline bool recording() noexcept { return heaptide_recording() != 0; }

/// Thrown when an operation needs the recorder, but it is not loaded.
class not_loaded : public std::runtime_error {
public:
    /// `what` names the operation.
    explicit not_loaded(const std::string &what)
        : std::runtime_error("heaptide: " + what +
                             ": the recorder is not loaded; run the program with `heaptide run`")
    {
    }
};

// ---- Scopes and contexts

/// The name of a scope as a number, for hot code: looked up once, valid in the whole process.
struct Name {
    std::uint32_t number; ///< 0: not loaded, or out of space.
};

/// Looks up the name `value` of an attribute.
inline Name name(const std::string &value, const std::string &attribute = "region") noexcept
{
    const heaptide_interface *t = heaptide_table_();
    return Name{t ? t->intern(attribute.data(), attribute.size(), value.data(), value.size()) : 0};
}

/// Looks up the integer `value` of an attribute.
inline Name name(std::int64_t value, const char *attribute) noexcept
{
    return Name{heaptide_name_int(attribute, value)};
}

/// Keeps a scope of the calling thread open from construction to destruction.
class Scope {
public:
    /// Enters a scope by a name that was looked up before.
    explicit Scope(Name name) noexcept : name_(name.number) { heaptide_scope_begin(name_); }

    /// Enters `region=value`.
    explicit Scope(const char *value) noexcept : Scope(Name{heaptide_name(value)}) {}
    explicit Scope(const std::string &value) noexcept : Scope(heaptide::name(value)) {}

    /// Enters `attribute=value`.
    Scope(const char *attribute, const char *value) noexcept
        : Scope(Name{heaptide_name_string(attribute, value)})
    {
    }
    Scope(const char *attribute, const std::string &value) noexcept
        : Scope(Name{value_of(attribute, value)})
    {
    }
    template <typename Integer,
              typename = typename std::enable_if<std::is_integral<Integer>::value>::type>
    Scope(const char *attribute, Integer value) noexcept
        : Scope(Name{heaptide_name_int(attribute, static_cast<std::int64_t>(value))})
    {
    }

    Scope(const Scope &) = delete;
    Scope &operator=(const Scope &) = delete;

    /// Leaves the scope, and any scopes inside it that are still open.
    ~Scope() { heaptide_scope_end(name_); }

private:
    static std::uint32_t value_of(const char *attribute, const std::string &value) noexcept
    {
        const heaptide_interface *t = heaptide_table_();
        return t ? t->intern(attribute, strlen(attribute), value.data(), value.size()) : 0;
    }

    std::uint32_t name_;
};

/// A scope path, to pass to threads that work on behalf of this thread.
class Context {
public:
    /// The path outside of all scopes.
    Context() noexcept : path_(0) {}

    /// Returns the calling thread's path.
    static Context current() noexcept { return Context(heaptide_context()); }

    /// Counters of the path in all threads, with or without the paths below it.
    Figures inclusive() const noexcept { return heaptide_scope_figures(path_, 1); }
    Figures exclusive() const noexcept { return heaptide_scope_figures(path_, 0); }

    friend bool operator==(Context a, Context b) noexcept { return a.path_ == b.path_; }
    friend bool operator!=(Context a, Context b) noexcept { return a.path_ != b.path_; }

private:
    friend class ContextGuard;
    explicit Context(std::uint64_t path) noexcept : path_(path) {}

    std::uint64_t path_;
};

/// Sets the calling thread's scope path, and restores the previous path on destruction.
class ContextGuard {
public:
    explicit ContextGuard(Context context) noexcept : before_(heaptide_set_context(context.path_))
    {
    }
    ContextGuard(const ContextGuard &) = delete;
    ContextGuard &operator=(const ContextGuard &) = delete;
    ~ContextGuard() { heaptide_set_context(before_); }

private:
    std::uint64_t before_;
};

// ---- Measurements, windows, pauses

/// Counts what this thread allocates and frees until end() or destruction. Measurements of a thread
/// must nest.
class Measure {
public:
    Measure() noexcept { heaptide_measure_begin(&measurement_); }
    Measure(const Measure &) = delete;
    Measure &operator=(const Measure &) = delete;
    ~Measure() { end(); }

    /// Ends the measurement and returns its counters; a second call returns zeros.
    Figures end() noexcept
    {
        Figures figures = Figures();
        if (running_)
            heaptide_measure_end(&measurement_, &figures);
        running_ = false;
        return figures;
    }

private:
    heaptide_measurement measurement_ = heaptide_measurement();
    bool running_ = true;
};

/// A named interval of the whole process, until close() or destruction on any thread.
class Window {
public:
    explicit Window(const char *name) noexcept : number_(heaptide_window_open(name)) {}
    explicit Window(const std::string &name) noexcept : Window(name.c_str()) {}
    Window(Window &&other) noexcept : number_(other.number_) { other.number_ = 0; }
    Window(const Window &) = delete;
    Window &operator=(const Window &) = delete;
    ~Window() { close(); }

    /// Returns the counters so far, or zeros once the window is closed.
    Figures figures() const noexcept
    {
        Figures figures = Figures();
        heaptide_window_figures(number_, &figures);
        return figures;
    }

    /// Closes the window and returns its counters; a second call returns zeros.
    Figures close() noexcept
    {
        Figures figures = Figures();
        heaptide_window_close(number_, &figures);
        number_ = 0;
        return figures;
    }

private:
    std::uint32_t number_;
};

/// Whether a Pause applies to the calling thread or to the whole process.
enum class Of { thread = 0, process = 1 };

/// Pauses recording; pauses nest.
class Pause {
public:
    explicit Pause(Of of = Of::thread) noexcept : of_(static_cast<int>(of)) { heaptide_pause(of_); }
    Pause(const Pause &) = delete;
    Pause &operator=(const Pause &) = delete;
    ~Pause() { heaptide_resume(of_); }

private:
    int of_;
};

/// Records a mark: a named point in time.
inline void mark(const char *name) noexcept { heaptide_mark_now(name); }
inline void mark(const std::string &name) noexcept { heaptide_mark_now(name.c_str()); }

/// Writes a copy of the current profile. Returns its number, or 0 if it could not be written.
inline std::uint32_t snapshot(const char *name = "") noexcept
{
    return heaptide_snapshot_now(name);
}

// ---- Output

/// Starts recording in a program that is linked with the recorder (see heaptide_start()).
inline bool start() noexcept { return heaptide_start() != 0; }
/// The same with settings of the recording (see heaptide_start_with()).
inline bool start_with(const char *settings) noexcept
{
    return heaptide_start_with(settings) != 0;
}

/// Writes the recording so far to a file, "stdout" or "stderr" (see heaptide_write()).
inline bool write(const char *path, const char *format = "text") noexcept
{
    return heaptide_write(path, format) != 0;
}
inline bool write(const std::string &path, const std::string &format = "text") noexcept
{
    return heaptide_write(path.c_str(), format.c_str()) != 0;
}

/// Returns the same output as a string; empty if it could not be written, or not loaded.
/// Allocations made here are not recorded.
inline std::string written(const char *format = "text")
{
    std::string text;
#ifdef SYS_memfd_create
    if (!recording())
        return text;
    Pause pause;
    const unsigned closed_on_exec = 1;
    const int file = static_cast<int>(::syscall(SYS_memfd_create, "heaptide", closed_on_exec));
    if (file < 0)
        return text;
    if (heaptide_write_to(file, format)) {
        const off_t size = ::lseek(file, 0, SEEK_END);
        std::size_t done = 0;
        if (size > 0)
            text.resize(static_cast<std::size_t>(size));
        while (done < text.size()) {
            const ssize_t more = ::pread(file, &text[done], text.size() - done,
                                         static_cast<off_t>(done));
            if (more <= 0)
                break;
            done += static_cast<std::size_t>(more);
        }
        text.resize(done);
    }
    ::close(file);
#endif
    return text;
}

/// Writes the same output to a stream.
inline std::ostream &write(std::ostream &out, const char *format = "text")
{
    Pause pause;
    return out << written(format);
}

// ---- Labels: true if labelled; false if there is no memory to label, or not loaded

/// Labels the memory of a vector: its capacity is the block, its number of elements the dimension.
/// When the vector grows into another block, that has to be labelled again.
template <typename T, typename Allocator>
bool label(const std::vector<T, Allocator> &vector, const char *name) noexcept
{
    return heaptide_label_array(vector.data(), name, sizeof(T), vector.size()) != 0;
}

/// Labels the memory of a string, if it is outside of the object.
template <typename Char, typename Traits, typename Allocator>
bool label(const std::basic_string<Char, Traits, Allocator> &string, const char *name) noexcept
{
    return heaptide_label_array(string.data(), name, sizeof(Char), string.size()) != 0;
}

/// Labels the object that the pointer owns.
template <typename T, typename Deleter>
bool label(const std::unique_ptr<T, Deleter> &pointer, const char *name) noexcept
{
    return heaptide_label_array(pointer.get(), name, sizeof(T), 1) != 0;
}

/// Labels the array that the pointer owns; the caller supplies its length.
template <typename T, typename Deleter>
bool label(const std::unique_ptr<T[], Deleter> &pointer, const char *name,
           std::size_t count) noexcept
{
    return heaptide_label_array(pointer.get(), name, sizeof(T), count) != 0;
}

/// Labels an array in any memory.
template <typename T, std::size_t Count>
bool label(const std::array<T, Count> &array, const char *name) noexcept
{
    return heaptide_label_region(array.data(), name, sizeof array, sizeof(T)) != 0;
}
template <typename T, std::size_t Count>
bool label(const T (&array)[Count], const char *name) noexcept
{
    return heaptide_label_region(&array, name, sizeof array, sizeof(T)) != 0;
}

/// Returns the block or labelled memory that contains an address; `kind` is 0 if it is unknown.
inline Block resolve(const void *address) noexcept
{
    Block block = Block();
    heaptide_resolve(address, &block);
    return block;
}

// ---- Pools of C++17 memory resources

#ifdef HEAPTIDE_MEMORY_RESOURCES

/// Forwards from a pooling resource to its upstream resource, and reports the chunks.
///
///     heaptide::PoolChunks chunks("arena");
///     std::pmr::unsynchronized_pool_resource arena(&chunks);
///     heaptide::PoolBlocks blocks("arena", &arena);
///     std::pmr::vector<int> vector(&blocks);
class PoolChunks : public std::pmr::memory_resource {
public:
    /// Creates the pool `name`, with chunks from `upstream`.
    explicit PoolChunks(const char *name, std::pmr::memory_resource *upstream =
                                              std::pmr::new_delete_resource()) noexcept
        : pool_(heaptide_pool_named(name)), upstream_(upstream)
    {
    }

private:
    void *do_allocate(std::size_t bytes, std::size_t alignment) override
    {
        void *chunk = upstream_->allocate(bytes, alignment);
        heaptide_pool_add(pool_, chunk, bytes);
        return chunk;
    }
    void do_deallocate(void *chunk, std::size_t bytes, std::size_t alignment) override
    {
        heaptide_pool_remove(chunk);
        upstream_->deallocate(chunk, bytes, alignment);
    }
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override
    {
        return this == &other;
    }

    std::uint32_t pool_;
    std::pmr::memory_resource *upstream_;
};

/// Forwards from users to a pooling resource, and reports the blocks.
class PoolBlocks : public std::pmr::memory_resource {
public:
    /// Reports blocks of `resource` as those of the pool `name`.
    PoolBlocks(const char *name, std::pmr::memory_resource *resource) noexcept
        : pool_(heaptide_pool_named(name)), resource_(resource)
    {
    }

private:
    void *do_allocate(std::size_t bytes, std::size_t alignment) override
    {
        void *block = resource_->allocate(bytes, alignment);
        heaptide_pool_allocated(pool_, block, bytes, bytes);
        return block;
    }
    void do_deallocate(void *block, std::size_t bytes, std::size_t alignment) override
    {
        heaptide_pool_freed(block);
        resource_->deallocate(block, bytes, alignment);
    }
    bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override
    {
        return this == &other;
    }

    std::uint32_t pool_;
    std::pmr::memory_resource *resource_;
};

#endif

// ---- Monitors

/// Code that runs at each allocation and each release, on the calling thread, once per outermost
/// operation. Several threads may be in a monitor at once. It may take its own locks and may
/// allocate; its allocations are neither recorded nor reported to monitors. An exception terminates
/// the program.
class Monitor {
public:
    Monitor() = default;
    Monitor(const Monitor &) = delete;
    Monitor &operator=(const Monitor &) = delete;
    virtual ~Monitor() = default;

    /// Called after the real allocation.
    virtual void allocated(void *block, std::size_t requested, std::size_t usable) = 0;
    /// Called before the real release.
    virtual void freed(void *block, std::size_t usable) = 0;

private:
    template <typename T, typename... Arguments>
    friend T *create_and_register(Arguments &&...arguments);
    friend bool deregister(Monitor *monitor) noexcept;

    static void on_allocated(void *context, void *block, std::size_t requested,
                             std::size_t usable) noexcept
    {
        static_cast<Monitor *>(context)->allocated(block, requested, usable);
    }
    static void on_freed(void *context, void *block, std::size_t usable) noexcept
    {
        static_cast<Monitor *>(context)->freed(block, usable);
    }
    static void on_destroy(void *context) noexcept
    {
        Pause pause;
        delete static_cast<Monitor *>(context);
    }

    /// Returns the monitor's number, or 0 if it could not be registered.
    std::uint64_t register_itself(const char *name) noexcept
    {
        heaptide_monitor monitor = heaptide_monitor();
        monitor.version = HEAPTIDE_MONITOR_VERSION;
        monitor.size = sizeof monitor;
        monitor.name = name;
        monitor.context = this;
        monitor.allocated = on_allocated;
        monitor.freed = on_freed;
        monitor.destroy = on_destroy;
        return id_ = heaptide_register(&monitor);
    }

    std::uint64_t id_ = 0;
};

/// Creates a monitor of type T and registers it. The recorder owns it, and destroys it once: in
/// deregister(), at exit, or when the library that registered it is unloaded. Allocations in its
/// constructor and destructor are not reported to monitors. Throws not_loaded without the recorder,
/// and std::runtime_error if the process is not recorded, as with `--mode off`, or if the recorder
/// has no space for another monitor. Exceptions of T's constructor propagate.
template <typename T, typename... Arguments>
T *create_and_register(Arguments &&...arguments)
{
    static_assert(std::is_base_of<Monitor, T>::value, "T derives from heaptide::Monitor");
    if (!loaded())
        throw not_loaded("a monitor cannot be registered");
    if (!recording())
        throw std::runtime_error("heaptide: a monitor cannot be registered: "
                                 "this process is not recorded, see HEAPTIDE_MODE");
    Pause pause;
    std::unique_ptr<T> made(new T(std::forward<Arguments>(arguments)...));
    if (!static_cast<Monitor *>(made.get())->register_itself("C++"))
        throw std::runtime_error("heaptide: a monitor cannot be registered: no room for another");
    return made.release();
}

/// Deregisters a monitor and destroys it when no other thread is in it. Returns false if it is not
/// registered, or not loaded.
inline bool deregister(Monitor *monitor) noexcept
{
    return monitor && heaptide_deregister(monitor->id_) != 0;
}

} // namespace heaptide

#endif
