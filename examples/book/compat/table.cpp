//! A program with MallocProfiler that fills a hash table between two dumps.
//
//     g++ -g -O2 -o table table.cpp $(pkg-config --cflags heaptide-compat)
//     ./table             # the table grows as it is filled
//     ./table reserve     # its buckets are allocated at once

#include "mallocProfiler.h"

#include <unordered_map>

struct Strip {
    double values[4];
};

int main(int count, char **)
{
    std::unordered_map<unsigned, Strip> table;
    mallocProfiler::enable();
    if (count > 1)
        table.reserve(15000);
    for (unsigned i = 0; i < 15000; i++)
        table[i * 7] = Strip();
    mallocProfiler::disable();
    mallocProfiler::dump(std::cerr, ' ', mallocProfiler::SortBy::max);
    return 0;
}
