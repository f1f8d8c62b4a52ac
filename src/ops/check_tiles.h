// The check of ops that take a weight in either layout: as published, or in the tiles of their
// device.
#pragma once

#include "ops/check_weight.h"
#include "ops/op_scope.h"
#include "tessera/device.h"
#include "tessera/weight.h"

namespace tessera {

// check_weight(), but tiles that prepare() made for this device pass too. Reads no element.
void check_weight_for(const OpScope& op, const WeightNames& names, const Weight& weight,
                      Device device);

}  // namespace tessera
