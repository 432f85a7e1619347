// Checks of a data directory, for python/roformer_cpp/shards.py, which then reads the files itself.
#include <nanobind/stl/string.h>

#include <string>

#include "bindings.h"
#include "rf/data/split.h"

namespace rf::python {

namespace nb = nanobind;

namespace {

// Throws Error for what the program would refuse: data.json, each shard's layout and checksum, and their agreement.
void check_split(const std::string& data_dir, const std::string& name) { data::Split(data_dir, name, "").verify(); }

}  // namespace

void bind_data(nb::module_& module) {
  module.def("check_split", &check_split, nb::arg("data_dir"), nb::arg("name"),
             nb::call_guard<nb::gil_scoped_release>());
}

}  // namespace rf::python
