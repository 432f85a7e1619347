// The parts of the module `_engine`, each in a file of its own. The package gives them their documentation, defaults
// and checks of types (python/roformer_cpp/engine.py, tokenizer.py and others): what is here is called by it alone.
#pragma once

#include <nanobind/nanobind.h>

namespace rf::python {

void bind_cross_encoder(nanobind::module_& module);
void bind_data(nanobind::module_& module);
void bind_engine(nanobind::module_& module);
void bind_model_files(nanobind::module_& module);
void bind_tokenizer(nanobind::module_& module);

}  // namespace rf::python
