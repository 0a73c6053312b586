//! MallocProfiler's interface, for programs that Heaptide records.
//
// A program written for MallocProfiler can be built with this header instead of MallocProfiler's.
// Requires C++11; nothing is linked. `heaptide run` replaces mallocProfiler.so, and `heaptide run
// --start-off` replaces mallocProfilerOFF.so. Without the recorder all functions do nothing, as
// with dummyMallocProfiler.so. docs/replaces.md lists the differences.

#ifndef HEAPTIDE_COMPAT_MALLOC_PROFILER_H
#define HEAPTIDE_COMPAT_MALLOC_PROFILER_H

#include "../heaptide.hpp"
#include "../heaptide_tools.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <iosfwd>
#include <iostream>
#include <string>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

namespace mallocProfiler {

/// The sort key of dump(); the stack with the largest value comes last.
enum class SortBy { none, tot, live, max, ncalls };

/// Total requested, live and peak live bytes, and calls.
struct Stat {
    double mtot = 0;
    uint64_t mlive = 0;
    uint64_t mmax = 0;
    uint64_t ntot = 0;

    void add(std::size_t size)
    {
        mtot += static_cast<double>(size);
        mlive += size;
        mmax = std::max(mmax, mlive);
        ntot += 1;
    }
    void sub(std::size_t size) { mlive -= size; }
    void merge(Stat const &other)
    {
        mtot += other.mtot;
        mlive += other.mlive;
        mmax = std::max(mmax, other.mmax);
        ntot += other.ntot;
    }
};

/// Numbers of blocks: entry k counts sizes of k significant bits.
using Hist = std::array<uint64_t, 64>;

/// Changes the name of a function in a dump. Returns whether the stack ends here.
typedef bool (*remangleType)(std::string &name);

constexpr bool allThreads = true;
constexpr bool currentThread = false;

namespace heaptide_ {

bool remangle(std::string &name);

/// Settings that all modules of the process share, so that those of a program apply to a preloaded
/// library, too. 0 is the default of each.
enum Setting {
    threshold_plus_1,
    is_reverse,
    is_paused,
    omits_zero_live,
    remangler_or_1, // 1: none
    summary_seconds_plus_1,
    dump_seconds_plus_1,
    setting_count
};

/// Returns the settings. After the first call of any function, each new thread has its own row.
inline uint64_t *settings()
{
    static uint64_t without_recorder[setting_count];
    static uint64_t *const shared = (heaptide_separate_threads(), heaptide_tool_settings());
    return shared ? shared : without_recorder;
}

inline uint64_t get(Setting setting)
{
    return __atomic_load_n(settings() + setting, __ATOMIC_ACQUIRE);
}

/// Changes a setting. Returns the old value.
inline uint64_t set(Setting setting, uint64_t value)
{
    return __atomic_exchange_n(settings() + setting, value, __ATOMIC_ACQ_REL);
}

/// Returns the value of a setting that is stored plus 1.
inline uint64_t get_or(Setting setting, uint64_t otherwise)
{
    const uint64_t value = get(setting);
    return value ? value - 1 : otherwise;
}

/// Preloaded as mallocProfiler.so, the recorder has its threshold.
inline std::size_t threshold_at_start()
{
    const std::uint32_t both = HEAPTIDE_FOR_MALLOC_PROFILER | HEAPTIDE_FOR_MALLOC_PROFILER_OFF;
    return heaptide_replaced_libraries() & both ? 128 : 0;
}

/// Whether the calling thread has paused its recording.
inline bool &thread_is_paused()
{
    static thread_local bool paused;
    return paused;
}

/// The counters of the calling thread when it was last cleared.
inline heaptide_figures &cleared()
{
    static thread_local heaptide_figures figures;
    return figures;
}

/// Removes the parameters from the name of a function.
inline void remove_signature(std::string &name)
{
    const std::size_t end = name.rfind(')');
    int depth = 0;
    for (std::size_t at = end; at != std::string::npos; at--) {
        depth += name[at] == ')' ? 1 : name[at] == '(' ? -1 : 0;
        // The parentheses of `operator()` and of `(anonymous namespace)` are part of the name.
        if (depth == 0 && name[at] == '(') {
            const bool is_name = name.compare(at, 20, "(anonymous namespace)") == 0 ||
                                 (at >= 8 && name.compare(at - 8, 10, "operator()") == 0 &&
                                  (at + 2 >= name.size() || name[at + 2] != '('));
            if (!is_name && at > 0)
                name.erase(at);
            return;
        }
        if (at == 0)
            return;
    }
}

/// Removes the allocators from the names of containers.
inline void remove_allocators(std::string &name)
{
    static const char allocator[] = ", std::allocator<";
    std::size_t from;
    while ((from = name.find(allocator)) != std::string::npos) {
        std::size_t at = from + sizeof allocator - 1;
        for (int depth = 1; at < name.size() && depth > 0; at++)
            depth += name[at] == '<' ? 1 : name[at] == '>' ? -1 : 0;
        name.erase(from, at - from);
    }
}

/// The default of setRemangler(): removes parameters and allocators, and replaces functions of
/// large libraries, at which stacks end, by the name of the library.
inline bool remangle(std::string &name)
{
    static const char *const libraries[][2] = {
        {"__cxx11::basic_regex", "regex"}, {"TFormula", "TFormula"}, {"TClass", "TClass"},
        {"TCling", "TCling"},              {"cling::", "cling"},     {"clang", "clang"},
        {"llvm::", "llvm"},                {"boost::spirit", "spirit"},
    };
    remove_signature(name);
    remove_allocators(name);
    for (const char *const *library : libraries) {
        if (name.find(library[0]) != std::string::npos) {
            name = library[1];
            return true;
        }
    }
    return false;
}

/// Returns the function that changes names in dumps.
inline remangleType remangler()
{
    const uint64_t value = get(remangler_or_1);
    return value == 0 ? remangle : value == 1 ? nullptr : reinterpret_cast<remangleType>(value);
}

/// Writes a line of a dump with the names changed as the program requests.
inline void write_line(std::ostream &out, const std::string &line, char separator)
{
    // The names are followed by a space and four numbers, with a separator before each number.
    std::size_t end = line.size();
    for (int number = 0; number < 4 && end != std::string::npos && end > 0; number++)
        end = line.rfind(separator, end - 1);
    const remangleType change = remangler();
    if (end == std::string::npos || end == 0 || !change) {
        out << line << '\n';
        return;
    }
    std::size_t at = line.find(';');
    // These are no functions.
    const bool is_sum = line.find(";SmallAllocations ") == at || line.find(";LargeAllocations ") == at;
    if (at == std::string::npos || at >= end || is_sum) {
        out << line << '\n';
        return;
    }
    out << line.substr(0, at);
    const std::size_t names_end = end - 1;
    for (bool is_last = false; !is_last && at < names_end;) {
        const std::size_t next = std::min(line.find(';', at + 1), names_end);
        std::string name = line.substr(at + 1, next - at - 1);
        is_last = change(name);
        out << ';' << name;
        at = next;
    }
    out << ' ' << line.substr(end) << '\n';
}

/// The options of a dump.
inline std::string options(bool all, SortBy mode, char separator)
{
    static const char *const sorts[] = {"max", "total", "live", "max", "calls"};
    std::string text = " --malloc-profiler 'separator=" +
                       std::to_string(static_cast<unsigned char>(separator)) +
                       " sort=" + sorts[static_cast<int>(mode)];
    if (!all)
        text += " thread=" + std::to_string(::syscall(SYS_gettid));
    if (get(omits_zero_live))
        text += " live";
    if (get(is_reverse))
        text += " reverse";
    return text;
}

} // namespace heaptide_

/// Returns whether the process is recorded.
inline bool loaded() { return heaptide_recording() != 0; }

/// Returns whether the calling thread, or the process, is recorded now.
inline bool active(bool allThreads = true) { return heaptide_active(allThreads) != 0; }

/// Returns whether the process is recorded now.
inline bool enabled() { return heaptide_active(1) != 0; }

/// Turns recording on or off.
inline void enable() { heaptide_turn(1); }
inline void disable() { heaptide_turn(0); }

/// Resumes recording of the calling thread, or of all threads.
inline void activate(bool allThreads = true)
{
    bool &is_paused = heaptide_::thread_is_paused();
    if (is_paused)
        heaptide_resume(0);
    is_paused = false;
    // Recording one thread ends a pause of the whole process, so the other threads are recorded,
    // too.
    (void)allThreads;
    if (heaptide_::set(heaptide_::is_paused, 0))
        heaptide_resume(1);
}

/// Pauses recording of the calling thread, or of all threads.
inline void deactivate(bool allThreads = true)
{
    bool &is_paused = heaptide_::thread_is_paused();
    if (allThreads) {
        if (!heaptide_::set(heaptide_::is_paused, 1))
            heaptide_pause(1);
    } else if (!is_paused) {
        is_paused = true;
        heaptide_pause(0);
    }
}

/// Discards what was recorded so far. For the calling thread this affects only its summary(),
/// because threads share stacks.
inline void clear(bool allThreads = true)
{
    if (allThreads)
        heaptide_reset();
    else
        heaptide_::cleared() = heaptide_thread_figures();
}

/// Records stacks for requests of at least this many bytes, or, with `reverse`, of at most this
/// many; 0 with `reverse` records no stacks.
inline void setThreshold(std::size_t value, bool reverse = false)
{
    heaptide_::set(heaptide_::threshold_plus_1, value + 1);
    heaptide_::set(heaptide_::is_reverse, reverse);
    if (reverse && value == 0)
        heaptide_threshold(static_cast<std::size_t>(-1), 0);
    else
        heaptide_threshold(reverse ? value + 1 : value, reverse);
}

/// Returns the current threshold, initially 0, or 128 if the recorder is preloaded as
/// mallocProfiler.so.
inline std::size_t getThreshold()
{
    using namespace heaptide_;
    return loaded() ? get_or(threshold_plus_1, threshold_at_start()) : 0;
}

/// Does nothing: there is nothing to print.
inline void setVerbose(bool isVerbose) { (void)isVerbose; }

/// The value of `mmax` if it is unknown: no counter has the peak of a thread.
constexpr uint64_t unknownMax = UINT64_MAX;

/// Returns the counters of the process, or of the calling thread. Live counters are in usable
/// bytes. `mmax` of a thread that has freed memory is `unknownMax`.
inline Stat summary(bool allThreads = true)
{
    heaptide_figures figures = heaptide_process_figures();
    if (!allThreads) {
        const heaptide_figures &before = heaptide_::cleared();
        figures = heaptide_thread_figures();
        figures.requested_bytes -= before.requested_bytes;
        figures.live_bytes -= before.live_bytes;
        figures.allocations -= before.allocations;
        figures.frees -= before.frees;
    }
    Stat stat;
    stat.mtot = static_cast<double>(figures.requested_bytes);
    stat.mlive = figures.live_bytes > 0 ? static_cast<uint64_t>(figures.live_bytes) : 0;
    stat.mmax = std::max(static_cast<uint64_t>(figures.peak_bytes), stat.mlive);
    if (!allThreads && figures.frees != 0)
        stat.mmax = unknownMax;
    stat.ntot = figures.allocations;
    return stat;
}

/// Returns numbers of blocks by requested size.
inline Hist memTotHistogram()
{
    const heaptide_histograms histograms = heaptide_size_histograms();
    Hist hist;
    std::copy(histograms.requested, histograms.requested + hist.size(), hist.begin());
    return hist;
}

/// Returns numbers of live blocks by usable size.
inline Hist memLiveHistogram()
{
    const heaptide_histograms histograms = heaptide_size_histograms();
    Hist hist;
    for (std::size_t k = 0; k < hist.size(); k++)
        hist[k] = histograms.usable[k] - std::min(histograms.usable[k], histograms.freed[k]);
    return hist;
}

/// Omits the stacks of the dump at exit that the recorder writes if it is preloaded as
/// mallocProfiler.so; summary and histograms stay.
/// HEAPTIDE_REPORT=malloc-profiler:stdout requests a dump that is always written.
inline void noFinalDump() { heaptide_omit_dump(); }

/// Dumps only stacks with live memory.
inline void noZeroLiveDump(bool isOn) { heaptide_::set(heaptide_::omits_zero_live, isOn); }

/// Writes a line for each stack: functions separated by `;`, outermost first, followed by calls,
/// bytes, live bytes and peak live bytes, with the separator before each.
inline std::ostream &dump(std::ostream &out, char separator = '$', SortBy mode = SortBy::none,
                          bool allThreads = true)
{
    heaptide::Pause pause;
    const std::string format =
        "malloc-profiler-dump" + heaptide_::options(allThreads, mode, separator) + "'";
    const std::string text = heaptide::written(format.c_str());
    for (std::size_t at = 0, end; at < text.size(); at = end + 1) {
        end = std::min(text.find('\n', at), text.size());
        heaptide_::write_line(out, text.substr(at, end - at), separator);
    }
    return out;
}

/// Writes each stack as one line per function, with file and line, up to the first function whose
/// name contains `from`, or, if it is empty, up to the caller. Stacks without such a function are
/// omitted.
inline std::ostream &dumpDetails(std::ostream &out, std::string const &from,
                                 bool allThreads = true,
                                 const char *caller = __builtin_FUNCTION())
{
    heaptide::Pause pause;
    std::string name = from.empty() ? caller : from;
    // Escape for single quotes of a shell.
    for (std::size_t at = 0; (at = name.find('\'', at)) != std::string::npos; at += 4)
        name.replace(at, 1, "'\\''");
    const std::string format = "malloc-profiler-details" +
                               heaptide_::options(allThreads, SortBy::max, ' ') + " from=" + name +
                               "'";
    return out << heaptide::written(format.c_str());
}

/// The intervals at which the tracing threads write.
template <typename Summary, typename Dump>
inline void setDumpingInterval(Summary const &summaryLap, Dump const &dumpLap)
{
    using std::chrono::duration_cast;
    using std::chrono::seconds;
    using namespace heaptide_;
    const long long ofSummary = duration_cast<seconds>(summaryLap).count();
    const long long ofDump = duration_cast<seconds>(dumpLap).count();
    set(summary_seconds_plus_1, static_cast<uint64_t>(ofSummary + 1));
    set(dump_seconds_plus_1, static_cast<uint64_t>(ofDump + 1));
}

/// Sets the function that changes names in dumps; nullptr disables it.
inline void setRemangler(remangleType remangler)
{
    heaptide_::set(heaptide_::remangler_or_1,
                   remangler ? reinterpret_cast<uint64_t>(remangler) : 1);
}
inline remangleType getDefaultRemangler() { return heaptide_::remangle; }
inline remangleType getCurrentRemangler() { return heaptide_::remangler(); }

namespace heaptide_ {

/// Waits for an interval, which the program may change meanwhile. Returns its seconds.
inline uint64_t wait_for(Setting interval, uint64_t seconds_at_start)
{
    for (uint64_t waited = 0;; waited++) {
        const uint64_t seconds = get_or(interval, seconds_at_start);
        if (waited > 0 && waited >= seconds)
            return waited;
        std::this_thread::sleep_for(std::chrono::seconds(1));
    }
}

/// Appends summaries and histograms to memstat_PID.mdr.
inline void trace_statistics()
{
    deactivate(currentThread);
    std::ofstream out("memstat_" + std::to_string(::getpid()) + ".mdr");
    out << "MemStat Global Summary time: ncalls memtot memlive maxlive" << std::endl;
    for (uint64_t time = 0;;) {
        time += wait_for(summary_seconds_plus_1, 10);
        const Stat stat = summary();
        out << "MemStat Global Summary " << time << ": " << stat.ntot << ' ' << stat.mtot << ' '
            << stat.mlive << ' ' << stat.mmax << "\nMemTot Global Hist ";
        for (uint64_t count : memTotHistogram())
            out << count << ',';
        out << "\nMemLive Global Hist ";
        for (uint64_t count : memLiveHistogram())
            out << count << ',';
        out << std::endl;
    }
}

/// Writes dumps to memdump_PID_N.mdr.
inline void trace_stacks()
{
    deactivate(currentThread);
    for (int number = 0;; number++) {
        wait_for(dump_seconds_plus_1, 600);
        std::cerr << ">>>> DUMPER GOING TO START <<<<<" << std::endl;
        std::ofstream out("memdump_" + std::to_string(::getpid()) + "_" +
                          std::to_string(number) + ".mdr");
        dump(out);
        std::cerr << ">>>> DUMPER DONE <<<<<" << std::endl;
    }
}

} // namespace heaptide_

/// Starts the same threads as tracingThread.so: they write summaries to memstat_PID.mdr every ten
/// seconds and, unless `statisticsOnly`, dumps to memdump_PID_N.mdr every ten minutes. The library
/// itself is compiled from tracingThread.cc.
inline void startTracing(bool statisticsOnly = false)
{
    if (!loaded())
        return;
    heaptide::Pause pause;
    noFinalDump();
    noZeroLiveDump(true);
    if (statisticsOnly)
        setThreshold(0, true);
    std::thread(heaptide_::trace_statistics).detach();
    if (!statisticsOnly)
        std::thread(heaptide_::trace_stacks).detach();
}

} // namespace mallocProfiler

#endif
