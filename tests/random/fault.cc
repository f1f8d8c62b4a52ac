#include <chrono>
#include <thread>

#include "random/ops.h"

namespace tessera::test {

void random_fault(Trial& trial) {
  const bool hangs = trial.draws.chance("hangs", 0);
  trial.begin("fault");
  while (hangs) std::this_thread::sleep_for(std::chrono::seconds(1));
  trial.expect_within(Array({2, 3}, 1.5), Array({2, 3}, 1.0), Array({2, 3}, 0.25),
                      "a wrong result");
}

}  // namespace tessera::test
