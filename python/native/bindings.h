// The parts of the module `_engine`, one file each. Only the package calls them (python/roformer_cpp/engine.py,
// tokenizer.py and others); it adds documentation, defaults and type checks.
#pragma once

#include <nanobind/nanobind.h>

namespace rf::python {

void bind_cross_encoder(nanobind::module_& module);
void bind_data(nanobind::module_& module);
void bind_engine(nanobind::module_& module);
void bind_model_files(nanobind::module_& module);
void bind_tokenizer(nanobind::module_& module);

}  // namespace rf::python
