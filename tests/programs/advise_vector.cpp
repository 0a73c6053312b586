//! `heaptide advise`: a vector that grows at peak usage: its old block and its new one are live.
//! With -DALIKE its size is reserved; with -DSEVERAL there are two, whose sizes are not known.
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
