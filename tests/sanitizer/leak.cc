// Leaks on purpose. This shows that the sanitizer build fails on a leak, so its silence about the
// tests means something.
#include "tessera/buffer.h"

int main() {
  new tessera::Buffer(1000);
  return 0;
}
