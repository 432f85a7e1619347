// Opens the library of commands that need torch (training_library.h).
#include "training_library.h"

#include <dlfcn.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "rf/io/error.h"

// Called by program.cpp, defined in main.cpp.
extern "C" int rf_cli_main(int argc, char** argv);

namespace rf::cli {

namespace {

// The library is in the same directory as this one, so a copied or installed program never opens the library of another
// build.
std::string path_of(const char* library) {
  Dl_info here = {};
  dladdr(reinterpret_cast<void*>(&rf_cli_main), &here);
  return std::filesystem::path(here.dli_fname).replace_filename(library);
}

void* symbol(const std::string& command, const std::string& name) {
  constexpr const char* file = "libroformer_training.so";
  // RTLD_GLOBAL: as if the program linked torch.
  void* const library = dlopen(path_of(file).c_str(), RTLD_NOW | RTLD_GLOBAL);
  void* const found = library == nullptr ? nullptr : dlsym(library, name.c_str());
  if (found == nullptr) {
    fail("program",
         "{} needs {} beside libroformer_cli.so, and PyTorch (README.md says under \"The command line\" how to get "
         "both), got: {}",
         command, file, dlerror());
  }
  return found;
}

}  // namespace

Configure training_command(const std::string& name) {
  std::string function = "rf_configure_" + name;
  std::replace(function.begin(), function.end(), '-', '_');
  return reinterpret_cast<Configure>(symbol(name, function));
}

nlohmann::json torch_facts(const Common& common) {
  return reinterpret_cast<nlohmann::json (*)(const Common&)>(symbol("info", "rf_torch_facts"))(common);
}

nlohmann::json evaluate_data(const train::EvaluateOptions& options, const Common& common) {
  using Evaluate = nlohmann::json (*)(const train::EvaluateOptions&, const Common&);
  return reinterpret_cast<Evaluate>(symbol("evaluate --data", "rf_evaluate_data"))(options, common);
}

}  // namespace rf::cli
