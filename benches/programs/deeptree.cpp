// Deep, ever-changing stacks: a recursive-descent parser builds trees of map, string and vector.
//
//   deeptree ROUNDS   parses about 200 nested documents ROUNDS times and drops each tree
//
// A document nests 10 to 30 levels with two frames each: stacks of 20 to 60 frames, tens of
// thousands of distinct ones, each occurring many times. Prints `ns_per_alloc X`, the time divided
// by the C++ allocations, and the number of allocations.
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <string>
#include <vector>

#define NOINLINE __attribute__((noinline)) static

static constexpr int DOCUMENTS = 200;

static inline uint64_t next(uint64_t &s) {
    s ^= s << 13;
    s ^= s >> 7;
    s ^= s << 17;
    return s;
}

static void leaves(std::string &out, uint64_t &s, unsigned count) {
    for (unsigned i = 0; i < count; i++) out += char('a' + next(s) % 26);
}

// Documents: '(' list ')', '[' array ']', '{' object '}', '<' element '>', atoms 'a' to 'z'.
static void generate(std::string &out, uint64_t &s, int level, int deepest) {
    if (level >= deepest) return leaves(out, s, 1);
    unsigned kind = next(s) % 4;
    out += "([{<"[kind];
    leaves(out, s, next(s) % 3);
    generate(out, s, level + 1, deepest);
    if (next(s) % 8 == 0) generate(out, s, level + 1 + next(s) % 8, deepest);
    leaves(out, s, next(s) % 2);
    out += ")]}>"[kind];
}

struct Node {
    std::map<std::string, std::unique_ptr<Node>> named;
    std::vector<std::unique_ptr<Node>> list;
    std::string text;
};
using NodePtr = std::unique_ptr<Node>;

struct Input {
    const char *at;
};

static NodePtr value(Input &in);

static void items(Input &in, Node &node, char end) {
    while (*in.at != end) node.list.push_back(value(in));
    in.at++;
}

NOINLINE NodePtr atom(Input &in) {
    auto node = std::make_unique<Node>();
    node->text.assign(24, *in.at++); // longer than the buffer inside std::string
    return node;
}

NOINLINE NodePtr list(Input &in) {
    auto node = std::make_unique<Node>();
    items(in, *node, ')');
    return node;
}

NOINLINE NodePtr array(Input &in) {
    auto node = std::make_unique<Node>();
    node->text.assign(40, '[');
    items(in, *node, ']');
    return node;
}

NOINLINE NodePtr object(Input &in) {
    auto node = std::make_unique<Node>();
    for (int key = 0; *in.at != '}'; key++) {
        auto child = value(in);
        node->named.emplace("a-key-of-the-object-" + std::to_string(key), std::move(child));
    }
    in.at++;
    return node;
}

NOINLINE NodePtr element(Input &in) {
    auto node = std::make_unique<Node>();
    node->text = "element-name-that-is-long";
    items(in, *node, '>');
    return node;
}

NOINLINE NodePtr value(Input &in) {
    switch (*in.at) {
    case '(': in.at++; return list(in);
    case '[': in.at++; return array(in);
    case '{': in.at++; return object(in);
    case '<': in.at++; return element(in);
    default: return atom(in);
    }
}

// Counts the node itself, its text, map nodes and keys, and the growth steps of the vector.
static uint64_t count_allocations(const Node &node) {
    uint64_t count = 1 + (node.text.size() > 15) + 2 * node.named.size();
    for (size_t room = 0; room < node.list.size(); room = room ? room * 2 : 1) count++;
    for (auto &child : node.list) count += count_allocations(*child);
    for (auto &child : node.named) count += count_allocations(*child.second);
    return count;
}

int main(int argc, char **argv) {
    unsigned rounds = argc > 1 ? atoi(argv[1]) : 40;
    uint64_t s = 88172645463325252ull, allocations = 0;
    std::vector<std::string> documents(DOCUMENTS);
    for (auto &text : documents) generate(text, s, 0, 10 + next(s) % 21);
    for (auto &text : documents) {
        Input in{text.c_str()};
        allocations += count_allocations(*value(in));
    }
    auto start = std::chrono::steady_clock::now();
    for (unsigned round = 0; round < rounds; round++) {
        for (auto &text : documents) {
            Input in{text.c_str()};
            NodePtr root = value(in);
            asm volatile("" ::"r"(root.get()) : "memory");
        }
    }
    auto time = std::chrono::steady_clock::now() - start;
    double ns = std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
    allocations *= rounds;
    printf("ns_per_alloc %.3f\n", ns / double(allocations));
    printf("allocations %llu\n", (unsigned long long)allocations);
}
