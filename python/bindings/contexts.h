// The Contexts of calls that name none: one for each thread and device. Those of the CPU share
// their worker threads.
#pragma once

#include "tessera/context.h"

namespace tessera::python {

Context& default_context(Device device);
// In the child of a fork, where no worker thread exists any more: forgets the parent's Contexts.
void forget_default_contexts();

}  // namespace tessera::python
