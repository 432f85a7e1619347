// roformer forward: computes logits or hidden states from arrays of token ids.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "command.h"
#include "read_options.h"
#include "rf/engine/model.h"
#include "rf/io/error.h"
#include "rf/io/npy.h"
#include "rf/model/config.h"
#include "rf/model/run_checkpoints.h"

namespace rf::cli {

namespace {

using Shape = std::vector<int64_t>;

constexpr const char* kForwardWhere = "forward";

struct ForwardOptions {
  std::string model_dir, ids_path, mask_path, types_path, output_path;
  engine::Precision precision = engine::Precision::kFloat32;
};

struct Integers {
  Shape shape;
  std::vector<int64_t> values;
};

std::string shape_text(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

Integers read_integers(const std::string& path) {
  const io::NpyArray array = io::read_npy(path);
  return {array.shape, array.to_int64(path)};
}

Integers read_ids(const std::string& path, bool choices) {
  const Integers ids = read_integers(path);
  if (ids.shape.size() != (choices ? 3u : 2u)) {
    fail(kForwardWhere, "ids must have the shape {}, got {} in {}", choices ? "[B, choices, T]" : "[B, T]",
         shape_text(ids.shape), path);
  }
  if (ids.values.empty()) {
    fail(kForwardWhere, "ids must hold at least one token, got the shape {} in {}", shape_text(ids.shape), path);
  }
  return ids;
}

std::vector<int64_t> read_like(const std::string& path, const char* what, const Shape& shape) {
  Integers read = read_integers(path);
  if (read.shape != shape) {
    fail(kForwardWhere, "{} must have the shape of the ids, {}, got {} in {}", what, shape_text(shape),
         shape_text(read.shape), path);
  }
  return std::move(read.values);
}

Shape index_of(size_t flat, const Shape& shape) {
  Shape index(shape.size());
  auto rest = static_cast<int64_t>(flat);
  for (size_t d = shape.size(); d-- > 0; rest /= shape[d]) index[d] = rest % shape[d];
  return index;
}

// Values in 0..end - 1.
std::vector<int32_t> checked(const std::vector<int64_t>& values, const Shape& shape, const char* what, int64_t end) {
  const auto bad = std::find_if(values.begin(), values.end(), [&](int64_t x) { return x < 0 || x >= end; });
  if (bad != values.end()) {
    fail(kForwardWhere, "{} must be in 0..{}, got {} at {}", what, end - 1, *bad,
         shape_text(index_of(static_cast<size_t>(bad - values.begin()), shape)));
  }
  return {values.begin(), values.end()};
}

std::vector<uint8_t> read_mask(const std::string& path, const Shape& shape) {
  const std::vector<int64_t> values = read_like(path, "the mask", shape);
  std::vector<uint8_t> attend(values.size());
  std::transform(values.begin(), values.end(), attend.begin(), [](int64_t x) { return x != 0; });
  const int64_t row = shape.back();
  for (auto begin = attend.begin(); begin != attend.end(); begin += row) {
    if (std::find(begin, begin + row, 1) == begin + row) {
      fail(kForwardWhere, "each sequence must have a token that may be attended to, got none in row {} of {}",
           (begin - attend.begin()) / row, path);
    }
  }
  return attend;
}

// Transposes [rows, 2], start and end, to [2, rows].
std::vector<float> transposed(const std::vector<float>& logits) {
  const size_t rows = logits.size() / 2;
  std::vector<float> result(logits.size());
  for (size_t i = 0; i < rows; ++i) {
    result[i] = logits[2 * i];
    result[rows + i] = logits[2 * i + 1];
  }
  return result;
}

struct Result {
  Shape shape;
  std::vector<float> values;
};

Result compute(const engine::Model& model, const engine::Tokens& tokens, const Shape& ids) {
  const HeadRow& head = row_of(model.info().head);
  const bool has_head = head.columns != 0, of_tokens = model.logits_of_tokens();
  const int64_t columns = has_head ? model.logits_per_row() : model.info().hidden_size;
  Result result{ids, {}};
  if (!of_tokens) result.shape.pop_back();
  if (head.reads != HeadRow::Reads::kChoice) result.shape.push_back(columns);
  const size_t rows = of_tokens ? tokens.ids.size() : tokens.offsets.size() - 1;
  result.values.resize(rows * static_cast<size_t>(columns));
  has_head ? model.logits(tokens, result.values.data()) : model.hidden(tokens, result.values.data());
  if (!head.are_ends) return result;
  Shape shape = {2};
  shape.insert(shape.end(), ids.begin(), ids.end());
  return {shape, transposed(result.values)};
}

int run_forward(const ForwardOptions& options) {
  const std::string model_dir = model_of_run(options.model_dir, say);
  check_outputs({options.output_path}, {options.ids_path, options.mask_path, options.types_path}, model_dir);
  const engine::Model model(model_dir, {.precision = options.precision, .warn = warn_user});
  const Integers read = read_ids(options.ids_path, row_of(model.info().head).reads == HeadRow::Reads::kChoice);
  const Shape& shape = read.shape;
  const std::vector<int32_t> ids = checked(read.values, shape, "token ids", model.info().vocab_size);
  std::vector<int64_t> offsets;
  for (size_t end = 0; end <= ids.size(); end += static_cast<size_t>(shape.back())) {
    offsets.push_back(static_cast<int64_t>(end));
  }
  std::vector<uint8_t> attend;
  if (!options.mask_path.empty()) attend = read_mask(options.mask_path, shape);
  std::vector<int32_t> types;
  if (!options.types_path.empty()) {
    types = checked(read_like(options.types_path, "token types", shape), shape, "token types",
                    model.info().type_vocab_size);
  }
  const Result result = compute(model, {.ids = ids, .offsets = offsets, .types = types, .attend = attend}, shape);
  io::write_npy(options.output_path, io::DType::kF32, result.shape, std::as_bytes(std::span(result.values)));
  emit({{"output", options.output_path}, {"architecture", model.info().architecture}, {"shape", result.shape}});
  return kOk;
}

std::function<int()> configure_forward(CLI::App& app, const Common&) {
  auto options = std::make_shared<ForwardOptions>();
  app.add_option("--model", options->model_dir, "Model directory")->required();
  app.add_option("--ids", options->ids_path, ".npy of integers [B,T]; multiple choice: [B,choices,T]")->required();
  app.add_option("--mask", options->mask_path, ".npy of integers like the ids; 0: not attended to");
  app.add_option("--types", options->types_path, ".npy of integers like the ids: token types");
  app.add_option("--output", options->output_path,
                 ".npy to write, float32: logits; hidden states of a model without a head; question answering: [2,B,T]")
      ->required();
  add_precision(app, options->precision);
  return [options] { return run_forward(*options); };
}

}  // namespace

Command forward_command() {
  return {"forward", "Raw logits or hidden states of token ids, for checks",
          "roformer forward --model run --ids ids.npy --output logits.npy", Command::Seed::kNotUsed, configure_forward};
}

}  // namespace rf::cli
