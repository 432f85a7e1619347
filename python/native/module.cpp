// The module `roformer_cpp._engine`: trained models and tokenizers for Python, over the same functions as the commands.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "bindings.h"
#include "rf/data/split.h"
#include "rf/model/model_types.h"
#include "rf/status.h"

namespace nb = nanobind;

// Throws Error for what the program would refuse: data.json, each shard's layout and checksum, and their agreement.
static void check_split(const std::string& data_dir, const std::string& name) {
  rf::data::Split(data_dir, name, "").verify();
}

NB_MODULE(_engine, module) {
  rf::python::register_errors();
  rf::python::bind_cross_encoder(module);
  rf::python::bind_engine(module);
  rf::python::bind_model_files(module);
  rf::python::bind_tokenizer(module);
  rf::python::bind_translator(module);
  module.def("cached_model", &rf::cached_model);
  module.def("check_split", &check_split, nb::call_guard<nb::gil_scoped_release>());
  module.def("located_model", &rf::located_model);
  module.def("target", [] { return rf_target(); });
}
