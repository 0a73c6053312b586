//! A typical program with malloc-tag's scopes: nested, with one name at two paths, with realloc and
//! a leak; it writes its statistics, and checks some of them itself.
//
// Known: in the scopes below, blocks of 100, 200 (by realloc), 500 (twice) and 1000000 bytes. The
// realloc frees the block of 100; the blocks of 200 and 500 are freed.
#include "malloc_tag.h"

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <iostream>

static volatile std::uintptr_t sink;

template <typename T> static T *keep(T *block)
{
    sink = reinterpret_cast<std::uintptr_t>(block);
    return block;
}

static void parse()
{
    MallocTagScope scope("parse");
    delete[] keep(new char[500]);
}

static void load()
{
    MallocTagScope scope("load");
    void *block = keep(std::malloc(100));
    block = keep(std::realloc(block, 200));
    parse();
    std::free(block);
}

struct Grid {
    static void fill()
    {
        MallocTagScope scope("Grid", __FUNCTION__);
        keep(std::malloc(1000000));
    }
};

static size_t known(const MallocTagStatMap_t &map, const std::string &key)
{
    const auto found = map.find(MallocTagEngine::get_stat_key_prefix_for_thread() + key);
    return found == map.end() ? 0 : found->second;
}

int main()
{
    const bool is_recorded = MallocTagEngine::init();
    {
        MallocTagScope scope("run");
        load();
        parse();
        Grid::fill();
    }
    const MallocTagStatMap_t map = MallocTagEngine::collect_stats();
    const std::string run = "malloc_tag_scop.run";
    std::cout << (is_recorded ? "recorded" : "bare") << ' ' << map.empty() << ' '
              << known(map, run + ".load.nCallsTo_malloc") << ' '
              << known(map, run + ".load.nCallsTo_realloc") << ' '
              << known(map, run + ".load.nCallsTo_free") << ' '
              << known(map, run + ".load.parse.nTimesEnteredAndExited") << ' '
              << known(map, run + ".parse.nBytesSelfFreed") / 100 << ' '
              << known(map, run + ".nBytesTotalAllocated") / 100000 << ' '
              << known(map, ".nTreeNodesInUse") << std::endl;
    std::cout << MallocTagEngine::write_stats() << ' '
              << MallocTagEngine::collect_stats(MTAG_OUTPUT_FORMAT_HUMANFRIENDLY_TREE).empty()
              << ' ' << (MallocTagEngine::get_linux_vmrss_in_bytes() > 0) << ' '
              << MallocTagEngine::malloc_info().compare(0, 7, "<malloc") << std::endl;
    return 0;
}
