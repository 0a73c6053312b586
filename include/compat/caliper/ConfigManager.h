//! Caliper's configurations by name, for programs written for Caliper.
//
// Supports runtime-report, runtime-profile, hatchet-region-profile and event-trace, with the
// options mem.highwatermark, alloc.stats, mem.pages, output, output.append and output.format.
// Options that do not concern memory are ignored; other configurations are errors.

#ifndef HEAPTIDE_COMPAT_CALI_CONFIG_MANAGER_H
#define HEAPTIDE_COMPAT_CALI_CONFIG_MANAGER_H

#include "cali.h"

#include <map>
#include <string>
#include <vector>

namespace cali {

/// Stands for Caliper's channel, in the interface of cali-manager.h; all channels share one
/// recording.
class ConfigManager {
public:
    typedef std::map<std::string, std::string> argmap_t;

    ConfigManager() = default;
    explicit ConfigManager(const char *config) { add(config); }

    /// Adds configurations. Returns false, with error_msg() set, if a name is unknown.
    bool add(const char *config)
    {
        const std::string both = text_.empty() ? config : text_ + "," + config;
        const std::string bad = check(config);
        if (!bad.empty()) {
            error_ = bad;
            return false;
        }
        text_ = both;
        return true;
    }
    /// Pairs `key=value` that belong to no configuration are stored in `extra`.
    bool add(const char *config, argmap_t &extra)
    {
        std::string known;
        for (const char *at = config; *at;) {
            const std::size_t length = heaptide_cali_piece_(at);
            const std::string piece(at, length);
            const std::size_t sign = piece.find('=');
            if (check(piece.c_str()).empty())
                known += (known.empty() ? "" : ",") + piece;
            else if (sign != std::string::npos && piece.find('(') == std::string::npos)
                extra[piece.substr(0, sign)] = piece.substr(sign + 1);
            else
                known += (known.empty() ? "" : ",") + piece;
            at += length + (at[length] != 0);
        }
        return add(known.c_str());
    }
    void set_default_parameter(const char *key, const char *value)
    {
        add((std::string(key) + "=" + value).c_str());
    }

    bool error() const { return !error_.empty(); }
    std::string error_msg() const { return error_; }

    /// Starts recording if the program is linked with the recorder and was started without
    /// recording.
    void start()
    {
        if (!text_.empty())
            heaptide_cali_init_with_(1);
    }
    void stop() {}
    /// Writes the output of the configurations.
    void flush()
    {
        char message[256];
        if (!text_.empty() && heaptide_recording()) {
            heaptide_pause(0);
            heaptide_cali_configure_(text_.c_str(), 1, message, sizeof message);
            heaptide_resume(0);
        }
    }

    std::string check(const char *config) const { return check_config_string(config); }
    static std::string check_config_string(const char *config)
    {
        char message[256];
        const bool good = heaptide_cali_configure_(config, 0, message, sizeof message) != 0;
        return good ? std::string() : std::string(message);
    }
    std::vector<std::string> available_config_specs() const { return available_configs(); }
    std::string get_description_for_spec(const char *name) const
    {
        return heaptide_cali_is_config_(name) ? "see docs/replaces.md of Heaptide"
                                              : "Not available";
    }
    std::string get_documentation_for_spec(const char *name) const
    {
        return std::string(name) + "\n " + get_description_for_spec(name);
    }
    static std::vector<std::string> available_configs()
    {
        return {"event-trace", "hatchet-region-profile", "runtime-profile", "runtime-report"};
    }

private:
    std::string text_, error_;
};

} // namespace cali

#endif
