//! A C++ program gets its report as a string and into a stream; what that allocates is not
//! recorded.
//
// expect leaf:block allocations=1 requested_bytes=123
#include "api_guest.h"
#include <sstream>

int main()
{
    free(block(123));
    const auto before = heaptide_thread_figures().allocations;
    const std::string text = heaptide::written("text --by function --metric requested_bytes");
    KNOWN(heaptide_thread_figures().allocations == before);
    KNOWN(text.find("123 B") != std::string::npos && text.find("block") != std::string::npos);
    CHECK(heaptide::loaded() || text.empty());
    CHECK(heaptide::written("nonsense").empty());
    std::ostringstream stream;
    heaptide::write(stream, "query:SELECT sum(frees) FORMAT json");
    KNOWN(stream.str().find("#frees\":") != std::string::npos);
    CHECK(heaptide::write("out.txt") == heaptide::loaded());
    say("output\n");
}
