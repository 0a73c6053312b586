//! `heaptide advise`: workers answer requests for more than ten seconds, and a cache keeps all
//! responses until main frees them at its end. With -DLIMITED each worker removes its oldest
//! response before it adds one to 50. With -DQUICK the workers do not wait between requests: a job
//! that builds its data, which main frees.
//
//   ResponseCache::put  4 workers with 1,050 responses each, of a block of 4,096 bytes and one of
//                       24; with -DQUICK 50,000 each, of which a response has 96 bytes
//
// build: -pthread
#include "guest.h"
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

enum { WORKERS = 4, LIMIT = 50, WAIT_US = 10000 };
#ifdef QUICK
enum { REQUESTS = 50000, BYTES = 96 };
#else
enum { REQUESTS = 1050, BYTES = 4096 };
#endif

struct Response {
    char *body;
    size_t length;
};

class ResponseCache {
public:
    NOINLINE void put(size_t worker)
    {
        auto *response = new Response{static_cast<char *>(keep(malloc(BYTES))), BYTES};
        memset(response->body, 'x', BYTES);
        std::lock_guard<std::mutex> guard(mutex);
        std::deque<Response *> &own = responses[worker];
        own.push_back(response);
    }

    // Removes a worker's oldest response if it has as many as it may have.
    void make_room(size_t worker)
    {
        std::lock_guard<std::mutex> guard(mutex);
        std::deque<Response *> &own = responses[worker];
        if (own.size() == LIMIT) {
            remove(own.front());
            own.pop_front();
        }
    }

    ~ResponseCache()
    {
        for (auto &own : responses)
            for (Response *response : own)
                remove(response);
    }

private:
    static void remove(Response *response)
    {
        free(response->body);
        delete response;
    }

    std::mutex mutex;
    std::deque<Response *> responses[WORKERS];
};

static NOINLINE void parse(int request)
{
    std::vector<int> fields(10 + request % 10);
    keep(fields.data());
}

static void answer(ResponseCache &cache, size_t worker)
{
    for (int request = 0; request < REQUESTS; request++) {
        parse(request);
#ifdef LIMITED
        cache.make_room(worker);
#endif
        cache.put(worker);
#ifndef QUICK
        usleep(WAIT_US);
#endif
    }
}

int main()
{
    ResponseCache cache;
    std::vector<std::thread> workers;
    for (size_t worker = 0; worker < WORKERS; worker++)
        workers.emplace_back(answer, std::ref(cache), worker);
    for (std::thread &worker : workers)
        worker.join();
    return 0;
}
