// Grows a cache in rounds, one for each line of its input, after which it prints "done"; "ready"
// before the first.
//
//   each round    known
//   cache         100 entries: nodes of the map, and strings of 1,001 bytes (1,016 usable)
//   buffers       1 block of 300 bytes (312 usable), which a vector keeps
//   lost          1 block of 5,000 bytes (5,000 usable)
//
// Old pointers to nodes of the map stay on the stack: each leads to the whole tree, by way of its
// parents, which does not take it from `cache`.

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iostream>
#include <map>
#include <string>
#include <vector>

static std::map<int, std::string> cache;
static std::vector<char *> buffers;

__attribute__((noinline)) static void fill(int round) {
    for (int i = 0; i < 100; i++)
        cache[round * 100 + i] = std::string(1000, 'x');
}

__attribute__((noinline)) static void lose() {
    char *lost = static_cast<char *>(malloc(5000));
    memset(lost, 1, 5000);
    asm volatile("" ::"r"(lost));
}

__attribute__((noinline)) static void buffer() {
    buffers.push_back(static_cast<char *>(malloc(300)));
}

int main() {
    buffers.reserve(1000);
    std::string line;
    puts("ready");
    fflush(stdout);
    for (int round = 0; std::getline(std::cin, line); round++) {
        fill(round);
        lose();
        buffer();
        puts("done");
        fflush(stdout);
    }
}
