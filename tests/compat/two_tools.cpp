//! Scopes of malloc-tag and of Heaptide in one program are nested in either order, and a dump
//! through MallocProfiler's interface has the stacks below them.
//
// Known: 7 bytes in run > load > parse, of which load is Heaptide's, and 9 bytes in load > parse.
#include "mallocProfiler.h"
#include "malloc_tag.h"

#include <cstdint>
#include <cstdlib>
#include <iostream>
#include <sstream>

static volatile std::uintptr_t sink;

static __attribute__((noinline)) void parse(std::size_t size)
{
    MallocTagScope scope("parse");
    sink = reinterpret_cast<std::uintptr_t>(std::malloc(size));
}

static __attribute__((noinline)) void load(std::size_t size)
{
    HEAPTIDE_SCOPE("load");
    parse(size);
}

int main()
{
    MallocTagEngine::init();
    {
        MallocTagScope scope("run");
        load(7);
    }
    load(9);
    std::ostringstream lines;
    mallocProfiler::dump(lines, '$', mallocProfiler::SortBy::tot);
    std::cout << (lines.str().find(";main;load;parse $1$9$9$9\n") != std::string::npos) << ' '
              << MallocTagEngine::write_stats(MTAG_OUTPUT_FORMAT_JSON, "tools") << std::endl;
    return 0;
}
