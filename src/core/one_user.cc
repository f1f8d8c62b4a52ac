#include "core/one_user.h"

#include "core/fail.h"

namespace tessera {

void OneUser::refuse(const char* what) {
  fail(ErrorCode::invalid_argument,
       "{}: another thread is using this Context; give each thread a Context of its own, which may "
       "share its CPU threads (ContextOptions::share_threads_with)",
       what);
}

}  // namespace tessera
