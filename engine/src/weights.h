// The weights of a model directory or a GGUF file for the engine: found by the list of model/weights.h, checked, and
// read as float32.
#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "adapters.h"
#include "layers.h"
#include "memory.h"
#include "rf/io/gguf.h"
#include "rf/model/checkpoint_files.h"
#include "rf/model/config.h"
#include "rf/model/position_terms.h"
#include "rf/model/translation_files.h"

namespace rf::engine {

// The elements of a tensor as float32: the memory of a safetensors file if it stores float32, else a copy. The
// destructor returns the tensor's pages to the system, so that packed weights do not take memory twice.
class TensorFloats {
 public:
  // files: whose tensor `view` is. Throws Error for elements that are not floats, NaN and infinity, and values that are
  // not in float32's range.
  TensorFloats(std::shared_ptr<const CheckpointFiles> files, const io::TensorView& view);
  TensorFloats(Floats values, int64_t size) : copy_(std::move(values)), data_(copy_.get()), size_(size) {}
  ~TensorFloats();
  TensorFloats(const TensorFloats&) = delete;
  TensorFloats& operator=(const TensorFloats&) = delete;
  const float* get() const { return data_; }
  int64_t size() const { return size_; }

 private:
  std::shared_ptr<const CheckpointFiles> files_;
  const io::TensorView* view_ = nullptr;
  Floats copy_;
  const float* data_;
  int64_t size_;
};

// Rows of a matrix in a file, read on demand.
class MappedRows {
 public:
  MappedRows() = default;
  // owner: of the view. change: added to the rows, or nullptr.
  MappedRows(std::shared_ptr<const void> owner, const io::TensorView& view,
             std::shared_ptr<const LowRank> change = nullptr);
  bool empty() const { return view_ == nullptr; }
  int64_t rows() const { return view_->shape[0]; }
  int64_t width() const { return view_->shape[1]; }
  // to[i] += row[i]
  void add_row(int64_t row, float* to) const;
  void read_row(int64_t row, float* to) const {
    std::fill_n(to, width(), 0.0F);
    add_row(row, to);
  }

 private:
  std::shared_ptr<const void> owner_;
  const io::TensorView* view_ = nullptr;
  std::shared_ptr<const LowRank> change_;
};

// A matrix whose rows are read on demand: writes row `row` to `to`.
using ReadRow = std::function<void(int64_t row, float* to)>;

// Tensors by their names in model/weights.h, or by names that an encoding adds.
class Weights {
 public:
  // Of a directory. Throws Error for missing and unexpected tensors, and wrong shapes. A bare encoder (Head::kNone) of
  // the family bert may lack its pooler. has() of a tied tensor is true only if the file has a different copy of it
  // (add_untied() in rf/model/checkpoint_files.h).
  Weights(const std::string& model_dir, const ModelConfig& config, Head head,
          const std::function<void(const std::string&)>& warn, const AdapterChoice& adapter = {});
  // A side of an encoder-decoder, whose tensors translation_tensors() has checked.
  Weights(std::shared_ptr<const CheckpointFiles> files, const ModelConfig& config, TranslationSide side);
  // Of a GGUF file.
  Weights(std::shared_ptr<const io::GgufFile> gguf, const ModelConfig& config, Head head);

