// What the tests of train share: the message of an Error, and a temporary directory.
#pragma once

#include "text/support.h"

namespace rf::train {

using text::error_of;

struct TemporaryPath : text::TempDir {
  std::string operator/(const std::string& name) const { return path() + "/" + name; }
};

}  // namespace rf::train
