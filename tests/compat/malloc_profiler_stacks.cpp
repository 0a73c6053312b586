//! A program instrumented for MallocProfiler: it profiles one function and dumps its allocations in
//! both forms, with a remangler of its own.
//
// Known, with recording initially off: append() allocates 3 blocks of 40 bytes, of which one is
// freed; outside of instrumented() nothing is recorded.
#include "mallocProfiler.h"

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <sstream>

static volatile std::uintptr_t sink;

static __attribute__((noinline)) void *append(int size)
{
    void *block = std::malloc(static_cast<std::size_t>(size));
    sink = reinterpret_cast<std::uintptr_t>(block);
    return block;
}

static bool shout(std::string &name)
{
    const bool is_last = name.find("append") != std::string::npos;
    if (is_last)
        name = "APPEND";
    if (name.find("Allocations") != std::string::npos)
        name = "A SUM"; // which is no function
    return is_last;
}

// Without the recorder nothing is written.
static void show(const char *name, const std::string &text)
{
    std::cout << "== " << name << '\n' << text;
}

static __attribute__((noinline)) void instrumented()
{
    using namespace mallocProfiler;
    setThreshold(0);
    enable();
    activate(currentThread);
    void *first = append(40);
    append(40);
    append(40);
    std::free(first);
    std::ostringstream lines, details, shouted;
    dump(lines, '$', SortBy::max, currentThread);
    dumpDetails(details, "", currentThread);
    setRemangler(shout);
    dump(shouted, ' ', SortBy::ncalls);
    setRemangler(getDefaultRemangler());
    const Stat stat = summary(currentThread);
    const Hist hist = memTotHistogram();
    deactivate(currentThread);
    disable();
    std::cout << loaded() << ' ' << active() << enabled() << active(currentThread) << ' '
              << stat.ntot << ' ' << stat.mtot << ' ' << hist[6] << ' ' << getThreshold() << '\n';
    show("lines", lines.str());
    show("details", details.str());
    show("shouted", shouted.str());
}

int main()
{
    append(1000);
    instrumented();
    append(1000);
    std::string name = "std::vector<int, std::allocator<int> >::push_back(int (*)(char))";
    const bool is_last = mallocProfiler::getDefaultRemangler()(name);
    std::cout << is_last << ' ' << name << '\n';
    for (const char *text : {"A::operator()(int) const", "(anonymous namespace)::f(int)",
                             "llvm::Value::x()", "main::{lambda()#1}::operator()() const"}) {
        name = text;
        mallocProfiler::getDefaultRemangler()(name);
        std::cout << name << '\n';
    }
    return 0;
}
