#include "reference/array.h"
