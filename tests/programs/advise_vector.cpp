//! `heaptide advise`: a vector grows at peak usage, so that its old and new block are live
//! together. With -DALIKE its size is reserved; with -DSEVERAL there are two vectors of unknown
//! sizes.
//
//   collect  5,000,000 numbers of 4 bytes: 32 MiB after 16 MiB
#include "guest.h"
#include <vector>

enum { NUMBERS = 5000000 };

static NOINLINE void collect(std::vector<int> &numbers, int count)
{
    for (int i = 0; i < count; i++)
        numbers.push_back(i);
    stay();
}

int main()
{
    std::vector<int> numbers, others;
#ifdef ALIKE
    numbers.reserve(NUMBERS);
#endif
#ifdef SEVERAL
    collect(others, NUMBERS / 2);
#endif
    collect(numbers, NUMBERS);
    return numbers.size() + others.size() < NUMBERS;
}
