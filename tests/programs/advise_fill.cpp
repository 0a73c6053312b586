//! `heaptide advise`: vectors that are filled element by element. With -DALIKE their size is
//! reserved; with -DSHORT they have one element each, which is no growth.
//
//   fill  3,000 vectors of 20,000 numbers of 4 bytes: 16 blocks each, of which `reserve` saves 15;
//         with -DSHORT 48,000 vectors of one number
#include "guest.h"
#include <vector>

#ifdef SHORT
enum { VECTORS = 48000, NUMBERS = 1 };
#else
enum { VECTORS = 3000, NUMBERS = 20000 };
#endif

static NOINLINE void fill(std::vector<int> &numbers)
{
#ifdef ALIKE
    numbers.reserve(NUMBERS);
#endif
    for (int i = 0; i < NUMBERS; i++)
        numbers.push_back(i);
    stay();
}

int main()
{
    std::vector<int> previous;
    for (int i = 0; i < VECTORS; i++) {
        std::vector<int> numbers;
        fill(numbers);
        previous.swap(numbers);
    }
    return previous.size() != NUMBERS;
}
