// Input of the compiler workload: many templates, little code.
#include <bits/stdc++.h>

template <int N> struct Table {
    std::map<std::string, std::array<int, N>> by_name;
    std::unordered_map<int, std::vector<std::string>> by_number;
    int run(int k) {
        by_name[std::to_string(k)][0] = k;
        by_number[k].push_back("x");
        std::sort(by_number[k].begin(), by_number[k].end());
        return int(by_name.size() + by_number.size());
    }
};

template <int... I> int all(std::integer_sequence<int, I...>) {
    return (Table<I + 1>{}.run(I) + ...);
}

int main() {
    std::regex pair("([a-z]+)=([0-9]+)(;|$)");
    std::string text = "alpha=1;beta=22;";
    int n = 0;
    for (std::sregex_iterator it(text.begin(), text.end(), pair), end; it != end; ++it)
        n += it->str(1).size();
    std::variant<int, std::string, std::vector<double>> value = std::string("x");
    n += std::visit([](auto &x) { return int(sizeof x); }, value);
    return n + all(std::make_integer_sequence<int, 10>{});
}
