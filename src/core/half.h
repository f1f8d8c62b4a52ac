// f16 and bf16 values are part of the API.
#pragma once

#include "tessera/half.h"
