#include "support/scheduler_load.h"

#include <algorithm>

namespace tessera::test {
namespace {

CachePolicy draw_policy(Dice& dice, std::int64_t page_size) {
  const std::int64_t kind = dice.below(5);
  const std::int64_t window = dice.between(1, 3 * page_size);
  if (kind == 0) return CachePolicy::last(window);
  if (kind == 1) return CachePolicy::sinks(dice.between(0, page_size + 1), window);
  return CachePolicy::full();
}

}  // namespace

SimulatedSetting draw_setting(Dice& dice) {
  SimulatedSetting s{};
  s.options.max_sequences = dice.one_of({1, 2, 4, 8, 16, 24});
  s.options.max_step_tokens = s.options.max_sequences * dice.one_of({1, 2, 4, 8});
  s.options.total_pages = dice.one_of({2, 5, 8, 16, 24, 40, 64});
  s.options.max_waiting_steps = dice.one_of({0, 5, 20, 100, 1000});
  s.page_size = dice.one_of({1, 2, 3, 4, 8});
  s.arrivals = dice.between(10, 100);
  s.burst = dice.between(1, 2 * s.options.max_sequences);
  s.cancels = dice.one_of({0, 2, 10});
  s.priorities = dice.one_of({1, 2, 5});
  s.families = dice.between(1, 6);
  s.longest = dice.between(4, 24);
  return s;
}

SimulatedRequest draw_request(Dice& dice, const SimulatedSetting& setting) {
  SimulatedRequest r;
  r.priority = static_cast<int>(dice.below(setting.priorities));
  const std::int64_t room = setting.options.total_pages * setting.page_size;
  const std::int64_t longest = dice.percent(2) ? room + 1 : std::min(room, setting.longest);
  r.prompt = dice.between(1, longest);
  r.target = r.prompt + dice.between(1, dice.percent(5) ? room : setting.longest);
  r.bounded = !dice.percent(5);
  r.content.policy = draw_policy(dice, setting.page_size);
  r.content.family = static_cast<std::uint64_t>(dice.below(setting.families));
  r.content.shared_tokens = dice.below(r.prompt + 1);
  r.forks = dice.percent(10) ? dice.between(1, 4) : 0;
  r.known = r.prompt;
  return r;
}

}  // namespace tessera::test
