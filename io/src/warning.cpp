// The scope of each thread (rf/io/warning.h).
#include "rf/io/warning.h"

namespace rf::io {

namespace {

thread_local const TakeWarning* innermost = nullptr;

}  // namespace

WarningScope::WarningScope(TakeWarning take) : take_(std::move(take)), before_(innermost) {
  if (take_) innermost = &take_;
}

WarningScope::~WarningScope() { innermost = before_; }

void warn_text(const std::string& text) {
  if (innermost != nullptr) (*innermost)(text);
}

}  // namespace rf::io
