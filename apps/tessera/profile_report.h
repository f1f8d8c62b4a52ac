// The results of `tessera profile`, and their forms: a table, JSON, a page.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "profile/breakdown.h"
#include "profile/ceilings.h"
#include "profile/fusion.h"

namespace tessera::app {

// Milliseconds of one layer, by op.
struct LayerTime {
  std::string layer;  // "0", "1", ..., "outside"
  std::vector<double> ms;
};

struct ProfilePhase {
  std::string name;  // "prefill", "decode"
  std::string unit;  // what the times are of: "a prompt of 256 tokens", "one token"
  std::int64_t tokens = 0;
  profile::Breakdown breakdown;
  profile::Ceilings ceilings;
  double untraced_ms = 0;  // the same time with tracing off
  std::vector<std::string> layer_ops;
  std::vector<LayerTime> layers;
};

struct ProfileReport {
  std::string model, architecture, device, device_name, dtype, weights, date, version;
  int threads = 0;
  double memory_bandwidth = 0;  // of all of memory; the ceilings of a phase may be a cache's
  std::int64_t prompt_len = 0, gen_len = 0;
  std::vector<std::string> notes;
  ProfilePhase prefill, decode;
  std::optional<profile::FusionGains> fusion{};  // with --fusion-gain
};

// {"prefill": {"wall_ms", "rows"}, "decode": ..., "about": ..., "ceilings": ..., "layers": ...}
nlohmann::json profile_json(const ProfileReport& report);
std::string profile_text(const ProfileReport& report);
std::string profile_html(const ProfileReport& report);
// The plots of the page, for files of their own.
std::string profile_roofline(const ProfilePhase& phase);
std::string profile_shares(const ProfilePhase& phase);

}  // namespace tessera::app
