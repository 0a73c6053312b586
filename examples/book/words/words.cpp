//! Generates a text and counts its words. It allocates like a program that has never been
//! profiled: a copy of the text, a temporary string for each word, and an index that is never
//! deleted.
//
//     g++ -g -O2 -o words words.cpp
//     ./words
//
// With -DANNOTATED and Heaptide's headers, its phases and data have names. With -DFIXED, it needs
// no copy of the text and no temporary strings, and deletes the index.

#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#ifdef ANNOTATED
#include "heaptide.hpp"
#else
#define HEAPTIDE_SCOPE(name)
#endif

namespace {

using Counts = std::map<std::string, unsigned>;

struct Index {
    std::vector<std::vector<unsigned>> lines_by_length;
};

constexpr unsigned line_count = 20000;

std::vector<std::string> make_lines()
{
    HEAPTIDE_SCOPE("make");
    std::vector<std::string> lines;
    for (unsigned i = 0; i < line_count; i++)
        lines.push_back("line " + std::to_string(i % 1000) + " has the word " + std::to_string(i % 7));
    return lines;
}

#ifdef FIXED
using Lines = const std::vector<std::string> &;
#else
using Lines = std::vector<std::string>;

std::string next_word(const std::string &line, std::size_t &at)
{
    const std::size_t start = line.find_first_not_of(' ', at);
    const std::size_t end = line.find(' ', start);
    at = end;
    // Longer than the small-string buffer, so it is allocated.
    return "the word is " + line.substr(start, end - start);
}
#endif

Counts count_words(Lines lines)
{
    HEAPTIDE_SCOPE("count");
    Counts counts;
    for (const std::string &line : lines) {
#ifdef FIXED
        for (std::size_t at = 0, end; at < line.size(); at = end + 1) {
            end = line.find(' ', at) == std::string::npos ? line.size() : line.find(' ', at);
            counts[line.substr(at, end - at)]++;
        }
#else
        for (std::size_t at = 0; at != std::string::npos;)
            counts[next_word(line, at)]++;
#endif
    }
    return counts;
}

Index *make_index(const std::vector<std::string> &lines)
{
    HEAPTIDE_SCOPE("index");
    Index *index = new Index;
    index->lines_by_length.resize(64);
    for (unsigned i = 0; i < lines.size(); i++)
        index->lines_by_length[lines[i].size()].push_back(i);
#ifdef ANNOTATED
    heaptide::label(index->lines_by_length, "index");
#endif
    return index;
}

} // namespace

int main()
{
    const std::vector<std::string> lines = make_lines();
#ifdef ANNOTATED
    heaptide::mark("made");
    heaptide::snapshot("made");
    heaptide::Window window("counting");
#endif
    const Counts counts = count_words(lines);
#ifdef ANNOTATED
    window.close();
#endif
    Index *index = make_index(lines);
    std::fprintf(stderr, "%zu words in %zu lines, %zu lengths\n", counts.size(), lines.size(),
                 index->lines_by_length.size());
#ifdef FIXED
    delete index;
#endif
    return 0;
}
