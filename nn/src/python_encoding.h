// Encodings written in Python (python/roformer_cpp/custom_encoding.py), which are called through operators that Python
// registers; this library knows nothing else of Python. Where no Python runs, there are none.
#pragma once

#include <memory>

#include "rf/nn/encoding.h"

namespace rf::nn {

// nullptr where Python has registered no encoding of this name. Parameters and persistent buffers are those of
// the Python module, and so is the mode, training or evaluation.
std::shared_ptr<Encoding> make_python_encoding(const EncodingConfig& config, const EncodingShape& shape);

// Whether make_python_encoding would make one.
bool is_python_encoding(const std::string& name);
// Whether it made this one.
bool is_python_encoding(const Encoding& encoding);

}  // namespace rf::nn
