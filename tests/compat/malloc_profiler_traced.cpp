//! A program that changes the settings of a preloaded tracingThread.so, whose threads it does not
//! start: the interval, and a remangler of its own. It ends after the second dump.
//
// Known: hold() allocates a block of 5000 bytes; dumps name it "renamed".
#include "mallocProfiler.h"

#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <unistd.h>

static void *volatile kept;

static __attribute__((noinline)) void hold() { kept = std::malloc(5000); }

static bool rename_hold(std::string &name)
{
    if (name.find("hold") != std::string::npos)
        name = "renamed";
    return false;
}

int main()
{
    using namespace mallocProfiler;
    setRemangler(rename_hold);
    hold();
    setDumpingInterval(std::chrono::seconds(1), std::chrono::seconds(1));
    const std::string second = "memdump_" + std::to_string(getpid()) + "_1.mdr";
    while (!std::ifstream(second))
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
    return 0;
}
