//! Dimensions and numbers of labels of containers, based on their elements.
//
//   uid  label   memory                  dimensions
//    1   vector  std::vector<double>     1000 of 8 bytes
//    2   table   static short [30]       30 of 2 bytes
//    3   block   std::unique_ptr<int[]>  70 of 4 bytes
#include "api_guest.h"

#include <memory>
#include <vector>

static short table[30];

static bool is(const void *address, const char *label, uint64_t uid)
{
    struct heaptide_block found;
    return heaptide_resolve(address, &found) && found.label && !strcmp(found.label, label)
           && found.uid == uid;
}

int main()
{
    std::vector<double> vector(1000);
    std::unique_ptr<int[]> owned(new int[70]);
    KNOWN(heaptide::label(vector, "vector") && is(&vector[999], "vector", 1));
    KNOWN(heaptide::label(table, "table") && is(&table[29], "table", 2));
    KNOWN(heaptide::label(owned, "block", 70) && is(&owned[69], "block", 3));
    return 0;
}
