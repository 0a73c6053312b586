//! A small HTTP service with two faults: it keeps a record of each request forever, and it does not
//! delete the order of a request that fails.
//
//     g++ -g -O2 -o service service.cpp
//     ./service service.sock                       # a socket in the file system, or a port
//     curl --unix-socket service.sock http://localhost/orders/7
//     kill %1                                      # it ends with status 0
//
// An order whose number is divisible by 10 is unknown, so the response is 404. With -DFIXED the
// service has neither fault.

#include <arpa/inet.h>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <vector>

namespace {

volatile std::sig_atomic_t stopped = 0;

struct Order {
    unsigned long number;
    std::string customer;
    std::vector<unsigned> items;
};

struct Record {
    std::string request;
    int status;
};

/// Records of requests, for a page that no user has ever opened.
std::deque<std::unique_ptr<Record>> history;

void remember(const std::string &request, int status)
{
    history.push_back(std::unique_ptr<Record>(new Record{request, status}));
#ifdef FIXED
    if (history.size() > 100)
        history.pop_front();
#endif
}

Order *load_order(unsigned long number)
{
    Order *order = new Order{number, "customer number " + std::to_string(number), {}};
    for (unsigned item = 0; item < 8; item++)
        order->items.push_back(item);
    return order;
}

std::string render(const Order &order)
{
    std::string text = std::to_string(order.number) + " for " + order.customer + ":";
    for (unsigned item : order.items)
        text += " item " + std::to_string(item);
    return text + "\n";
}

/// Returns the body of the response; empty if there is no such order.
std::string answer(const std::string &path)
{
    Order *order = load_order(std::strtoul(path.c_str() + path.rfind('/') + 1, nullptr, 10));
    if (order->number % 10 == 0) {
#ifdef FIXED
        delete order;
#endif
        return "";
    }
    std::string body = render(*order);
    delete order;
    return body;
}

void serve(int connection)
{
    char buffer[4096];
    const ssize_t length = read(connection, buffer, sizeof buffer);
    const std::string request(buffer, length > 0 ? length : 0);
    const std::string path = request.substr(0, request.find(" HTTP"));
    const std::string body = answer(path);
    const int status = body.empty() ? 404 : 200;
    remember(path, status);
    const std::string text = "HTTP/1.0 " + std::to_string(status) + " -\r\n\r\n" + body;
    if (write(connection, text.data(), text.size()) < 0)
        std::perror("service: write");
}

/// Returns a socket that listens on a port, or on a path in the file system.
int listen_at(const char *where)
{
    const int port = std::atoi(where);
    sockaddr_in inet = {};
    inet.sin_family = AF_INET;
    inet.sin_port = htons(static_cast<uint16_t>(port));
    sockaddr_un local = {};
    local.sun_family = AF_UNIX;
    std::strncpy(local.sun_path, where, sizeof local.sun_path - 1);
    const sockaddr *address = reinterpret_cast<const sockaddr *>(&inet);
    if (port == 0)
        address = reinterpret_cast<const sockaddr *>(&local);
    const int listener = socket(address->sa_family, SOCK_STREAM, 0);
    if (bind(listener, address, port ? sizeof inet : sizeof local) || listen(listener, 100)) {
        std::perror(where);
        std::exit(1);
    }
    return listener;
}

} // namespace

int main(int count, char **arguments)
{
    if (count != 2) {
        std::fprintf(stderr, "usage: service PORT|SOCKET\n");
        return 2;
    }
    const int listener = listen_at(arguments[1]);
    struct sigaction action = {};
    action.sa_handler = [](int) { stopped = 1; };
    sigaction(SIGTERM, &action, nullptr);
    while (!stopped) {
        const int connection = accept(listener, nullptr, nullptr);
        if (connection < 0)
            continue;
        serve(connection);
        close(connection);
    }
    unlink(arguments[1]);
    return 0;
}
