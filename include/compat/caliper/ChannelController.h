//! Caliper's controller of a channel, for programs written for Caliper.
//
// Without channel() and on_create(), which give access to Caliper's services. All channels share
// one recording, which start() begins if the program is linked with the recorder.

#ifndef HEAPTIDE_COMPAT_CALI_CHANNEL_CONTROLLER_H
#define HEAPTIDE_COMPAT_CALI_CHANNEL_CONTROLLER_H

#include "cali.h"

#include <map>
#include <memory>
#include <string>
#include <utility>

namespace cali {

typedef std::map<std::string, std::string> info_map_t;

/// Creates a channel at its first start(). Copies control the same channel, which is deleted with
/// the last of them.
class ChannelController {
protected:
    /// The channel that copies of a controller share.
    struct Target {
        std::string name;
        config_map_t config;
        info_map_t metadata;

        Target(const char *its_name, const config_map_t &its_config)
            : name(its_name), config(its_config), metadata()
        {
        }
        Target(const Target &) = delete;
        Target &operator=(const Target &) = delete;
        virtual ~Target() = default;
        virtual void start() = 0;
        virtual void stop() = 0;
        virtual void flush() = 0;
        virtual bool is_active() const = 0;
        virtual bool is_instantiated() const = 0;
    };

    explicit ChannelController(std::shared_ptr<Target> target) : target_(std::move(target)) {}

    /// Changes have an effect only before the first start().
    config_map_t &config() { return target_->config; }
    /// Has no effect.
    info_map_t &metadata() { return target_->metadata; }

public:
    ChannelController(const char *name, int flags, const config_map_t &config)
        : target_(std::make_shared<Channel>(name, flags, config))
    {
    }
    virtual ~ChannelController() = default;

    void start() { target_->start(); }
    void stop() { target_->stop(); }
    bool is_active() const { return target_->is_active(); }
    /// Returns whether start() was called.
    bool is_instantiated() const { return target_ && target_->is_instantiated(); }
    std::string name() const { return target_->name; }
    /// Writes the output that the configuration requests.
    virtual void flush() { target_->flush(); }
    config_map_t copy_config() const { return target_->config; }

private:
    struct Channel : Target {
        cali_id_t id;
        int flags;

        Channel(const char *its_name, int its_flags, const config_map_t &its_config)
            : Target(its_name, its_config), id(CALI_INV_ID), flags(its_flags)
        {
        }
        ~Channel() override
        {
            if (id != CALI_INV_ID)
                cali_delete_channel(id);
        }
        void start() override
        {
            if (id == CALI_INV_ID)
                id = create_channel(name.c_str(), flags, config);
            if (id != CALI_INV_ID)
                cali_activate_channel(id);
        }
        void stop() override
        {
            if (id != CALI_INV_ID)
                cali_deactivate_channel(id);
        }
        void flush() override
        {
            if (id != CALI_INV_ID)
                cali_channel_flush(id, 0);
        }
        bool is_active() const override { return id != CALI_INV_ID && cali_channel_is_active(id); }
        bool is_instantiated() const override { return id != CALI_INV_ID; }
    };

    std::shared_ptr<Target> target_;
};

} // namespace cali

#endif