  const CheckpointFiles& files() const { return *files_; }  // of a directory
  // The file of position terms of a directory, and the hash that it must have.
  std::string terms_file() const { return side_ ? side_terms_file(*side_) : kPositionTermsFile; }
  std::string terms_hash(const ModelConfig& config) const {
    return position_terms_hash(config, side_ ? side_tensors_ : files_->tensors());
  }
  bool has(const std::string& name) const;
  bool changes_projections() const;  // of attention, by an adapter
  const std::vector<int64_t>& shape(const std::string& name) const;
  // All elements, and the same to `to`. Throws Error for elements that are not finite in float32. The file's pages are
  // given back.
  TensorFloats floats(const std::string& name) const;
  void read(const std::string& name, float* to) const;
  std::vector<float> vector(const std::string& name) const;
  // The bytes of a tensor of a directory, one for each element. Throws Error for other elements.
  std::span<const std::byte> bytes(const std::string& name) const;
  // The rows of a matrix, checked.
  ReadRow rows(const std::string& name) const;
  MappedRows mapped_rows(const std::string& name) const;  // of a GGUF file a copy
  // Appends the rows of a matrix, or of part `part` of `parts` equal parts, as a GGUF file stores them; false if
  // products do not read its type.
  bool add_file_rows(const std::string& name, FileRows& to, int64_t part = 0, int64_t parts = 1) const;
  void release_pages(const std::string& name) const;  // of a GGUF file

 private:
  struct Tensor {
    std::vector<int64_t> shape;
    const io::TensorView* view = nullptr;       // of a directory; nullptr: `quantised`
    const io::GgufTensor* quantised = nullptr;  // of gguf_
    std::shared_ptr<const LowRank> change{};    // of an adapter
    bool transposed = false;                    // in the file
  };
  const Tensor& at(const std::string& name) const;
  void add(const std::string& name, const io::TensorView& view);
  void add_encodings();

  std::shared_ptr<const CheckpointFiles> files_;
  std::shared_ptr<const io::GgufFile> gguf_;
  std::map<std::string, Tensor> tensors_;
  TensorMap side_tensors_;  // of a side
  std::optional<TranslationSide> side_;
};

// A matrix [rows, columns] as [columns, rows].
void transpose(const float* from, int64_t rows, int64_t columns, float* to);
std::vector<float> transposed(const std::vector<float>& values, int64_t rows);

// The matrices after the pooling of EmbeddingGemma in GGUF files.
inline constexpr std::string_view kGgufDense[] = {"dense_2.weight", "dense_3.weight"};

// All elements of a tensor. Throws Error as TensorFloats does.
std::vector<float> finite_elements(const io::TensorView& view);
// Elements begin .. begin + count - 1 of a tensor of floats.
void read_elements(const io::TensorView& view, int64_t begin, int64_t count, float* to);

// Layers from the weights `name`.weight and `name`.bias, which float32 leaves as a GGUF file stores them; a bias that
// the model does not have is left out.
std::vector<float> read_bias(const Weights& weights, const std::string& name);

// largest_inputs: as in the constructor of Linear.
Linear read_linear(const Weights& weights, const std::string& name, Precision precision,
                   const std::vector<float>& largest_inputs = {});

// The same for a matrix given by its full name.
Linear read_matrix(const Weights& weights, const std::string& matrix, Precision precision, std::vector<float> bias,
                   const std::vector<float>& largest_inputs = {});

// Part `part` of each tensor [parts, out, in], joined along `out`, as a GGUF file stores them; nullopt if a tensor must
// be read as floats.
std::optional<Linear> read_stored_part(const Weights& weights, const std::vector<std::string>& tensors,
                                       Precision precision, const std::vector<float>& bias, int64_t part);

// One product of several matrices with one input, [sum of outs, in].
Linear read_joined(const Weights& weights, const std::vector<std::string>& names, Precision precision,
                   const std::vector<float>& largest_inputs = {});

// The tensor [out, in / groups, taps] as a product with rows of `taps` tokens, [out, taps * in].
Linear read_convolution(const Weights& weights, const std::string& name, int64_t groups, Precision precision);

Norm read_norm(const Weights& weights, const std::string& name, const ModelConfig& config, int64_t columns);

// Layer `layer` of an encoder whose names have that prefix. largest: measured, for int8; else empty.
Block read_block(const Weights& weights, const std::string& prefix, const ModelConfig& config, int64_t layer,
                 Precision precision, const LayerInputs& largest);

}  // namespace rf::engine
