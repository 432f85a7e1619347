// Shows to the Python tests what io and model make of a file. One command a run; JSON on stdout, an Error's message on
// stderr with exit code 1.
//   io_probe tensors FILE             names, dtypes, shapes and hexadecimal data of a safetensors file
//   io_probe copy-tensors IN OUT      reads a safetensors file and writes it again
//   io_probe gguf FILE OUT            the elements of a GGUF file's first tensor as a .npy file
//   io_probe npy IN OUT               reads a .npy file and writes it again; prints dtype, shape, integers
//   io_probe config DIR               config.json as it is written back
//   io_probe table ROWS DIM OUT       the position table as a .npy file
#include <fmt/format.h>

#include <cstdio>
#include <exception>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "rf/io/error.h"
#include "rf/io/gguf.h"
#include "rf/io/npy.h"
#include "rf/io/safetensors.h"
#include "rf/model/config.h"
#include "rf/model/weights.h"

namespace rf {
namespace {

using nlohmann::json;
using Arguments = std::vector<std::string>;

std::string hex(std::span<const std::byte> data) {
  std::string text;
  for (const std::byte b : data) text += fmt::format("{:02x}", std::to_integer<unsigned>(b));
  return text;
}

json tensors(const Arguments& args) {
  const io::SafetensorsFile file(args.at(0));
  json list = json::array();
  for (const io::TensorView& tensor : file.tensors()) {
    list.push_back({{"name", tensor.name},
                    {"dtype", io::safetensors_name(tensor.dtype)},
                    {"shape", tensor.shape},
                    {"hex", hex(tensor.data)}});
  }
  return {{"metadata", file.metadata()}, {"tensors", list}};
}

json copy_tensors(const Arguments& args) {
  const io::SafetensorsFile file(args.at(0));
  io::write_safetensors(args.at(1), file.tensors(), file.metadata());
  return file.tensors().size();
}

json gguf(const Arguments& args) {
  const io::GgufFile file(args.at(0));
  const std::vector<float> values = file.numbers(file.tensors().at(0));
  io::write_npy(args.at(1), io::DType::kF32, {static_cast<int64_t>(values.size())}, std::as_bytes(std::span(values)));
  return nullptr;
}

json npy(const Arguments& args) {
  const io::NpyArray array = io::read_npy(args.at(0));
  io::write_npy(args.at(1), array.dtype, array.shape, array.data);
  json result = {{"dtype", io::safetensors_name(array.dtype)}, {"shape", array.shape}};
  const bool is_float =
      array.dtype == io::DType::kF16 || array.dtype == io::DType::kF32 || array.dtype == io::DType::kF64;
  if (!is_float) result["integers"] = array.to_int64(args.at(0));
  return result;
}

json config(const Arguments& args) { return to_json(load_config(args.at(0))); }

json table(const Arguments& args) {
  const int64_t rows = std::stoll(args.at(0)), dim = std::stoll(args.at(1));
  const std::vector<float> values = position_table(rows, dim);
  io::write_npy(args.at(2), io::DType::kF32, {rows, dim}, std::as_bytes(std::span(values)));
  return nullptr;
}

const std::map<std::string, json (*)(const Arguments&)> kCommands = {
    {"tensors", tensors}, {"copy-tensors", copy_tensors}, {"gguf", gguf}, {"npy", npy}, {"config", config},
    {"table", table}};

}  // namespace
}  // namespace rf

int main(int argc, char** argv) {
  try {
    std::puts(rf::kCommands.at(argc > 1 ? argv[1] : "")({argv + std::min(argc, 2), argv + argc}).dump().c_str());
    return 0;
  } catch (const rf::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "internal: %s\n", error.what());
    return 3;
  }
}
