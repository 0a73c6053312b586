//! `heaptide advise`: a cache that grows with each line of the program's input, after which it
//! prints "done"; "ready" before the first. With -DALIKE it keeps at most 200 entries. With
//! -DLASTING the cache is not destroyed at exit.
//
//   each round  known
//   cache       100 entries: nodes of the map, and strings of 1,001 bytes (1,016 usable)
//   parse       100 blocks of 5,000 bytes, each of them freed at once

#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <map>
#include <string>

#ifdef LASTING
static std::map<int, std::string> &cache = *new std::map<int, std::string>;
#else
static std::map<int, std::string> cache;
#endif

__attribute__((noinline)) static void fill(int key) {
    cache[key] = std::string(1000, 'x');
#ifdef ALIKE
    if (cache.size() > 200)
        cache.erase(cache.begin());
#endif
}

__attribute__((noinline)) static void parse() {
    void *block = malloc(5000);
    asm volatile("" ::"r"(block) : "memory");
    free(block);
}

int main() {
    std::string line;
    puts("ready");
    fflush(stdout);
    for (int round = 0; std::getline(std::cin, line); round++) {
        for (int i = 0; i < 100; i++) {
            fill(round * 100 + i);
            parse();
        }
        puts("done");
        fflush(stdout);
    }
}
