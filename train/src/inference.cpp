// Running a trained model on arrays and on a text with masks (inference.h). The arithmetic is nn's; this file reads,
// checks and writes.
#include "rf/train/inference.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <c10/core/GradMode.h>
#include <fmt/ranges.h>

#include <cstring>
#include <filesystem>

#include "checkpoint.h"
#include "rf/io/error.h"
#include "rf/io/npy.h"
#include "rf/nn/model.h"
#include "rf/text/tokenizer.h"

namespace rf::train {

namespace {

constexpr const char* kWhere = "forward";

std::string shape_text(at::IntArrayRef shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

at::Tensor read_integers(const std::string& path) {
  const io::NpyArray array = io::read_npy(path);
  const std::vector<int64_t> values = array.to_int64(path);
  at::Tensor tensor = at::empty(array.shape, at::kLong);
  if (!values.empty()) std::memcpy(tensor.data_ptr(), values.data(), values.size() * sizeof(int64_t));
  return tensor;
}

at::Tensor read_ids(const std::string& path, bool choices) {
  const at::Tensor ids = read_integers(path);
  if (ids.dim() != (choices ? 3 : 2)) {
    fail(kWhere, "ids must have the shape {}, got {} in {}", choices ? "[B, choices, T]" : "[B, T]",
         shape_text(ids.sizes()), path);
  }
  if (ids.numel() == 0)
    fail(kWhere, "ids must hold at least one token, got the shape {} in {}", shape_text(ids.sizes()), path);
  return ids;
}

at::Tensor read_like(const std::string& path, const char* what, at::IntArrayRef shape) {
  const at::Tensor tensor = read_integers(path);
  if (tensor.sizes() != shape) {
    fail(kWhere, "{} must have the shape of the ids, {}, got {} in {}", what, shape_text(shape),
         shape_text(tensor.sizes()), path);
  }
  return tensor;
}

void check_no_empty_row(const at::Tensor& mask_BT, const std::string& path) {
  const at::Tensor empty = mask_BT.ne(0).any(-1).logical_not().nonzero();
  if (empty.size(0) > 0) {
    fail(kWhere, "each sequence must have a token that may be attended to, got none in row {} of {}",
         empty[0][0].item<int64_t>(), path);
  }
}

at::Tensor result_of(const nn::Output& output) {
  if (output.start_logits_BT.defined()) return at::stack({output.start_logits_BT, output.end_logits_BT});
  return output.logits.defined() ? output.logits : output.hidden_BTC;
}

}  // namespace

std::string model_of_run(const std::string& dir, const std::function<void(const std::string&)>& note) {
  const auto has = [&](const char* name) { return std::filesystem::exists(fmt::format("{}/{}", dir, name)); };
  if (has("config.json") || !has("run.json")) return dir;
  const std::optional<std::string> checkpoint = newest_checkpoint(dir);
  if (!checkpoint) fail("model", "a run must have a model or a checkpoint, got none yet in {}", dir);
  note(fmt::format("{} has not finished: its newest checkpoint is used, {}", dir, *checkpoint));
  return *checkpoint;
}

ForwardReport forward(const ForwardOptions& options) {
  const bool wide = options.dtype == "float64";
  if (!wide && options.dtype != "float32") fail(kWhere, "dtype must be float32 or float64, got {}", options.dtype);
  const auto model = nn::load_model(options.model_dir, std::nullopt, wide ? at::kDouble : at::kFloat);
  const bool choices = model->head() == Head::kMultipleChoice;
  const at::Tensor ids = read_ids(options.ids_path, choices);
  nn::Input input;
  input.ids_BT = ids.flatten(0, -2);
  if (!options.mask_path.empty()) {
    input.mask_BT = read_like(options.mask_path, "the mask", ids.sizes()).flatten(0, -2);
    check_no_empty_row(input.mask_BT, options.mask_path);
  }
  if (!options.types_path.empty()) {
    input.types_BT = read_like(options.types_path, "token types", ids.sizes()).flatten(0, -2);
  }
  const c10::NoGradGuard no_grad;
  const at::Tensor result = result_of(model->forward(input, choices ? ids.size(1) : 1)).contiguous();
  io::write_npy(options.output_path, wide ? io::DType::kF64 : io::DType::kF32, result.sizes().vec(),
                {static_cast<const std::byte*>(result.const_data_ptr()), result.nbytes()});
  return {architecture_of(model->config(), model->head()), result.sizes().vec()};
}

std::vector<std::vector<MaskPrediction>> fill_mask(const std::string& model_dir, const std::string& text,
                                                   int64_t top_k) {
  const auto tokenizer = text::Tokenizer::load(model_dir);
  const auto& vocabulary = tokenizer.vocabulary();
  if (load_config(model_dir).is_decoder) {
    fail("fill-mask", "the model must see both sides of a gap, got the causal one in {}", model_dir);
  }
  const auto model = nn::load_model(model_dir, Head::kMaskedLm, at::kFloat);
  if (model->config().vocab_size != vocabulary.size()) {
    fail("fill-mask", "vocab_size of {} must be its vocabulary's {}, got {}", model_dir, vocabulary.size(),
         model->config().vocab_size);
  }
  if (top_k < 1 || top_k > vocabulary.size()) {
    fail("fill-mask", "top-k must be from 1 to {}, got {}", vocabulary.size(), top_k);
  }
  vocabulary.require({text::SpecialRole::kMask}, "fill-mask");
  const text::Encoding encoding = tokenizer.encode_with_specials(text);
  const at::Tensor ids_T = at::empty({static_cast<int64_t>(encoding.size())}, at::kLong);
  std::copy(encoding.ids.begin(), encoding.ids.end(), ids_T.mutable_data_ptr<int64_t>());
  const at::Tensor places_N = ids_T.eq(vocabulary.special().mask).nonzero().flatten();
  if (places_N.numel() == 0)
    fail("fill-mask", "the text must have a {}, got \"{}\"", vocabulary.token(vocabulary.special().mask), text);

  const c10::NoGradGuard no_grad;
  nn::Input input;
  input.ids_BT = ids_T.unsqueeze(0);
  const at::Tensor hidden_TC = model->encode(input).squeeze(0);
  const at::Tensor probabilities_NV = model->masked_lm_logits(hidden_TC.index_select(0, places_N)).softmax(-1);
  const auto [best_NK, ids_NK] = probabilities_NV.topk(top_k, -1);
  std::vector<std::vector<MaskPrediction>> predictions;
  for (int64_t n = 0; n < places_N.numel(); ++n) {
    predictions.emplace_back();
    for (int64_t k = 0; k < top_k; ++k) {
      const int64_t id = ids_NK[n][k].item<int64_t>();
      predictions.back().push_back(
          {places_N[n].item<int64_t>(), vocabulary.token(id), id, double{best_NK[n][k].item<float>()}});
    }
  }
  return predictions;
}

}  // namespace rf::train
