//! A program with scopes of malloc-tag that loads ten documents and parses each.
//
//     g++ -g -O2 -o tags tags.cpp $(pkg-config --cflags heaptide-compat)

#include "malloc_tag.h"

#include <cstdlib>
#include <vector>

namespace {

std::size_t parse(const std::vector<char> &document)
{
    MallocTagScope scope("parse");
    std::vector<std::vector<char>> lines;
    for (int i = 0; i < 20; i++)
        lines.emplace_back(document.begin(), document.begin() + 100);
    return lines.size();
}

std::vector<char> load(std::size_t length)
{
    MallocTagScope scope("load");
    return std::vector<char>(length);
}

} // namespace

int main()
{
    MallocTagEngine::init();
    std::size_t lines = 0;
    {
        MallocTagScope scope("documents");
        for (std::size_t i = 1; i <= 10; i++)
            lines += parse(load(10000 * i));
    }
    MallocTagEngine::write_stats();
    return lines == 200 ? 0 : 1;
}
