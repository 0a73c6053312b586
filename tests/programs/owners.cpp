//! Owners of allocations: containers, three kinds of wrappers and a thread between the program's
//! functions and the allocator.
//
//   Cache::get  60 × a node of the map and a session with its counts
//   load        1000 orders of 32 bytes
//   user0…6     100 bytes, and three times as many each
#include <cstdlib>
#include <map>
#include <memory>
#include <thread>
#include <vector>
#define NOINLINE __attribute__((noinline))

struct Order {
    long id;
    double price;
    char note[16];
};

struct Session {
    char data[1000];
};

class Cache {
    std::map<int, std::shared_ptr<Session>> sessions;

public:
    NOINLINE void get(int id) { sessions[id] = std::make_shared<Session>(); }
};

NOINLINE std::vector<Order> load(int count)
{
    std::vector<Order> all;
    all.reserve(count);
    return all;
}

// One wrapper is recognised by its name, the other only by its number of callers.
NOINLINE char *app_malloc(size_t bytes)
{
    char *volatile block = static_cast<char *>(malloc(bytes));
    return block;
}
NOINLINE char *take(size_t bytes)
{
    char *volatile block = app_malloc(bytes);
    return block;
}

static char *volatile kept[16];
#define USER(number, bytes) \
    NOINLINE void user##number() { kept[number] = take(bytes); kept[number][0] = 1; }
USER(0, 100) USER(1, 300) USER(2, 900) USER(3, 2700) USER(4, 8100) USER(5, 24300) USER(6, 72900)

int main()
{
    Cache cache;
    std::thread([&] { for (int id = 0; id < 60; id++) cache.get(id); }).join();
    std::vector<Order> orders = load(1000);
    user0(), user1(), user2(), user3(), user4(), user5(), user6();
    return orders.size() == 1;
}
