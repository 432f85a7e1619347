// What the tests of train share: the message of an Error and its words, and a temporary directory.
#pragma once

#include "temporary_files.h"

namespace rf::train {

using tests::error_of;
using tests::expect_has;
using TemporaryPath = tests::Directory;

}  // namespace rf::train
