// Finding and reading the weights of a rotary decoder (see the header).
#include "decoder_weights.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "parallel_for.h"
#include "rf/io/error.h"
#include "rf/io/mapped_pages.h"
#include "rf/io/printable.h"
#include "weights.h"

namespace rf::engine {

namespace {

constexpr const char* kDecoderWeightsWhere = "load_model";
constexpr int64_t kParallelRead = 65536;  // elements

// Tables of frequencies, which the rotation's report reads.
bool is_rope_factor(const std::string& name) {
  return name == "rope_freqs.weight" || name.starts_with("rope_factors_");
}

}  // namespace

DecoderWeights::DecoderWeights(const std::string& path) {
  const std::optional<std::string> gguf = gguf_path(path);
  gguf ? open_gguf(*gguf) : open_directory(path);
}

// A separate head in a file whose config.json ties it.
void DecoderWeights::untie_stored_head() {
  if (!config_.tied_embeddings) return;
  const std::string embedding = decoder_tensors(config_).front().file_names.front();
  if (!files_->tensors().contains(embedding)) return;
  for (const std::string& head : decoder_head_names(config_.layout)) {
    if (!files_->tensors().contains(head)) continue;
    const std::optional<std::string> warning = untied_warning(*files_, head, embedding);
    if (!warning) continue;
    config_.problems.push_back(*warning);
    config_.tied_embeddings = false;
  }
}

void DecoderWeights::open_directory(const std::string& model_dir) {
  config_ = read_decoder_config(model_dir);
  files_ = std::make_shared<CheckpointFiles>(model_dir, kDecoderWeightsWhere);
  untie_stored_head();
  std::set<std::string> used;
  for (const DecoderTensor& wanted : decoder_tensors(config_)) {
    const auto found = std::ranges::find_if(wanted.file_names,
                                            [&](const std::string& name) { return files_->tensors().contains(name); });
    if (found == wanted.file_names.end())
      fail(kDecoderWeightsWhere, "the checkpoint must have {}, got none", wanted.file_names[0]);
    const io::TensorView& view = files_->at(*found);
    used.insert(*found);
    add(wanted, {.shape = view.shape, .view = &view});
  }
  const std::vector<std::string> heads = decoder_head_names(config_.layout);
  for (const auto& [name, view] : files_->tensors()) {
    const bool copy = config_.tied_embeddings && std::ranges::find(heads, name) != heads.end();
    if (!used.contains(name) && !copy && !is_decoder_buffer(name)) {
      fail(kDecoderWeightsWhere, "the checkpoint must have no tensor that {} does not use, got {}",
           config_.architecture, io::printable(name));
    }
  }
}

void DecoderWeights::open_gguf(const std::string& path) {
  gguf_ = std::make_shared<io::GgufFile>(path);
  config_ = read_decoder_config(path, *gguf_);
  std::set<std::string> used;
  for (const DecoderTensor& wanted : decoder_tensors(config_)) {
    const io::GgufTensor* const tensor = gguf_->find(wanted.name);
    if (tensor == nullptr) fail(path, "the file must have the tensor {}, got none", wanted.name);
    gguf_->check(*tensor);
    used.insert(wanted.name);
    std::vector<int64_t> shape(tensor->shape.rbegin(), tensor->shape.rend());
    add(wanted, {.shape = std::move(shape), .quantised = tensor});
  }
  for (const io::GgufTensor& tensor : gguf_->tensors()) {
    if (used.contains(tensor.name) || is_rope_factor(tensor.name)) continue;
    fail(path, "the file must have no tensor that a {} does not use, got {}", config_.model_type,
         io::printable(tensor.name));
  }
}

void DecoderWeights::add(const DecoderTensor& wanted, Tensor found) {
  if (found.shape != wanted.shape) {
    fail(config_.path, "{} must have the shape [{}], got [{}]", wanted.name, fmt::join(wanted.shape, ", "),
         fmt::join(found.shape, ", "));
  }
  tensors_.emplace(wanted.name, std::move(found));
}

const DecoderWeights::Tensor& DecoderWeights::at(const std::string& name) const { return tensors_.at(name); }

void DecoderWeights::read(const std::string& name, float* to) const {
  const Tensor& tensor = at(name);
  if (tensor.view != nullptr) {
    const TensorFloats values(files_, *tensor.view);
    std::copy_n(values.get(), values.size(), to);
    return;
  }
  int64_t count = 1;
  for (const int64_t extent : tensor.shape) count *= extent;
  const int64_t row = tensor.shape.back();
  parallel_for(count / row, count > kParallelRead, [&](int64_t i) {
    gguf_->read(*tensor.quantised, static_cast<uint64_t>(i * row), static_cast<uint64_t>(row), to + i * row);
  });
  io::release_pages(gguf_->bytes(*tensor.quantised));
  const float* bad = std::find_if(to, to + count, [](float x) { return !std::isfinite(x); });
  if (bad != to + count) fail(config_.path, "weights must be finite, got {} in {}[{}]", *bad, name, bad - to);
}

std::vector<float> DecoderWeights::vector(const std::string& name) const {
  std::vector<float> values(static_cast<size_t>(at(name).shape[0]));
  read(name, values.data());
  return values;
}

ReadRow DecoderWeights::rows(const std::string& name) const {
  const Tensor& tensor = at(name);
  const int64_t width = tensor.shape[1];
  read(name, make_floats(tensor.shape[0] * width).get());  // for its check
  if (tensor.view != nullptr) {
    return [rows = MappedRows(files_, *tensor.view), width](int64_t row, float* to) {
      std::fill_n(to, width, 0.0F);
      rows.add_row(row, to);
    };
  }
  return [gguf = gguf_, found = tensor.quantised, width](int64_t row, float* to) {
    gguf->read(*found, static_cast<uint64_t>(row * width), static_cast<uint64_t>(width), to);
  };
}

}  // namespace rf::engine
