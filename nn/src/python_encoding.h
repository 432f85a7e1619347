// Encodings written in Python (python/roformer_cpp/custom_encoding.py), which are called through operators that Python
// registers; this library knows nothing else of Python. Without a running Python, no such encoding exists.
#pragma once

#include <memory>

#include "rf/nn/encoding.h"

namespace rf::nn {

// nullptr if Python has not registered an encoding of this name. Parameters, persistent buffers and the mode, training
// or evaluation, belong to the Python module.
std::shared_ptr<Encoding> make_python_encoding(const EncodingConfig& config, const EncodingShape& shape);

// Whether make_python_encoding would make one.
bool is_python_encoding(const std::string& name);
// Whether it made this one.
bool is_python_encoding(const Encoding& encoding);

}  // namespace rf::nn
