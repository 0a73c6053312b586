//! The example of MallocProfiler's slides: a hash table of 15,148 elements of 32 bytes, filled like
//! in the reconstruction of a particle detector.
//
//   elements       15148 blocks of 48 bytes: 727,104 live, and as many at most; of 56 usable
//                  bytes each, or more: 848,288 at least
//   bucket arrays  11 calls: 8 bytes for each of 13, 29, 59, 127, 257, 541, 1109, 2357, 5087, 10273
//                  and 20753 buckets, 324,840 in all; the last one is live, 166,024; with the one
//                  before it 248,208 at most
//   reserved       `reserve` beforehand: one array of 15173 buckets, 121,384, and the same elements
#include "../programs/guest.h"

#include <unordered_map>

struct StripData {
    double values[4];
};
using Table = std::unordered_map<unsigned, StripData>;

static __attribute__((noinline)) void fillStripData(Table &table)
{
    for (unsigned i = 0; i < 15148; i++)
        table[i * 7] = StripData();
}

int main(int count, char **)
{
    Table *table = new Table;
    if (count > 1)
        table->reserve(15148);
    fillStripData(*table);
    keep(table);
    return 0;
}
